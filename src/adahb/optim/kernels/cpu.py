"""The update for tensors in host memory: one compiled pass in which all state moves once.

Eager operations read and write a dozen arrays of the parameters' size; this kernel reads w, g, u
and v, writes w, u and v, and makes no temporary.  All tensors of a batch go into one call, as a
table of addresses, so that many small ones cost no call each.  Work is shared out in pieces over
as many threads as torch uses; every element is computed alike wherever pieces begin, so that the
number of threads does not show in the result.

Threads are Python's, of a pool of our own, and not Numba's: its portable threading layer aborts the
process where two threads step at once, its OpenMP layer where a process steps after a fork.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from adahb.optim.kernels.eager import interval

if TYPE_CHECKING:
    from adahb.optim.kernels.cpu_loops import Move, Run
    from adahb.optim.update import Batch, Numbers, Recipe

DTYPES = {torch.float32: np.float32, torch.float64: np.float64}
PLAIN = {Tensor, torch.nn.Parameter}

PIECE = 1 << 17
"""Elements for which handing work to another thread, some 30 μs, begins to pay."""


# ---------------------------------------------------------------- what it can do


def supports(batch: Batch, recipe: Recipe) -> str | None:
    """Why the kernel cannot make the step, or None where it can."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return "NUMBA_DISABLE_JIT is set"
    if recipe.constraint is not None and interval(recipe.constraint) is None:
        return f"constraint={recipe.constraint!r} does not bound all elements by the same numbers"
    if recipe.state_dtype is not None:
        return f"state_dtype={recipe.state_dtype!r} is narrower than it computes with"
    shapes = [p.shape for p in batch.params]
    dtypes = [p.dtype for p in batch.params]
    for dtype in set(dtypes) - set(DTYPES):
        return f"a parameter is {dtype}, neither float32 nor float64"
    if batch.lows or recipe.offset:
        return f"rounding={recipe.rounding!r} keeps digits that it knows nothing of"
    for name, tensors in _columns(batch):
        for kind in set(map(type, tensors)) - PLAIN:
            return f"a {name} is a {kind.__name__}, not a plain tensor"
        if not all(t.is_cpu for t in tensors):
            return f"a {name} is not in host memory"
        if any(t.layout is not torch.strided for t in tensors):
            return f"a {name} is not strided"
        if [t.dtype for t in tensors] != dtypes:
            return f"a {name} has another dtype than its parameter"
        if [t.shape for t in tensors] != shapes:
            return f"a {name} has another shape than its parameter"
    return _oddity(batch)


def _oddity(batch: Batch) -> str | None:
    """What is wrong with how parameters and states lie in memory; gradients are copied to match."""
    if any(map(Tensor.is_neg, batch.params)):
        return "a parameter is a view that negates"
    columns = [(name, tensors) for name, tensors in _columns(batch) if name != "gradient"]
    if all(all(map(Tensor.is_contiguous, tensors)) for _, tensors in columns):
        return None
    for p in batch.params:
        if not _dense(p):
            return f"a parameter of shape {tuple(p.shape)} and strides {p.stride()} is not dense"
    for name, tensors in columns:
        for p, t in zip(batch.params, tensors, strict=True):
            if not _alike(p, t):
                return f"a {name} has strides {t.stride()} and its parameter {p.stride()}"
    return None


def _columns(batch: Batch) -> Iterator[tuple[str, list[Tensor]]]:
    """The tensors that the step is about, with what to call them."""
    yield "parameter", batch.params
    yield "gradient", batch.grads
    yield "buffer", batch.buffers
    if batch.squares:
        yield "square", batch.squares
    if batch.averages:
        yield "average", batch.averages


def _moves(t: Tensor) -> list[tuple[int, int]]:
    """Stride and length of the axes along which one moves in memory at all."""
    return [(s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


def _alike(p: Tensor, t: Tensor) -> bool:
    """Whether the order in memory is the same, of tensors of one shape."""
    return p.numel() == 0 or _moves(p) == _moves(t)


def _dense(t: Tensor) -> bool:
    """Whether the tensor fills its memory without gaps or overlaps, in any order of its axes."""
    size = 1
    for stride, length in sorted(_moves(t)):
        if stride != size:
            return t.numel() == 0
        size *= length
    return True


# ---------------------------------------------------------------- the step


def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
    """Update every parameter of a batch that `supports` accepts; the numbers must be floats.

    The batch must be one that `supports` has accepted: what is passed on are addresses.
    """
    if not batch.params:
        return
    grads = [_matching(p, g) for p, g in zip(batch.params, batch.grads, strict=True)]
    states = [batch.params, batch.buffers, batch.squares, batch.averages]
    table = np.zeros((5, len(grads)), dtype=np.int64)
    for row, tensors in zip((0, 2, 3, 4, 1), (*states, grads), strict=True):
        if tensors:
            table[row] = np.fromiter(map(Tensor.data_ptr, tensors), np.int64, len(grads))
    ends = np.fromiter(map(Tensor.numel, grads), np.int64, len(grads)).cumsum()
    lower, upper = -np.inf, np.inf
    if recipe.constraint is not None:
        lower, upper = interval(recipe.constraint) or (lower, upper)
    with np.errstate(over="ignore"):
        dtype = grads[0].dtype
        numbers = np.array(
            [*_numbers(at, recipe), lower, upper, recipe.largest(dtype)], dtype=DTYPES[dtype]
        )
    run = _loop(recipe)

    def part(start: int, stop: int) -> None:
        run(table, ends, start, stop, numbers, lower, upper)

    _share_out(part, int(ends[-1]))
    for tensors in states:
        torch.autograd.graph.increment_version(tensors)


def _matching(p: Tensor, g: Tensor) -> Tensor:
    """The gradient in the order in which the parameter lies in memory, copied if need be."""
    matches = g.is_contiguous() if p.is_contiguous() else _alike(p, g)
    if matches and not g.is_neg() and not g._is_zerotensor():
        return g
    return torch.empty_like(p, requires_grad=False).copy_(g.detach())


def _numbers(at: Numbers, recipe: Recipe) -> tuple[float, ...]:
    """What the loop computes with besides bounds, in its order."""
    alpha, beta1, eta, c, beta2, delta, beta1_next, share = cast("tuple[float, ...]", at[:8])
    lost, delta = (1 - beta2, delta) if recipe.adaptive else (0.0, 0.0)
    sign = -1.0 if recipe.maximize else 1.0
    decays = (0.0, recipe.weight_decay) if recipe.decoupled else (recipe.weight_decay, 0.0)
    return alpha, 1 - beta1, eta, c, lost, delta, beta1_next, share, sign, *decays


def _loop(recipe: Recipe) -> Run:
    from adahb.optim.kernels import cpu_loops

    move: Move = "z" if recipe.averaging else "y" if recipe.extrapolates else "w"
    return cpu_loops.compiled(
        move, recipe.adaptive, recipe.constraint is not None, recipe.keeps_average
    )


# ---------------------------------------------------------------- threads


_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # the threads of a pool do not come along
    os.register_at_fork(after_in_child=_pools.clear)


def _share_out(part: Callable[[int, int], None], total: int) -> None:
    """Do a whole in parts, in this thread and, where it pays, in others."""
    threads = min(torch.get_num_threads(), total // PIECE)
    if threads <= 1:
        part(0, total)
        return
    cuts = [0]
    while cuts[-1] < total:  # ever smaller, so that whoever is late does not keep all waiting
        left = total - cuts[-1]
        cuts.append(total - left + min(left, max(PIECE, left // threads)))
    waiting = deque(pairwise(cuts))

    def work() -> None:
        while True:
            try:
                start, stop = waiting.popleft()
            except IndexError:
                return
            part(start, stop)

    pool = _pools.get(threads)
    if pool is None:
        pool = _pools.setdefault(threads, ThreadPoolExecutor(threads, "adahb"))
    helpers = [pool.submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:  # nobody may still write when the tensors are given up, not even after an interrupt
        waiting.clear()
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)
    for helper in started:
        helper.result()
