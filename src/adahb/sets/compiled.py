"""Compiled projections on the l1 ball and the simplex, for rows in host memory.

The formulas, and the two measures against lost digits, are those of `thresholds.waterfill`.
"""

import numpy as np

from adahb.sets.compiled_common import Vector
from adahb.sets.compiled_plain import project_plain
from adahb.sets.compiled_weighted import project_weighted


def l1(
    x: Vector, radius: float, *, weights: Vector | None = None, metric: Vector | None = None
) -> Vector:
    """Project each row of ``x`` on {y: sum w_i |y_i| <= radius} in the given metric."""
    return _project(x, radius, weights, metric, signed=False)


def simplex(x: Vector, total: float, *, metric: Vector | None = None) -> Vector:
    """Project each row of ``x`` on {y >= 0: sum y_i = total} in the given metric."""
    return _project(x, total, None, metric, signed=True)


def _project(
    x: Vector, radius: float, weights: Vector | None, metric: Vector | None, *, signed: bool
) -> Vector:
    rows = _owned(x.reshape(-1, x.shape[-1]))
    out = np.zeros(rows.shape, dtype=rows.dtype)  # pages never touched cost nothing
    slack = 4 * float(np.finfo(x.dtype).eps)
    if weights is None and metric is None:
        finite = project_plain(rows, radius, slack, signed, out)
    else:
        largest = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float64)
        finite = bool(np.isfinite(largest).all())
        if finite:
            w = np.ones(1) if weights is None else _owned(weights)
            h = np.ones((1, 1)) if metric is None else _owned(metric.reshape(rows.shape))
            u, q = np.empty((2, rows.shape[1]))  # NumPy's memory comes in larger pages
            project_weighted(rows, largest, w, h, radius, slack, signed, u, q, out)
    if not finite:
        raise ValueError("x must be finite, got NaN or infinity in it")
    return out.reshape(x.shape)


def _owned(array: Vector) -> Vector:
    """Return the array as the one layout the kernels are compiled for."""
    return np.require(array, requirements=["C", "A", "W"])
