"""Claim C8: the paper's lemmas and theorems, checked step by step along real runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adahb import reference, schedules
from adahb.certificates import LemmaTwo, TheoremBounds
from adahb.experiments.findings import Claim, Finding, exact
from adahb.experiments.hinge import hinge, optimum
from adahb.experiments.runs import Method
from adahb.experiments.store import Job, Json, Store
from adahb.problems import Linear, Objective
from adahb.reference import Projection
from adahb.sets import ConvexSet, L1Ball, L2Ball

Problem = Literal["hinge", "tilted ball", "wide ball"]

ROUNDING = 1e-9
"""What a computed equality may be off by."""


@dataclass(frozen=True)
class TheoremTask:
    """The theorem's bounds and Lemma 2's deviation along a run with full subgradients.

    ``hinge`` is breast cancer on the unit l1 ball; ``wide ball`` the same (with the same w*) on a
    ball so wide that no projection is ever active; ``tilted ball`` is the linear function with
    slope (1, 0.3, 0.1) on the unit l2 ball.
    """

    problem: Problem
    method: Method
    steps: int

    @property
    def name(self) -> str:
        """The schedule checked."""
        return f"theorem-{type(self.method.schedule).__name__}".lower()

    def spec(self) -> dict[str, Json]:
        """What determines the numbers, as plain data."""
        kinds = {"kind": "theorem", "schedule_kind": type(self.method.schedule).__name__}
        return asdict(self) | kinds

    def compute(self) -> Json:
        """Run it and return the largest ratio of each pair that the statements put in order."""
        objective, constraint, w_star, f_star = _problem(self.problem)
        bounds = TheoremBounds(self.method.schedule, w_star, f_star)
        lemma = LemmaTwo(constraint, self.method.projection)

        def observe(step: reference.Step) -> None:
            bounds(step)
            lemma(step)

        reference.run(
            objective,
            self.steps,
            self.method.schedule,
            constraint=constraint,
            form=self.method.form,
            projection=self.method.projection,
            record=[self.steps],
            callback=observe,
        )
        gap, proof, theorem = (np.array(x) for x in (bounds.gap, bounds.proof, bounds.theorem))
        return {
            "gap": float(gap[-1]),
            "gap_over_proof": _largest_ratio(gap, proof),
            "gap_over_theorem": _largest_ratio(gap, theorem),
            "lemma2_deviation": max(lemma.deviation),
            "lemma2_outside": sum(lemma.outside),
            "lemma7": max(bounds.lemma7, default=None),
        }


def _problem(name: Problem) -> tuple[Objective, ConvexSet, NDArray[np.float64], float]:
    if name == "tilted ball":
        linear, sphere = Linear([1.0, 0.3, 0.1]), L2Ball(1.0)
        return linear, sphere, sphere.lmo(linear.c), linear.minimum(sphere)
    solution = optimum("breast_cancer", 1.0)
    ball = L1Ball(1.0 if name == "hinge" else 1e6)
    return hinge("breast_cancer"), ball, solution.w, solution.value


def _largest_ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    """Largest over whole along the run; infinite if the whole is not positive where the part is."""
    ratio = np.divide(part, whole, out=np.full_like(part, np.inf), where=whole > 0)
    return float(np.max(np.where(part <= 0, 0.0, ratio)))


Check = tuple[str, TheoremTask, str]
"""What is said, the run, and the number of it that is looked at."""


@dataclass(frozen=True)
class Statements:
    """C8: numbers that a right statement keeps below a limit, along runs."""

    id: str
    statement: str
    checks: tuple[Check, ...]
    beside: tuple[Check, ...] = ()
    """Numbers to be seen with them, which decide nothing."""
    limit: float = 1.0
    remark: str = ""

    def tuning(self) -> Iterable[Job]:
        """Nothing."""
        return ()

    def jobs(self, store: Store) -> Iterable[Job]:  # noqa: ARG002
        """The runs."""
        return [task for _, task, _ in (*self.checks, *self.beside)]

    def judge(self, store: Store) -> Claim:
        """Every number at most the limit, up to rounding."""
        findings = [
            Finding(what, exact(store.result(task)[key]), at_most=self.limit + ROUNDING)
            for what, task, key in self.checks
        ]
        beside = [Finding(what, exact(store.result(task)[key])) for what, task, key in self.beside]
        return Claim(self.id, self.statement, [*findings, *beside], self.remark)


def parts() -> list[Statements]:
    """C8, in the order of the paper."""
    hb, constant = schedules.HB(alpha=1.0), schedules.HBConstant(alpha=0.1, beta=0.9)
    ada = schedules.AdaHB(alpha=0.1, gamma=0.9)
    ada_constant = schedules.AdaHBConstant(alpha=0.01, gamma=0.9, beta=0.9)
    return [
        Statements(
            "C8 Lemma 2",
            "Lemma 2: w₊ + p₊ is the projection of w + p - (α/√t) g",
            tuple(_lemma2("hinge", alpha) for alpha in (0.1, 1.0, 10.0, 100.0)),
            limit=0.0,
            remark="It fails while the constraint is active: w₊ + p₊ leaves the set.",
        ),
        Statements(
            "C8 Lemma 2, free",
            "Lemma 2 while no projection is active",
            (_lemma2("wide ball", 1.0),),
            limit=0.0,
        ),
        _theorem("C8 Theorem 3", "HB: the bound on the last iterate", hb),
        _theorem("C8 Theorem 4", "HB, constant β: the bound on the average", constant),
        _theorem("C8 Theorem 5", "AdaHB in its metric: the bound on the last iterate", ada),
        _theorem(
            "C8 Theorem 6",
            "AdaHB, constant β, in its metric: the bound on the average",
            ada_constant,
        ),
        Statements(
            "C8 Theorem 5, printed",
            "AdaHB as Algorithm 1 prints it: the bound on the last iterate",
            (_tilted("euclidean", "gap_over_theorem"),),
            beside=(_tilted("euclidean", "gap"), _tilted("metric", "gap")),
            remark="The proof projects in the metric V̂; the printed projection stops elsewhere.",
        ),
        Statements(
            "C8 Lemma 7",
            "the bound on the weighted sum of squared gradients",
            tuple(
                (
                    f"largest left over right side, hinge, γ = {gamma:g}",
                    TheoremTask(
                        "hinge", Method(schedules.AdaHB(alpha=0.1, gamma=gamma), "paper"), 4000
                    ),
                    "lemma7",
                )
                for gamma in (0.1, 0.5, 1.0)
            ),
        ),
    ]


def _lemma2(problem: Problem, alpha: float) -> Check:
    task = TheoremTask(problem, Method(schedules.HB(alpha=alpha), "paper"), 1000)
    what = f"largest difference of the two sides, {problem}, α = {alpha:g}"
    return what, task, "lemma2_deviation"


def _theorem(name: str, statement: str, schedule: schedules.Schedule) -> Statements:
    """The bound before and after constants are put in, for both forms."""
    checks = []
    for form in ("paper", "averaging"):
        task = TheoremTask("hinge", Method(schedule, form), 4000)
        for key, which in (("gap_over_proof", "proof"), ("gap_over_theorem", "statement")):
            checks.append((f"largest gap over the {which}'s bound, hinge, {form} form", task, key))
    return Statements(name, statement, tuple(checks))


def _tilted(projection: Projection, key: str) -> Check:
    schedule = schedules.AdaHB(alpha=1.0, gamma=1.0)
    task = TheoremTask("tilted ball", Method(schedule, "paper", projection), 20_000)
    what = {"gap": "gap at the end", "gap_over_theorem": "largest gap over the bound"}[key]
    return f"{what}, tilted ball, {projection} projection", task, key
