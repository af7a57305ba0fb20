"""Steps that move every coordinate, in both forms and with extrapolation.

The names are those of `adahb.reference.take_step`.
"""

from typing import Any

import numpy as np

from adahb.linear.loops.base import STEEPEST
from adahb.linear.loops.compiled import allocating, derivative, exact, look_ahead, reordering
from adahb.linear.loops.projections import project

Array = np.ndarray[Any, Any]

AVERAGING, PAPER, EXTRAPOLATION = 0, 1, 2
"""What a step moves: z, w with momentum, or w from an extrapolated point."""


@reordering
def predict(indptr: Any, indices: Any, data: Array, row: Any, w: Array) -> Any:
    """Return ⟨x, w⟩ for a row of a dense matrix, or of a CSR one, whose data are one long row."""
    at = 0.0
    if indptr is None:
        for j in range(w.size):
            at += data[row, j] * w[j]
    else:
        for k in range(indptr[row], indptr[row + 1]):
            at += data[0, k] * w[np.uintp(indices[k])]
    return at


@exact
def add(indptr: Any, indices: Any, data: Array, row: Any, s: float, g: Array) -> None:
    """Add s x to g."""
    if indptr is None:
        for j in range(g.size):
            g[j] += s * data[row, j]
    else:
        for k in range(indptr[row], indptr[row + 1]):
            g[np.uintp(indices[k])] += s * data[0, k]


@exact
def slopes(
    batch: Array, y: Array, weights: Any, indptr: Any, indices: Any, data: Array, code: int,
    parameter: float, intercept: bool, point: Array, sums: Array, visits: Array, g: Array,
) -> int:  # fmt: skip
    """Put the subgradient at ``point`` into g; return how many derivatives are not 0, or -1."""
    d = g.size - intercept
    g[:] = 0.0
    moved = 0
    for i in range(batch.size):
        row = batch[i]
        at = predict(indptr, indices, data, row, point[:d])
        if intercept:
            at += point[d]
        s = derivative(code, parameter, at, y[row])
        if not abs(s) <= STEEPEST:
            return -1
        sums[row] += s
        visits[row] += 1
        if weights is not None:
            s *= weights[row]
        if s != 0.0:
            moved += 1
            add(indptr, indices, data, row, s / batch.size, g[:d])
            if intercept:
                g[d] += s / batch.size
    return moved


@exact
def divide(g: Array, v: Array, inverses: Array, kept: float, gain: float, delta: float) -> None:
    """V = kept V + gain g², V̂ = √V + δ, and g becomes g/V̂; 1/V̂ is noted."""
    for j in range(g.size):
        v[j] = kept * v[j] + gain * (g[j] * g[j])
        inverses[j] = 1.0 / (np.sqrt(v[j]) + delta)
        g[j] *= inverses[j]


@allocating
def train(
    rows: Array, size: int, first: int, y: Array, weights: Any, indptr: Any, indices: Any,
    data: Array, code: int, parameter: float, intercept: bool, move: int, kind: int,
    radius: float, lower: Array, upper: Array, alphas: Array, momenta: Array, etas: Array,
    shares: Array, beta2s: Array, deltas: Array, w: Array, u: Array, z: Array, v: Array,
    mean: Array, sums: Array, visits: Array, adaptive: bool, in_metric: bool, average: bool,
) -> int:  # fmt: skip
    """Take the steps on ``rows`` in batches; return their number, less if one is not finite.

    ``first`` is the number of the first step.
    """
    d = w.size - intercept
    g, x, inverses = np.empty(w.size), np.empty(w.size), np.ones(w.size)
    warm, owed = 0.0, 1.0
    for i in range(etas.size):
        batch = rows[i * size : min((i + 1) * size, rows.size)]
        if average:
            share = 1.0 / (first + i)
            for j in range(w.size):
                mean[j] += (w[j] - mean[j]) * share
        point = w
        if move == EXTRAPOLATION:
            for j in range(w.size):
                x[j] = w[j] + momenta[i] * u[j]
            point = x
        if indptr is not None:
            for k in range(i * size, i * size + batch.size):
                look_ahead(k, rows, indptr, indices, data[0], y, sums, visits)
        moved = slopes(
            batch, y, weights, indptr, indices, data, code, parameter, intercept, point, sums,
            visits, g,
        )  # fmt: skip
        if moved < 0:
            for j in range(w.size):
                v[j] *= owed
            return i
        if adaptive and (moved > 0 or move != AVERAGING):
            divide(g, v, inverses, owed * beta2s[i], 1.0 - beta2s[i], deltas[i])
            owed = 1.0
        elif adaptive:
            owed *= beta2s[i]
        if move == AVERAGING:
            if moved > 0:
                for j in range(w.size):
                    z[j] -= etas[i] * g[j]
                warm = project(z[:d], inverses[:d], in_metric, kind, radius, lower, upper, warm)
            c = shares[i]
            for j in range(w.size):
                w[j] = (1.0 - c) * w[j] + c * z[j]
        else:
            for j in range(w.size):
                u[j] = momenta[i] * u[j] - alphas[i] * g[j]
                x[j] = w[j] + u[j]
                z[j] = x[j]
            warm = project(z[:d], inverses[:d], in_metric, kind, radius, lower, upper, warm)
            for j in range(w.size):
                w[j] = z[j]
                u[j] += z[j] - x[j]
    for j in range(w.size):
        v[j] *= owed
    return etas.size
