r"""The order in which an epoch visits the rows.

A sample of weight k is to be worth k samples of weight 1: not only in the objective but step by
step, and wherever in the data the copies stand.  The order therefore depends on what a row *is*,
not on its place.  Every row gets a 64-bit key made of its nonzeros and its target, the rows are
sorted by it, a row of weight k stands there k times, and every epoch walks through a seeded
permutation of the positions in that *canonical order*.  Repeated rows and weighted rows then make
the same steps, and shuffling the rows before a fit changes nothing.

A key does not depend on the order of the columns either.  The columns are named by what is in
them,

    key⁰_i  = m(target_i, Σ_j m(x_ij)),   name_j = Σ_i m(key⁰_i, x_ij),
    key_i   = m(target_i, Σ_j m(x_ij, name_j)),

with sums over the nonzeros and a mixing function m, so that permuted columns give the permuted
coefficients.  Ties are ordered by a key in which columns are named by their number; rows that tie
in both are the same row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adahb.problems.linear import Matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

Vector = NDArray[np.float64]
Rows = NDArray[np.intp]

MOST_REPEATS = 10
"""Integer weights become repetitions if that makes at most so many visits a row."""


@dataclass
class Visits:
    """The rows that an epoch visits, epoch after epoch.

    ``rows`` is one epoch's worth of rows, each as often as it is to be visited.  Epoch k = 0, 1,
    ... walks through the permutation of it that ``seed`` and k make; without a seed the rows come
    as they stand.
    """

    rows: NDArray[Any]
    scale: Vector | None
    """What is left of the weights: a number for each row of the data, or None for ones."""
    seed: int | None
    _buffer: NDArray[Any] | None = field(default=None, repr=False, init=False)

    @classmethod
    def of(
        cls, X: Matrix, y: NDArray[Any], weights: Vector | None, *, shuffle: bool, seed: int
    ) -> Visits:
        """Return the visits of rows with these weights (None for ones).

        Whole-numbered weights become repetitions, as long as they make no more than 10 visits a
        row; others multiply the gradients.  Rows of weight zero are not visited.
        """
        counts = None if weights is None else repetitions(weights)
        present = counts if counts is not None else weights
        in_place = np.arange(y.size, dtype=_index_type(y.size))
        rows = canonical(X, y, present) if shuffle else in_place
        if present is not None:
            rows = rows[present[rows] > 0]
        if counts is not None:
            rows = np.repeat(rows, counts[rows])
        return cls(rows, weights if counts is None else None, seed if shuffle else None)

    def __len__(self) -> int:
        return int(self.rows.size)

    def counts(self, n: int) -> NDArray[np.int64]:
        """Return how often an epoch visits each of the ``n`` rows."""
        return np.bincount(self.rows, minlength=n)

    def epoch(self, k: int) -> NDArray[Any]:
        """Return the rows in the order of epoch k; the next call writes over the array."""
        if self._buffer is None:
            self._buffer = np.empty_like(self.rows)
        self._buffer[:] = self.rows
        if self.seed is not None:
            np.random.default_rng([self.seed, k]).shuffle(self._buffer)
        return self._buffer

    def pieces(self, k: int, batch_size: int, most: int) -> Iterator[Rows]:
        """Yield epoch k in pieces of whole batches, at most about ``most`` rows each."""
        order, stride = self.epoch(k), max(most // batch_size, 1) * batch_size
        for start in range(0, order.size, stride):
            yield order[start : start + stride].astype(np.intp)


def repetitions(weights: Vector) -> NDArray[np.int64] | None:
    """Return whole-numbered weights as counts; None where they cannot be repetitions."""
    if weights.sum() > MOST_REPEATS * weights.size or (weights != np.rint(weights)).any():
        return None
    return weights.astype(np.int64)


def canonical(X: Matrix, y: NDArray[Any], weights: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the rows in the order of their keys.

    ``weights`` are repetitions, each counted in the columns' names; of other weights it counts
    that they are not zero.
    """
    from adahb.linear import hashing

    counts = np.empty(0, dtype=np.uint64)
    if weights is not None:
        whole = weights.dtype.kind == "i"
        counts = (weights if whole else weights > 0).astype(np.uint64)
    first = hashing.keys(X, y, counts)
    order = np.argsort(first, kind="stable").astype(_index_type(y.size), copy=False)
    ordered = first[order]
    if (ordered[1:] == ordered[:-1]).any():
        second = hashing.keys_by_place(X, y)
        order = np.lexsort((second, first)).astype(_index_type(y.size), copy=False)
    return order


def _index_type(n: int) -> type[np.int32] | type[np.int64]:
    """Return the narrow type while it holds the rows: orders are long-lived."""
    return np.int32 if n < np.iinfo(np.int32).max else np.int64
