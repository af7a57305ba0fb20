"""The update in multi-tensor operations: one launch an operation for all tensors of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from adahb.optim.kernels.eager import bounded, displaced, project, squared
from adahb.optim.kernels.wide import copy_back, widened

if TYPE_CHECKING:
    from torch import Tensor

    from adahb.optim.update import Batch, Numbers, Recipe

    Tensors = list[Tensor] | tuple[Tensor, ...]


def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
    """Update every parameter of the batch in place; the numbers must be floats."""
    wide = widened(batch, recipe)
    if batch.params:
        _step(wide, at, recipe, recipe.largest(batch.params[0].dtype))
    copy_back(wide, batch, at, recipe)


def _step(batch: Batch, at: Numbers, recipe: Recipe, largest: float) -> None:
    w, u = batch.params, batch.buffers
    numbers = cast("dict[str, float]", at._asdict())
    d, v_hat = _directions(batch, numbers, recipe, largest)
    if recipe.keeps_average:
        torch._foreach_lerp_(batch.averages, w, numbers["share"])
    if recipe.averaging:
        torch._foreach_add_(u, d, alpha=-numbers["eta"])
        _replace(u, _projected(u, v_hat, recipe))
        torch._foreach_lerp_(w, u, numbers["c"])
    elif recipe.extrapolates:
        torch._foreach_add_(u, u, alpha=numbers["beta1"] - 1)
        torch._foreach_add_(u, d, alpha=-numbers["alpha"])
        if recipe.constraint is None:
            torch._foreach_add_(w, d, alpha=-numbers["alpha"])
        else:
            _displace(w, torch._foreach_mul(d, -numbers["alpha"]), u, v_hat, recipe)
        torch._foreach_add_(w, u, alpha=numbers["beta1_next"])
    else:
        torch._foreach_add_(u, u, alpha=numbers["beta1"] - 1)
        torch._foreach_add_(u, d, alpha=-numbers["alpha"])
        if recipe.constraint is None:
            torch._foreach_add_(w, u)
        else:
            _displace(w, u, u, v_hat, recipe)


def _directions(
    batch: Batch, numbers: dict[str, float], recipe: Recipe, largest: float
) -> tuple[Tensors, list[Tensor]]:
    """D and V̂ of all; the gradients themselves are never written to."""
    g: Tensors = batch.grads
    if recipe.maximize:
        g = torch._foreach_neg(g)
    if recipe.weight_decay and not recipe.decoupled:
        g = torch._foreach_add(g, batch.params, alpha=recipe.weight_decay)
    v_hat: list[Tensor] = []
    d = g
    if recipe.adaptive:
        torch._foreach_add_(batch.squares, batch.squares, alpha=numbers["beta2"] - 1)
        if any(torch.is_complex(x) for x in g):
            d = [bounded(x, largest) for x in g]
            torch._foreach_add_(batch.squares, list(map(squared, d)), alpha=1 - numbers["beta2"])
        else:
            d = torch._foreach_clamp_max(g, largest)
            torch._foreach_clamp_min_(d, -largest)
            torch._foreach_addcmul_(batch.squares, d, d, value=1 - numbers["beta2"])
            torch._foreach_add_(batch.squares, g, alpha=0)  # which is NaN where g is not finite
        v_hat = list(torch._foreach_sqrt(batch.squares))
        torch._foreach_add_(v_hat, numbers["delta"])
        d = torch._foreach_div(d, v_hat)
    if recipe.weight_decay and recipe.decoupled:
        d = torch._foreach_add(d, batch.params, alpha=recipe.weight_decay)
    return d, v_hat


def _displace(
    w: list[Tensor], by: Tensors, u: list[Tensor], v_hat: list[Tensor], recipe: Recipe
) -> None:
    """Move w to P[w + by], and u gains what P has added; one by one, as sets project one by one."""
    for i, (x, step) in enumerate(zip(w, by, strict=True)):
        moved, pushed = displaced(x, step, v_hat[i] if v_hat else None, recipe)
        x.copy_(moved)
        u[i].add_(pushed)


def _projected(x: Tensors, v_hat: list[Tensor], recipe: Recipe) -> Tensors:
    if recipe.constraint is None:
        return x
    metrics: list[Tensor] | list[None] = v_hat or [None] * len(x)
    return [project(point, metric, recipe) for point, metric in zip(x, metrics, strict=True)]


def _replace(old: list[Tensor], new: Tensors) -> None:
    torch._foreach_copy_(old, new)
