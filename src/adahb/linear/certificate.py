r"""How good a linear model is proved to be: its objective, and a lower bound on the best one's.

The objective of a model (w, b) with weights ω_i of sum Ω is

    f(w, b) = (1/Ω) Σ_i ω_i loss(⟨x_i, w⟩ + b, y_i),   w in Q, b free.

By Fenchel and Young every choice of numbers s_i makes a plane below it,

    f(w, b) ≥ -(1/Ω) Σ ω_i loss*(s_i, y_i) + ⟨(1/Ω) Σ ω_i s_i x_i, w⟩ + (b/Ω) Σ ω_i s_i.

With an intercept the last sum must vanish.  The numbers of the heavier sign are scaled towards 0
until it does, which no conjugate's domain forbids, for 0 is a slope of every loss here.

Two choices of s make planes at the end of an epoch: the loss's derivatives at the present model,
and the means of those met by the steps since the last time.  :class:`~adahb.linear.planes.Planes`
weighs them all.  Where it still believes in lower values than there are, a third plane corrects it:
that of the derivatives a fifth of the way from the model to the planes' own minimiser.  Every pass
goes through the rows in blocks, so that nothing but a few vectors of a block's length is in memory
beside the data.

In floats a gap is proved too: every plane is lowered, and every gap raised, by what rounding may
have done, a few ulps of the largest numbers that cancel in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from adahb.linear.planes import Planes
from adahb.linear.ranges import largest
from adahb.problems.linear import Matrix
from adahb.sets import Box

if TYPE_CHECKING:
    from adahb.problems import Loss
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]
Slopes = Callable[[slice, Vector, Vector], Vector]

_BLOCK = 1 << 15
_BUNDLE_BYTES = 1 << 24
_TOWARDS = 0.2


class Certificate:
    """The objective of a model, and ``lower_bound``, which none goes below.

    ``weights`` are those of the objective, None for ones.
    """

    def __init__(
        self,
        X: Matrix,
        y: Vector,
        loss: Loss,
        constraint: ConvexSet | None,
        *,
        weights: Vector | None = None,
        intercept: bool = False,
    ) -> None:
        self.X, self.y, self.loss = X, y, loss
        self.weights, self.intercept = weights, intercept
        self.total = float(y.size if weights is None else weights.sum())
        self.reason = unprovable(constraint)
        self.doubt = 0.0
        """What rounding may have taken from the objective at the last visit."""
        self._planes: Planes | None = None
        if constraint is not None and self.reason is None:
            d = X.shape[1]
            capacity = min(max(_BUNDLE_BYTES // (8 * d), 8), 120)
            self._planes = Planes(d, constraint, capacity=capacity)
            self._ulps = (4.0 + math.sqrt(y.size)) * float(np.finfo(np.float64).eps)
            self._reach = largest_prediction(X, constraint)
            self._offset = 1.0 + self._reach + (0.0 if loss.classification else np.abs(y).max())

    @property
    def lower_bound(self) -> float:
        """The largest number proved to be at most the optimum."""
        return -math.inf if self._planes is None else self._planes.bound

    def value(self, w: Vector, b: float) -> float:
        """Return f(w, b)."""
        total = 0.0
        for rows, X in blocks(self.X):
            losses = self.loss.value(np.asarray(X @ w) + b, self.y[rows])
            total += float(self._weighted(losses, rows).sum())
        return total / self.total

    def visit(self, w: Vector, b: float, sums: Vector, visits: NDArray[Any]) -> float:
        """Return f(w, b) after adding the planes of the model and of the visits' derivatives."""
        if self._planes is None:
            return self.value(w, b)

        def here(_: slice, p: Vector, y: Vector) -> Vector:
            return self.loss.derivative(p, y)

        def means(rows: slice, _: Vector, y: Vector) -> Vector:
            return self.loss.snap(sums[rows] / np.maximum(visits[rows], 1), y)

        value = self._add((here, means), w, b)
        doubt = self.doubt
        self._planes.tighten()
        lowest = self._planes.lowest
        if lowest is not None:
            self._add((here,), w + _TOWARDS * (lowest - w), b)
        self.doubt = doubt
        return value

    def _add(self, choices: tuple[Slopes, ...], w: Vector, b: float) -> float:
        """Add a plane for each choice of s, and return f(w, b): all in one pass of predictions."""
        scales = self._balance(choices, w, b)
        value, conjugates = 0.0, [0.0] * len(choices)
        sizes, steepness = [0.0] * len(choices), 0.0
        slopes = [np.zeros(self.X.shape[1]) for _ in choices]
        for rows, X in blocks(self.X):
            y, p = self.y[rows], np.asarray(X @ w) + b
            value += float(self._weighted(self.loss.value(p, y), rows).sum())
            for k, choose in enumerate(choices):
                s = choose(rows, p, y)
                if not k:
                    steepness += float(np.abs(self._weighted(s, rows)).sum())
                up, down = scales[k]
                if up != 1 or down != 1:
                    s = np.where(s > 0, up, down) * s
                conjugate = self._weighted(self.loss.conjugate(s, y), rows)
                conjugates[k] += float(conjugate.sum())
                sizes[k] += float(np.abs(conjugate).sum())
                sizes[k] += float(np.abs(self._weighted(s, rows)).sum()) * self._offset
                slopes[k] += np.asarray(X.T @ self._weighted(s, rows), dtype=np.float64)
        if self._planes is not None:
            self.doubt = self._ulps * (value + steepness * (self._offset + abs(b))) / self.total
            for c, size, slope in zip(conjugates, sizes, slopes, strict=True):
                self._planes.add((-c - self._ulps * size) / self.total, slope / self.total)
        return value / self.total

    def _balance(
        self, choices: tuple[Slopes, ...], w: Vector, b: float
    ) -> list[tuple[float, float]]:
        """Return what the positive and the negative s are to be multiplied by."""
        if not self.intercept:
            return [(1.0, 1.0)] * len(choices)
        up, down = np.zeros(len(choices)), np.zeros(len(choices))
        for rows, X in blocks(self.X):
            y, p = self.y[rows], np.asarray(X @ w) + b
            for k, choose in enumerate(choices):
                s = self._weighted(choose(rows, p, y), rows)
                up[k] += s[s > 0].sum()
                down[k] -= s[s < 0].sum()
        return [
            (min(1.0, minus / plus) if plus else 1.0, min(1.0, plus / minus) if minus else 1.0)
            for plus, minus in zip(up.tolist(), down.tolist(), strict=True)
        ]

    def _weighted(self, values: Vector, rows: slice) -> Vector:
        return values if self.weights is None else values * self.weights[rows]


def largest_prediction(X: Matrix, constraint: ConvexSet) -> float:
    """Return a bound on Σ |x_ij w_j| over the set: the largest entry times the largest ‖w‖₁."""
    most = largest(X)
    if isinstance(constraint, Box):
        size = np.maximum(np.abs(constraint.lower), np.abs(constraint.upper))
        return most * float(np.broadcast_to(size, X.shape[1:]).sum())
    ones = np.ones(X.shape[1])
    return most * (abs(float(constraint.support(ones))) + abs(float(constraint.support(-ones))))


def unprovable(constraint: ConvexSet | None) -> str | None:
    """Say why no lower bound can be proved over this set; None where it can."""
    if constraint is None:
        return "there is no constraint, and only on a bounded set can a lower bound be proved"
    if not getattr(constraint, "bounded", True):
        return f"{constraint!r} is unbounded, and only on a bounded set can a bound be proved"
    return None


def blocks(X: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield the rows in blocks that share the matrix's memory."""
    n = X.shape[0]
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        if rows.stop - rows.start == n:
            yield rows, X
        elif isinstance(X, sparse.csr_array):
            first, last = X.indptr[rows.start], X.indptr[rows.stop]
            # Given to the constructor, parts of larger arrays would be copied.
            block = sparse.csr_array((rows.stop - start, X.shape[1]), dtype=X.dtype)
            block.data, block.indices = X.data[first:last], X.indices[first:last]
            block.indptr = X.indptr[start : rows.stop + 1] - first
            yield rows, block
        else:
            yield rows, X[rows]
