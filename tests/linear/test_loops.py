"""The compiled loops take the reference's steps, on rows of either kind."""

from itertools import product

import numpy as np
import pytest
from linear.test_machine import SCHEDULES, SETS, data
from linear.twin import assert_equal_to_reference, epochs, reference_run
from scipy import sparse

from adahb.linear.loops import Dense, Lazy
from adahb.linear.machine import Machine
from adahb.problems import losses
from adahb.schedules import HB, AdaHB, HBConstant
from adahb.sets import L1Ball, NonNegative

LOOPS = (Lazy, Dense)


def run_or_none(loop, X, y, loss, schedule, count=3, **options):
    """The machine after some epochs; None if the loop refuses the model."""
    probe = Machine(X, y, loss, schedule, loop="general", **options)
    if loop.refuses(probe.model, probe.samples):
        return None
    machine = Machine(X, y, loss, schedule, loop=loop.name, **options)
    for order in epochs(len(y), count).reshape(count, -1):
        machine.run(order)
    return machine


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_every_schedule_and_set_that_a_loop_knows(schedule):
    X, y = data()
    S, trained = sparse.csr_array(X), 0
    for constraint, form, projection in product(
        SETS, ("averaging", "paper"), ("metric", "euclidean")
    ):
        options = {"constraint": constraint, "form": form, "projection": projection}
        twin = None
        for loop, rows in ((Lazy, S), (Dense, S), (Dense, X)):
            machine = run_or_none(loop, rows, y, "hinge", schedule, **options)
            if machine is None:
                continue
            twin = twin or reference_run(X, y, "hinge", schedule, 3, **options)
            assert_equal_to_reference(machine, twin)
            trained += 1
    assert trained >= 24


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("loss", losses.BY_NAME)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_every_loss_with_weights_batches_and_starts(loop, loss, fit_intercept):
    X, y = data()
    rng = np.random.default_rng(1)
    if not losses.get(loss).classification:
        y = rng.normal(size=y.size)
    for batch_size, constraint in product((1, 3), (L1Ball(2.0), NonNegative())):
        options = {
            "fit_intercept": fit_intercept,
            "sample_weight": rng.random(y.size) * (rng.random(y.size) < 0.8),
            "batch_size": batch_size,
            "start": 3 * rng.normal(size=6),
            "intercept_start": 0.5 * fit_intercept,
            "constraint": constraint,
        }
        for schedule in (HB(alpha=0.2), AdaHB(alpha=0.2, gamma=1)):
            machine = run_or_none(loop, sparse.csr_array(X), y, loss, schedule, **options)
            twin = reference_run(X, y, loss, schedule, 3, **options)
            assert_equal_to_reference(machine, twin)


def test_narrow_numbers_and_wide_indices():
    X, y = data()
    S = sparse.csr_array(X.astype(np.float32))
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    for loop, schedule in product(LOOPS, (HB(alpha=1.0), AdaHB(alpha=1.0, gamma=1))):
        machine = run_or_none(loop, S, y, "hinge", schedule, constraint=L1Ball(1.0))
        twin = reference_run(S, y, "hinge", schedule, 3, constraint=L1Ball(1.0))
        assert_equal_to_reference(machine, twin)


def test_columns_that_a_row_has_twice():
    X, y = data()
    S = sparse.csr_array(X)
    halves = S.data * np.random.default_rng(0).random(S.data.size)
    parts = np.stack([halves, S.data - halves], axis=1).ravel()
    twice = sparse.csr_array((parts, np.repeat(S.indices, 2), 2 * S.indptr), S.shape)
    twice.has_canonical_format = False
    for schedule in (HB(alpha=1.0), AdaHB(alpha=1.0, gamma=1)):
        machine = run_or_none(Lazy, twice, y, "hinge", schedule, constraint=L1Ball(1.0))
        twin = reference_run(X, y, "hinge", schedule, 3, constraint=L1Ball(1.0))
        assert_equal_to_reference(machine, twin)


def text_like(n, d, nonzeros, seed=0):
    """Rows of some nonzeros, columns with the frequencies of words."""
    rng = np.random.default_rng(seed)
    rows = [np.unique((d ** rng.random(nonzeros) - 1).astype(int)) for _ in range(n)]
    indptr = np.cumsum([0, *map(len, rows)])
    values = rng.normal(size=indptr[-1])
    X = sparse.csr_array((values, np.concatenate(rows), indptr), (n, d))
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize(
    ("schedule", "radius"),
    [
        (HB(alpha=20.0), 20.0),
        (HB(alpha=0.5), 3.0),
        (HBConstant(alpha=2.0, beta=0.9), 8.0),
        (AdaHB(alpha=5.0, gamma=1), 20.0),
        (AdaHB(alpha=0.05, gamma=1, delta=0.5), 3.0),
        (AdaHB(alpha=0.5, gamma=0.5), 8.0),
    ],
    ids=repr,
)
def test_many_coordinates_that_come_and_go(schedule, radius):
    """Thousands of steps with the queue filled, passed, made anew, and emptied."""
    X, y = text_like(2000, 3000, 40)
    for projection in ("metric", "euclidean"):
        options = {"constraint": L1Ball(radius), "projection": projection}
        lazy = run_or_none(Lazy, X, y, "hinge", schedule, 2, **options)
        if lazy is None:
            continue
        dense = run_or_none(Dense, X, y, "hinge", schedule, 2, **options)
        scale = abs(dense.coef).max()
        for mine, theirs in (
            (lazy.coef, dense.coef),
            (lazy.average_coef, dense.average_coef),
        ):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10 * (1 + scale))
        np.testing.assert_array_equal(lazy.dual_sums, dense.dual_sums)


@pytest.mark.parametrize("average", [True, False])
def test_one_run_is_many_runs(average):
    X, y = text_like(300, 500, 20)
    order = epochs(300, 3)
    for schedule in (HB(alpha=5.0), HB(alpha=5.0, power=4)):
        options = {"constraint": L1Ball(4.0), "average": average}
        one, many = (Machine(X, y, "hinge", schedule, loop="lazy", **options) for _ in range(2))
        one.run(order)
        for part in np.array_split(order, 50):
            many.run(part)
        np.testing.assert_allclose(one.coef, many.coef, rtol=0, atol=1e-11)
        if average:
            dense = Machine(X, y, "hinge", schedule, loop="dense", **options)
            dense.run(order)
            for machine in (one, many):
                np.testing.assert_allclose(
                    machine.average_coef, dense.average_coef, rtol=0, atol=1e-11
                )


def test_a_fit_goes_on_in_another_loop():
    X, y = text_like(200, 300, 20)
    order = epochs(200, 2)
    for schedule in (HB(alpha=5.0), AdaHB(alpha=1.0, gamma=1)):
        options = {"constraint": L1Ball(4.0)}
        whole = Machine(X, y, "hinge", schedule, **options)
        parts = Machine(X, y, "hinge", schedule, **options)
        whole.run(order)
        parts.run(order[:200])
        assert parts.loop == "lazy"
        parts.rebind(X.toarray(), y)
        assert parts.loop == "dense"
        parts.run(order[200:300])
        parts.rebind(X, y)
        parts.run(order[300:])
        np.testing.assert_allclose(parts.coef, whole.coef, rtol=0, atol=1e-11)
        np.testing.assert_allclose(parts.average_coef, whole.average_coef, rtol=0, atol=1e-11)


@pytest.mark.parametrize("loop", LOOPS)
def test_divergence_is_said(loop):
    X, y = data()
    machine = Machine(
        sparse.csr_array(1e35 * X), y, "squared_error", HB(alpha=1e100), loop=loop.name
    )
    with pytest.raises(FloatingPointError, match="not finite at step"):
        machine.run(epochs(20, 10))


def test_what_overflows_is_said_or_finite():
    X, y = text_like(50, 100, 10)
    X.data *= 1e35
    for schedule in (HB(alpha=1e100), AdaHB(alpha=1e100, gamma=1)):
        machine = Machine(X, y, "hinge", schedule, constraint=L1Ball(1.0), loop="lazy")
        try:
            machine.run(epochs(50, 2))
        except FloatingPointError:
            continue
        assert np.isfinite(machine.coef).all()
