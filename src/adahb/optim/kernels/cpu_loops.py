"""The compiled loop of the CPU kernel: all state of an element is read and written once.

This module imports Numba; `adahb.optim.kernels.cpu` imports it at its first step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from adahb._numba import njit

Vector = np.ndarray[Any, Any]
Move = Literal["w", "z", "y"]
Run = Callable[[Vector, Vector, int, int, Vector, float, float], None]

BLOCK = 4096
"""Elements averaged in one go: the update that follows finds them in a near cache."""

LINE, STRETCH, AHEAD = 64, 256, 2048
"""Bytes of a cache line; of what is updated in one go; and how far ahead memory is asked for.

Four arrays at once are more than the processor foresees: from memory, asking gains some 3 %."""

FAR, LONG = 1 << 22, 1 << 16
"""Elements of all tensors together, and of a part of one, above which it asks ahead.

What is less stays in a near cache from step to step, where asking costs a quarter of the time."""

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""No `fastmath`: products are rounded before they are added, as in the eager kernel."""


def _as_pointer(_: Any, address: Any, like: Any) -> Any:
    """An address as a pointer to numbers of the dtype of ``like``."""
    pointer: Any = types.CPointer

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return pointer(like.dtype)(address, like), generate


def _asking(_: Any, address: Any) -> Any:
    """A request for the cache line at an address, to be written to; any address may be given."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], declared)
        choices = [number(1), number(3), number(1)]  # for writing, into all levels, data
        builder.call(prefetch, [builder.inttoptr(arguments[0], byte), *choices])
        return context.get_dummy_value()

    return types.void(address), generate


_pointer: Any = intrinsic(_as_pointer)
_ask: Any = intrinsic(_asking)


@njit(inline="always", **_OPTIONS)
def _view(address: int, start: int, size: int, like: Vector) -> Any:
    """The elements from ``start`` on of the tensor at an address."""
    return carray(_pointer(address + start * like.itemsize, like), (size,))


@cache
def compiled(move: Move, adaptive: bool, constrained: bool, averaged: bool) -> Run:
    """The loop for one kind of update, compiled when first called with a dtype.

    ``run(table, ends, start, stop, numbers, lower, upper)`` updates the elements from ``start`` to
    ``stop`` of all tensors laid end to end.  Column k of ``table`` has the addresses of w, g, u (or
    z), v and a of tensor k, which ends at ``ends[k]``; ``numbers`` is what
    `adahb.optim.kernels.cpu` makes of the step, in the dtype of the tensors.

    What distinguishes the kinds is constant in the loop, so that no branch is left in it; signs
    and decays are numbers, as they cost nothing beside the traffic to memory.  How far a bound has
    moved a point goes into the momentum, where rounding at the size of w would add up: that is
    computed in float64, as in the eager kernel.
    """

    @njit(**_OPTIONS)
    def run(
        table: Vector, ends: Vector, start: int, stop: int, numbers: Vector, lower: float,
        upper: float,
    ) -> None:  # fmt: skip
        alpha, beta1_lost, eta, c = numbers[0], numbers[1], numbers[2], numbers[3]
        beta2_lost, delta, beta1_next = numbers[4], numbers[5], numbers[6]
        share, sign, coupled, decoupled = numbers[7], numbers[8], numbers[9], numbers[10]
        low, high, most = numbers[11], numbers[12], numbers[13]
        k = np.searchsorted(ends, start, side="right")
        while start < stop:
            first = start - (ends[k - 1] if k > 0 else 0)
            size = min(stop, ends[k]) - start
            if averaged:
                size = min(size, BLOCK)
            if averaged:  # in a loop of its own: more arrays than four are not vectorised together
                w = _view(table[0, k], first, size, numbers)
                a = _view(table[4, k], first, size, numbers)
                for i in range(size):
                    a[i] += (w[i] - a[i]) * share
            far = ends[ends.size - 1] > FAR and size > LONG
            width = STRETCH // numbers.itemsize if far else size
            for begin in range(first, first + size, width):
                if width < size:
                    at = begin * numbers.itemsize + AHEAD
                    for line in range(at, at + STRETCH, LINE):
                        _ask(table[0, k] + line)
                        _ask(table[1, k] + line)
                        _ask(table[2, k] + line)
                        if adaptive:
                            _ask(table[3, k] + line)
                count = min(width, first + size - begin)
                w = _view(table[0, k], begin, count, numbers)
                g = _view(table[1, k], begin, count, numbers)
                u = _view(table[2, k], begin, count, numbers)
                v = _view(table[3, k], begin, count, numbers)
                for i in range(count):
                    d = sign * g[i] + coupled * w[i]
                    if adaptive:
                        near = -most if d < -most else (most if d > most else d)
                        d = near + (d - d)  # an infinite one becomes NaN
                        v[i] += (d * d - v[i]) * beta2_lost
                        d = d / (np.sqrt(v[i]) + delta)
                    d = d + decoupled * w[i]
                    if move == "z":
                        z = u[i] - d * eta
                        if constrained:
                            z = low if z < low else (high if z > high else z)
                        u[i] = z
                        w[i] += (z - w[i]) * c
                    else:
                        by = d * alpha
                        step = u[i] - u[i] * beta1_lost - by
                        by = step if move == "w" else -by
                        if constrained:
                            x = np.float64(w[i]) + np.float64(by)
                            y = lower if x < lower else (upper if x > upper else x)
                            u[i] = np.float64(step) + (y - x)
                        else:
                            y = w[i] + by
                            u[i] = step
                        w[i] = y if move == "w" else y + u[i] * beta1_next
            start += size
            while k < ends.size and ends[k] <= start:
                k += 1

    result: Run = run
    return result
