"""Small problems that several tests of the linear models train on."""

import numpy as np
from scipy import sparse
from scipy.optimize import linprog


def classes(n=60, d=6, seed=0, k=2, noise=1.0):
    """Return X and labels 0..k-1 of a noisy linear rule."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    scores = X @ rng.normal(size=(d, k)) + noise * rng.normal(size=(n, k))
    return X, scores.argmax(axis=1)


def numbers(n=60, d=6, seed=0, noise=0.5):
    """Return X and targets of a noisy linear rule with an offset."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ (rng.normal(size=d) / d) + 3.0 + noise * rng.normal(size=n)


def hinge_optimum(X, y, radius, *, weights=None, intercept=False):
    """Return the least weighted mean hinge loss on the l1 ball, by linear programming."""
    n, d = X.shape
    weights = np.ones(n) if weights is None else weights
    margins = sparse.diags_array(np.asarray(y, dtype=float)) @ sparse.csr_array(X)
    offset = sparse.csr_array(np.asarray(y, dtype=float)[:, None] * float(intercept))
    rows = sparse.hstack([-margins, margins, -sparse.eye_array(n), -offset])
    norm = sparse.csr_array(np.r_[np.ones(2 * d), np.zeros(n + 1)][None])
    solution = linprog(
        np.r_[np.zeros(2 * d), weights / weights.sum(), 0.0],
        A_ub=sparse.vstack([rows, norm]),
        b_ub=np.r_[-np.ones(n), radius],
        bounds=[(0, None)] * (2 * d + n) + [(None, None)],
        method="highs",
    )
    assert solution.status == 0
    return solution.fun
