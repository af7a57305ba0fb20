"""Weights of stacked models on the simplex: nonnegative, with sum one, proved best.

Each column is the out-of-fold prediction of one model.  On the simplex the blend is a weighted mean
of the models, needs no intercept, and leaves useless models out.

    python examples/stacking_weights.py
"""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from adahb.linear import HeavyBallRegressor


def main():
    X, y = load_diabetes(return_X_y=True)
    models = {
        "ridge": make_pipeline(StandardScaler(), Ridge(alpha=10.0)),
        "forest": RandomForestRegressor(50, min_samples_leaf=5, random_state=0),
        "neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor(15)),
        "one tree": DecisionTreeRegressor(random_state=0),
    }
    out_of_fold = np.column_stack([cross_val_predict(m, X, y, cv=5) for m in models.values()])
    scale = y.std()
    blend = HeavyBallRegressor(
        loss="absolute_error",
        constraint="simplex",
        fit_intercept=False,
        tol=2e-3,
        max_iter=2000,
        random_state=0,
    ).fit(out_of_fold / scale, y / scale)
    for name, weight, column in zip(models, np.ravel(blend.coef_), out_of_fold.T, strict=True):
        print(f"{name:11} weight {weight:.3f}, alone {np.abs(column - y).mean():.2f}")
    error = np.abs(out_of_fold @ np.ravel(blend.coef_) - y).mean()
    print(
        f"the blend {error:.2f}; no other weights are better by more than {blend.gap_ * scale:.2f}"
    )


if __name__ == "__main__":
    main()
