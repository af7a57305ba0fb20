"""The update, one tensor after the other, in operations that autograd and the compiler follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from adahb.optim.update import Batch, Numbers, Recipe


def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
    """Update every parameter of the batch in place."""
    for i, w in enumerate(batch.params):
        v = batch.squares[i] if recipe.adaptive else None
        d, v_hat = _direction(w, batch.grads[i], v, at, recipe)
        if recipe.keeps_average:
            batch.averages[i].add_((w - batch.averages[i]) * at.share)
        if recipe.averaging:
            _move_z(w, batch.buffers[i], d, v_hat, at, recipe)
        elif recipe.extrapolates:
            _move_y(w, batch.buffers[i], d, v_hat, at, recipe)
        else:
            _move_w(w, batch.buffers[i], d, v_hat, at, recipe)


def _direction(
    w: Tensor, g: Tensor, v: Tensor | None, at: Numbers, recipe: Recipe
) -> tuple[Tensor, Tensor | None]:
    """D and V̂; the gradient itself is never written to."""
    if recipe.maximize:
        g = -g
    if recipe.weight_decay and not recipe.decoupled:
        g = g + recipe.weight_decay * w
    v_hat = None
    d = g
    if v is not None:
        v.mul_(at.beta2).add_(squared(g) * (1 - at.beta2))
        v_hat = v.sqrt() + at.delta
        d = g / v_hat
    if recipe.weight_decay and recipe.decoupled:
        d = d + recipe.weight_decay * w
    return d, v_hat


def _move_w(
    w: Tensor, u: Tensor, d: Tensor, v_hat: Tensor | None, at: Numbers, recipe: Recipe
) -> None:
    u.mul_(at.beta1).sub_(d * at.alpha)
    moved = w + u
    if recipe.constraint is not None:
        projected = project(moved, v_hat, recipe)
        u.add_(projected - moved)
        moved = projected
    w.copy_(moved)


def _move_z(
    w: Tensor, z: Tensor, d: Tensor, v_hat: Tensor | None, at: Numbers, recipe: Recipe
) -> None:
    z.copy_(project(z - d * at.eta, v_hat, recipe))
    w.add_((z - w) * at.c)


def _move_y(
    y: Tensor, u: Tensor, d: Tensor, v_hat: Tensor | None, at: Numbers, recipe: Recipe
) -> None:
    w = y - u * at.beta1
    moved = project(y - d * at.alpha, v_hat, recipe)
    u.copy_(moved - w)
    y.copy_(moved + u * at.beta1_next)


def project(x: Tensor, v_hat: Tensor | None, recipe: Recipe) -> Tensor:
    """P[x], in the metric V̂ if the recipe says so."""
    if recipe.constraint is None:
        return x
    projected: Tensor = recipe.constraint.project(x, v_hat if recipe.metric else None)
    return projected


def squared(g: Tensor) -> Tensor:
    """|g|², real also where g is complex."""
    return g.real.square() + g.imag.square() if torch.is_complex(g) else g.square()
