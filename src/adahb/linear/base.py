"""What the classifier and the regressor share: parameters, and the way from rows to models."""

from __future__ import annotations

import math
import threading
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from adahb import schedules, sets
from adahb._whole import Whole
from adahb.linear import ranges, stepsize
from adahb.linear.certificate import Certificate
from adahb.linear.loops import Model
from adahb.linear.loops import Samples as Weighted
from adahb.linear.machine import Machine
from adahb.linear.order import Visits
from adahb.linear.training import (
    History,
    Samples,
    Score,
    Stopping,
    Training,
    pieces,
    require_inside,
)
from adahb.problems import Loss
from adahb.problems.linear import Matrix
from adahb.reference import Settings
from adahb.schedules import Schedule
from adahb.sets import ConvexSet

Vector = NDArray[np.float64]

_POWER = 4.0
"""Of the averaging's weights, where the user gives none."""
_SIZE = Interval(Real, 1 / ranges.WIDEST, ranges.WIDEST, closed="both")
_PILOT = 1
"""Beside the seed, what tells the pilot's draw from an epoch's."""


class NoCertificateWarning(UserWarning):
    """No gap can be proved, so that ``tol`` cannot stop the training."""


class HeavyBallLinear(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """A linear model trained sample by sample; see the two estimators."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "constraint": [
            StrOptions({"l1", "l2", "linf", "nonneg", "simplex", "box"}),
            HasMethods(["project", "support"]),
            None,
        ],
        "radius": [_SIZE],
        "lower": [Real, "array-like", None],
        "upper": [Real, "array-like", None],
        "solver": [StrOptions({"adahb", "hb", "nag", "psg"})],
        "form": [StrOptions({"averaging", "paper"})],
        "projection": [StrOptions({"metric", "euclidean"})],
        "output": [StrOptions({"last", "average"})],
        "momentum": [Interval(Real, 0, 1, closed="left"), None],
        "power": [Interval(Real, 0, None, closed="left"), None],
        "gamma": [Interval(Real, 0, 1, closed="right")],
        "delta": [Interval(Real, 1e-50, 1e50, closed="both")],
        "step_size": [StrOptions({"auto"}), _SIZE],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left"), None],
        "fit_intercept": ["boolean"],
        "warm_start": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    coef_: Any
    intercept_: Any

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss object of the parameters."""

    def _first_intercept(self, y: Vector, samples: Samples) -> float:  # noqa: ARG002
        """Return where the intercept starts."""
        return 0.0

    def densify(self) -> HeavyBallLinear:
        """Turn ``coef_`` into a dense array, which it is after a fit; return the estimator."""
        check_is_fitted(self, "coef_")
        if sparse.issparse(self.coef_):
            dense: Any = self.coef_
            self.coef_ = self._shaped(dense.toarray())
        return self

    def sparsify(self) -> HeavyBallLinear:
        """Turn ``coef_`` into a CSR matrix, for models with many zeros; return the estimator.

        `partial_fit` and a warm start turn it back.
        """
        check_is_fitted(self, "coef_")
        self.coef_ = sparse.csr_matrix(np.atleast_2d(self.densify().coef_))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _set(self) -> ConvexSet | None:
        """Return the set of the coefficients."""
        if self.constraint != "box" and not (self.lower is None and self.upper is None):
            raise ValueError(
                f"lower and upper must be None unless constraint='box', got {self.lower!r} and "
                f"{self.upper!r} with constraint={self.constraint!r}"
            )
        radius = float(self.radius)
        match self.constraint:
            case "l1":
                return sets.L1Ball(radius)
            case "l2":
                return sets.L2Ball(radius)
            case "linf":
                return sets.LinfBall(radius)
            case "simplex":
                return sets.Simplex(radius)
            case "nonneg":
                return sets.NonNegative()
            case "box":
                lower = -math.inf if self.lower is None else self.lower
                return sets.Box(lower, math.inf if self.upper is None else self.upper)
        return cast("ConvexSet | None", self.constraint)

    def _schedule(self, alpha: float) -> Schedule:
        """Return the solver's schedule."""
        constant = self.momentum is not None
        averages = self.solver in ("adahb", "hb") and not constant
        if self.power is not None and not averages:
            raise ValueError(
                f"power must be None with solver={self.solver!r} and momentum={self.momentum!r}, "
                f"got {self.power!r}"
            )
        if constant and self.solver in ("nag", "psg"):
            raise ValueError(
                f"momentum must be None with solver={self.solver!r}, got {self.momentum!r}"
            )
        power = _POWER if self.power is None else self.power
        match self.solver, constant:
            case "adahb", False:
                return schedules.AdaHB(alpha=alpha, gamma=self.gamma, delta=self.delta, power=power)
            case "adahb", True:
                return schedules.AdaHBConstant(
                    alpha=alpha, gamma=self.gamma, delta=self.delta, beta=self.momentum
                )
            case "hb", False:
                return schedules.HB(alpha=alpha, power=power)
            case "hb", True:
                return schedules.HBConstant(alpha=alpha, beta=self.momentum)
            case "nag", _:
                return schedules.NAG(alpha=alpha)
        return schedules.PSG(alpha=alpha)

    def _model(self, alpha: float) -> Model:
        """Return what is trained and how, with this step size."""
        settings = Settings(self._set(), self.form, self.projection, int(self.batch_size))
        return Model(self._loss(), self._schedule(alpha), settings, bool(self.fit_intercept))

    def _rows(self, X: Any, y: Any, *, reset: bool, numeric: bool) -> tuple[Matrix, Any]:
        """Return validated rows and targets; CSR and dense rows are not copied."""
        with np.errstate(over="ignore", invalid="ignore"):  # of sums that look for NaN
            X, y = validate_data(
                self,
                X,
                y,
                reset=reset,
                accept_sparse="csr",
                accept_large_sparse=True,
                dtype=[np.float64, np.float32],
                y_numeric=numeric,
            )
        matrix: Any = X
        ranges.require_held("X", matrix)
        if numeric:
            ranges.require_held("y", y)
        return (sparse.csr_array(matrix) if sparse.issparse(X) else matrix), y

    def _predictions(self, X: Any) -> Vector:
        check_is_fitted(self, "coef_")
        with np.errstate(over="ignore", invalid="ignore"):
            X = validate_data(
                self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
            )
            p = safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        p = np.asarray(p, dtype=np.float64)
        if not np.isfinite(p).all():
            raise ValueError(
                f"X must hold numbers whose predictions are floats, got {ranges.largest(X):g} and "
                f"coefficients up to {np.abs(self.densify().coef_).max():g}"
            )
        return p

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        """Leave the estimator as it was if an error or an interruption comes before training."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    # Training ------------------------------------------------------------------------------------

    def _start_over(self) -> None:
        """Forget the models trained so far, and draw the seed of the next."""
        generator = check_random_state(self.random_state)
        self._seed = int(generator.randint(np.iinfo(np.int32).max))
        self._epochs = 0
        self._machines: list[Machine] = []

    def _trained(self, models: int) -> bool:
        """Tell whether there are so many models of these features to go on with."""
        machines: list[Machine] = getattr(self, "_machines", [])
        return len(machines) == models and machines[0].n_features == self.n_features_in_

    def _samples(
        self,
        X: Matrix,
        codes: NDArray[Any],
        targets: Iterable[Vector],
        weights: Vector | None,
        scale: Vector | None = None,
    ) -> list[Samples]:
        """Return what each model is trained on; ``targets`` are taken one by one.

        ``codes`` tells the rows' targets apart, ``scale`` multiplies the weights but is never
        turned into repetitions.
        """
        visits = Visits.of(X, codes, weights, shuffle=bool(self.shuffle), seed=self._seed)
        total = ranges.even(_product(weights, scale))
        scale = ranges.even(_product(visits.scale, scale))
        return [Samples(X, y, replace(visits), total, scale) for y in targets]

    def _begin(
        self, samples: Samples, k: int, machine: Machine | None, start: tuple[Vector, float] | None
    ) -> Machine:
        """Return the machine of the k-th model, bound to the samples.

        One that trained the same model before goes on where it stopped; another model begins at
        its coefficients, or at zero.
        """
        if machine is not None:
            model = self._model(machine.model.schedule.alpha)
            if self.step_size in ("auto", model.schedule.alpha) and model == machine.model:
                machine.rebind(samples.X, samples.y)
                machine.samples = Weighted(machine.samples.objective, samples.scale)
                return machine
        w, b = start or (None, self._first_intercept(samples.y, samples))

        def make(alpha: float, part: Samples) -> Machine:
            model = self._model(alpha)
            made = Machine(
                part.X,
                part.y,
                model.loss,
                model.schedule,
                constraint=model.settings.constraint,
                form=model.settings.form,
                projection=model.settings.projection,
                batch_size=model.batch_size,
                fit_intercept=model.intercept,
                start=w,
                intercept_start=b if model.intercept else 0.0,
            )
            made.samples = Weighted(made.samples.objective, part.scale)
            return made

        alpha = self.step_size
        if alpha == "auto":
            alpha = stepsize.auto(samples, self._model(1.0), make, seed=[self._seed, _PILOT, k])
        return make(float(alpha), samples)

    def _train(
        self,
        problems: Sequence[Samples],
        *,
        scores: Sequence[Score] | None = None,
        names: Sequence[str] = ("",),
    ) -> None:
        """Fit a model for each problem, and set the fitted attributes.

        An interruption of a single model sets them too, to what was reached; one of several models,
        or an error, leaves none.
        """
        going_on = self._going_on(problems)
        tol = float(self.tol or 0.0)

        def one(k: int) -> Training:
            samples = problems[k]
            machine = self._begin(samples, k, *going_on[k])
            model = machine.model
            certificate = Certificate(
                samples.X,
                samples.y,
                model.loss,
                model.settings.constraint,
                weights=samples.weights,
                intercept=model.intercept,
            )
            training = Training(
                machine, samples, certificate, self.output, self._epochs, names[k], stop
            )
            begun[k] = training
            score = None if scores is None else scores[k]
            stopping = Stopping(int(self.max_iter), tol, score, int(self.n_iter_no_change))
            training.run(stopping, verbose=bool(self.verbose))
            return training

        begun: dict[int, Training] = {}
        stop = threading.Event()
        try:
            jobs = Parallel(n_jobs=getattr(self, "n_jobs", None), require="sharedmem")
            trainings = jobs(delayed(one)(k) for k in range(len(problems)))
        except BaseException as error:
            stop.set()
            if isinstance(error, KeyboardInterrupt) and len(problems) == 1 and begun:
                self._keep([begun[0].machine], [begun[0].model])
                self._report([begun[0]])
            else:
                self._unfit()
            raise
        self._keep([t.machine for t in trainings], [t.model for t in trainings])
        self._report(trainings)
        self._warn(trainings, tol)

    def _pass(self, problems: Sequence[Samples]) -> None:
        """Visit the rows once with each model, and set the fitted attributes: all of it or nothing.

        An interruption waits for the end if that is near; a longer pass moves copies of the models
        until it is done.  An error, which is that of models that have diverged, leaves none.
        """
        machines = [
            self._begin(problems[k], k, copy(machine), start)
            for k, (machine, start) in enumerate(self._going_on(problems))
        ]
        passes = list(zip(machines, problems, strict=True))
        brief = sum(len(samples.visits) / machine.stretch for machine, samples in passes) <= 1
        if not brief:
            for machine in machines:
                machine.detach()
        try:
            with Whole() if brief else nullcontext():
                for machine, samples in passes:
                    for rows in pieces(machine, samples, self._epochs):
                        machine.run(rows)
                with Whole():
                    self._keep_pass(machines)
        except Exception:
            self._unfit()
            raise

    def _keep_pass(self, machines: list[Machine]) -> None:
        """Set the fitted attributes after a pass."""
        if self.output == "last":
            models = [(machine.coef, machine.intercept) for machine in machines]
        else:
            models = [(machine.average_coef, machine.average_intercept) for machine in machines]
        for coef, _ in models:
            require_inside(machines[0].model.settings.constraint, coef)
        self._keep(machines, models)
        self._epochs += 1
        self.n_iter_ = 1
        self.gap_ = self._per_model([math.nan] * len(machines))
        if not hasattr(self, "history_"):
            self.history_ = self._per_model([History().arrays() for _ in machines])

    def _going_on(
        self, problems: Sequence[Samples]
    ) -> list[tuple[Machine | None, tuple[Vector, float] | None]]:
        """Return for each model the machine to go on with and the coefficients to begin at."""
        machines = self._machines
        if not machines:
            return [(None, None)] * len(problems)
        coefs = np.atleast_2d(self.densify().coef_)
        intercepts = np.atleast_1d(self.intercept_)
        return [
            (machine, (coef, float(intercept)))
            for machine, coef, intercept in zip(machines, coefs, intercepts, strict=True)
        ]

    def _keep(self, machines: list[Machine], models: list[tuple[Vector, float]]) -> None:
        """Set what all fits leave behind, the machines without the data."""
        for machine in machines:
            machine.rebind(_nothing(machine.samples.objective.X), [1.0])
        self._machines = machines
        self.coef_ = self._shaped(np.array([coef for coef, _ in models]))
        intercepts = np.array([intercept for _, intercept in models])
        self.intercept_ = self._shaped(intercepts)
        self.t_ = machines[0].steps
        self.step_size_ = self._per_model([m.model.schedule.alpha for m in machines])

    def _unfit(self) -> None:
        """Forget what was fitted: models that are half new belong to nothing."""
        self._machines = []
        for name in ("coef_", "intercept_"):
            if hasattr(self, name):
                delattr(self, name)

    def _report(self, trainings: list[Training]) -> None:
        self._epochs = max(t.epochs for t in trainings)
        self.n_iter_ = max(t.done for t in trainings)
        self.gap_ = self._per_model([t.gap for t in trainings])
        self.history_ = self._per_model([t.history.arrays() for t in trainings])

    @abstractmethod
    def _shaped(self, values: NDArray[Any]) -> Any:
        """Return an array with a row for each model in the shape of the fitted attribute."""

    def _per_model(self, values: list[Any]) -> Any:
        """Return the only value, or an array or a list of each model's."""
        if len(values) == 1:
            return values[0]
        return np.array(values) if isinstance(values[0], float) else values

    def _warn(self, trainings: list[Training], tol: float) -> None:
        """Say what was asked for and not reached."""
        reason = trainings[0].certificate.reason
        if tol and reason is not None:
            warnings.warn(
                f"tol={self.tol!r} cannot stop the training and gap_ is NaN: {reason}. "
                "Set tol=None to train for max_iter epochs.",
                NoCertificateWarning,
                stacklevel=4,
            )
            return
        short = [t for t in trainings if tol and t.reason == "max_iter"]
        if short:
            worst = max(t.gap / max(abs(t.history.objective[-1]), 1e-300) for t in short)
            warnings.warn(
                f"max_iter={self.max_iter} epochs ended before tol={self.tol!r} was proved: the "
                f"relative certified gap reached is {worst:.2g}. Increase max_iter or tol, or set "
                "tol=None.",
                ConvergenceWarning,
                stacklevel=4,
            )


def weights_of(sample_weight: Any, n: int) -> Vector | None:
    """Return checked weights, None for ones."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n, float(sample_weight))
    weights = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), got shape {weights.shape}")
    if (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight must be at least 0 and not all zero")
    return None if (weights == 1).all() else ranges.even(weights)


def _product(a: Vector | None, b: Vector | None) -> Vector | None:
    """Return a·b, None being ones."""
    if a is None or b is None:
        return b if a is None else a
    return a * b


def _nothing(X: Matrix) -> Matrix:
    """Return one row of zeros in the format of ``X``, to take the place of the data."""
    if isinstance(X, sparse.csr_array):
        pointers = np.zeros(2, dtype=X.indptr.dtype)
        parts = (np.zeros(0, dtype=X.dtype), np.zeros(0, dtype=X.indices.dtype), pointers)
        return sparse.csr_array(parts, shape=(1, X.shape[1]))
    return np.zeros((1, X.shape[1]), dtype=X.dtype)
