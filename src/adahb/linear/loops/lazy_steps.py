"""The steps of the averaging form at the cost of the row.

While no step touches a coordinate, z_j = Q (K - Λ) moves with Λ alone, and so does the weighted
mean

    w₊ = (1 - c) w + c z₊    as    w_j = m U + Q (K α - β),
    m₊ = (1 - c) m,   α₊ = (1 - c) α + c,   β₊ = (1 - c) β + c Λ₊.

A step settles the coordinates of its row, and those whose z becomes 0 in it.  Λ is the sum of the
thresholds of an l1 ball, plain or in a metric, and 0 where there is none.
"""

from typing import Any

import numpy as np

from adahb.linear.loops.base import STEEPEST
from adahb.linear.loops.calendar import (
    ALIVE,
    ALPHA,
    BETA,
    BUCKET,
    BUCKETS,
    CURRENT,
    ENTRIES,
    EPS,
    FREE,
    LEVEL,
    MASS,
    NEXT,
    NOISE,
    NOWHERE,
    PER_WIDTH,
    RATE,
    SA,
    SB,
    SQUARES,
    SQUARES0,
    SUM,
    SUM0,
    TAIL,
    TOP,
    W0,
    WASTED,
    Z0,
    K,
    M,
    Q,
    U,
    enter,
    lower,
    rebuild,
    retire,
)
from adahb.linear.loops.compiled import ask, derivative, exact, inlined, look_ahead, reordering

Array = np.ndarray[Any, Any]

AMPLIFIED = 1024.0
"""How many times the radius may have been taken off before Λ begins anew at 0: digits are lost."""


@reordering
def predict(rec: Array, cols: Array, values: Array, start: Any, stop: Any, f: Array) -> float:
    """Return ⟨x, w⟩."""
    alpha, beta = f[ALPHA], f[BETA]
    fixed, moving = 0.0, 0.0
    begin = np.uintp(start)
    for k in range(begin, np.uintp(stop)):
        j = np.uintp(cols[k])
        fixed += values[k] * rec[j, U]
        moving += values[k] * (rec[j, Q] * (rec[j, K] * alpha - beta))
    at: float = f[M] * fixed + moving
    return at


@inlined
def move(
    rec: Array, cols: Array, values: Array, start: Any, stop: Any, scale: float, step: float,
    p: float, gain: float, delta: float, f: Array, keys: Array, inverses: Array, adaptive: Any,
    metric: Any,
) -> None:  # fmt: skip
    """Move z in the coordinates of the row, with their new K and Q put aside for `place`."""
    level, mass, rate, largest = f[LEVEL], 0.0, 0.0, 0.0
    begin = np.uintp(start)
    for k in range(begin, np.uintp(stop)):
        j = np.uintp(cols[k])
        g = scale * values[k]
        q = rec[j, Q]
        z = q * (rec[j, K] - level)
        h, by = 1.0, step * g
        if adaptive is not None:
            s = rec[j, SQUARES] + gain * (g * g)
            rec[j, SQUARES] = s
            if metric is not None:
                h = np.sqrt(s) + delta
                by /= h
            else:
                by /= np.sqrt(s * p) + delta
        moved = z - by
        inverse = 1.0 / h
        key = abs(moved) * h + level
        keys[k - begin] = key
        inverses[k - begin] = np.copysign(inverse, moved)
        mass += (key - level) * inverse - abs(z)
        rate += (inverse if key > level else 0.0) - abs(q)
        if metric is not None:
            largest = max(largest, abs(q), inverse)
    f[MASS] += mass
    f[RATE] += rate
    if metric is not None:
        f[NOISE] += EPS * max(largest, f[RATE])


@inlined
def place(
    rec: Array, cols: Array, start: Any, stop: Any, keys: Array, inverses: Array, level: float,
    f: Array, n: Array, pool: Array, head: Array, average: Any,
) -> tuple[float, float]:  # fmt: skip
    """Settle the coordinates of the row and let them go on with the K and Q put aside.

    Those with K <= level, a lower bound of Λ₊, need not be queued: return their mass above Λ and
    their rate.
    """
    alpha, beta, sa, sb, tail = f[ALPHA], f[BETA], f[SA], f[SB], f[TAIL]
    per_m = 1.0 / f[M] if f[M] > 0.0 else 0.0
    base, per_width, far, nearest = f[LEVEL], f[PER_WIDTH], np.float64(n[BUCKETS]), f[NEXT]
    free, top, alive, entries = n[FREE], n[TOP], n[ALIVE], 0
    mass, rate = 0.0, 0.0
    begin = np.uintp(start)
    for k in range(begin, np.uintp(stop)):
        j = np.uintp(cols[k])
        key, inverse = keys[k - begin], inverses[k - begin]
        before = rec[j, BUCKET]
        if key <= level:
            if key > base:
                mass += (key - base) * abs(inverse)
                rate += abs(inverse)
            if before != NOWHERE:
                alive -= 1
                retire(j, rec, alpha, beta, per_m, sa, sb, tail, average)
            continue
        q, old = rec[j, Q], rec[j, K]
        by = (q * (old * alpha - beta) - inverse * (key * alpha - beta)) * per_m
        rec[j, U] += by
        if average is not None:
            rec[j, SUM] += q * (old * sa - sb) - inverse * (key * sa - sb) - by * tail
        rec[j, Q] = inverse
        rec[j, K] = key
        nearest = min(nearest, key)
        bucket = min(key * per_width, far)
        if bucket < before:
            alive += before == NOWHERE
            entries += 1
            free, top = enter(j, np.uintp(bucket), free, top, pool, head)
            rec[j, BUCKET] = np.floor(bucket)
    n[ENTRIES] += entries
    n[FREE], n[TOP], n[ALIVE], f[NEXT] = free, top, alive, nearest
    return mass, rate


@inlined
def step_together(
    rec: Array, cols: Array, values: Array, start: Any, stop: Any, scale: float, step: float,
    p: float, gain: float, delta: float, radius: float, f: Array, n: Array, pool: Array,
    head: Array, keys: Array, inverses: Array, far: bool, adaptive: Any, metric: Any, average: Any,
) -> None:  # fmt: skip
    """z₊ = P[z - step g/h] for the g that the row makes."""
    if n[ENTRIES] + (stop - start) > 2 * rec.shape[0] + 64:
        rebuild(rec, f, n, pool, head)
    move(
        rec, cols, values, start, stop, scale, step, p, gain, delta, f, keys, inverses, adaptive,
        metric,
    )  # fmt: skip
    excess = f[MASS] - radius
    outside = excess > 0.0
    level = f[LEVEL] + excess / f[RATE] if outside else f[LEVEL]
    mass, rate = place(
        rec, cols, start, stop, keys, inverses, level, f, n, pool, head, average
    )  # fmt: skip
    f[RATE] -= rate
    f[MASS] -= mass
    if outside:
        lower(excess - mass, f[RATE], radius, rec, f, n, pool, head, far, average)
    elif n[ALIVE] == 0:
        f[MASS], f[RATE] = 0.0, 0.0
    amplified = f[LEVEL] * f[RATE] > AMPLIFIED * radius
    if amplified or n[CURRENT] >= n[BUCKETS] or n[WASTED] > n[ALIVE] + 64:
        rebuild(rec, f, n, pool, head)


@exact
def step_apart(
    rec: Array, cols: Array, values: Array, start: Any, stop: Any, scale: float, step: float,
    p: float, gain: float, delta: float, lower: Array, upper: Array, f: Array, adaptive: Any,
    average: Any,
) -> None:  # fmt: skip
    """z₊ = min(max(z - step g/V̂, lower), upper); Q is 1, K is z."""
    each_low, each_high = np.uintp(lower.size > 1), np.uintp(upper.size > 1)
    per_m = 1.0 / f[M] if f[M] > 0.0 else 0.0
    for k in range(start, stop):
        j = np.uintp(cols[k])
        g = scale * values[k]
        by = step * g
        if adaptive is not None:
            s = rec[j, SQUARES] + gain * (g * g)
            rec[j, SQUARES] = s
            by /= np.sqrt(s * p) + delta
        z = rec[j, K]
        moved = z - by
        moved = max(moved, lower[j * each_low])
        moved = min(moved, upper[j * each_high])
        rec[j, K] = moved
        change = (z - moved) * f[ALPHA] * per_m
        rec[j, U] += change
        if average is not None:
            rec[j, SUM] += (z - moved) * f[SA] - change * f[TAIL]


@inlined
def look_at_next(i: int, rows: Array, indptr: Array, cols: Array, rec: Array) -> None:
    """Ask for the coordinates of the row that follows the i-th."""
    if i + 1 < rows.size:
        row = rows[i + 1]
        for k in range(indptr[row], indptr[row + 1]):
            ask(rec, np.int64(cols[k]) * rec.shape[1])


@exact
def gather(
    batch: Array, slopes: Array, indptr: Array, indices: Array, data: Array, where: Array,
    cols: Array, values: Array,
) -> int:  # fmt: skip
    """Add up the rows times their slopes; return how many coordinates that touches."""
    count = 0
    for i in range(batch.size):
        for k in range(indptr[batch[i]], indptr[batch[i] + 1]):
            j = indices[k]
            if where[j] < 0:
                where[j] = count
                cols[count] = j
                values[count] = 0.0
                count += 1
            values[where[j]] += slopes[i] * data[k]
    for i in range(count):
        where[cols[i]] = -1
    return count


@exact
def move_intercept(
    g: float, step: float, p: float, gain: float, delta: float, f: Array, adaptive: Any, metric: Any
) -> None:
    """z₊ = z - step g/h for the intercept, which is free."""
    if adaptive is None:
        f[Z0] -= step * g
        return
    f[SQUARES0] += gain * (g * g)
    f[Z0] -= step * g / (np.sqrt(f[SQUARES0] if metric is not None else f[SQUARES0] * p) + delta)


@exact
def train(
    rows: Array, size: int, y: Array, weights: Any, indptr: Array, indices: Array, data: Array,
    code: int, parameter: float, intercept: bool, radius: float, lower: Array,
    upper: Array, steps: Array, shares: Array,
    p: Array, gains: Array, deltas: Array, tails: Array, rec: Array, f: Array, n: Array,
    pool: Any, head: Any, keys: Array, inverses: Array, where: Array, cols: Array,
    values: Array, sums: Array, visits: Array, merge: bool, far: bool, adaptive: Any, metric: Any,
    average: Any,
) -> int:  # fmt: skip
    """Take the steps on ``rows`` in batches; return their number, less if one is not finite."""
    slopes = np.empty(size)
    for i in range(steps.size):
        first, last = i * size, min((i + 1) * size, rows.size)
        for k in range(first, last):
            look_ahead(k, rows, indptr, indices, data, y, sums, visits)
            if far:
                look_at_next(k, rows, indptr, indices, rec)
        if average is not None:
            f[SA] += f[ALPHA]
            f[SB] += f[BETA]
            f[TAIL] = tails[i]
            f[SUM0] += f[W0]
        total, moved = 0.0, False
        for k in range(first, last):
            row = rows[k]
            at = predict(rec, indices, data, indptr[row], indptr[row + 1], f)
            s = derivative(code, parameter, at + f[W0], y[row])
            if not abs(s) <= STEEPEST:
                return i
            sums[row] += s
            visits[row] += 1
            if weights is not None:
                s *= weights[row]
            s /= last - first
            slopes[k - first] = s
            total += s
            moved = moved or s != 0.0
        if moved and merge:
            count = gather(rows[first:last], slopes, indptr, indices, data, where, cols, values)
            if pool is None:
                step_apart(
                    rec, cols, values, 0, count, 1.0, steps[i], p[i], gains[i], deltas[i], lower,
                    upper, f, adaptive, average,
                )  # fmt: skip
            else:
                step_together(
                    rec, cols, values, 0, count, 1.0, steps[i], p[i], gains[i], deltas[i], radius,
                    f, n, pool, head, keys, inverses, far, adaptive, metric, average,
                )  # fmt: skip
        elif moved:
            start, stop = indptr[rows[first]], indptr[rows[first] + 1]
            if pool is None:
                step_apart(
                    rec, indices, data, start, stop, total, steps[i], p[i], gains[i], deltas[i],
                    lower, upper, f, adaptive, average,
                )  # fmt: skip
            else:
                step_together(
                    rec, indices, data, start, stop, total, steps[i], p[i], gains[i], deltas[i],
                    radius, f, n, pool, head, keys, inverses, far, adaptive, metric, average,
                )  # fmt: skip
        c = shares[i]
        if intercept:
            move_intercept(total, steps[i], p[i], gains[i], deltas[i], f, adaptive, metric)
            f[W0] += c * (f[Z0] - f[W0])
        f[M] *= 1.0 - c
        f[ALPHA] += c * (1.0 - f[ALPHA])
        f[BETA] += c * (f[LEVEL] - f[BETA])
    return steps.size
