"""A queue of the coordinates of z that are not zero, in the order in which a threshold meets them.

In a coordinate that no step touches, |z_j| h_j = K_j - Λ with a fixed K_j, where Λ is the sum of
the thresholds so far.  Λ never falls, so no heap is needed: coordinates wait in buckets of equal
width in K, which Λ passes one after the other; what lies beyond them waits in one far bucket.

Entries are lower bounds.  A K that grows leaves its entry where it is, to be moved when its bucket
is met; a K that falls below its bucket gets a second entry, and the first is dropped when met.
"""

from typing import Any

import numpy as np

from adahb.linear.loops.compiled import ask, exact, inlined

Array = np.ndarray[Any, Any]

# What is kept of a coordinate, side by side in memory: w_j = m U + Q (K α - β), z_j = Q (K - Λ).
U, Q, K, BUCKET, SQUARES, SUM = 0, 1, 2, 3, 4, 5
"""Q is sign(z_j)/h_j and 0 where z_j is 0; BUCKET is where its entry is; SQUARES is for the second
moment; SUM is what `SA`, `SB` and `TAIL` leave of the sum of the w_j."""

NOWHERE = 1e18
"""The bucket of a coordinate that has no entry, for z_j is 0."""

# The numbers that move with the steps.
LEVEL, MASS, RATE, NOISE, ALPHA, BETA, M, SA, SB, TAIL, NEXT, PER_WIDTH = range(12)
"""Λ, Σ|z_j|, Σ 1/h_j over z_j ≠ 0 with its error, α, β and m as above, the sums of α and β, minus
what is to come of the sum of m, the least K in the current bucket, one over the buckets' width."""

W0, Z0, SQUARES0, SUM0 = range(12, 16)
"""w, z, second moment and sum of w of the intercept."""

CURRENT, BUCKETS, FREE, TOP, ALIVE, WASTED = range(6)
"""The bucket that Λ is in, their number, the first free entry, the entries used, how many z ≠ 0,
what has been looked at in vain since the queue was made."""

EPS = float(np.finfo(np.float64).eps)

NOISY = 1e-12
"""The relative error of Σ 1/h_j at which it is computed anew."""

SAMPLE = 129
"""Coordinates looked at to choose the width."""


@inlined
def retire(
    j: Any, rec: Array, alpha: float, beta: float, per_m: float, sa: float, sb: float, tail: float,
    average: Any,
) -> None:  # fmt: skip
    """Settle a coordinate whose z becomes 0 in this step."""
    q, key = rec[j, Q], rec[j, K]
    by = q * (key * alpha - beta) * per_m
    rec[j, U] += by
    if average is not None:
        rec[j, SUM] += q * (key * sa - sb) - by * tail
    rec[j, Q] = 0.0
    rec[j, BUCKET] = NOWHERE


@exact
def rebuild(rec: Array, f: Array, n: Array, queue: Array, head: Array) -> None:
    """Make the queue anew, from Λ = 0, and compute the sums anew.

    The width makes a bucket near Λ hold about one coordinate.
    """
    count = 0
    for node in range(n[TOP]):
        j = np.uintp(queue[node, 0])
        if 0.0 <= rec[j, BUCKET] < NOWHERE:
            rec[j, BUCKET] = -1.0
            queue[count, 0] = queue[node, 0]
            count += 1
    f[BETA] -= f[ALPHA] * f[LEVEL]
    f[SB] -= f[SA] * f[LEVEL]
    mass, rate = 0.0, 0.0
    for node in range(count):
        j = np.uintp(queue[node, 0])
        rec[j, K] -= f[LEVEL]
        mass += rec[j, K] * abs(rec[j, Q])
        rate += abs(rec[j, Q])
    f[MASS], f[RATE], f[NOISE], f[LEVEL] = mass, rate, 0.0, 0.0

    sample = np.empty(min(count, SAMPLE))
    for i in range(sample.size):
        sample[i] = rec[np.uintp(queue[i * count // sample.size, 0]), K]
    sample.sort()
    quarter = sample[sample.size // 4] if sample.size else 1.0
    f[PER_WIDTH] = max(count, 4) / 4.0 / max(quarter, 1e-280)
    n[BUCKETS] = min(head.size - 1, 8 * count + 64)
    n[CURRENT], n[FREE], n[TOP], n[WASTED], f[NEXT] = 0, -1, count, 0, np.inf
    head[: n[BUCKETS] + 1] = -1
    for node in range(count):
        j = np.uintp(queue[node, 0])
        bucket = np.int64(min(rec[j, K] * f[PER_WIDTH], n[BUCKETS]))
        rec[j, BUCKET] = bucket
        queue[node, 1] = head[bucket]
        head[bucket] = node
        if bucket == 0:
            f[NEXT] = min(f[NEXT], rec[j, K])


@exact
def lower(
    excess: float, rate: float, radius: float, rec: Array, f: Array, n: Array, queue: Array,
    head: Array, far: bool, average: Any,
) -> None:  # fmt: skip
    """Raise Λ by the λ with Σ max(|z_j| - λ/h_j, 0) = radius, where Σ |z_j| = radius + excess.

    λ = excess/rate as long as nothing retires; what does takes its mass and its rate out, which
    raises λ.  What rounding leaves of the excess is the next step's.
    """
    level, first = f[LEVEL], n[CURRENT]
    while n[ALIVE] > 0:
        if f[NOISE] > NOISY * rate:
            rebuild(rec, f, n, queue, head)
            excess, rate = max(f[MASS] - radius, 0.0), f[RATE]
        level = f[LEVEL] + excess / rate
        cut = np.int64(min(level * f[PER_WIDTH], n[BUCKETS]))
        if cut == n[CURRENT] and level < f[NEXT]:
            break
        alive = n[ALIVE]
        less, slower = meet(cut, level, rec, f, n, queue, head, average)
        excess -= less
        rate -= slower
        f[NOISE] += EPS * slower
        if n[ALIVE] == alive:
            break
    if n[ALIVE] == 0:
        f[MASS], f[RATE], f[LEVEL] = 0.0, 0.0, level
        return
    level = f[LEVEL] + excess / rate
    f[MASS] = radius + (excess - (level - f[LEVEL]) * rate)
    f[RATE] = rate
    f[LEVEL] = level
    if far:
        look_beyond(n[CURRENT] - first + 8, rec, n, queue, head)


@exact
def look_beyond(span: int, rec: Array, n: Array, queue: Array, head: Array) -> None:
    """Ask for the coordinates in the buckets that follow, and for the entries in those beyond."""
    start, end = n[CURRENT] + 1, n[BUCKETS]
    for bucket in range(np.uintp(start), np.uintp(min(start + span, end))):
        if head[bucket] >= 0:
            ask(rec, np.int64(queue[np.uintp(head[bucket]), 0]) * rec.shape[1])
    for bucket in range(np.uintp(min(start + span, end)), np.uintp(min(start + 2 * span, end))):
        if head[bucket] >= 0:
            ask(queue, np.int64(head[bucket]) * 2)


@exact
def meet(
    cut: Any, level: float, rec: Array, f: Array, n: Array, queue: Array, head: Array, average: Any
) -> tuple[float, float]:
    """Retire what has K <= level in the buckets up to the cut; return its mass above Λ, its rate.

    The others go to the buckets where they belong.
    """
    base, alpha, beta, sa, sb, tail = f[LEVEL], f[ALPHA], f[BETA], f[SA], f[SB], f[TAIL]
    per_m = 1.0 / f[M] if f[M] > 0.0 else 0.0
    per_width, last = f[PER_WIDTH], np.float64(n[BUCKETS])
    free, retired, wasted = n[FREE], 0, (cut - n[CURRENT]) >> 3
    mass, rate, nearest = 0.0, 0.0, np.inf
    for bucket in range(np.uintp(n[CURRENT]), np.uintp(cut + 1)):
        node, kept = np.int64(head[bucket]), np.int64(-1)
        head[bucket] = -1
        while node >= 0:
            following = np.int64(queue[np.uintp(node), 1])
            j = np.uintp(queue[np.uintp(node), 0])
            key = rec[j, K]
            mine = rec[j, BUCKET] == bucket
            if mine and key > level:
                home = np.int64(min(key * per_width, last))
                if home == bucket:
                    queue[np.uintp(node), 1] = kept
                    kept = node
                    wasted += 1
                else:
                    rec[j, BUCKET] = home
                    queue[np.uintp(node), 1] = head[np.uintp(home)]
                    head[np.uintp(home)] = node
                if home == cut:
                    nearest = min(nearest, key)
            else:
                if mine:
                    inverse = abs(rec[j, Q])
                    mass += (key - base) * inverse
                    rate += inverse
                    retired += 1
                    retire(j, rec, alpha, beta, per_m, sa, sb, tail, average)
                queue[np.uintp(node), 1] = free
                free = node
            node = following
        head[bucket] = kept
    n[CURRENT], n[FREE], f[NEXT] = cut, free, nearest
    n[ALIVE] -= retired
    n[WASTED] += wasted
    return mass, rate
