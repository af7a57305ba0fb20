"""The nuclear-norm ball of matrices."""

from dataclasses import dataclass

from adahb._checks import number
from adahb.sets.arrays import (
    Array,
    Namespace,
    copied,
    device,
    headroom,
    largest,
    power_of_two,
    rounding,
    unseen,
    wide,
)
from adahb.sets.base import Axes, ConvexSet, relative_excess
from adahb.sets.thresholds import project_l1


@dataclass(frozen=True, eq=False, repr=False)
class NuclearBall(ConvexSet):
    """The matrices whose singular values sum to at most ``radius``; leading axes are a batch.

    Projection: that of the singular values on the l1 ball. There is no such form in a metric that
    weighs entries differently, so such a metric is refused.

    >>> NuclearBall(1).project([[3.0, 0.0], [0.0, 2.5]])
    array([[0.75, 0.  ],
           [0.  , 0.25]])
    """

    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", number("radius", self.radius, at_least=0))

    def _fit(self, shape: tuple[int, ...]) -> None:
        if len(shape) < 2:
            raise ValueError(f"NuclearBall needs matrices, got an array of shape {shape}")

    def _axes(self, ndim: int) -> Axes:
        return Axes(whole=frozenset({ndim - 2, ndim - 1}))

    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        if h is not None and (unseen(x) or bool(xp.any(h != xp.min(h)))):
            raise ValueError("metric must be constant for NuclearBall: no closed form otherwise")
        slack = 1 + rounding(x, xp)
        x = wide(x, xp)
        unit = headroom(x, xp, axis=(-2, -1))
        inside = (
            xp.sum(_singular_values(x / unit, xp), axis=-1) / slack <= self.radius / unit[..., 0, 0]
        )
        if not unseen(x) and bool(xp.all(inside)):
            return copied(x)
        inside = inside[..., None, None]
        outer = xp.where(inside, _distinct(x, xp), x)
        scale = _scale(outer, xp)
        u, s, vt = xp.linalg.svd(outer / scale, full_matrices=False)
        kept = project_l1(s * (scale / unit)[..., 0], self.radius, xp, unit=unit[..., 0])
        return xp.where(inside, x, (u * kept[..., None, :]) @ vt)

    def _support(self, g: Array, xp: Namespace) -> Array:
        return self.radius * xp.sum(largest(_singular_values(g, xp), xp))

    def _lmo(self, g: Array, xp: Namespace) -> Array:
        u, _, vt = xp.linalg.svd(g / _scale(g, xp), full_matrices=False)
        return -self.radius * u[..., :, :1] * vt[..., :1, :]

    def _excess(self, x: Array, xp: Namespace) -> Array:
        total = xp.sum(_singular_values(x, xp), axis=-1)
        return relative_excess(total, self.radius, xp)


def _distinct(x: Array, xp: Namespace) -> Array:
    """Return a matrix with distinct singular values, where the derivatives of the SVD exist."""
    rows, columns = x.shape[-2:]
    diagonal = xp.eye(rows, columns, dtype=x.dtype, device=device(x))
    return diagonal * (1.0 + xp.arange(columns, dtype=x.dtype, device=device(x)))


def _scale(x: Array, xp: Namespace) -> Array:
    """Return a power of two near the largest entry of each matrix: the SVD squares entries."""
    return power_of_two(xp.max(xp.abs(x), axis=(-2, -1), keepdims=True), xp)


def _singular_values(x: Array, xp: Namespace) -> Array:
    scale = _scale(x, xp)
    return xp.linalg.svdvals(x / scale) * scale[..., 0]
