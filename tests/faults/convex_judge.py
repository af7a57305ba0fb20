"""Whether a projection is right, told in exact arithmetic at any scale.

A feasible y is the point of Q nearest to x in the metric h if and only if no point of Q lies
further in the direction of h (x - y) than y does:

    G(y) = σ_Q(h (x - y)) - ⟨h (x - y), y⟩ = 0,    and always   ½ ‖y - y*‖²_h ≤ G(y).

A y that is exact for an x whose entries, and a radius, that are off by k ulps has
G(y) ≤ k ulps of the width of Q in the direction of h (|x| + |y|), and that is what is asked of it.
Numbers of 200 digits' range need many bits: mpmath has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpmath import mp, mpf

from adahb import sets

mp.prec = 400

ULPS = 256
"""What an entry of x, and the radius, may be off by."""


def exact(values: Any) -> list[Any]:
    """Return the numbers of an array as they are."""
    return [mpf(float(v)) for v in np.asarray(values, dtype=np.float64).reshape(-1)]


def rows_of(q: sets.ConvexSet, shape: tuple[int, ...]) -> list[list[int]]:
    """Return the flat places of the entries that each row, or group, of the set is made of."""
    places = np.arange(int(np.prod(shape))).reshape(shape)
    groups = getattr(q, "groups", None)
    if groups is not None:
        return [places[groups == g].tolist() for g in np.unique(groups)]
    dim = getattr(q, "dim", None)
    if dim is None:
        return [places.reshape(-1).tolist()]
    return np.moveaxis(places, dim, -1).reshape(-1, shape[dim]).tolist()


def norm(g: list[Any]) -> Any:
    """Return the l2 norm."""
    return mp.sqrt(sum((v * v for v in g), mpf(0)))


def support(q: sets.ConvexSet, g: list[Any], shape: tuple[int, ...]) -> Any:
    """Return σ_Q(g) of a bounded set."""
    rows = [[g[i] for i in row] for row in rows_of(q, shape)]
    if isinstance(q, sets.L1Ball):
        return mpf(q.radius) * sum(max(map(abs, row)) for row in rows)
    if isinstance(q, sets.L2Ball):
        return mpf(q.radius) * sum(map(norm, rows))
    if isinstance(q, sets.GroupL1Ball):
        return mpf(q.radius) * max(map(norm, rows))
    if isinstance(q, sets.WeightedL1Ball):
        weights = exact(np.broadcast_to(q.weights.reshape(-1), (len(rows), len(rows[0]))))
        each = iter(weights)
        return mpf(q.radius) * sum(max(abs(v) / next(each) for v in row) for row in rows)
    if isinstance(q, sets.Simplex):
        return mpf(q.total) * sum(max(row) for row in rows)
    if isinstance(q, sets.LinfBall):
        return mpf(q.radius) * sum(map(abs, g))
    if isinstance(q, sets.NuclearBall):
        matrix = mp.matrix(np.array(g, dtype=object).reshape(shape).tolist())
        return mpf(q.radius) * (max(mp.svd_r(matrix, compute_uv=False)) if any(g) else 0)
    if isinstance(q, sets.Box):
        low, high = exact(np.broadcast_to(q.lower, shape)), exact(np.broadcast_to(q.upper, shape))
        return sum(max(v * a, v * b) if v else 0 for v, a, b in zip(g, low, high, strict=True))
    raise TypeError(q)


def outside(q: sets.ConvexSet, y: list[Any], shape: tuple[int, ...]) -> Any:
    """Return by how much y is outside, and the size of the set, in the same unit."""
    rows = [[y[i] for i in row] for row in rows_of(q, shape)]
    if isinstance(q, sets.L1Ball):
        return max(sum(map(abs, row)) for row in rows) - q.radius, q.radius
    if isinstance(q, sets.L2Ball):
        return max(map(norm, rows)) - q.radius, q.radius
    if isinstance(q, sets.GroupL1Ball):
        return sum(map(norm, rows)) - q.radius, q.radius
    if isinstance(q, sets.WeightedL1Ball):
        weights = exact(np.broadcast_to(q.weights.reshape(-1), (len(rows), len(rows[0]))))
        each = iter(weights)
        return max(sum(abs(v) * next(each) for v in row) for row in rows) - q.radius, q.radius
    if isinstance(q, sets.Simplex):
        off = max(abs(sum(row) - q.total) for row in rows)
        return max(off, -min(y)), q.total
    if isinstance(q, sets.LinfBall):
        return max(map(abs, y)) - q.radius, q.radius
    if isinstance(q, sets.NuclearBall):
        matrix = mp.matrix(np.array(y, dtype=object).reshape(shape).tolist())
        return (sum(mp.svd_r(matrix, compute_uv=False)) if any(y) else 0) - q.radius, q.radius
    if isinstance(q, sets.NonNegative):
        return -min(y), mpf(1)
    if isinstance(q, sets.Box):
        low, high = exact(np.broadcast_to(q.lower, shape)), exact(np.broadcast_to(q.upper, shape))
        off = max(max(a - v, v - b) for v, a, b in zip(y, low, high, strict=True))
        return off, max(map(abs, low + high))
    raise TypeError(q)


def clipped(q: Any, x: list[Any], shape: tuple[int, ...], dtype: Any) -> list[Any]:
    """Return the entries between the bounds, of which the dtype knows what it can hold."""
    with np.errstate(over="ignore"):
        low, high = (exact(np.broadcast_to(b, shape).astype(dtype)) for b in q._bounds)
    return [min(max(v, a), b) for v, a, b in zip(x, low, high, strict=True)]


def far(q: Any, x: list[Any], y: list[Any], h: list[Any], ulps: Any, least: Any) -> str | None:
    """Say how far y is from the projection of x on a half-space, or on one equation's flat."""
    half = isinstance(q, sets.HalfSpace)
    normal = exact(q.normal if half else q.matrix[0])
    excess = sum(a * b for a, b in zip(normal, x, strict=True)) - mpf(
        q.offset if half else q.rhs[0]
    )
    rate = sum(a * a / b for a, b in zip(normal, h, strict=True))
    t = max(excess, 0) / rate if half else excess / rate
    right = [a - t * b / c for a, b, c in zip(x, normal, h, strict=True)]

    def size(v: list[Any]) -> Any:
        return mp.sqrt(sum(a * b * b for a, b in zip(h, v, strict=True)))

    moved = size([t * b / c for b, c in zip(normal, h, strict=True)])
    allowed = ulps * (size(x) + moved) + size([least] * len(x))
    error = size([a - b for a, b in zip(y, right, strict=True)])
    return (
        None if error <= allowed else f"off by {mp.nstr(error, 5)}, allowed {mp.nstr(allowed, 5)}"
    )


def verdict(q: sets.ConvexSet, x: Any, y: Any, metric: Any = None) -> str | None:
    """Say what is wrong with y as the projection of x; None if nothing is."""
    x, y = np.asarray(x), np.asarray(y)
    if y.shape != x.shape or y.dtype != x.dtype:
        return f"shape or dtype changed: {y.shape} {y.dtype}"
    if not np.isfinite(y).all():
        return "not finite"
    shape, kind = x.shape, np.finfo(x.dtype)
    ulps, least = ULPS * mpf(float(kind.eps)), 4 * mpf(float(kind.smallest_subnormal))
    h = exact(np.ones(shape) if metric is None else np.broadcast_to(metric, shape))
    xs, ys = exact(x), exact(y)
    if isinstance(q, sets.NonNegative | sets.Box):
        return None if ys == clipped(q, xs, shape, x.dtype) else "not the clipped entries"
    if isinstance(q, sets.HalfSpace | sets.Affine):
        return far(q, xs, ys, h, ulps, least)
    excess, size = outside(q, ys, shape)
    heaviest = mpf(float(np.max(q.weights)) if isinstance(q, sets.WeightedL1Ball) else 1.0)
    if 0 < size < mpf(2) ** -1000:  # a radius that has lost digits by its smallness alone
        ulps = max(ulps, least * max(1, heaviest) / size)
    if excess > ulps * size + least * x.size * heaviest:
        return f"outside by {mp.nstr(excess, 5)} of {size!r}"
    pull = [a * (b - c) for a, b, c in zip(h, xs, ys, strict=True)]
    reach = support(q, pull, shape)
    gap = reach - sum(a * b for a, b in zip(pull, ys, strict=True))
    off = [a * (ulps * (abs(b) + abs(c)) + least) for a, b, c in zip(h, xs, ys, strict=True)]
    negative = [-v for v in off]
    allowed = abs(support(q, off, shape)) + abs(support(q, negative, shape))
    allowed += least * sum(map(abs, pull))
    if gap > allowed:
        return f"not the nearest: gap {mp.nstr(gap, 5)}, allowed {mp.nstr(allowed, 5)}"
    return None
