"""What a loop is given, what it keeps, and what it answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from adahb.certificates import DualAverages
from adahb.problems import LinearObjective, Loss
from adahb.reference import Point, Settings
from adahb.schedules import Adaptive, Schedule
from adahb.sets import Box, ConvexSet, LinfBall, NonNegative

Vector = NDArray[np.float64]
Order = NDArray[np.intp]

BOXES: tuple[type[ConvexSet], ...] = (Box, LinfBall, NonNegative)
"""The sets that bound each coordinate on its own."""


@dataclass(frozen=True)
class Samples:
    """The rows to train on, and what multiplies the derivative of each; None is one for all."""

    objective: LinearObjective
    weights: Vector | None = None

    @cached_property
    def repeats(self) -> bool:
        """Whether a row of a CSR matrix has a column twice."""
        from adahb.linear.loops.compiled import repeated

        X: Any = self.objective.X
        return not X.has_canonical_format and repeated(X.indptr, X.indices, X.shape[1])


@dataclass(frozen=True)
class Model:
    """What is trained and how; ``settings`` has the form, the projection and the coef's set."""

    loss: Loss
    schedule: Schedule
    settings: Settings
    intercept: bool
    average: bool = True
    """Whether the mean of the iterates is kept."""

    @property
    def adaptive(self) -> bool:
        """Whether there is a second moment."""
        return isinstance(self.schedule, Adaptive)

    @property
    def delta(self) -> float:
        """The δ of an adaptive schedule."""
        return self.schedule.delta if isinstance(self.schedule, Adaptive) else 0.0

    @property
    def batch_size(self) -> int:
        """The samples of a step."""
        return self.settings.batch_size or 1

    @cached_property
    def extended(self) -> Settings:
        """The settings for vectors with the intercept as their last coordinate."""
        s = self.settings
        if not self.intercept or s.constraint is None:
            return s
        free = cast("ConvexSet", FreeLast(s.constraint))
        return Settings(free, s.form, s.projection, s.batch_size)


@dataclass(frozen=True)
class FreeLast:
    """The set of the vectors whose last coordinate is free and whose others are in ``coef``."""

    coef: ConvexSet

    def project(self, x: Vector, metric: Vector | None = None) -> Vector:
        """Return the nearest point: a free coordinate stays where it is."""
        y = self.coef.project(x[:-1], None if metric is None else metric[:-1])
        return np.append(y, x[-1])

    def support(self, g: Vector) -> float:
        """Return the support function, which is infinite where the free coordinate counts."""
        return math.inf if g[-1] else float(self.coef.support(g[:-1]))


@dataclass(frozen=True)
class Place:
    """Where training stands, so that any loop can go on from it.

    The vectors have the intercept, if there is one, as their last coordinate.
    """

    steps: int
    point: Point
    average: Vector
    """(1/t) (w_1 + ... + w_t) over the steps done."""

    @classmethod
    def start(cls, w: Vector) -> Place:
        """Return the place before the first step, at ``w``."""
        zero = np.zeros_like(w)
        return cls(0, Point(w, zero, w, zero), w)


class Loop(ABC):
    """Takes the steps of one model.  A family of loops differs in speed alone."""

    name: ClassVar[str]

    def __init__(self, model: Model, place: Place) -> None:
        self.model = model
        self.steps = place.steps

    @classmethod
    def refuses(cls, model: Model, samples: Samples) -> str | None:  # noqa: ARG003
        """Say why the loop cannot train this model on such samples; None if it can."""
        return None

    @abstractmethod
    def work(self, samples: Samples) -> float:
        """Return about how many numbers a step moves; a few of them take a nanosecond each."""

    @abstractmethod
    def run(self, samples: Samples, order: Order, duals: DualAverages) -> None:
        """Take the steps on the rows in ``order``, noting each derivative in ``duals``."""

    @abstractmethod
    def place(self) -> Place:
        """Return where training stands; the vectors are the caller's."""

    @property
    @abstractmethod
    def w(self) -> Vector:
        """The iterate w_{t+1}, a copy, with the intercept last."""

    @property
    @abstractmethod
    def average(self) -> Vector:
        """The mean of w_1, ..., w_t, a copy, with the intercept last; at the start w_1."""


STEEPEST = 1e45
"""The largest derivative of a loss that is stepped with: its square is still a float."""


def per_row(samples: Samples) -> float:
    """Return the mean number of a row's values, 1 at least."""
    X: Any = samples.objective.X
    values: int = X.nnz if hasattr(X, "nnz") else X.size
    rows: int = X.shape[0]
    return max(values / rows, 1.0)


def not_finite(step: int) -> FloatingPointError:
    """Return the error for a run that has diverged."""
    return FloatingPointError(
        f"the derivative of a loss is not finite at step {step}, or beyond {STEEPEST:g}; a smaller "
        "step size may help, or features and targets of sizes near one"
    )


def with_intercept(model: Model, coef: Any, intercept: float) -> Vector:
    """Return the vector that the loops move."""
    w = np.array(coef, dtype=np.float64)
    return np.append(w, intercept) if model.intercept else w


def no_average() -> AttributeError:
    """Return the error for asking after a mean that was not kept."""
    return AttributeError("the mean of the iterates was not kept: it needs average=True")


def bounds(constraint: ConvexSet | None) -> tuple[Vector, Vector]:
    """Return the bounds of every coordinate, as arrays of length 1 where they are all alike."""
    if constraint is None:
        return np.array([-np.inf]), np.array([np.inf])
    lower, upper = (np.atleast_1d(np.asarray(b, float)) for b in cast("Box", constraint)._bounds)
    return np.ascontiguousarray(lower), np.ascontiguousarray(upper)
