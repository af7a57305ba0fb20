"""One linear model in training: rows in, steps taken, coefficients out.

>>> import numpy as np
>>> from adahb.schedules import HB
>>> from adahb.sets import L1Ball
>>> machine = Machine([[1.0, 0.0], [0.0, 2.0]], [1, -1], "hinge", HB(alpha=1.0),
...                   constraint=L1Ball(1.0))
>>> machine.run(np.array([0, 1, 1, 0]))
>>> machine.coef.round(3), machine.steps
(array([ 0.257, -0.41 ]), 4)
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adahb import _checks as check
from adahb._whole import Whole
from adahb.certificates import DualAverages
from adahb.linear import ranges
from adahb.linear.loops import Model, Place, Samples, choose
from adahb.linear.loops.base import with_intercept
from adahb.problems import LinearObjective, Loss, losses
from adahb.problems.base import vector
from adahb.reference import Form, Projection, Settings
from adahb.schedules import Schedule
from adahb.sets import ConvexSet

Vector = NDArray[np.float64]

WORK = 1 << 25
"""Numbers moved between two looks for an interruption; some ten nanoseconds each at most."""


class Machine:
    """Minimises the mean of weight · loss(⟨x, w⟩ + b, y) over w in a set, step by step.

    Args:
        X: Samples by features, dense or CSR, float32 or float64; neither copied nor changed.
        y: A target for each sample, for classification −1 or +1.
        loss: A loss of `adahb.problems.losses`, or its name.
        schedule: What the steps are multiplied by, one of `adahb.schedules`.
        constraint: The set of the coefficients; the intercept is free.
        form: What is projected: z, "averaging", or the iterate itself, "paper".
        projection: For adaptive schedules, "metric" or "euclidean".
        batch_size: The samples of a step, whose subgradient is the mean over them.
        fit_intercept: Whether there is an intercept, one more coordinate whose feature is 1.
        sample_weight: A number for each sample; over their mean they multiply its derivative.
        start: The first iterate, zero if not given; projected if it is outside of the set.
        intercept_start: The first intercept.
        average: Whether the mean of the iterates is kept, for `average_coef` and
            `average_intercept`.
        loop: The name of the loop to use; None takes the fastest that can be used.

    What a step does is `adahb.reference.take_step`, in float64, whatever the loop; the loops
    differ in their cost, and by rounding.
    """

    def __init__(
        self,
        X: ArrayLike | Any,
        y: ArrayLike,
        loss: str | Loss,
        schedule: Schedule,
        *,
        constraint: ConvexSet | None = None,
        form: Form = "averaging",
        projection: Projection = "metric",
        batch_size: int = 1,
        fit_intercept: bool = False,
        sample_weight: ArrayLike | None = None,
        start: ArrayLike | None = None,
        intercept_start: float = 0.0,
        average: bool = True,
        loop: str | None = None,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise TypeError(f"schedule must be one of adahb.schedules, got {schedule!r}")
        batch_size = check.integer("batch_size", batch_size, at_least=1)
        settings = Settings(constraint, form, projection, batch_size)
        self.model = Model(losses.get(loss), schedule, settings, bool(fit_intercept), bool(average))
        ranges.require_size("schedule", schedule, [schedule.alpha])
        ranges.require_size("constraint", constraint, ranges.of_set(constraint))
        self.samples = self._samples(X, y, sample_weight)
        self._duals = DualAverages(self.samples.objective.n)
        w = np.zeros(self.n_features) if start is None else vector("start", start, self.n_features)
        if not np.isfinite(w).all():
            raise ValueError("start must be finite, got NaN or infinite entries")
        intercept = check.number("intercept_start", intercept_start)
        if intercept and not fit_intercept:
            raise ValueError(
                f"intercept_start must be 0 without an intercept, got {intercept_start!r}"
            )
        place = Place.start(with_intercept(self.model, settings.project(w, 1.0), intercept))
        self._wanted = loop
        self._loop = choose(self.model, self.samples, loop)(self.model, place)

    def __repr__(self) -> str:
        model, objective = self.model, self.samples.objective
        return (
            f"Machine(n={objective.n}, dim={objective.dim}, loss={model.loss!r}, "
            f"schedule={model.schedule!r}, constraint={model.settings.constraint!r}, "
            f"form={model.settings.form!r}, projection={model.settings.projection!r}, "
            f"batch_size={model.batch_size}, fit_intercept={model.intercept}, "
            f"steps={self.steps}, loop={self.loop!r})"
        )

    def run(self, order: ArrayLike) -> None:
        """Take the steps whose samples are the rows ``order``, ``batch_size`` at a time.

        The last batch may be short.  The clock goes on over calls.  An interruption comes between
        two steps, and does not wait for more than ``stretch`` rows.
        """
        rows = np.asarray(order)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
            raise ValueError(f"order must be a vector of row indices, got {order!r}")
        if not rows.size:
            return
        n = self.samples.objective.n
        if rows.min() < 0 or rows.max() >= n:
            raise ValueError(
                f"order must hold rows from 0 to {n - 1}, got {rows.min()} to {rows.max()}"
            )
        rows, stretch = rows.astype(np.intp, copy=False), self.stretch
        for start in range(0, rows.size, stretch):
            with Whole():
                self._loop.run(self.samples, rows[start : start + stretch], self._duals)

    def rebind(
        self, X: ArrayLike | Any, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> None:
        """Go on with other rows of as many features; the duals begin anew."""
        samples = self._samples(X, y, sample_weight)
        if samples.objective.dim != self.n_features:
            raise ValueError(
                f"X must have {self.n_features} features as before, got {samples.objective.dim}"
            )
        loop = choose(self.model, samples, self._wanted)
        if not isinstance(self._loop, loop):
            self._loop = loop(self.model, self._loop.place())
        self.samples = samples
        self._duals = DualAverages(samples.objective.n)

    def detach(self) -> None:
        """Move arrays of its own from now on, not those of the machine that it is a copy of."""
        self._loop = deepcopy(self._loop)

    def reset_duals(self) -> None:
        """Forget the derivatives met so far."""
        self._duals.clear()

    @property
    def n_features(self) -> int:
        """The number of coefficients."""
        return int(self.samples.objective.dim)

    @property
    def stretch(self) -> int:
        """The rows, of whole batches, between two looks for an interruption."""
        size = self.model.batch_size
        return size * max(int(WORK / self._loop.work(self.samples)), 1)

    @property
    def loop(self) -> str:
        """The name of the loop in use."""
        return self._loop.name

    @property
    def steps(self) -> int:
        """The steps taken."""
        return self._loop.steps

    @property
    def coef(self) -> Vector:
        """The iterate w_{t+1} after t steps, at which the next subgradient is taken."""
        return self._loop.w[: self.n_features]

    @property
    def intercept(self) -> float:
        """The intercept that belongs to `coef`; 0 if none is fitted."""
        return float(self._loop.w[-1]) if self.model.intercept else 0.0

    @property
    def average_coef(self) -> Vector:
        """The mean of w_1, ..., w_t: where the t subgradients were taken; at the start w_1."""
        return self._loop.average[: self.n_features]

    @property
    def average_intercept(self) -> float:
        """The intercept that belongs to `average_coef`."""
        return float(self._loop.average[-1]) if self.model.intercept else 0.0

    @property
    def dual_sums(self) -> Vector:
        """For each sample the sum of the loss's derivatives, without weights, at its visits."""
        return self._duals.sums

    @property
    def visits(self) -> NDArray[np.int32]:
        """How often each sample was visited since the duals began."""
        return self._duals.visits

    def _samples(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Samples:
        objective = LinearObjective(X, y, self.model.loss)
        ranges.require_held("X", objective.X)
        ranges.require_held("y", objective.y)
        if sample_weight is None:
            return Samples(objective)
        weights = vector("sample_weight", sample_weight, objective.n)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError("sample_weight must be finite and >= 0 and not all zero")
        weights = np.asarray(ranges.even(weights))
        return Samples(objective, weights / weights.mean())
