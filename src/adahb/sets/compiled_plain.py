"""The plain projections on the l1 ball and the simplex, row by row.

Memory is read about once. A vectorised scan notes the top of each block of entries; Newton's
method for the level then visits only blocks whose top exceeds a lower bound of the level, and so
does the writing. With a small radius hardly a block is read twice; with a large one Newton's
method needs a handful of streaming passes.
"""

from typing import Any

import numpy as np

from adahb.sets.compiled_common import BLOCK, STRIDE, Vector, exact, reordering, shielded, unit_of


def project_plain(rows: Vector, radius: float, slack: float, signed: bool, out: Vector) -> bool:
    """Project each row into ``out``, which holds zeros; return False where one is not finite."""
    bits = rows.view(f"i{rows.itemsize}")
    integer = bits.dtype.type
    magnitude = integer(np.iinfo(bits.dtype).max)
    infinite = np.array(np.inf, dtype=rows.dtype).view(bits.dtype)[()]
    tops = np.empty(-(-rows.shape[1] // BLOCK), dtype=bits.dtype)
    return bool(
        _plain_rows(
            rows, bits, tops, tops.view(rows.dtype), magnitude, integer(8 * bits.itemsize - 1),
            infinite, radius, slack, signed, out,
        )
    )  # fmt: skip


@exact
def _plain_rows(
    x: Vector, bits: Vector, tops: Vector, heights: Vector, magnitude: Any, shift: Any,
    infinite: Any, radius: float, slack: float, signed: bool, out: Vector,
) -> bool:  # fmt: skip
    """Project each row; return False where one is not finite.

    ``bits`` and ``heights`` are the integer view of x and the float view of ``tops``.
    """
    unit = unit_of(radius)
    mask = ~(magnitude ^ magnitude) if signed else magnitude
    for k in range(x.shape[0]):
        low, high = _scan(bits[k], tops, mask, magnitude, shift)
        if high >= infinite or low <= -1 - infinite:
            return False
        top = np.float64(heights[0])
        for b in range(heights.size):
            top = max(top, np.float64(heights[b]))
        base, peak = (radius, top) if radius < abs(top) else (0.0, 0.0)
        if top <= radius * (1 + slack) and low >= -1:
            excess = _total(x[k], 1 / unit) - radius / unit
            if excess <= slack * radius / unit and not (signed and excess < -slack * radius / unit):
                out[k] = x[k]
                continue
        start = 0.0
        if base == 0.0 and signed:
            start = top / unit - radius / unit
        level, gain = _level(x[k], heights, base, peak, 1 / unit, radius / unit, start, signed)
        _write(x[k], heights, base, peak, 1 / unit, level, gain * unit, radius, signed, out[k])
    return True


@exact
def _scan(bits: Vector, tops: Vector, mask: Any, magnitude: Any, shift: Any) -> tuple[Any, Any]:
    """Note the top of each block, and return the lowest and highest entry, as ordered integers.

    Read as an integer, a float is in order with others of its sign; flipping the lower bits of
    the negative ones puts all in order. (Integer maxima become vector code; float ones do not.)
    """
    low, high = magnitude, -1 - magnitude
    for b in range(tops.size):
        block = bits[b * BLOCK : (b + 1) * BLOCK]
        bottom, top = magnitude, -1 - magnitude
        for i in range(block.size):
            value = block[i] & mask
            value = value ^ ((value >> shift) & magnitude)
            top = max(top, value)
            bottom = min(bottom, value)
        low, high = min(low, bottom), max(high, top)
        tops[b] = top ^ ((top >> shift) & magnitude)
    return low, high


@reordering
def _total(x: Vector, scale: float) -> float:
    """Return the sum of scale |x|."""
    total = 0.0
    for i in range(x.size):
        total += abs(np.float64(x[i])) * scale
    return total


@shielded
def _rest(a: float, base: float, peak: float, scale: float, level: float) -> float:
    """Return u - level with u = scale (base - (peak - a)).

    A function of its own, so that callers free to reorder their sums do not reorder this one.
    """
    return scale * (base - (peak - a)) - level


@reordering
def _above(
    x: Vector, base: float, peak: float, scale: float, level: float, signed: bool
) -> tuple[float, int]:
    """Return the sum of u - level over the entries with u above it, and their number."""
    mass, count = 0.0, 0
    if signed:
        for i in range(x.size):
            rest = _rest(np.float64(x[i]), base, peak, scale, level)
            mass += max(0.0, rest)
            count += int(rest > 0)
        return mass, count
    for i in range(x.size):
        rest = _rest(abs(np.float64(x[i])), base, peak, scale, level)
        mass += max(0.0, rest)
        count += int(rest > 0)
    return mass, count


@exact
def _above_blocks(
    x: Vector, heights: Vector, base: float, peak: float, scale: float, level: float, signed: bool
) -> tuple[float, int]:
    """Do the same, passing over blocks whose top is not above the level."""
    mass, count = 0.0, 0
    for b in range(heights.size):
        if _rest(np.float64(heights[b]), base, peak, scale, level) > 0:
            block = x[b * BLOCK : (b + 1) * BLOCK]
            more, members = _above(block, base, peak, scale, level, signed)
            mass += more
            count += members
    return mass, count


@exact
def _subset_level(
    x: Vector, base: float, peak: float, scale: float, target: float, level: float, signed: bool
) -> float:
    """Return the level at which the entries of a small array sum to ``target``, or a bit below."""
    previous = -1
    while True:
        mass, count = _above(x, base, peak, scale, level, signed)
        if mass <= target or count == previous:
            return level
        level += (mass - target) / count
        previous = count


@exact
def _level(
    x: Vector, heights: Vector, base: float, peak: float, scale: float, target: float,
    level: float, signed: bool,
) -> tuple[float, float]:  # fmt: skip
    """Return the level at which the entries above it sum to ``target``, and the last correction.

    Newton's method from below. The level of the tops of the blocks alone is a lower bound, for
    they are fewer; and so is a Newton step from anywhere, as from the level of a regular sample.
    """
    level = _subset_level(heights, base, peak, scale, target, level, signed)
    if x.size >= STRIDE * STRIDE:
        share = target / STRIDE
        guess = _subset_level(x[::STRIDE].copy(), base, peak, scale, share, level, signed)
        mass, count = _above_blocks(x, heights, base, peak, scale, guess, signed)
        if count > 0:
            level = max(level, guess + (mass - target) / count)
    previous = -1
    while True:
        mass, count = _above_blocks(x, heights, base, peak, scale, level, signed)
        if mass <= target or count == previous:
            return level, (target / mass if mass > 0 else 0.0)
        level += (mass - target) / count
        previous = count


@reordering
def _write(
    x: Vector, heights: Vector, base: float, peak: float, scale: float, level: float, gain: float,
    most: float, signed: bool, out: Vector,
) -> None:  # fmt: skip
    """Write what is above the level into ``out``, which holds zeros.

    No entry exceeds ``most``, the radius; where that is the largest float, rounding could.
    """
    for b in range(heights.size):
        if _rest(np.float64(heights[b]), base, peak, scale, level) <= 0:
            continue
        block, target = x[b * BLOCK : (b + 1) * BLOCK], out[b * BLOCK : (b + 1) * BLOCK]
        if signed:
            for i in range(block.size):
                rest = _rest(np.float64(block[i]), base, peak, scale, level)
                target[i] = min(max(0.0, rest) * gain, most)
        else:
            for i in range(block.size):
                rest = _rest(abs(np.float64(block[i])), base, peak, scale, level)
                target[i] = np.copysign(min(max(0.0, rest) * gain, most), np.float64(block[i]))
