"""The classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from adahb.linear import ranges
from adahb.linear.base import HeavyBallLinear, Vector, weights_of
from adahb.linear.training import Samples, Score
from adahb.linear.validation import accuracy, split
from adahb.problems import Loss, losses
from adahb.reference import Form, Projection
from adahb.schedules import Output
from adahb.sets import ConvexSet


def _has_probabilities(estimator: HeavyBallClassifier) -> bool:
    """Tell whether the loss makes probabilities, or say why not."""
    if estimator.loss in ("log_loss", "modified_huber"):
        return True
    raise AttributeError(
        f"predict_proba needs loss='log_loss' or loss='modified_huber', got loss={estimator.loss!r}"
    )


class HeavyBallClassifier(ClassifierMixin, HeavyBallLinear):  # type: ignore[misc]
    r"""A linear classifier in a convex set, trained by the heavy ball, with a proof of its quality.

    Minimises (1/Ω) Σ ω_i loss(y_i(⟨x_i, w⟩ + b)) over w in a convex set, b free, taking one sample
    (or ``batch_size``) at a time, and stops when the objective is *proved* to be within
    ``tol`` (relative) of the best possible.  More than two classes are fitted one against the rest.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = HeavyBallClassifier(radius=5.0, random_state=0).fit(X[:100], y[:100])
    >>> float(model.score(X[:100], y[:100]))
    1.0

    Parameters
    ----------
    loss : {"hinge", "squared_hinge", "log_loss", "modified_huber"}, default="hinge"
        The loss of a margin.
    constraint : {"l1", "l2", "linf", "nonneg", "simplex", "box"}, set or None, default="l1"
        Where the coefficients live: balls of ``radius``, the nonnegative vectors, the nonnegative
        vectors whose sum is ``radius``, the box between ``lower`` and ``upper``, or any set of
        `adahb.sets`.  The intercept is free.
    radius : float, default=1.0
        Of the ball; the total of the simplex.  It takes the place of a penalty: the smaller, the
        stronger the regularisation.  Choose it by cross-validation.
    lower, upper : float or array-like of shape (n_features,), default=None
        Bounds of the box; None is unbounded.
    solver : {"adahb", "hb", "nag", "psg"}, default="adahb"
        The adaptive heavy ball (Algorithm 1), the heavy ball, Nesterov's extrapolation, or the
        projected subgradient method.
    form : {"averaging", "paper"}, default="averaging"
        What is projected: the sequence whose mean is the iterate, or the iterate itself.
    projection : {"metric", "euclidean"}, default="metric"
        How "adahb" projects: in the norm of its second moment, as its proof needs, or plainly.
    output : {"last", "average"}, default="last"
        What becomes ``coef_``.  With ``momentum=None`` it is the last iterate that is optimal.
    momentum : float in [0, 1), default=None
        None is t/(t+2); a number is constant momentum, whose average is optimal.
    power : float, default=None
        With ``momentum=None`` the iterate is a mean with weights that grow like t^power: larger
        forgets the beginning faster.  0 is the paper; None is 4, which needs far fewer epochs to a
        small gap.  The other methods have none.
    gamma : float in (0, 1], default=1.0
        Weight of new squared gradients, β2_t = 1 - gamma/t.  At 1, and only there, the second
        moment is a plain mean and a coordinate's metric stands still while its gradient is zero:
        this is what lets a sparse step cost no more than its row.
    delta : float, default=1e-8
        Added to the root of the second moment, over √t.
    step_size : float or "auto", default="auto"
        The constant α of the step size α/√t.  "auto" is that of the theory, scaled down by a short
        pilot; see `adahb.linear.stepsize`.
    batch_size : int, default=1
        Samples in a step.
    max_iter : int, default=200
        The most epochs.
    tol : float, default=1e-2
        Stop when the certified gap is at most tol times the objective; 0 or None to never stop.
    fit_intercept : bool, default=True
        Whether there is an intercept.
    warm_start : bool, default=False
        Whether `fit` goes on from the last one: with the same parameters (``max_iter``, ``tol``
        and ``verbose`` aside) it continues the clock and the momentum, with others it begins anew
        at the coefficients.
    class_weight : dict or "balanced", default=None
        Multiplied with ``sample_weight``.
    early_stopping : bool, default=False
        Whether to set ``validation_fraction`` of the rows aside and stop when the accuracy on them
        has not improved for ``n_iter_no_change`` epochs.
    validation_fraction : float, default=0.1
        Drawn from each class.
    n_iter_no_change : int, default=5
        See ``early_stopping``.
    shuffle : bool, default=True
        Whether each epoch visits the rows in a new order, which depends on the rows and
        ``random_state`` but not on how they are sorted.
    random_state : int, RandomState or None, default=None
        Of the order of the visits, the pilot, and the validation rows.
    verbose : int, default=0
        Whether to write a line for each epoch.
    n_jobs : int, default=None
        Threads for more than two classes.

    Attributes
    ----------
    coef_ : array of shape (1, n_features) or (n_classes, n_features)
    intercept_ : array of shape (1,) or (n_classes,)
    classes_ : array of shape (n_classes,)
    n_iter_ : int
        Epochs of the last fit.
    gap_ : float or array of shape (n_classes,)
        The objective is proved to be within it of the optimum; NaN where the set is unbounded, and
        after `partial_fit`.
    history_ : dict of arrays, or a list of one for each class
        "epoch", "objective", "gap", "time" in seconds, "validation_score" with early stopping: what
        was known at the ends of epochs, every one at first, then a sixteenth apart.
    step_size_ : float or array of shape (n_classes,)
    t_ : int
        Steps taken.
    n_features_in_ : int
    feature_names_in_ : array of shape (n_features_in_,), if the features had names

    Notes
    -----
    A whole-numbered ``sample_weight`` k is worth k copies of the row, visit by visit (up to ten
    visits a row on average; beyond that, and for other numbers, it multiplies the gradient).

    An interruption (Ctrl-C) takes effect within a fraction of a second, between two steps.  One of
    a fit with two classes leaves the model fitted as far as it came; with more classes it leaves it
    unfitted; before the first step it leaves it as it was.  One of `partial_fit` leaves the model
    as it was before the call, which can be repeated, or comes after it.
    An error in training, which is that of a model that diverges, leaves it unfitted.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **HeavyBallLinear._parameter_constraints,
        "loss": [StrOptions({"hinge", "squared_hinge", "log_loss", "modified_huber"})],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        loss: Literal["hinge", "squared_hinge", "log_loss", "modified_huber"] = "hinge",
        constraint: Literal["l1", "l2", "linf", "nonneg", "simplex", "box"]
        | ConvexSet
        | None = "l1",
        *,
        radius: float = 1.0,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
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
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.loss = loss
        self.constraint = constraint
        self.radius = radius
        self.lower = lower
        self.upper = upper
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
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.shuffle = shuffle
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> HeavyBallClassifier:
        """Fit the model; return the estimator."""
        with self._prepared():
            problems, scores = self._problems(X, y, sample_weight)
        self._train(problems, scores=scores, names=self._names())
        return self

    def _problems(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[list[Samples], list[Score] | None]:
        """Return what each model is trained on and how it is scored, classes being set."""
        X, labels = self._rows(X, y, reset=True, numeric=False)
        check_classification_targets(labels)
        classes = np.unique(labels)
        codes = np.searchsorted(classes, labels)
        weights = weights_of(sample_weight, codes.size)
        _check_classes(codes, weights)
        same = np.array_equal(getattr(self, "classes_", []), classes)
        self.classes_ = classes
        if not (self.warm_start and same and self._trained(self._n_models)):
            self._start_over()
        scale = self._scale(codes, weights)
        scores = None
        if self.early_stopping:
            given = weights
            held, weights = split(codes, weights, self.validation_fraction, seed=self._seed)
            held_weights = None if given is None else given[held]
            rows = X[held]
            scores = [accuracy(rows, target[held], held_weights) for target in self._targets(codes)]
        targets = self._targets(codes)
        if labels.dtype == np.float64 and classes.tolist() == [-1, 1]:
            targets = iter([labels])  # they need no copy
        return self._samples(X, codes, targets, weights, scale), scores

    @available_if(lambda estimator: not estimator.early_stopping)  # type: ignore[untyped-decorator]
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> HeavyBallClassifier:
        """Visit the given rows once; return the estimator.

        The clock and the momentum go on over calls, and after a fit, so that ``max_iter`` calls
        with the same rows are a fit without ``tol``: the rows of each call are permuted as those of
        an epoch, or come as they stand with ``shuffle=False``.  The first call needs all the
        ``classes``, and its rows choose the step size.  Nothing is certified.
        """
        with self._prepared():
            problems = self._next(X, y, classes, sample_weight)
        self._pass(problems)
        return self

    def _next(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> list[Samples]:
        """Return what each model visits in `partial_fit`, classes being set in the first call."""
        first = not hasattr(self, "_machines") or not self._machines
        X, labels = self._rows(X, y, reset=first, numeric=False)
        check_classification_targets(labels)
        if first:
            if classes is None:
                raise ValueError("classes must be all the classes in the first call, got None")
            self.classes_ = np.unique(np.asarray(classes))
            if self.classes_.size < 2:
                raise ValueError(f"classes must be at least two, got {self.classes_.tolist()}")
            self._start_over()
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"classes must be those of the first call, {self.classes_.tolist()}, got "
                f"{np.unique(classes).tolist()}"
            )
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight must be None or a dict in partial_fit, where the classes' counts are "
                "not known, got 'balanced'"
            )
        unknown = np.setdiff1d(labels, self.classes_)
        if unknown.size:
            raise ValueError(
                f"y must hold only the classes {self.classes_.tolist()}, got {unknown.tolist()}"
            )
        codes = np.searchsorted(self.classes_, labels)
        weights = weights_of(sample_weight, codes.size)
        scale = self._scale(codes, weights)
        targets = self._targets(codes)
        return self._samples(X, codes, targets, weights, scale)

    def decision_function(self, X: Any) -> Vector:
        """Return ⟨x, w⟩ + b: of shape (n,) for two classes, else (n, n_classes)."""
        scores = self._predictions(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[codes]
        return predicted

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Vector:
        """Return the probability of each class.

        For two classes 1/(1 + exp(-score)) with the logistic loss, and (1 + score)/2 cut off at 0
        and 1 with modified_huber, whose minimiser that is.  For more they are divided by their sum.
        """
        scores = self._predictions(X)
        p = expit(scores) if self.loss == "log_loss" else (np.clip(scores, -1, 1) + 1) / 2
        if p.shape[1] == 1:
            return np.hstack([1 - p, p])
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Vector:
        """Return the logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    @property
    def _n_models(self) -> int:
        return 1 if len(self.classes_) == 2 else len(self.classes_)

    def _loss(self) -> Loss:
        return losses.get(self.loss)

    def _shaped(self, values: NDArray[Any]) -> NDArray[Any]:
        return values

    def _names(self) -> list[str]:
        """Return what to call each model in the progress lines."""
        if self._n_models == 1:
            return [""]
        return [f"{label}: " for label in self.classes_.tolist()]

    def _targets(self, codes: NDArray[np.intp]) -> Iterator[Vector]:
        """Yield targets of -1 and +1 for each model."""
        for k in range(1, 2) if self._n_models == 1 else range(self._n_models):
            yield np.where(codes == k, 1.0, -1.0)

    def _scale(self, codes: NDArray[np.intp], weights: Vector | None) -> Vector | None:
        """Return the class weight of each row; balanced is Ω over the classes' count and Ω_k."""
        if self.class_weight is None:
            return None
        size = len(self.classes_)
        if self.class_weight == "balanced":
            totals = np.bincount(codes, weights, minlength=size)
            by_class = totals.sum() / (size * np.where(totals > 0, totals, 1.0))
        else:
            unknown = [label for label in self.class_weight if label not in self.classes_]
            if unknown:
                raise ValueError(
                    f"class_weight must have keys among the classes {self.classes_.tolist()}, "
                    f"got {unknown}"
                )
            by_class = np.array([self.class_weight.get(label, 1.0) for label in self.classes_])
            if not (np.isfinite(by_class).all() and (by_class >= 0).all()):
                raise ValueError(
                    f"class_weight must be finite and at least 0, got {dict(self.class_weight)}"
                )
        return np.asarray(ranges.even(np.asarray(by_class, dtype=np.float64)))[codes]


def _check_classes(codes: NDArray[np.intp], weights: Vector | None) -> None:
    """Raise unless there are two classes with positive weight."""
    found = np.unique(codes if weights is None else codes[weights > 0]).size
    if found < 2:
        raise ValueError(
            f"y must hold at least two classes in rows of positive weight, got {found} class"
        )
