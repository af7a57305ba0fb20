"""Regression whose coefficients must not be negative, robust to outliers.

Nonnegative coefficients are a cone, on which the objective has no computable lower bound here;
with an upper bound as well (a box) the same fit comes with a proof.

    python examples/nonnegative_regression.py
"""

import warnings

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from adahb.linear import HeavyBallRegressor, NoCertificateWarning


def main():
    X, y = load_diabetes(return_X_y=True)
    X, y = X / X.std(axis=0), (y - y.mean()) / y.std()
    y[::40] += 15  # a few labels are wrong
    common = {"loss": "huber", "fit_intercept": True, "max_iter": 300, "random_state": 0}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoCertificateWarning)
        cone = HeavyBallRegressor(constraint="nonneg", **common).fit(X, y)
    print(f"nonnegative: gap_ = {cone.gap_}, since the set is unbounded")
    box = HeavyBallRegressor(constraint="box", lower=0.0, upper=1.0, tol=1e-2, **common).fit(X, y)
    print(f"between 0 and 1: within {box.gap_:.4f} of the best, after {box.n_iter_} epochs")

    least_squares = LinearRegression(positive=True).fit(X, y)
    names = load_diabetes().feature_names
    print("          " + "".join(f"{name:>7}" for name in names))
    for label, model in (("box", box), ("cone", cone), ("least sq.", least_squares)):
        print(f"{label:10}" + "".join(f"{w:7.2f}" for w in np.ravel(model.coef_)))


if __name__ == "__main__":
    main()
