"""What the two estimators promise: equalities between ways of saying the same thing."""

import math

import numpy as np
import pytest
from linear.problems import classes, hinge_optimum, numbers
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from adahb import HeavyBallClassifier, HeavyBallRegressor, reference, schedules, sets
from adahb.linear import Machine, NoCertificateWarning
from adahb.problems import Function, LinearObjective

SHORT = {"max_iter": 4, "tol": None, "random_state": 0}
SOLVERS = [
    {"solver": "adahb"},
    {"solver": "adahb", "projection": "euclidean", "form": "paper"},
    {"solver": "hb", "momentum": 0.5, "output": "average"},
    {"solver": "nag"},
    {"solver": "psg", "batch_size": 3},
]


def classifier(**options):
    return HeavyBallClassifier(**{**SHORT, **options})


def regressor(**options):
    return HeavyBallRegressor(**{**SHORT, **options})


def assert_same(a, b, **tolerance):
    np.testing.assert_allclose(a.coef_, b.coef_, **tolerance)
    np.testing.assert_allclose(a.intercept_, b.intercept_, **tolerance)


class TestEqualities:
    @pytest.mark.parametrize("options", SOLVERS, ids=str)
    def test_weights_are_repetitions(self, options):
        X, y = classes(n=30, k=3)
        rng = np.random.default_rng(0)
        counts = rng.integers(0, 4, y.size)
        weighted = classifier(class_weight="balanced", **options)
        repeated = classifier(class_weight="balanced", **options)
        p = rng.permutation(counts.sum())
        repeated.fit(np.repeat(X, counts, axis=0)[p], np.repeat(y, counts)[p])
        assert_same(weighted.fit(X, y, counts), repeated, rtol=1e-9)

    def test_weights_are_repetitions_in_a_regression(self):
        X, y = numbers(n=30)
        counts = np.random.default_rng(0).integers(0, 4, y.size)
        for loss in ("squared_error", "quantile"):
            weighted = regressor(loss=loss).fit(X, y, counts)
            repeated = regressor(loss=loss).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
            assert_same(weighted, repeated, rtol=1e-9)

    def test_other_weights_minimise_the_weighted_objective(self):
        X, y = classes(n=40, seed=2)
        weights = np.random.default_rng(1).uniform(0.1, 3, y.size)
        model = classifier(radius=2.0, max_iter=3000, tol=1e-2).fit(X, y, weights)
        true = hinge_optimum(X, 2 * y - 1, 2.0, weights=weights, intercept=True)
        reached = np.average(
            np.maximum(0, 1 - (2 * y - 1) * model.decision_function(X)), weights=weights
        )
        assert reached == pytest.approx(model.history_["objective"][-1])
        assert 0 <= reached - true <= model.gap_ + 1e-9
        assert model.gap_ <= 1e-2 * reached

    @pytest.mark.parametrize("options", SOLVERS, ids=str)
    def test_a_fit_is_a_loop_of_partial_fits(self, options):
        X, y = classes(n=30, k=3)
        for shuffle in (True, False):
            whole = classifier(shuffle=shuffle, **options).fit(X, y)
            parts = classifier(shuffle=shuffle, **options)
            for _ in range(4):
                parts.partial_fit(X, y, classes=np.arange(3))
            assert_same(parts, whole, rtol=1e-12)
            assert parts.t_ == whole.t_ == 4 * math.ceil(30 / options.get("batch_size", 1))
            assert np.isnan(parts.gap_).all()

    def test_pieces_of_a_stream_are_visited_one_after_the_other(self):
        X, y = numbers(n=40)
        whole = regressor(shuffle=False, step_size=0.1, max_iter=1, fit_intercept=False).fit(X, y)
        parts = regressor(shuffle=False, step_size=0.1, fit_intercept=False)
        for start in range(0, 40, 8):
            parts.partial_fit(X[start : start + 8], y[start : start + 8])
        assert_same(parts, whole, rtol=1e-12)

    def test_permuted_rows_and_columns(self):
        X, y = classes(n=40)
        model = classifier().fit(X, y)
        rng = np.random.default_rng(0)
        p, q = rng.permutation(40), rng.permutation(X.shape[1])
        assert_same(classifier().fit(X[p], y[p]), model, rtol=0)
        permuted = classifier().fit(X[:, q], y)
        np.testing.assert_allclose(permuted.coef_, model.coef_[:, q], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_dense_and_sparse(self, dtype):
        X, y = classes(n=40, k=3)
        X = X.astype(dtype)
        model = classifier().fit(X, y)
        long = sparse.csr_array(X)
        long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
        others = (np.asfortranarray(X), sparse.csc_matrix(X), sparse.coo_array(X), long)
        for other in others:
            assert_same(classifier().fit(other, y), model, rtol=1e-8, atol=1e-11)
        assert model.coef_.dtype == np.float64

    def test_full_batches_are_the_reference(self):
        X, y = numbers(n=30)
        options = {"step_size": 0.3, "batch_size": 30, "max_iter": 25, "fit_intercept": False}
        for gamma in (1.0, 0.3):
            model = regressor(solver="adahb", gamma=gamma, **options).fit(X, y)
            run = reference.run(
                LinearObjective(X, y, "squared_error"),
                25,
                schedules.AdaHB(alpha=0.3, gamma=gamma, power=4.0),
                constraint=sets.L1Ball(1.0),
            )
            np.testing.assert_allclose(model.coef_, run.state.point.w, rtol=1e-9, atol=1e-11)
            average = regressor(gamma=gamma, output="average", **options).fit(X, y)
            np.testing.assert_allclose(average.coef_, run.average, rtol=1e-9, atol=1e-11)

    @pytest.mark.parametrize("form", ["averaging", "paper"])
    def test_single_samples_are_the_reference(self, form):
        X, y = classes(n=20)
        target = np.where(y == 1, 1.0, -1.0)
        f, visits = LinearObjective(X, target, "hinge"), iter(list(range(20)) * 3)

        def gradient(w):
            return f.sample_subgradient(w, next(visits))

        objective = Function(X.shape[1], lambda _: 0.0, gradient)
        run = reference.run(
            objective,
            60,
            schedules.AdaHB(alpha=0.5, gamma=1.0, power=4.0),
            constraint=sets.L1Ball(1.0),
            form=form,
            record=100,
        )
        model = classifier(
            step_size=0.5, shuffle=False, max_iter=3, fit_intercept=False, form=form
        ).fit(X, y)
        np.testing.assert_allclose(model.coef_[0], run.state.point.w, rtol=1e-9, atol=1e-11)


class TestProof:
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("solver", ["adahb", "hb"])
    def test_tol_met_means_proved(self, intercept, solver):
        X, y = classes(n=50, seed=3)
        model = classifier(
            radius=3.0, max_iter=5000, tol=0.02, fit_intercept=intercept, solver=solver
        ).fit(X, y)
        true = hinge_optimum(X, 2 * y - 1, 3.0, intercept=intercept)
        objective = model.history_["objective"]
        assert model.gap_ <= 0.02 * objective[-1]
        assert objective[-1] - true <= model.gap_ + 1e-9
        assert (objective - true <= model.history_["gap"] + 1e-9).all()
        assert model.n_iter_ < 5000

    @pytest.mark.parametrize(
        ("loss", "options"),
        [
            ("squared_error", {}),
            ("absolute_error", {"constraint": "linf", "radius": 0.1}),
            ("huber", {"constraint": "l2"}),
            ("epsilon_insensitive", {"constraint": "simplex"}),
            ("quantile", {"constraint": "box", "lower": -0.1, "upper": 0.2}),
        ],
    )
    def test_regressions_are_certified(self, loss, options):
        X, y = numbers(n=50)
        model = regressor(loss=loss, max_iter=3000, tol=0.03, **options).fit(X, y)
        assert model.gap_ <= 0.03 * model.history_["objective"][-1]

    def test_max_iter_before_tol(self):
        X, y = classes()
        with pytest.warns(ConvergenceWarning, match=r"relative certified gap reached is \d"):
            model = classifier(max_iter=2, tol=1e-9).fit(X, y)
        assert model.n_iter_ == 2
        assert model.gap_ > 0

    @pytest.mark.parametrize("constraint", [None, "nonneg"])
    def test_no_bounded_set_no_certificate(self, constraint):
        X, y = numbers()
        with pytest.warns(NoCertificateWarning, match="bounded set"):
            model = regressor(constraint=constraint, tol=0.1).fit(X, y)
        assert math.isnan(model.gap_)
        assert model.n_iter_ == 4
        regressor(constraint=constraint).fit(X, y)  # and no warning where nothing was asked for

    def test_history(self):
        X, y = classes(k=3)
        model = classifier(max_iter=40).fit(X, y)
        assert len(model.history_) == 3
        for history, gap in zip(model.history_, model.gap_, strict=True):
            assert {v.size for v in history.values()} == {history["epoch"].size}
            assert history["epoch"][:17].tolist() == list(range(1, 18))
            assert history["epoch"][-1] == 40
            assert (np.diff(history["time"]) > 0).all()
            assert history["gap"][-1] == gap


class TestParameters:
    def test_sets_by_name_are_those_by_object(self):
        X, y = numbers()
        pairs = [
            ({"constraint": "l2", "radius": 2.0}, sets.L2Ball(2.0)),
            ({"constraint": "linf", "radius": 0.5}, sets.LinfBall(0.5)),
            ({"constraint": "simplex", "radius": 2.0}, sets.Simplex(2.0)),
            ({"constraint": "nonneg"}, sets.NonNegative()),
            ({"constraint": "box", "lower": 0, "upper": np.arange(6.0)}, sets.Box(0, np.arange(6))),
            ({"constraint": "box", "lower": -1.0}, sets.Box(-1, math.inf)),
        ]
        for options, constraint in pairs:
            model = regressor(**options).fit(X, y)
            assert_same(model, regressor(constraint=constraint).fit(X, y), rtol=0)
            assert constraint.contains(model.coef_, tol=1e-9)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"radius": 0.0}, "radius"),
            ({"solver": "adam"}, "solver"),
            ({"lower": 0.0}, "lower and upper must be None unless constraint='box'"),
            ({"solver": "nag", "momentum": 0.9}, "momentum must be None with solver='nag'"),
            ({"momentum": 0.9, "power": 1}, "power must be None with .* and momentum=0.9"),
            ({"constraint": "box", "lower": 1.0, "upper": 0.0}, "lower must not exceed upper"),
            ({"step_size": 0.0}, "step_size"),
            ({"gamma": 1.5}, "gamma"),
            ({"class_weight": {7: 1.0}}, "class_weight must have keys among the classes"),
            ({"class_weight": {0: -1.0}}, "class_weight must be finite and at least 0"),
        ],
    )
    def test_errors(self, options, message):
        X, y = classes()
        with pytest.raises(ValueError, match=message):
            classifier(**options).fit(X, y)

    @pytest.mark.parametrize(
        ("weights", "message"),
        [(np.ones(3), "shape"), (-np.ones(60), "at least 0"), (np.zeros(60), "not all zero")],
    )
    def test_errors_of_weights(self, weights, message):
        with pytest.raises(ValueError, match=message):
            classifier().fit(*classes(), weights)

    def test_errors_of_partial_fit(self):
        X, y = classes()
        with pytest.raises(ValueError, match="classes must be all the classes"):
            classifier().partial_fit(X, y)
        with pytest.raises(ValueError, match="at least two"):
            classifier().partial_fit(X, y, classes=[1])
        with pytest.raises(ValueError, match="'balanced'"):
            classifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1])
        model = classifier().partial_fit(X, y, classes=[0, 1])
        with pytest.raises(ValueError, match="those of the first call"):
            model.partial_fit(X, y, classes=[0, 2])
        with pytest.raises(ValueError, match="y must hold only the classes"):
            model.partial_fit(X, y + 1)

    def test_a_class_can_be_missing_from_a_call(self):
        X, y = classes(k=3)
        model = classifier().partial_fit(X[y == 1], y[y == 1], classes=[0, 1, 2])
        assert model.coef_.shape == (3, X.shape[1])

    def test_probabilities(self):
        for k in (2, 3):
            X, y = classes(k=k, n=90)
            for loss in ("log_loss", "modified_huber"):
                model = classifier(loss=loss, radius=5.0, max_iter=20).fit(X, y)
                p = model.predict_proba(X)
                np.testing.assert_allclose(p.sum(axis=1), 1)
                assert (p >= 0).all()
                agree = model.classes_[p.argmax(axis=1)] == model.predict(X)
                assert agree.mean() > 0.95  # beyond 0 and 1 the scores differ, not the shares
                assert model.predict_log_proba(X).max() <= 0
        assert not hasattr(classifier(loss="hinge"), "predict_proba")

    def test_threads_change_nothing(self):
        X, y = classes(k=4)
        assert_same(classifier(n_jobs=2).fit(X, y), classifier().fit(X, y), rtol=0)

    def test_random_state(self):
        X, y = classes()
        a, b = classifier(random_state=1).fit(X, y), classifier(random_state=2).fit(X, y)
        assert (a.coef_ != b.coef_).any()

    def test_verbose(self, capsys):
        X, y = classes(k=3)
        classifier(verbose=1).fit(X, y)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 12
        assert lines[0].startswith("0: epoch 1  objective ")
        assert "gap" in lines[0]

    def test_sparsify(self):
        X, y = classes()
        model = classifier().fit(X, y)
        coef, scores = model.coef_.copy(), model.decision_function(X)
        assert sparse.issparse(model.sparsify().coef_)
        np.testing.assert_allclose(model.decision_function(X), scores)
        model.partial_fit(X, y)
        other = classifier().fit(X, y).partial_fit(X, y)
        assert_same(model, other, rtol=0)
        np.testing.assert_array_equal(classifier().fit(X, y).sparsify().densify().coef_, coef)
        X, y = numbers()
        model = regressor().fit(X, y)
        predicted = model.predict(X)
        np.testing.assert_allclose(model.sparsify().predict(X), predicted)
        assert model.densify().coef_.shape == (X.shape[1],)

    def test_the_intercept_starts_at_the_best_constant(self):
        X, y = numbers()
        fits = {"squared_error": y.mean(), "absolute_error": np.median(y)}
        for loss, constant in fits.items():
            model = regressor(loss=loss, step_size=1e-9).fit(X, y + 1e4)
            assert model.intercept_ == pytest.approx(constant + 1e4, abs=1e-3)


class TestCourse:
    def test_a_warm_start_goes_on(self):
        X, y = classes(k=3)
        whole = classifier(max_iter=7).fit(X, y)
        parts = classifier(max_iter=3, warm_start=True).fit(X, y).set_params(max_iter=4).fit(X, y)
        assert_same(parts, whole, rtol=1e-12)
        assert parts.history_[0]["epoch"].tolist() == [4, 5, 6, 7]

    def test_a_warm_start_of_another_model_begins_at_the_coefficients(self):
        X, y = numbers()
        model = regressor(max_iter=300, warm_start=True).fit(X, y)
        before = model.coef_
        model.set_params(radius=0.9, step_size=1e-9, max_iter=1).fit(X, y)
        expected = sets.L1Ball(0.9).project(before)
        np.testing.assert_allclose(model.coef_, expected, atol=1e-6)
        assert model.t_ == y.size
        model.fit(X[:, :3], y)  # other features: anew
        assert model.coef_.shape == (3,)

    def test_without_a_warm_start_fits_are_independent(self):
        X, y = classes()
        model = classifier().fit(X, y)
        first = model.coef_.copy()
        np.testing.assert_array_equal(model.fit(X, y).coef_, first)

    def test_early_stopping(self):
        X, y = classes(n=200, noise=0.1)
        options = {"max_iter": 500, "early_stopping": True, "n_iter_no_change": 3}
        model = classifier(**options).fit(X, y)
        scores = model.history_["validation_score"]
        assert model.n_iter_ < 500
        assert scores.max() == scores[-4]
        assert scores[-3:].max() <= scores[-4]
        assert not hasattr(model, "partial_fit")
        X, y = numbers(n=200)
        model = regressor(**options).fit(X, y)
        assert model.n_iter_ < 500
        with pytest.raises(ValueError, match="validation_fraction must leave rows"):
            classifier(**options, validation_fraction=0.99).fit(*classes(n=6))

    def test_early_stopping_does_not_train_on_the_rows_set_aside(self):
        X, y = numbers(n=100)
        options = {"early_stopping": True, "shuffle": False, "max_iter": 1}
        model = regressor(**options).fit(X, y)
        assert model.t_ == 90

    @pytest.mark.parametrize("estimator", [classifier, regressor])
    def test_an_interruption_leaves_what_was_reached(self, estimator, monkeypatch):
        X, y = classes(n=40)
        interrupt_after(monkeypatch, 3)
        model = estimator(max_iter=50, step_size=1.0)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        assert model.t_ == 3 * 40
        assert model.n_iter_ == 3
        assert model.history_["epoch"].tolist() == [1, 2, 3]
        monkeypatch.undo()
        assert_same(model, estimator(max_iter=3, step_size=1.0).fit(X, y), rtol=0)
        model.partial_fit(X, y)

    def test_an_interruption_of_many_models_leaves_none(self, monkeypatch):
        X, y = classes(n=40, k=3)
        model = classifier(step_size=1.0).fit(X, y)
        interrupt_after(monkeypatch, 6)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
        with pytest.raises(NotFittedError):
            model.predict(X)

    def test_data_are_neither_changed_nor_kept(self):
        X, y = classes(n=50)
        X = sparse.csr_matrix(X)
        parts = (X.data, X.indices, X.indptr)
        for part in parts:
            part.flags.writeable = False
        model = classifier().fit(X, y)
        assert all(a is b for a, b in zip(parts, (X.data, X.indices, X.indptr), strict=True))
        for machine in model._machines:
            assert machine.samples.objective.n == 1


def interrupt_after(monkeypatch, epochs):
    """Let Ctrl-C come at the beginning of an epoch, after so many."""
    run, calls = Machine.run, []

    def interrupted(machine, order):
        calls.append(1)
        if len(calls) > epochs:
            raise KeyboardInterrupt
        run(machine, order)

    monkeypatch.setattr(Machine, "run", interrupted)


def test_an_error_before_training_changes_nothing():
    X, y = classes(n=40)
    model = classifier(max_iter=2).fit(X, y)
    told = model.predict(X)
    with pytest.raises(ValueError, match="sample_weight"):
        model.fit(X[:, :2], np.arange(40) % 3, sample_weight=-np.ones(40))
    assert model.n_features_in_ == X.shape[1]
    assert model.classes_.size == 2
    assert np.array_equal(model.predict(X), told)
