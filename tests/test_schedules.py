"""Every schedule against the formulas of the paper, written once more in exact or plain form."""

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adahb import schedules
from adahb.schedules import (
    HB,
    NAG,
    PSG,
    AdaHB,
    AdaHBConstant,
    HBConstant,
    JainNagarajNetrapalli,
    LinearDecay,
    best_alpha,
)

T = 40
EVERY = [
    PSG(alpha=2.0),
    LinearDecay(alpha=2.0, horizon=T),
    JainNagarajNetrapalli(alpha=2.0, horizon=T),
    NAG(alpha=2.0),
    HB(alpha=2.0),
    HB(alpha=2.0, power=3.5),
    HBConstant(alpha=2.0, beta=0.9),
    AdaHB(alpha=2.0),
    AdaHB(alpha=2.0, gamma=1.0, delta=1e-3, power=2.0),
    AdaHBConstant(alpha=2.0, beta=0.5),
]
TICKED = [type(s)(**{**vars(s), "tick": 7}) for s in EVERY]
steps = st.integers(1, 10**9)


def ids(schedule):
    return repr(schedule)


@given(steps)
def test_the_papers_coefficients(t):
    root = math.sqrt(t)
    hb, ada = HB(alpha=3.0)(t), AdaHB(alpha=3.0, gamma=0.3, delta=1e-6)(t)
    for at in (hb, ada):
        assert at.beta1 == pytest.approx(float(Fraction(t, t + 2)), rel=1e-15)
        assert at.alpha == pytest.approx(3.0 / ((t + 2) * root), rel=1e-15)
    assert ada.alpha == pytest.approx(3.0 * ada.beta1 / (t * root), rel=1e-14)
    assert ada.beta2 == pytest.approx(1 - 0.3 / t, abs=1e-16)
    assert ada.delta == pytest.approx(1e-6 / root, rel=1e-15)
    assert PSG(alpha=3.0)(t).alpha == pytest.approx(3.0 / root, rel=1e-15)
    assert HBConstant(alpha=3.0, beta=0.9)(t).alpha == pytest.approx(3.0 / root, rel=1e-15)
    assert HBConstant(alpha=3.0, beta=0.9)(t).beta1 == 0.9
    nag = NAG(alpha=3.0)(t)
    assert nag.alpha == pytest.approx(3.0 / ((t + 1) * root), rel=1e-15)
    assert nag.beta1 == pytest.approx(float(Fraction(t - 2, t + 1)), rel=1e-14, abs=1e-15)


@given(steps, st.floats(0, 100))
def test_power_is_the_weighted_mean(t, r):
    """β = c_{t+1}(1 - c_t)/c_t and α = c_{t+1} η with c_t = (r + 1)/(t + r + 1)."""
    at = HB(alpha=1.5, power=r)(t)
    c, c_next = (r + 1) / (t + r + 1), (r + 1) / (t + r + 2)
    assert at.c == pytest.approx(c_next, rel=1e-14)
    assert at.beta1 == pytest.approx(c_next * (1 - c) / c, rel=1e-6)
    assert at.eta == pytest.approx(1.5 / math.sqrt(t), rel=1e-15)


@given(steps, st.floats(0, 30), st.integers(2, 500))
def test_a_clock_of_its_own_for_the_average(t, r, tick):
    """Steps go by one clock and weights by the other, and w is the mean of all z."""
    at = AdaHB(alpha=1.5, gamma=0.5, power=r, tick=tick, averaging_tick=1)(t)
    slow, weights = (
        AdaHB(alpha=1.5, gamma=0.5, tick=1)((t - 1) // tick + 1),
        HB(alpha=1, power=r)(t),
    )
    assert (at.eta, at.beta2, at.delta) == (slow.eta, slow.beta2, slow.delta)
    assert (at.c, at.beta1) == (weights.c, weights.beta1)
    assert at.alpha == pytest.approx(at.c * at.eta, rel=1e-15)


def test_an_average_slower_than_the_steps_is_one_of_constant_weight():
    schedule = HB(alpha=1.0, tick=10, averaging_tick=4)
    assert schedule.period == 2
    at = schedule(np.arange(1, 41))
    np.testing.assert_array_equal(at.beta1, HB(alpha=1.0, tick=4)(np.arange(1, 41)).beta1)
    np.testing.assert_array_equal(at.c, 1 - at.beta1)
    assert schedule.guarantees == ()
    for column in at[:4]:
        np.testing.assert_array_equal(column[::2], column[1::2])


def test_the_same_clock_twice_is_one_clock():
    assert HB(alpha=1.0, tick=5, averaging_tick=5) == HB(alpha=1.0, tick=5)
    assert HB(alpha=1.0, averaging_tick=1).guarantees == HB(alpha=1.0).guarantees


def test_power_weights_grow_like_t_to_the_r():
    """Unrolled for r = 1, w is the mean of z_1, z_2, ... with weights 2, 3, ..., of order t."""
    weights = np.zeros(T)
    schedule = HB(alpha=1.0, power=1.0)
    for t in range(1, T + 1):
        weights *= 1 - schedule(t).c
        weights[t - 1] = schedule(t).c
    ratio = weights / np.arange(3, T + 3)  # step t makes z_{t+1}, of weight t + 2
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)


@pytest.mark.parametrize("schedule", EVERY + TICKED, ids=ids)
def test_the_two_forms_agree(schedule):
    for t in range(1, T):
        at = schedule(t)
        if not schedule.extrapolates:
            assert at.alpha == pytest.approx(at.c * at.eta, rel=1e-14)
            assert 0 < at.c <= 1
        assert -1 < at.beta1 < 1
        assert at.alpha > 0


@pytest.mark.parametrize("schedule", [HBConstant(alpha=1.0, beta=0.7), *TICKED], ids=ids)
def test_constant_momentum_weights_the_newest_z_with_one_minus_beta(schedule):
    for t in range(1, T):
        at = schedule(t)
        assert at.c == pytest.approx(1 - at.beta1, rel=1e-15)


@pytest.mark.parametrize("schedule", EVERY, ids=ids)
@given(tick=st.integers(1, 1000), step=st.integers(1, 10_000))
def test_a_tick_slows_the_clock(schedule, tick, step):
    t = 1 + (step - 1) // tick
    if getattr(schedule, "horizon", t) < t:
        return
    slow = type(schedule)(**{**vars(schedule), "tick": tick})
    at, expected = slow(step), schedule(t)
    assert (at.alpha, at.beta1, at.beta2, at.delta) == (
        expected.alpha,
        expected.beta1,
        expected.beta2,
        expected.delta,
    )


def test_linear_decay_reaches_almost_zero_and_starts_below_constant():
    alphas = LinearDecay(alpha=3.0, horizon=T)(np.arange(1, T + 1)).alpha
    expected = 3.0 * (T + 1 - np.arange(1, T + 1)) / (T + 1) ** 1.5
    np.testing.assert_allclose(alphas, expected, rtol=1e-15)


@given(st.integers(1, 5000))
def test_jain_nagaraj_netrapalli_phases(horizon):
    """Phase i holds the steps T_i < t <= T_{i+1}, T_i = T - ceil(T/2^i), and the last one to T."""
    last = max(0, math.ceil(math.log2(horizon)))
    assert Fraction(horizon, 2**last) <= 1
    ends = [horizon - math.ceil(Fraction(horizon, 2**i)) for i in range(last + 1)] + [horizon]
    expected = np.zeros(horizon)
    for i in range(last + 1):
        expected[ends[i] : ends[i + 1]] = 2.0**-i / math.sqrt(horizon)
    steps = np.arange(1, horizon + 1)
    alphas = JainNagarajNetrapalli(alpha=1.0, horizon=horizon)(steps).alpha
    np.testing.assert_allclose(alphas, expected, rtol=1e-15)


@pytest.mark.parametrize("schedule", EVERY + TICKED, ids=ids)
@pytest.mark.parametrize("make", [np.array, list, tuple, lambda x: np.array(x, dtype=np.int32)])
def test_arrays_are_the_scalars(schedule, make):
    t = list(range(1, T + 1))
    for field, values in schedule(make(t))._asdict().items():
        scalars = [getattr(schedule(s), field) for s in t]
        if values is None:
            assert set(scalars) == {None}
        else:
            assert values.dtype == np.float64
            np.testing.assert_allclose(values, scalars, rtol=1e-15)


@pytest.mark.parametrize("schedule", EVERY + TICKED, ids=ids)
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
def test_tensors_are_the_scalars(schedule, dtype):
    torch = pytest.importorskip("torch")
    t = torch.arange(1, T + 1, dtype=getattr(torch, dtype))
    for field, values in schedule(t)._asdict().items():
        scalars = [getattr(schedule(s), field) for s in range(1, T + 1)]
        if values is None:
            assert set(scalars) == {None}
        else:
            assert values.dtype == torch.float64
            np.testing.assert_allclose(values.numpy(), scalars, rtol=1e-15)


def test_a_step_counter_is_not_looked_at():
    """A tensor without values stands in for one on a device that nobody may wait for."""
    torch = pytest.importorskip("torch")
    step = torch.empty((), dtype=torch.int64, device="meta")
    for schedule in EVERY + TICKED:
        assert schedule(step).alpha.device.type == "meta"


@pytest.mark.parametrize("schedule", EVERY + TICKED, ids=ids)
def test_a_compiled_graph_holds_the_whole_schedule(schedule):
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()

    def coefficients(t):
        return tuple(schedule(t))  # torch 2.11 cannot return a named tuple out of a graph

    compiled = torch.compile(coefficients, fullgraph=True, backend="eager")
    steps = torch.arange(1, T + 1)
    for found, expected in zip(compiled(steps), schedule(steps), strict=True):
        assert (found is None and expected is None) or torch.equal(found, expected)


def test_python_and_numpy_numbers():
    for step in (3, 3.0, np.int32(3), np.float32(3.0), np.array(3)):
        at = HB(alpha=1.0)(step)
        assert at == HB(alpha=1.0)(3)
        assert type(at.alpha) is float


@pytest.mark.parametrize("step", [0, -1, 0.5, math.nan, math.inf, [1, 0], np.array([1.0, np.nan])])
def test_steps_outside_the_clock(step):
    with pytest.raises(ValueError, match="step must be"):
        HB(alpha=1.0)(step)


@pytest.mark.parametrize("step", ["3", None, object(), 1j, ["3"], np.array([1j]), np.array("3")])
def test_steps_that_are_no_numbers(step):
    with pytest.raises(TypeError, match="step must be"):
        HB(alpha=1.0)(step)


@pytest.mark.parametrize("family", [LinearDecay, JainNagarajNetrapalli])
def test_no_coefficients_beyond_the_horizon(family):
    with pytest.raises(ValueError, match="horizon of 5"):
        family(alpha=1.0, horizon=5)(6)
    with pytest.raises(
        ValueError,
        match="horizon must be an integer of at least 1 and at most 9007199254740992, got 0",
    ):
        family(alpha=1.0, horizon=0)


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        (PSG, {"alpha": 0.0}, r"alpha must be a number in \(0, inf\), got 0.0"),
        (PSG, {"alpha": math.nan}, r"alpha must be a number in \(0, inf\), got nan"),
        (PSG, {"alpha": math.inf}, r"alpha must be a number in \(0, inf\), got inf"),
        (PSG, {"alpha": 10**400}, r"alpha must be a number in \(0, inf\), got 1000"),
        (PSG, {"alpha": -1}, r"alpha must be a number in \(0, inf\), got -1"),
        (HB, {"alpha": 1.0, "averaging_tick": 0}, r"averaging_tick must be"),
        (HB, {"alpha": 1.0, "power": -0.1}, r"power must be a number in \[0, inf\), got -0.1"),
        (
            HB,
            {"alpha": 1.0, "tick": 0},
            "tick must be an integer of at least 1 and at most 9007199254740992, got 0",
        ),
        (HBConstant, {"alpha": 1.0, "beta": 1.0}, r"beta must be a number in \[0, 1\), got 1.0"),
        (HBConstant, {"alpha": 1.0, "beta": -0.1}, r"beta must be a number in \[0, 1\), got -0.1"),
        (AdaHB, {"alpha": 1.0, "gamma": 0}, r"gamma must be a number in \(0, 1\], got 0"),
        (AdaHB, {"alpha": 1.0, "gamma": 1.01}, r"gamma must be a number in \(0, 1\], got 1.01"),
        (AdaHB, {"alpha": 1.0, "gamma": math.nan}, r"gamma must be a number in \(0, 1\], got nan"),
        (AdaHB, {"alpha": 1.0, "delta": 0}, r"delta must be a number in \[1e-300, inf\), got 0"),
    ],
)
def test_values_outside_the_theory(family, arguments, message):
    with pytest.raises(ValueError, match=message):
        family(**arguments)


@pytest.mark.parametrize(
    "arguments", [{"alpha": "1"}, {"alpha": True}, {"alpha": None}, {"alpha": 1.0, "tick": 2.5}]
)
def test_values_of_the_wrong_type(arguments):
    with pytest.raises(TypeError, match="must be"):
        HB(**arguments)


def test_what_is_guaranteed():
    """Section 2's last column: which output has the optimal rate."""
    optimal = {type(s): {g.output for g in s.guarantees if g.rate == "1/sqrt(t)"} for s in EVERY}
    assert optimal == {
        PSG: {"average"},
        LinearDecay: {"last"},
        JainNagarajNetrapalli: {"last"},
        NAG: {"last"},
        HB: {"last"},
        HBConstant: {"average"},
        AdaHB: {"last"},
        AdaHBConstant: {"average"},
    }
    for schedule in EVERY:
        (first, *_) = schedule.guarantees
        known = isinstance(schedule, LinearDecay | JainNagarajNetrapalli)
        assert first.horizon == ("known" if known else "anytime")
        adaptive = isinstance(schedule, schedules.Adaptive)
        assert first.projection == ("metric" if adaptive else "euclidean")
        assert first.source in str(first)


def test_another_power_than_the_papers_is_not_the_theorem_as_it_stands():
    (paper,) = HB(alpha=1.0).guarantees
    (more,) = HB(alpha=1.0, power=2.0).guarantees
    assert paper.source == "Theorem 3 of the paper"
    assert more.source == "Theorem 3 of the paper, its proof with weights t^2"


@pytest.mark.parametrize("schedule", TICKED, ids=ids)
def test_nothing_is_guaranteed_when_the_clock_is_not_the_step(schedule):
    assert schedule.guarantees == ()


@pytest.mark.parametrize("schedule", EVERY, ids=ids)
def test_schedules_are_values(schedule):
    assert schedule == copy.deepcopy(schedule) == pickle.loads(pickle.dumps(schedule))
    assert hash(schedule) == hash(copy.copy(schedule))
    assert eval(repr(schedule), vars(schedules)) == schedule
    with pytest.raises(AttributeError):
        schedule.alpha = 3.0


@given(st.floats(0.1, 100), st.floats(0.1, 100), st.floats(0.05, 1), st.floats(0.3, 3))
def test_best_alpha_is_the_least_of_the_bound(diameter, lipschitz, gamma, factor):
    def theorem3(alpha):
        return alpha * lipschitz**2 + diameter**2 / (2 * alpha)

    def theorem5(alpha):
        return alpha * (2 - gamma) / gamma + diameter**2 / (2 * alpha)

    best3 = best_alpha(diameter, lipschitz=lipschitz)
    best5 = best_alpha(diameter, gamma=gamma)
    assert theorem3(best3) <= theorem3(factor * best3) * (1 + 1e-12)
    assert theorem5(best5) <= theorem5(factor * best5) * (1 + 1e-12)


def test_best_alpha_needs_one_of_two():
    for arguments in ({}, {"lipschitz": 1.0, "gamma": 0.5}):
        with pytest.raises(ValueError, match="one of lipschitz and gamma"):
            best_alpha(1.0, **arguments)


LATE = [1, 2, 3, 7, 100, 12_345, 10**6 + 1, 123_456_789, 10**9 - 1, 10**9]


@pytest.mark.parametrize("tick", [1, 7, 391])
def test_momentum_is_right_to_the_last_digits_at_a_billion_steps(tick):
    """In rational arithmetic: weights of old and new add up to one, also inside of a tick."""
    power = Fraction(4)
    for t in LATE:
        clock = Fraction((t - 1) // tick + 1)
        hb = schedules.HB(alpha=0.7, power=4.0, tick=tick)(t)
        nag = schedules.NAG(alpha=0.7, tick=tick)(t)
        momentum = clock / (clock + power + 2)
        newest = (power + 1) / (clock + power + 2) if tick == 1 else 1 - momentum
        adaptive = schedules.AdaHB(alpha=0.7, gamma=0.25, power=4.0, tick=tick)(t)
        extrapolation = (clock - 2) / (clock + 1)
        for found, right in (
            (hb.beta1, momentum),
            (hb.c, newest),
            (hb.eta * hb.c, Fraction(hb.alpha)),
            (adaptive.beta2, 1 - Fraction(1, 4) / clock),
            (nag.beta1, extrapolation),
            (nag.c, 1 if tick == 1 else 1 - extrapolation),
        ):
            assert abs(Fraction(found) - right) <= Fraction(1e-15) * abs(right), (t, found)


def test_steps_are_right_to_the_last_digits_at_a_billion_steps():
    """Squared, the roots are rational."""
    alpha = Fraction(0.7)
    for t in LATE:
        for found, right in (
            (schedules.PSG(alpha=0.7)(t).alpha, alpha**2 / t),
            (schedules.HB(alpha=0.7)(t).alpha, alpha**2 / (Fraction(t) * (t + 2) ** 2)),
            (schedules.NAG(alpha=0.7)(t).alpha, alpha**2 / (Fraction(t) * (t + 1) ** 2)),
            (schedules.AdaHB(alpha=0.7, delta=0.5)(t).delta, Fraction(1, 4) / t),
            (
                schedules.LinearDecay(alpha=0.7, horizon=10**9)(t).alpha,
                (alpha * (10**9 + 1 - t)) ** 2 / Fraction(10**9 + 1) ** 3,
            ),
        ):
            assert abs(Fraction(found) ** 2 - right) <= Fraction(2e-15) * right, (t, found)


def test_the_phases_of_a_billion_steps_begin_where_they_should():
    horizon = 10**9
    schedule = schedules.JainNagarajNetrapalli(alpha=1.0, horizon=horizon)
    for phase in range(1, 30):
        last = horizon - -(-horizon // 2**phase)
        before, after = schedule(last).alpha, schedule(last + 1).alpha
        assert before == pytest.approx(2.0 ** -(phase - 1) / math.sqrt(horizon), rel=1e-15)
        assert after <= before / 2
