"""The machine against the reference: every option, on the general loop."""

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from linear.twin import assert_equal_to_reference, epochs, reference_run
from scipy import sparse

from adahb.linear.machine import Machine
from adahb.problems import losses
from adahb.schedules import (
    HB,
    NAG,
    PSG,
    AdaHB,
    AdaHBConstant,
    HBConstant,
    JainNagarajNetrapalli,
    LinearDecay,
)
from adahb.sets import Box, HalfSpace, L1Ball, L2Ball, LinfBall, NonNegative, Simplex

SCHEDULES = [
    PSG(alpha=0.7),
    HB(alpha=0.7),
    HB(alpha=0.7, power=2),
    HB(alpha=0.4, tick=5),
    HBConstant(alpha=0.3, beta=0.8),
    AdaHB(alpha=0.3, gamma=1, delta=0.1),
    AdaHB(alpha=0.2, gamma=0.3),
    AdaHB(alpha=0.1, gamma=0.5, power=1, tick=4),
    AdaHBConstant(alpha=0.2, gamma=1, beta=0.7),
    NAG(alpha=0.7),
    LinearDecay(alpha=0.7, horizon=200),
    JainNagarajNetrapalli(alpha=0.7, horizon=200),
]
SETS = [
    None,
    L1Ball(1.2),
    L2Ball(0.8),
    LinfBall(0.3),
    NonNegative(),
    Simplex(1.5),
    Box([-0.1] * 6, 0.4),
    HalfSpace(np.ones(6), 0.2),
]


def data(n=20, d=6, seed=0, density=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    margin = X @ rng.normal(size=d) + 0.2 * rng.normal(size=n)
    return X, np.where(margin > 0, 1.0, -1.0)


def machine_and_run(X, y, loss, schedule, *, loop="general", count=3, **options):
    machine = Machine(X, y, loss, schedule, loop=loop, **options)
    size = options.get("batch_size", 1)
    for epoch in epochs(len(y), count).reshape(count, -1):
        machine.run(epoch)
    assert machine.loop == loop
    assert machine.model.batch_size == size
    return machine, reference_run(X, y, loss, schedule, count, **options)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("constraint", SETS, ids=lambda s: type(s).__name__)
def test_every_schedule_and_set(schedule, constraint):
    X, y = data()
    for form, projection in product(("averaging", "paper"), ("metric", "euclidean")):
        options = {"constraint": constraint, "form": form, "projection": projection}
        assert_equal_to_reference(*machine_and_run(X, y, "hinge", schedule, **options))


@pytest.mark.parametrize("loss", losses.BY_NAME)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_every_loss_with_weights_batches_and_starts(loss, fit_intercept):
    X, y = data()
    rng = np.random.default_rng(1)
    if not losses.get(loss).classification:
        y = rng.normal(size=y.size)
    options = {
        "fit_intercept": fit_intercept,
        "sample_weight": rng.random(y.size) * (rng.random(y.size) < 0.8),
        "batch_size": 3,
        "start": 3 * rng.normal(size=6),
        "intercept_start": 0.5 * fit_intercept,
        "constraint": L1Ball(2.0),
    }
    for schedule in (HB(alpha=0.2), AdaHB(alpha=0.2)):
        assert_equal_to_reference(*machine_and_run(X, y, loss, schedule, **options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_csr_and_dtypes(dtype, index):
    X, y = data()
    S = sparse.csr_matrix(X.astype(dtype))
    S.indices, S.indptr = S.indices.astype(index), S.indptr.astype(index)
    before = S.copy()
    for M in (S, sparse.csr_array(S), X.astype(dtype), np.asfortranarray(X.astype(dtype))):
        options = {"constraint": L1Ball(1.0), "fit_intercept": True}
        machine, run = machine_and_run(M, y, "hinge", HB(alpha=1.0), **options)
        assert_equal_to_reference(machine, run)
        held = machine.samples.objective.X
        assert held.dtype == dtype
        if sparse.issparse(M):
            for name in ("data", "indices", "indptr"):
                assert np.shares_memory(getattr(held, name), getattr(S, name))
        else:
            assert np.shares_memory(held, M)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(S, name), getattr(before, name))


def test_one_run_is_many_runs():
    X, y = data()
    order = epochs(20, 2)
    one, many = (Machine(X, y, "hinge", AdaHB(alpha=1.0), constraint=L1Ball(1)) for _ in range(2))
    one.run(order)
    for part in np.array_split(order, 7):
        many.run(part)
        many = pickle.loads(pickle.dumps(many))
    np.testing.assert_allclose(one.coef, many.coef, rtol=0, atol=1e-13)
    np.testing.assert_allclose(one.average_coef, many.average_coef, rtol=0, atol=1e-13)


def test_before_the_first_step():
    X, y = data()
    machine = Machine(X, y, "hinge", HB(alpha=1.0), constraint=L1Ball(1), start=2 * np.ones(6))
    machine.run([])
    assert machine.steps == 0
    np.testing.assert_allclose(machine.coef, np.ones(6) / 6)
    np.testing.assert_array_equal(machine.average_coef, machine.coef)
    assert machine.intercept == machine.average_intercept == 0
    assert not machine.visits.any()


def test_other_rows():
    X, y = data(20)
    machine = Machine(X[:12], y[:12], "hinge", HB(alpha=1.0), constraint=L1Ball(1))
    machine.run(np.arange(12))
    machine.rebind(sparse.csr_array(X[12:]), y[12:], np.ones(8))
    assert machine.visits.size == machine.dual_sums.size == 8
    machine.run(np.arange(8))
    whole = Machine(X, y, "hinge", HB(alpha=1.0), constraint=L1Ball(1))
    whole.run(np.arange(20))
    np.testing.assert_allclose(machine.coef, whole.coef, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(machine.dual_sums, whole.dual_sums[12:])
    machine.reset_duals()
    assert not machine.visits.any()


def test_divergence_is_said():
    X, y = data()
    machine = Machine(1e30 * X, y, "squared_error", HB(alpha=1e90))
    with pytest.raises(FloatingPointError, match="not finite at step"), np.errstate(all="ignore"):
        machine.run(epochs(20, 10))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be an integer of at least 1, got 0"),
        ({"sample_weight": np.zeros(20)}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": -np.ones(20)}, ValueError, "sample_weight must be finite"),
        ({"start": np.ones(5)}, ValueError, r"start must be a vector of shape \(6,\)"),
        ({"start": np.full(6, np.nan)}, ValueError, "start must be finite"),
        ({"intercept_start": 1.0}, ValueError, "intercept_start must be 0 without"),
        ({"form": "primal"}, ValueError, "form must be one of"),
        ({"constraint": 3.0}, TypeError, "constraint must be a set or None, got 3.0"),
        ({"loop": "quick"}, ValueError, "loop must be None or one of"),
    ],
)
def test_wrong_arguments(options, error, match):
    with pytest.raises(error, match=match):
        Machine(*data(), "hinge", HB(alpha=1.0), **options)


@pytest.mark.parametrize("order", [[[0]], [0.5], [20], [-1]])
def test_wrong_orders(order):
    with pytest.raises(ValueError, match="order must"):
        Machine(*data(), "hinge", HB(alpha=1.0)).run(order)


def test_it_shows_its_loop():
    machine = Machine(*data(), "hinge", HB(alpha=1.0), loop="general")
    assert "loop='general'" in repr(machine)
    with pytest.raises(TypeError, match=r"schedule must be one of adahb\.schedules"):
        Machine(*data(), "hinge", 1.0)
    with pytest.raises(ValueError, match="X must have 6 features"):
        machine.rebind(np.ones((3, 5)), np.ones(3))


def test_an_interruption_need_not_wait_for_long(monkeypatch):
    """Steps are taken in stretches that move so many numbers at most, or one by one."""
    X = sparse.random_array((400, 1_000_000), density=1e-6, format="csr", rng=0)
    machine = Machine(X, np.ones(400), "hinge", HB(alpha=1.0), constraint=L2Ball(1.0))
    assert machine.loop == "dense"
    taken = []
    monkeypatch.setattr(machine._loop, "run", lambda _, rows, __: taken.append(rows.size))
    machine.run(np.arange(400))
    assert sum(taken) == 400
    assert 1 < max(taken) <= 2**25 / 1_000_000
    one = Machine(*data(), "hinge", HB(alpha=1.0), loop="general", batch_size=4)
    assert one.stretch == 4


def test_a_detached_copy_goes_its_own_way():
    X, y = data()
    machine = Machine(X, y, "hinge", HB(alpha=1.0))
    machine.run(np.arange(20))
    before, other = machine.coef, copy.copy(machine)
    other.detach()
    other.run(np.arange(20))
    assert machine.steps == 20
    assert np.array_equal(machine.coef, before)
    assert not np.array_equal(other.coef, before)
