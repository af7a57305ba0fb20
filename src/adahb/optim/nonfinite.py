"""Gradients that hold NaN or infinity: what becomes of a step that was given any.

``nonfinite`` says it, for each group: "propagate" looks at no gradient, so that the weights become
what arithmetic makes of them; "raise" refuses the step, and waits for the device to know; "skip"
leaves the whole step out, on the device where the gradients are there: then nobody waits, by the
way that `adahb.optim.scaling` goes for the steps that a GradScaler leaves out.

Looked at are the gradients that an update would use, each once, by its largest size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from adahb.optim import sharding

if TYPE_CHECKING:
    from adahb.optim.base import HeavyBall
    from adahb.optim.options import Group

NonFinite = Literal["propagate", "skip", "raise"]
CHOICES = ("propagate", "skip", "raise")

COUNT = "skipped_steps"
"""Under which a group that skips keeps how often it has: a tensor, in saved states a number."""


def prepare(group: Group) -> None:
    """Give a group that skips, or has skipped, a counter of its own beside its parameters."""
    if group["nonfinite"] == "skip" or COUNT in group:
        device = group["params"][0].device if group["params"] else torch.device("cpu")
        device = torch.device("cpu") if device.type == "meta" else device
        group[COUNT] = torch.tensor(int(group.get(COUNT, 0)), device=device)


def look(optimizer: HeavyBall, overflowed: Tensor | None) -> Tensor | None:
    """Whether the step must be left out: not zero if so, None if nobody has looked.

    ``overflowed`` is what a GradScaler has found: such a step is left out and not refused.
    """
    refusing = [group for group in optimizer.param_groups if group["nonfinite"] == "raise"]
    skipping = [group for group in optimizer.param_groups if group["nonfinite"] == "skip"]
    if refusing:
        if torch.compiler.is_compiling():
            raise RuntimeError(
                "nonfinite must be 'skip' or 'propagate' inside of torch.compile, got 'raise': a "
                "graph looks at no numbers"
            )
        if _found(refusing) and not (overflowed is not None and overflowed):
            raise FloatingPointError(_complaint(optimizer))
    if skipping:
        found = _found(skipping)
        if overflowed is not None:
            found = found.maximum(overflowed.reshape(()).to(found))
        for group in skipping:
            _count(group, found)
        return found
    return overflowed


def _count(group: Group, found: Tensor) -> None:
    if COUNT not in group:  # the option was changed after the group had been added
        prepare(group)
    if group[COUNT].device != found.device:
        group[COUNT] = group[COUNT].to(found.device)
    group[COUNT].add_(found > 0)


# ---------------------------------------------------------------- looking


@torch.no_grad()
def _found(groups: list[Group]) -> Tensor:
    """1 if a gradient of these groups is not finite, on whichever rank, else 0."""
    params = [p for group in groups for p in group["params"]]
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for p in params:
        if p.grad is not None:
            g = _real(p)
            if g.numel():
                alike.setdefault((g.device, g.dtype), []).append(g)
    spread = [p for p in params if sharding.is_dtensor(p)]
    device = sharding.here((spread or params)[0]).device
    found = torch.zeros((), device=device)
    for grads in alike.values():
        largest = torch.stack(torch._foreach_norm(grads, torch.inf))
        found = found.maximum((~largest.isfinite()).any().to(found))
    return _agreed(found, spread) if spread else found


def _real(p: Tensor) -> Tensor:
    """The numbers of p's gradient on this rank: those that are kept, where it is sparse."""
    g = sharding.gradient(p).detach()
    if g.layout is torch.sparse_coo:
        g = g.coalesce().values()
    elif g.layout is not torch.strided:
        g = g.values()
    return torch.view_as_real(g.resolve_conj()) if torch.is_complex(g) else g


def _agreed(found: Tensor, spread: Sequence[Tensor]) -> Tensor:
    """The same on all ranks: once for each mesh, and where they overlap until all have heard."""
    from torch import distributed

    meshes = list(dict.fromkeys(p.device_mesh for p in spread if sharding.is_dtensor(p)))
    for mesh in meshes * len(meshes):
        if mesh.get_coordinate() is not None:
            for ranks in mesh.get_all_groups():
                distributed.all_reduce(found, distributed.ReduceOp.MAX, group=ranks)
    return found


# ---------------------------------------------------------------- saying what was found


def _complaint(optimizer: HeavyBall) -> str:
    found = list(_descriptions(optimizer))
    if not found:
        found = ["a gradient on another rank is not finite"]
    more = f" (and {len(found) - 1} more gradients are not finite)" if len(found) > 1 else ""
    return (
        f"{found[0]}{more}; no weight and no state has been changed. Look for the cause with "
        "torch.autograd.set_detect_anomaly(True), take a smaller lr, or clip gradients before they "
        "overflow; nonfinite='skip' leaves such steps out"
    )


def _descriptions(optimizer: HeavyBall) -> Iterator[str]:
    """Of each parameter in question which it is, and what its gradient holds."""
    for number, group in enumerate(optimizer.param_groups):
        for place, p in enumerate(group["params"]):
            if group["nonfinite"] != "raise" or p.grad is None:
                continue
            g = _real(p)
            nans, infinities = int(g.isnan().sum()), int(g.isinf().sum())
            if nans or infinities:
                names = group.get("param_names")
                name = f"{names[place]!r}" if names else f"{place}"
                label = f" ({group['name']!r})" if "name" in group else ""
                place_and_shape = f"group {number}{label}, place {place}, shape {tuple(p.shape)}"
                yield (
                    f"the gradient of parameter {name} ({place_and_shape}) holds {nans} NaN and "
                    f"{infinities} infinite of {g.numel()} numbers"
                )
