"""A queue of the coordinates of z that are not zero, in the order in which a threshold meets them.

In a coordinate that no step touches, |z_j| h_j = K_j - Λ with a fixed K_j, where Λ is the sum of
the thresholds so far.  Λ never falls, so no heap is needed: coordinates wait in buckets of equal
width in K, which Λ passes one after the other; what lies beyond them waits in one far bucket.

Entries are lower bounds.  A K that grows leaves its entry where it is, to be moved when its bucket
is met; a K that falls below its bucket gets a second entry, and the first is dropped when met.

A bucket is a list of chunks of a cache line each, for entries met together should lie together.
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

CURRENT, BUCKETS, FREE, TOP, ALIVE, ENTRIES, WASTED = range(7)
"""The bucket that Λ is in, their number, the first free chunk, the chunks used, how many z ≠ 0, how
many entries, and how much has been looked at in vain since the queue was made."""

CHUNK = 15
"""Entries of a chunk, which follow the number of the next chunk."""

CROWD = 8
"""Coordinates that a bucket near Λ is made for."""

SAMPLE = 129
"""Coordinates looked at to choose the width."""

EPS = float(np.finfo(np.float64).eps)

NOISY = 1e-12
"""The relative error of Σ 1/h_j at which it is computed anew."""


def queue(d: int) -> tuple[Array, Array]:
    """Return the room for d coordinates' entries, and for the buckets' first chunks."""
    buckets = min(d + 64, 1 << 18)
    chunks = buckets + (2 * d + 64) // CHUNK + 8
    return np.zeros((chunks, 1 + CHUNK), dtype=np.int32), np.zeros((buckets + 1, 2), dtype=np.int32)


@inlined
def enter(j: Any, bucket: Any, free: Any, top: Any, pool: Array, head: Array) -> Any:
    """Put an entry into a bucket; return the first free chunk and the number of used ones."""
    chunk, count = np.int64(head[bucket, 0]), np.int64(head[bucket, 1])
    if count == CHUNK or chunk < 0:
        following, count = chunk, np.int64(0)
        if free >= 0:
            chunk = free
            free = np.int64(pool[np.uintp(free), 0])
        else:
            chunk = top
            top += 1
        pool[np.uintp(chunk), 0] = following
        head[bucket, 0] = chunk
    pool[np.uintp(chunk), np.uintp(count + 1)] = j
    head[bucket, 1] = count + 1
    return free, top


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
def rebuild(rec: Array, f: Array, n: Array, pool: Array, head: Array) -> None:
    """Make the queue anew."""
    members = np.empty(n[ALIVE], dtype=np.int64)
    count = 0
    for bucket in range(n[CURRENT], n[BUCKETS] + 1):
        chunk, size = np.int64(head[bucket, 0]), np.int64(head[bucket, 1])
        while chunk >= 0:
            for i in range(size):
                j = np.int64(pool[chunk, i + 1])
                if rec[j, BUCKET] == bucket:
                    rec[j, BUCKET] = -1.0
                    members[count] = j
                    count += 1
            chunk, size = np.int64(pool[chunk, 0]), np.int64(CHUNK)
    fill(members[:count], rec, f, n, pool, head)


@exact
def fill(members: Array, rec: Array, f: Array, n: Array, pool: Array, head: Array) -> None:
    """Make a queue of the coordinates with z ≠ 0, from Λ = 0, and compute the sums anew.

    The width is chosen by the nearest quarter of the coordinates.
    """
    f[BETA] -= f[ALPHA] * f[LEVEL]
    f[SB] -= f[SA] * f[LEVEL]
    mass, rate = 0.0, 0.0
    for j in members:
        rec[j, K] -= f[LEVEL]
        mass += rec[j, K] * abs(rec[j, Q])
        rate += abs(rec[j, Q])
    f[MASS], f[RATE], f[NOISE], f[LEVEL] = mass, rate, 0.0, 0.0

    sample = np.empty(min(members.size, SAMPLE))
    for i in range(sample.size):
        sample[i] = rec[members[i * members.size // sample.size], K]
    sample.sort()
    quarter = max(sample[sample.size // 4], 1e-280) if sample.size else 1.0
    f[PER_WIDTH] = max(members.size / 4.0 / CROWD, 1.0) / quarter
    n[BUCKETS] = min(head.shape[0] - 1, members.size + 63)
    head[: n[BUCKETS] + 1, 0] = -1
    head[: n[BUCKETS] + 1, 1] = 0
    free, top, nearest = np.int64(-1), np.int64(0), np.inf
    for j in members:
        bucket = np.int64(min(rec[j, K] * f[PER_WIDTH], n[BUCKETS]))
        free, top = enter(j, bucket, free, top, pool, head)
        rec[j, BUCKET] = bucket
        if bucket == 0:
            nearest = min(nearest, rec[j, K])
    n[CURRENT], n[FREE], n[TOP], n[WASTED], f[NEXT] = 0, free, top, 0, nearest
    n[ALIVE] = n[ENTRIES] = members.size


@exact
def lower(
    excess: float, rate: float, radius: float, rec: Array, f: Array, n: Array, pool: Array,
    head: Array, far: bool, average: Any,
) -> None:  # fmt: skip
    """Raise Λ by the λ with Σ max(|z_j| - λ/h_j, 0) = radius, where Σ |z_j| = radius + excess.

    λ = excess/rate as long as nothing retires; what does takes its mass and its rate out, which
    raises λ.  What rounding leaves of the excess is the next step's.
    """
    level, before = f[LEVEL], n[ALIVE]
    while n[ALIVE] > 0:
        if f[NOISE] > NOISY * rate:
            rebuild(rec, f, n, pool, head)
            excess, rate = max(f[MASS] - radius, 0.0), f[RATE]
        level = f[LEVEL] + excess / rate
        cut = np.int64(min(level * f[PER_WIDTH], n[BUCKETS]))
        if cut == n[CURRENT] and level < f[NEXT]:
            break
        alive = n[ALIVE]
        less, slower = meet(cut, level, rec, f, n, pool, head, average)
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
        look_beyond(before - n[ALIVE] + CROWD, rec, n, pool, head)


@exact
def meet(
    cut: Any, level: float, rec: Array, f: Array, n: Array, pool: Array, head: Array, average: Any
) -> tuple[float, float]:
    """Retire what has K <= level in the buckets up to the cut; return its mass above Λ, its rate.

    The others go to the buckets where they belong.
    """
    base, alpha, beta, sa, sb, tail = f[LEVEL], f[ALPHA], f[BETA], f[SA], f[SB], f[TAIL]
    per_m = 1.0 / f[M] if f[M] > 0.0 else 0.0
    per_width, last = f[PER_WIDTH], np.float64(n[BUCKETS])
    free, top, retired, gone, kept = n[FREE], n[TOP], 0, 0, 0
    mass, rate, nearest = 0.0, 0.0, np.inf
    for bucket in range(np.uintp(n[CURRENT]), np.uintp(cut + 1)):
        chunk, count = np.int64(head[bucket, 0]), np.int64(head[bucket, 1])
        head[bucket, 0] = -1
        head[bucket, 1] = 0
        while chunk >= 0:
            for i in range(np.uintp(1), np.uintp(count + 1)):
                j = np.uintp(pool[np.uintp(chunk), i])
                key = rec[j, K]
                if rec[j, BUCKET] != bucket:
                    gone += 1
                elif key <= level:
                    inverse = abs(rec[j, Q])
                    mass += (key - base) * inverse
                    rate += inverse
                    retired += 1
                    retire(j, rec, alpha, beta, per_m, sa, sb, tail, average)
                else:
                    home = np.int64(min(key * per_width, last))
                    free, top = enter(j, np.uintp(home), free, top, pool, head)
                    rec[j, BUCKET] = home
                    kept += home == bucket
                    if home == cut:
                        nearest = min(nearest, key)
            following = np.int64(pool[np.uintp(chunk), 0])
            pool[np.uintp(chunk), 0] = free
            free = chunk
            chunk, count = following, np.int64(CHUNK)
    n[WASTED] += kept + ((cut - n[CURRENT]) >> 3)
    n[CURRENT], n[FREE], n[TOP], f[NEXT] = cut, free, top, nearest
    n[ALIVE] -= retired
    n[ENTRIES] -= retired + gone
    return mass, rate


@exact
def look_beyond(count: int, rec: Array, n: Array, pool: Array, head: Array) -> None:
    """Ask for the next coordinates that Λ will meet, and for the chunks of as many beyond."""
    bucket = n[CURRENT]
    while count > 0 and bucket < n[BUCKETS]:
        bucket += 1
        chunk = head[bucket, 0]
        if chunk >= 0:
            for i in range(np.uintp(1), np.uintp(head[bucket, 1] + 1)):
                ask(rec, np.int64(pool[np.uintp(chunk), i]) * rec.shape[1])
            count -= head[bucket, 1]
    for beyond in range(bucket + 1, min(2 * bucket - n[CURRENT], n[BUCKETS])):
        ask(pool, np.int64(max(head[beyond, 0], 0)) * pool.shape[1])
