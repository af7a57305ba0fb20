"""What the compiled loops share: how they are compiled, losses' derivatives, asking for memory.

The modules that import this one are imported when a loop is first used, for Numba is slow to load.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from adahb._numba import njit

Array = np.ndarray[Any, Any]

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

allocating: Callable[[_F], _F] = njit(**(_OPTIONS | {"_nrt": True}))
"""Compile as written, for functions that make arrays."""

_COUNTLESS = _OPTIONS | {"_nrt": False}
"""Numba counts references to every array in every call, atomically: a fifth of a sparse step.
Functions that make no arrays need not."""

exact: Callable[[_F], _F] = njit(**_COUNTLESS)
"""Compile as written."""

inlined: Callable[[_F], _F] = njit(inline="always", **_COUNTLESS)
"""Compile into the caller: a call hands over the parts of every array."""

reordering: Callable[[_F], _F] = njit(**_COUNTLESS, fastmath={"reassoc", "nsz", "contract"})
"""Compile with sums in any order."""


def _asking(_: Any, array: Any, index: Any) -> Any:  # noqa: ARG001
    """Ask for the cache line of an array's element, which need not exist; nothing is changed."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        data = context.make_array(kind)(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], declared)
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        builder.call(prefetch, [place, number(0), number(3), number(1)])  # to read, all levels
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


ask: Any = intrinsic(_asking)
"""``ask(array, i)`` asks for the memory of element i of a contiguous array before it is needed."""


HINGE, SQUARED_HINGE, MODIFIED_HUBER, LOGISTIC = 0, 1, 2, 3
SQUARED, ABSOLUTE, HUBER, EPSILON_INSENSITIVE, QUANTILE = 4, 5, 6, 7, 8


@exact
def derivative(code: int, parameter: float, p: float, y: float) -> float:
    """Return the derivative in p of the loss of that code; at a kink, the one of least magnitude.

    These are the twins of `adahb.problems.losses`, where the losses are written down.
    """
    if code <= LOGISTIC:
        z = y * p
        if code == HINGE:
            return -y if z < 1.0 else 0.0 * z
        if code == SQUARED_HINGE:
            return -2.0 * y * max(1.0 - z, 0.0) if z == z else z
        if code == MODIFIED_HUBER:
            return -2.0 * y * min(max(1.0 - z, 0.0), 2.0) if z == z else z
        return float(-y / (1.0 + np.exp(z)))
    z = p - y
    if code == SQUARED:
        return z
    if code == HUBER:
        return min(max(z, -parameter), parameter) if z == z else z
    if code == QUANTILE:
        return -parameter if z < 0.0 else (1.0 - parameter if z > 0.0 else 0.0 * z)
    epsilon = parameter if code == EPSILON_INSENSITIVE else 0.0
    return 1.0 if z > epsilon else (-1.0 if z < -epsilon else 0.0 * z)


@allocating
def repeated(indptr: Array, indices: Array, columns: int) -> bool:
    """Return whether a row of a CSR matrix has a column twice."""
    last = np.full(columns, -1, dtype=np.int64)
    for i in range(indptr.size - 1):
        for k in range(indptr[i], indptr[i + 1]):
            if last[indices[k]] == i:
                return True
            last[indices[k]] = i
    return False


@exact
def look_ahead(
    i: int, rows: Array, indptr: Array, indices: Array, data: Array, y: Array, sums: Array,
    visits: Array,
) -> None:  # fmt: skip
    """At the i-th of the rows, ask for the memory of rows to come."""
    if i + 8 < rows.size:
        row = rows[i + 8]
        ask(indptr, row)
        ask(y, row)
        ask(sums, row)
        ask(visits, row)
    if i + 3 < rows.size:
        row = rows[i + 3]
        for k in range(indptr[row], indptr[row + 1], 8):
            ask(indices, k)
            ask(data, k)
