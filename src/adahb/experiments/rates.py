"""Fitted rates: how the gap falls with T, on the hard function and on hinge losses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from adahb.experiments.findings import Estimate, mean, slope
from adahb.experiments.runs import Hard, Hinge, Method, Task
from adahb.experiments.store import Store
from adahb.schedules import Output, best_alpha

HORIZONS = tuple(2**k for k in range(7, 15))
SEEDS = range(5)
RADII = {"breast_cancer": 1.0, "digits": 5.0}


@dataclass(frozen=True)
class Rate:
    """The exponent s with which an output's gap falls like T^s."""

    label: str
    tasks: tuple[Task, ...]
    output: Output = "last"

    def estimate(self, store: Store) -> Estimate:
        """Fit over the horizons; the interval is the fit's, or that over repeats if there are any.

        On the hard function every horizon is another function, and one run gives one point.
        """
        gaps = [task.gaps(store, self.output) for task in self.tasks]
        if self.tasks[0].seed is None:
            return slope(HORIZONS, np.concatenate(gaps))
        return mean([slope(HORIZONS, gap).value for gap in gaps])


def on_hard(label: str, method: Method, output: Output = "last") -> Rate:
    """The rate on the hard function, with full subgradients."""
    tasks = tuple(Task(Hard(T), method, (T,)) for T in HORIZONS)
    return Rate(f"{label}, hard function", tasks, output)


def on_hinge(label: str, method: Method, output: Output = "last") -> Iterator[Rate]:
    """The rates on the bundled hinge problems, single samples, with α from the theory."""
    for dataset, radius in RADII.items():
        problem = Hinge(dataset, radius)
        alpha = _alpha(problem, method)
        tuned = replace(method, schedule=replace(method.schedule, alpha=alpha))
        tasks = tuple(Task(problem, tuned, HORIZONS, seed) for seed in SEEDS)
        yield Rate(f"{label}, hinge on {dataset}", tasks, output)
