"""What a group may ask for: every refusal names the option, its value and what is allowed."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from adahb import _checks as check
from adahb import schedules
from adahb.optim import narrow, nonfinite, sharding
from adahb.sets import ConvexSet, NuclearBall

Group = dict[str, Any]

SCHEDULER_KEYS = (
    "initial_lr",
    "max_lr",
    "min_lr",
    "max_momentum",
    "base_momentum",
    "swa_lr",
    "lr_scale",
)
"""What learning-rate schedulers write into groups: torch's, and timm's as the last."""

LABELS = ("params", "param_names", "name")
"""What says of which parameters a group is; loggers show its ``name``."""

_CHOICES = {
    "form": ("averaging", "paper"),
    "projection": ("metric", "euclidean"),
    "nonfinite": nonfinite.CHOICES,
}
_OPTIONAL = {
    "rounding": ("compensated", "stochastic", "nearest"),
    "state_dtype": ("bf16", "int8"),
}
_SWITCHES = ("maximize", "decoupled_weight_decay", "capturable", "differentiable")


def check_names(method: str, group: Group, defaults: Group) -> None:
    """Refuse options that the method does not have."""
    for name in set(group) - {*LABELS, nonfinite.COUNT, *defaults, *SCHEDULER_KEYS}:
        raise ValueError(f"{method} has no option {name!r}; it has {', '.join(defaults)}")


def check_values(group: Group) -> None:
    """Refuse values that mean nothing; the schedule looks at those that it takes itself."""
    lr = group["lr"]
    if isinstance(lr, Tensor):
        if lr.numel() != 1 or lr.is_meta:
            raise ValueError(f"lr must be a number or a tensor of one element, got {lr!r}")
        lr = lr.item()
    most = _largest(group)
    check.number("lr", lr, at_least=0, at_most=most)
    check.number("weight_decay", group["weight_decay"], at_least=0, at_most=most)
    for name, choices in _CHOICES.items():
        if name in group:
            check.choice(name, group[name], choices)
    for name, narrower in _OPTIONAL.items():
        if group[name] is not None:
            check.choice(name, group[name], narrower)
    for name in _SWITCHES:
        _check_among(name, group[name], (True, False))
    for name in ("foreach", "fused"):
        _check_among(name, group[name], (True, False, None))
    if group["nonfinite"] == "raise" and group["capturable"]:
        raise ValueError(
            "nonfinite must be 'skip' or 'propagate' with capturable=True, for a graph looks at no "
            "numbers, got 'raise'"
        )
    if group["foreach"] and group["fused"]:
        raise ValueError("foreach and fused must not both be True")
    if group["differentiable"] and (group["foreach"] or group["fused"]):
        raise ValueError("differentiable=True must go without foreach=True and fused=True")
    if group["differentiable"] and any(map(sharding.is_dtensor, group["params"])):
        raise ValueError("differentiable=True must go without parameters that are DTensors")
    _check_narrow(group)
    if "power" in group:
        check.number("power", group["power"], at_least=0)
    if group.get("momentum") is not None:
        check.number("momentum", group["momentum"], at_least=0, below=1)
        schedules.require_no_averaging(group["power"], group["averaging_tick"])


def _largest(group: Group) -> float | None:
    """The largest number that every parameter of the group can be multiplied by."""
    wide = {torch.promote_types(p.dtype, torch.float32) for p in group["params"]}
    return min((torch.finfo(dtype).max for dtype in wide), default=None)


def _check_narrow(group: Group) -> None:
    """Refuse to round beside derivatives, complex numbers and, in blocks, over a mesh."""
    state_dtype, rounding = group["state_dtype"], group["rounding"]
    if group["differentiable"] and (state_dtype or rounding in ("compensated", "stochastic")):
        raise ValueError(
            "differentiable=True must go without state_dtype and with rounding None or 'nearest', "
            f"for rounding has no derivative, got {state_dtype!r} and {rounding!r}"
        )
    for p in group["params"]:
        if state_dtype and torch.is_complex(p):
            raise TypeError(f"state_dtype={state_dtype!r} needs real parameters, got {p.dtype}")
        if state_dtype == "int8" and sharding.is_dtensor(p):
            raise ValueError(
                "state_dtype must be None or 'bf16' for DTensors, whose shards would cut blocks "
                f"of {narrow.BLOCK} numbers, got 'int8'"
            )


def check_constraint(group: Group) -> None:
    """Refuse what is no set, and sets in which the group's parameters cannot live."""
    constraint = group["constraint"]
    if constraint is None:
        return
    if not isinstance(constraint, ConvexSet):
        raise TypeError(f"constraint must be a set of adahb.sets or None, got {constraint!r}")
    if group.get("projection") == "metric" and isinstance(constraint, NuclearBall):
        raise ValueError(
            f"projection must be 'euclidean' with constraint={constraint!r}, for which the "
            "projection in a metric has no closed form, got 'metric'"
        )
    for p in group["params"]:
        sharding.set_over_mesh(constraint, p)
        if torch.is_complex(p):
            raise TypeError(f"constraint={constraint!r} needs real parameters, got {p.dtype}")
        try:
            constraint._fit(tuple(p.shape))
        except ValueError as error:
            raise ValueError(
                f"constraint={constraint!r} must fit every parameter of its group, but one has "
                f"the shape {tuple(p.shape)}: {error}"
            ) from error


def start_inside(p: Tensor, constraint: ConvexSet) -> None:
    """Project a parameter that starts outside, and say so; the guarantees are about points of Q."""
    with torch.no_grad():
        allowed, part = sharding.set_over_mesh(constraint, p) or constraint, sharding.here(p)
        try:
            inside = allowed.contains(part)
        except ValueError as error:
            raise ValueError(
                f"a parameter of shape {tuple(p.shape)} must be finite to start inside of "
                f"{constraint!r}: {error}"
            ) from error
        if not inside:
            warnings.warn(
                f"a parameter of shape {tuple(p.shape)} starts outside of {constraint!r}: it is "
                "projected",
                stacklevel=5,
            )
            part.copy_(allowed.project(part))


def check_cycled_momentum(group: Group, declared: float | None) -> None:
    """Refuse a constant momentum that a scheduler has put where t/(t + 2) was asked for."""
    if declared is None and group.get("momentum") is not None and "max_momentum" in group:
        raise ValueError(
            f"momentum must stay None, which is a schedule of its own, but a learning-rate "
            f"scheduler has set it to {group['momentum']!r}: give it cycle_momentum=False"
        )


def _check_among(name: str, value: object, allowed: tuple[bool | None, ...]) -> None:
    if not any(value is choice for choice in allowed):
        wanted = ", ".join(map(repr, allowed))
        raise TypeError(f"{name} must be one of {wanted}, got {value!r}")
