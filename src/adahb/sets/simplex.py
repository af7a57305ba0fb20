"""The simplex: nonnegative entries with a given total."""

from dataclasses import dataclass

from adahb._checks import number
from adahb.sets.arrays import (
    Array,
    Namespace,
    as_numpy,
    compilable,
    on_cpu_without_grad,
    one_hot,
)
from adahb.sets.base import RowSet, optional_dim, relative_excess
from adahb.sets.thresholds import project_simplex


@dataclass(frozen=True, eq=False, repr=False)
class Simplex(RowSet):
    """The simplex {x >= 0: sum x_i = total}.

    Projection: max(x - t/h, 0) with t, of either sign, such that the result sums to the total.

    >>> Simplex().project([0.5, 1.0, -3.0])
    array([0.25, 0.75, 0.  ])
    """

    total: float = 1.0
    dim: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", number("total", self.total, above=0))
        object.__setattr__(self, "dim", optional_dim(self.dim))

    def _fit(self, shape: tuple[int, ...]) -> None:
        super()._fit(shape)
        if 0 in (shape if self.dim is None else (shape[self.dim],)):
            raise ValueError(f"x must have at least one entry per simplex, got shape {shape}")

    def _can_overflow(self, top: float) -> bool:
        return self.total > top

    def _refuses_non_finite(self, x: Array, h: Array | None) -> bool:
        return on_cpu_without_grad(x, h)

    def _project_rows(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        if compilable(xp, x, h):
            from adahb.sets import compiled

            metric = None if h is None else as_numpy(h)
            return xp.asarray(compiled.simplex(as_numpy(x), self.total, metric=metric))
        return project_simplex(x, self.total, xp, h=h)

    def _support_rows(self, g: Array, xp: Namespace) -> Array:
        return self.total * xp.max(g, axis=-1, keepdims=True)

    def _lmo_rows(self, g: Array, xp: Namespace) -> Array:
        best = one_hot(xp.argmin(g, axis=-1, keepdims=True), g, xp)
        return xp.where(best, self.total, xp.zeros_like(g))

    def _excess_rows(self, x: Array, xp: Namespace) -> Array:
        total = xp.sum(x, axis=-1, keepdims=True)
        low = relative_excess(self.total - xp.min(x, axis=-1, keepdims=True), self.total, xp)
        off = xp.abs(relative_excess(total, self.total, xp))
        return xp.where(low > off, low, off)
