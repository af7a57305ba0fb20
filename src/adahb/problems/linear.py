"""Empirical risk of a linear model, with what a certificate needs of it."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from adahb.problems import losses
from adahb.problems.base import Rows, Supported, Vector, array, support, vector
from adahb.problems.losses import Loss

Matrix: TypeAlias = "NDArray[Any] | sparse.csr_array[Any]"


class LinearObjective:
    """f(w) = (1/n) Σ_i loss(⟨x_i, w⟩, y_i) for the rows x_i of a dense or CSR matrix X.

    Float32 and float64 data are kept as they are, without a copy; other sparse formats are
    converted to CSR and other numbers to float64, once.  All results are float64.

    ``rows`` of the methods is the index of one sample or an array of indices, repeats allowed.

    >>> f = LinearObjective([[1.0, 0.0], [0.0, 2.0]], [1, -1], "hinge")
    >>> f.value_and_subgradient([0.5, 0.5])
    (1.25, array([-0.5,  1. ]))
    >>> f.sample_subgradient([0.5, 0.5], 1)
    array([0., 2.])
    """

    def __init__(self, X: ArrayLike | Matrix, y: ArrayLike, loss: str | Loss) -> None:
        self.loss = losses.get(loss)
        self.X = _matrix(X)
        self.n, self.dim = self.X.shape
        self.y = _targets(y, self.n, self.loss)

    def __repr__(self) -> str:
        return f"LinearObjective(n={self.n}, dim={self.dim}, loss={self.loss!r})"

    def _predictions(self, w: ArrayLike) -> Vector:
        return np.asarray(self.X @ vector("w", w, self.dim))

    def value(self, w: ArrayLike) -> float:
        """Return f(w)."""
        return float(self.loss.value(self._predictions(w), self.y).mean())

    def subgradient(self, w: ArrayLike) -> Vector:
        """Return (1/n) Σ loss′(⟨x_i, w⟩, y_i) x_i."""
        return self.value_and_subgradient(w)[1]

    def value_and_subgradient(self, w: ArrayLike) -> tuple[float, Vector]:
        """Return both from one pass of predictions."""
        p = self._predictions(w)
        value = float(self.loss.value(p, self.y).mean())
        return value, self._mean(self.X, self.loss.derivative(p, self.y))

    def derivatives(self, w: ArrayLike, rows: Rows) -> Vector:
        """Return loss′(⟨x_i, w⟩, y_i) for the samples in ``rows``, in the shape of ``rows``.

        They serve twice: `combine` makes the stochastic subgradient of them, and their means over
        the visits of each sample are a point for `dual_value`.
        """
        y = self.y[rows]
        p = np.asarray(self._take(rows) @ vector("w", w, self.dim))
        return self.loss.derivative(p.reshape(y.shape), y)

    def combine(self, derivatives: ArrayLike, rows: Rows) -> Vector:
        """Return the mean over ``rows`` of derivative_i · x_i."""
        X = self._take(rows)
        return self._mean(X, vector("derivatives", np.atleast_1d(derivatives), X.shape[0]))

    def sample_subgradient(self, w: ArrayLike, rows: Rows) -> Vector:
        """Return a subgradient of the mean of f_i over ``rows``; for CSR it costs those rows."""
        return self.combine(self.derivatives(w, rows), rows)

    def dual_value(self, s: ArrayLike, constraint: Supported | None) -> float:
        """Return D(s) = −(1/n) Σ loss*(s_i, y_i) − σ_Q(−(1/n) Xᵀs), a lower bound of f on Q.

        Fenchel-Young, loss(p, y_i) ≥ s_i p − loss*(s_i, y_i) at p = ⟨x_i, w⟩, gives
        f(w) ≥ ⟨(1/n) Xᵀs, w⟩ − (1/n) Σ loss*(s_i, y_i), and ⟨g, w⟩ ≥ −σ_Q(−g) for w in Q.

        It holds for *any* s, and at the best s it is the minimum itself.  −∞ says that an s_i is
        outside the conjugate's domain or that the support function is infinite.
        """
        s = self.loss.snap(vector("s", s, self.n), self.y)
        if not np.isfinite(s).all():
            raise ValueError("s must be finite, got NaN or infinite entries")
        conjugate = float(self.loss.conjugate(s, self.y).mean())
        if not math.isfinite(conjugate):
            return -math.inf
        slope = self._mean(self.X, s)
        bound = -conjugate - support(constraint, -slope) if np.isfinite(slope).all() else -math.inf
        return bound if math.isfinite(bound) else -math.inf

    def lipschitz(self, constraint: Supported | None = None) -> float:
        """Return (1/n) Σ L_i‖x_i‖, a bound on the norm of every subgradient over Q.

        L_i is the loss's constant.  A loss without one (squared, squared hinge) has
        L_i = max |loss′| over the predictions that Q allows, −σ_Q(−x_i) ≤ p ≤ σ_Q(x_i); the
        derivative is monotone, so both ends decide.  That takes 2n support functions.
        """
        return float(self._sample_bounds(constraint).mean())

    def sample_lipschitz(self, constraint: Supported | None = None) -> float:
        """Return √((1/n) Σ (L_i‖x_i‖)²), the root mean square of one sample's bound over Q."""
        return float(np.sqrt(np.mean(self._sample_bounds(constraint) ** 2)))

    def _sample_bounds(self, constraint: Supported | None) -> Vector:
        """Return L_i‖x_i‖ for every sample."""
        norms = _row_norms(self.X)
        if math.isfinite(self.loss.lipschitz):
            return self.loss.lipschitz * norms
        return self._steepest(constraint) * norms

    def _steepest(self, constraint: Supported | None) -> Vector:
        """Return the largest |loss′| of each sample over the predictions that Q allows."""
        ends = np.empty((2, self.n))
        for i in range(self.n):
            x = self._dense_row(i)
            ends[:, i] = -support(constraint, -x), support(constraint, x)
        if not np.isfinite(ends).all():
            raise ValueError(
                f"constraint must bound every prediction, since {self.loss!r} has no Lipschitz "
                f"constant of its own, got {constraint!r}"
            )
        steepest: Vector = np.abs(self.loss.derivative(ends, self.y)).max(axis=0)
        return steepest

    def _take(self, rows: Rows) -> Matrix:
        """Return the samples in ``rows`` as a matrix, also for a single index."""
        rows = np.atleast_1d(rows)
        if rows.ndim != 1 or not rows.size:
            raise ValueError(f"rows must be an index or a non-empty vector of them, got {rows!r}")
        taken: Matrix = self.X[rows]
        return taken

    def _dense_row(self, i: int) -> Vector:
        row = self._take(i)
        dense = row.toarray() if isinstance(row, sparse.csr_array) else row
        return np.asarray(dense[0], dtype=np.float64)

    @staticmethod
    def _mean(X: Matrix, s: Vector) -> Vector:
        """Return (1/n) Xᵀs, n being the length of ``s``."""
        return np.asarray(X.T @ s, dtype=np.float64) / s.size


def _matrix(X: ArrayLike | Matrix) -> Matrix:
    """Return ``X`` as a finite dense or CSR matrix of float32 or float64."""
    matrix: Matrix = sparse.csr_array(X) if sparse.issparse(X) else array("X", X)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(
            f"X must be a non-empty matrix, samples by features, got shape {matrix.shape}"
        )
    if matrix.dtype.kind not in "fiub":
        raise TypeError(f"X must hold real numbers, got dtype {matrix.dtype}")
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    values = matrix.data if isinstance(matrix, sparse.csr_array) else matrix
    if not np.isfinite(values).all():
        raise ValueError("X must be finite, got NaN or infinite entries")
    return matrix


def _targets(y: ArrayLike, n: int, loss: Loss) -> Vector:
    """Return ``y`` as finite float64 targets, for a classification loss all −1 or +1."""
    targets = vector("y", y, n)
    if not np.isfinite(targets).all():
        raise ValueError("y must be finite, got NaN or infinite entries")
    if loss.classification and not (np.abs(targets) == 1).all():
        found = np.unique(targets)[:5].tolist()
        raise ValueError(f"y must hold only -1 and +1 for {loss!r}, got the values {found}")
    return targets


def _row_norms(X: Matrix) -> Vector:
    """Return ‖x_i‖₂ of every row, summed in float64; ``power`` adds repeated entries first."""
    if isinstance(X, sparse.csr_array):
        squares = X.astype(np.float64).power(2).sum(axis=1)
    else:
        squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return np.sqrt(np.asarray(squares, dtype=np.float64))
