"""The update, one tensor after the other, in operations that autograd and the compiler follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from adahb.optim.kernels import graphs
from adahb.optim.kernels.wide import copy_back, widened
from adahb.sets import Box, ConvexSet, LinfBall, NonNegative
from adahb.sets.arrays import unseen

if TYPE_CHECKING:
    from torch import Tensor

    from adahb.optim.update import Batch, Numbers, Recipe
    from adahb.sets.sharded import ShardedSet


def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
    """Update every parameter of the batch in place."""
    before = [] if at.live is None else [x.clone() for x in batch.stored()]
    wide = widened(batch, recipe)
    for i, w in enumerate(wide.params):
        v = wide.squares[i] if recipe.adaptive else None
        largest = recipe.largest(batch.params[i].dtype)
        d, v_hat = _direction(w, wide.grads[i], v, at, recipe, largest)
        if recipe.keeps_average:
            wide.averages[i].add_((w - wide.averages[i]) * at.share)
        if recipe.averaging:
            _move_z(w, wide.buffers[i], d, v_hat, at, recipe)
        elif recipe.extrapolates:
            _move_y(w, wide.buffers[i], d, v_hat, at, recipe)
        else:
            _move_w(w, wide.buffers[i], d, v_hat, at, recipe)
    copy_back(wide, batch, at, recipe)
    if at.live is not None:
        for x, old in zip(batch.stored(), before, strict=True):
            x.copy_(torch.where(at.live, x, old))


def _direction(
    w: Tensor, g: Tensor, v: Tensor | None, at: Numbers, recipe: Recipe, largest: float
) -> tuple[Tensor, Tensor | None]:
    """D and V̂; the gradient itself is never written to."""
    if recipe.maximize:
        g = -g
    if recipe.weight_decay and not recipe.decoupled:
        g = g + recipe.weight_decay * w
    v_hat = None
    d = g
    if v is not None:
        d = bounded(g, largest)
        v.add_((squared(d) - v) * (1 - at.beta2))
        if not torch.is_complex(g):
            v.add_(g, alpha=0)  # which is NaN where g is not finite
        v_hat = _root(v) + at.delta
        d = d / v_hat
    if recipe.weight_decay and recipe.decoupled:
        d = d + recipe.weight_decay * w
    return d, v_hat


def _move_w(
    w: Tensor, u: Tensor, d: Tensor, v_hat: Tensor | None, at: Numbers, recipe: Recipe
) -> None:
    u.sub_(u * (1 - at.beta1)).sub_(d * at.alpha)
    if recipe.constraint is None:
        w.add_(u)
    else:
        moved, pushed = displaced(w, u, v_hat, recipe, blind=at.live is not None)
        u.add_(pushed)
        w.copy_(moved)


def _move_z(
    w: Tensor, z: Tensor, d: Tensor, v_hat: Tensor | None, at: Numbers, recipe: Recipe
) -> None:
    moved = project(z - d * at.eta, v_hat, recipe, blind=at.live is not None)
    z.copy_(moved)
    w.add_((z - w) * at.c)


def _move_y(
    y: Tensor, u: Tensor, d: Tensor, v_hat: Tensor | None, at: Numbers, recipe: Recipe
) -> None:
    u.sub_(u * (1 - at.beta1)).sub_(d * at.alpha)
    if recipe.constraint is None:
        moved = y - d * at.alpha
    else:
        by = d * -at.alpha
        moved, pushed = displaced(y, by, v_hat, recipe, blind=at.live is not None)
        u.add_(pushed)
    y.copy_(moved + u * at.beta1_next)


def project(x: Tensor, v_hat: Tensor | None, recipe: Recipe, *, blind: bool = False) -> Tensor:
    """P[x], in the metric V̂ if the recipe says so; ``blind`` is without looking at a number.

    So it must be in graphs, and where only the device knows whether the step counts at all.
    """
    if recipe.constraint is None:
        return x
    bounds = interval(recipe.constraint)
    if bounds is not None:
        return x.clamp(*bounds)
    metric = v_hat if recipe.metric else None
    if not isinstance(recipe.constraint, ConvexSet):
        return graphs.project_over_mesh(recipe.constraint, x, metric, blind=blind)
    if blind:
        return graphs.project_blindly(recipe.constraint, x, metric)
    if unseen(x):
        return graphs.project(recipe.constraint, x, metric)
    projected: Tensor = recipe.constraint.project(x, metric)
    return projected


def displaced(
    x: Tensor, by: Tensor, v_hat: Tensor | None, recipe: Recipe, *, blind: bool = False
) -> tuple[Tensor, Tensor]:
    """P[x + by], and by how much P has moved it.

    The latter goes into the momentum, where an error of the size of x's rounding adds up over t
    steps: hence both are computed in float64.
    """
    moved = x.double() + by.double()
    projected = project(moved, v_hat, recipe, blind=blind)
    return projected, projected - moved


def interval(constraint: ConvexSet | ShardedSet) -> tuple[float, float] | None:
    """The bounds of every coordinate where they are two numbers and all that the set is."""
    if isinstance(constraint, (Box, LinfBall, NonNegative)) and not constraint._arrays:
        lower, upper = constraint._bounds
        return lower, upper
    return None


def bounded(g: Tensor, largest: float) -> Tensor:
    """The gradient in sizes of at most ``largest``; complex numbers keep their direction.

    A complex number that is not finite becomes NaN, a real one may become finite.
    """
    if not torch.is_complex(g):
        return g.clamp(-largest, largest)
    x = g.detach()
    size = x.real.abs().maximum(x.imag.abs())
    return g * (largest / 2 / size).clamp(max=1)


def squared(g: Tensor) -> Tensor:
    """|g|², real also where g is complex."""
    return g.real.square() + g.imag.square() if torch.is_complex(g) else g.square()


def _root(v: Tensor) -> Tensor:
    """√v, with the derivative 0 at 0, where the true one is infinite and would leave NaN."""
    if not (torch.is_grad_enabled() and v.requires_grad):
        return v.sqrt()
    positive = v > 0
    return torch.where(positive, torch.where(positive, v, 1.0).sqrt(), 0.0)
