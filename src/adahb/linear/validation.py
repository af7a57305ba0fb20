"""Rows set aside to decide when to stop, and the scores on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score

from adahb.linear.training import Score
from adahb.problems.linear import Matrix

Vector = NDArray[np.float64]


def split(
    groups: NDArray[np.intp], weights: Vector | None, fraction: float, *, seed: int
) -> tuple[NDArray[np.intp], Vector]:
    """Return the rows set aside, ``fraction`` of each group, and the weights of the training rows.

    Rows of weight zero are in neither; the rows set aside have weight zero.
    """
    generator = np.random.default_rng([seed, 0, 0])
    training = np.ones(groups.size) if weights is None else weights.copy()
    held = []
    for group in np.unique(groups):
        rows = generator.permutation(np.flatnonzero((groups == group) & (training > 0)))
        count = max(round(fraction * rows.size), 1)
        if count >= rows.size > 0:
            raise ValueError(
                f"validation_fraction must leave rows of every class to train on, got {fraction!r} "
                f"with {rows.size} rows"
            )
        held.append(rows[:count])
    chosen = np.sort(np.concatenate(held))
    training[chosen] = 0.0
    return chosen, training


def accuracy(X: Matrix, y: Vector, weights: Vector | None) -> Score:
    """Return the score of a model on targets of -1 and +1."""

    def score(w: Vector, b: float) -> float:
        predicted = np.where(np.asarray(X @ w) + b > 0, 1.0, -1.0)
        return float(accuracy_score(y, predicted, sample_weight=weights))

    return score


def r2(X: Matrix, y: Vector, weights: Vector | None) -> Score:
    """Return the score of a model on real targets."""

    def score(w: Vector, b: float) -> float:
        return float(r2_score(y, np.asarray(X @ w) + b, sample_weight=weights))

    return score
