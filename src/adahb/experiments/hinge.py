"""Hinge loss on an l1 ball for scikit-learn's own data sets, with its certified optimum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from adahb.problems import LinearObjective
from adahb.sets import L1Ball


@dataclass(frozen=True)
class Optimum:
    """``lower_bound <= f* <= value``, and the solution at which f has that value."""

    value: float
    lower_bound: float
    w: NDArray[np.float64]


@cache
def hinge(dataset: str) -> LinearObjective:
    """Mean hinge loss of a bundled data set, features standardised, no intercept.

    ``breast_cancer`` is malignant against benign, ``digits`` is 5 to 9 against 0 to 4.
    """
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{dataset}")(return_X_y=True)
    positive = y >= 5 if dataset == "digits" else y == 1
    deviation = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return LinearObjective(X, np.where(positive, 1.0, -1.0), "hinge")


@cache
def optimum(dataset: str, radius: float) -> Optimum:
    """Minimise the hinge loss on the l1 ball as a linear program, and certify what came out.

    With w = p - q and slacks ξ: min (1/n) Σ ξ_i, y_i⟨x_i, p - q⟩ + ξ_i ≥ 1, Σ(p + q) ≤ τ, all ≥ 0.
    The multipliers of the rows are the dual variables whose value bounds f* from below.
    """
    objective = hinge(dataset)
    n, d = objective.n, objective.dim
    A = objective.y[:, None] * np.asarray(objective.X)
    rows = np.vstack(
        [np.hstack([-A, A, -np.eye(n)]), np.concatenate([np.ones(2 * d), np.zeros(n)])[None]]
    )
    cost = np.concatenate([np.zeros(2 * d), np.full(n, 1 / n)])
    limits = np.append(-np.ones(n), radius)
    solution = linprog(cost, A_ub=rows, b_ub=limits, method="highs")
    if solution.status != 0 or solution.x is None:
        raise RuntimeError(f"the linear program of {dataset} was not solved: {solution.message}")
    ball = L1Ball(radius)
    w = np.asarray(ball.project(solution.x[:d] - solution.x[d : 2 * d]))
    multipliers = np.clip(-n * solution.ineqlin.marginals[:n], 0, 1)
    return Optimum(objective.value(w), objective.dual_value(-multipliers * objective.y, ball), w)
