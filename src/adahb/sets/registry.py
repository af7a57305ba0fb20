"""From plain data back to sets."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from adahb._checks import choice
from adahb.sets.balls import L1Ball, L2Ball, WeightedL1Ball
from adahb.sets.base import ConvexSet
from adahb.sets.boxes import Box, LinfBall, NonNegative
from adahb.sets.flats import Affine, HalfSpace
from adahb.sets.groups import GroupL1Ball
from adahb.sets.simplex import Simplex
from adahb.sets.spectral import NuclearBall

_KINDS: dict[str, type[ConvexSet]] = {
    family.__name__: family
    for family in (
        Affine,
        Box,
        GroupL1Ball,
        HalfSpace,
        L1Ball,
        L2Ball,
        LinfBall,
        NonNegative,
        NuclearBall,
        Simplex,
        WeightedL1Ball,
    )
}


def from_dict(data: Mapping[str, Any]) -> ConvexSet:
    """Return the set that `ConvexSet.to_dict` described.

    >>> from_dict({"kind": "L1Ball", "radius": 2.0})
    L1Ball(radius=2.0, dim=None)
    """
    values = dict(data)
    family = _KINDS[choice("kind", values.pop("kind", None), _KINDS)]
    known = {f.name: f.default is MISSING for f in fields(family)}
    unknown = sorted(set(values) - set(known))
    missing = [name for name, needed in known.items() if needed and name not in values]
    if unknown or missing:
        raise ValueError(
            f"{family.__name__} has the fields {', '.join(known) or 'none'}; "
            f"missing: {missing}, unknown: {unknown}"
        )
    return family(**values)
