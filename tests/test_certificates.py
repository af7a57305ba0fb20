"""Certificates never lie, and are as tight as they are known to be; the theorems' bounds hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adahb import reference, schedules
from adahb.certificates import Certificate, CuttingPlanes, DualAverages, LemmaTwo, TheoremBounds
from adahb.problems import Function, Linear, LinearObjective
from adahb.sets import Box, L1Ball, L2Ball, NonNegative, Simplex

L1 = L1Ball(1.0)


def test_the_deterministic_certificate_on_breast_cancer(breast_cancer, solution):
    """Never below the true gap, within four times of it at t = 1000, and the known numbers."""
    run = reference.hb(breast_cancer, 1000, alpha=10.0, constraint=L1)
    true = run.trace.value - solution.value
    assert (run.trace.gap >= true - 1e-12).all()
    assert true[-1] == pytest.approx(6.8e-4, rel=0.01)
    assert run.trace.gap[-1] == pytest.approx(1.5e-3, rel=0.03)
    assert run.trace.gap[-1] <= 4 * true[-1]
    assert run.certificate.gap == run.trace.gap[-1]


@pytest.mark.slow
def test_the_deterministic_certificate_later_on(breast_cancer, solution):
    run = reference.hb(breast_cancer, 20_000, alpha=10.0, constraint=L1, record=[20_000])
    assert run.certificate.value - solution.value == pytest.approx(3.4e-5, rel=0.01)
    assert run.certificate.gap == pytest.approx(9.5e-5, rel=0.01)
    paper = reference.hb(
        breast_cancer, 20_000, alpha=10.0, constraint=L1, form="paper", record=[20_000]
    )
    assert paper.certificate.value - solution.value == pytest.approx(8.9e-7, rel=0.01)
    assert paper.certificate.gap >= paper.certificate.value - solution.value


@pytest.mark.slow
def test_the_stochastic_certificate_on_breast_cancer(breast_cancer, solution):
    """200 epochs of single samples: a gap of some 9e-5 under a certificate of some 6e-4."""
    steps = 200 * breast_cancer.n
    run = reference.hb(breast_cancer, steps, alpha=0.1, constraint=L1, batch_size=1, form="paper")
    true = run.trace.value - solution.value
    assert (run.trace.gap >= true).all()
    assert 4e-5 < true[-1] < 2e-4
    assert 3e-4 < run.trace.gap[-1] < 1.2e-3


def test_the_averaging_form_bounds_its_own_certificate(breast_cancer):
    """gap_t <= (regret_t + f(w_0) - f(w_t))/t, where the regret is of the z_k over the set."""
    inner, gradients = [], []

    def keep(step):
        inner.append(step.g @ step.z)
        gradients.append(step.g)

    run = reference.hb(breast_cancer, 500, alpha=1.0, constraint=L1, callback=keep)
    best = np.array([-float(L1.support(-s)) for s in np.cumsum(gradients, axis=0)])
    regret = np.cumsum(inner) - best
    first = breast_cancer.value(np.zeros(30))
    bound = (regret + first - run.trace.value) / run.trace.step
    assert (run.trace.gap <= bound + 1e-12).all()


sets = st.sampled_from([L1Ball(0.7), L2Ball(1.3), Simplex(1.0), Box(-0.5, 0.25), L1Ball(0.0)])
losses = st.sampled_from(
    ["hinge", "squared_hinge", "log_loss", "absolute_error", "huber", "squared_error", "quantile"]
)


@given(
    sets,
    losses,
    st.integers(0, 10**6),
    st.sampled_from([None, 1, 3]),
    st.sampled_from(["averaging", "paper"]),
)
def test_a_certificate_is_never_below_the_true_gap(constraint, loss, seed, batch, form):
    """Whatever the method does: no feasible point that a long run finds is below the bound."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(9, 4)), np.sign(rng.normal(size=9))
    f = LinearObjective(X, y, loss)
    for method, options in (
        (reference.psg, {}),
        (reference.nag, {}),
        (reference.hb, {"form": form}),
        (reference.adahb, {"form": form, "gamma": 1.0}),
        (reference.adahb, {"form": form, "projection": "euclidean", "momentum": 0.5}),
    ):
        run = method(
            f,
            40,
            alpha=0.3,
            constraint=constraint,
            batch_size=batch,
            seed=seed,
            record=8,
            **options,
        )
        points = [constraint.project(rng.normal(size=4)) for _ in range(20)]
        points += [run.last, run.average, constraint.lmo(f.subgradient(run.last))]
        least = min(f.value(np.asarray(u)) for u in points)
        assert (run.trace.lower_bound <= least + 1e-10).all()
        assert run.certificate.gap >= -1e-10


def test_exact_on_a_linear_function():
    f = Linear([1.0, -2.0, 0.5])
    run = reference.psg(f, 1, alpha=1.0, constraint=L2Ball(2.0))
    assert run.certificate.lower_bound == pytest.approx(f.minimum(L2Ball(2.0)), rel=1e-15)


def test_nothing_is_proved_without_a_bounded_set(breast_cancer):
    for options in ({}, {"batch_size": 2}):
        free = reference.hb(breast_cancer, 5, alpha=0.1, **options)
        assert free.certificate.lower_bound == -math.inf
        assert free.certificate.gap == math.inf
    half = reference.hb(Linear([-1.0]), 5, alpha=0.1, constraint=NonNegative())
    assert half.certificate.gap == math.inf
    held = reference.hb(Linear([1.0]), 5, alpha=0.1, constraint=NonNegative())
    assert held.certificate.gap == 0.0


def test_evidence_starts_empty():
    assert CuttingPlanes(2).lower_bound(L1) == -math.inf
    assert Certificate(2.0, 0.5).gap == 1.5


def test_repeated_rows_count_as_often_as_they_come():
    averages = DualAverages(3)
    averages.add(np.array([0, 0, 2]), np.array([1.0, 0.0, -1.0]))
    averages.add(np.array([0]), np.array([0.5]))
    np.testing.assert_array_equal(averages.sums, [1.5, 0.0, -1.0])
    np.testing.assert_array_equal(averages.visits, [3, 0, 1])


# --- the paper's own statements


def lemma_two(objective, constraint, alpha, form="paper", **options):
    lemma = LemmaTwo(constraint)
    reference.hb(
        objective, 1000, alpha=alpha, constraint=constraint, form=form, callback=lemma, **options
    )
    return lemma


@pytest.mark.parametrize(("alpha", "deviation"), [(0.1, 0.05), (100.0, 0.83)])
def test_lemma_2_is_no_equality_while_the_constraint_is_active(breast_cancer, alpha, deviation):
    lemma = lemma_two(breast_cancer, L1, alpha)
    assert max(lemma.deviation) == pytest.approx(deviation, abs=0.005)
    assert any(lemma.outside)


def test_w_plus_p_leaves_the_ball(breast_cancer):
    norms = []
    reference.hb(
        breast_cancer,
        1000,
        alpha=10.0,
        constraint=L1,
        form="paper",
        callback=lambda step: norms.append(np.abs(step.z_next).sum()),
    )
    assert max(norms) == pytest.approx(3.0, abs=1e-6)


def test_lemma_2_holds_where_nothing_is_projected_and_in_the_averaging_form(breast_cancer):
    assert max(lemma_two(breast_cancer, L1Ball(1e6), 1.0).deviation) < 1e-12
    averaging = lemma_two(breast_cancer, L1, 10.0, form="averaging")
    assert max(averaging.deviation) < 1e-14
    assert not any(averaging.outside)


THEOREMS = [
    schedules.HB(alpha=1.0),
    schedules.HBConstant(alpha=0.1, beta=0.9),
    schedules.AdaHB(alpha=0.1, gamma=0.9),
    schedules.AdaHB(alpha=0.1, gamma=0.1),
    schedules.AdaHBConstant(alpha=0.01, gamma=1.0, beta=0.5),
]


@pytest.mark.parametrize("schedule", THEOREMS, ids=repr)
@pytest.mark.parametrize("form", ["paper", "averaging"])
def test_theorems_3_to_6_along_a_run(breast_cancer, solution, schedule, form):
    bounds = TheoremBounds(schedule, solution.w, solution.lower_bound)
    values = []

    def observe(step):
        bounds(step)
        values.append(step.value)

    run = reference.run(
        breast_cancer, 800, schedule, constraint=L1, form=form, callback=observe, record=[800]
    )
    gap, proof, theorem = map(np.array, (bounds.gap, bounds.proof, bounds.theorem))
    assert gap.shape == (800,)
    assert (gap <= proof + 1e-12).all()
    assert (gap <= theorem + 1e-12).all()
    assert all(ratio <= 1 + 1e-12 for ratio in bounds.lemma7)
    if isinstance(schedule, schedules.HBConstant):
        assert gap[-1] == pytest.approx(np.mean(values) - solution.lower_bound, rel=1e-12)
        assert breast_cancer.value(run.average) - solution.lower_bound <= gap[-1]
    else:
        assert gap[-1] == values[-1] - solution.lower_bound


def test_the_bounds_of_theorem_3_by_hand():
    """f(w) = |w| in one dimension from w_0 = 1/2, alpha = 1: both sides after two steps."""
    f = Function(1, lambda w: float(np.abs(w).sum()), lambda w: np.where(w >= 0, 1.0, -1.0))
    bounds = TheoremBounds(schedules.HB(alpha=1.0), np.zeros(1), 0.0)
    reference.hb(f, 2, alpha=1.0, w0=[0.5], constraint=Box(-1, 1), callback=bounds)
    # z_1 = 1/2, z_2 = -1/2, w_2 = (2/2 - 1/2)/3 = 1/6, z_3 = max(-1, -1/2 - 1/√2) = -1
    sums = 0.5 + 0.5 * (1 + 1 / math.sqrt(2)) + (0.25 - 0.25) / 2 + math.sqrt(2) * (0.25 - 1) / 2
    assert bounds.gap == pytest.approx([0.5, 1 / 6])
    assert bounds.proof[-1] == pytest.approx(sums / 3)
    assert bounds.theorem[-1] == pytest.approx((0.5 + math.sqrt(2) + math.sqrt(2) / 2) / 3)


def test_theorem_5_fails_as_printed():
    ball, f = L2Ball(1.0), Linear([1.0, 0.3, 0.1])
    schedule = schedules.AdaHB(alpha=1.0, gamma=1.0)
    worst = {}
    for projection in ("metric", "euclidean"):
        bounds = TheoremBounds(schedule, ball.lmo(f.c), f.minimum(ball))
        reference.run(
            f,
            6000,
            schedule,
            constraint=ball,
            form="paper",
            projection=projection,
            callback=bounds,
            record=[6000],
        )
        worst[projection] = max(np.array(bounds.gap) / np.array(bounds.theorem))
    assert worst["metric"] < 1 < worst["euclidean"]


@pytest.mark.parametrize(
    "schedule",
    [
        schedules.PSG(alpha=1.0),
        schedules.NAG(alpha=1.0),
        schedules.HB(alpha=1.0, tick=2),
        schedules.HB(alpha=1.0, power=1.0),
    ],
    ids=repr,
)
def test_theorems_speak_of_some_schedules_only(schedule):
    with pytest.raises(ValueError, match="schedule must be one that Theorems 3 to 6 speak of"):
        TheoremBounds(schedule, np.zeros(1), 0.0)


def test_planes_refuse_what_is_not_finite():
    planes = CuttingPlanes(2)
    zero = np.zeros(2)
    for value, g, w in (
        (np.nan, zero, zero),
        (0.0, zero + np.inf, zero),
        (0.0, zero, zero + np.nan),
    ):
        with pytest.raises(ValueError, match="value, g and w must be finite"):
            planes.add(w, value, g)
    assert planes.count == 0
    with pytest.raises(ValueError, match="derivatives must be finite"):
        DualAverages(3).add(np.array([0]), np.array([np.nan]))


def test_planes_that_overflow_prove_nothing():
    for value in (1.7e308, -1.7e308):
        planes = CuttingPlanes(1)
        for _ in range(3):
            planes.add(np.zeros(1), value, np.full(1, 1.7e308))
        assert planes.lower_bound(L1Ball(1.0)) == -math.inf
    planes = CuttingPlanes(1)
    planes.add(np.zeros(1), 0.0, np.full(1, 1e300))
    assert planes.lower_bound(L1Ball(1e300)) == -math.inf
    assert CuttingPlanes(1).lower_bound(L1Ball(1.0)) == -math.inf  # after no step at all
