"""Claim C8: the paper's lemmas and theorems, checked step by step along real runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from adahb import reference
from adahb.certificates import LemmaTwo, TheoremBounds
from adahb.experiments.hinge import hinge, optimum
from adahb.experiments.runs import Method
from adahb.experiments.store import Json
from adahb.problems import Linear, Objective
from adahb.sets import ConvexSet, L1Ball, L2Ball

Problem = Literal["hinge", "tilted ball", "wide ball"]


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
        objective, ball = Linear([1.0, 0.3, 0.1]), L2Ball(1.0)
        return objective, ball, ball.lmo(objective.c), objective.minimum(ball)
    solution = optimum("breast_cancer", 1.0)
    ball = L1Ball(1.0 if name == "hinge" else 1e6)
    return hinge("breast_cancer"), ball, solution.w, solution.value


def _largest_ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
    """max part/whole over the run; infinite if the whole is not positive where the part is."""
    ratio = np.divide(part, whole, out=np.full_like(part, np.inf), where=whole > 0)
    return float(np.max(np.where(part <= 0, 0.0, ratio)))
