"""The hard function against explicit rows, linear programs and the numbers of a PSG run."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from adahb.problems import HardFunction

READINGS = ["original", "paper"]
EXAMPLES = settings(deadline=None, max_examples=60)


def explicit_rows(T, c, reading):
    """The matrix of the definition, entry by entry, with 1-based indices as printed."""
    last = T + 1 if reading == "original" else T
    H = np.zeros((last, T))
    for i in range(1, last + 1):
        for j in range(1, T + 1):
            if j < i:
                H[i - 1, j - 1] = 1 / (8 * c * (T - j + 1))
            elif i == j and (reading == "original" or i < T):
                H[i - 1, j - 1] = -math.sqrt(i) / (2 * c * math.sqrt(T))
    return H


def minimum_on_the_cube(H):
    """min over ‖x‖∞ ≤ 1 of max_i ⟨h_i, x⟩, negative exactly if it is negative on the ball."""
    rows, T = H.shape
    program = linprog(
        np.r_[np.zeros(T), 1.0],
        A_ub=np.c_[H, -np.ones(rows)],
        b_ub=np.zeros(rows),
        bounds=[(-1, 1)] * T + [(None, None)],
    )
    assert program.success
    return program.fun


@st.composite
def functions_and_points(draw):
    T = draw(st.integers(1, 12))
    f = HardFunction(T, draw(st.floats(1, 5)), draw(st.sampled_from(READINGS)))
    entry = st.one_of(st.just(0.0), st.floats(-2, 2, allow_subnormal=False))
    x = np.array(draw(st.lists(entry, min_size=T, max_size=T)))
    x[draw(st.integers(0, T)) :] = 0
    return f, x


@EXAMPLES
@given(functions_and_points())
def test_the_oracle_is_the_first_maximal_row_of_the_explicit_matrix(case):
    f, x = case
    H = explicit_rows(f.T, f.c, f.reading)
    value, g = f.value_and_subgradient(x)
    assert value == f.value(x) == pytest.approx((H @ x).max(), rel=1e-12, abs=1e-15)
    index = int(np.abs(H - g).sum(axis=1).argmin())
    np.testing.assert_allclose(g, H[index], rtol=1e-14)
    np.testing.assert_array_equal(f.subgradient(x), g)
    assert ((H @ x)[:index] <= value).all()
    clear = (H @ x) > value - 1e-12  # rows that may tie by rounding
    if clear.sum() == 1:
        assert index == int(clear.argmax())


@EXAMPLES
@given(functions_and_points(), st.integers(0, 2**32 - 1))
def test_the_subgradient_inequality(case, seed):
    f, x = case
    u = np.random.default_rng(seed).normal(size=f.T)
    value, g = f.value_and_subgradient(x)
    assert f.value(u) >= value + g @ (u - x) - 1e-12


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("support", [0, 1, 7, 19, 20])
def test_trailing_zeros_tie_exactly_and_the_first_row_of_the_tie_wins(reading, support):
    """After rows 1..k are pushed down, all later rows are equal: the oracle must return row k+1."""
    f = HardFunction(20, reading=reading)
    x = np.zeros(20)
    x[:support] = np.random.default_rng(support).uniform(0.5, 1.0, support)
    H = explicit_rows(20, 2.0, reading)
    expected = H[min(support, len(H) - 1)]
    np.testing.assert_allclose(f.subgradient(x), expected, rtol=1e-14)


def test_a_step_along_the_first_row_leads_to_the_second():
    f = HardFunction(5)
    g = f.subgradient(np.zeros(5))
    np.testing.assert_array_equal(g, [-f.b[0], 0, 0, 0, 0])
    np.testing.assert_array_equal(f.subgradient(-g), [f.a[0], -f.b[1], 0, 0, 0])


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("T", [2, 3, 10, 40])
def test_zero_is_the_minimum_because_it_is_a_mean_of_the_rows(reading, T):
    f = HardFunction(T, reading=reading)
    H = explicit_rows(T, f.c, reading)
    weights = np.zeros(len(H))
    weights[-1] = 1.0
    for j in reversed(range(len(H) - 1)):
        weights[j] = f.a[j] / f.b[j] * weights[j + 1 :].sum()
    weights /= weights.sum()
    assert (weights > 0).all()
    np.testing.assert_allclose(weights @ H, 0, atol=1e-15)
    assert f.value(np.zeros(T)) == f.f_star == 0.0
    assert minimum_on_the_cube(H) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("T", [2, 3, 10, 40])
def test_without_the_last_row_but_with_its_diagonal_the_minimum_is_negative(T):
    mixture = explicit_rows(T, 2.0, "original")[:-1]
    assert minimum_on_the_cube(mixture) < -1e-4


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("T", [1, 2, 17, 100])
@pytest.mark.parametrize("c", [1.0, 2.0])
def test_the_lipschitz_constant_is_the_largest_row(reading, T, c):
    f = HardFunction(T, c, reading)
    norms = np.linalg.norm(explicit_rows(T, c, reading), axis=1)
    assert f.lipschitz == pytest.approx(norms.max(), rel=1e-13)
    assert f.lipschitz < 1


def psg_last(f):
    x = np.zeros(f.T)
    for t in range(1, f.T):
        x -= f.step / math.sqrt(t) * f.subgradient(x)
        x /= max(1.0, np.linalg.norm(x))
    return f.value(x)


@pytest.mark.parametrize(("T", "known"), [(1000, 0.00503), (5000, 0.00278)])
def test_the_last_value_of_projected_subgradient_descent(T, known):
    f = HardFunction(T)
    last = psg_last(f)
    assert last == pytest.approx(known, abs=1e-5)
    assert last >= f.lower_bound()


@pytest.mark.parametrize("T", [2, 5, 50, 400])
@pytest.mark.parametrize("c", [1.0, 2.0, 10.0])
def test_projected_subgradient_descent_stays_above_the_lower_bound(T, c):
    assert psg_last(HardFunction(T, c)) >= HardFunction(T, c).lower_bound() > 0


def test_the_lower_bound_is_the_formula():
    f = HardFunction(1000, c=2.0)
    assert f.lower_bound() == f.lower_bound(1000) == math.log(1000) / (64 * math.sqrt(1000))
    assert f.lower_bound(1) == 0


def test_one_dimension():
    assert HardFunction(1).value([2.0]) == 2.0 / 16
    assert HardFunction(1).value([-2.0]) == 0.5
    paper = HardFunction(1, reading="paper")
    assert paper.value([-2.0]) == 0.0
    np.testing.assert_array_equal(paper.subgradient([-2.0]), [0.0])


def test_functions_are_values():
    f = HardFunction(4)
    assert f == HardFunction(np.int64(4), 2, "original")
    assert f != HardFunction(4, reading="paper")
    assert repr(f) == "HardFunction(T=4, c=2.0, reading='original')"
    assert (f.dim, f.step) == (4, 2.0)
    with pytest.raises(ValueError, match="read-only"):
        f.a[0] = 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"T": 0}, ValueError, r"T must be an integer of at least 1, got 0"),
        ({"T": 2.5}, TypeError, r"T must be an integer of at least 1, got 2\.5"),
        ({"T": 3, "c": 0.5}, ValueError, r"c must be a number in \[1, inf\), got 0\.5"),
        ({"T": 3, "c": math.nan}, ValueError, r"c must be a number in \[1, inf\), got nan"),
        ({"T": 3, "reading": "both"}, ValueError, "'original', 'paper', got 'both'"),
    ],
)
def test_errors_name_the_argument_the_value_and_the_range(arguments, error, message):
    with pytest.raises(error, match=message):
        HardFunction(**arguments)


def test_a_point_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"x must be a vector of shape \(3,\), got shape \(2,\)"):
        HardFunction(3).value(np.zeros(2))
