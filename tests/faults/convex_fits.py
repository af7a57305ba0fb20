"""Fits on data at the ends of the floats: coefficients, gaps and errors, judged on their own.

A certified gap is held against models that a linear program finds, their objective summed in
fractions of integers: no model of the set may be better than the gap allows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning

from adahb import HeavyBallClassifier, HeavyBallRegressor
from adahb.linear import NoCertificateWarning

from .convex_sets import Outcomes, attempt, count, signs

LIMITED = {"hinge", "log_loss", "modified_huber", "absolute_error", "huber", "quantile"}
CLASSIFIER = ("hinge", "squared_hinge", "log_loss", "modified_huber")
REGRESSOR = ("squared_error", "absolute_error", "huber", "epsilon_insensitive", "quantile")
SOLVERS: tuple[dict[str, Any], ...] = (
    {"solver": "adahb"},
    {"solver": "adahb", "projection": "euclidean", "form": "paper"},
    {"solver": "adahb", "momentum": 0.9, "output": "average"},
    {"solver": "hb"},
    {"solver": "nag"},
    {"solver": "psg", "batch_size": 3},
)
Rows = Callable[[np.random.Generator, int, int], Any]
FEATURES: dict[str, Rows] = {
    "moderate": lambda rng, n, d: rng.standard_normal((n, d)),
    "constant": lambda rng, n, d: np.broadcast_to(rng.standard_normal(d), (n, d)).copy(),
    "all zero": lambda _, n, d: np.zeros((n, d)),
    "mostly zero": lambda rng, n, d: rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.2),
    "of 1e-300": lambda rng, n, d: 1e-300 * rng.standard_normal((n, d)),
    "denormal": lambda rng, n, d: 5e-324 * rng.integers(-9, 9, (n, d)),
    "of 1e38": lambda rng, n, d: np.clip(1e38 * rng.standard_normal((n, d)), -3e38, 3e38),
    "of 1e300": lambda rng, n, d: 1e300 * rng.uniform(-1, 1, (n, d)),
    "1e30 beside 1e-30": lambda rng, n, d: (
        signs(rng, (n, d)) * 10.0 ** rng.uniform(-30, 30, (1, d))
    ),
    "equal rows": lambda rng, n, d: np.repeat(rng.standard_normal((1, d)), n, axis=0),
}
TARGETS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "moderate": lambda rng, n: rng.standard_normal(n),
    "all equal": lambda rng, n: np.full(n, rng.standard_normal()),
    "all zero": lambda _, n: np.zeros(n),
    "about 1e16": lambda rng, n: 1e16 + 4 * rng.standard_normal(n),
    "of 1e-300": lambda rng, n: 1e-300 * rng.standard_normal(n),
    "of 1e38": lambda rng, n: 1e38 * rng.uniform(-1, 1, n),
    "of 1e300": lambda rng, n: 1e300 * rng.uniform(-1, 1, n),
}
WEIGHTS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "no": lambda _, __: None,
    "no ": lambda _, __: None,
    "whole": lambda rng, n: rng.integers(1, 4, n).astype(float),
    "1e300 as": lambda rng, n: 1e300 * rng.uniform(0.5, 1, n),
    "1e-300 as": lambda rng, n: 1e-300 * rng.uniform(0.5, 1, n),
    "1e20 beside 1e-20": lambda rng, n: 10.0 ** rng.uniform(-20, 20, n),
    "some zero": lambda rng, n: np.r_[1.0, 1.0, rng.integers(0, 2, n - 2)],
}
RADII = (1e-300, 1e-100, 1e-20, 1.0, 1.0, 1.0, 20.0, 1e20, 1e100, 1e300)


def wide_indices(X: Any) -> Any:
    """Return CSR with indices of 64 bits."""
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def untidy(X: Any) -> Any:
    """Return CSR with its columns in no order, zeros stored, and some entries in two halves."""
    n, d = X.shape
    columns = np.tile(np.r_[np.arange(d)[::-1], 0], n)
    values = np.concatenate([np.r_[row[::-1][:-1], row[0] / 2, row[0] - row[0] / 2] for row in X])
    return sparse.csr_array((values, columns, np.arange(n + 1) * (d + 1)), shape=(n, d))


FORMATS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda X: X,
    "in columns": np.asfortranarray,
    "CSR": sparse.csr_array,
    "CSR of 64-bit indices": wide_indices,
    "CSR, unsorted, with zeros and duplicates": untidy,
}


def exact_value(model: Any, X: Any, y: Any, weights: Any, w: Any, b: float) -> Fraction:
    """Return the objective of a piecewise linear loss at (w, b), without rounding."""
    total, size = Fraction(0), Fraction(0)
    exact = [Fraction(float(v)) for v in w], Fraction(float(b))
    for row, target, weight in zip(X, y, weights, strict=True):
        p = sum((Fraction(float(a)) * c for a, c in zip(row, exact[0], strict=True)), exact[1])
        target = Fraction(float(target))
        if model.loss == "hinge":
            loss = max(Fraction(0), 1 - target * p)
        else:
            q = Fraction(model.quantile) if model.loss == "quantile" else Fraction(1)
            down = 1 - q if model.loss == "quantile" else Fraction(1)
            loss = max(q * (target - p), down * (p - target))
        total += Fraction(float(weight)) * loss
        size += Fraction(float(weight))
    return total / size


def best(model: Any, X: Any, y: Any, weights: Any) -> tuple[Any, float] | None:
    """Return a model on the l1 ball that a linear program finds, shrunk into it; None if none."""
    n, d = X.shape
    hinge = model.loss == "hinge"
    q = 0.5 if model.loss != "quantile" else model.quantile
    scale = 1.0 if hinge else float(np.abs(y).max()) or 1.0
    columns = np.abs(X).max(axis=0)
    columns = np.where(columns > 0, columns, 1.0)
    unit = columns * model.radius / scale  # of one coefficient at the radius
    rows, ones = X / columns * unit, np.ones((n, 1))
    if hinge:
        rows, ones = rows * y[:, None], ones * y[:, None]
        A = np.hstack([-rows, rows, -ones, -np.eye(n)])
        limits, cost = -np.ones(n), weights / weights.sum()
        bounds = [(0, None)] * (2 * d) + [(None, None)] + [(0, None)] * n
    else:
        up, down = np.hstack([rows, -rows, ones]), np.eye(n)
        A = np.vstack([np.hstack([-up, -down / q]), np.hstack([up, -down / (1 - q)])])
        limits, cost = np.r_[-y / scale, y / scale], weights / weights.sum()
        bounds = [(0, None)] * (2 * d) + [(None, None)] + [(0, None)] * n
    A = np.vstack([A, np.r_[np.ones(2 * d), np.zeros(n + 1)]])
    solution = linprog(
        np.r_[np.zeros(2 * d + 1), cost], A_ub=A, b_ub=np.r_[limits, 1.0], bounds=bounds,
        method="highs",
    )  # fmt: skip
    if solution.x is None:
        return None
    w = (solution.x[:d] - solution.x[d : 2 * d]) * model.radius
    w = w * min(1.0, model.radius * (1 - 1e-15) / (np.abs(w).sum() or 1.0))
    return w, float(solution.x[2 * d]) * (1.0 if hinge else scale)


def judge(model: Any, X: Any, y: Any, weights: Any) -> str | None:
    """Say what is wrong with a fitted model of two classes or of a regression."""
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        return f"coefficients {model.coef_} {model.intercept_}"
    if not np.isfinite(model.history_["objective"]).all():
        return f"objective {model.history_['objective']}"
    excess = np.abs(model.coef_).sum() / model.radius - 1 if model.constraint == "l1" else 0.0
    if excess > 1e-9:
        return f"outside of the ball by {excess}"
    if math.isnan(model.gap_):
        return None if model.constraint in ("nonneg", None) else "no gap on a bounded set"
    if model.gap_ < 0:
        return f"gap {model.gap_}"
    if model.constraint != "l1" or model.loss not in ("hinge", "absolute_error", "quantile"):
        return None
    weights = np.ones(len(y)) if weights is None else weights
    rival = best(model, X, y, weights)
    mine = exact_value(
        model, X, y, weights, np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    )
    if rival is not None and model.fit_intercept:
        theirs = exact_value(model, X, y, weights, *rival)
        if mine - theirs > Fraction(model.gap_):
            return f"gap {model.gap_}, but it is {float(mine - theirs)} with {rival}"
    return None


def data(rng: np.random.Generator, classes: bool) -> tuple[str, Any, Any, str]:
    """Return a kind of rows, the rows, the targets and what they are called."""
    n, d = int(rng.integers(6, 25)), int(rng.integers(1, 5))
    features, targets = str(rng.choice(list(FEATURES))), str(rng.choice(list(TARGETS)))
    X = FEATURES[features](rng, n, d)
    if rng.random() < 0.25 and np.abs(X).max() < 3.4e38:
        X = X.astype(np.float32)
    if classes:
        return features, X, np.where(np.arange(n) < 2, [-1.0, 1.0] * (n // 2) + [1.0] * (n % 2),
                                     signs(rng, (n,))), "classes"  # fmt: skip
    return features, X, TARGETS[targets](rng, n), targets


def tries(seed: int, *, every: bool = True) -> Iterator[tuple[str, str]]:
    """Make one fit; yield its kind and its outcome.

    Without ``every`` the rows are of the two layouts for which most tests compile the loops.
    """
    rng = np.random.default_rng([2, seed])
    classes = bool(rng.random() < 0.5)
    features, X, y, targets = data(rng, classes)
    chosen = str(rng.choice(list(WEIGHTS)))
    weights, layout = WEIGHTS[chosen](rng, len(y)), str(rng.choice(list(FORMATS)))
    if not every:
        X, layout = X.astype(np.float64), "dense" if seed % 2 else "CSR"
    loss = str(rng.choice(CLASSIFIER if classes else REGRESSOR))
    constraint = [None, "l1", "l1", "l1", "l2", "linf", "simplex", "nonneg"][rng.integers(8)]
    radius = float(rng.choice(RADII))
    options = {
        **SOLVERS[rng.integers(len(SOLVERS))],
        "loss": loss,
        "constraint": constraint,
        "radius": radius,
        "max_iter": int(rng.choice([1, 5, 40])),
        "step_size": ["auto", "auto", "auto", 1e-300, 1e-100, 1.0, 1e100, 1e300][rng.integers(8)],
        "fit_intercept": bool(rng.random() < 0.8),
        "random_state": int(seed),
    }
    make = HeavyBallClassifier if classes else HeavyBallRegressor
    model = make(**options)
    kind = f"{'classifier' if classes else 'regressor'}, {X.dtype} features {features}"
    what = (seed, kind, model, layout, targets, chosen, X, y, weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", NoCertificateWarning)
        try:
            _, error = attempt(lambda: model.fit(FORMATS[layout](X), y, weights))
        except FloatingPointError as overflow:
            error = str(overflow)
        except Exception as wrong:
            raise AssertionError((repr(wrong), what)) from wrong
    if error:
        assert explained(error, model, X, y), (error, what)
        yield kind, "clear error"
        return
    wrong = judge(model, np.asarray(X, dtype=np.float64), y, weights)
    assert wrong is None, (wrong, what)
    yield kind, "right answer"


def explained(error: str, model: Any, X: Any, y: Any) -> bool:
    """Tell whether an error names what is at fault, and whether that is at fault."""
    if error.startswith(("The 'radius' parameter", "The 'step_size' parameter")):
        sizes = (model.radius, model.step_size)
        return any(s != "auto" and not 1e-100 <= s <= 1e100 for s in sizes)
    if error.startswith("X must hold numbers of at most"):
        return bool(np.abs(X).max() > 1e40)
    if error.startswith("y must hold numbers of at most"):
        return bool(np.abs(y).max() > 1e40)
    if "have left" in error:
        return bool(model.step_size != "auto" and model.step_size > 1.0)
    diverging = model.loss not in LIMITED or model.constraint in (None, "nonneg")
    large = np.abs(X).max() > 1e15 or model.radius > 1e15 or np.abs(y).max() > 1e15
    large = large or (model.step_size != "auto" and model.step_size > 1e15)
    if "is not finite at step" in error:
        return bool(diverging or large)
    return "the objective is" in error and bool(diverging or large)


def run(fits: int, first: int = 0, *, every: bool = True) -> Outcomes:
    """Make so many fits, see `tries`; return the outcomes by kind."""
    rows: Outcomes = {}
    for seed in range(first, first + fits):
        for kind, outcome in tries(seed, every=every):
            count(rows, kind, outcome)
    return rows
