"""What a kernel is given: the tensors, the numbers of the step, and which update to make.

Every kernel has the signature ``step(batch, at, recipe)`` and makes this update of each parameter w
with gradient g, in place:

    g ← -g                        if maximising
    g ← g + λ w                   weight decay, if coupled (L2)
    v ← β2 v + (1 - β2) |g|²      if adaptive;  V̂ = √v + δ, else 1
    d ← g/V̂ + λ w                 the second term if decay is decoupled

    recursion in w     u ← β1 u - α d;  w₊ = P[w + u];  u ← u + (w₊ - (w + u))
    averaging form     z ← P[z - η d];  w₊ = (1 - c) w + c z
    NAG, with y        u ← β1 u - α d;  w₊ = P[y - α d];  u ← u + (w₊ - (y - α d));  y₊ = w₊ + β1⁺ u

P projects on the constraint, in the metric V̂ or plainly.  Where the *average* is the guaranteed
output, a ← a + (w - a)/k follows w at step k, before w moves.  NAG holds in the parameter the point
y = w + β1 u at which gradients are taken.

Two things make float32 hold over many steps.  Weights near one act by their distance to one, so
they are applied as v + (1 - β2)(|g|² - v) and u - (1 - β1) u: rounded to float32 by itself, β2
would be wrong by a thousandth of 1 - β2 at t = 3000.  And what P adds to u is computed in float64,
for u adds up over t steps whatever error of the size of w's rounding is in it.

A batch is of one device and one dtype.  Parameters in half precision have states in float32, and
the arithmetic is float32 too; gradients are dense, and are never written to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from adahb.sets import ConvexSet

HALF = (torch.float16, torch.bfloat16)
"""Dtypes too coarse to hold a state."""


class Numbers(NamedTuple):
    """The coefficients of a step, learning rate included: floats, or 0-d tensors on the device."""

    alpha: float | Tensor
    beta1: float | Tensor
    eta: float | Tensor
    c: float | Tensor
    beta2: float | Tensor
    delta: float | Tensor
    beta1_next: float | Tensor
    """Momentum of the step after, at which NAG takes its next gradient."""
    share: float | Tensor
    """1/k, the weight of the newest iterate in the average."""
    live: Tensor | None = None
    """Whether anything at all may change, decided on the device; None means yes."""
    grad_scale: Tensor | None = None
    """What the gradients are to be divided by, a number on their device; None is 1."""


@dataclass(frozen=True)
class Recipe:
    """Which update is made."""

    adaptive: bool
    averaging: bool
    """z is projected and stored, not w - w₋."""
    extrapolates: bool
    keeps_average: bool
    maximize: bool
    weight_decay: float
    decoupled: bool
    constraint: ConvexSet | None
    metric: bool


@dataclass
class Batch:
    """Parameters that take the same numbers, of one device and dtype, with gradients and states."""

    params: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    """u = w - w₋, or z in the averaging form."""
    squares: list[Tensor] = field(default_factory=list)
    """v; empty where the method is not adaptive."""
    averages: list[Tensor] = field(default_factory=list)
    """The running averages; empty where none is kept."""
    memo: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What a kernel remembers of these tensors.  In a batch that is used again, gradients may be
    other tensors, and parameters may have moved in memory; the states must be the same."""
