"""The projections and support functions against a general-purpose conic solver."""

import cvxpy as cp
import numpy as np
import pytest
from sets.samples import NAMES, every_set

from adahb import sets


def constraints(q, y):
    """Write the set in the solver's words."""
    axis = getattr(q, "dim", None)
    match q:
        case sets.Box():
            lower, upper = (np.broadcast_to(b, y.shape) for b in (q.lower, q.upper))
            found = []
            for bound, sign in ((lower, 1), (upper, -1)):
                where = np.isfinite(bound)
                kept = np.where(where, bound, 0)
                found.append(cp.multiply(where, sign * (y - kept)) >= 0)
            return found
        case sets.NonNegative():
            return [y >= 0]
        case sets.LinfBall():
            return [cp.abs(y) <= q.radius]
        case sets.L2Ball():
            return [cp.norm(y, 2 if axis is not None else "fro", axis=axis) <= q.radius]
        case sets.L1Ball():
            return [cp.sum(cp.abs(y), axis=axis) <= q.radius]
        case sets.WeightedL1Ball():
            weights = np.broadcast_to(q.weights, y.shape)
            return [cp.sum(cp.multiply(weights, cp.abs(y)), axis=axis) <= q.radius]
        case sets.Simplex():
            return [y >= 0, cp.sum(y, axis=axis) == q.total]
        case sets.GroupL1Ball() if axis is not None:
            return [cp.sum(cp.norm(y, 2, axis=axis)) <= q.radius]
        case sets.GroupL1Ball():
            norms = [cp.norm(y[q.groups == g], 2) for g in np.unique(q.groups)]
            return [cp.sum(cp.hstack(norms)) <= q.radius]
        case sets.NuclearBall():
            return [cp.normNuc(y) <= q.radius]
        case sets.HalfSpace():
            return [cp.sum(cp.multiply(q.normal, y)) <= q.offset]
        case sets.Affine():
            return [q.matrix[:2] @ cp.vec(y, order="C") == q.rhs[:2]]
    raise AssertionError(q)


def solve(objective, q, y):
    problem = cp.Problem(objective, constraints(q, y))
    tight = {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8}
    problem.solve(solver=cp.CLARABEL, **tight)
    return problem


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", [False, True], ids=["plain", "metric"])
@pytest.mark.parametrize("seed", range(3))
def test_projection_solves_the_quadratic_program(name, metric, seed):
    q = every_set(seed=seed)[name]
    if metric and isinstance(q, sets.NuclearBall):
        pytest.skip("no metric projection")
    rng = np.random.default_rng(seed)
    x, h = rng.standard_normal((3, 4)) * (0.7 + seed), 10.0 ** rng.uniform(-1, 1, (3, 4))
    y = cp.Variable((3, 4))
    root = np.sqrt(h) if metric else np.ones((3, 4))
    problem = solve(cp.Minimize(cp.sum_squares(cp.multiply(root, y - x))), q, y)
    ours = q.project(x, metric=h if metric else None)
    np.testing.assert_allclose(ours, y.value, atol=1e-4)
    value = np.sum((root * (ours - x)) ** 2)
    assert value == pytest.approx(problem.value, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("name", [n for n in NAMES if every_set()[n].bounded])
def test_support_solves_the_linear_program(name):
    q, g = every_set()[name], np.random.default_rng(7).standard_normal((3, 4))
    y = cp.Variable((3, 4))
    problem = solve(cp.Maximize(cp.sum(cp.multiply(g, y))), q, y)
    assert q.support(g) == pytest.approx(problem.value, rel=1e-7)
