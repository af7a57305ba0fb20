"""Projections in place, for vectors that were in the set a step ago; the sets are in `KINDS`."""

from typing import Any

import numpy as np

from adahb.linear.loops.compiled import exact, reordering

Array = np.ndarray[Any, Any]

FREE, BOX, L1, L2, SIMPLEX = range(5)

SLACK = 4 * float(np.finfo(np.float64).eps)
"""Relative to the radius: what is outside by no more stays where it is."""


@exact
def project(
    x: Array, inverses: Array, in_metric: bool, kind: int, radius: float, lower: Array,
    upper: Array, warm: float,
) -> float:  # fmt: skip
    """Project x, in the metric of these inverses if it matters.

    ``warm`` is the last step's threshold; this step's is returned.
    """
    if kind == BOX:
        each_low, each_high = np.uintp(lower.size > 1), np.uintp(upper.size > 1)
        for j in range(np.uintp(x.size)):
            x[j] = min(max(x[j], lower[j * each_low]), upper[j * each_high])
    elif kind == L2:
        onto_l2(x, inverses, in_metric, radius)
    elif kind == L1:
        if l1_norm(x) > radius * (1.0 + SLACK):
            return onto_l1(x, inverses, in_metric, radius, warm)
    elif kind == SIMPLEX:
        return onto_simplex(x, inverses, in_metric, radius)
    return warm


@reordering
def l1_norm(x: Array) -> float:
    """Return Σ |x_j|."""
    total = 0.0
    for j in range(x.size):
        total += abs(x[j])
    return total


@reordering
def above(x: Array, level: float) -> tuple[float, float]:
    """Return the sum of |x_j| - level where it is positive, and in how many places it is."""
    mass, count = 0.0, 0.0
    for j in range(x.size):
        rest = abs(x[j]) - level
        mass += max(rest, 0.0)
        count += np.float64(rest > 0.0)
    return mass, count


@reordering
def above_in_metric(x: Array, inverses: Array, level: float) -> tuple[float, float]:
    """Return the sum of |x_j| - level/h_j where it is positive, and the sum of 1/h_j there."""
    mass, rate = 0.0, 0.0
    for j in range(x.size):
        rest = abs(x[j]) - level * inverses[j]
        mass += max(rest, 0.0)
        rate += inverses[j] * np.float64(rest > 0.0)
    return mass, rate


@exact
def onto_l1(x: Array, inverses: Array, in_metric: bool, radius: float, level: float) -> float:
    """x_j = sign(x_j) max(|x_j| - λ/h_j, 0) with Σ |x_j| = radius; return λ.

    Newton's method for λ, whose steps come from below after the first, wherever that begins.
    """
    if radius == 0.0:
        x[:] = 0.0
        return 0.0
    before, rate_before = 0.0, -1.0
    for _ in range(2 * x.size + 64):  # as many as there are sets of entries above, and no cycle
        mass, rate = above_in_metric(x, inverses, level) if in_metric else above(x, level)
        if rate == 0.0 and before > 0.0:
            level = before
            break
        if rate == 0.0:  # begun too high
            level = 0.0
            continue
        following = max(level + (mass - radius) / rate, before)
        if rate == rate_before or following == level:
            level = following
            break
        level = before = following
        rate_before = rate
    for j in range(x.size):
        x[j] = np.copysign(
            max(abs(x[j]) - (level * inverses[j] if in_metric else level), 0.0), x[j]
        )
    return level


@exact
def onto_simplex(x: Array, inverses: Array, in_metric: bool, total: float) -> float:
    """x_j = max(x_j - λ/h_j, 0) with Σ x_j = total; return λ.

    Newton's method from below; where rounding lets λ fall it is found.
    """
    level, first, rate_before = 0.0, True, -1.0
    for _ in range(2 * x.size + 64):
        mass, rate, least = 0.0, 0.0, 0.0
        for j in range(x.size):
            inverse = inverses[j] if in_metric else 1.0
            rest = x[j] - level * inverse
            if rest > 0.0 or first:
                mass += rest
                rate += inverse
                least = min(least, rest)
        if first and least >= 0.0 and abs(mass - total) <= SLACK * total:
            return 0.0
        following = level + (mass - total) / rate
        if rate == rate_before or not (first or following > level):
            break
        level, rate_before, first = following, rate, False
    for j in range(x.size):
        x[j] = max(x[j] - (level * inverses[j] if in_metric else level), 0.0)
    return level


@reordering
def pulled(x: Array, inverses: Array, mu: float) -> tuple[float, float]:
    """Return ‖y‖² and minus half its derivative in μ, for y = h x/(h + μ)."""
    square, slope = 0.0, 0.0
    for j in range(x.size):
        share = 1.0 / (1.0 + mu * inverses[j])
        y = x[j] * share
        square += y * y
        slope += y * y * (inverses[j] * share)
    return square, slope


@exact
def onto_l2(x: Array, inverses: Array, in_metric: bool, radius: float) -> None:
    """X = h x/(h + μ) with ‖x‖ = radius; in no metric x is scaled.

    Newton's method for 1/‖y‖ = 1/radius, a concave function of μ: its steps come from below.
    """
    square, slope = pulled(x, inverses, 0.0)
    if np.sqrt(square) <= radius * (1.0 + SLACK):
        return
    if radius == 0.0:
        x[:] = 0.0
        return
    mu = 0.0
    for _ in range(100 if in_metric else 0):
        norm = np.sqrt(square)
        following = mu + (norm - radius) / radius * square / slope
        if following <= mu * (1.0 + SLACK):
            break
        mu = following
        square, slope = pulled(x, inverses, mu)
    if in_metric:
        for j in range(x.size):
            x[j] /= 1.0 + mu * inverses[j]
    scale = radius / np.sqrt(square)
    for j in range(x.size):
        x[j] *= scale
