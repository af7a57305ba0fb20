"""The exact minimum: equal to the plain linear program, certified, whatever the guess."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from adahb import HeavyBallClassifier
from adahb.experiments import minimum
from adahb.experiments.hinge import hinge, optimum
from adahb.experiments.minimum import minimise
from adahb.problems import LinearObjective
from adahb.sets import L1Ball


@pytest.mark.parametrize(("dataset", "radius"), [("breast_cancer", 1.0), ("digits", 5.0)])
@pytest.mark.parametrize("guess", ["zero", "random", "solution"])
def test_equal_to_the_plain_program(dataset, radius, guess, monkeypatch):
    monkeypatch.setattr(minimum, "_WIDTH", 20)  # much is left out at first
    objective, plain = hinge(dataset), optimum(dataset, radius)
    start = {
        "zero": np.zeros(objective.dim),
        "random": np.random.default_rng(0).normal(size=objective.dim),
        "solution": plain.w,
    }[guess]
    found = minimise(objective, radius, start)
    assert found.value == pytest.approx(plain.value, abs=1e-10)
    assert abs(found.value - found.lower_bound) <= 1e-11
    assert L1Ball(radius).contains(found.w)
    assert objective.value(found.w) == found.value


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 25), st.floats(0.01, 30.0))
def test_certified_on_random_problems(seed, n, d, radius):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(rng.random((n, d)) * (rng.random((n, d)) < 0.4))
    objective = LinearObjective(X, rng.choice([-1.0, 1.0], n), "hinge")
    found = minimise(objective, radius, rng.normal(size=d))
    assert abs(found.value - found.lower_bound) <= 1e-8
    assert L1Ball(radius).contains(found.w)


def test_data_without_features_in_use():
    objective = LinearObjective(np.zeros((3, 2)), [1, -1, 1], "hinge")
    assert minimise(objective, 1.0, np.zeros(2)).value == 1.0


def test_what_it_refuses(monkeypatch):
    objective = LinearObjective([[1.0]], [1], "squared_hinge")
    with pytest.raises(TypeError, match="objective must have the hinge loss, got SquaredHinge"):
        minimise(objective, 1.0, np.zeros(1))
    monkeypatch.setattr(minimum, "_WIDTH", 2)
    with pytest.raises(RuntimeError, match="no certified minimum after 1 programs"):
        minimise(hinge("digits"), 5.0, np.zeros(64), rounds=1)


@pytest.mark.parametrize(
    ("name", "radius", "expected"),
    [("a9a", 20.0, 0.352046831), ("w8a", 30.0, 0.193645093), ("ijcnn1", 10.0, 0.194158832)],
)
def test_real_data(data_home, name, radius, expected):
    """The minimum proves itself, and no certified gap of an estimator is below the true one."""
    from adahb.data import load_libsvm

    data = load_libsvm(name, data_home)
    objective = LinearObjective(data.X, data.y, "hinge")
    found = minimise(objective, radius, np.zeros(objective.dim))
    assert found.value - found.lower_bound <= 1e-11
    assert found.value == pytest.approx(expected, abs=1e-8)
    for solver in ("adahb", "hb"):
        model = HeavyBallClassifier(
            radius=radius, solver=solver, fit_intercept=False, max_iter=6, tol=None, random_state=0
        ).fit(data.X, data.y)
        true = model.history_["objective"] - found.value
        assert (true >= -1e-12).all()
        assert (model.history_["gap"] >= true - 1e-12).all()
        assert model.gap_ < 0.03
