"""The l2, l1 and weighted l1 balls, of a whole array or of its slices along ``dim``."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from adahb._checks import number
from adahb.sets.arrays import (
    Array,
    Namespace,
    as_numpy,
    at_least,
    compilable,
    direction,
    largest,
    norm,
    on_cpu_without_grad,
    one_hot,
    parameter,
    power_of_two,
    power_of_two_below,
    rounding,
    wide,
)
from adahb.sets.base import LIGHTEST, Cut, RowSet, optional_dim, relative_excess
from adahb.sets.thresholds import project_l1, secular

_SMALLEST = 1e-307
"""The smallest radius of a ball with weights, in their units, or in a metric, in those of x."""


@dataclass(frozen=True, eq=False, repr=False)
class L2Ball(RowSet):
    """The ball {x: ||x||_2 <= radius}.

    Plain projection: x radius/||x||. In a metric h: y = h x/(h + t), t >= 0 such that ||y|| is
    the radius.

    >>> L2Ball(1, dim=1).project([[3.0, 4.0], [0.0, 0.5]])
    array([[0.6, 0.8],
           [0. , 0.5]])
    """

    radius: float
    dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", number("radius", self.radius, at_least=0))
        object.__setattr__(self, "dim", optional_dim(self.dim))

    def _project_rows(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        slack = 1 + rounding(x, xp)
        x = wide(x, xp)
        inside = norm(x, xp) / slack <= self.radius
        pulled = x if h is None else shrink_in_metric(x, h, self.radius, xp)
        return xp.where(inside, x, direction(pulled, xp) * self.radius)

    def _support_rows(self, g: Array, xp: Namespace) -> Array:
        return self.radius * norm(g, xp)

    def _lmo_rows(self, g: Array, xp: Namespace) -> Array:
        return -self.radius * direction(g, xp)

    def _excess_rows(self, x: Array, xp: Namespace) -> Array:
        return relative_excess(norm(x, xp), self.radius, xp)


def shrink_in_metric(x: Array, h: Array, radius: float, xp: Namespace) -> Array:
    """Return a multiple of h x/(h + t), with t >= 0 where its norm is ``radius``.

    Only the direction is meant to be used: x is scaled to a norm near one, and a radius far below
    the rounding of x is raised to where the direction no longer depends on it.
    """
    scale = power_of_two(largest(x, xp), xp)
    h = h / xp.max(h, axis=-1, keepdims=True)
    pull = h * (x / scale)
    length = norm(pull, xp)
    limit = at_least(1e-100 * length, xp.clip(radius / scale, _SMALLEST, 1e100), xp)
    start = xp.clip(length / limit - 1.0, 0.0, None)
    t = secular(pull / limit, h, xp.ones_like(h), start, xp)
    return pull / (h + t)


@dataclass(frozen=True, eq=False, repr=False)
class L1Ball(RowSet):
    """The ball {x: sum |x_i| <= radius}.

    Projection: sign(x) max(|x| - t/h, 0) with t >= 0 such that the result sums to the radius.

    >>> L1Ball(1).project([3.0, -2.5, 0.1])
    array([ 0.75, -0.25,  0.  ])
    """

    radius: float
    dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", number("radius", self.radius, at_least=0))
        object.__setattr__(self, "dim", optional_dim(self.dim))

    def _refuses_non_finite(self, x: Array, h: Array | None) -> bool:
        return on_cpu_without_grad(x, h)

    def _project_rows(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        if compilable(xp, x, h):
            from adahb.sets import compiled

            metric = None if h is None else as_numpy(h)
            return xp.asarray(compiled.l1(as_numpy(x), self.radius, metric=metric))
        return project_l1(x, self.radius, xp, h=h)

    def _support_rows(self, g: Array, xp: Namespace) -> Array:
        return self.radius * largest(g, xp)

    def _lmo_rows(self, g: Array, xp: Namespace) -> Array:
        return vertex(g, xp.ones_like(g), self.radius, xp)

    def _excess_rows(self, x: Array, xp: Namespace) -> Array:
        return relative_excess(xp.sum(xp.abs(x), axis=-1, keepdims=True), self.radius, xp)


@dataclass(frozen=True, eq=False, repr=False)
class WeightedL1Ball(RowSet):
    """The ball {x: sum w_i |x_i| <= radius} with weights w > 0.

    The weights have the shape of x; or, with ``dim``, one weight for each entry of a slice.  They
    may be as far apart as 1 and 1e-100.
    Projection: sign(x) max(|x| - t w/h, 0).

    >>> WeightedL1Ball([1, 2], 2).project([3.0, 3.0])
    array([1.6, 0.2])
    """

    weights: Any
    radius: float
    dim: int | None = None

    def __post_init__(self) -> None:
        weights = parameter("weights", self.weights)
        if not (weights > 0).all():
            raise ValueError(f"weights must be > 0, got {np.array2string(weights, threshold=8)}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "radius", number("radius", self.radius, at_least=0))
        object.__setattr__(self, "dim", optional_dim(self.dim))
        self._require_range(self._heaviest)  # for which graphs cannot look

    def _require_range(self, heaviest: float) -> None:
        """Refuse what loses its digits in units of the largest weight."""
        if not self.weights.size:
            return
        least, most = float(self.weights.min()), float(self.weights.max())
        if least < LIGHTEST * most:
            raise ValueError(
                f"weights must be at least {LIGHTEST:g} times the largest, got {least:g} to "
                f"{most:g}"
            )
        if self.radius and not _SMALLEST <= self.radius / heaviest <= 1 / _SMALLEST:
            raise ValueError(
                f"radius must be 0 or between {_SMALLEST:g} and {1 / _SMALLEST:g} times the "
                f"largest weight, got {self.radius:g} with {most:g}"
            )

    @cached_property
    def _heaviest(self) -> float:
        return power_of_two_below(float(self.weights.max(initial=0.0)))

    def _fit(self, shape: tuple[int, ...]) -> None:
        super()._fit(shape)
        wanted = shape if self.dim is None else (shape[self.dim],)
        if self.weights.shape != wanted:
            raise ValueError(f"weights must have shape {wanted} here, got {self.weights.shape}")

    def _cut(self, cut: Cut, shape: tuple[int, ...]) -> dict[str, Any]:
        along = range(len(shape)) if self.dim is None else (self.dim % len(shape),)
        beside = [n if axis in along else 1 for axis, n in enumerate(shape)]
        return {"weights": cut(self.weights.reshape(beside))}

    def _refuses_non_finite(self, x: Array, h: Array | None) -> bool:
        return on_cpu_without_grad(x, h)

    def _project_rows(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        if compilable(xp, x, h):
            from adahb.sets import compiled

            metric = None if h is None else as_numpy(h)
            weights = self._arrays["weights"].reshape(-1)
            y = compiled.l1(as_numpy(x), self.radius, weights=weights, metric=metric)
            return xp.asarray(y)
        weights = self._row(wide(x, xp), xp) / self._heaviest
        return project_l1(x, self.radius / self._heaviest, xp, weights=weights, h=h)

    def _support_rows(self, g: Array, xp: Namespace) -> Array:
        return self.radius * largest(g / self._row(g, xp), xp)

    def _lmo_rows(self, g: Array, xp: Namespace) -> Array:
        return vertex(g, self._row(g, xp), self.radius, xp)

    def _excess_rows(self, x: Array, xp: Namespace) -> Array:
        total = xp.sum(xp.abs(x) * self._row(x, xp), axis=-1, keepdims=True)
        return relative_excess(total, self.radius, xp)

    def _row(self, x: Array, xp: Namespace) -> Array:
        return xp.reshape(self._own("weights", x, xp), (-1,))


def vertex(g: Array, weights: Array, radius: float, xp: Namespace) -> Array:
    """Return -radius sign(g_j)/w_j at the entry j of the largest |g_j|/w_j, zero elsewhere."""
    size = power_of_two(largest(g, xp), xp)
    best = xp.argmax(xp.abs(g) / size / weights, axis=-1, keepdims=True)
    return xp.where(one_hot(best, g, xp), -radius * xp.sign(g) / weights, 0.0)
