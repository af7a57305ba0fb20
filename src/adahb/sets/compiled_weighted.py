"""The projections on the l1 ball and the simplex with weights or in a metric, row by row.

A first pass finds the entry that stays longest, hence a lower bound of the level; a second stores
the blocks that reach above it, and Newton's method and the writing see only those.
"""

import numpy as np

from adahb.sets.compiled_common import (
    BLOCK,
    STRIDE,
    Vector,
    contracting,
    exact,
    reordering,
    shielded,
    unit_of,
)

_HUGE = 1e300
_LARGE = 1e200


@exact
def project_weighted(
    x: Vector, largest: Vector, w: Vector, h: Vector, radius: float, slack: float, signed: bool,
    u: Vector, q: Vector, out: Vector,
) -> None:  # fmt: skip
    """Project each row, with two arrays to work in; a single 1 stands for no weights or metric."""
    heaviest = w[0]
    for i in range(w.size):
        heaviest = max(heaviest, w[i])
    heaviest = unit_of(heaviest)
    radius = radius / heaviest
    unit = unit_of(radius)
    starts = np.empty(-(-x.shape[1] // BLOCK), dtype=np.int64)
    for k in range(x.shape[0]):
        size, metric = unit_of(largest[k]), h[k if h.shape[0] > 1 else 0]
        total, low, top, cost = _survey(
            x[k],
            w,
            metric,
            1 / size,
            1 / heaviest,
            min(radius / size, _LARGE),
            signed,
            u,
            q,
        )
        common = max(size, unit)
        excess, allowed = total * (size / common) - radius / common, slack * radius / common
        if excess <= allowed and (not signed or (low >= 0 and excess >= -allowed)):
            out[k] = x[k]
            continue
        target, ratio, shift = radius / unit, min(size / unit, _HUGE), radius / size < abs(top)
        level = top * ratio - target if signed and not shift else 0.0
        base, top = (target, top) if shift else (0.0, 0.0)
        kept, count = _gather(
            x[k], w, metric, 1 / size, 1 / heaviest, signed, cost, top, base, ratio, level,
            u, q, starts,
        )  # fmt: skip
        level, gain = _weighted_level(u[:count], q[:count], level, target)
        for b in range(kept):
            place, start = b * BLOCK, starts[b]
            stop = min(start + BLOCK, x.shape[1])
            _write_weighted(
                x[k, start:stop], _part(w, start, stop), 1 / heaviest, u[place:count],
                q[place:count], level, gain, target, unit, signed, out[k, start:stop],
            )  # fmt: skip


@exact
def _part(values: Vector, start: int, stop: int) -> Vector:
    """Return a block of the weights or the metric, or the single 1 that stands for them."""
    return values[start:stop] if values.size > 1 else values


@exact
def _survey(
    x: Vector, w: Vector, h: Vector, size: float, heaviest: float, limit: float, signed: bool,
    u: Vector, q: Vector,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Return the sums of a and of min(a, 0), and the a and c of the entry that stays longest.

    That is the one with the largest (a - limit)/c.
    """
    total, low, top, cost = 0.0, 0.0, 0.0, 0.0
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        a, c = u[: stop - start], q[: stop - start]
        more, less = _heights(
            x[start:stop], _part(w, start, stop), _part(h, start, stop), size, heaviest, signed,
            a, c,
        )  # fmt: skip
        total += more
        low += less
        if start == 0:
            top, cost = a[0], c[0]
        if _leaders(a, c, limit, top, cost) > 0:
            for i in range(a.size):
                if (a[i] - limit) * cost > (top - limit) * c[i]:
                    top, cost = a[i], c[i]
    return total, low, top, cost


@exact
def _leaders(a: Vector, c: Vector, limit: float, top: float, cost: float) -> int:
    """Return how many entries stay longer than the given one."""
    count = 0
    for i in range(a.size):
        count += int((a[i] - limit) * cost > (top - limit) * c[i])
    return count


@exact
def _gather(
    x: Vector, w: Vector, h: Vector, size: float, heaviest: float, signed: bool, cost: float,
    top: float, base: float, ratio: float, level: float, u: Vector, q: Vector, starts: Vector,
) -> tuple[int, int]:  # fmt: skip
    """Store u and q of the blocks that reach above the level, and where these blocks start.

    Return the number of blocks and of entries stored; other blocks are overwritten by the next.
    """
    kept, count = 0, 0
    for start in range(0, x.size, BLOCK):
        stop = min(start + BLOCK, x.size)
        a, c = u[count : count + stop - start], q[count : count + stop - start]
        _heights(
            x[start:stop], _part(w, start, stop), _part(h, start, stop), size, heaviest, signed,
            a, c,
        )  # fmt: skip
        _shift(a, c, cost, top, base, ratio)
        if _above_weighted(a, c, level)[2] > 0:
            starts[kept] = start
            kept += 1
            count += stop - start
    return kept, count


@reordering
def _heights(
    x: Vector, w: Vector, h: Vector, size: float, heaviest: float, signed: bool, u: Vector,
    q: Vector,
) -> tuple[float, float]:  # fmt: skip
    """Store a = w|x| (or x) in u and c = w^2/h in q; return the sums of a and of min(a, 0).

    ``size`` and ``heaviest`` scale x and w; they are powers of two.
    """
    total, low = 0.0, 0.0
    for i in range(x.size):
        value = np.float64(x[i]) * size
        u[i] = value if signed else abs(value)
        q[i] = 1.0
    if w.size == x.size:
        for i in range(x.size):
            weight = w[i] * heaviest
            u[i] *= weight
            q[i] = weight * weight
    if h.size == x.size:
        for i in range(x.size):
            q[i] /= h[i]
    for i in range(x.size):
        total += u[i]
        low += min(0.0, u[i])
    return total, low


@contracting
def _shift(a: Vector, c: Vector, cost: float, top: float, base: float, ratio: float) -> None:
    """Turn a into u = (a - top q) ratio + base q and c into q = c/cost."""
    for i in range(a.size):
        q = c[i] / cost
        a[i] = (a[i] - top * q) * ratio + base * q
        c[i] = q


@shielded
def _rest_weighted(u: float, q: float, level: float) -> float:
    """Return u - level q, rounded alike wherever it is used."""
    return u - level * q


@reordering
def _above_weighted(u: Vector, q: Vector, level: float) -> tuple[float, float, int]:
    """Return the sum of u - level q where it is positive, that of q there, and their number."""
    mass, slope, count = 0.0, 0.0, 0
    for i in range(u.size):
        rest = _rest_weighted(u[i], q[i], level)
        mass += max(0.0, rest)
        slope += q[i] * np.float64(rest > 0)
        count += int(rest > 0)
    return mass, slope, count


@exact
def _newton_weighted(u: Vector, q: Vector, level: float, target: float) -> tuple[float, float]:
    """Return the level at which max(u - level q, 0) sums to ``target``, and the last correction."""
    previous, settled, gain = -1, level, 0.0
    while True:
        mass, slope, count = _above_weighted(u, q, level)
        if mass > 0:
            settled, gain = level, target / mass
        if mass <= target or count == previous:
            return settled, gain
        level += (mass - target) / slope
        previous = count


@exact
def _weighted_level(u: Vector, q: Vector, level: float, target: float) -> tuple[float, float]:
    """Do the same, starting with a Newton step from the level of a regular sample."""
    if u.size >= STRIDE * STRIDE:
        share = target / STRIDE
        guess, _ = _newton_weighted(u[::STRIDE].copy(), q[::STRIDE].copy(), level, share)
        mass, slope, _ = _above_weighted(u, q, guess)
        if slope > 0:
            level = max(level, guess + (mass - target) / slope)
    return _newton_weighted(u, q, level, target)


@exact
def _write_weighted(
    x: Vector, w: Vector, heaviest: float, u: Vector, q: Vector, level: float, gain: float,
    target: float, unit: float, signed: bool, out: Vector,
) -> None:  # fmt: skip
    """Write what is above the level into ``out``; ``u`` is spent."""
    for i in range(x.size):
        u[i] = max(0.0, _rest_weighted(u[i], q[i], level)) * gain
    if w.size == x.size:
        for i in range(x.size):
            u[i] /= w[i] * heaviest
    if signed:
        for i in range(x.size):  # no more than all, if that is the largest float and rounded up
            out[i] = min(u[i], target) * unit
    else:
        for i in range(x.size):  # no longer than x, if the largest floats are rounded up
            out[i] = np.copysign(min(u[i] * unit, abs(np.float64(x[i]))), np.float64(x[i]))
