"""The update of ``adahb.optim.update`` as one Triton kernel over a table of pointers.

Program i updates one block of one tensor.  ``blocks[i]`` says which, as tensor * 2^32 + block;
``fixed`` has a row a tensor, (w, u, v, a, size), and ``table`` has after `NUMBERS` words the
gradients' pointers.  ``numbers`` holds float64 coefficients in `NUMBERS` words of int64: as data,
so that they are neither rounded to float32 on their way nor part of what is compiled.

Importing this module imports Triton, if there is one; `adahb.optim.kernels.triton` does so when a
step first needs it.
"""

from __future__ import annotations

from typing import Any

try:
    import triton
    from triton import language as tl
except ImportError:  # documentation tools and test collectors import every module everywhere
    triton = tl = None

ROW = 5
"""Words of a row of ``fixed``."""
NUMBERS = 11
"""Coefficients: alpha, 1 - beta1, eta, c, 1 - beta2, delta, beta1_next, share, λ, two bounds.

The differences to 1 are what float32 would lose: beta1 and beta2 tend to 1."""


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


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
def update(
    numbers: tl.tensor,
    table: tl.tensor,
    fixed: tl.tensor,
    blocks: tl.tensor,
    scale: tl.tensor,
    live: tl.tensor,
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
    ALIGNED: tl.constexpr,
    FIRST: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Update a block: W to A are the dtypes in memory, T that of the arithmetic.

    ``live`` is 0 or 1; with 0 nothing is read or written.  FIRST and
    STRIDE are `NUMBERS` and `ROW`, for a kernel reads no globals.
    """
    block = tl.load(blocks + tl.program_id(0))
    tensor = block >> 32
    row = fixed + tensor * STRIDE
    size = tl.load(row + 4)
    if SKIPS:
        size = size * tl.load(live)
    if ALIGNED:
        size = tl.multiple_of(size, 4)
    offsets = (block & 0xFFFFFFFF) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size

    w_at = _block(tl.load(row), offsets, W, ALIGNED)
    u_at = _block(tl.load(row + 1), offsets, U, ALIGNED)
    g_at = _block(tl.load(table + FIRST + tensor), offsets, G, ALIGNED)
    w = tl.load(w_at, mask=inside, other=0.0).to(T)
    u = tl.load(u_at, mask=inside, other=0.0).to(T)
    g = tl.load(g_at, mask=inside, other=0.0).to(T)

    if SCALED:
        g = g / tl.load(scale).to(T)
    if MAXIMIZE:
        g = -g
    if COUPLED:
        g = g + _number(numbers, 8, T) * w
    d = g
    if ADAPTIVE:
        v_at = _block(tl.load(row + 2), offsets, V, ALIGNED)
        v = tl.load(v_at, mask=inside, other=0.0).to(T)
        v = v + (g * g - v) * _number(numbers, 4, T)
        tl.store(v_at, v.to(V), mask=inside)
        delta = _number(numbers, 5, T)
        if T == tl.float64:  # noqa: SIM108, SIM300
            d = g / (tl.sqrt(v) + delta)
        else:  # correctly rounded, as everywhere else: `/` and sqrt are approximate in float32
            d = tl.div_rn(g, tl.sqrt_rn(v) + delta)
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
    tl.store(u_at, u.to(U), mask=inside)
    tl.store(w_at, w.to(W), mask=inside)
