"""The convex claims of the paper, judged by measurement: C1 to C4 and C8.

A claim falls into parts where parts of it fare differently.  Each part knows its runs and how to
judge them; :func:`judge` makes the runs that are missing and asks every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from rich.console import Console

from adahb import schedules
from adahb.experiments import convex_claims, synthetic, theorems
from adahb.experiments.convex import Problem, bundled
from adahb.experiments.findings import Claim, Estimate, Finding, exact, geometric_mean, slope_at_end
from adahb.experiments.rates import HORIZONS, HardRate, HingeRate
from adahb.experiments.runs import Hinge, Method
from adahb.experiments.store import Job, Store
from adahb.experiments.synthetic import ADAHB, HB
from adahb.schedules import Output, Schedule

SLACK = 0.05
"""A fitted exponent counts as another if it is at most this far from it."""
PROBLEMS = (Hinge("breast_cancer", 1.0), Hinge("digits", 5.0))
BETAS = (0.5, 0.9, 0.99)


class Part(Protocol):
    """A part of a claim: what it takes, and what follows."""

    def tuning(self) -> Iterable[Job]:
        """Runs that decide what is run."""

    def jobs(self, store: Store) -> Iterable[Job]:
        """The runs that are judged, once the tuning is in the store."""

    def judge(self, store: Store) -> Claim:
        """The verdict, once all runs are in the store."""


@dataclass(frozen=True)
class AgainstPSG:
    """C1: the heavy ball below the subgradient method at the horizon the function is made for."""

    rates = (HardRate("PSG", Method(schedules.PSG(alpha=2.0))), HardRate("HB", Method(HB, "paper")))

    def tuning(self) -> Iterable[Job]:
        """Nothing."""
        return ()

    def jobs(self, store: Store) -> Iterable[Job]:  # noqa: ARG002
        """Two curves of each panel, and the last iterates for every horizon."""
        curves = [curve.task for pair in self._pairs() for curve in pair]
        return [*curves, *(task for rate in self.rates for task in rate.tasks())]

    def judge(self, store: Store) -> Claim:
        """Below one at T of both panels, and on the mean over all horizons."""
        findings = []
        for psg, hb in self._pairs():
            ratio = hb.task.gaps(store) / psg.task.gaps(store).clip(min=1e-300)
            T, tail = ratio.size, ratio[ratio.size // 2 :]
            what = f"f(w_T) of HB over that of PSG, T = {T}"
            over_tail = Estimate(float(ratio[-1]), float(tail.min()), float(tail.max()))
            findings += [
                Finding(what, exact(float(ratio[-1])), at_most=1.0),
                Finding(f"the same, from its least to its most over t = T/2, ..., {T}", over_tail),
            ]
        psg_gaps, hb_gaps = (rate.gaps(store) for rate in self.rates)
        findings.append(
            Finding(
                "geometric mean of that ratio over T = 2^7, ..., 2^14",
                geometric_mean(hb_gaps / psg_gaps),
                at_most=1.0,
            )
        )
        statement = "HB's last iterate beats PSG's on the hard function"
        remark = (
            "With the constants of the paper, at t = T, of which the function speaks; before that "
            "PSG is the lower one. Both start at the optimum: tuning would make the steps vanish."
        )
        return Claim("C1", statement, findings, remark)

    @staticmethod
    def _pairs() -> list[list[synthetic.FigureCurve]]:
        wanted = ("PSG, last", "HB")
        panels = (synthetic.curves(T) for T in synthetic.HORIZONS)
        return [[c for label in wanted for c in panel if c.label == label] for panel in panels]


@dataclass(frozen=True)
class Rates:
    """C2 and C4: exponents on the hard function and on hinge losses, at most -1/2 each."""

    id: str
    statement: str
    hard: tuple[HardRate, ...]
    hinge: tuple[HingeRate, ...]
    remark: str = ""

    def tuning(self) -> Iterable[Job]:
        """The grids of the hinge problems."""
        return [task for rate in self.hinge for task in rate.tuning_tasks()]

    def jobs(self, store: Store) -> Iterable[Job]:
        """All runs fitted."""
        hard = [task for rate in self.hard for task in rate.tasks()]
        return [*hard, *(task for rate in self.hinge for task in rate.tasks(store))]

    def judge(self, store: Store) -> Claim:
        """At most -1/2 within the slack; the straight line over a bend decides nothing."""
        findings = [finding for rate in self.hard for finding in _hard_findings(rate, store)]
        for rate in self.hinge:
            what = f"{rate.label}, hinge on {rate.problem.dataset}: exponent, 5 seeds"
            findings.append(Finding(what, rate.line(store), at_most=SLACK - 0.5))
        return Claim(self.id, self.statement, findings, self.remark)


@dataclass(frozen=True)
class SlowLast:
    """C2 for the subgradient method: its last iterate has the exponent of log t/√t."""

    rate = HardRate("PSG, last", Method(schedules.PSG(alpha=2.0)))

    def tuning(self) -> Iterable[Job]:
        """Nothing."""
        return ()

    def jobs(self, store: Store) -> Iterable[Job]:  # noqa: ARG002
        """One run a horizon."""
        return self.rate.tasks()

    def judge(self, store: Store) -> Claim:
        """Within the slack of the exponent that log T/√T itself has over the same horizons."""
        T = np.array(HORIZONS, dtype=np.float64)
        target = slope_at_end(T, np.log(T) / np.sqrt(T)).value
        findings = _hard_findings(self.rate, store, target - SLACK, target + SLACK)
        statement = "PSG's last iterate converges like log t/√t"
        remark = f"log T/√T itself has the exponent {target:.3f} at T = 2^14."
        return Claim("C2 PSG", statement, findings, remark)


def judge(
    store: Store, problems: Sequence[Problem] | None = None, *, workers: int, console: Console
) -> list[Claim]:
    """Make the runs that are missing and judge every part."""
    parts = all_parts(problems)
    store.complete(
        (job for part in parts for job in part.tuning()), workers=workers, console=console
    )
    with console.status("solving for the optima"):
        jobs = [job for part in parts for job in part.jobs(store)]
    store.complete(jobs, workers=workers, console=console)
    with console.status("judging"):
        return [part.judge(store) for part in parts]


def all_parts(problems: Sequence[Problem] | None = None) -> Sequence[Part]:
    """The convex claims; ``problems`` are those of figure 6, by default what scikit-learn has."""
    figure6 = convex_claims.parts(bundled() if problems is None else problems)
    return [
        AgainstPSG(),
        *_last_iterates(),
        SlowLast(),
        *figure6,
        *_averages(),
        *theorems.parts(),
    ]


def _last_iterates() -> list[Part]:
    """C2."""
    hb = {form: Method(HB, form) for form in ("averaging", "paper")}
    ada = {form: Method(ADAHB, form) for form in ("averaging", "paper")}
    printed = {"as printed": Method(ADAHB, "paper", "euclidean")}
    return [
        _rates("C2 HB", "HB's last iterate converges like 1/√t", "HB", hb),
        _rates(
            "C2 AdaHB",
            "AdaHB's last iterate converges like 1/√t, projecting in its metric",
            "AdaHB",
            ada,
        ),
        _rates(
            "C2 printed",
            "AdaHB's last iterate converges like 1/√t, projecting as Algorithm 1 prints",
            "AdaHB",
            printed,
            remark="The Euclidean projection has other fixed points than the solution.",
        ),
    ]


def _averages() -> list[Part]:
    """C4; the constant momentum only divides what α multiplies, so α is tuned once without it."""
    parts: list[Part] = []
    for name, base in (("HB", HB), ("AdaHB", ADAHB)):
        hard, hinge = [], []
        for beta in BETAS:
            method = Method(_constant(base, beta))
            label = f"{name}, β = {beta}, average"
            hard.append(HardRate(label, method, "average"))
            for tuned in _hinge_rates(name, Method(base)):
                unit = replace(tuned.method, schedule=_constant(tuned.method.schedule, beta))
                hinge.append(HingeRate(label, tuned.problem, unit, "average", tuned))
        statement = f"{name} with constant β: the average converges like 1/√t"
        parts.append(Rates(f"C4 {name}", statement, tuple(hard), tuple(hinge)))
    return parts


def _rates(
    name: str, statement: str, label: str, methods: dict[str, Method], remark: str = ""
) -> Rates:
    hard = tuple(HardRate(f"{label}, {way}", method) for way, method in methods.items())
    hinge = tuple(
        rate for way, method in methods.items() for rate in _hinge_rates(f"{label}, {way}", method)
    )
    return Rates(name, statement, hard, hinge, remark)


def _hinge_rates(label: str, method: Method, output: Output = "last") -> list[HingeRate]:
    """Both problems; α = 1 is the unit of what is tuned."""
    unit = replace(method, schedule=replace(method.schedule, alpha=1.0))
    return [HingeRate(label, problem, unit, output) for problem in PROBLEMS]


def _constant(schedule: Schedule, beta: float) -> Schedule:
    """The same with constant momentum, and the same steps of z."""
    alpha = schedule.alpha * (1 - beta)
    if isinstance(schedule, schedules.AdaHB):
        gamma, delta = schedule.gamma, schedule.delta
        return schedules.AdaHBConstant(alpha=alpha, gamma=gamma, delta=delta, beta=beta)
    return schedules.HBConstant(alpha=alpha, beta=beta)


def _hard_findings(
    rate: HardRate, store: Store, at_least: float | None = None, at_most: float = SLACK - 0.5
) -> list[Finding]:
    return [
        Finding(
            f"{rate.label}, hard function: exponent at T = 2^14",
            rate.local(store),
            at_least,
            at_most,
        ),
        Finding(f"{rate.label}, hard function: straight line from T = 2^7", rate.line(store)),
    ]
