"""Where the reference gets its subgradients from, and the evidence it gathers on the way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from adahb.certificates import CuttingPlanes, DualAverages

if TYPE_CHECKING:
    from adahb.problems import FiniteSum, Objective
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]
Evidence = CuttingPlanes | DualAverages
Sampling = Literal["independent", "epochs"]


class FullOracle:
    """Full subgradients; every one is a plane of the certificate."""

    epoch = 1

    def __init__(
        self, objective: Objective, constraint: ConvexSet | None, planes: CuttingPlanes | None
    ) -> None:
        self.objective, self.constraint = objective, constraint
        self.evidence = planes or CuttingPlanes(objective.dim)

    def draw(self, t: int, y: Vector) -> tuple[float, Vector]:
        """Return f(y) and a subgradient."""
        value, g = self.objective.value_and_subgradient(y)
        g = np.asarray(g, dtype=np.float64)
        if g.shape != y.shape:
            raise ValueError(f"the subgradient must have shape {y.shape} like w, got {g.shape}")
        if not (math.isfinite(value) and np.isfinite(g).all()):
            raise FloatingPointError(f"the objective or its subgradient is not finite at step {t}")
        self.evidence.add(y, value, g)
        return value, g

    def lower_bound(self) -> float:
        """Return what the evidence proves f* to be at least."""
        return -math.inf if self.constraint is None else self.evidence.lower_bound(self.constraint)


class SampledOracle:
    """Mean subgradients of drawn samples; the loss derivatives are the dual variables.

    The rows drawn at a step depend on the seed and the step alone, so that a run can be taken up
    anywhere.
    """

    def __init__(
        self,
        objective: FiniteSum,
        constraint: ConvexSet | None,
        averages: DualAverages | None,
        batch_size: int,
        sampling: Sampling,
        seed: int,
    ) -> None:
        if batch_size > objective.n:
            raise ValueError(
                f"batch_size must be at most the {objective.n} samples, got {batch_size}"
            )
        self.objective, self.constraint = objective, constraint
        self.evidence = averages or DualAverages(objective.n)
        self.batch_size, self.sampling, self.seed = batch_size, sampling, seed
        self.epoch = -(-objective.n // batch_size)
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def draw(self, t: int, y: Vector) -> tuple[float, Vector]:
        """Return NaN, for f is not known, and the subgradient of the mean over step t's rows."""
        rows = self._rows(t)
        derivatives = self.objective.derivatives(y, rows)
        if not np.isfinite(derivatives).all():
            raise FloatingPointError(f"the derivative of a loss is not finite at step {t}")
        self.evidence.add(rows, derivatives)
        return math.nan, self.objective.combine(derivatives, rows)

    def lower_bound(self) -> float:
        """Return what the evidence proves f* to be at least."""
        if self.constraint is None:
            return -math.inf
        return self.evidence.lower_bound(self.objective, self.constraint)

    def _rows(self, t: int) -> NDArray[np.int64]:
        n = self.objective.n
        if self.sampling == "independent":
            return np.random.default_rng([self.seed, t]).integers(n, size=self.batch_size)
        epoch, place = divmod(t - 1, self.epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(n)
        return self._order[1][place * self.batch_size : (place + 1) * self.batch_size]


def oracle(
    objective: Objective,
    constraint: ConvexSet | None,
    evidence: Evidence | None,
    *,
    batch_size: int | None,
    sampling: Sampling,
    seed: int,
) -> FullOracle | SampledOracle:
    """Full subgradients, or with a ``batch_size`` those of samples."""
    if batch_size is None:
        return FullOracle(objective, constraint, cast("CuttingPlanes | None", evidence))
    if not hasattr(objective, "combine"):
        raise TypeError(
            f"batch_size={batch_size} needs an objective that is a sum over samples, such as "
            f"LinearObjective, got {objective!r}"
        )
    averages = cast("DualAverages | None", evidence)
    return SampledOracle(
        cast("FiniteSum", objective), constraint, averages, batch_size, sampling, seed
    )
