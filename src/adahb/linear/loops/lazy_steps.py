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
from adahb.linear.loops.calendar import EPS, NOWHERE, enter, lower, rebuild, retire
from adahb.linear.loops.compiled import ask, derivative, exact, inlined, look_ahead, reordering

Array = np.ndarray[Any, Any]

AMPLIFIED = 1024.0
"""How many times the radius may have been taken off before Λ begins anew at 0: digits are lost."""


@reordering
def predict(rec: Array, cols: Array, values: Array, start: Any, stop: Any, state: Any) -> float:
    """Return ⟨x, w⟩."""
    m, alpha, beta = state.m, state.alpha, state.beta
    even, odd = 0.0, 0.0
    k, end = np.uintp(start), np.uintp(stop)
    one, two = np.uintp(1), np.uintp(2)
    while k + one < end:
        i, j = np.uintp(cols[k]), np.uintp(cols[k + one])
        even += values[k] * (m * rec[i].u + rec[i].q * (rec[i].k * alpha - beta))
        odd += values[k + one] * (m * rec[j].u + rec[j].q * (rec[j].k * alpha - beta))
        k += two
    if k < end:
        i = np.uintp(cols[k])
        even += values[k] * (m * rec[i].u + rec[i].q * (rec[i].k * alpha - beta))
    at: float = even + odd
    return at


@exact
def look_up(
    rec: Array, cols: Array, values: Array, start: Any, stop: Any, scale: float, gain: float,
    state: Any, zs: Array, squares: Array, adaptive: Any,
) -> tuple[float, float]:  # fmt: skip
    """Put z and the new second moments of the row aside; return its Σ|z| and Σ1/h over z ≠ 0."""
    level, mass, rate = state.level, 0.0, 0.0
    begin = np.uintp(start)
    for k in range(begin, np.uintp(stop)):
        j = np.uintp(cols[k])
        q = rec[j].q
        z = q * (rec[j].k - level)
        zs[k - begin] = z
        mass += abs(z)
        rate += abs(q)
        if adaptive is not None:
            g = scale * values[k]
            s = rec[j].squares + gain * (g * g)
            rec[j].squares = s
            squares[k - begin] = s
    return mass, rate


@reordering
def move(
    zs: Array, squares: Array, values: Array, start: Any, size: Any, step: float, p: float,
    delta: float, level: float, adaptive: Any, metric: Any,
) -> tuple[float, float]:  # fmt: skip
    """Z -= step g/h; K takes the place of z, Q that of the second moments; return as `look_up`."""
    mass, rate = 0.0, 0.0
    begin = np.uintp(start)
    for k in range(np.uintp(size)):
        h, inverse, by = 1.0, 1.0, step * values[begin + k]
        if metric is not None:
            h = np.sqrt(squares[k]) + delta
            inverse = 1.0 / h
            by *= inverse
        elif adaptive is not None:
            by /= np.sqrt(squares[k] * p) + delta
        moved = zs[k] - by
        key = abs(moved) * h + level
        zs[k] = key
        squares[k] = np.copysign(inverse, moved)
        mass += (key - level) * inverse
        rate += inverse if key > level else 0.0
    return mass, rate


@exact
def place(
    rec: Array, cols: Array, start: Any, stop: Any, keys: Array, inverses: Array, level: float,
    state: Any, pool: Array, average: Any,
) -> tuple[float, float]:  # fmt: skip
    """Settle the coordinates of the row and let them go on with the K and Q put aside.

    Those with K <= level, a lower bound of Λ₊, need not be queued: return their mass above Λ and
    their rate.
    """
    alpha, beta, alphas, betas, to_come = (
        state.alpha, state.beta, state.alphas, state.betas, state.to_come,
    )  # fmt: skip
    per_m = 1.0 / state.m if state.m > 0.0 else 0.0
    base, per_width, far = state.level, state.per_width, np.float64(state.buckets)
    free, top, alive, nearest = state.free, state.top, state.alive, state.nearest
    mass, rate, entries = 0.0, 0.0, np.int64(0)
    begin = np.uintp(start)
    for k in range(begin, np.uintp(stop)):
        j = np.uintp(cols[k])
        key, inverse = keys[k - begin], inverses[k - begin]
        before = rec[j].bucket
        if key <= level:
            if key > base:
                mass += (key - base) * abs(inverse)
                rate += abs(inverse)
            if before != NOWHERE:
                alive -= 1
                retire(rec, j, alpha, beta, per_m, alphas, betas, to_come, average)
            continue
        q, old = rec[j].q, rec[j].k
        by = (q * (old * alpha - beta) - inverse * (key * alpha - beta)) * per_m
        rec[j].u += by
        if average is not None:
            rec[j].sum += (
                q * (old * alphas - betas) - inverse * (key * alphas - betas) + by * to_come
            )
        rec[j].q = inverse
        rec[j].k = key
        nearest = min(nearest, key)
        bucket = np.int64(min(far, key * per_width))  # far, if it is not a number
        comes = np.int64(bucket < before)
        free, top = enter(j, np.uintp(bucket), comes, free, top, pool)
        rec[j].bucket = min(bucket, before)
        alive += np.int64(before == NOWHERE)
        entries += comes
    state.entries += entries
    state.free, state.top, state.alive, state.nearest = free, top, alive, nearest
    return mass, rate


@exact
def step_together(
    rec: Array, cols: Array, values: Array, start: Any, stop: Any, scale: float, step: float,
    p: float, gain: float, delta: float, radius: float, state: Any, pool: Array, keys: Array,
    inverses: Array, far: bool, adaptive: Any, metric: Any, average: Any,
) -> None:  # fmt: skip
    """z₊ = P[z - step g/h] for the g that the row makes."""
    size = np.int64(stop) - np.int64(start)
    if state.entries + size > 2 * rec.size + 64:
        rebuild(rec, state, pool)
    mass, rate = look_up(
        rec, cols, values, start, stop, scale, gain, state, keys, inverses, adaptive
    )  # fmt: skip
    more, faster = move(
        keys, inverses, values, start, size, scale * step, p, delta, state.level, adaptive, metric
    )  # fmt: skip
    state.mass += more - mass
    state.rate += faster - rate
    if metric is not None:
        state.noise += EPS * (rate + faster + state.rate)
    excess = state.mass - radius
    outside = excess > 0.0
    level = state.level + excess / state.rate if outside else state.level
    mass, rate = place(rec, cols, start, stop, keys, inverses, level, state, pool, average)
    state.rate -= rate
    state.mass -= mass
    if outside:
        lower(excess - mass, radius, rec, state, pool, far, average)
    elif state.alive == 0:
        state.mass, state.rate = 0.0, 0.0
    amplified = state.level * state.rate > AMPLIFIED * radius
    if amplified or state.current >= state.buckets or state.wasted > state.alive + 64:
        rebuild(rec, state, pool)


@exact
def step_apart(
    rec: Array, cols: Array, values: Array, start: Any, stop: Any, scale: float, step: float,
    p: float, gain: float, delta: float, lower: Array, upper: Array, state: Any, adaptive: Any,
    average: Any,
) -> None:  # fmt: skip
    """z₊ = min(max(z - step g/V̂, lower), upper); Q is 1, K is z."""
    each_low, each_high = np.uintp(lower.size > 1), np.uintp(upper.size > 1)
    per_m = 1.0 / state.m if state.m > 0.0 else 0.0
    alpha, alphas, to_come = state.alpha, state.alphas, state.to_come
    for k in range(np.uintp(start), np.uintp(stop)):
        j = np.uintp(cols[k])
        g = scale * values[k]
        by = step * g
        if adaptive is not None:
            s = rec[j].squares + gain * (g * g)
            rec[j].squares = s
            by /= np.sqrt(s * p) + delta
        z = rec[j].k
        moved = z - by
        moved = max(moved, lower[j * each_low])
        moved = min(moved, upper[j * each_high])
        rec[j].k = moved
        change = (z - moved) * alpha * per_m
        rec[j].u += change
        if average is not None:
            rec[j].sum += (z - moved) * alphas + change * to_come


@inlined
def look_at_next(i: int, rows: Array, indptr: Array, cols: Array, rec: Array) -> None:
    """Ask for the coordinates of the row that follows the i-th."""
    if i + 1 < rows.size:
        row = rows[i + 1]
        for k in range(np.uintp(indptr[row]), np.uintp(indptr[row + 1])):
            ask(rec, np.int64(cols[k]))


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
    g: float,
    step: float,
    p: float,
    gain: float,
    delta: float,
    state: Any,
    adaptive: Any,
    metric: Any,
) -> None:
    """z₊ = z - step g/h for the intercept, which is free."""
    if adaptive is None:
        state.z0 -= step * g
        return
    state.squares0 += gain * (g * g)
    state.z0 -= (
        step * g / (np.sqrt(state.squares0 if metric is not None else state.squares0 * p) + delta)
    )


@exact
def train(
    rows: Array, size: int, y: Array, weights: Any, indptr: Array, indices: Array, data: Array,
    code: int, parameter: float, intercept: bool, radius: float, lower: Array, upper: Array,
    steps: Array, shares: Array, p: Array, gains: Array, deltas: Array, to_come: Array,
    rec: Array, state: Any, pool: Any, keys: Array, inverses: Array, where: Array, cols: Array,
    values: Array, slopes: Array, sums: Array, visits: Array, merge: bool, far: bool,
    adaptive: Any, metric: Any, average: Any,
) -> int:  # fmt: skip
    """Take the steps on ``rows`` in batches; return their number, less if one is not finite."""
    for i in range(steps.size):
        first, last = i * size, min((i + 1) * size, rows.size)
        for k in range(first, last):
            look_ahead(k, rows, indptr, indices, data, y, sums, visits)
            if far:
                look_at_next(k, rows, indptr, indices, rec)
        if average is not None:
            state.alphas += state.alpha
            state.betas += state.beta
            state.to_come = to_come[i]
            state.sum0 += state.w0
        total, moved = 0.0, False
        for k in range(first, last):
            row = rows[k]
            at = predict(rec, indices, data, indptr[row], indptr[row + 1], state)
            s = derivative(code, parameter, at + state.w0, y[row])
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
                    upper, state, adaptive, average,
                )  # fmt: skip
            else:
                step_together(
                    rec, cols, values, 0, count, 1.0, steps[i], p[i], gains[i], deltas[i], radius,
                    state, pool, keys, inverses, far, adaptive, metric, average,
                )  # fmt: skip
        elif moved:
            start, stop = indptr[rows[first]], indptr[rows[first] + 1]
            if pool is None:
                step_apart(
                    rec, indices, data, start, stop, total, steps[i], p[i], gains[i], deltas[i],
                    lower, upper, state, adaptive, average,
                )  # fmt: skip
            else:
                step_together(
                    rec, indices, data, start, stop, total, steps[i], p[i], gains[i], deltas[i],
                    radius, state, pool, keys, inverses, far, adaptive, metric, average,
                )  # fmt: skip
        c = shares[i]
        if intercept:
            move_intercept(total, steps[i], p[i], gains[i], deltas[i], state, adaptive, metric)
            state.w0 += c * (state.z0 - state.w0)
        state.m *= 1.0 - c
        state.alpha += c * (1.0 - state.alpha)
        state.beta += c * (state.level - state.beta)
    return steps.size
