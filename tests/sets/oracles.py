"""Naive twins of the fast projections, written for reading; and samples of every set."""

import numpy as np

from adahb import sets


def breakpoints(a, cost, radius):
    """Solve sum max(a - t c, 0) = radius by sorting a/c; t may have either sign."""
    order = np.argsort(-a / cost, kind="stable")
    level = (np.cumsum(a[order]) - radius) / np.cumsum(cost[order])
    active = np.nonzero(a[order] / cost[order] > level)[0]
    t = level[active[-1]]
    return np.maximum(a - t * cost, 0)


def l1(x, radius, weights=None, metric=None):
    w = np.ones_like(x) if weights is None else weights
    h = np.ones_like(x) if metric is None else metric
    if radius == 0:
        return np.zeros_like(x)
    if np.sum(w * np.abs(x)) <= radius:
        return x.copy()
    return np.sign(x) * breakpoints(w * np.abs(x), w**2 / h, radius) / w


def simplex(x, total, metric=None):
    return breakpoints(x, np.ones_like(x) if metric is None else 1 / metric, total)


def l2(x, radius, metric=None):
    h = np.ones_like(x) if metric is None else metric
    if np.linalg.norm(x) <= radius or radius == 0:
        return x.copy() if radius else np.zeros_like(x)
    low, high = 0.0, np.linalg.norm(h * x) / radius
    for _ in range(2000):
        t = (low + high) / 2
        low, high = (t, high) if np.linalg.norm(h * x / (h + t)) > radius else (low, t)
    return h * x / (h + high)


def group_l1(x, radius, labels, metric):
    """Bisection on the multiplier, with a bisection on each norm inside."""
    groups = [labels == label for label in np.unique(labels)]
    if sum(np.linalg.norm(x[g]) for g in groups) <= radius:
        return x.copy()

    def at(t):
        y = np.zeros_like(x)
        for g in groups:
            h, pull = metric[g], metric[g] * x[g]
            if np.linalg.norm(pull) <= t:
                continue
            low, high = 0.0, np.linalg.norm(x[g])
            for _ in range(80):
                r = (low + high) / 2
                low, high = (r, high) if np.linalg.norm(pull / (h * r + t)) > 1 else (low, r)
            y[g] = pull * high / (h * high + t)
        return y

    low, high = 0.0, max(np.linalg.norm(metric[g] * x[g]) for g in groups)
    for _ in range(100):
        t = (low + high) / 2
        size = sum(np.linalg.norm(at(t)[g]) for g in groups)
        low, high = (t, high) if size > radius else (low, t)
    return at(high)


def feasible(q, rng, shape):
    """Return a random point of the set, without projecting."""
    x = rng.standard_normal(shape)
    if isinstance(q, sets.NonNegative):
        return np.abs(x)
    if isinstance(q, sets.Box):
        return np.clip(x, q.lower, q.upper)
    if isinstance(q, sets.HalfSpace):
        excess = max(np.sum(q.normal * x) - q.offset, 0) + rng.random()
        return x - excess * q.normal / np.sum(q.normal**2)
    if isinstance(q, sets.Affine):
        kernel = np.eye(x.size) - np.linalg.pinv(q.matrix) @ q.matrix
        return (np.linalg.pinv(q.matrix) @ q.rhs + kernel @ x.ravel()).reshape(shape)
    if isinstance(q, sets.Simplex):
        axis = q.dim
        return q.total * np.abs(x) / np.sum(np.abs(x), axis=axis, keepdims=True)
    return gauge(q, x) * rng.random() * x


def gauge(q, x):
    """Return the number that scales x to the boundary of a ball (slice by slice along dim)."""
    axis = getattr(q, "dim", None)
    if isinstance(q, sets.LinfBall):
        size = np.max(np.abs(x))
    elif isinstance(q, sets.L2Ball):
        size = np.sqrt(np.sum(x**2, axis=axis, keepdims=True))
    elif isinstance(q, sets.L1Ball):
        size = np.sum(np.abs(x), axis=axis, keepdims=True)
    elif isinstance(q, sets.WeightedL1Ball):
        w = (
            q.weights
            if axis is None
            else np.moveaxis(np.broadcast_to(q.weights, np.moveaxis(x, axis, -1).shape), -1, axis)
        )
        size = np.sum(np.abs(x) * w, axis=axis, keepdims=True)
    elif isinstance(q, sets.NuclearBall):
        size = np.sum(np.linalg.svd(x, compute_uv=False))
    elif axis is not None:
        size = np.sum(np.sqrt(np.sum(x**2, axis=axis)))
    else:
        size = sum(np.linalg.norm(x[q.groups == g]) for g in np.unique(q.groups))
    return q.radius / size
