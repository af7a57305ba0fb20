"""Sets that bound each coordinate on its own: the metric does not matter, projecting is clipping.

y_i = min(max(x_i, lower_i), upper_i)
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from adahb._checks import number
from adahb.sets.arrays import Array, Namespace, like, parameter, power_of_two
from adahb.sets.base import Axes, ConvexSet, fit_dim, optional_dim


@dataclass(frozen=True, eq=False, repr=False)
class _Interval(ConvexSet):
    """The common part: everything follows from the bounds, numbers or arrays."""

    @property
    @abstractmethod
    def _bounds(self) -> tuple[Any, Any]: ...

    @property
    def bounded(self) -> bool:
        return all(bool(np.isfinite(bound).all()) for bound in self._bounds)

    def _limits(self, x: Array, xp: Namespace) -> tuple[Array, Array]:
        bounds = (like(b, x, xp) if isinstance(b, float) else b for b in self._beside(x, xp))
        lower, upper = bounds
        return lower, upper

    def _beside(self, x: Array, xp: Namespace) -> tuple[Any, Any]:
        """Return the bounds, as arrays like x where they are not numbers."""
        arrays, top = self._arrays, float(xp.finfo(x.dtype).max)
        lower, upper = (
            self._own(name, x, xp) if name in arrays else _within(bound, top)
            for name, bound in zip(("lower", "upper"), self._bounds, strict=True)
        )
        return lower, upper

    def _can_overflow(self, top: float) -> bool:
        finite = (np.abs(bound)[np.isfinite(bound)] for bound in map(np.asarray, self._bounds))
        return any(bool((size > top).any()) for size in finite)

    def _axes(self, ndim: int) -> Axes:  # noqa: ARG002
        return Axes()

    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array:  # noqa: ARG002
        lower, upper = self._beside(x, xp)
        return xp.where(x < lower, lower, xp.where(x > upper, upper, x))

    def _support(self, g: Array, xp: Namespace) -> Array:
        lower, upper = self._limits(g, xp)
        best = xp.where(g > 0, upper, lower)
        best = xp.where(g == 0, 0.0, best)
        plain = xp.sum(g * best)
        # Products beyond the largest float, of both signs, make NaN; in other units they do not.
        finite = xp.where(xp.isinf(best), 0.0, best)
        units = [power_of_two(xp.max(xp.abs(part)), xp) for part in (g, finite)]
        in_units = xp.sum((g / units[0]) * (finite / units[1])) * units[0] * units[1]
        bounded = xp.where(xp.isfinite(plain), plain, in_units)
        return xp.where(xp.any(xp.isinf(best)), np.inf, bounded)

    def _support_at_any_scale(self, g: Array, xp: Namespace) -> Array:
        return self._support(g, xp)

    def _lmo(self, g: Array, xp: Namespace) -> Array | None:
        lower, upper = self._limits(g, xp)
        zero = xp.zeros_like(g)
        anywhere = xp.where(zero < lower, lower, xp.where(zero > upper, upper, zero))
        point = xp.where(g > 0, lower, xp.where(g < 0, upper, anywhere))
        return point if bool(xp.all(xp.isfinite(point))) else None

    def _excess(self, x: Array, xp: Namespace) -> Array:
        lower, upper = self._limits(x, xp)
        outside = xp.max(xp.where(x < lower, lower - x, xp.where(x > upper, x - upper, 0.0)))
        sizes = [np.abs(bound)[np.isfinite(bound)] for bound in map(np.asarray, self._bounds)]
        scale = max(float(size.max(initial=0.0)) for size in sizes)
        smallest = float(np.finfo(np.float64).tiny)
        return outside / xp.clip(like(scale, x, xp), smallest, None)


def _within(bound: float, top: float) -> float:
    """Return a bound as a dtype has it whose largest number is ``top``."""
    return bound if abs(bound) <= top else math.copysign(math.inf, bound)


@dataclass(frozen=True, eq=False, repr=False)
class Box(_Interval):
    """The box {x: lower <= x <= upper}; bounds are numbers or arrays and may be infinite.

    >>> Box(0, [1, 2]).project([-1.0, 5.0])
    array([0., 2.])
    """

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            bound = parameter(name, getattr(self, name), infinite=True)
            object.__setattr__(self, name, bound if bound.ndim else float(bound))
        try:
            ordered = np.all(np.less_equal(self.lower, self.upper))
        except ValueError:
            raise ValueError(
                f"lower and upper must have shapes that broadcast, "
                f"got {np.shape(self.lower)} and {np.shape(self.upper)}"
            ) from None
        if not ordered:
            raise ValueError(f"lower must not exceed upper, got {self!r}")
        if np.any(np.equal(self.lower, np.inf)) or np.any(np.equal(self.upper, -np.inf)):
            raise ValueError(f"lower must be below +inf and upper above -inf, got {self!r}")

    @property
    def _bounds(self) -> tuple[Any, Any]:
        return self.lower, self.upper

    def _fit(self, shape: tuple[int, ...]) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            try:
                fits = np.broadcast_shapes(np.shape(bound), shape) == shape
            except ValueError:
                fits = False
            if not fits:
                raise ValueError(
                    f"{name} of shape {np.shape(bound)} does not broadcast to a point of shape "
                    f"{shape}"
                )


@dataclass(frozen=True, eq=False, repr=False)
class NonNegative(_Interval):
    """The cone {x: x >= 0}.

    A cone has no scale of its own, so ``contains`` measures relative to max |x|.

    >>> NonNegative().project([-1.0, 2.0])
    array([0., 2.])
    """

    @property
    def _bounds(self) -> tuple[Any, Any]:
        return 0.0, np.inf

    def _excess(self, x: Array, xp: Namespace) -> Array:
        scale = xp.max(xp.abs(x))
        return -xp.min(x) / xp.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class LinfBall(_Interval):
    """The ball {x: max |x_i| <= radius}; along ``dim`` it is the same set, written row by row.

    >>> LinfBall(1).support([2.0, -3.0])
    np.float64(5.0)
    """

    radius: float
    dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", number("radius", self.radius, at_least=0))
        object.__setattr__(self, "dim", optional_dim(self.dim))

    @property
    def _bounds(self) -> tuple[Any, Any]:
        return -self.radius, self.radius

    def _fit(self, shape: tuple[int, ...]) -> None:
        fit_dim(self.dim, shape)
