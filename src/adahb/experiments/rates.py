"""Fitted rates: the exponent with which the gap falls, on the hard function and on hinge losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adahb.experiments.findings import Estimate, mean, slope, slope_at_end
from adahb.experiments.runs import Hard, Hinge, Method, Task
from adahb.experiments.store import Store
from adahb.problems import LinearObjective
from adahb.schedules import Adaptive, Output, best_alpha
from adahb.sets import ConvexSet

HORIZONS = tuple(2**k for k in range(7, 15))
SEEDS = (0, 1, 2, 3, 4)
TUNING_SEED = 5
GRID = (2.0, 0.5, 0.125, 0.03125, 0.0078125)
"""Multiples of the theory's α among which the best is taken, with a seed of its own."""


@dataclass(frozen=True)
class HardRate:
    """The exponent on the hard function, full subgradients, one run a horizon.

    Every horizon is another function, and each of them starts at its optimum: the gap first rises
    and bends into its rate.  ``local`` is the exponent that the bend has reached at the last
    horizon, ``line`` that of a straight line through all of them.
    """

    label: str
    method: Method
    output: Output = "last"

    def tasks(self) -> list[Task]:
        """One run a horizon."""
        return [Task(Hard(T), self.method, (T,)) for T in HORIZONS]

    def line(self, store: Store) -> Estimate:
        """The slope of log gap over log T."""
        return slope(HORIZONS, self.gaps(store))

    def local(self, store: Store) -> Estimate:
        """The slope at the last horizon of a parabola through them."""
        return slope_at_end(HORIZONS, self.gaps(store))

    def gaps(self, store: Store) -> NDArray[np.float64]:
        """The gap at every horizon."""
        return np.concatenate([task.gaps(store, self.output) for task in self.tasks()])


@dataclass(frozen=True)
class HingeRate:
    """The exponent on a hinge problem, single samples, five repeats along one run each.

    α is the best of the grid by the gap at the last horizon.  Where ``tuned_like`` is given, its
    choice is taken: a constant momentum only divides what α multiplies.
    """

    label: str
    problem: Hinge
    method: Method
    output: Output = "last"
    tuned_like: HingeRate | None = None

    def tuning_tasks(self) -> list[Task]:
        """One run for each α of the grid."""
        if self.tuned_like is not None:
            return self.tuned_like.tuning_tasks()
        return [self._task(factor, TUNING_SEED) for factor in GRID]

    def factor(self, store: Store) -> float:
        """The multiple of the theory's α that did best."""
        if self.tuned_like is not None:
            return self.tuned_like.factor(store)
        final = [task.gaps(store, self.output)[-1] for task in self.tuning_tasks()]
        return GRID[int(np.argmin(final))]

    def tasks(self, store: Store) -> list[Task]:
        """The repeats, at the chosen α."""
        return [self._task(self.factor(store), seed) for seed in SEEDS]

    def line(self, store: Store) -> Estimate:
        """The slope of log gap over log t, its mean over the repeats."""
        gaps = [task.gaps(store, self.output) for task in self.tasks(store)]
        return mean([slope(HORIZONS, gap).value for gap in gaps])

    def _task(self, factor: float, seed: int) -> Task:
        schedule = self.method.schedule
        alpha = factor * schedule.alpha * theory_alpha(self.problem, self.method)
        method = replace(self.method, schedule=replace(schedule, alpha=alpha))
        return Task(self.problem, method, HORIZONS, seed)


class OnBall(Protocol):
    """A linear model's loss on an l1 ball."""

    @property
    def radius(self) -> float:
        """The ball's."""

    def make(self) -> tuple[LinearObjective, ConvexSet]:
        """The objective and the set."""


def theory_alpha(problem: OnBall, method: Method) -> float:
    """The α that minimises the bound of Theorem 3 or 5; the l1 ball is 2τ wide in both norms."""
    if isinstance(method.schedule, Adaptive):
        return best_alpha(2 * problem.radius, gamma=method.schedule.gamma)
    objective, _ = problem.make()
    return best_alpha(2 * problem.radius, lipschitz=objective.sample_lipschitz())
