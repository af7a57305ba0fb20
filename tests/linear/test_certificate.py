"""The certified gap is never below the true one, and gets as small."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear.problems import classes, hinge_optimum, numbers
from scipy import sparse
from scipy.optimize import minimize

from adahb import sets
from adahb.linear.certificate import Certificate, blocks, unprovable
from adahb.linear.planes import Planes
from adahb.problems import LinearObjective, losses

BOUNDED = (
    sets.L1Ball(1.5),
    sets.L2Ball(1.5),
    sets.LinfBall(0.7),
    sets.Simplex(1.5),
    sets.Box(-0.2, 1.0),
)


def targets(loss, seed, n=30):
    if losses.get(loss).classification:
        X, y = classes(n=n, d=4, seed=seed)
        return X, np.where(y > 0, 1.0, -1.0)
    X, y = numbers(n=n, d=4, seed=seed)
    return X, y - y.mean()


def evidence(certificate, seed, rounds=6):
    """Give the certificate what a run might: models and means of derivatives at visits."""
    rng = np.random.default_rng(seed)
    n, d = certificate.X.shape
    values = []
    for _ in range(rounds):
        w, b = rng.normal(size=d), rng.normal() * certificate.intercept
        visits = rng.integers(0, 4, n)
        sums = np.zeros(n)
        for _ in range(3):
            p = certificate.X @ rng.normal(size=d)
            s = certificate.loss.derivative(p, certificate.y)
            sums += s * (visits > 0)
        visits = np.where(visits > 0, 3, 0)
        values.append(certificate.visit(w, b, sums, visits))
    return values


def minimum(objective, constraint, seed=0):
    """Return a feasible value of the objective: at least the optimum, and near it."""
    w = np.asarray(constraint.project(np.zeros(objective.dim)))
    best = objective.value(w)
    for t in range(1, 600):
        value, g = objective.value_and_subgradient(w)
        best = min(best, value)
        w = np.asarray(constraint.project(w - 1.0 / math.sqrt(t) / (1 + np.linalg.norm(g)) * g))
    return best


@pytest.mark.parametrize("loss", sorted(losses.BY_NAME))
@pytest.mark.parametrize("constraint", BOUNDED, ids=repr)
def test_the_bound_is_below_every_feasible_value(loss, constraint):
    for seed in range(3):
        X, y = targets(loss, seed)
        certificate = Certificate(X, y, losses.get(loss), constraint)
        evidence(certificate, seed)
        best = minimum(LinearObjective(X, y, loss), constraint)
        assert -math.inf < certificate.lower_bound <= best + 1e-12


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_the_bound_is_below_the_linear_program(seed, weighted, intercept):
    rng = np.random.default_rng(seed)
    X, y = targets("hinge", seed, n=int(rng.integers(5, 40)))
    weights = rng.integers(0, 4, y.size) + 1.0 * (np.arange(y.size) == 0) if weighted else None
    radius = float(rng.uniform(0.1, 4))
    certificate = Certificate(
        X, y, losses.Hinge(), sets.L1Ball(radius), weights=weights, intercept=intercept
    )
    evidence(certificate, seed)
    true = hinge_optimum(X, y, radius, weights=weights, intercept=intercept)
    assert certificate.lower_bound <= true + 1e-7


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "squared_hinge", "modified_huber"])
@pytest.mark.parametrize("intercept", [False, True])
def test_at_the_optimum_of_a_smooth_loss_the_bound_is_tight(loss, intercept):
    """The plane at the minimiser of a smooth function over a set proves its minimum."""
    X, y = targets(loss, 4, n=40)
    X = X + 0.3
    kind = losses.get(loss)

    def f(v):
        p = X @ v[:-1] + (v[-1] if intercept else 0.0)
        g = X.T @ kind.derivative(p, y) / y.size
        last = kind.derivative(p, y).mean() if intercept else 0.0
        return kind.value(p, y).mean(), np.append(g, last)

    bounds = [(-0.3, 0.3)] * X.shape[1] + [(None, None)]
    v = minimize(
        f, np.zeros(X.shape[1] + 1), jac=True, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}
    ).x
    box = sets.Box(-0.3, 0.3)
    certificate = Certificate(X, y, kind, box, intercept=intercept)
    value = certificate.visit(
        v[:-1], v[-1] * intercept, np.zeros(y.size), np.zeros(y.size, dtype=int)
    )
    assert certificate.lower_bound == pytest.approx(value, abs=1e-6)
    assert certificate.lower_bound <= value


def test_objective_and_planes_do_not_depend_on_the_blocks(monkeypatch):
    X, y = targets("hinge", 0)
    weights = np.arange(y.size) % 3 + 1.0
    ball = sets.L1Ball(1.0)
    seen = []
    for block in (7, 1000):
        monkeypatch.setattr("adahb.linear.certificate._BLOCK", block)
        for matrix in (X, np.asfortranarray(X), sparse.csr_array(X)):
            certificate = Certificate(matrix, y, losses.Hinge(), ball, weights=weights)
            seen.append([*evidence(certificate, 1), certificate.lower_bound])
    np.testing.assert_allclose(seen, np.broadcast_to(seen[0], np.shape(seen)), rtol=1e-9)
    direct = np.average(np.maximum(0, 1 - y * (X @ np.ones(4))), weights=weights)
    assert certificate.value(np.ones(4), 0.0) == pytest.approx(direct)


def test_blocks_share_the_memory():
    X = sparse.csr_array(np.eye(4))
    assert all(np.shares_memory(part.data, X.data) for _, part in blocks(X))


def test_what_cannot_be_proved():
    X, y = targets("hinge", 0)
    assert unprovable(sets.L1Ball(1)) is None
    for constraint in (None, sets.NonNegative()):
        certificate = Certificate(X, y, losses.Hinge(), constraint)
        assert "bounded" in certificate.reason
        assert math.isfinite(evidence(certificate, 0)[0])
        assert certificate.lower_bound == -math.inf


class TestPlanes:
    @pytest.mark.parametrize("constraint", BOUNDED, ids=repr)
    def test_together_they_prove_more_than_each_and_nothing_false(self, constraint):
        rng = np.random.default_rng(0)
        c, G = rng.normal(size=8), rng.normal(size=(8, 5))
        planes = Planes(5, constraint, capacity=20)
        for k in range(8):
            planes.add(c[k], G[k])
        single = planes.bound
        tight = planes.tighten()
        w, least = np.asarray(constraint.project(np.zeros(5))), math.inf
        for t in range(1, 4000):
            k = np.argmax(c + G @ w)
            least = min(least, (c + G @ w)[k])
            w = np.asarray(constraint.project(w - 0.5 / math.sqrt(t) * G[k]))
        assert single == max(c[k] - float(constraint.support(-G[k])) for k in range(8))
        assert single < tight <= least
        assert tight > least - 0.02

    @pytest.mark.parametrize("constraint", [sets.L1Ball(2.0), sets.Simplex(2.0)], ids=repr)
    def test_the_linear_program_is_exact(self, constraint):
        """Also where only some of many coordinates are looked at."""
        rng = np.random.default_rng(1)
        c, G = rng.normal(size=6), rng.normal(size=(6, 400))
        planes = Planes(400, constraint, capacity=20)
        for k in range(6):
            planes.add(c[k], G[k])
        corners = np.eye(400) * 2.0
        if isinstance(constraint, sets.L1Ball):
            corners = np.vstack([corners, -corners])
        from scipy.optimize import linprog

        program = linprog(
            np.r_[np.zeros(len(corners)), 1.0],
            A_ub=np.c_[G @ corners.T, -np.ones(6)],
            b_ub=-c,
            A_eq=np.r_[np.ones(len(corners)), 0.0][None],
            b_eq=[1.0],
            bounds=[(0, None)] * len(corners) + [(None, None)],
        )
        assert planes.tighten() == pytest.approx(program.fun, rel=1e-4)

    def test_the_bound_never_falls_when_room_is_made(self):
        rng = np.random.default_rng(2)
        planes, bounds = Planes(5, sets.L1Ball(1.0), capacity=4), []
        for _ in range(40):
            planes.add(rng.normal(), rng.normal(size=5))
            bounds.append(planes.tighten())
            assert len(planes) <= 4
        assert (np.diff(bounds) >= 0).all()

    def test_planes_that_are_not_finite_are_left_out(self):
        planes = Planes(2, sets.L1Ball(1.0), capacity=4)
        planes.add(-math.inf, np.zeros(2))
        planes.add(0.0, np.array([np.nan, 0.0]))
        assert planes.tighten() == -math.inf
        assert len(planes) == 0
