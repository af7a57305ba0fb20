"""The regressor."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from adahb.linear.base import HeavyBallLinear, Vector, weights_of
from adahb.linear.ranges import LARGEST
from adahb.linear.training import Samples, Score
from adahb.linear.validation import r2, split
from adahb.problems import Loss, losses
from adahb.reference import Form, Projection
from adahb.schedules import Output
from adahb.sets import ConvexSet


class HeavyBallRegressor(RegressorMixin, HeavyBallLinear):  # type: ignore[misc]
    r"""A linear regression in a convex set, trained by the heavy ball, with a proof of its quality.

    Minimises (1/Ω) Σ ω_i loss(⟨x_i, w⟩ + b - y_i) over w in a convex set, b free; as
    `HeavyBallClassifier`, whose parameters and attributes it shares but for those below.

    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(200, 5, n_informative=2, random_state=0)
    >>> model = HeavyBallRegressor(constraint="nonneg", tol=None, random_state=0).fit(X, y)
    >>> round(model.score(X, y), 2)
    1.0

    Parameters
    ----------
    loss : {"squared_error", "absolute_error", "huber", "epsilon_insensitive", "quantile"}
        The loss of a residual r = prediction - y; "squared_error", the default, is r²/2.
    epsilon : float, default=0.1
        Where "huber" turns from r²/2 into a line; how large a residual "epsilon_insensitive"
        ignores.
    quantile : float in (0, 1), default=0.5
        The quantile that "quantile" predicts.
    early_stopping : bool, default=False
        As in the classifier, with R² on ``validation_fraction`` of all rows.

    Attributes
    ----------
    coef_ : array of shape (n_features,)
    intercept_ : float
        It starts at the best constant prediction: the mean, the median or the quantile of y.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **HeavyBallLinear._parameter_constraints,
        "loss": [
            StrOptions(
                {"squared_error", "absolute_error", "huber", "epsilon_insensitive", "quantile"}
            )
        ],
        "epsilon": [Interval(Real, 0, LARGEST, closed="both")],
        "quantile": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        loss: Literal[
            "squared_error", "absolute_error", "huber", "epsilon_insensitive", "quantile"
        ] = "squared_error",
        constraint: Literal["l1", "l2", "linf", "nonneg", "simplex", "box"]
        | ConvexSet
        | None = "l1",
        *,
        radius: float = 1.0,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        epsilon: float = 0.1,
        quantile: float = 0.5,
        solver: Literal["adahb", "hb", "nag", "psg"] = "adahb",
        form: Form = "averaging",
        projection: Projection = "metric",
        output: Output = "last",
        momentum: float | None = None,
        power: float | None = None,
        gamma: float = 1.0,
        delta: float = 1e-8,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int = 1,
        max_iter: int = 200,
        tol: float | None = 1e-2,
        fit_intercept: bool = True,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.constraint = constraint
        self.radius = radius
        self.lower = lower
        self.upper = upper
        self.epsilon = epsilon
        self.quantile = quantile
        self.solver = solver
        self.form = form
        self.projection = projection
        self.output = output
        self.momentum = momentum
        self.power = power
        self.gamma = gamma
        self.delta = delta
        self.step_size = step_size
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> HeavyBallRegressor:
        """Fit the model; return the estimator."""
        with self._prepared():
            problems, scores = self._problems(X, y, sample_weight)
        self._train(problems, scores=scores)
        return self

    def _problems(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[list[Samples], list[Score] | None]:
        """Return what the model is trained on and how it is scored."""
        X, targets = self._rows(X, y, reset=True, numeric=True)
        target: Vector = targets.astype(np.float64, copy=False)
        weights = weights_of(sample_weight, target.size)
        if not (self.warm_start and self._trained(1)):
            self._start_over()
        scores: list[Score] | None = None
        if self.early_stopping:
            given = weights
            groups = np.zeros(target.size, dtype=np.intp)
            held, weights = split(groups, weights, self.validation_fraction, seed=self._seed)
            scores = [r2(X[held], target[held], None if given is None else given[held])]
        return self._samples(X, target, [target], weights), scores

    @available_if(lambda estimator: not estimator.early_stopping)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> HeavyBallRegressor:
        """Visit the given rows once; return the estimator.

        As in `HeavyBallClassifier.partial_fit`; the rows of the first call choose the step size and
        where the intercept starts.
        """
        with self._prepared():
            first = not getattr(self, "_machines", [])
            X, targets = self._rows(X, y, reset=first, numeric=True)
            target: Vector = targets.astype(np.float64, copy=False)
            if first:
                self._start_over()
            weights = weights_of(sample_weight, target.size)
            problems = self._samples(X, target, [target], weights)
        self._pass(problems)
        return self

    def predict(self, X: Any) -> Vector:
        """Return ⟨x, w⟩ + b for each row."""
        return self._predictions(X).reshape(-1)

    def _loss(self) -> Loss:
        match self.loss:
            case "huber":
                if self.epsilon == 0:
                    raise ValueError(f"epsilon must be > 0 with loss='huber', got {self.epsilon!r}")
                return losses.Huber(self.epsilon)
            case "epsilon_insensitive":
                return losses.EpsilonInsensitive(self.epsilon)
            case "quantile":
                return losses.Quantile(self.quantile)
        return losses.get(self.loss)

    def _first_intercept(self, y: Vector, samples: Samples) -> float:
        """Return the mean of the visited targets, or their quantile for the other losses."""
        visited = y[samples.visits.rows]
        if self.loss == "squared_error":
            return float(np.average(visited, weights=_at(samples)))
        q = self.quantile if self.loss == "quantile" else 0.5
        return float(np.quantile(visited, q))

    def _shaped(self, values: NDArray[Any]) -> Any:
        return values[0] if values.ndim == 2 else float(values[0])


def _at(samples: Samples) -> Vector | None:
    """Return the scale of each visit."""
    return None if samples.scale is None else samples.scale[samples.visits.rows]
