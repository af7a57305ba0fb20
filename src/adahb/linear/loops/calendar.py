"""A queue of the coordinates of z that are not zero, in the order in which a threshold meets them.

In a coordinate that no step touches, |z_j| h_j = K_j - Λ with a fixed K_j, where Λ is the sum of
the thresholds so far.  Λ never falls, so no heap is needed: coordinates wait in buckets of equal
width in K, which Λ passes one after the other; what lies beyond them waits in one far bucket.

Entries are lower bounds.  A K that grows leaves its entry where it is, to be moved when its bucket
is met; a K that falls below its bucket gets a second entry, and the first is dropped when met.

A bucket is a row of the pool, a cache line, for entries met together should lie together.  A row
that is full is moved behind the buckets, and the bucket begins anew.
"""

from typing import Any

import numpy as np

from adahb.linear.loops.compiled import allocating, ask, exact, inlined

Array = np.ndarray[Any, Any]

_FIELDS = [("u", "f8"), ("q", "f8"), ("k", "f8"), ("bucket", "i8")]

NARROW = np.dtype(_FIELDS)
"""What is kept of a coordinate, side by side in memory: w_j = m U + Q (K α - β), z_j = Q (K - Λ);
Q is sign(z_j)/h_j and 0 where z_j is 0; ``bucket`` is where its entry is."""

WIDE = np.dtype([*_FIELDS, ("squares", "f8"), ("sum", "f8"), ("spare", "f8"), ("more", "f8")])
"""The same with ``squares`` for the second moment, and ``sum``, which is the sum of the w_j less
what the sums of α and β say of it and plus U times the sum of the m to come: a line of the cache
with what is to spare."""

STATE = np.dtype(
    [
        ("level", "f8"),  # Λ
        ("mass", "f8"),  # Σ |z_j|
        ("rate", "f8"),  # Σ 1/h_j over z_j ≠ 0
        ("noise", "f8"),  # the error of that
        ("alpha", "f8"),
        ("beta", "f8"),
        ("m", "f8"),
        ("alphas", "f8"),  # the sums of α and of β since the sum of the w_j began
        ("betas", "f8"),
        ("to_come", "f8"),  # what is to come of the sum of m
        ("nearest", "f8"),  # the least K in the current bucket
        ("per_width", "f8"),  # one over the buckets' width
        ("w0", "f8"),  # w, z, second moment and sum of w of the intercept
        ("z0", "f8"),
        ("squares0", "f8"),
        ("sum0", "f8"),
        ("current", "i8"),  # the bucket that Λ is in
        ("buckets", "i8"),  # their number
        ("free", "i8"),  # a free row behind them, which has the number of the next; 0 is none
        ("top", "i8"),  # the first row never used
        ("alive", "i8"),  # how many z ≠ 0
        ("entries", "i8"),
        ("wasted", "i8"),  # how much has been looked at in vain since the queue was made
    ]
)
"""The numbers that move with the steps, and the queue's."""

NOWHERE = 1 << 60
"""The bucket of a coordinate that has no entry, for z_j is 0."""

COUNT, MORE, FIRST, ROOM = 0, 1, 2, 14
"""A row: how many entries it has, the next of the full rows of its bucket (0 is none), entries."""

CROWD = 8
"""Coordinates that a bucket near Λ is made for."""

SAMPLE = 129
"""Coordinates looked at to choose the width."""

EPS = float(np.finfo(np.float64).eps)

NOISY = 1e-12
"""The relative error of Σ 1/h_j at which it is computed anew."""


def records(d: int, *, wide: bool) -> Array:
    """Return what is kept of d coordinates, zeros, beginning where a line of the cache does."""
    kind = WIDE if wide else NARROW
    space = np.zeros(d * kind.itemsize + 64, dtype=np.uint8)
    skip = -space.ctypes.data % 64
    return space[skip : skip + d * kind.itemsize].view(kind)


def queue(d: int) -> Array:
    """Return the room for d coordinates' entries."""
    return np.zeros((most(d) + (2 * d + 64) // ROOM + 8, FIRST + ROOM), dtype=np.int32)


def most(d: int) -> int:
    """Return the largest number of buckets."""
    return min(2 * d + 256, 1 << 18)


@inlined
def enter(j: Any, bucket: Any, counts: Any, free: Any, top: Any, pool: Array) -> Any:
    """Put an entry into a bucket, if it counts 1; return the first free row and the unused one."""
    count = np.int64(pool[bucket, COUNT])
    if count == ROOM:
        away = top
        if free > 0:
            away = free
            free = np.int64(pool[np.uintp(free), MORE])
        else:
            top += 1
        for i in range(np.uintp(1), np.uintp(FIRST + ROOM)):
            pool[np.uintp(away), i] = pool[bucket, i]
        pool[bucket, MORE] = away
        count = np.int64(0)
    pool[bucket, np.uintp(FIRST + count)] = j
    pool[bucket, COUNT] = count + counts
    return free, top


@inlined
def retire(
    rec: Array, j: Any, alpha: float, beta: float, per_m: float, alphas: float, betas: float,
    to_come: float, average: Any,
) -> None:  # fmt: skip
    """Settle a coordinate whose z becomes 0 in this step."""
    q, key = rec[j].q, rec[j].k
    by = q * (key * alpha - beta) * per_m
    rec[j].u += by
    if average is not None:
        rec[j].sum += q * (key * alphas - betas) + by * to_come
    rec[j].q = 0.0
    rec[j].bucket = NOWHERE


@allocating
def rebuild(rec: Array, state: Any, pool: Array) -> None:
    """Make the queue anew."""
    members = np.empty(state.alive, dtype=np.int64)
    found = 0
    for bucket in range(state.current, state.buckets + 1):
        row, count = np.int64(bucket), np.int64(pool[bucket, COUNT])
        while True:
            for i in range(count):
                j = np.int64(pool[row, FIRST + i])
                if rec[j].bucket == bucket:
                    rec[j].bucket = -1
                    members[found] = j
                    found += 1
            row, count = np.int64(pool[row, MORE]), np.int64(ROOM)
            if row == 0:
                break
    fill(members[:found], rec, state, pool)


@allocating
def fill(members: Array, rec: Array, state: Any, pool: Array) -> None:
    """Make a queue of the coordinates with z ≠ 0, from Λ = 0, and compute the sums anew.

    The width is chosen by the nearest quarter of the coordinates.
    """
    level = state.level
    state.beta -= state.alpha * level
    state.betas -= state.alphas * level
    mass, rate = 0.0, 0.0
    for j in members:
        rec[j].k -= level
        mass += rec[j].k * abs(rec[j].q)
        rate += abs(rec[j].q)
    state.mass, state.rate, state.noise, state.level = mass, rate, 0.0, 0.0

    sample = np.empty(min(members.size, SAMPLE))
    for i in range(sample.size):
        sample[i] = rec[members[i * members.size // sample.size]].k
    sample.sort()
    quarter = max(sample[sample.size // 4], 1e-280) if sample.size else 1.0
    state.per_width = max(members.size / 4.0 / CROWD, 1.0) / quarter
    behind = pool.shape[0] - (2 * rec.size + 64) // ROOM - 8
    last = min(behind - 1, 2 * members.size + 254)
    for bucket in range(last + 1):
        pool[bucket, COUNT] = pool[bucket, MORE] = 0
    free, top, nearest = np.int64(0), np.int64(behind), np.inf
    for j in members:
        home = np.int64(min(np.float64(last), rec[j].k * state.per_width))
        free, top = enter(j, np.uintp(home), 1, free, top, pool)
        rec[j].bucket = home
        if home == 0:
            nearest = min(nearest, rec[j].k)
    state.current, state.buckets, state.free, state.top = 0, last, free, top
    state.wasted, state.nearest = 0, nearest
    state.alive = state.entries = members.size


@exact
def lower(
    excess: float, radius: float, rec: Array, state: Any, pool: Array, far: bool, average: Any
) -> None:
    """Raise Λ by the λ with Σ max(|z_j| - λ/h_j, 0) = radius, where Σ |z_j| = radius + excess.

    λ = excess/rate as long as nothing retires; what does takes its mass and its rate out, which
    raises λ.  What rounding leaves of the excess is the next step's.
    """
    rate, level, before = state.rate, state.level, state.alive
    while state.alive > 0:
        if state.noise > NOISY * rate:
            rebuild(rec, state, pool)
            excess, rate = max(state.mass - radius, 0.0), state.rate
        level = state.level + excess / rate
        cut = np.int64(min(np.float64(state.buckets), level * state.per_width))
        if cut == state.current and level < state.nearest:
            break
        alive = state.alive
        less, slower = meet(cut, level, rec, state, pool, average)
        excess -= less
        rate -= slower
        state.noise += EPS * slower
        if state.alive == alive:
            break
    if state.alive == 0:
        state.mass, state.rate, state.level = 0.0, 0.0, level
        return
    level = state.level + excess / rate
    state.mass = radius + (excess - (level - state.level) * rate)
    state.rate = rate
    state.level = level
    if far:
        look_beyond(before - state.alive + CROWD, rec, state, pool)


@exact
def meet(
    cut: Any, level: float, rec: Array, state: Any, pool: Array, average: Any
) -> tuple[float, float]:
    """Retire what has K <= level in the buckets up to the cut; return its mass above Λ, its rate.

    The others go to the buckets where they belong.
    """
    base, alpha, beta, to_come = state.level, state.alpha, state.beta, state.to_come
    alphas, betas = state.alphas, state.betas
    per_m = 1.0 / state.m if state.m > 0.0 else 0.0
    per_width, last = state.per_width, np.float64(state.buckets)
    free, top, retired, gone, kept = state.free, state.top, 0, 0, 0
    mass, rate, nearest = 0.0, 0.0, np.inf
    for bucket in range(np.uintp(state.current), np.uintp(cut + 1)):
        row: Any = bucket
        count, more = pool[bucket, COUNT], np.int64(pool[bucket, MORE])
        pool[bucket, COUNT] = pool[bucket, MORE] = 0
        while True:
            for i in range(np.uintp(FIRST), np.uintp(FIRST + count)):
                j = np.uintp(pool[row, i])
                key = rec[j].k
                if rec[j].bucket != np.int64(bucket):
                    gone += 1
                elif key <= level:
                    inverse = abs(rec[j].q)
                    mass += (key - base) * inverse
                    rate += inverse
                    retired += 1
                    retire(rec, j, alpha, beta, per_m, alphas, betas, to_come, average)
                else:
                    home = np.int64(min(last, key * per_width))
                    free, top = enter(j, np.uintp(home), 1, free, top, pool)
                    rec[j].bucket = home
                    kept += home == np.int64(bucket)
                    if home == cut:
                        nearest = min(nearest, key)
            if row != bucket:
                pool[row, MORE] = free
                free = np.int64(row)
            if more == 0:
                break
            row, count = np.uintp(more), np.int32(ROOM)
            more = np.int64(pool[row, MORE])
    state.wasted += kept + ((cut - state.current) >> 3)
    state.current, state.free, state.top, state.nearest = cut, free, top, nearest
    state.alive -= retired
    state.entries -= retired + gone
    return mass, rate


@exact
def look_beyond(count: int, rec: Array, state: Any, pool: Array) -> None:
    """Ask for the next coordinates that Λ will meet."""
    bucket = state.current
    while count > 0 and bucket < state.buckets:
        bucket += 1
        row = np.uintp(bucket)
        size = pool[row, COUNT]
        for i in range(np.uintp(FIRST), np.uintp(FIRST + size)):
            ask(rec, np.int64(pool[row, i]))
        count -= size
