r"""What can be proved of a run, while it runs.

Two certificates need no knowledge of the optimum.  Each is a number that no feasible point goes
below, so that f(w) minus it is a proved bound on how far w is from optimal:

:class:`CuttingPlanes`, for full subgradients.  Every subgradient is a plane below f.  The mean of
the planes met so far is one too, and over a bounded Q its minimum is a support function:

    f* ≥ LB_t = (1/t) (Σ_k (f(w_k) - ⟨g_k, w_k⟩) - σ_Q(-Σ_k g_k))

:class:`DualAverages`, for samples of a finite sum.  The mean of the loss derivatives met at a
sample is a feasible dual variable, and weak duality holds whatever was drawn.

Two observers of a run check the paper's own statements when a solution is known:
:class:`TheoremBounds` evaluates Theorems 3 to 6 along it, :class:`LemmaTwo` measures how far
Lemma 2 is from the equality it claims.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from adahb import schedules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adahb.problems import FiniteSum
    from adahb.reference import Step
    from adahb.sets import ConvexSet

    Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """``lower_bound <= f* <= value``: the output is proved to be within ``gap`` of the optimum."""

    value: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """The proved bound on f(w) - f*; infinite where nothing is proved."""
        return self.value - self.lower_bound


class CuttingPlanes:
    """The mean of the planes that subgradients put below a convex function."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self.intercept = 0.0
        self.slope: Vector = np.zeros(dim)

    def add(self, w: Vector, value: float, g: Vector) -> None:
        """Add the plane u -> value + <g, u - w>, of finite numbers."""
        if not (math.isfinite(value) and np.isfinite(g).all() and np.isfinite(w).all()):
            raise ValueError(
                f"value, g and w must be finite, got value={value!r}, g={g!r}, w={w!r}"
            )
        self.count += 1
        with np.errstate(over="ignore", invalid="ignore"):  # of which nothing is proved
            self.intercept += float(value - g @ w)
            self.slope = self.slope + g

    def lower_bound(self, constraint: ConvexSet) -> float:
        """Return LB_t; -inf where the planes are not bounded below on the set, or too large."""
        if not (self.count and math.isfinite(self.intercept) and np.isfinite(self.slope).all()):
            return -math.inf
        bound = (self.intercept - float(constraint.support(-self.slope))) / self.count
        return bound if math.isfinite(bound) else -math.inf


class DualAverages:
    """For each of n samples the mean of the loss derivatives met at its visits."""

    def __init__(self, n: int) -> None:
        self.sums: Vector = np.zeros(n)
        self.visits: NDArray[np.int32] = np.zeros(n, dtype=np.int32)

    def clear(self) -> None:
        """Forget all visits."""
        self.sums.fill(0)
        self.visits.fill(0)

    def add(self, rows: NDArray[np.int64], derivatives: Vector) -> None:
        """Count a visit of each row; a row may come twice."""
        if not np.isfinite(derivatives).all():
            raise ValueError(f"derivatives must be finite, got {derivatives!r}")
        np.add.at(self.sums, rows, derivatives)
        np.add.at(self.visits, rows, 1)

    def lower_bound(self, objective: FiniteSum, constraint: ConvexSet) -> float:
        """Return the dual value at the means; a sample not yet visited counts as zero."""
        return objective.dual_value(self.sums / np.maximum(self.visits, 1), constraint)


@dataclass
class TheoremBounds:
    """Theorems 3 to 6 along a run with full subgradients: pass it as the run's ``callback``.

    ``gap`` is what the theorem speaks of at each step: f(w_t) - f*, or with constant momentum the
    mean of f(w_k) - f*, which bounds the average.  ``proof`` is the bound before any constant
    replaces a sum.  With N_k = √k V̂_k (√k where nothing is adapted) and α over 1 - β for constant
    momentum, the proofs arrive at

        (t + 1) gap_t ≤ f(w_0) - f* + Σ_k (α/2)‖g_k‖²_{1/N_k}
                        + Σ_k (‖w* - z_k‖²_{N_k} - ‖w* - z_{k+1}‖²_{N_k})/(2α)

    (t gap_t and β/(1-β)(f(w_0) - f(w_t)) for constant momentum).  ``theorem`` is the bound as
    stated, M and M₀ being the largest subgradient and the largest ‖w* - z_k‖² met so far.  The
    statements are right where gap <= proof and gap <= theorem.  ``lemma7`` is the ratio of the two
    sides of Lemma 7, at most 1 where it holds.
    """

    schedule: schedules.Schedule
    w_star: Vector
    f_star: float
    gap: list[float] = field(default_factory=list)
    proof: list[float] = field(default_factory=list)
    theorem: list[float] = field(default_factory=list)
    lemma7: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        schedule = self.schedule
        covered = isinstance(schedule, schedules.HB | schedules.HBConstant)
        if not covered or not schedule.guarantees or getattr(schedule, "power", 0) != 0:
            raise ValueError(
                "schedule must be one that Theorems 3 to 6 speak of (HB, HBConstant, AdaHB or "
                f"AdaHBConstant with tick=1 and power=0), got {schedule!r}"
            )
        self._constant = isinstance(schedule, schedules.HBConstant)
        self._first = self._sum = self._telescope = self._m = self._m0 = 0.0
        self._squares: Vector = np.zeros(self.w_star.shape)

    def __call__(self, step: Step) -> None:
        """Take in one step of the run."""
        excess = step.value - self.f_star
        if step.step == 1:
            self._first = excess
        self._sum += excess
        alpha = self.schedule.alpha / (step.coefficients.c if self._constant else 1.0)
        norm = math.sqrt(step.step) * step.v_hat
        before, after = (self.w_star - step.z) ** 2, (self.w_star - step.z_next) ** 2
        self._squares = self._squares + step.g**2 / norm
        self._telescope += float(np.sum(norm * (before - after))) / (2 * alpha)
        self._m = max(self._m, self._size(step.g))
        self._m0 = max(self._m0, float(before.sum()), float(after.sum()))

        if self._constant:
            beta = step.coefficients.beta1
            start, weight = beta / (1 - beta) * (self._first - excess), step.step
        else:
            start, weight = self._first, step.step + 1
        proof = start + alpha / 2 * float(self._squares.sum()) + self._telescope
        self.gap.append(self._sum / weight if self._constant else excess)
        self.proof.append(proof / weight)
        self.theorem.append((start + self._stated(step.step, alpha)) / weight)
        if isinstance(self.schedule, schedules.Adaptive):
            right = 2 * (2 - self.schedule.gamma) / self.schedule.gamma * norm
            self.lemma7.append(float(self._squares.sum() / np.sum(right)))

    def _size(self, g: Vector) -> float:
        """The M that the theorem needs: of the subgradient, or of its coordinates."""
        adaptive = isinstance(self.schedule, schedules.Adaptive)
        return float(np.max(np.abs(g)) if adaptive else np.linalg.norm(g))

    def _stated(self, t: int, alpha: float) -> float:
        """The constants of the theorems in place of the sums."""
        m, m0, root = self._m, self._m0, math.sqrt(t)
        if not isinstance(self.schedule, schedules.Adaptive):
            return alpha * root * m**2 + root * m0 / (2 * alpha)
        d, gamma = self.w_star.size, self.schedule.gamma
        norm = root * m + self.schedule.delta
        return d * alpha * (2 - gamma) / gamma * norm + d * norm * m0 / (2 * alpha)


@dataclass
class LemmaTwo:
    """How far Lemma 2 is from an equality: pass it as the ``callback`` of a run on ``constraint``.

    The lemma claims z₊ = P_Q[z - (α/√t) V̂⁻¹ g] with z = w + p.  ``deviation`` is the largest
    difference of the two sides in a coordinate at each step, ``outside`` whether z₊ has left Q.
    """

    constraint: ConvexSet
    projection: str = "metric"
    deviation: list[float] = field(default_factory=list)
    outside: list[bool] = field(default_factory=list)

    def __call__(self, step: Step) -> None:
        """Take in one step of the run."""
        metric = step.v_hat if self.projection == "metric" and np.ndim(step.v_hat) else None
        target = step.z - step.coefficients.eta * step.g / step.v_hat
        claimed = self.constraint.project(target, metric)
        self.deviation.append(float(np.max(np.abs(step.z_next - claimed))))
        self.outside.append(not self.constraint.contains(step.z_next))
