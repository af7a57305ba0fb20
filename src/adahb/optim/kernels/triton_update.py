"""The update of ``adahb.optim.update`` as one Triton kernel over a table of pointers.

Program i updates one block of one tensor.  ``blocks[i]`` says which, as tensor * 2^32 + block;
``fixed`` has a row a tensor, the addresses of w, u, v, a, the low digits, the scales of u and v,
and the size; ``table`` has after `NUMBERS` words the gradients' pointers.  ``numbers`` holds
float64 coefficients in `NUMBERS` words of int64: as data, so that they are neither rounded to
float32 on their way nor part of what is compiled.  How numbers are stored in few bits is that of
`adahb.optim.narrow`, operation by operation.

Importing this module imports Triton, if there is one; `adahb.optim.kernels.triton` does so when a
step first needs it.
"""

from __future__ import annotations

from typing import Any

from adahb.optim import narrow

try:
    import triton
    from triton import language as tl
except ImportError:  # documentation tools and test collectors import every module everywhere
    triton = tl = None

ROW = 8
"""Words of a row of ``fixed``."""
NUMBERS = 12
"""Coefficients: alpha, 1 - beta1, eta, c, 1 - beta2, delta, beta1_next, share, λ, two bounds, step.

The differences to 1 are what float32 would lose: beta1 and beta2 tend to 1."""
PART = narrow.BLOCK
"""Entries of a narrow state that share a scale."""
NEAREST, COMPENSATED, STOCHASTIC = 0, 1, 2
"""Ways to round parameters."""


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function, do_not_specialize=["step"])


def _constant(value: Any) -> Any:
    """A number that a kernel may read."""
    return value if triton is None else tl.constexpr(value)


_GOLDEN, _FIRST = _constant(narrow.GOLDEN), _constant(narrow.FIRST)
_SECOND, _OTHER = _constant(narrow.SECOND), _constant(narrow.OTHER)
_MARGIN, _TINY = _constant(narrow.MARGIN), _constant(narrow.TINY)
_SEEDS = _constant(narrow.SEEDS)


@_jit
def _number(numbers: tl.tensor, i: tl.constexpr, T: tl.constexpr) -> tl.tensor:
    return tl.load(numbers + i).to(tl.float64, bitcast=True).to(T)


@_jit
def _block(
    address: tl.tensor, offsets: tl.tensor, STORED: tl.constexpr, ALIGNED: tl.constexpr
) -> tl.tensor:
    """Pointers to a block of the tensor at an address; to 16 bytes each where that is known."""
    start = address.to(tl.pointer_type(STORED))
    if ALIGNED:
        start = tl.multiple_of(start, 16)
    return start + offsets


@_jit
def _clip(x: tl.tensor, numbers: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """P[x] for a box; NaN stays NaN."""
    lower, upper = _number(numbers, 9, T), _number(numbers, 10, T)
    return tl.where(x < lower, lower, tl.where(x > upper, upper, x))


@_jit
def _bounded(g: tl.tensor, V: tl.constexpr) -> tl.tensor:
    """A gradient of at most `Recipe.largest`; NaN if it is not finite."""
    most: tl.constexpr = 2.0**511 if tl.float64 == V else 2.0**63
    return tl.where(g > most, most, tl.where(g < -most, -most, g)) + (g - g)


@_jit
def _over(x: tl.tensor, y: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """x/y, correctly rounded: `/` is approximate in float32."""
    if T == tl.float64:  # noqa: SIM108, SIM300
        quotient = x / y
    else:
        quotient = tl.div_rn(x, y)
    return quotient


@_jit
def _root(x: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """The square root, correctly rounded likewise."""
    if T == tl.float64:  # noqa: SIM108, SIM300
        root = tl.sqrt(x)
    else:
        root = tl.sqrt_rn(x)
    return root


@_jit
def _mixed(x: tl.tensor) -> tl.tensor:
    """A hash of 32-bit words."""
    x = (x ^ (x >> 16)) * _FIRST
    x = (x ^ (x >> 15)) * _SECOND
    return x ^ (x >> 16)


@_jit
def _uniform(word: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """A number between 0 and 1 of the lowest 16 bits of words."""
    return ((word & 0xFFFF).to(T) + 0.5) * 0.0000152587890625


@_jit
def _unit(x: tl.tensor, STORED: tl.constexpr, MORE: tl.constexpr, T: tl.constexpr) -> tl.tensor:
    """2^-MORE ulp in the dtype in which x is stored: `narrow._unit`."""
    if T == tl.float64:  # noqa: SIM300
        power = (x.to(tl.int64, bitcast=True) & 0x7FF0000000000000).to(tl.float64, bitcast=True)
    else:
        power = (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    least: tl.constexpr = 2.0**-14 if tl.float16 == STORED else 2.0**-96
    digits: tl.constexpr = 10 if tl.float16 == STORED else 7 if tl.bfloat16 == STORED else 23
    down: tl.constexpr = 2.0 ** -(digits + MORE)
    return tl.where(power > least, power, least) * down


@_jit
def _inverse(unit: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """One over a power of two: the exponent with its sign changed."""
    if T == tl.float64:  # noqa: SIM300
        bits = 0x7FE0000000000000 - unit.to(tl.int64, bitcast=True)
    else:
        bits = 0x7F000000 - unit.to(tl.int32, bitcast=True)
    return bits.to(T, bitcast=True)


@_jit
def _is_finite(x: tl.tensor) -> tl.tensor:
    return x - x == 0


@_jit
def _nearest(x: tl.tensor, STORED: tl.constexpr) -> tl.tensor:
    """To the nearest, ties to even; Triton's interpreter would truncate to bfloat16."""
    if STORED == tl.bfloat16:  # noqa: SIM300
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        x = tl.where(_is_finite(x), bits.to(tl.float32, bitcast=True), x)
    return x.to(STORED)


@_jit
def _stochastic(x: tl.tensor, word: tl.tensor, STORED: tl.constexpr, T: tl.constexpr) -> tl.tensor:
    """A neighbour of x in a narrow dtype: `narrow.stochastic`."""
    unit = _unit(x, STORED, 0, T)
    units = x * _inverse(unit, T)
    below = tl.floor(units)
    up = units - below > _uniform(word, T)
    return tl.where(_is_finite(x), (below + up.to(T)) * unit, x).to(STORED)


@_jit
def _spread(scales: tl.tensor, PART: tl.constexpr, BLOCK: tl.constexpr) -> tl.tensor:
    """One scale a part, as one an entry."""
    every = tl.broadcast_to(tl.expand_dims(scales, 1), (BLOCK // PART, PART))
    return tl.reshape(every, (BLOCK,))


@_jit
def _state(
    at: tl.tensor,
    scale_at: tl.tensor,
    inside: tl.tensor,
    has_part: tl.tensor,
    STORED: tl.constexpr,
    T: tl.constexpr,
    PART: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """What a block of a state holds: `narrow.read`."""
    x = tl.load(at, mask=inside, other=0).to(T)
    if STORED == tl.int8:  # noqa: SIM300
        scale = _spread(tl.load(scale_at, mask=has_part, other=0.0), PART, BLOCK).to(T)
        x = x * tl.abs(x) * 0.00006103515625 * scale
    if STORED == tl.uint8:  # noqa: SIM300
        scale = _spread(tl.load(scale_at, mask=has_part, other=0.0), PART, BLOCK).to(T)
        x = x * x * (x * x) * 2.3283064365386963e-10 * scale
    return x


@_jit
def _ratio(
    x: tl.tensor,
    scale_at: tl.tensor,
    inside: tl.tensor,
    has_part: tl.tensor,
    T: tl.constexpr,
    PART: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """|x| over the scale of its part, which is stored."""
    size = tl.where(inside, tl.abs(x), 0.0)
    most = tl.max(tl.reshape(size, (BLOCK // PART, PART)), 1).to(tl.float32) * _MARGIN
    tl.store(scale_at, most, mask=has_part)
    holds = most > _TINY
    inverse = tl.div_rn(tl.where(holds, 1.0, 0.0), tl.where(holds, most, 1.0))
    return size * _spread(inverse, PART, BLOCK).to(T)


@_jit
def _keep(
    at: tl.tensor,
    scale_at: tl.tensor,
    x: tl.tensor,
    word: tl.tensor,
    inside: tl.tensor,
    has_part: tl.tensor,
    POSITIVE: tl.constexpr,
    STORED: tl.constexpr,
    T: tl.constexpr,
    PART: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Store a block of a state: `narrow.write`, or `narrow.write_positive`."""
    if STORED == tl.int8:  # noqa: SIM300
        a = _ratio(x, scale_at, inside, has_part, T, PART, BLOCK) * 16384.0
        k = tl.floor(tl.sqrt(a))  # where the root is a digit off, the next line makes it good
        k = k + (a - k * k > _uniform(word, T) * (2 * k + 1)).to(T)
        x = tl.where(x < 0, -k, k)
    elif STORED == tl.uint8:  # noqa: SIM300
        a = _ratio(x, scale_at, inside, has_part, T, PART, BLOCK) * 4294967296.0
        k = tl.floor(tl.sqrt(tl.sqrt(a)))
        lower = k * k * (k * k)
        upper = (k + 1) * (k + 1) * ((k + 1) * (k + 1))
        k = k + (a - lower > _uniform(word, T) * (upper - lower)).to(T)
        x = tl.maximum(k, (x > 0).to(T))
    elif STORED == tl.bfloat16:  # noqa: SIM300
        if POSITIVE:
            least = _unit(x, STORED, 0, T)
            x = tl.where((x > 0) & (x < least), least, x)
        x = _stochastic(x, word, STORED, T)
    tl.store(at, x.to(STORED), mask=inside)


@_jit
def update(
    numbers: tl.tensor,
    table: tl.tensor,
    fixed: tl.tensor,
    blocks: tl.tensor,
    scale: tl.tensor,
    live: tl.tensor,
    step: tl.tensor,
    W: tl.constexpr,
    G: tl.constexpr,
    U: tl.constexpr,
    V: tl.constexpr,
    A: tl.constexpr,
    T: tl.constexpr,
    ADAPTIVE: tl.constexpr,
    AVERAGING: tl.constexpr,
    EXTRAPOLATES: tl.constexpr,
    KEEPS_AVERAGE: tl.constexpr,
    MAXIMIZE: tl.constexpr,
    COUPLED: tl.constexpr,
    DECOUPLED: tl.constexpr,
    CLIPS: tl.constexpr,
    SCALED: tl.constexpr,
    SKIPS: tl.constexpr,
    OFFSET: tl.constexpr,
    ROUNDING: tl.constexpr,
    ALIGNED: tl.constexpr,
    FIRST: tl.constexpr,
    STRIDE: tl.constexpr,
    PART: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Update a block: W to A are the dtypes in memory, T that of the arithmetic.

    ``live`` is 0 or 1; with 0 nothing is read or written.  The number of the step, of which noise
    is made, is ``step`` or the last of ``numbers``; the other one is 0.  FIRST and STRIDE are
    `NUMBERS` and `ROW`, for a kernel reads no globals.
    """
    block = tl.load(blocks + tl.program_id(0))
    tensor = block >> 32
    row = fixed + tensor * STRIDE
    size = tl.load(row + 7)
    if SKIPS:
        size = size * tl.load(live)
    if ALIGNED:
        size = tl.multiple_of(size, 4)
    offsets = (block & 0xFFFFFFFF) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    parts = (block & 0xFFFFFFFF) * (BLOCK // PART) + tl.arange(0, BLOCK // PART)
    has_part = parts * PART < size
    u_scale = tl.load(row + 5).to(tl.pointer_type(tl.float32)) + parts
    v_scale = tl.load(row + 6).to(tl.pointer_type(tl.float32)) + parts

    w_at = _block(tl.load(row), offsets, W, ALIGNED)
    u_at = _block(tl.load(row + 1), offsets, U, ALIGNED)
    g_at = _block(tl.load(table + FIRST + tensor), offsets, G, ALIGNED)
    w = tl.load(w_at, mask=inside, other=0.0).to(T)
    low_at = tl.load(row + 4).to(tl.pointer_type(tl.int16)) + offsets
    if ROUNDING == 1:
        low = tl.load(low_at, mask=inside, other=0).to(T)
        w = w + tl.where(low != 0, low * _unit(w, W, 16, T), 0.0)
    u = _state(u_at, u_scale, inside, has_part, U, T, PART, BLOCK)
    if OFFSET:
        u = w + u
    g = tl.load(g_at, mask=inside, other=0.0).to(T)

    if SCALED:
        g = _over(g, tl.load(scale).to(T) + tl.zeros_like(g), T)
    if MAXIMIZE:
        g = -g
    if COUPLED:
        g = g + _number(numbers, 8, T) * w
    d = g
    if ADAPTIVE:
        v_at = _block(tl.load(row + 2), offsets, V, ALIGNED)
        v = _state(v_at, v_scale, inside, has_part, V, T, PART, BLOCK)
        d = _bounded(g, V)
        v = v + (d * d - v) * _number(numbers, 4, T)
        d = _over(d, _root(v, T) + _number(numbers, 5, T), T)
    if DECOUPLED:
        d = d + _number(numbers, 8, T) * w

    if KEEPS_AVERAGE:
        a_at = _block(tl.load(row + 3), offsets, A, ALIGNED)
        a = tl.load(a_at, mask=inside, other=0.0).to(T)
        a = a + (w - a) * _number(numbers, 7, T)
        tl.store(a_at, a.to(A), mask=inside)

    if AVERAGING:
        u = u - d * _number(numbers, 2, T)
        if CLIPS:
            u = _clip(u, numbers, T)
        w = w + (u - w) * _number(numbers, 3, T)
    else:
        by = d * _number(numbers, 0, T)
        u = u - u * _number(numbers, 1, T) - by
        by = -by if EXTRAPOLATES else u
        if CLIPS:  # in float64: what clipping adds to u is as small as a rounding error of w
            moved = w.to(tl.float64) + by.to(tl.float64)
            projected = _clip(moved, numbers, tl.float64)
            u = u + (projected - moved).to(T)
            w = projected.to(T)
        else:
            w = w + by
        if EXTRAPOLATES:
            w = w + u * _number(numbers, 6, T)
    word = tl.zeros_like(offsets).to(tl.uint32)
    if U == tl.bfloat16 or U == tl.int8 or ROUNDING == 2:  # noqa: SIM300
        count = tl.load(numbers + FIRST - 1).to(tl.float64, bitcast=True).to(tl.int64)
        seed = _mixed(((count + step) & _SEEDS).to(tl.uint32))
        word = _mixed(seed ^ (offsets.to(tl.uint32) * _GOLDEN))
    kept = u - w if OFFSET else u
    _keep(u_at, u_scale, kept, word, inside, has_part, False, U, T, PART, BLOCK)
    if ADAPTIVE:
        _keep(v_at, v_scale, v, word >> 16, inside, has_part, True, V, T, PART, BLOCK)
    if ROUNDING == 2:
        tl.store(w_at, _stochastic(w, _mixed(word ^ _OTHER), W, T), mask=inside)
    else:
        tl.store(w_at, _nearest(w, W), mask=inside)
    if ROUNDING == 1:
        nearest = _nearest(w, W).to(T)
        units = (w - nearest) * _inverse(_unit(nearest, W, 16, T), T)
        low = tl.minimum(tl.maximum(tl.floor(units + 0.5), -32768.0), 32767.0)
        low = tl.where(tl.abs(units) <= 65536.0, low, 0.0)
        tl.store(low_at, low.to(tl.int16), mask=inside)
