"""What the linear benchmark compares with: exact linear programs, and a loop written densely."""

from __future__ import annotations

import math
import time
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from adahb.problems import LinearObjective
from adahb.schedules import Schedule

Vector = NDArray[np.float64]
Json = dict[str, Any]


def highs(objective: LinearObjective, radius: float, *, dual: bool, limit: float) -> Json:
    """Minimise the hinge loss on the l1 ball by HiGHS; the seconds are the limit if it is met.

    The program is written as in textbooks, with a slack for every sample,

        min (1/n) Σ ξ_i,  y_i⟨x_i, p - q⟩ + ξ_i ≥ 1,  Σ(p + q) ≤ τ,  p, q, ξ ≥ 0,

    or, ``dual``, as its dual with a box for every sample and two rows for every feature, which
    the simplex method likes far better: max (1/n)(Σ a_i - τΛ), -Λ ≤ Σ a_i y_i x_ij ≤ Λ, 0 ≤ a ≤ 1.
    """
    n, d = objective.n, objective.dim
    start = time.perf_counter()
    A = sparse.csr_array(sparse.diags_array(objective.y) @ sparse.csr_array(objective.X))
    solve: Any = linprog
    if dual:
        level: Any = np.full((d, 1), -1.0)
        cost = np.append(np.full(n, -1 / n), radius / n)
        rows: Any = sparse.block_array([[A.T, level], [-A.T, level]], format="csc")
        limits, bounds = np.zeros(2 * d), [(0, 1)] * n + [(0, None)]
    else:
        ball: Any = np.append(np.ones(2 * d), np.zeros(n))[None]
        cost = np.append(np.zeros(2 * d), np.full(n, 1 / n))
        rows = sparse.hstack([-A, A, -sparse.eye_array(n)])
        rows = sparse.vstack([rows, sparse.csr_array(ball)], format="csc")
        limits, bounds = np.append(-np.ones(n), radius), [(0, None)] * (2 * d + n)
    options = {"time_limit": limit}
    found = solve(cost, A_ub=rows, b_ub=limits, bounds=bounds, method="highs", options=options)
    seconds = time.perf_counter() - start
    solved = found.status == 0
    value = (-found.fun if dual else found.fun) if solved else None
    return {"seconds": seconds if solved else limit, "solved": solved, "value": value}


@cache
def _dense_loop() -> Any:
    from adahb._numba import njit

    def step_all(X: Any, y: Any, order: Any, eta: Any, c: Any, radius: float, d: int) -> Any:
        """The heavy ball in averaging form, every vector operation over all coordinates."""
        data, indices, indptr = X
        w, z, kept = np.zeros(d), np.zeros(d), np.empty(d)
        for t in range(order.size):
            i, p = order[t], 0.0
            for k in range(indptr[i], indptr[i + 1]):
                p += data[k] * w[indices[k]]
            if y[i] * p < 1.0:
                for k in range(indptr[i], indptr[i + 1]):
                    z[indices[k]] += eta[t] * y[i] * data[k]
            count, total = 0, 0.0
            for j in range(d):
                if z[j] != 0.0:
                    kept[count] = abs(z[j])
                    total += kept[count]
                    count += 1
            if total > radius:
                level = (total - radius) / count
                while True:
                    left, total = 0, 0.0
                    for j in range(count):
                        if kept[j] > level:
                            kept[left] = kept[j]
                            total += kept[left]
                            left += 1
                    if left == count:
                        break
                    count, level = left, (total - radius) / left
                for j in range(d):
                    z[j] = math.copysign(max(abs(z[j]) - level, 0.0), z[j])
            for j in range(d):
                w[j] = (1.0 - c[t]) * w[j] + c[t] * z[j]
        return w

    return njit()(step_all)


def dense_loop(
    objective: LinearObjective, radius: float, schedule: Schedule, order: NDArray[np.intp]
) -> Vector:
    """Take the heavy ball's steps on CSR rows, projecting and averaging all coordinates of w.

    The projection is Michelot's, over what is not zero; the loop is compiled.
    """
    at = schedule(np.arange(1.0, order.size + 1))
    X = sparse.csr_array(objective.X)
    parts = (X.data, X.indices, X.indptr)
    return np.asarray(
        _dense_loop()(parts, objective.y, order, at.eta, at.c, float(radius), objective.dim)
    )
