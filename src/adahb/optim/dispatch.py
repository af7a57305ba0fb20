"""Which kernel makes a step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from adahb.optim.kernels import cpu, eager, foreach, triton
from adahb.optim.update import Batch, Numbers, Recipe

Kernel = Callable[[Batch, Numbers, Recipe], None]

PAYS_ON_CPU = 300_000
"""Elements, each tensor counting as `CALLS` more, from which ``fused=None`` compiles on the CPU.

Loading the kernel takes 0.3 s; compiling it, the first time on a machine, 0.8 s.  From here on a
step is shorter by 0.3 ms or more, which repays that within some thousand steps."""

CALLS = 15_000
"""Elements that take as long as what eager operations cost for a tensor of any size, 15 μs."""


def kernel(group: dict[str, Any], batch: Batch, at: Numbers) -> Kernel:
    """The fastest kernel that can make the step, or the one that the group asks for.

    What was chosen once serves a batch as long as it is used: a group with other options makes new
    ones.
    """
    on_device = isinstance(at.alpha, Tensor)
    if torch.compiler.is_compiling():
        return _unscaled(_unfused(group, batch, on_device))
    known: Kernel | None = batch.memo.get(on_device)
    if known is None:
        known = batch.memo[on_device] = _choose(group, batch, on_device)
    return known


def _choose(group: dict[str, Any], batch: Batch, on_device: bool) -> Kernel:
    if batch.params[0].is_cuda and _fused_on_gpu(group):
        return _compiled(group, triton, on_device)
    on_host = all(p.device.type == "cpu" for p in batch.params)
    if on_host and not on_device and not group["differentiable"] and _fused_on_cpu(group, batch):
        return _unscaled(_compiled(group, cpu, on_device))
    if on_host and on_device and group["fused"]:
        _say_once("the numbers of the step are tensors, as capturable=True makes them")
    return _unscaled(_unfused(group, batch, on_device))


def _fused_on_gpu(group: dict[str, Any]) -> bool:
    if group["differentiable"]:
        return False
    return bool(group["fused"]) or (group["fused"] is None and group["foreach"] is None)


def _fused_on_cpu(group: dict[str, Any], batch: Batch) -> bool:
    if group["fused"] is not None or group["foreach"] is not None:
        return bool(group["fused"])
    return sum(p.numel() for p in batch.params) + CALLS * len(batch.params) >= PAYS_ON_CPU


def _compiled(group: dict[str, Any], fused: ModuleType, on_device: bool) -> Kernel:
    """The compiled kernel, or what serves where it cannot; that is said if it was asked for."""

    def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
        reason = fused.supports(batch, recipe)
        if reason is None:
            return fused.step(batch, at, recipe)  # type: ignore[no-any-return]
        if group["fused"]:
            _say_once(reason)
        return _unscaled(_unfused(group, batch, on_device))(batch, at, recipe)

    return step


def _unscaled(kernel: Kernel) -> Kernel:
    """The same for kernels that do not divide by ``grad_scale`` themselves."""

    def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
        if at.grad_scale is not None:
            scale = at.grad_scale
            batch = replace(batch, grads=[_divided(g, scale) for g in batch.grads])
            at = at._replace(grad_scale=None)
        kernel(batch, at, recipe)

    return step


def _divided(g: Tensor, scale: Tensor) -> Tensor:
    """A gradient over its scale, in float32 at least: half precision would lose the smallest."""
    return g.to(torch.promote_types(g.dtype, torch.float32)) / scale.to(g.device)


def _unfused(group: dict[str, Any], batch: Batch, on_device: bool) -> Kernel:
    if group["differentiable"] or on_device or group["foreach"] is False:
        return eager.step
    if group["foreach"] or all(p.device.type == "cuda" for p in batch.params):
        return foreach.step
    return eager.step


@cache
def _say_once(reason: str) -> None:
    """Warn, once for each reason, that ``fused=True`` is not followed."""
    warnings.warn(f"fused=True falls back to operations of torch: {reason}", stacklevel=2)
