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
only the data can say.  A pilot therefore trains on a small part of the rows with the α of the
theory and its 4th, 16th, ... part, and takes what leaves the smallest objective there.  All pilots
together visit about as many rows as one epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from adahb import schedules
from adahb.linear.certificate import Certificate, blocks
from adahb.linear.order import Visits
from adahb.linear.training import Samples
from adahb.sets import Box, L1Ball, L2Ball, LinfBall, Simplex

if TYPE_CHECKING:
    from adahb.linear.loops import Model
    from adahb.linear.machine import Machine
    from adahb.problems import Loss
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]

FACTOR = 4.0
CANDIDATES = 8
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
        square = X.multiply(X) if isinstance(X, sparse.csr_array) else np.square(X)
        squares = np.asarray(square.sum(axis=1), dtype=np.float64)
        slope = np.full(squares.size, loss.lipschitz)
        if not math.isfinite(loss.lipschitz):
            slope = np.abs(loss.derivative(np.zeros(squares.size), samples.y[rows]))
        if scale is not None:
            slope = slope * scale[rows]
        total += float(np.sum(counts[rows] * squares * slope**2))
        count += float(counts[rows].sum())
    return math.sqrt(total / count)


def auto(
    samples: Samples,
    model: Model,
    make: Callable[[float, Samples], Machine],
    *,
    seed: Sequence[int],
) -> float:
    """Return the α of the theory times the factor that does best in the pilots.

    It is rounded to three digits, so that rounding errors in M do not show.
    """
    gamma = model.schedule.gamma if isinstance(model.schedule, schedules.Adaptive) else None
    alpha = theory(
        model.settings.constraint,
        samples.X.shape[1],
        lipschitz=steepness(samples, model.loss),
        gamma=gamma,
    )
    visits = samples.visits.rows
    steps = min(max(visits.size // CANDIDATES, min(visits.size, _WORTHWHILE), _FEWEST), _MOST)
    rows = visits[np.random.default_rng(seed).integers(visits.size, size=steps)]
    scale = None if samples.scale is None else samples.scale[rows]
    part = Samples(samples.X[rows], samples.y[rows], Visits(rows, None, None), scale, scale)
    order = np.arange(steps)
    best, chosen = math.inf, alpha
    for k in range(CANDIDATES):
        candidate = float(f"{alpha / FACTOR**k:.3g}")
        machine = make(candidate, part)
        try:
            machine.run(order)
            reached = _reached(machine, part)
        except FloatingPointError:  # diverged, where neither the loss nor the set is bounded
            continue
        if reached < best:
            best, chosen = reached, candidate
    return chosen


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
    return value if certificate.reason else value - certificate.lower_bound
