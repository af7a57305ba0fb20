"""How parameters and states are kept in few bits: the arithmetic of rounding, in torch operations.

The heavy ball's steps fall like t^(-3/2), so that sooner or later an update is smaller than what
rounding to nearest lets through, and is lost every time.  There are three remedies, which
the Triton kernel computes in the same operations:

*Compensation* keeps beside a parameter w the next 16 bits, as a number of units 2^-16 ulp(w): a
bfloat16 parameter then walks like one of float32, a float32 one like one of 39 bits.

*Stochastic rounding* goes to one of the two neighbours, with chances that make it right in the
mean.  That is how states in bfloat16 are stored, and parameters if they are asked to be.

*Blocks of int8* hold `BLOCK` numbers and one scale s in float32: momentum as sign(q) (q/128)² s,
the second moment as (q/256)⁴ s, finer towards zero, rounded stochastically.  A second moment that
is not zero never becomes zero, for it is divided by.

The noise is a hash of the step and of the place in memory, so that it needs no state, is the same
in every kernel, and a run stopped and resumed is the run that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

BLOCK = 128
"""Numbers that share a scale."""
MARGIN = 1 + 65 / 4096
"""A block's scale over its largest number: at least (128/127)² and (256/255)⁴."""
SMALLEST = {torch.float16: 2.0**-14, torch.bfloat16: 2.0**-96, torch.float32: 2.0**-96}
"""Below this power of two the distance of neighbours no longer shrinks."""
DIGITS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23}
"""Binary digits behind the leading one."""
LOW_DIGITS = 16
"""Those that compensation adds."""

TINY = 2.0**-125
"""A block whose scale is smaller holds no more than which squares are positive."""
NARROW = (torch.bfloat16, torch.int8, torch.uint8)
"""Dtypes of states that are rounded stochastically."""

GOLDEN, FIRST, SECOND, OTHER = 0x9E3779B1, 0x7FEB352D, 0x846CA68B, 0x5851F42D
SEEDS = 0x7FFFFFFF
"""Of the number of the step, the bits that noise is made of."""
_WORD = 0xFFFFFFFF
_EXPONENT = {torch.float32: (torch.int32, 0x7F800000), torch.float64: (torch.int64, 0x7FF << 52)}


# ---------------------------------------------------------------- noise


def _mixed(x: Tensor) -> Tensor:
    """A hash of 32-bit words, held in int64."""
    x = ((x ^ (x >> 16)) * FIRST) & _WORD
    x = ((x ^ (x >> 15)) * SECOND) & _WORD
    return x ^ (x >> 16)


def noise(like: Tensor, step: int | Tensor) -> Tensor:
    """Random words of 32 bits, one for each entry of ``like``, chosen by step and place."""
    place = torch.arange(like.numel(), device=like.device)
    word = torch.as_tensor(step, dtype=torch.int64, device=like.device) & SEEDS
    return _unfolded(_mixed(_mixed(word) ^ (place * GOLDEN & _WORD)), like)


def other_noise(word: Tensor) -> Tensor:
    """Random words of their own, from those of `noise`."""
    return _mixed(word ^ OTHER)


def _uniform(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """A number between 0 and 1, exclusively, of the lowest 16 bits of words."""
    return ((bits & 0xFFFF).to(dtype) + 0.5) * 2.0**-16


# ---------------------------------------------------------------- order in memory


def _axes(x: Tensor) -> list[int]:
    """The axes in the order in which they lie in memory, or their own where x has gaps."""
    strides = x.stride()
    axes = sorted(range(x.ndim), key=lambda axis: -strides[axis])
    expected = 1
    for axis in reversed(axes):
        if x.shape[axis] > 1 and strides[axis] != expected:
            return list(range(x.ndim))
        expected *= x.shape[axis]
    return axes


def _folded(x: Tensor, like: Tensor) -> Tensor:
    """The entries of x in the order in which those of ``like`` lie in memory."""
    return x.permute(_axes(like)).reshape(-1)


def _unfolded(row: Tensor, like: Tensor) -> Tensor:
    """The reverse: entries in memory's order, in the shape of ``like``."""
    axes = _axes(like)
    return row.reshape([like.shape[a] for a in axes]).permute(_inverse(axes))


def _inverse(axes: Sequence[int]) -> list[int]:
    return sorted(range(len(axes)), key=lambda i: axes[i])


# ---------------------------------------------------------------- parameters


def _unit(x: Tensor, dtype: torch.dtype, digits: int) -> Tensor:
    """2^-digits times the power of two at or below |x|, for numbers stored in ``dtype``."""
    word, mask = _EXPONENT[x.dtype]
    power = (x.view(word) & mask).view(x.dtype)
    return power.clamp(min=SMALLEST[dtype]) * 2.0**-digits


def stochastic(x: Tensor, dtype: torch.dtype, word: Tensor) -> Tensor:
    """X rounded to a neighbour in ``dtype``, the right one in the mean."""
    unit = _unit(x, dtype, DIGITS[dtype])
    units = x / unit
    below = units.floor()
    up = units - below > _uniform(word, x.dtype)
    return torch.where(x.isfinite(), (below + up.to(x.dtype)) * unit, x).to(dtype)


def joined(p: Tensor, low: Tensor, wide: torch.dtype) -> Tensor:
    """The number that a parameter and its low digits stand for."""
    x = p.to(wide)
    unit = _unit(x, p.dtype, DIGITS[p.dtype] + LOW_DIGITS)
    return x + torch.where(low != 0, low.to(wide) * unit, 0.0)


def parted(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The reverse: the nearest parameter, and the digits that it leaves."""
    p = x.to(dtype)
    nearest = p.to(x.dtype)
    units = (x - nearest) / _unit(nearest, dtype, DIGITS[dtype] + LOW_DIGITS)
    low = (units + 0.5).floor().clamp(-(2**15), 2**15 - 1)
    return p, torch.where(units.abs() <= 2**16, low, 0.0).to(torch.int16)


# ---------------------------------------------------------------- states


def scales_of(state: Tensor) -> Tensor:
    """Scales for a state in blocks, all zero, as the state is."""
    return torch.zeros(-(-state.numel() // BLOCK), dtype=torch.float32, device=state.device)


def read(state: Tensor, scales: Tensor | None, wide: torch.dtype) -> Tensor:
    """The numbers that a state holds."""
    if scales is None:
        return state.to(wide)
    q = _folded(state, state).to(wide)
    levels = q * q * (q * q) * 2.0**-32 if state.dtype is torch.uint8 else q * q.abs() * 2.0**-14
    each = scales.to(wide).repeat_interleave(BLOCK)[: q.numel()]
    return _unfolded(levels * each, state)


def write(state: Tensor, scales: Tensor | None, x: Tensor, word: Tensor | None) -> None:
    """Store x in a state; ``word`` is the noise, which states that are not narrow do not need."""
    if word is None or state.dtype not in NARROW:
        state.copy_(x)
    elif scales is None:
        state.copy_(stochastic(x, state.dtype, word))
    else:
        _write_blocks(state, scales, x, word)


def write_positive(state: Tensor, scales: Tensor | None, x: Tensor, word: Tensor | None) -> None:
    """Store x >= 0 so that what is positive remains it."""
    if state.dtype is torch.bfloat16:
        floor = _unit(x, state.dtype, DIGITS[state.dtype]) * (x > 0)
        x = torch.where(x.isfinite(), x.maximum(floor), x)
    write(state, scales, x, word)


def _write_blocks(state: Tensor, scales: Tensor, x: Tensor, word: Tensor) -> None:
    row, bits = _folded(x, state), _folded(word, state)
    count = row.numel()
    if count == 0:
        return
    padded = torch.nn.functional.pad(row, (0, -count % BLOCK))
    scales.copy_(padded.view(-1, BLOCK).abs().amax(1).float() * MARGIN)
    inverse = torch.where(scales > TINY, 1.0 / scales, 0.0).to(row.dtype)
    ratio = row.abs() * inverse.repeat_interleave(BLOCK)[:count]
    r = _uniform(bits, row.dtype)
    if state.dtype is torch.uint8:
        a = ratio * 2.0**32
        k = a.sqrt().sqrt().floor()
        lower, upper = (k * k) * (k * k), ((k + 1) * (k + 1)) * ((k + 1) * (k + 1))
        k = k + (a - lower > r * (upper - lower)).to(row.dtype)
        k = k.maximum((row > 0).to(row.dtype))
    else:
        a = ratio * 2.0**14
        k = a.sqrt().floor()
        k = k + (a - k * k > r * (2 * k + 1)).to(row.dtype)
        k = torch.where(row < 0, -k, k)
    state.copy_(_unfolded(k.nan_to_num(0.0).to(state.dtype), state))


def size_of(shape: Sequence[int]) -> int:
    """How many scales a state of this shape has."""
    return -(-prod(shape) // BLOCK)
