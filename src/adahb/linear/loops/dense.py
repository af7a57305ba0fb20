"""The dense loop: every coordinate in every step, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from adahb.certificates import DualAverages
from adahb.linear.loops.base import (
    BOXES,
    Loop,
    Model,
    Order,
    Place,
    Samples,
    Vector,
    bounds,
    no_average,
    not_finite,
    per_row,
)
from adahb.linear.loops.derivatives import coded
from adahb.reference import Point
from adahb.sets import L1Ball, L2Ball, Simplex

CHUNK = 1 << 16
"""Steps whose coefficients are made together."""


class Dense(Loop):
    """A step costs the dimension, at the speed of vector code."""

    name = "dense"

    def __init__(self, model: Model, place: Place) -> None:
        super().__init__(model, place)
        point = place.point
        self._w, self._u, self._z, self._v = (vector.copy() for vector in point)
        self._mean = place.average.copy()

    @classmethod
    def refuses(cls, model: Model, samples: Samples) -> str | None:  # noqa: ARG003
        """Say why the loop cannot train this model on such samples; None if it can."""
        constraint = model.settings.constraint
        if coded(model.loss) is None:
            return f"{model.loss!r} is not compiled"
        if type(constraint) not in (type(None), L1Ball, L2Ball, Simplex, *BOXES):
            return f"the projection on {type(constraint).__name__} is not compiled"
        return None

    def work(self, samples: Samples) -> float:
        """Return about how many numbers a step moves."""
        return self._w.size + self.model.batch_size * per_row(samples)

    def run(self, samples: Samples, order: Order, duals: DualAverages) -> None:
        """Take the steps on the rows in ``order``, noting each derivative in ``duals``."""
        from adahb.linear.loops import dense_steps as steps

        model, size = self.model, self.model.batch_size
        X: Any = samples.objective.X
        dense = isinstance(X, np.ndarray)
        indptr, indices, data = (None, None, X) if dense else (X.indptr, X.indices, X.data[None])
        code, parameter = coded(model.loss) or (0, 0.0)
        moves_z = model.settings.moves_z(model.schedule)
        move = steps.AVERAGING if moves_z else steps.PAPER
        move = steps.EXTRAPOLATION if model.schedule.extrapolates else move
        kind, radius, lower, upper = _numbers(model)
        metric = model.adaptive and model.settings.projection == "metric"
        for first in range(0, order.size, CHUNK * size):
            rows = order[first : first + CHUNK * size]
            t = np.arange(self.steps + 1, self.steps - (-rows.size // size) + 1)
            at = model.schedule(t)
            beta2, delta = (at.beta2, at.delta) if model.adaptive else (at.c, at.c)
            taken = steps.train(
                rows, size, self.steps + 1, samples.objective.y, samples.weights, indptr, indices,
                data, code, parameter, model.intercept, move, kind, radius, lower,
                upper, at.alpha, at.beta1, at.eta, at.c, beta2, delta, self._w, self._u, self._z,
                self._v, self._mean, duals.sums, duals.visits, model.adaptive, metric,
                model.average,
            )  # fmt: skip
            self.steps += taken
            if taken < t.size:
                raise not_finite(self.steps + 1)

    def place(self) -> Place:
        """Return where training stands."""
        w, u, z = self._w.copy(), self._u.copy(), self._z.copy()
        if self.steps and not self.model.settings.moves_z(self.model.schedule):
            c = self.model.schedule(self.steps).c
            z = w + (1 - c) / c * u
        return Place(self.steps, Point(w, u, z, self._v.copy()), self._mean.copy())

    @property
    def w(self) -> Vector:
        """The iterate."""
        return self._w.copy()

    @property
    def average(self) -> Vector:
        """The mean of the iterates."""
        if not self.model.average:
            raise no_average()
        return self._mean.copy()


def _numbers(model: Model) -> tuple[int, float, Vector, Vector]:
    """Return the kind of the set, its radius or total, and its bounds."""
    from adahb.linear.loops import projections as p

    constraint, nothing = model.settings.constraint, np.zeros(1)
    if constraint is None:
        return p.FREE, 0.0, nothing, nothing
    if isinstance(constraint, L1Ball | L2Ball):
        kind = p.L1 if isinstance(constraint, L1Ball) else p.L2
        return kind, float(constraint.radius), nothing, nothing
    if isinstance(constraint, Simplex):
        return p.SIMPLEX, float(constraint.total), nothing, nothing
    return p.BOX, 0.0, *bounds(constraint)
