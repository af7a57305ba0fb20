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

Squares leave the range of a format long before its numbers do.  In the adaptive methods a finite
gradient therefore counts as at most `Recipe.largest`, whose square has room, and δ as at least one
over that, so that nothing is divided by zero.  An infinite gradient makes its v and its w NaN.

Two things make float32 hold over many steps.  Weights near one act by their distance to one, so
they are applied as v + (1 - β2)(|g|² - v) and u - (1 - β1) u: rounded to float32 by itself, β2
would be wrong by a thousandth of 1 - β2 at t = 3000.  And what P adds to u is computed in float64,
for u adds up over t steps whatever error of the size of w's rounding is in it.

A batch is of one device and one dtype.  Arithmetic is in the dtype of the parameters, but float32
where they are in half precision, and float64 where float32 is compensated.  States are kept in
float32, or float64 beside such parameters, unless they are asked to be narrow.  How the results are
rounded to what is stored is said in `adahb.optim.narrow`.  Gradients are dense, and are never
written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from adahb.sets import ConvexSet
    from adahb.sets.sharded import ShardedSet

HALF = (torch.float16, torch.bfloat16)
"""Dtypes too coarse to be computed with."""

Rounding = Literal["compensated", "stochastic", "nearest"]
StateDtype = Literal["bf16", "int8"]


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
    step: int | Tensor = 0
    """k, of which the noise of stochastic rounding is made."""
    live: Tensor | None = None
    """Whether anything at all may change, decided on the device; None means yes."""
    grad_scale: Tensor | None = None
    """What the gradients are to be divided by, a number on their device; None is 1."""

    def within(self, largest: float) -> Numbers:
        """The same numbers with δ in a range that leaves room for squares of up to ``largest``."""
        least, most = 1 / largest, largest**2
        if isinstance(self.delta, torch.Tensor):
            return self._replace(delta=self.delta.clamp(least, most))
        if self.delta is None or least <= self.delta <= most:
            return self
        return self._replace(delta=min(max(self.delta, least), most))

    def at_step(self, step: int) -> Numbers:
        """The same coefficients at another step."""
        return self._replace(share=1.0 / step, step=step)


COEFFICIENTS = 8
"""How many of the numbers of a step are coefficients."""


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
    constraint: ConvexSet | ShardedSet | None
    metric: bool
    rounding: Rounding | None = None
    """How parameters are rounded; None is compensated where they are in half precision."""
    state_dtype: StateDtype | None = None

    @property
    def counts_steps(self) -> bool:
        """The number of the step matters, not only its coefficients."""
        return self.keeps_average or self.state_dtype is not None or self.rounding == "stochastic"

    @property
    def offset(self) -> bool:
        """The buffer holds z - w, for which fewer digits do than for z."""
        narrow = self.state_dtype is not None or self.rounding == "compensated"
        return self.averaging and narrow

    def compensates(self, dtype: torch.dtype) -> bool:
        """Whether parameters of this dtype have low digits beside them."""
        wanted = dtype in HALF if self.rounding is None else self.rounding == "compensated"
        return wanted and dtype in (*HALF, torch.float32)

    def randomises(self, dtype: torch.dtype) -> bool:
        """Whether parameters of this dtype are rounded stochastically."""
        return self.rounding == "stochastic" and dtype in HALF

    def largest(self, dtype: torch.dtype) -> float:
        """The largest gradient that v, as it is kept for a dtype, tells from larger ones."""
        wide = dtype in (torch.float64, torch.complex128) and self.state_dtype is None
        return 2.0**511 if wide else 2.0**63

    def arithmetic(self, dtype: torch.dtype) -> torch.dtype:
        """What is computed with for parameters of a dtype."""
        if dtype in HALF:
            return torch.float32
        return torch.float64 if self.compensates(dtype) else dtype


@dataclass
class Batch:
    """Parameters that take the same numbers, of one device and dtype, with gradients and states."""

    params: list[Tensor] = field(default_factory=list)
    grads: list[Tensor] = field(default_factory=list)
    buffers: list[Tensor] = field(default_factory=list)
    """u = w - w₋, or in the averaging form z, or z - w: see `Recipe.offset`."""
    squares: list[Tensor] = field(default_factory=list)
    """v; empty where the method is not adaptive."""
    averages: list[Tensor] = field(default_factory=list)
    """The running averages; empty where none is kept."""
    lows: list[Tensor] = field(default_factory=list)
    """The low digits of the parameters; empty where they are not compensated."""
    buffer_scales: list[Tensor] = field(default_factory=list)
    """Scales of the buffers; empty where those are not in blocks."""
    square_scales: list[Tensor] = field(default_factory=list)
    """The same for v."""
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What a kernel remembers of these tensors.  In a batch that is used again, gradients may be
    other tensors, and parameters may have moved in memory; the states must be the same."""

    def states(self) -> dict[str, list[Tensor]]:
        """What is stored beside the parameters, by the names of the fields."""
        return {name: getattr(self, name) for name in STATES if getattr(self, name)}

    def stored(self) -> Iterator[Tensor]:
        """All that a step writes to."""
        return chain(self.params, *self.states().values())


STATES = ("buffers", "squares", "averages", "lows", "buffer_scales", "square_scales")
"""The fields of a batch that hold state."""
