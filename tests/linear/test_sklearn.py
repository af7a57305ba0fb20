"""scikit-learn's own conditions for an estimator, and its tools with ours."""

import pickle

import numpy as np
import pytest
from linear.problems import classes, numbers
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from adahb import HeavyBallClassifier, HeavyBallRegressor

SHORT = {"max_iter": 30, "tol": None}
SHORTER = {"max_iter": 8, "tol": None}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [
        HeavyBallClassifier(),
        HeavyBallClassifier("log_loss", "l2", radius=3.0, solver="hb", **SHORTER),
        HeavyBallClassifier("modified_huber", None, solver="psg", output="average", **SHORT),
        HeavyBallClassifier("squared_hinge", "linf", form="paper", batch_size=4, **SHORTER),
        HeavyBallRegressor(),
        HeavyBallRegressor("huber", "linf", epsilon=1.0, solver="nag", **SHORTER),
        HeavyBallRegressor("absolute_error", "box", lower=-1, upper=2, momentum=0.9, **SHORTER),
        HeavyBallRegressor("quantile", None, solver="hb", power=2, **SHORT),
    ]
)
def test_check_estimator(estimator, check):
    check(estimator)


def test_pipeline_and_grid_search():
    X, _ = classes(n=80)
    y = X[:, 0] > X[:, 1]
    pipeline = make_pipeline(StandardScaler(), HeavyBallClassifier(random_state=0, **SHORT))
    search = GridSearchCV(pipeline, {"heavyballclassifier__radius": [0.01, 3.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"heavyballclassifier__radius": 3.0}
    assert search.score(X, y) > 0.9


def test_other_metaestimators():
    X, y = numbers()
    scores = cross_val_score(HeavyBallRegressor(random_state=0, **SHORT), X, y, cv=3)
    assert scores.min() > 0.2
    X, y = classes(k=3)
    both = MultiOutputClassifier(HeavyBallClassifier(random_state=0, **SHORT))
    assert both.fit(X, np.column_stack([y, y > 0])).predict(X).shape == (y.size, 2)


def test_set_output_reaches_through_a_pipeline():
    pytest.importorskip("pandas")
    X, y = numbers()
    pipeline = make_pipeline(StandardScaler(), HeavyBallRegressor(random_state=0, **SHORT))
    pipeline.set_output(transform="pandas").fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == [f"x{j}" for j in range(X.shape[1])]


@pytest.mark.parametrize("k", [2, 3])
def test_clone_and_pickle(k):
    X, y = classes(k=k)
    model = HeavyBallClassifier(random_state=0, **SHORT).fit(X, y)
    again = clone(model)
    assert not hasattr(again, "coef_")
    np.testing.assert_array_equal(again.fit(X, y).coef_, model.coef_)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded.partial_fit(X, y).coef_, model.partial_fit(X, y).coef_)


def test_a_pickle_holds_no_data():
    X, y = numbers(n=2000)
    model = HeavyBallRegressor(random_state=0, max_iter=1, tol=None).fit(X, y)
    assert len(pickle.dumps(model)) < X.nbytes / 4
