"""Every loss against its definition, finite differences, and a numerical conjugate."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from adahb.problems import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    LinearObjective,
    Logistic,
    ModifiedHuber,
    Quantile,
    Squared,
    SquaredHinge,
    losses,
)

EPS = np.finfo(np.float64).eps

# loss, definition, kinks and joints in z, slopes
MARGIN = [
    (Hinge(), lambda q: max(0, 1 - q), [1], (-1, 0)),
    (SquaredHinge(), lambda q: max(0, 1 - q) ** 2, [1], (-math.inf, 0)),
    (ModifiedHuber(), lambda q: max(0, 1 - q) ** 2 if q >= -1 else -4 * q, [-1, 1], (-4, 0)),
    (Logistic(), lambda q: math.log1p(math.exp(-q)), [], (-1, 0)),
]
RESIDUAL = [
    (Squared(), lambda r: r * r / 2, [], (-math.inf, math.inf)),
    (Absolute(), abs, [0], (-1, 1)),
    (
        Huber(0.7),
        lambda r: r * r / 2 if abs(r) <= 0.7 else 0.7 * (abs(r) - 0.35),
        [-0.7, 0.7],
        (-0.7, 0.7),
    ),
    (EpsilonInsensitive(0.3), lambda r: max(0, abs(r) - 0.3), [-0.3, 0.3], (-1, 1)),
    (EpsilonInsensitive(0.0), abs, [0], (-1, 1)),
    (Quantile(0.2), lambda r: 0.8 * r if r > 0 else -0.2 * r, [0], (-0.2, 0.8)),
]
TABLE = MARGIN + RESIDUAL
ALL = [row[0] for row in TABLE]

numbers = st.floats(-20, 20, allow_subnormal=False)
some_loss = st.sampled_from(TABLE)


def target(loss, draw_sign, real):
    return draw_sign if loss.classification else real


cases = st.tuples(some_loss, numbers, st.sampled_from([-1.0, 1.0]), numbers)
EXAMPLES = settings(deadline=None, max_examples=150)


def argument(loss, p, y):
    return y * p if loss.classification else p - y


@EXAMPLES
@given(cases)
def test_the_value_is_the_definition(case):
    (loss, definition, _, _), p, sign, real = case
    y = target(loss, sign, real)
    assert float(loss.value(p, y)) == pytest.approx(
        definition(argument(loss, p, y)), rel=1e-12, abs=1e-12
    )


@EXAMPLES
@given(cases)
def test_the_derivative_is_the_finite_difference_away_from_the_kinks(case):
    (loss, _, kinks, _), p, sign, real = case
    y = target(loss, sign, real)
    if any(abs(argument(loss, p, y) - kink) < 1e-3 for kink in kinks):
        return
    h = 1e-5
    slope = (loss.value(p + h, y) - loss.value(p - h, y)) / (2 * h)
    assert float(loss.derivative(p, y)) == pytest.approx(float(slope), abs=1e-6, rel=1e-6)


@EXAMPLES
@given(cases, numbers)
def test_the_derivative_is_a_subgradient_everywhere(case, other):
    (loss, _, _, _), p, sign, real = case
    y = target(loss, sign, real)
    tangent = loss.value(p, y) + loss.derivative(p, y) * (other - p)
    assert loss.value(other, y) >= tangent - 1e-12 * (1 + abs(tangent))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: repr(row[0]))
def test_at_a_kink_the_derivative_is_the_least_of_the_subgradients(row):
    loss, _, kinks, _ = row
    for kink in kinks:
        for y in (-1.0, 1.0):
            p = y * kink if loss.classification else kink
            at = y if loss.classification else 0.0
            beside = [float(loss.derivative(p + h, at)) for h in (-1e-9, 1e-9)]
            least = 0.0 if min(beside) <= 0 <= max(beside) else min(beside, key=abs)
            assert float(loss.derivative(p, at)) == pytest.approx(least, abs=1e-8)


@EXAMPLES
@given(cases)
def test_fenchel_young_is_an_equality_at_the_derivative(case):
    (loss, _, _, _), p, sign, real = case
    y = target(loss, sign, real)
    s = loss.derivative(p, y)
    assert float(loss.value(p, y) + loss.conjugate(s, y)) == pytest.approx(
        float(s * p), rel=1e-10, abs=1e-10
    )


@EXAMPLES
@given(cases, st.floats(-5, 5))
def test_fenchel_young_is_an_inequality_everywhere(case, s):
    (loss, _, _, _), p, sign, real = case
    y = target(loss, sign, real)
    assert float(loss.value(p, y) + loss.conjugate(s, y)) >= s * p - 1e-10


@settings(deadline=None, max_examples=80)
@given(some_loss, st.floats(0.02, 0.98), st.sampled_from([-1.0, 1.0]), st.floats(-5, 5))
def test_the_conjugate_is_the_supremum(row, fraction, sign, real):
    loss, _, kinks, (low, high) = row
    y = target(loss, sign, real)
    slope = max(low, -6) + fraction * (min(high, 6) - max(low, -6))
    s = y * slope if loss.classification else slope
    found = minimize_scalar(
        lambda p: float(loss.value(p, y)) - s * p, bounds=(-30, 30), options={"xatol": 1e-10}
    )
    corners = [y * k if loss.classification else y + k for k in kinks]
    best = max([-found.fun, *(s * p - float(loss.value(p, y)) for p in corners)])
    assert float(loss.conjugate(s, y)) == pytest.approx(best, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: repr(row[0]))
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_the_conjugate_is_infinite_outside_its_domain_but_not_for_rounding(row, y):
    loss, _, _, slopes = row
    sign = y if loss.classification else 1.0
    for end, outwards in zip(slopes, (-1, 1), strict=True):
        if math.isinf(end):
            continue
        outside = sign * (end + outwards * np.array([1e-9, 0.5, 1e6, 1e200, math.inf]))
        assert np.isposinf(loss.conjugate(outside, y)).all()
        at = float(loss.conjugate(sign * end, y))
        assert math.isfinite(at)
        rounding = 3 * EPS * (loss.lipschitz if math.isfinite(loss.lipschitz) else 1.0)
        rounded = sign * (end + outwards * rounding)
        assert float(loss.conjugate(rounded, y)) == at
        assert float(loss.snap(rounded, y)) == sign * end
        assert float(loss.snap(sign * (end + outwards * 0.5), y)) == sign * (end + outwards * 0.5)


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_nan_and_infinity_are_in_no_domain(loss):
    assert np.isposinf(loss.conjugate([math.nan, math.inf, -math.inf], 1.0)).all()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: repr(row[0]))
def test_the_lipschitz_constant_is_the_steepest_slope(row):
    loss, _, _, slopes = row
    assert loss.slopes == pytest.approx(slopes)
    assert loss.lipschitz == pytest.approx(max(abs(slopes[0]), abs(slopes[1])))
    steepest = np.abs(loss.derivative(np.linspace(-60, 60, 10_001), 1.0)).max()
    if math.isfinite(loss.lipschitz):
        assert steepest == pytest.approx(loss.lipschitz)
    else:
        assert steepest > 50


def test_the_logistic_loss_is_exact_far_out_without_overflow():
    loss = Logistic()
    np.testing.assert_array_equal(loss.value([1e4, -1e4, 1e308], 1.0), [0, 1e4, 0])
    np.testing.assert_array_equal(loss.derivative([1e4, -1e4, -1e308], 1.0), [0, -1, -1])
    assert loss.derivative(40.0, 1.0) == pytest.approx(-math.exp(-40), rel=1e-12)
    assert loss.value(40.0, 1.0) == pytest.approx(math.exp(-40), rel=1e-12)
    assert loss.conjugate(-1e-300, 1.0) == pytest.approx(-1e-300 * (300 * math.log(10) + 1))


def test_the_modified_huber_loss_does_not_overflow():
    np.testing.assert_array_equal(ModifiedHuber().value([-1e200, 1e200], 1.0), [4e200, 0])


def test_huber_far_out_is_linear():
    assert Huber(1.0).value(1e300, 0.0) == 1e300


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_arrays_are_taken_elementwise_in_float64(loss):
    p = np.linspace(-2, 2, 7, dtype=np.float32)
    y = np.where(np.arange(7) % 2, 1, -1)
    for method in (loss.value, loss.derivative):
        whole = method(p, y)
        assert whole.dtype == np.float64
        assert whole.tolist() == [float(method(a, b)) for a, b in zip(p, y, strict=True)]


@pytest.mark.parametrize(
    "name",
    [
        "hinge",
        "squared_hinge",
        "log_loss",
        "modified_huber",
        "squared_error",
        "absolute_error",
        "huber",
        "epsilon_insensitive",
        "quantile",
    ],
)
def test_losses_by_name_agree_with_an_independent_value(name):
    loss = losses.get(name)
    y = 1.0 if loss.classification else 0.25
    expected = {
        "hinge": 1.5,
        "squared_hinge": 2.25,
        "log_loss": math.log1p(math.exp(0.5)),
        "modified_huber": 2.25,
        "squared_error": Fraction(9, 32),
        "absolute_error": 0.75,
        "huber": Fraction(9, 32),
        "epsilon_insensitive": 0.65,
        "quantile": 0.375,
    }
    assert float(loss.value(-0.5, y)) == pytest.approx(float(expected[name]))


def test_a_loss_object_passes_through():
    loss = Huber(3.0)
    assert losses.get(loss) is loss
    assert loss == Huber(delta=3) != Huber(2.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: losses.get("0-1"), ValueError, "loss must be one of 'hinge', .*got '0-1'"),
        (lambda: losses.get(Hinge), TypeError, "loss must be a Loss or one of 'hinge', "),
        (lambda: Huber(0.0), ValueError, r"delta must be a number in \(0, inf\), got 0\.0"),
        (lambda: Huber("1"), TypeError, r"delta must be a number in \(0, inf\), got '1'"),
        (lambda: EpsilonInsensitive(-1.0), ValueError, r"epsilon must be .* \[0, inf\), got -1"),
        (lambda: Quantile(1.0), ValueError, r"q must be a number in \(0, 1\), got 1\.0"),
        (lambda: Quantile(math.nan), ValueError, r"q must be a number in \(0, 1\), got nan"),
    ],
)
def test_errors_name_the_argument_the_value_and_what_is_allowed(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_loss_of_ones_own_needs_only_its_function_of_one_number():
    class Exponential(losses.MarginLoss):
        slopes = (-math.inf, 0.0)

        def _phi(self, z):
            return np.exp(-z)

        def _slope(self, z):
            return -np.exp(-z)

        def _conjugate(self, s):
            return np.where(s < 0, s - s * np.log(np.where(s < 0, -s, 1.0)), 0.0)

    f = LinearObjective([[1.0], [2.0]], [1, -1], Exponential())
    assert f.value([0.0]) == 1.0
    s = f.derivatives([0.3], np.arange(2))
    assert f.dual_value(s, None) == -math.inf
    fenchel = f.loss.value(0.3, 1.0) + f.loss.conjugate(s[0], 1.0)
    assert float(fenchel) == pytest.approx(0.3 * s[0])
