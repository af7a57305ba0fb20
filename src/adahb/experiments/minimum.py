"""The exact minimum of a mean hinge loss on an l1 ball, also where a plain linear program is slow.

Let a_i in [0, 1] be the dual variable of sample i and x̃_i = y_i x_i.  The minimum of
(1/n) Σ max(0, 1 - ⟨x̃_i, w⟩) over ‖w‖₁ ≤ τ is the maximum of

    (1/n) (Σ a_i - τΛ)   over a in [0, 1]ⁿ and Λ with |Σ a_i x̃_ij| ≤ Λ for every feature j,

and w_j is the multiplier of its row.  At the solution a_i = 1 below the margin and 0 above it; only
samples at the margin have something in between, and only features with |Σ a_i x̃_ij| = Λ have a
weight.  So a linear program over the samples *near* the margin of a good guess, all others fixed at
0 or 1, and over the features near Λ, has the solution if nobody left out changes sides.  Who does
is taken in, and the program is solved again.

Fixing a sample replaces its loss by one of its two linear pieces, which never overestimates, and
any a gives a lower bound (``LinearObjective.dual_value``, which looks at all samples and features):
what comes out is certified, whatever was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from adahb.experiments.hinge import Optimum
from adahb.problems import Hinge, LinearObjective
from adahb.sets import L1Ball

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

_WIDTH = 2000
"""Samples in the first program."""
_WIDER = 3
"""By so much the window grows around a guess that proved too far off."""
_CLOSE = 0.8
"""Features with so large a share of Λ are in the first program."""


@dataclass(frozen=True)
class _Point:
    w: Vector
    margins: Vector

    @property
    def value(self) -> float:
        """The objective here."""
        return float(np.maximum(0.0, 1.0 - self.margins).mean())

    def towards(self, other: _Point) -> tuple[_Point, float]:
        """The best of the points at 1, 1/2, 1/4, ... of the way to ``other``, and how far it is."""
        best, length = self, 0.0
        for step in 0.5 ** np.arange(12):
            w = (1 - step) * self.w + step * other.w
            point = _Point(w, (1 - step) * self.margins + step * other.margins)
            if point.value < best.value:
                best, length = point, float(step)
        return best, length


def minimise(
    objective: LinearObjective,
    radius: float,
    start: Vector,
    *,
    tolerance: float = 1e-12,
    rounds: int = 100,
) -> Optimum:
    """Minimise a mean hinge loss on the l1 ball, from a guess ``start``, to the last digits.

    It ends when value and lower bound agree to ``tolerance``, or when a program has left out
    nothing that matters, which leaves the errors of its solver.
    """
    if not isinstance(objective.loss, Hinge):
        raise TypeError(f"objective must have the hinge loss, got {objective.loss!r}")
    ball, signed = L1Ball(radius), sparse.csr_array(objective.X).astype(np.float64)
    signed.data *= np.repeat(objective.y, np.diff(signed.indptr))
    best = _point(signed, ball, start)
    near = _nearest(best.margins, _WIDTH)
    pull = np.abs(signed.T @ (best.margins < 1).astype(np.float64))
    features = (best.w != 0) | (pull >= _CLOSE * pull.max())
    bound = 0.0
    for _ in range(rounds):
        below = (best.margins < 1) & ~near
        w, a, level = _program(signed, radius, below, near, features)
        bound = max(bound, objective.dual_value(-a * objective.y, ball))
        found = _point(signed, ball, w)
        crossed = ~near & ((found.margins < 1) != below)
        missed = ~features & (np.abs(signed.T @ a) > level * (1 + 1e-9))
        best, length = best.towards(found)
        if best.value - bound <= tolerance or not (crossed.any() or missed.any()):
            return Optimum(objective.value(best.w), bound, best.w)
        features |= missed
        if 5 * crossed.sum() <= near.sum():
            near |= crossed
        else:
            near = _nearest(best.margins, int(near.sum()) * (_WIDER if length < 0.5 else 1))
    raise RuntimeError(f"no certified minimum after {rounds} programs: {best.value}, {bound}")


def _point(signed: sparse.csr_array[Any], ball: L1Ball, w: Vector) -> _Point:
    w = np.asarray(ball.project(w), dtype=np.float64)
    return _Point(w, np.asarray(signed @ w))


def _nearest(margins: Vector, width: int) -> Mask:
    """The ``width`` samples that are nearest to the margin."""
    near = np.ones(margins.size, dtype=bool)
    if width < margins.size:
        near[np.argpartition(np.abs(1.0 - margins), width)[width:]] = False
    return near


def _program(
    signed: sparse.csr_array[Any], radius: float, below: Mask, near: Mask, features: Mask
) -> tuple[Vector, Vector, float]:
    """Solve for a of the samples ``near``, given a = 1 ``below``; return w, a and Λ."""
    fixed = np.asarray(signed.T @ below.astype(np.float64))[features]
    free = signed[near][:, features].T
    level: Any = np.full((free.shape[0], 1), -1.0)
    rows: Any = sparse.csc_array(sparse.block_array([[free, level], [-free, level]]))
    count = free.shape[1]
    bounds: Any = [(0, 1)] * count + [(0, None)]
    solution = linprog(
        np.append(-np.ones(count), radius),
        A_ub=rows,
        b_ub=np.concatenate([-fixed, fixed]),
        bounds=bounds,
        method="highs",
    )
    if solution.status != 0 or solution.x is None:
        raise RuntimeError(f"a linear program was not solved: {solution.message}")
    up, down = np.split(-np.asarray(solution.ineqlin.marginals), 2)
    w, a = np.zeros(features.size), below.astype(np.float64)
    w[features] = up - down
    a[near] = np.clip(solution.x[:-1], 0, 1)
    return w, a, float(solution.x[-1])
