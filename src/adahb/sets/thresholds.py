"""The one-dimensional searches behind the l1, simplex, l2 and group projections.

Each works on rows (the last axis is the vector), in float64, in any array namespace; and each ends
with Newton steps, so that the last one carries the right derivative through automatic
differentiation.
"""

from adahb.sets.arrays import (
    HUGE,
    LARGE,
    Array,
    Namespace,
    largest,
    norm,
    one_hot,
    parted,
    peak,
    pick,
    power_of_two,
    power_of_two_below,
    repeated,
    rounding,
    row_sums,
    unseen,
    wants_gradient,
    wide,
)

_STEPS_AFTER_SORTING = 3

_MOST_STEPS = 500

_TOP = 2.0**1022
"""The largest unit that anything is measured in."""

_HALVINGS, _STEPS_AFTER_HALVING = 11, 6
"""Enough for 200 binary digits between the ends of the bracket: it shrinks to 7 %, and from there
the error squares, for it is at most 3/2 times its square after each step."""


def waterfill(
    a: Array,
    size: Array,
    cost: Array | None,
    radius: float,
    xp: Namespace,
    *,
    signed: bool = False,
    weights: Array | None = None,
) -> Array:
    """Return max(a - t c, 0)/w with the level t at which max(a - t c, 0) sums to ``radius``.

    With a = w|x| and c = w^2/h this is the projection on the l1 ball, with a = x and c = 1/h the
    one on the simplex (``signed``: t may be negative; otherwise a >= 0 and sum a >= radius).
    The array ``a`` comes divided by ``size``, a power of two for each row.

    Two measures make the result exact at any scale. It is measured in units of the radius. And
    where the radius is below |a_j|, j being the entry that stays longest, the level is counted
    from t_0 = (a_j - radius)/c_j, at which entry j alone fills the radius: with q = c/c_j,

        u = (a - a_j q) + radius q,     t c = t_0 c + s q,     result = max(u - s q, 0),

    so that a radius far below the rounding of a is met nevertheless.
    """
    limit, unit = radius / size, power_of_two_below(radius)
    target, ratio = radius / unit, xp.clip(size / unit, None, HUGE)
    rank = a if cost is None else (a - xp.clip(limit, None, LARGE)) / cost
    last = peak(rank, xp)
    top = pick(a, last, xp)
    q = xp.ones_like(a) if cost is None else cost / pick(cost, last, xp)
    shift = limit < xp.abs(top)
    u = xp.where(shift, (a - top * q) * ratio + target * q, a * ratio)
    floor = top * ratio - target if signed else xp.zeros_like(top)
    level, active = _level(u, q, target, xp.where(shift, 0.0, floor), xp)
    filled = xp.where(active, xp.clip(u - level * q, 0.0, None), 0.0)
    total = xp.sum(filled, axis=-1, keepdims=True)
    share = xp.where(total > 0, filled / xp.where(total > 0, total, 1.0), xp.where(last, 1.0, 0.0))
    if weights is not None:  # before small shares of a small radius are lost
        share = xp.where(share > 0, share / weights, 0.0)
    return share * target * unit


def _level(u: Array, q: Array, target: float, floor: Array, xp: Namespace) -> tuple[Array, Array]:
    """Solve sum max(u - s q, 0) = target per row, s >= ``floor``; return s and where it is below.

    Newton's method is exact where the active set is, for the function is piecewise linear.  A few
    steps leave behind the rounding of the sums that found the set by sorting.  Where rows are
    parted it starts from the floor instead, left of the root, and rises, for the function is
    convex, until the set no longer shrinks (Michelot's method): each step at least quarters the
    product of excess and slope.  Newton's method falls no further than sorting may have been wrong,
    and then only rises: where slopes are many powers of ten apart, a step back would lead far away.
    """
    climbs = parted(xp)
    level, least = (floor, floor) if climbs else _sorted_level(u, q, target, floor, xp)
    active = u > level * q
    for _ in range(_MOST_STEPS if climbs else _STEPS_AFTER_SORTING):
        before = level
        masses = xp.where(active, u, 0.0), xp.where(active, q, 0.0)
        mass, slope = row_sums(masses, xp)
        level = (mass - target) / xp.where(slope > 0, slope, 1.0)
        level = least = xp.where(level > least, level, least)
        active = u > level * q
        if climbs and not bool((level > before).any()):
            break
    return level, active


def _sorted_level(
    u: Array, q: Array, target: float, floor: Array, xp: Namespace
) -> tuple[Array, Array]:
    """Return the level up to the rounding of long sums, and what it is at least.

    With entries sorted by u/q those above the root come first, and running sums tell how many they
    are.  The level is at least where the next of them is met.
    """
    ratio = u / q
    order = xp.argsort(ratio, axis=-1, descending=True)
    ratio, *terms = (xp.take_along_axis(part, order, axis=-1) for part in (ratio, u, q))
    mass, slope = (xp.cumsum(part, axis=-1) for part in terms)
    above = (mass - ratio * slope < target) | xp.isinf(ratio)
    count = xp.sum(xp.astype(above, xp.int64), axis=-1, keepdims=True)
    last = one_hot(xp.clip(count - 1, 0, None), u, xp)
    level = (pick(mass, last, xp) - target) / pick(slope, last, xp)
    below = one_hot(xp.clip(count, None, u.shape[-1] - 1), u, xp)
    error = 4 * u.shape[-1] * float(xp.finfo(u.dtype).eps) * pick(mass / slope, below, xp)
    least = xp.where(count < u.shape[-1], pick(ratio, below, xp) - xp.abs(error), floor)
    least = xp.where(least > floor, least, floor)
    return xp.where(level > least, level, least), least


def project_l1(
    x: Array,
    radius: float,
    xp: Namespace,
    *,
    weights: Array | None = None,
    h: Array | None = None,
    unit: Array | None = None,
) -> Array:
    """Project rows on {y: sum w_i |y_i| <= radius} in the metric h: shrink |x| by t w/h.

    The largest of the weights should be near one.  Where x comes divided by ``unit``, a power of
    two of the shape of ``size``, what is inside comes back so, and what is not does not.
    """
    slack = 1 + rounding(x, xp)
    x = wide(x, xp)
    size = power_of_two(largest(x, xp), xp)
    a = xp.abs(x) / size
    if unit is not None:
        kept = xp.clip(size, None, _TOP / unit)
        a, size = a * (size / kept), kept * unit
    cost = None
    if weights is not None:
        a, cost = a * weights, weights**2
    if h is not None:
        cost = (1.0 if cost is None else cost) / h
    inside = xp.sum(a, axis=-1, keepdims=True) <= radius / size * slack
    y = waterfill(a, size, cost, radius, xp, weights=weights)
    if weights is not None:
        y = xp.where(xp.isinf(y), xp.abs(x), y)  # rounded up from the largest float
    return xp.where(inside, x, xp.where(x < 0, -y, y))


def project_simplex(x: Array, total: float, xp: Namespace, *, h: Array | None = None) -> Array:
    """Project rows on {y >= 0: sum y_i = total} in the metric h: max(x - t/h, 0).

    The set is flat, so where derivatives are recorded even its own points pass through the formula.
    """
    slack = rounding(x, xp)
    x = wide(x, xp)
    size = power_of_two(largest(x, xp), xp)
    a = x / size
    scale = xp.clip(size, power_of_two_below(total), None)
    excess = xp.sum(x / scale, axis=-1, keepdims=True) - total / scale
    off = xp.abs(excess) > slack * total / scale
    outside = off | xp.any(x < 0, axis=-1, keepdims=True) | wants_gradient(x)
    y = waterfill(a, size, None if h is None else 1.0 / h, total, xp, signed=True)
    return xp.where(outside, y, x)


def secular(b: Array, p: Array, q: Array, start: Array, xp: Namespace) -> Array:
    """Solve sum (b_i / (p_i + q_i t))^2 = 1 per row for t >= ``start``, a point left of the root.

    One over the norm of b/(p + q t) is concave and increasing in t, hence Newton's method on it
    rises to the root from any point to its left. Rows already at or below 1 stay at their start.
    No entry alone may be above 1 at the root: from where that is so, no square overflows.
    """
    alone = xp.max((xp.abs(b) - p) / q, axis=-1, keepdims=True)
    start = xp.where(alone > start, alone, start)
    if unseen(b):
        t = _near_root(b, p, q, start, xp)
        (t,) = repeated(lambda s: (_rise(b, p, q, s[0], xp),), _STEPS_AFTER_HALVING, (t,))
        return t
    t = start
    for _ in range(_MOST_STEPS):
        risen = _rise(b, p, q, t, xp)
        if not bool((risen > t * (1 + 1e-15)).any()):
            return risen
        t = risen
    return t


def _rise(b: Array, p: Array, q: Array, t: Array, xp: Namespace) -> Array:
    """Make one step of Newton's method."""
    terms = p + q * t
    squares = (b / terms) ** 2
    total, slope = row_sums((squares, squares * q / terms), xp)
    open_ = (total > 1) & (slope > 0)
    step = total * (xp.sqrt(xp.where(open_, total, 1.0)) - 1) / xp.where(open_, slope, 1.0)
    return xp.where(open_, t + step, t)


def _near_root(b: Array, p: Array, q: Array, start: Array, xp: Namespace) -> Array:
    """Return a point left of the root and near it, in a number of steps that is always the same.

    The root lies between (||b/p|| - 1) min(p/q) and ||b/q||, and the logarithm is halved: Newton's
    method from far away is slow where the p_i/q_i spread over many powers of ten.
    """
    low = (norm(b / p, xp) - 1.0) * xp.min(p / q, axis=-1, keepdims=True)
    low, high = xp.where(low > start, low, start), norm(b / q, xp)

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = xp.sqrt(low) * xp.sqrt(high)
        left = xp.sum((b / (p + q * middle)) ** 2, axis=-1, keepdims=True) > 1
        return xp.where(left, middle, low), xp.where(left, high, middle)

    low, _ = repeated(halve, _HALVINGS, (low, high))
    return low
