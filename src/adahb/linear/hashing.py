"""Keys of rows: 64 bits that depend on a row's nonzeros and target, in compiled passes.

Sums over nonzeros make a key independent of the order in which they are stored; zeros that are
stored count as absent, so that dense and sparse rows have equal keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from adahb._numba import njit
from adahb.problems.linear import Matrix

Keys = NDArray[np.uint64]

_NO_NAMES = np.empty(0, dtype=np.uint64)
_compiled = njit(nogil=True)


@_compiled
def _mix(x: Any) -> Any:
    """Scatter 64 bits; the finaliser of the splitmix64 generator."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_compiled
def _bits(value: Any) -> Any:
    """Return a float's 64 bits, mixed."""
    return _mix(np.float64(value).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15))


@_compiled
def _csr_rows(
    indptr: Any, indices: Any, data: Any, target: Any, names: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Write the key of each row, columns being named by ``names``, or all alike by none."""
    for i in range(target.size):
        total = np.uint64(0)
        for k in range(indptr[i], indptr[i + 1]):
            if data[k] != 0:
                name = names[indices[k]] if names.size else np.uint64(0)
                total += _mix(_bits(data[k]) + name)
        out[i] = _mix(total ^ _bits(target[i] + 0.0))


@_compiled
def _csr_columns(
    indptr: Any, indices: Any, data: Any, keys: Any, counts: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Add up the name of each column; a row counts ``counts`` times, or once."""
    for i in range(keys.size):
        count = counts[i] if counts.size else np.uint64(1)
        for k in range(indptr[i], indptr[i + 1]):
            if data[k] != 0:
                out[indices[k]] += count * _mix(_bits(data[k]) ^ keys[i])


@_compiled
def _dense_rows(X: Any, target: Any, names: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Do the same as `_csr_rows` for a dense matrix."""
    for i in range(target.size):
        total = np.uint64(0)
        for j in range(X.shape[1]):
            if X[i, j] != 0:
                name = names[j] if names.size else np.uint64(0)
                total += _mix(_bits(X[i, j]) + name)
        out[i] = _mix(total ^ _bits(target[i] + 0.0))


@_compiled
def _dense_columns(X: Any, keys: Any, counts: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Do the same as `_csr_columns` for a dense matrix."""
    for i in range(keys.size):
        count = counts[i] if counts.size else np.uint64(1)
        for j in range(X.shape[1]):
            if X[i, j] != 0:
                out[j] += count * _mix(_bits(X[i, j]) ^ keys[i])


def keys(X: Matrix, target: NDArray[Any], counts: Keys) -> Keys:
    """Return each row's key, which does not depend on the order of the columns.

    ``counts`` says how many times a row stands in the data; empty is once.
    """
    first, content = _rows(X, target, _NO_NAMES), np.zeros(X.shape[1], dtype=np.uint64)
    if isinstance(X, sparse.csr_array):
        _csr_columns(X.indptr, X.indices, X.data, first, counts, content)
    else:
        _dense_columns(X, first, counts, content)
    return _rows(X, target, content, first)


def keys_by_place(X: Matrix, target: NDArray[Any]) -> Keys:
    """Return keys that do depend on the order of the columns."""
    place = np.arange(1, X.shape[1] + 1, dtype=np.uint64)
    return _rows(X, target, place * np.uint64(0x9E3779B97F4A7C15))


def _rows(X: Matrix, target: NDArray[Any], names: Keys, out: Keys | None = None) -> Keys:
    """Return each row's key with the columns so named, in ``out`` if it is given."""
    keys = np.empty(X.shape[0], dtype=np.uint64) if out is None else out
    if isinstance(X, sparse.csr_array):
        _csr_rows(X.indptr, X.indices, X.data, target, names, keys)
    else:
        _dense_rows(X, target, names, keys)
    return keys
