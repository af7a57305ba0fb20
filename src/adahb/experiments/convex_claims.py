"""C3, and C2 where the paper's experiments are: on the problems of figure 6."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adahb.experiments import convex
from adahb.experiments.convex import Contender, Problem
from adahb.experiments.findings import Claim, Estimate, Finding, geometric_mean, mean, slope
from adahb.experiments.store import Job, Store

ALIKE = 2.0
"""Gaps count as alike while one is at most so many times the other."""
SLACK = 0.05
"""As in the other claims about exponents."""
AVERAGE, LAST = "PSG, average", "PSG, last"
METHODS = {
    "HB": "HB, averaging form, last",
    "HB, paper form": "HB, last",
    "NAG": "NAG (reconstructed), last",
    "AdaHB": "AdaHB, metric, averaging form, last",
    "AdaHB, paper form": "AdaHB, metric, last",
    "AdaHB printed": "AdaHB as printed, last",
}
Panels = tuple[tuple[Contender, ...], ...]


@dataclass(frozen=True)
class OnFigure6:
    """A part of a claim that is judged by the curves of figure 6."""

    id: str
    label: str
    panels: Panels

    def tuning(self) -> Iterable[Job]:
        """The grids, and the minima."""
        return convex.tuning(self._wanted())

    def jobs(self, store: Store) -> Iterable[Job]:
        """The repeats of the curves that are compared."""
        return convex.repeats(store, self._wanted())

    def _wanted(self) -> list[list[Contender]]:
        labels = (self.label, AVERAGE, LAST)
        return [[c for c in panel if c.label in labels] for panel in self.panels]

    def _curve(self, panel: Sequence[Contender], label: str) -> Contender:
        return next(c for c in panel if c.label == label)


@dataclass(frozen=True)
class LikeTheAverage(OnFigure6):
    """C3: the last iterate is no worse than PSG's average, up to a factor."""

    def judge(self, store: Store) -> Claim:
        """At most ALIKE times the gap of PSG's average, over the second half of the epochs."""
        findings = []
        for panel in self.panels:
            dataset = panel[0].problem.dataset
            ours, average, last = (self._curve(panel, k) for k in (self.label, AVERAGE, LAST))
            what = f"gap of {self.label} over that of PSG's average, {dataset}"
            findings.append(Finding(what, _ratio(store, ours, average), at_most=ALIKE))
            beside = f"the same of PSG's last iterate, {dataset}"
            findings.append(Finding(beside, _ratio(store, last, average)))
        return Claim(
            self.id,
            f"on l1-ball hinge, {self.label} behaves like PSG's average",
            findings,
            f"Geometric means over the second half of the epochs, {panel[0].repeats} repeats; "
            f"alike is at most {ALIKE:g} times the gap at equal epochs, every α tuned.",
        )


@dataclass(frozen=True)
class RateOnData(OnFigure6):
    """C2 on data: the last iterate's exponent."""

    def judge(self, store: Store) -> Claim:
        """At most -1/2 within the slack, over the last factor of ten in t."""
        findings = []
        for panel in self.panels:
            dataset = panel[0].problem.dataset
            exponent = _exponent(store, self._curve(panel, self.label))
            findings.append(
                Finding(f"{self.label}, {dataset}: exponent", exponent, at_most=SLACK - 0.5)
            )
            beside = _exponent(store, self._curve(panel, AVERAGE))
            findings.append(Finding(f"{AVERAGE}, {dataset}: exponent", beside))
        return Claim(
            self.id,
            f"{self.label} converges like 1/√t on l1-ball hinge",
            findings,
            "Slopes over the last factor of ten in t, at an α that is tuned for the end of the "
            "run: a rate for all t says less about them than about a fixed α.",
        )


def parts(problems: Sequence[Problem]) -> list[LikeTheAverage | RateOnData]:
    """What is judged on these problems."""
    panels = tuple(tuple(convex.contenders(problem)) for problem in problems)
    alike = [LikeTheAverage(f"C3 {name}", label, panels) for name, label in METHODS.items()]
    rates = [
        RateOnData(f"C2 {name}, figure 6", label, panels)
        for name, label in METHODS.items()
        if name != "NAG"
    ]
    return [*rates, *alike]


def _ratio(store: Store, ours: Contender, other: Contender) -> Estimate:
    """Geometric mean over the late epochs of each repeat, then over the repeats."""
    late = np.array(convex.recorded(ours.epochs)) >= ours.epochs / 2
    return geometric_mean(_level(ours.gaps(store)[:, late]) / _level(other.gaps(store)[:, late]))


def _level(gaps: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.exp(np.log(gaps).mean(axis=1)))


def _exponent(store: Store, contender: Contender) -> Estimate:
    epochs = np.array(convex.recorded(contender.epochs))
    late = epochs >= contender.epochs / 10
    return mean([slope(epochs[late], gap[late]).value for gap in contender.gaps(store)])
