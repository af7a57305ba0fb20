"""What is kept for a parameter between steps: how it starts, and how it is saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from adahb.optim.options import Group
from adahb.optim.update import HALF, Recipe
from adahb.sets import ConvexSet, from_dict

CLOCK = "clock"
"""The steps done, an int64; one tensor for all parameters of a group that have stepped together.

Not "step", which torch.compile and `load_state_dict` of torch treat in ways of their own."""
U, Z, V, AVERAGE = "u", "z", "v", "average"


def keys(recipe: Recipe) -> list[str]:
    """What the state of a parameter holds under this recipe."""
    wanted = ((V, recipe.adaptive), (AVERAGE, recipe.keeps_average))
    return [CLOCK, Z if recipe.averaging else U, *(key for key, kept in wanted if kept)]


def start(p: Tensor, clock: Tensor, group: Group, recipe: Recipe) -> Group:
    """The state of a parameter before its first step, in its layout and on its device."""
    at = p if group["differentiable"] else p.detach()
    if p.dtype in HALF:
        at = at.float()
    state: Group = {CLOCK: clock}
    state[Z if recipe.averaging else U] = at.clone() if recipe.averaging else torch.zeros_like(at)
    if recipe.adaptive:
        state[V] = torch.zeros_like(at.real if torch.is_complex(at) else at)
    if recipe.keeps_average:
        state[AVERAGE] = at.clone()
    return state


def clock_device(p: Tensor, group: Group) -> torch.device:
    """Host, unless the step is captured: then the clock is data on the device."""
    return p.device if group["capturable"] else torch.device("cpu")


def encode(saved: Group) -> Group:
    """The same state dict with sets as what they are made of, so that it is plain data."""
    for group in saved.get("param_groups", ()):
        if isinstance(group.get("constraint"), ConvexSet):
            group["constraint"] = group["constraint"].to_dict()
    return saved


def decode(saved: Group) -> Group:
    """The reverse of :func:`encode`, leaving what was given alone."""
    groups = [dict(group) for group in saved["param_groups"]]
    for group in groups:
        if isinstance(group.get("constraint"), dict):
            group["constraint"] = from_dict(group["constraint"])
    return {**saved, "param_groups": groups}


def check_saved(method: str, saved: Group, defaults: Group, foreign: Iterable[str]) -> None:
    """Refuse the groups of another optimizer; ``foreign`` are options of ours that it may have."""
    wrong = f"the state must be one of {method}, but its groups"
    for group in saved["param_groups"]:
        for name in defaults:
            if name not in group:
                raise ValueError(f"{wrong} have no {name!r}")
        for name in foreign:
            if name not in defaults and name in group:
                raise ValueError(f"{wrong} have {name!r}={group[name]!r}")


def check_entry(method: str, p: Tensor, state: Group, recipe: Recipe) -> None:
    """Refuse the state of a parameter that the saved options cannot have made."""
    wanted = keys(recipe)
    if set(state) != set(wanted):
        raise ValueError(
            f"the state must be one of {method} with the same options, which holds "
            f"{', '.join(wanted)} for a parameter, got {', '.join(map(str, state)) or 'nothing'}"
        )
    for key in wanted[1:]:
        if state[key].shape != p.shape:
            raise ValueError(
                f"the state of a parameter of shape {tuple(p.shape)} must have that shape, but "
                f"{key!r} has {tuple(state[key].shape)}"
            )


def restored(p: Tensor, state: Group, group: Group, clocks: dict[Any, Tensor]) -> Group:
    """A copy of a saved state for ``p``, bit for bit in the dtypes in which it was saved.

    Clocks that agree become one tensor again: parameters that share one are stepped together.
    """
    own: Group = {k: v.to(p.device, copy=True) for k, v in state.items() if k != CLOCK}
    device, steps = clock_device(p, group), int(state[CLOCK])
    if (device, steps) not in clocks:
        clocks[device, steps] = torch.tensor(steps, dtype=torch.int64, device=device)
    return {CLOCK: clocks[device, steps], **own}
