"""Figure 6 of the paper: the hinge loss on l1 balls, one sample a step, f(w) - f* by the epoch.

A *contender* is a method whose last iterate or average is looked at.  Its α is a multiple of the
one that minimises the bound of its theorem; which one, is decided on a grid by the gap at the end
of a run with a seed of its own.  Samples are drawn independently; an epoch is as many draws as
there are samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adahb import schedules
from adahb.data import load_libsvm
from adahb.data.files import DownloadFailed
from adahb.data.libsvm import locate
from adahb.data.registry import SOURCES
from adahb.experiments.hinge import hinge
from adahb.experiments.minimum import minimise
from adahb.experiments.rates import TUNING_SEED, theory_alpha
from adahb.experiments.runs import Method
from adahb.experiments.store import Job, Json, Store, environment
from adahb.linear.machine import Machine
from adahb.problems import LinearObjective
from adahb.schedules import Output
from adahb.sets import L1Ball

RADII = {
    "covtype": 50.0,
    "real-sim": 60.0,
    "a9a": 20.0,
    "w8a": 30.0,
    "ijcnn1": 10.0,
    "rcv1": 80.0,
    "reuters": 80.0,
    "news20": 60.0,
}
"""Data sets and the radii of their balls: the paper's six, newswire and Usenet in case two lack."""
BUNDLED = {"breast_cancer": 1.0, "digits": 5.0}
"""What scikit-learn carries, for where there are no data and no network."""
STEPS, COORDINATES, FEWEST, MOST = 1_000_000, 4e9, 10, 100
"""A run has about so many steps, or so many that steps times features are the second number if that
is less; but no fewer and no more epochs than these."""
GRID = tuple(2.0 * 4.0**-k for k in range(7))
"""Multiples of the theory's α among which the best is taken."""
START_FACTOR, START_EPOCHS = 0.125, 5
"""Of the heavy ball whose last iterate is the first guess of the minimum."""


@dataclass(frozen=True)
class Problem:
    """Mean hinge loss of a data set on the l1 ball of a radius; ``home`` is where the data are."""

    dataset: str
    radius: float
    home: str | None = None

    def spec(self) -> dict[str, Json]:
        """What determines the problem; where its data lie does not."""
        return {"dataset": self.dataset, "radius": self.radius}

    def make(self) -> tuple[LinearObjective, L1Ball]:
        """The objective and the set."""
        return _objective(self.dataset, self.home), L1Ball(self.radius)

    def epochs(self) -> int:
        """So many epochs make about STEPS steps."""
        known = SOURCES.get(self.dataset)
        n, d = hinge(self.dataset).X.shape if known is None else (known.rows, known.columns)
        return int(np.clip(round(min(STEPS, COORDINATES / d) / n), FEWEST, MOST))


@lru_cache(maxsize=1)  # a worker meets the runs of a data set one after the other
def _objective(dataset: str, home: str | None) -> LinearObjective:
    if dataset in BUNDLED:
        return hinge(dataset)
    data = load_libsvm(dataset, home)
    return LinearObjective(data.X, data.y, "hinge")


def available(
    home: str | None, sets: Sequence[str] | None, say: Callable[[str], None]
) -> list[Problem]:
    """The problems of the sets asked for, or of all that can be had, saying what cannot.

    After a download that failed no other is tried.
    """
    known = RADII | BUNDLED
    if sets is not None:
        strange = [name for name in sets if name not in known]
        if strange or not sets:
            raise ValueError(f"sets must be some of {', '.join(known)}, got {', '.join(strange)!r}")
        for name in sets:
            if name in RADII:
                locate(name, home)
        return [Problem(name, known[name], home) for name in sets]
    found, online = [], True
    for name, radius in RADII.items():
        try:
            locate(name, home, download=online)
        except FileNotFoundError as error:
            online = online and not isinstance(error, DownloadFailed)
            say(f"without {name}: {error}")
        else:
            found.append(Problem(name, radius, home))
    if not found:
        say("no data set of the paper can be had: running on those that scikit-learn carries")
        found = bundled()
    return found


def bundled() -> list[Problem]:
    """The problems that need neither a folder nor a network connection."""
    return [Problem(name, radius) for name, radius in BUNDLED.items()]


def recorded(epochs: int) -> list[float]:
    """The epochs at which f is evaluated: dense at first, then evenly."""
    early = [0.125, 0.25, 0.5, *np.round(np.geomspace(1, epochs, 12))]
    even = np.round(np.linspace(1, epochs, min(epochs, 20)))
    return sorted({float(epoch) for epoch in (*early, *even) if epoch <= epochs})


@dataclass(frozen=True)
class Minimum:
    """The minimum of a problem, certified."""

    problem: Problem

    @property
    def name(self) -> str:
        """The data set."""
        return f"minimum-{self.problem.dataset}"

    def spec(self) -> dict[str, Json]:
        """The problem."""
        return {"kind": "minimum", **self.problem.spec()}

    def compute(self) -> Json:
        """Solve, beginning at the end of a short run of the heavy ball."""
        objective, ball = self.problem.make()
        method = Method(schedules.HB(alpha=START_FACTOR), "paper")
        machine = _machine(self.problem, method)
        rng = np.random.default_rng(TUNING_SEED)
        machine.run(rng.integers(objective.n, size=START_EPOCHS * objective.n))
        found = minimise(objective, ball.radius, machine.coef)
        facts = {"n": objective.n, "d": objective.dim, "nonzeros": int(np.count_nonzero(found.w))}
        return {"value": found.value, "lower_bound": found.lower_bound, **facts}


@dataclass(frozen=True)
class Curve:
    """One run; the α of its schedule is a multiple of the theory's."""

    problem: Problem
    method: Method
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        """The data set and the schedule."""
        return f"convex-{self.problem.dataset}-{type(self.method.schedule).__name__}".lower()

    def spec(self) -> dict[str, Json]:
        """What determines the numbers, as plain data."""
        schedule = type(self.method.schedule).__name__
        run = {"epochs": self.epochs, "recorded": recorded(self.epochs), "seed": self.seed}
        return {
            "kind": "convex",
            "schedule_kind": schedule,
            **self.problem.spec(),
            **asdict(self.method),
            **run,
        }

    def compute(self) -> Json:
        """Evaluate f at the last iterate and at the average, at the recorded epochs."""
        objective, _ = self.problem.make()
        machine = _machine(self.problem, self.method)
        rng = np.random.default_rng(self.seed)
        steps = [round(epoch * objective.n) for epoch in recorded(self.epochs)]
        values: dict[str, list[float]] = {"last": [], "average": []}
        for before, after in pairwise([0, *steps]):
            machine.run(rng.integers(objective.n, size=after - before))
            values["last"].append(objective.value(machine.coef))
            values["average"].append(objective.value(machine.average_coef))
        return {**values, "alpha": machine.model.schedule.alpha}


def _machine(problem: Problem, method: Method) -> Machine:
    """The method in training, its α turned from a multiple of the theory's into a number."""
    objective, ball = problem.make()
    alpha = method.schedule.alpha * theory_alpha(problem, method)
    return Machine(
        objective.X,
        objective.y,
        objective.loss,
        replace(method.schedule, alpha=alpha),
        constraint=ball,
        form=method.form,
        projection=method.projection,
    )


@dataclass(frozen=True)
class Contender:
    """What a curve of the figure shows; ``published`` if the paper has it."""

    label: str
    problem: Problem
    method: Method
    output: Output = "last"
    published: bool = True
    epochs: int = FEWEST
    repeats: int = 5

    def tuning(self) -> list[Curve]:
        """One run for each α of the grid."""
        return [self._curve(factor, TUNING_SEED) for factor in GRID]

    def factor(self, store: Store) -> float:
        """The multiple of the theory's α that ended lowest."""
        final = [store.result(curve)[self.output][-1] for curve in self.tuning()]
        return GRID[int(np.argmin(final))]

    def curves(self, store: Store) -> list[Curve]:
        """The repeats, at the chosen α; their seeds are not the one that chose."""
        seeds = [seed for seed in range(self.repeats + 1) if seed != TUNING_SEED]
        return [self._curve(self.factor(store), seed) for seed in seeds[: self.repeats]]

    def gaps(self, store: Store) -> NDArray[np.float64]:
        """Return f - f* of each repeat, a row, at the recorded epochs."""
        least = store.result(Minimum(self.problem))["value"]
        values = [store.result(curve)[self.output] for curve in self.curves(store)]
        gaps = np.array(values, dtype=np.float64) - least
        return np.asarray(np.maximum(gaps, np.finfo(np.float64).tiny))

    def _curve(self, factor: float, seed: int) -> Curve:
        schedule = replace(self.method.schedule, alpha=factor)
        return Curve(self.problem, replace(self.method, schedule=schedule), self.epochs, seed)


def contenders(problem: Problem, *, repeats: int = 5, epochs: int | None = None) -> list[Contender]:
    """The curves of a panel, α = 1 standing for what is tuned.

    The paper does not say which γ it took; here V is the plain mean of the squared gradients.
    """
    psg, hb = schedules.PSG(alpha=1.0), schedules.HB(alpha=1.0)
    ada, nag = schedules.AdaHB(alpha=1.0, gamma=1.0), schedules.NAG(alpha=1.0)
    chosen: list[tuple[str, Method, Output, bool]] = [
        ("PSG, last", Method(psg), "last", False),
        ("PSG, average", Method(psg), "average", True),
        ("HB, last", Method(hb, "paper"), "last", True),
        ("HB, averaging form, last", Method(hb), "last", False),
        ("NAG (reconstructed), last", Method(nag), "last", True),
        ("AdaHB as printed, last", Method(ada, "paper", "euclidean"), "last", True),
        ("AdaHB, metric, last", Method(ada, "paper", "metric"), "last", False),
        ("AdaHB, metric, averaging form, last", Method(ada), "last", False),
    ]
    length = problem.epochs() if epochs is None else epochs
    return [
        Contender(label, problem, method, output, published, length, repeats)
        for label, method, output, published in chosen
    ]


def tuning(panels: Sequence[Sequence[Contender]]) -> list[Job]:
    """The runs that decide about α, and the minima."""
    jobs: list[Job] = []
    for panel in panels:
        jobs += [Minimum(panel[0].problem), *(run for c in panel for run in c.tuning())]
    return jobs


def repeats(store: Store, panels: Sequence[Sequence[Contender]]) -> list[Job]:
    """The runs that are shown, once the tuning is in the store."""
    return [run for panel in panels for c in panel for run in c.curves(store)]


def data(store: Store, panels: Sequence[Sequence[Contender]]) -> Json:
    """All that the figure shows, as plain data."""
    return {
        "figure": "f(w) - f* of the hinge loss on an l1 ball, one sample a step",
        "band": "geometric mean, least and most over the repeats",
        "sampling": "independent draws, n of them an epoch",
        "alpha": "the best multiple of the theory's on the grid, by the gap at the end of a run "
        "with a seed of its own",
        "grid": list(GRID),
        "panels": [_panel(store, panel) for panel in panels],
        "environment": environment(),
    }


def _panel(store: Store, panel: Sequence[Contender]) -> Json:
    problem, epochs = panel[0].problem, panel[0].epochs
    minimum = store.result(Minimum(problem))
    gaps = [contender.gaps(store) for contender in panel]
    uncertainty = max(minimum["value"] - minimum["lower_bound"], np.finfo(np.float64).eps)
    return {
        **problem.spec(),
        "minimum": minimum,
        "smallest gap over that of the minimum": float(min(g.min() for g in gaps) / uncertainty),
        "repeats": panel[0].repeats,
        "epoch": recorded(epochs),
        "curves": [_shown(store, c, gap) for c, gap in zip(panel, gaps, strict=True)],
    }


def _shown(store: Store, contender: Contender, gaps: NDArray[np.float64]) -> Json:
    first = contender.curves(store)[0]
    method: dict[str, Any] = {
        "schedule": type(contender.method.schedule).__name__,
        "form": contender.method.form,
        "projection": contender.method.projection,
        "alpha over the theory's": contender.factor(store),
        "alpha": store.result(first)["alpha"],
    }
    return {
        "label": contender.label,
        "published": contender.published,
        "output": contender.output,
        "method": method,
        "value": _rounded(np.exp(np.log(gaps).mean(axis=0))),
        "low": _rounded(gaps.min(axis=0)),
        "high": _rounded(gaps.max(axis=0)),
    }


def _rounded(values: NDArray[np.float64]) -> list[float]:
    """Five digits of each, which is more than can be seen."""
    return [float(f"{value:.5g}") for value in values]
