"""The reference against the paper's numbers, its own two forms, and the rules of a run."""

import math

import numpy as np
import pytest

from adahb import reference, schedules
from adahb.problems import Function, HardFunction, Linear, LinearObjective
from adahb.sets import Box, L1Ball, L2Ball, Simplex

BALL = L2Ball(1.0)


def hard(T, method, **options):
    return method(HardFunction(T, 2.0), T, constraint=BALL, record=[T], **options)


# --- the numbers that are known of the hard function


@pytest.mark.parametrize(
    ("T", "psg", "hb", "averaging", "printed"),
    [
        (1000, 0.00503, 0.00327, 0.00265, 0.00381),
        pytest.param(5000, 0.00278, 0.00147, 0.00119, 0.00083, marks=pytest.mark.slow),
    ],
)
def test_last_iterates_on_the_hard_function(T, psg, hb, averaging, printed):
    ada = {"alpha": 0.08, "gamma": 0.9, "delta": 1e-8, "form": "paper", "projection": "euclidean"}
    assert hard(T, reference.psg, alpha=2.0).certificate.value == pytest.approx(psg, abs=1e-5)
    found = hard(T, reference.hb, alpha=8.0, form="paper").certificate.value
    assert found == pytest.approx(hb, abs=1e-5)
    found = hard(T, reference.hb, alpha=8.0, form="averaging").certificate.value
    assert found == pytest.approx(averaging, abs=1e-5)
    assert hard(T, reference.adahb, **ada).certificate.value == pytest.approx(printed, abs=1e-5)


def test_psg_stays_above_its_lower_bound_and_others_do_not():
    f = HardFunction(1000, 2.0)
    assert hard(1000, reference.psg, alpha=2.0).certificate.value > f.lower_bound()
    assert (
        hard(1000, reference.psg, alpha=2.0, output="average").certificate.value < f.lower_bound()
    )
    assert hard(1000, reference.hb, alpha=8.0).certificate.value < f.lower_bound()


def test_linear_decay_keeps_its_promise():
    """G R/√(T+1) with α = R/G, from a start at distance R of the minimum of the l1 norm."""
    d, T = 5, 400
    f = Function(d, lambda w: float(np.abs(w).sum()), lambda w: np.sign(w) + (w == 0))
    w0 = np.array([1.0, -0.7, 0.3, 0.2, -0.5])
    R, G = float(np.linalg.norm(w0)), math.sqrt(d)
    schedule = schedules.LinearDecay(alpha=R / G, horizon=T)
    run = reference.run(f, T, schedule, w0=w0, record=[T])
    assert f.value(run.state.point.w) <= R * G / math.sqrt(T + 1)


# --- the two counterexamples to the Euclidean projection


@pytest.mark.parametrize("form", ["paper", "averaging"])
@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.1])
def test_the_euclidean_projection_stops_at_the_wrong_point_of_the_l2_ball(form, gamma):
    f = Linear([1.0, 0.3, 0.1])
    run = reference.adahb(
        f,
        3000,
        alpha=1.0,
        gamma=gamma,
        constraint=BALL,
        form=form,
        projection="euclidean",
        record=[100, 3000],
    )
    gap = run.trace.value - f.minimum(BALL)
    # the averaging form still remembers its start, with weight 1/t
    np.testing.assert_allclose(gap, 0.2405, atol=5e-4 if form == "paper" else 2e-2)
    assert gap[1] == pytest.approx(0.2405, abs=1e-3)


@pytest.mark.parametrize(("form", "expected"), [("paper", 8.9e-8), ("averaging", 1.1e-4)])
@pytest.mark.slow
def test_the_metric_projection_goes_on_to_the_solution(form, expected):
    f = Linear([1.0, 0.3, 0.1])
    run = reference.adahb(
        f, 20_000, alpha=1.0, gamma=1.0, constraint=BALL, form=form, record=[20_000]
    )
    assert run.certificate.value - f.minimum(BALL) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("projection", "expected"), [("euclidean", -0.75), ("metric", -1.0)])
@pytest.mark.parametrize("form", ["paper", "averaging"])
def test_the_same_on_the_l1_ball(projection, expected, form):
    run = reference.adahb(
        Linear([1.0, 0.5]),
        4000,
        alpha=1.0,
        gamma=1.0,
        constraint=L1Ball(1.0),
        form=form,
        projection=projection,
        record=[4000],
    )
    assert run.certificate.value == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("form", ["paper", "averaging"])
def test_on_a_box_the_metric_does_not_matter(form, breast_cancer):
    box = Box(-0.05, 0.08)
    runs = [
        reference.adahb(breast_cancer, 300, alpha=0.1, constraint=box, form=form, projection=p)
        for p in ("metric", "euclidean")
    ]
    np.testing.assert_array_equal(runs[0].last, runs[1].last)


# --- the two forms are one method while nothing is projected


METHODS = [
    (reference.hb, {}),
    (reference.hb, {"momentum": 0.9}),
    (reference.hb, {"power": 3.0}),
    (reference.adahb, {"gamma": 0.5}),
    (reference.adahb, {"gamma": 1.0, "momentum": 0.5}),
    (reference.adahb, {"power": 2.0}),
]


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_the_forms_make_the_same_sequence_in_a_wide_set(method, options, breast_cancer):
    wide = L2Ball(1e9)
    ends = [
        method(
            breast_cancer, 3000, alpha=0.05, constraint=wide, form=form, record=[3000], **options
        )
        for form in ("paper", "averaging")
    ]
    assert np.abs(ends[0].last - ends[1].last).max() < 5e-13 * max(1, np.abs(ends[0].last).max())


def test_they_part_when_something_is(breast_cancer):
    ends = [
        reference.hb(breast_cancer, 300, alpha=1.0, constraint=L1Ball(1.0), form=form).last
        for form in ("paper", "averaging")
    ]
    assert np.abs(ends[0] - ends[1]).max() > 1e-4


@pytest.mark.parametrize("tick", [1, 7])
def test_without_a_constraint_the_form_says_nothing(tick, breast_cancer):
    ends = [
        reference.adahb(breast_cancer, 200, alpha=0.1, tick=tick, form=form).last
        for form in ("paper", "averaging")
    ]
    np.testing.assert_array_equal(ends[0], ends[1])


def test_w_is_the_mean_of_z():
    """t=1: w_1 = z_1; then w_t is the mean of z_1, ..., z_t. So nothing is averaged afterwards."""
    f, zs, ws = HardFunction(50), [], []

    def keep(step):
        zs.append(step.z)
        ws.append(step.w)

    reference.hb(f, 60, alpha=8.0, constraint=BALL, form="averaging", callback=keep)
    means = np.cumsum(zs, axis=0) / np.arange(1, 61)[:, None]
    # w_1 = z_1 counts twice, being w_0 as well: w_{t+1} = ((t+1) w_t + z_{t+1})/(t+2)
    expected = (means * np.arange(1, 61)[:, None] + zs[0]) / np.arange(2, 62)[:, None]
    np.testing.assert_allclose(ws, expected, atol=1e-14)


def test_schedule_free_sgd_is_the_same_recursion(breast_cancer):
    """Averaging weights 1/(t+2) and steps α/√t: written out by hand."""
    w = z = np.zeros(breast_cancer.dim)
    for t in range(1, 200):
        z = z - 0.3 / math.sqrt(t) * breast_cancer.subgradient(w)
        w = w + (z - w) / (t + 2)
    run = reference.hb(breast_cancer, 199, alpha=0.3)
    np.testing.assert_allclose(run.state.point.w, w, atol=1e-12)


def test_algorithm_1_by_hand(breast_cancer):
    """The printed lines, typed out: Euclidean projection, w projected."""
    gamma, delta, alpha, ball = 0.9, 1e-8, 0.1, L1Ball(1.0)
    w = w_before = np.zeros(breast_cancer.dim)
    V = np.zeros(breast_cancer.dim)
    for t in range(1, 301):
        g = breast_cancer.subgradient(w)
        beta1, beta2 = t / (t + 2), 1 - gamma / t
        V = beta2 * V + (1 - beta2) * g * g
        V_hat = np.sqrt(V) + delta / math.sqrt(t)
        step = alpha * beta1 / (t * math.sqrt(t)) * g / V_hat
        w, w_before = ball.project(w - step + beta1 * (w - w_before)), w
    run = reference.adahb(
        breast_cancer,
        300,
        alpha=alpha,
        gamma=gamma,
        delta=delta,
        constraint=ball,
        form="paper",
        projection="euclidean",
    )
    np.testing.assert_allclose(run.state.point.w, w, atol=1e-12)


def test_nag_by_hand(breast_cancer):
    ball = L1Ball(1.0)
    w = w_before = np.zeros(breast_cancer.dim)
    for t in range(1, 201):
        theta, theta_before = 2 / (t + 1), 2 / t
        y = w + theta * (1 / theta_before - 1) * (w - w_before)
        step = 2.0 / ((t + 1) * math.sqrt(t)) * breast_cancer.subgradient(y)
        w, w_before = ball.project(y - step), w
    run = reference.nag(breast_cancer, 200, alpha=2.0, constraint=ball)
    np.testing.assert_allclose(run.state.point.w, w, atol=1e-13)
    assert run.trace.value[-1] == breast_cancer.value(run.last)


def test_a_ticked_averaging_form_by_hand():
    """Inside a tick: z₊ = P[z - α_t/(1-β) g], w₊ = βw + (1-β)z₊; z is kept when β changes."""
    f, tick, alpha = HardFunction(30), 4, 8.0
    w = z = np.zeros(30)
    for k in range(40):
        t = 1 + k // tick
        beta, step = t / (t + 2), alpha / ((t + 2) * math.sqrt(t))
        z = BALL.project(z - step / (1 - beta) * f.subgradient(w))
        w = beta * w + (1 - beta) * z
    run = reference.hb(f, 40, alpha=alpha, tick=tick, constraint=BALL, form="averaging")
    np.testing.assert_allclose(run.state.point.w, w, atol=1e-13)


# --- what is returned


def test_last_and_average_are_what_they_say(breast_cancer):
    ws = []
    run = reference.hb(
        breast_cancer,
        50,
        alpha=1.0,
        constraint=L1Ball(1.0),
        output="average",
        callback=lambda step: ws.append(step.w),
    )
    np.testing.assert_array_equal(run.last, ws[-1])
    np.testing.assert_allclose(run.average, np.mean(ws, axis=0), atol=1e-15)
    assert run.w is run.average
    assert run.certificate.value == breast_cancer.value(run.average)
    values = [breast_cancer.value(w) for w in ws]
    np.testing.assert_allclose(run.trace.value, values, rtol=1e-14)
    assert run.trace.step.tolist() == list(range(1, 51))


@pytest.mark.parametrize("record", [None, 7, [3, 50], [1], set()])
def test_what_is_recorded(record, breast_cancer):
    run = reference.psg(breast_cancer, 50, alpha=1.0, constraint=L1Ball(1.0), record=record)
    expected = {None: range(1, 51), 7: range(7, 51, 7)}.get(
        record if not isinstance(record, list | set) else "given", record
    )
    assert run.trace.step.tolist() == list(expected)
    full = reference.psg(breast_cancer, 50, alpha=1.0, constraint=L1Ball(1.0))
    assert run.certificate == full.certificate


@pytest.mark.parametrize("batch_size", [None, 1, 8])
@pytest.mark.parametrize("sampling", ["independent", "epochs"])
@pytest.mark.parametrize(
    "schedule",
    [
        schedules.PSG(alpha=0.5),
        schedules.NAG(alpha=0.5),
        schedules.HB(alpha=0.5, tick=3),
        schedules.AdaHB(alpha=0.1, power=1.0),
        schedules.AdaHBConstant(alpha=0.1, beta=0.9),
    ],
    ids=repr,
)
@pytest.mark.parametrize("form", ["paper", "averaging"])
def test_a_run_continued_is_the_run_not_stopped(
    breast_cancer, schedule, form, batch_size, sampling
):
    options = {
        "constraint": L1Ball(1.0),
        "form": form,
        "batch_size": batch_size,
        "sampling": sampling,
        "seed": 3,
        "record": 5,
    }
    whole = reference.run(breast_cancer, 90, schedule, **options)
    first = reference.run(breast_cancer, 37, schedule, **options)
    for _ in range(2):  # the state is not used up
        second = reference.run(breast_cancer, 53, schedule, resume=first.state, **options)
        for a, b in zip(whole.state.point, second.state.point, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(whole.last, second.last)
        np.testing.assert_array_equal(whole.average, second.average)
        assert whole.certificate == second.certificate
        joined = np.concatenate([first.trace.value, second.trace.value])
        np.testing.assert_array_equal(whole.trace.value, joined)
        joined = np.concatenate([first.trace.lower_bound, second.trace.lower_bound])
        np.testing.assert_array_equal(whole.trace.lower_bound, joined)


def test_a_continuation_must_be_of_the_same_run(breast_cancer):
    state = reference.hb(breast_cancer, 5, alpha=1.0, constraint=L1Ball(1.0)).state
    with pytest.raises(ValueError, match=r"same schedule, HB\(alpha=1.0"):
        reference.hb(breast_cancer, 5, alpha=2.0, constraint=L1Ball(1.0), resume=state)
    with pytest.raises(ValueError, match="same settings"):
        reference.hb(breast_cancer, 5, alpha=1.0, constraint=L1Ball(2.0), resume=state)
    with pytest.raises(ValueError, match="same dimension of the objective, 30, got 3"):
        reference.hb(Linear([1, 2, 3]), 5, alpha=1.0, constraint=L1Ball(1.0), resume=state)
    with pytest.raises(ValueError, match="w0 must be left out"):
        reference.hb(
            breast_cancer, 5, alpha=1.0, constraint=L1Ball(1.0), resume=state, w0=np.zeros(30)
        )


# --- samples


def test_a_seed_decides_what_is_drawn(breast_cancer):
    def run(seed):
        return reference.hb(breast_cancer, 40, alpha=0.1, batch_size=4, seed=seed).last

    np.testing.assert_array_equal(run(1), run(1))
    assert np.abs(run(1) - run(2)).max() > 0


def test_an_epoch_visits_every_sample_once(breast_cancer):
    n = breast_cancer.n
    run = reference.psg(
        breast_cancer, -(-n // 10), alpha=0.1, batch_size=10, sampling="epochs", constraint=BALL
    )
    np.testing.assert_array_equal(run.state.evidence.visits, np.ones(n))


def test_one_batch_of_all_samples_is_the_full_subgradient(breast_cancer):
    n = breast_cancer.n
    sampled = reference.hb(breast_cancer, 30, alpha=1.0, batch_size=n, sampling="epochs")
    full = reference.hb(breast_cancer, 30, alpha=1.0)
    np.testing.assert_allclose(sampled.last, full.last, atol=1e-13)


def test_samples_are_unbiased(breast_cancer):
    w = np.full(breast_cancer.dim, 0.02)
    runs = [
        reference.psg(breast_cancer, 1, alpha=1.0, w0=w, batch_size=1, seed=s) for s in range(3000)
    ]
    steps = np.array([w - run.state.point.w for run in runs])
    error = steps.std(axis=0) / math.sqrt(len(runs))
    assert (np.abs(steps.mean(axis=0) - breast_cancer.subgradient(w)) < 5 * error + 1e-12).all()


# --- starts and errors


def test_an_infeasible_start_is_projected():
    run = reference.psg(Linear([1.0, 2.0]), 1, alpha=1.0, constraint=Simplex(1.0))
    np.testing.assert_allclose(run.last, [0.5, 0.5])
    run = reference.psg(Linear([1.0, 2.0]), 1, alpha=1.0, w0=[3.0, 4.0], constraint=L2Ball(1.0))
    np.testing.assert_allclose(run.last, [0.6, 0.8])


def test_inputs_are_not_modified(breast_cancer):
    w0 = np.full(30, 0.01)
    reference.adahb(breast_cancer, 20, alpha=0.1, w0=w0, constraint=L1Ball(1.0))
    np.testing.assert_array_equal(w0, 0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"form": "both"}, "form must be one of 'averaging', 'paper', got 'both'"),
        ({"projection": "l1"}, "projection must be one of 'metric', 'euclidean', got 'l1'"),
        ({"output": "best"}, "output must be one of 'last', 'average', got 'best'"),
        ({"sampling": "x"}, "sampling must be one of 'independent', 'epochs', got 'x'"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        ({"batch_size": 570}, "batch_size must be at most the 569 samples, got 570"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"record": 0}, "record must be an integer of at least 1, got 0"),
        ({"w0": np.zeros(3)}, "w0 must be 30 finite numbers"),
        ({"w0": np.full(30, np.nan)}, "w0 must be 30 finite numbers"),
        ({"momentum": 1.0}, r"beta must be a number in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments(options, message, breast_cancer):
    arguments = {"alpha": 1.0, "steps": 3, **options}
    with pytest.raises(ValueError, match=message):
        reference.hb(breast_cancer, arguments.pop("steps"), **arguments)


def test_an_unknown_argument_is_refused(breast_cancer):
    with pytest.raises(TypeError, match="constrain"):
        reference.hb(breast_cancer, 3, alpha=1.0, constrain=BALL)


def test_samples_of_what_has_none():
    with pytest.raises(TypeError, match="batch_size=2 needs an objective that is a sum"):
        reference.hb(Linear([1.0]), 3, alpha=1.0, batch_size=2)


def test_a_value_that_is_not_finite_stops_the_run():
    def value(w):
        return math.nan if w[0] < 0 else float(w[0])

    f = Function(1, value, np.ones_like)
    with pytest.raises(FloatingPointError, match="not finite at step 2"):
        reference.psg(f, 5, alpha=1.0)


def test_unused_columns_stay_at_zero():
    """A coordinate whose gradient is always zero has V = 0; δ/√t keeps the quotient defined."""
    X = np.array([[1.0, 0.0], [2.0, 0.0]])
    f = LinearObjective(X, [1, -1], "hinge")
    for form in ("paper", "averaging"):
        run = reference.adahb(f, 50, alpha=0.5, constraint=L1Ball(1.0), form=form)
        assert run.last[1] == 0.0
        assert np.isfinite(run.last).all()


def test_subgradients_whose_squares_leave_float64_are_refused():
    steep = Function(2, lambda w: float(1e200 * w.sum()), lambda w: 0 * w + 1e200)
    with pytest.raises(FloatingPointError, match=r"subgradient at step 1 must be .* got 1e\+200"):
        reference.adahb(steep, 3, alpha=1.0)
    assert np.isfinite(reference.hb(steep, 1, alpha=1e-200).last).all()


def test_the_smallest_delta_is_divided_by_at_the_latest_steps():
    flat = Function(2, lambda w: 0.0 * float(w[0]), np.zeros_like)
    at = schedules.AdaHB(alpha=1.0, delta=1e-300)(schedules.LATEST)
    assert at.delta > 0
    assert (reference.adahb(flat, 50, alpha=1.0, delta=1e-300).w == 0).all()
