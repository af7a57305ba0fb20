"""For kernels that compute in one dtype: widen what is stored, step, and round it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adahb.optim import narrow
from adahb.optim.update import Batch

if TYPE_CHECKING:
    from torch import Tensor

    from adahb.optim.update import Numbers, Recipe


def widened(batch: Batch, recipe: Recipe) -> Batch:
    """The batch in the dtype of the arithmetic: itself, if it is stored in that."""
    if not batch.params:
        return batch
    dtype = batch.params[0].dtype
    wide = recipe.arithmetic(dtype)
    if wide is dtype and recipe.state_dtype is None and not recipe.offset:
        return batch
    params = [p.to(wide) for p in batch.params]
    if batch.lows:
        params = [
            narrow.joined(p, low, wide) for p, low in zip(batch.params, batch.lows, strict=True)
        ]
    buffers = [narrow.read(u, s, wide) for u, s in _scaled(batch.buffers, batch.buffer_scales)]
    if recipe.offset:
        buffers = [w + p for w, p in zip(params, buffers, strict=True)]
    return Batch(
        params=params,
        grads=[g.to(wide) for g in batch.grads],
        buffers=buffers,
        squares=[narrow.read(v, s, wide) for v, s in _scaled(batch.squares, batch.square_scales)],
        averages=[a.to(wide) for a in batch.averages],
    )


def copy_back(wide: Batch, batch: Batch, at: Numbers, recipe: Recipe) -> None:
    """Round what a widened batch has become into what it came from."""
    if wide is batch:
        return
    random = recipe.randomises(batch.params[0].dtype)
    for i, (p, w) in enumerate(zip(batch.params, wide.params, strict=True)):
        word = narrow.noise(p, at.step) if random or recipe.state_dtype else None
        u = wide.buffers[i] - w if recipe.offset else wide.buffers[i]
        narrow.write(batch.buffers[i], _at(batch.buffer_scales, i), u, word)
        if batch.squares:
            scales = _at(batch.square_scales, i)
            high = None if word is None else word >> 16
            narrow.write_positive(batch.squares[i], scales, wide.squares[i], high)
        if batch.averages:
            batch.averages[i].copy_(wide.averages[i])
        if batch.lows:
            rounded, low = narrow.parted(w, p.dtype)
            batch.lows[i].copy_(low)
            p.copy_(rounded)
        elif random and word is not None:
            p.copy_(narrow.stochastic(w, p.dtype, narrow.other_noise(word)))
        else:
            p.copy_(w)


def _scaled(states: list[Tensor], scales: list[Tensor]) -> list[tuple[Tensor, Tensor | None]]:
    return [(state, _at(scales, i)) for i, state in enumerate(states)]


def _at(scales: list[Tensor], i: int) -> Tensor | None:
    return scales[i] if scales else None
