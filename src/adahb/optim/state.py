"""What is kept for a parameter between steps: how it starts, and how it is saved and loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

MOST_STEPS = 2**53
_COUNTS = (torch.int64, torch.int32)

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


def check_saved(method: str, saved: Any, groups: list[Group]) -> None:
    """Refuse what is no state dict for parameters in such groups, whatever it is instead."""
    wanted = f"the state must be what {method}.state_dict() has returned, a dict of"
    if not (
        isinstance(saved, Mapping)
        and isinstance(saved.get("state"), Mapping)
        and isinstance(saved.get("param_groups"), list | tuple)
        and all(isinstance(group, Mapping) for group in saved["param_groups"])
    ):
        raise ValueError(f"{wanted} 'state', a dict, and 'param_groups', a list of dicts")
    counts = []
    for group in saved["param_groups"]:
        if not isinstance(group.get("params"), list | tuple):
            raise ValueError(f"{wanted} groups with a list 'params', got {group.get('params')!r}")
        counts.append(len(group["params"]))
    own = [len(group["params"]) for group in groups]
    if counts != own:
        raise ValueError(
            f"{wanted} groups that match the size of those of the optimizer, {own}, got {counts}"
        )
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    if not all(isinstance(key, int | str) for key in keys) or len(set(keys)) < len(keys):
        raise ValueError(f"{wanted} groups with a number for each parameter, got {keys}")
    strange = [key for key in saved["state"] if key not in keys]
    if strange:
        raise ValueError(f"{wanted} a state for parameters of its groups, got {strange[:5]}")
    for key, entry in saved["state"].items():
        if not isinstance(entry, Mapping):
            raise ValueError(f"{wanted} a dict for each parameter, got {entry!r} for {key!r}")


def check_groups(method: str, saved: Group, defaults: Group, foreign: Iterable[str]) -> None:
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
    _check_clock(state[CLOCK])
    for key in (key for key in dict.fromkeys((*wanted[1:], LOW)) if key in state):
        shape = (narrow.size_of(p.shape),) if key.endswith(SCALE) else tuple(p.shape)
        about = f"the state of a parameter of shape {tuple(p.shape)} must have"
        value = state[key]
        if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_meta:
            raise ValueError(f"{about} a plain tensor under {key!r}, got {_shown(value)}")
        if value.shape != shape:
            raise ValueError(f"{about} the shape {shape} under {key!r}, got {tuple(value.shape)}")
        dtypes = _dtypes(key, p, recipe)
        if value.dtype not in dtypes:
            allowed = " or ".join(map(str, dtypes))
            raise ValueError(f"{about} {allowed} under {key!r}, got {value.dtype}")
        if (key == V or key.endswith(SCALE)) and bool((value < 0).any()):
            raise ValueError(f"{about} no negative numbers under {key!r}, got {_least(value)}")


def _check_clock(clock: Any) -> None:
    """Refuse what does not count steps, or so many that float64 does not count them any more."""
    is_count = isinstance(clock, Tensor) and clock.numel() == 1 and not clock.is_meta
    is_count = is_count and clock.layout is torch.strided and clock.dtype in _COUNTS
    if not is_count or not 0 <= int(clock) <= MOST_STEPS:
        raise ValueError(
            f"the state must have under {CLOCK!r} a tensor that counts the steps, an integer from "
            f"0 to 2^53, got {clock.item() if is_count else _shown(clock)}"
        )


def _dtypes(key: str, p: Tensor, recipe: Recipe) -> tuple[torch.dtype, ...]:
    """In what the state of a parameter may have been kept."""
    if key == LOW:
        return (torch.int16,)
    if key.endswith(SCALE):
        return (torch.float32,)
    if recipe.state_dtype is not None and key != AVERAGE:
        return (_NARROW[recipe.state_dtype][key == V],)
    wide = (torch.complex64, torch.complex128), (torch.float32, torch.float64)
    return wide[key == V or not p.is_complex()]


def _least(x: Tensor) -> float:
    return float((x.full_tensor() if sharding.is_dtensor(x) else x).min())


def _shown(value: Any) -> str:
    """What a value is, in few words."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}, shape {tuple(value.shape)} and {value.layout}"
    return f"a {type(value).__name__}"


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
