"""Estimators on data at the ends of the floats and of strange types: right, or refused by name."""

import math

import numpy as np
import pytest
from linear.problems import classes, numbers
from scipy import sparse

from adahb import HeavyBallClassifier, HeavyBallRegressor, sets
from adahb.linear import Machine
from adahb.linear.certificate import Certificate
from adahb.problems import losses
from adahb.schedules import HB, PSG

SHORT = {"max_iter": 3, "tol": None, "random_state": 0}
X, Y = classes(n=30, d=3)


def classifier(**options):
    return HeavyBallClassifier(**{**SHORT, **options})


def regressor(**options):
    return HeavyBallRegressor(**{**SHORT, **options})


def put(value):
    """Return the rows with one number replaced."""
    rows = X.copy()
    rows[4, 1] = value
    return rows


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: classifier().fit(put(np.nan), Y), "Input X contains NaN"),
        (lambda: classifier().fit(sparse.csr_array(put(np.inf)), Y), "Input X contains infinity"),
        (lambda: regressor().fit(X, np.full(30, np.inf)), "Input y contains infinity"),
        (lambda: regressor().fit(X, np.r_[np.nan, Y[1:]]), "Input y contains NaN"),
        (lambda: classifier().fit(X, Y, np.r_[np.nan, Y[1:]]), "sample_weight contains NaN"),
        (lambda: classifier().fit(X, Y, -1.0), "sample_weight must be at least 0"),
        (lambda: classifier().fit(X, Y, np.zeros(30)), "sample_weight must be .* not all zero"),
        (lambda: classifier().fit(X, 0 * Y), "y must hold at least two classes"),
        (lambda: classifier().fit(X, Y + 0.5), "Unknown label type"),
        (lambda: classifier().fit(X, Y + 1j), "Complex data not supported|Unknown label type"),
        (lambda: classifier().fit(put(1e300), Y), "X must hold numbers of at most 1e[+]40 in size"),
        (lambda: regressor().fit(X, 1e300 * Y), "y must hold numbers of at most 1e[+]40 in size"),
        (lambda: classifier(radius=1e-300).fit(X, Y), "'radius' parameter .* Got 1e-300"),
        (lambda: classifier(radius=1e300).fit(X, Y), "'radius' parameter .* Got 1e[+]300"),
        (lambda: classifier(step_size=1e300).fit(X, Y), "'step_size' parameter .* Got 1e[+]300"),
        (lambda: regressor(loss="huber", epsilon=0).fit(X, Y), "epsilon must be > 0 with loss='h"),
        (
            lambda: classifier(constraint=sets.L1Ball(1e300)).fit(X, Y),
            "constraint must have a size between 1e-100 and 1e[+]100, got L1Ball",
        ),
        (
            lambda: Machine(X, 2 * Y - 1, "hinge", HB(alpha=1e200)),
            "schedule must have a size between 1e-100 and 1e[+]100, got HB",
        ),
    ],
    ids=range(18),
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_only_the_ratios_of_weights_matter():
    weights = np.random.default_rng(0).uniform(0.5, 1, 30)
    model = classifier(max_iter=20).fit(X, Y, weights)
    for unit in (2.0**-990, 2.0**990):
        other = classifier(max_iter=20).fit(X, Y, weights * unit)
        assert other.gap_ == pytest.approx(model.gap_, rel=0.5)
        assert np.isfinite(other.coef_).all()
    whole = regressor().fit(X, Y, np.full(30, 1e300))
    assert np.isfinite(whole.coef_).all()
    assert 0 <= whole.gap_ < math.inf


@pytest.mark.parametrize(
    "rows", [np.zeros((30, 3)), np.ones((30, 3)), 1e-300 * X, 5e-324 * (X > 0)]
)
def test_features_that_tell_nothing(rows):
    """The step size is that of a unit bound, and the best constant is proved best."""
    for form in (np.asarray, sparse.csr_array):
        for solver in ("adahb", "hb"):
            model = regressor(solver=solver, loss="absolute_error", max_iter=300, tol=0.05)
            model.fit(form(rows), Y)
            assert math.isfinite(model.gap_)
            assert np.abs(Y - model.predict(rows)).mean() <= 0.5


def test_single_precision_features_near_its_largest_number():
    rows = (1e38 * np.sign(X)).astype(np.float32)
    model = classifier(max_iter=30).fit(rows, Y)
    assert np.isfinite(model.history_["objective"]).all()
    assert np.isfinite(model.decision_function(rows)).all()


def test_predictions_that_overflow_are_refused():
    model = regressor().fit(X, Y)
    model.coef_ = np.full(3, 1e50)
    with pytest.raises(
        ValueError, match="X must hold numbers whose predictions are floats, got 1e"
    ):
        model.predict(np.full((2, 3), 1e300))


def test_steps_far_beyond_the_set_are_refused():
    """An l1 ball of radius one is lost in the rounding of steps of 1e90."""
    options = {"solver": "psg", "step_size": 1e90, "loss": "modified_huber", "max_iter": 5}
    try:
        model = classifier(**options).fit(X, Y)
    except FloatingPointError as error:
        assert "choose a smaller step size" in str(error)  # noqa: PT017 - either is right
    else:
        assert sets.L1Ball(1).contains(model.coef_.ravel())


def test_huge_steps_through_partial_fit_are_refused_too():
    model = classifier(solver="psg", step_size=1e90, loss="modified_huber")
    try:
        model.partial_fit(X, Y, classes=[0, 1])
    except FloatingPointError as error:
        assert "choose a smaller step size" in str(error)  # noqa: PT017 - either is right
    else:
        assert sets.L1Ball(1).contains(model.coef_.ravel())


def test_gaps_are_proved_where_targets_cancel():
    """About 1e16 a float is known to 2: the objective has an error as large, and so the gap."""
    rows, y = numbers(n=30, d=3)
    y = 1e16 + 4 * np.round(y)
    certificate = Certificate(
        rows, y, losses.get("absolute_error"), sets.L1Ball(1.0), intercept=True
    )
    certificate.visit(np.zeros(3), 1e16, np.zeros(30), np.zeros(30, dtype=np.int32))
    assert certificate.doubt > 1
    small = Certificate(rows, y - 1e16, losses.get("absolute_error"), sets.L1Ball(1.0))
    small.visit(np.zeros(3), 0.0, np.zeros(30), np.zeros(30, dtype=np.int32))
    assert small.doubt < 1e-12


def test_an_objective_that_overflows_is_refused():
    rows, y = numbers(n=20, d=2)
    model = regressor(constraint=None, solver="psg", step_size=1e90, tol=None, max_iter=2)
    with pytest.raises(FloatingPointError, match=r"not finite at step|the objective is"):
        model.fit(1e20 * rows, 1e20 * y)


def test_the_longest_training_ends_where_it_is_proved():
    model = classifier(max_iter=10**18, tol=0.9).fit(X, Y)
    assert model.n_iter_ < 10_000


def test_strange_types_are_read_for_what_they_are(tmp_path):
    import pandas as pd

    whole = np.sign(X)
    model = classifier().fit(whole, Y)
    mapped = np.memmap(tmp_path / "X", dtype=np.float64, mode="w+", shape=whole.shape)
    mapped[:] = whole
    mapped.flush()
    forms = [
        whole.astype(kind) for kind in (np.int8, np.int64, np.float16, np.longdouble, object)
    ] + [
        np.memmap(tmp_path / "X", dtype=np.float64, mode="r", shape=whole.shape),
        np.repeat(whole, 2, axis=1)[:, ::2],
        whole[::-1][::-1],
        pd.DataFrame(whole),
        whole.tolist(),
    ]
    for form in forms:
        other = classifier().fit(form, Y)
        np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-12)
    truth = classifier().fit(whole > 0, Y)
    np.testing.assert_allclose(
        truth.coef_, classifier().fit((whole > 0).astype(float), Y).coef_, rtol=1e-12
    )


def test_untidy_sparse_rows():
    n, d = X.shape
    columns = np.tile(np.r_[np.arange(d)[::-1], 0], n)
    values = np.concatenate([np.r_[row[::-1][:-1], row[0] / 2, row[0] / 2] for row in X])
    untidy = sparse.csr_array((values, columns, np.arange(n + 1) * (d + 1)), shape=(n, d))
    for solver in ("adahb", "psg"):
        a = classifier(solver=solver, step_size=0.1, shuffle=False).fit(X, Y)
        b = classifier(solver=solver, step_size=0.1, shuffle=False).fit(untidy, Y)
        np.testing.assert_allclose(b.coef_, a.coef_, rtol=1e-9, atol=1e-13)


def test_labels_of_every_type():
    for labels in (Y.astype(bool), np.array(["b", "a"])[Y], Y * 2**40):
        model = classifier().fit(X, labels)
        assert set(model.predict(X)) <= set(labels)


def test_a_machine_refuses_bad_rows():
    with pytest.raises(ValueError, match="X must hold numbers of at most"):
        Machine(1e50 * X, 2 * Y - 1, "hinge", PSG(alpha=1.0))
    with pytest.raises(ValueError, match="y must hold numbers of at most"):
        Machine(X, 1e50 * Y, "squared_error", PSG(alpha=1.0))
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        Machine(X, 2 * Y - 1, "hinge", PSG(alpha=1.0), sample_weight=np.full(30, np.nan))
    with pytest.raises(ValueError, match="start must be finite"):
        Machine(X, 2 * Y - 1, "hinge", PSG(alpha=1.0), start=[0, np.nan, 0])
