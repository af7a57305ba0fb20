"""The update of `adahb.optim` as a function of arrays, for frameworks that do not work in place.

For a parameter w with gradient g (the formulas are explained in `adahb.optim.update`):

    g ← g + λ w                   weight decay, if coupled (L2)
    v ← v + (1 - β2)(|g|² - v)    if adaptive;  V̂ = √v + δ, else 1
    d ← g/V̂ + λ w                 the second term if decay is decoupled

    recursion in w     u ← u - (1 - β1) u - α d;  w₊ = P[w + u];  u ← u + (w₊ - (w + u))
    averaging form     z ← P[z - η d];  w₊ = w + c (z - w)

It works on torch tensors and on JAX arrays, traced ones included.  Coefficients, and what P adds to
u, are computed in float64, for JAX inside :func:`float64_at_hand`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from adahb import _checks as check
from adahb import schedules
from adahb.schedules import HBConstant, Schedule
from adahb.sets import ConvexSet, NuclearBall
from adahb.sets.arrays import is_jax

Array = Any
Form = Literal["averaging", "paper"]
Projection = Literal["metric", "euclidean"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method with its options; the schedule's α is 1, and the learning rate multiplies it."""

    adaptive: bool
    gamma: float = 0.1
    delta: float = 1e-8
    momentum: float | None = None
    tick: int = 100
    power: float = 0.0
    averaging_tick: int | None = None
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = True
    constraint: ConvexSet | None = None
    projection: Projection = "metric"
    form: Form = "averaging"

    def __post_init__(self) -> None:
        check.number("weight_decay", self.weight_decay, at_least=0)
        check.choice("projection", self.projection, ("metric", "euclidean"))
        check.choice("form", self.form, ("averaging", "paper"))
        if not isinstance(self.decoupled_weight_decay, bool):
            raise TypeError(
                "decoupled_weight_decay must be one of True, False, "
                f"got {self.decoupled_weight_decay!r}"
            )
        if self.momentum is not None:
            schedules.require_no_averaging(self.power, self.averaging_tick)
        if self.constraint is not None and not isinstance(self.constraint, ConvexSet):
            raise TypeError(
                f"constraint must be a set of adahb.sets or None, got {self.constraint!r}"
            )
        if self.metric and isinstance(self.constraint, NuclearBall):
            raise ValueError(
                f"projection must be 'euclidean' with constraint={self.constraint!r}, for which "
                "the projection in a metric has no closed form, got 'metric'"
            )
        _ = self.schedule  # looks at the values that it takes

    @property
    def schedule(self) -> Schedule:
        """The coefficients for α = 1."""
        if self.momentum is None:
            clocks: dict[str, Any] = {"tick": self.tick, "averaging_tick": self.averaging_tick}
            if self.adaptive:
                return schedules.AdaHB(
                    alpha=1.0, gamma=self.gamma, delta=self.delta, power=self.power, **clocks
                )
            return schedules.HB(alpha=1.0, power=self.power, **clocks)
        if self.adaptive:
            return schedules.AdaHBConstant(
                alpha=1.0, gamma=self.gamma, delta=self.delta, beta=self.momentum, tick=self.tick
            )
        return schedules.HBConstant(alpha=1.0, beta=self.momentum, tick=self.tick)

    @property
    def averaging(self) -> bool:
        """Whether z is what is projected and kept."""
        return self.form == "averaging" and self.constraint is not None

    @property
    def keeps_average(self) -> bool:
        """Whether the guarantee is about the average of the iterates."""
        return isinstance(self.schedule, HBConstant)

    @property
    def metric(self) -> bool:
        """Whether projections are in the norm of V̂."""
        return self.adaptive and self.projection == "metric"

    def require_fit(self, shape: tuple[int, ...], dtype: Any, *, is_complex: bool) -> None:
        """Refuse a parameter that cannot live in the constraint."""
        if self.constraint is None:
            return
        if is_complex:
            raise TypeError(f"constraint={self.constraint!r} needs real parameters, got {dtype}")
        try:
            self.constraint._fit(shape)
        except ValueError as error:
            raise ValueError(
                f"constraint={self.constraint!r} must fit every parameter, but one has the shape "
                f"{shape}: {error}"
            ) from error


def placed(w: Array, constraint: ConvexSet) -> tuple[Array, bool]:
    """A parameter, which must not be traced, inside of the set; and whether it had to be projected.

    Of a JAX array that is done on the host, for operations outside of jit are compiled one by one.
    """
    host = np.asarray(w) if is_jax(w) else w
    return (w, False) if constraint.contains(host) else (constraint.project(host), True)


class Numbers(NamedTuple):
    """The coefficients of a step with the learning rate, in float64 or cast to another dtype."""

    alpha: Array
    forget: Array
    """1 - β1."""
    eta: Array
    c: Array
    renew: Array
    """1 - β2; zero where the method is not adaptive."""
    delta: Array
    share: Array
    """1/k, the weight of the newest iterate in the average."""

    def cast(self, like: Array) -> Numbers:
        """The same numbers in the real dtype that goes with an array."""
        xp = array_namespace(like)
        dtype = like.real.dtype
        return Numbers(*(xp.asarray(number, dtype=dtype) for number in self))


class Stored(NamedTuple):
    """What is kept of a parameter."""

    buffer: Array
    """u, or z in the averaging form under a constraint."""
    v: Array | None
    """The second moment, if the method is adaptive."""
    average: Array | None
    """The mean of the iterates, with constant momentum."""


def float64_at_hand(array: Array) -> AbstractContextManager[Any]:
    """A context in which float64 exists, which JAX otherwise has only after jax_enable_x64."""
    if not is_jax(array):
        return nullcontext()
    import jax

    context: AbstractContextManager[Any] = jax.enable_x64(True)
    return context


def numbers(method: Method, learning_rate: Array, step: Array) -> Numbers:
    """The coefficients at step 1, 2, 3, ..., an array, times the learning rate where it belongs."""
    at = method.schedule(step)
    return Numbers(
        alpha=learning_rate * at.alpha,
        forget=1.0 - at.beta1,
        eta=learning_rate * at.eta,
        c=at.c,
        renew=0.0 if at.beta2 is None else 1.0 - at.beta2,
        delta=0.0 if at.delta is None else at.delta,
        share=1.0 / step,
    )


def change(w: Array, g: Array, stored: Stored, at: Numbers, method: Method) -> tuple[Array, Stored]:
    """What is to be added to w, and what is to be kept, in the dtype that is computed in.

    Where the method neither decays, projects nor averages, w may be None.
    """
    buffer, v, average = stored
    at = at.cast(buffer)
    if method.weight_decay and not method.decoupled_weight_decay:
        g = g + method.weight_decay * w
    d, v_hat = g, None
    if v is not None:
        d, least = _bounded(g)
        v = v + (_squared(d) - v) * at.renew
        xp = array_namespace(v)
        v_hat = xp.sqrt(v) + xp.clip(at.delta, least)
        d = d / v_hat
    if method.weight_decay and method.decoupled_weight_decay:
        d = d + method.weight_decay * w
    if average is not None:
        average = average + (w - average) * at.share
    if method.averaging:
        buffer = _projected(buffer - d * at.eta, v_hat, method)
        by = (buffer - w) * at.c
    else:
        by = buffer = buffer - buffer * at.forget - d * at.alpha
        if method.constraint is not None:
            by, buffer = _confined(w, buffer, v_hat, method)
    return by, Stored(buffer, v, average)


def _confined(w: Array, u: Array, v_hat: Array | None, method: Method) -> tuple[Array, Array]:
    """P[w + u] - w, and u with what P has added to it.

    That goes into the momentum, where an error of the size of w's rounding adds up over t steps.
    """
    xp = array_namespace(u)
    wide = xp.asarray(w, dtype=xp.float64)
    moved = wide + xp.asarray(u, dtype=xp.float64)
    inside = _projected(moved, v_hat, method)
    pushed = xp.asarray(inside - moved, dtype=u.dtype)
    return xp.asarray(inside - wide, dtype=u.dtype), u + pushed


def _projected(x: Array, v_hat: Array | None, method: Method) -> Array:
    assert method.constraint is not None
    return method.constraint.project(x, v_hat if method.metric else None)


def _bounded(g: Array) -> tuple[Array, float]:
    """The gradient in sizes whose squares the dtype holds, and one over the largest of them.

    What is not finite becomes NaN; complex numbers keep their direction.
    """
    xp = array_namespace(g)
    largest = 2.0**511 if g.real.dtype == xp.float64 else 2.0**63
    if not xp.isdtype(g.dtype, "complex floating"):
        return xp.clip(g, -largest, largest) + (g - g), 1 / largest
    size = xp.maximum(xp.abs(g.real), xp.abs(g.imag))
    return g * xp.clip(largest / 2 / size, None, 1.0), 1 / largest


def _squared(g: Array) -> Array:
    """|g|², real also where g is complex."""
    xp = array_namespace(g)
    return g.real**2 + g.imag**2 if xp.isdtype(g.dtype, "complex floating") else g**2
