"""The general loop: the reference's own step, whatever the set, the loss and the schedule."""

from __future__ import annotations

import math

import numpy as np

from adahb.certificates import DualAverages
from adahb.linear.loops.base import (
    STEEPEST,
    Loop,
    Model,
    Order,
    Place,
    Samples,
    Vector,
    no_average,
    not_finite,
)
from adahb.reference import take_step


class General(Loop):
    """One step at a time in NumPy; a step costs the dimension."""

    name = "general"

    def __init__(self, model: Model, place: Place) -> None:
        super().__init__(model, place)
        self._point, self._average = place.point, place.average

    def work(self, samples: Samples) -> float:  # noqa: ARG002
        """Return so much that steps, each of which takes some time, are taken one by one."""
        return math.inf

    def run(self, samples: Samples, order: Order, duals: DualAverages) -> None:
        """Take the steps on the rows in ``order``, noting each derivative in ``duals``."""
        size = self.model.batch_size
        for start in range(0, order.size, size):
            self._step(samples, order[start : start + size], duals)

    def _step(self, samples: Samples, rows: Order, duals: DualAverages) -> None:
        model, t = self.model, self.steps + 1

        def draw(_: int, y: Vector) -> tuple[float, Vector]:
            return math.nan, self._subgradient(samples, rows, duals, y)

        last = self._point.w
        _, self._point = take_step(t, self._point, draw, model.schedule, model.extended)
        if model.average:
            self._average = self._average + (last - self._average) / t
        self.steps = t

    def _subgradient(self, samples: Samples, rows: Order, duals: DualAverages, y: Vector) -> Vector:
        """Return the mean over ``rows`` of weight · derivative · (x, 1)."""
        objective, targets = samples.objective, samples.objective.y[rows]
        X = objective.X[rows]
        coef, offset = (y[:-1], y[-1]) if self.model.intercept else (y, 0.0)
        s = self.model.loss.derivative(np.asarray(X @ coef) + offset, targets)
        if not (np.abs(s) <= STEEPEST).all():
            raise not_finite(self.steps + 1)
        duals.add(rows, s)
        if samples.weights is not None:
            s = s * samples.weights[rows]
        g = np.asarray(X.T @ s, dtype=np.float64) / s.size
        return np.append(g, s.sum() / s.size) if self.model.intercept else g

    def place(self) -> Place:
        """Return where training stands."""
        return Place(self.steps, self._point, self._average)

    @property
    def w(self) -> Vector:
        """The iterate."""
        return self._point.w.copy()

    @property
    def average(self) -> Vector:
        """The mean of the iterates."""
        if not self.model.average:
            raise no_average()
        return self._average.copy()
