r"""The step size where the user gives none.

Theory first.  Over a set of diameter D (l2, or the largest in a coordinate for the adaptive
methods) the α that minimises the bound of Theorem 3, respectively 5, is
:func:`adahb.schedules.best_alpha`,

    α = D/(√2 M)    and    α = D √(γ/(2(2-γ))),

with M² the mean of the squared gradient norms that the data allow, M = √((1/n) Σ (L_i ω_i ‖x_i‖)²),
one pass over the data.

That α is the best one for the worst solution, a corner of the set that is as far away as the set
is wide.  Solutions with many coefficients are much nearer (w* with k equal entries on an l1 ball
has ‖w*‖ = τ/√k, and no entry larger than τ/k), and the best α is smaller in proportion.  How much
only the data can say.  Pilots therefore train on a sample of the rows with the α of the theory and
its 4th, 16th, ... part, and then with twice and half the best of these.  What counts is the gap
that is certified after a pilot (the objective, where no gap can be): the bound that the theory
minimises is one for the certificate too.  A fit is longer than a pilot, has more time to come from
afar and is held up by noise in the end, so that of the α whose gaps are within a quarter of the
least the smallest is taken.  All pilots together visit about as many rows as an epoch,
but each at least 4096 (in data with less, all; at least 512) and none more than 16384.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from adahb import schedules
from adahb.linear.certificate import Certificate, blocks, unprovable
from adahb.linear.order import Visits
from adahb.linear.ranges import WIDEST
from adahb.linear.training import Samples
from adahb.sets import Box, L1Ball, L2Ball, LinfBall, Simplex

if TYPE_CHECKING:
    from adahb.linear.loops import Model
    from adahb.linear.machine import Machine
    from adahb.problems import Loss
    from adahb.problems.linear import Matrix
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]

FACTOR = 4.0
CANDIDATES = 8
WITHIN = 1.25
"""So many times the least certified gap of a pilot is as good."""
_MOST = 1 << 14
_FEWEST = 512
_WORTHWHILE = 1 << 12


def theory(
    constraint: ConvexSet | None,
    dim: int,
    *,
    lipschitz: float,
    gamma: float | None,
) -> float:
    """Return the α that minimises the bound; for an unbounded set that of a unit diameter.

    ``gamma`` is that of an adaptive method, None otherwise.
    """
    size = diameter(constraint, dim, coordinate=gamma is not None)
    if gamma is not None:
        return schedules.best_alpha(size, gamma=gamma)
    return schedules.best_alpha(size, lipschitz=lipschitz or 1.0)


def diameter(constraint: ConvexSet | None, dim: int, *, coordinate: bool) -> float:
    """Return the largest distance of two points in l2, or in one ``coordinate``; 1 if unbounded."""
    match constraint:
        case L1Ball():
            size = 2 * constraint.radius
        case L2Ball():
            size = 2 * constraint.radius
        case LinfBall():
            size = 2 * constraint.radius * (1.0 if coordinate else math.sqrt(dim))
        case Simplex():
            size = constraint.total * (1.0 if coordinate else math.sqrt(2))
        case Box():
            width = np.broadcast_to(np.subtract(constraint.upper, constraint.lower), (dim,))
            size = float(width.max() if coordinate else np.linalg.norm(width))
        case _:
            size = _widest(constraint, dim, coordinate=coordinate)
    return size if math.isfinite(size) and size > 0 else 1.0


def _widest(constraint: ConvexSet | None, dim: int, *, coordinate: bool) -> float:
    """Return the diameter from the widths σ(e_j) + σ(-e_j), of at most a thousand coordinates."""
    if constraint is None or not getattr(constraint, "bounded", True):
        return math.inf
    chosen = np.unique(np.linspace(0, dim - 1, min(dim, 1000)).astype(np.intp))
    widths = np.empty(chosen.size)
    unit = np.zeros(dim)
    for k, j in enumerate(chosen):
        unit[j] = 1.0
        widths[k] = constraint.support(unit) + constraint.support(-unit)
        unit[j] = 0.0
    return float(widths.max() if coordinate else np.linalg.norm(widths))


def steepness(samples: Samples, loss: Loss) -> float:
    """Return M, the root mean square over the visits of what the rows' gradients are bounded by.

    A loss whose slopes are unbounded counts with those at the zero model.
    """
    total = count = 0.0
    scale = samples.scale
    counts = samples.visits.counts(samples.y.size)
    for rows, X in blocks(samples.X):
        squares = _squared_norms(X)
        slope = np.full(squares.size, loss.lipschitz)
        if not math.isfinite(loss.lipschitz):
            slope = np.abs(loss.derivative(np.zeros(squares.size), samples.y[rows]))
        if scale is not None:
            slope = slope * scale[rows]
        total += float(np.sum(counts[rows] * squares * slope**2))
        count += float(counts[rows].sum())
    return math.sqrt(total / count)


def _squared_norms(X: Matrix) -> Vector:
    """Return ‖x_i‖² of the rows."""
    if isinstance(X, sparse.csr_array):
        parts = np.square(X.data, dtype=np.float64), X.indices, X.indptr
        return np.asarray(sparse.csr_array(parts, X.shape).sum(axis=1), dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def auto(
    samples: Samples,
    model: Model,
    make: Callable[[float, Samples], Machine],
    *,
    seed: Sequence[int],
) -> float:
    """Return the α of the theory, or the part of it that does best in the pilots."""
    gamma = model.schedule.gamma if isinstance(model.schedule, schedules.Adaptive) else None
    alpha = theory(
        model.settings.constraint,
        samples.X.shape[1],
        lipschitz=steepness(samples, model.loss),
        gamma=gamma,
    )
    alpha = min(max(alpha, FACTOR**CANDIDATES / WIDEST), WIDEST / FACTOR)
    part = _part(samples, seed)
    order = np.arange(part.y.size)
    reached: dict[float, float] = {}

    def try_(power: float) -> None:
        machine = make(_rounded(alpha / FACTOR**power), part)
        try:
            machine.run(order)
            reached[power] = _reached(machine, part)
        except FloatingPointError:  # diverged, where neither the loss nor the set is bounded
            reached[power] = math.inf

    for power in range(CANDIDATES):
        try_(power)
    near = min(reached, key=lambda power: reached[power])
    for half in (near - 0.5, near + 0.5):
        try_(half)
    proved = unprovable(model.settings.constraint) is None
    enough = min(reached.values()) * (WITHIN if proved else 1.0)
    smallest = max((power for power, gap in reached.items() if gap <= enough), default=near)
    return _rounded(alpha / FACTOR**smallest)


def _part(samples: Samples, seed: Sequence[int]) -> Samples:
    """Return the rows that the pilots visit, drawn from the visits of an epoch."""
    visits = samples.visits.rows
    size = max(visits.size // (CANDIDATES + 2), min(visits.size, _WORTHWHILE), _FEWEST)
    rows = visits[np.random.default_rng(seed).integers(visits.size, size=min(size, _MOST))]
    scale = None if samples.scale is None else samples.scale[rows]
    return Samples(samples.X[rows], samples.y[rows], Visits(rows, None, None), scale, scale)


def _rounded(alpha: float) -> float:
    """Return α to three digits, so that rounding errors in M do not show."""
    return float(f"{alpha:.3g}")


def _reached(machine: Machine, part: Samples) -> float:
    """Return the certified gap after a pilot; the objective where there is none."""
    model = machine.model
    certificate = Certificate(
        part.X,
        part.y,
        model.loss,
        model.settings.constraint,
        weights=part.weights,
        intercept=model.intercept,
    )
    value = certificate.visit(machine.coef, machine.intercept, machine.dual_sums, machine.visits)
    reached = value if certificate.reason else value - certificate.lower_bound
    return reached if math.isfinite(reached) else math.inf
