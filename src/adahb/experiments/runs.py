"""What the convex experiments run: a method on a problem, and the curve that comes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adahb import reference
from adahb.experiments.hinge import hinge, optimum
from adahb.experiments.store import Json, Store
from adahb.problems import HardFunction, LinearObjective
from adahb.reference import Form, Projection
from adahb.schedules import Output, Schedule
from adahb.sets import ConvexSet, L1Ball, L2Ball


@dataclass(frozen=True)
class Hard:
    """The hard function on the unit ball; every T is another function."""

    T: int
    c: float = 2.0
    reading: Literal["original", "paper"] = "original"

    def __post_init__(self) -> None:
        self.make()  # refuses what cannot be made

    @property
    def f_star(self) -> float:
        """The minimum, zero."""
        return HardFunction.f_star

    def make(self) -> tuple[HardFunction, ConvexSet]:
        """The objective and the set."""
        return HardFunction(self.T, self.c, self.reading), L2Ball(1.0)


@dataclass(frozen=True)
class Hinge:
    """Mean hinge loss on an l1 ball, of a data set that scikit-learn carries."""

    dataset: str
    radius: float

    @property
    def f_star(self) -> float:
        """The minimum, from a linear program."""
        return optimum(self.dataset, self.radius).value

    def make(self) -> tuple[LinearObjective, ConvexSet]:
        """The objective and the set."""
        return hinge(self.dataset), L1Ball(self.radius)


@dataclass(frozen=True)
class Method:
    """A schedule and the way it is run."""

    schedule: Schedule
    form: Form = "averaging"
    projection: Projection = "metric"


@dataclass(frozen=True)
class Task:
    """A method on a problem; f is recorded at the steps ``record``, of which the last ends it.

    ``seed=None`` takes full subgradients; a number takes single samples, drawn with that seed.
    """

    problem: Hard | Hinge
    method: Method
    record: tuple[int, ...]
    seed: int | None = None

    @property
    def name(self) -> str:
        """The kind of problem and the schedule."""
        problem, schedule = type(self.problem).__name__, type(self.method.schedule).__name__
        return f"{problem}-{schedule}".lower()

    def spec(self) -> dict[str, Json]:
        """What determines the numbers, as plain data."""
        kinds = {"problem": type(self.problem), "schedule": type(self.method.schedule)}
        return asdict(self) | {f"{key}_kind": kind.__name__ for key, kind in kinds.items()}

    def compute(self) -> Json:
        """Run it and return f of the last iterate and of the average at the recorded steps."""
        objective, constraint = self.problem.make()
        run = reference.run(
            objective,
            self.record[-1],
            self.method.schedule,
            constraint=constraint,
            form=self.method.form,
            projection=self.method.projection,
            batch_size=None if self.seed is None else 1,
            seed=self.seed or 0,
            record=self.record,
        )
        values = {"last": run.trace.value.tolist(), "average": run.trace.average_value.tolist()}
        return values | {"step": run.trace.step.tolist()}

    def gaps(self, store: Store, output: Output = "last") -> NDArray[np.float64]:
        """The gap f - f* of an output at the recorded steps."""
        values = np.array(store.result(self)[output], dtype=np.float64)
        return values - self.problem.f_star
