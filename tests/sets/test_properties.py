"""What every projection, support function and linear minimisation oracle must satisfy."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sets import oracles
from sets.samples import every_set, problems

from adahb import sets

few = settings(max_examples=250, deadline=None)


def inner(h, a, b):
    return np.sum(a * b) if h is None else np.sum(h * a * b)


@few
@given(problems())
def test_the_nearest_point_makes_no_acute_angle_with_the_set(problem):
    q, (x, _), h, rng = problem
    y = q.project(x, metric=h)
    assert q.contains(y)
    for _ in range(5):
        u = oracles.feasible(q, rng, x.shape)
        left, right = x - y, u - y
        size = np.sqrt(inner(h, left, left) * inner(h, right, right))
        scale = max(np.max(np.abs(v)) for v in (x, y, u))
        noise = 1e-13 * scale * inner(h, np.ones_like(x), np.abs(left) + np.abs(right))
        assert inner(h, left, right) <= 1e-9 * size + noise


@few
@given(problems())
def test_projecting_twice_changes_nothing(problem):
    q, (x, _), h, _ = problem
    y = q.project(x, metric=h)
    np.testing.assert_allclose(q.project(y, metric=h), y, rtol=1e-12, atol=1e-14 * np.abs(x).max())


@few
@given(problems())
def test_points_inside_come_back_bit_for_bit(problem):
    q, (x, _), h, rng = problem
    u = oracles.feasible(q, rng, x.shape)
    if isinstance(q, sets.Affine):
        u = q.project(u)
    before = u.copy()
    y = q.project(u, metric=h)
    assert y.tobytes() == before.tobytes()
    assert y is not u
    assert not np.shares_memory(y, u)
    assert u.tobytes() == before.tobytes()


@few
@given(problems())
def test_distances_do_not_grow(problem):
    q, (a, b), h, _ = problem
    before = a - b
    after = q.project(a, metric=h) - q.project(b, metric=h)
    noise = 1e-13 * np.sqrt(inner(h, np.maximum(np.abs(a), np.abs(b)).max(), np.ones_like(a)))
    assert np.sqrt(inner(h, after, after)) <= np.sqrt(inner(h, before, before)) + noise


@few
@given(problems())
def test_the_support_is_the_best_of_the_set(problem):
    q, (g, _), _, rng = problem
    value = q.support(g)
    for _ in range(5):
        u = oracles.feasible(q, rng, g.shape)
        assert np.sum(u * g) <= value + 1e-9 * np.sum(np.abs(u * g))
    if np.isfinite(value):
        best = q.lmo(-g)
        assert q.contains(best)
        assert np.sum(best * g) == pytest.approx(value, rel=1e-12, abs=1e-12 * np.abs(g).max())
    else:
        assert not q.bounded
        with pytest.raises(ValueError, match=type(q).__name__):
            q.lmo(-g)


@few
@given(problems(dtype=np.float32))
def test_single_precision_follows_double(problem):
    q, (x, _), h, _ = problem
    y = q.project(x, metric=h)
    assert y.dtype == np.float32
    assert q.contains(y)
    wide = q.project(x.astype(np.float64), metric=None if h is None else h.astype(np.float64))
    np.testing.assert_allclose(y, wide, rtol=1e-5, atol=3e-7 * np.abs(x).max())


def directions(q, rng):
    """Directions in which an unbounded set is bounded after all."""
    if isinstance(q, sets.HalfSpace):
        return 2.5 * q.normal
    return (rng.standard_normal(q.matrix.shape[0]) @ q.matrix).reshape(3, 4)


@pytest.mark.parametrize("name", ["half-space", "affine"])
def test_flat_sets_are_bounded_across_themselves(name):
    q, rng = every_set()[name], np.random.default_rng(3)
    g = directions(q, rng)
    assert np.isfinite(q.support(g))
    assert np.sum(q.lmo(-g) * g) == pytest.approx(q.support(g))
    assert q.contains(q.lmo(-g))
    with pytest.raises(ValueError, match=type(q).__name__):
        q.lmo(rng.standard_normal((3, 4)))


@few
@given(st.integers(0, 2**32 - 1), st.integers(-300, 300), st.sampled_from([np.float64, np.float32]))
def test_projections_scale_with_the_problem(seed, power, dtype):
    power = power if dtype == np.float64 else power // 10
    rng = np.random.default_rng(seed)
    x, h = rng.standard_normal(6).astype(dtype), 10.0 ** rng.uniform(-8, 8, 6)
    r, w = 10.0 ** rng.uniform(-2, 0.5), rng.random(6) + 0.1
    s = 2.0 ** round(power * np.log2(10))
    for make in (
        sets.L1Ball,
        sets.L2Ball,
        sets.LinfBall,
        sets.Simplex,
        sets.NuclearBall,
        lambda r: sets.WeightedL1Ball(w, r),
        lambda r: sets.GroupL1Ball(r, groups=[0, 0, 1, 1, 1, 2]),
        lambda b: sets.HalfSpace(w, -b),
        lambda b: sets.Affine([w], [b]),
        lambda r: sets.Box(-r, 2 * r),
    ):
        for metric in (None, h):
            small, large = make(r), make(r * s)
            if isinstance(small, sets.NuclearBall):
                x_, metric = x.reshape(2, 3), None
            else:
                x_ = x
            y, z = small.project(x_, metric), large.project(x_ * dtype(s), metric)
            tol = 1e-13 if dtype == np.float64 else 1e-6
            np.testing.assert_allclose(z / dtype(s), y, rtol=tol, atol=tol * np.abs(x).max())
            assert large.contains(z)


sizes = st.sampled_from([1e-300, 1e-20, 1e-8, 1.0, 1e8, 1e16, 1e20, 1e300])


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 2, 3, 20]),
    sizes,
    st.sampled_from([0.0, 1e-300, 1e-16, 1.0, 17.0, 1e16, 1e300]),
    st.sampled_from(["plain", "wide", "three"]),
)
@example(2610486, 3, 1e-300, 1e-300, "three")
@example(215, 3, 1e16, 1e-16, "three")
@example(549, 1, 1e-300, 0.0, "plain")
@example(18715347, 3, 1e-300, 1e-300, "three")
@example(57327, 20, 1e-300, 1e-300, "wide")
@example(2770, 2, 1e-300, 0.0, "three")
def test_the_result_is_feasible_at_any_scale(seed, n, size, radius, metric):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * (size if seed % 3 else 10.0 ** rng.uniform(-300, 300, n))
    x = np.round(rng.standard_normal(n)) * size if seed % 5 == 0 else x
    h = {
        "plain": None,
        "wide": 10.0 ** rng.uniform(-16, 16, n),
        "three": rng.choice([1e-16, 1.0, 1e16], n),
    }[metric]
    for q in (
        sets.L1Ball(radius),
        sets.L2Ball(radius),
        sets.LinfBall(radius),
        sets.WeightedL1Ball(10.0 ** rng.uniform(-5, 5, n), radius),
        sets.GroupL1Ball(radius, groups=rng.integers(0, 3, n)),
        sets.Simplex(radius or 1.0),
        sets.Box(-radius, 2 * radius),
        sets.HalfSpace(rng.standard_normal(n), -radius),
        sets.Affine([rng.standard_normal(n)], [radius]),
    ):
        y = q.project(x, metric=h)
        assert np.isfinite(y).all()
        assert q.contains(y), (q, y)


def test_a_radius_far_below_the_rounding_of_x_is_met():
    x = np.array([1e16, 1e16 - 2, -3.0, 1e15])
    np.testing.assert_array_equal(sets.L1Ball(3).project(x), [2.5, 0.5, 0, 0])
    np.testing.assert_array_equal(sets.Simplex(3).project(x), [2.5, 0.5, 0, 0])
    assert sets.Simplex(1e-300).project([1e300, -1e300]).tolist() == [1e-300, 0.0]


def test_one_step_of_a_metric_with_a_tiny_entry():
    """With h = (1, 1e-16) nearly all of the excess is taken from the second coordinate."""
    y = sets.L1Ball(1).project([0.5, 2.0], metric=[1.0, 1e-16])
    np.testing.assert_allclose(y, [0.5, 0.5], rtol=1e-15)
    z = sets.L2Ball(1).project([0.6, 2.0], metric=[1.0, 1e-16])
    np.testing.assert_allclose(z, [0.6, 0.8], rtol=1e-14)
