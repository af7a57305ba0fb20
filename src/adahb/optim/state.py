"""What is kept for a parameter between steps: how it starts, and how it is saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from adahb.optim import narrow, nonfinite, sharding
from adahb.optim.options import Group
from adahb.optim.update import Recipe
from adahb.sets import ConvexSet, from_dict

CLOCK = "clock"
"""The steps done, an int64; one tensor for all parameters of a group that have stepped together.

Not "step", which torch.compile and `load_state_dict` of torch treat in ways of their own."""
U, Z, P, V, AVERAGE = "u", "z", "p", "v", "average"
LOW, SCALE = "low", "_scale"
"""Low digits of the parameter; what is added to the name of a state in blocks for its scales."""

_NARROW = {"bf16": (torch.bfloat16, torch.bfloat16), "int8": (torch.int8, torch.uint8)}
"""The dtypes of the buffer and of v."""


def buffer(recipe: Recipe) -> str:
    """What the buffer holds under this recipe."""
    return P if recipe.offset else Z if recipe.averaging else U


def names(recipe: Recipe, dtype: torch.dtype) -> list[str | None]:
    """The names of what is kept for a parameter of a dtype, in the order of `update.STATES`.

    None stands for what is not kept.
    """
    blocks = recipe.state_dtype == "int8"
    return [
        buffer(recipe),
        V if recipe.adaptive else None,
        AVERAGE if recipe.keeps_average else None,
        LOW if recipe.compensates(dtype) else None,
        buffer(recipe) + SCALE if blocks else None,
        V + SCALE if blocks and recipe.adaptive else None,
    ]


def start(p: Tensor, clock: Tensor, group: Group, recipe: Recipe) -> Group:
    """The state of a parameter before its first step, in its layout and on its device."""
    at = (p if group["differentiable"] else p.detach()).to(recipe.arithmetic(p.dtype))
    states, squares = _NARROW.get(recipe.state_dtype or "", (None, None))
    if states is None and recipe.compensates(p.dtype) and p.dtype is torch.float32:
        states = squares = p.dtype
    state: Group = {CLOCK: clock}
    if recipe.averaging and not recipe.offset:
        state[Z] = at.clone() if states is None else at.to(states, copy=True)
    else:
        state[buffer(recipe)] = torch.zeros_like(at, dtype=states)
    if recipe.adaptive:
        state[V] = torch.zeros_like(at.real if torch.is_complex(at) else at, dtype=squares)
    if recipe.keeps_average:
        state[AVERAGE] = at.clone()
    if recipe.compensates(p.dtype):
        state[LOW] = torch.zeros_like(at, dtype=torch.int16)
    if recipe.state_dtype == "int8":
        for key in (buffer(recipe), *((V,) if recipe.adaptive else ())):
            state[key + SCALE] = narrow.scales_of(state[key])
    return state


def clock_device(p: Tensor, group: Group) -> torch.device:
    """Host, unless the step is captured: then the clock is data on the device."""
    return p.device if group["capturable"] else torch.device("cpu")


def encode(saved: Group) -> Group:
    """The same state dict with sets as what they are made of, so that it is plain data."""
    for group in saved.get("param_groups", ()):
        if nonfinite.COUNT in group:
            group[nonfinite.COUNT] = int(group[nonfinite.COUNT])
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


def up_to_date(saved: Group, groups: list[Group]) -> Group:
    """The same, with the options that were not there when it was saved as they are now."""
    pairs = zip(saved["param_groups"], [*groups, *saved["param_groups"]], strict=False)
    young = {"nonfinite": "propagate"}
    filled = [{k: own.get(k, v) for k, v in young.items()} | group for group, own in pairs]
    return {**saved, "param_groups": filled}


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
    wanted = [CLOCK, *filter(None, names(recipe, p.dtype))]
    if {*state, LOW} != {*wanted, LOW}:  # low digits are a matter of the parameter's own dtype
        raise ValueError(
            f"the state must be one of {method} with the same options, which holds "
            f"{', '.join(wanted)} for a parameter, got {', '.join(map(str, state)) or 'nothing'}"
        )
    for key in (key for key in wanted[1:] if key in state):
        shape = (narrow.size_of(p.shape),) if key.endswith(SCALE) else tuple(p.shape)
        if state[key].shape != shape:
            raise ValueError(
                f"the state of a parameter of shape {tuple(p.shape)} must have the shape {shape} "
                f"under {key!r}, got {tuple(state[key].shape)}"
            )


def restored(
    p: Tensor, state: Group, group: Group, recipe: Recipe, clocks: dict[Any, Tensor]
) -> Group:
    """A copy of a saved state for ``p``, bit for bit in the dtypes in which it was saved.

    Clocks of a group that agree become one tensor again: parameters that share one are stepped
    together.  Never clocks of two groups, each of which lets its clocks go on by itself.
    Low digits that were saved for a parameter of another dtype are left out, or start at zero.
    """
    own: Group = {k: sharding.laid_out_like(p, v) for k, v in state.items() if k != CLOCK}
    if not recipe.compensates(p.dtype):
        own.pop(LOW, None)
    elif LOW not in own:
        own[LOW] = torch.zeros_like(p, dtype=torch.int16, requires_grad=False)
    device, steps = clock_device(p, group), int(state[CLOCK])
    key = id(group), device, steps
    if key not in clocks:
        clocks[key] = torch.tensor(steps, dtype=torch.int64, device=device)
    return {CLOCK: clocks[key], **own}
