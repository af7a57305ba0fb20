"""Half-spaces and affine subspaces."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import size as size_of
from scipy.linalg import qr

from adahb._checks import number
from adahb.sets.arrays import (
    Array,
    Namespace,
    copied,
    like,
    parameter,
    power_of_two,
    power_of_two_below,
    wants_gradient,
    wide,
)
from adahb.sets.base import Axes, ConvexSet, Cut, every_axis

_EPS = 2.0**-52

_PARALLEL = 1e-9
"""How closely a direction must match a normal for the support to count as finite."""


@dataclass(frozen=True, eq=False, repr=False)
class HalfSpace(ConvexSet):
    """The half-space {x: <normal, x> <= offset}; x has the shape of the normal.

    Projection in a metric h: x - t normal/h with t = max(<normal, x> - offset, 0) divided by
    sum normal^2/h.

    >>> HalfSpace([1, 1], 1).project([1.0, 2.0])
    array([0., 1.])
    """

    normal: Any
    offset: float

    def __post_init__(self) -> None:
        normal = parameter("normal", self.normal)
        if not normal.any():
            raise ValueError("normal must have an entry other than zero")
        object.__setattr__(self, "normal", normal)
        object.__setattr__(self, "offset", number("offset", self.offset))
        with np.errstate(over="ignore"):
            held = bool(np.isfinite(self._arrays["offset"]))
        if not held:
            raise ValueError(
                f"offset must be a float when divided by the normal's largest entry, "
                f"{np.abs(normal).max():g}, got {self.offset!r}"
            )

    @property
    def bounded(self) -> bool:
        """Never."""
        return False

    def _fit(self, shape: tuple[int, ...]) -> None:
        if shape != self.normal.shape:
            raise ValueError(f"x must have shape {self.normal.shape} like the normal, got {shape}")

    def _can_overflow(self, top: float) -> bool:  # noqa: ARG002
        return True

    def _axes(self, ndim: int) -> Axes:
        return Axes(all=every_axis(ndim))

    def _cut(self, cut: Cut, shape: tuple[int, ...]) -> dict[str, Any]:  # noqa: ARG002
        return {**self._arrays, "normal": cut(self._arrays["normal"])}

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The normal with entries up to one, and the offset in the same unit."""
        unit = 2.0 ** np.floor(np.log2(np.abs(self.normal).max()))
        return {"normal": self.normal / unit, "offset": np.asarray(self.offset / unit)}

    def _scaled(self, x: Array, xp: Namespace) -> tuple[Array, Array, Array]:
        """Return the normal with entries up to one, and with it x and the offset in one unit."""
        normal, offset = self._own("normal", x, xp), self._own("offset", x, xp)
        largest = xp.max(xp.abs(x))
        scale = power_of_two(xp.where(largest > xp.abs(offset), largest, xp.abs(offset)), xp)
        return normal, scale, offset / scale

    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        y = wide(x, xp)
        for more in (1.0, 1 + 8 * _EPS, 1 + 8 * _EPS):  # later steps remove what rounding left
            y = self._step(y, None if h is None else h / xp.min(h), more, xp)
        return y

    def _step(self, x: Array, h: Array | None, more: float, xp: Namespace) -> Array:
        normal, scale, offset = self._scaled(x, xp)
        along = normal if h is None else normal / h
        excess = xp.sum(normal * (x / scale)) - offset
        moved = x / scale - more * excess * (along / xp.sum(normal * along))
        return xp.where(excess > 0, moved * scale, x)

    def _support(self, g: Array, xp: Namespace) -> Array:
        multiple, rest = self._along(g, xp)
        return xp.where((multiple >= 0) & rest, multiple * self.offset, np.inf)

    def _lmo(self, g: Array, xp: Namespace) -> Array | None:
        multiple, rest = self._along(g, xp)
        if not bool((multiple <= 0) & rest):
            return None
        unit = np.abs(self.normal).max()
        normal = self.normal / unit
        return like(normal * (self.offset / unit / np.sum(normal**2)), g, xp)

    def _along(self, g: Array, xp: Namespace) -> tuple[Array, Array]:
        """Return t with g nearest to t normal, and whether they agree."""
        unit = np.abs(self.normal).max()
        normal = like(self.normal / unit, g, xp)
        multiple = xp.sum(g * (normal / xp.sum(normal**2)))
        off = xp.max(xp.abs(g - multiple * normal))
        return multiple / unit, off <= _PARALLEL * xp.max(xp.abs(g))

    def _excess(self, x: Array, xp: Namespace) -> Array:
        normal, scale, offset = self._scaled(x, xp)
        terms = normal * (x / scale)
        size = xp.sum(xp.abs(terms)) + xp.abs(offset)
        return (xp.sum(terms) - offset) / _at_least_normal(size, scale, xp)


@dataclass(frozen=True, eq=False, repr=False)
class Affine(ConvexSet):
    """The affine subspace {x: matrix x = rhs}; x, flattened, has one entry for each column.

    Redundant rows are allowed; a system without solution is refused. Projection in a metric h,
    with A the independent rows: x - D E+ (A x - b), where D = h^(-1/2) and E+ is the
    pseudo-inverse of E = A D, applied by way of a QR factorisation of its transpose. Where
    derivatives are recorded, a point of the subspace passes through the formula too.

    >>> Affine([[1, 0], [2, 0]], [2, 4]).project([3.0, 1.0])
    array([2., 1.])
    """

    matrix: Any
    rhs: Any

    def __post_init__(self) -> None:
        matrix, rhs = parameter("matrix", self.matrix), parameter("rhs", self.rhs)
        if matrix.ndim != 2 or rhs.shape != matrix.shape[:1]:
            raise ValueError(
                f"matrix must be 2-d and rhs have an entry for each of its rows, "
                f"got shapes {matrix.shape} and {rhs.shape}"
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "rhs", rhs)
        with np.errstate(over="ignore"):
            held = bool(np.isfinite(self._of_unit_length[1]).all())
        if not held:
            raise ValueError(
                f"rhs must be floats when divided by the length of the matrix's rows, got "
                f"{np.array2string(rhs, threshold=8)}"
            )
        self._require_solution()

    @property
    def bounded(self) -> bool:
        """Only where the system has a single solution."""
        return bool(len(self._system[1]) == self.matrix.shape[1])

    @cached_property
    def _of_unit_length(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The rows, each scaled to norm one, with their right-hand sides."""
        largest = np.abs(self.matrix).max(axis=1, initial=0.0)
        length = largest * np.linalg.norm(
            self.matrix / np.where(largest > 0, largest, 1.0)[:, None], axis=1
        )
        length = np.where(length > 0, length, 1.0)
        return self.matrix / length[:, None], self.rhs / length

    @cached_property
    def _system(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Those of them that are linearly independent."""
        rows, rhs = self._of_unit_length
        if not rows.size:
            return rows[:0], rhs[:0]
        _, r, order = qr(rows.T, mode="economic", pivoting=True)
        diagonal = np.abs(np.diag(r))
        rank = int(np.sum(diagonal > 1e-12 * max(rows.shape)))
        chosen = np.sort(order[:rank])
        return rows[chosen], rhs[chosen]

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The parts of the system."""
        return dict(zip(("rows", "rhs"), self._system, strict=True))

    def _can_overflow(self, top: float) -> bool:  # noqa: ARG002
        return True

    def _axes(self, ndim: int) -> Axes:
        return Axes(whole=every_axis(ndim))

    def _parts(self, x: Array, xp: Namespace) -> tuple[Array, Array]:
        return self._own("rows", x, xp), self._own("rhs", x, xp)

    def _require_solution(self) -> None:
        unit = power_of_two_below(float(np.abs(self._of_unit_length[1]).max(initial=0.0)))
        (rows, rhs), (all_rows, wanted) = (
            (rows, rhs / unit) for rows, rhs in (self._system, self._of_unit_length)
        )
        solution = np.linalg.lstsq(rows, rhs, rcond=None)[0] if rhs.size else np.zeros(1)
        if rhs.size == 0:
            solution = np.zeros(self.matrix.shape[1])
        left = np.abs(all_rows @ solution - wanted)
        scale = np.abs(all_rows) @ np.abs(solution) + np.abs(wanted)
        if np.any(left > 1e-9 * scale):
            worst = int(np.argmax(left - 1e-9 * scale))
            raise ValueError(
                f"matrix and rhs must have a solution, but row {worst} contradicts the others"
            )

    def _fit(self, shape: tuple[int, ...]) -> None:
        if int(np.prod(shape)) != self.matrix.shape[1]:
            raise ValueError(
                f"x must have {self.matrix.shape[1]} entries, one for each column of the matrix, "
                f"got shape {shape}"
            )

    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        x = wide(x, xp)
        rows, rhs = self._parts(x, xp)
        y = xp.reshape(x, (-1,))
        if not rhs.shape[0]:
            return copied(y)
        size = xp.max(xp.abs(y))
        scale = power_of_two(xp.where(size > xp.max(xp.abs(rhs)), size, xp.max(xp.abs(rhs))), xp)
        inside = (self._excess(x, xp) <= 4 * _EPS) & (not wants_gradient(x))
        start, target, y, rhs = y, rhs, y / scale, rhs / scale
        plain = _solver(rows, None, xp)
        if h is not None:
            in_metric = _solver(rows, xp.reshape(h / xp.min(h), (-1,)), xp)
            y = _again(in_metric, y, rows, rhs)
        cleaned = _again(plain, y, rows, rhs)
        noise = xp.max(xp.abs(cleaned)) <= 16 * size_of(y) * _EPS
        if h is not None:  # what is in the set is not to be moved across the metric
            off = xp.max(xp.abs(rows @ y - rhs) / (xp.abs(rows) @ xp.abs(y) + xp.abs(rhs)))
            cleaned, noise = xp.where(off <= 4 * _EPS, y, cleaned), noise & (off > 4 * _EPS)
        y = cleaned
        unit = power_of_two(xp.max(xp.abs(target)), xp)
        alone = plain(target / unit) * unit
        return xp.where(inside, start, xp.where(noise, alone, y * scale))

    def _support(self, g: Array, xp: Namespace) -> Array:
        multipliers, rest = self._along(g, xp)
        return xp.where(rest, xp.sum(multipliers * self._own("rhs", g, xp)), np.inf)

    def _lmo(self, g: Array, xp: Namespace) -> Array | None:
        if not bool(self._along(g, xp)[1]):
            return None
        return self._project(xp.zeros_like(g), None, xp)

    def _along(self, g: Array, xp: Namespace) -> tuple[Array, Array]:
        """Return the multipliers of the rows that combine to g, and whether they do."""
        rows = self._own("rows", g, xp)
        flat = xp.reshape(g, (-1,))
        if not rows.shape[0]:
            return rows[:, 0], xp.all(flat == 0)
        q, r = xp.linalg.qr(rows.T)
        multipliers = xp.linalg.solve(r, q.T @ flat)
        off = xp.max(xp.abs(flat - multipliers @ rows))
        return multipliers, off <= _PARALLEL * xp.max(xp.abs(flat))

    def _excess(self, x: Array, xp: Namespace) -> Array:
        rows, rhs = self._parts(x, xp)
        if not size_of(rhs):
            return xp.zeros_like(x)
        flat = xp.reshape(x, (-1,))
        largest = xp.max(xp.abs(flat))
        scale = power_of_two(largest, xp)
        flat, rhs = flat / scale, rhs / scale
        sizes = xp.abs(rows) @ xp.abs(flat) + xp.abs(rhs)
        return xp.max(xp.abs(rows @ flat - rhs) / _at_least_normal(sizes, scale, xp))


def _again(step: Any, y: Array, rows: Array, rhs: Array) -> Array:
    """Step onto the subspace; the second time removes what rounding left."""
    for _ in range(2):
        y = y - step(rows @ y - rhs)
    return y


def _at_least_normal(size: Array, scale: Array, xp: Namespace) -> Array:
    """Return ``size``, which is in units of ``scale``, or the smallest normal number if larger."""
    least = 2.0**-1022 / scale
    return xp.where(size > least, size, least)


def _solver(rows: Array, h: Array | None, xp: Namespace) -> Any:
    """Return the map from a residual A y - b to the shortest step, in the metric h, removing it."""
    spread = xp.ones_like(rows[0]) if h is None else 1 / xp.sqrt(h)
    scaled = rows * spread
    length = xp.sqrt(xp.sum(scaled**2, axis=1))
    q, r = xp.linalg.qr((scaled / length[:, None]).T)
    return lambda residual: spread * (q @ _solve_lower(r.T, residual / length, xp))


def _solve_lower(matrix: Array, rhs: Array, xp: Namespace) -> Array:
    """Solve a lower triangular system; torch would look whether another one has a solution."""
    if hasattr(xp.linalg, "solve_triangular"):
        return xp.linalg.solve_triangular(matrix, rhs[:, None], upper=False)[:, 0]
    return xp.linalg.solve(matrix, rhs)
