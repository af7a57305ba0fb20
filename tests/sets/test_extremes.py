"""Numbers at the ends of the floats: right to rounding, or refused by name."""

import tracemalloc

import numpy as np
import pytest
import torch

from adahb import sets
from adahb.sets.arrays import blindfold

MOST = float(np.finfo(np.float64).max)


def every_way(q, x, metric=None):
    """Return the projections of NumPy, of torch while it records, and as in a graph."""
    t = torch.from_numpy(x.copy())
    h = None if metric is None else torch.as_tensor(metric, dtype=torch.float64)
    recorded = q.project(t.clone().requires_grad_(), h).detach().numpy()
    with blindfold():
        unseen = q.project(t, h).numpy()
    return q.project(x, metric), recorded, unseen


def test_bounds_beyond_single_precision_bound_nothing():
    x = np.array([3e38, -3e38], dtype=np.float32)
    for q in (sets.LinfBall(1e300), sets.Box(-1e300, [1e300, 1e300]), sets.Box(-1e300, 1e300)):
        for y in every_way(q, x):
            np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(
    "q",
    [
        sets.Simplex(1e300),
        sets.Box(1e300, 2e300),
        sets.HalfSpace([1.0, 1.0], -1e300),
        sets.Affine([[1.0, 1.0]], [1e300]),
    ],
    ids=lambda q: type(q).__name__,
)
def test_a_projection_that_the_dtype_cannot_hold_is_refused(q):
    x = np.ones(2, dtype=np.float32)
    for point in (x, torch.from_numpy(x)):
        with pytest.raises(ValueError, match=r"x must have a dtype that can hold .*float32"):
            q.project(point)
    assert np.isfinite(q.project(x.astype(np.float64))).all()


def test_a_projection_that_jax_cannot_hold_is_refused():
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(ValueError, match="x must have a dtype that can hold"):
        sets.Simplex(1e300).project(jnp.ones(2))
    with pytest.raises(ValueError, match="metric must have entries between"):
        sets.L1Ball(1).project(jnp.ones(2), np.array([1.0, 1e-300]))


def test_a_simplex_far_above_the_point():
    for y in every_way(sets.Simplex(MOST), np.array([-MOST, -MOST])):
        np.testing.assert_allclose(y, [MOST / 2, MOST / 2], rtol=1e-15)


def test_group_norms_beyond_the_largest_float():
    """The two norms are sqrt(2) and 1 times the largest float: their difference is kept."""
    q = sets.GroupL1Ball(MOST, groups=[0, 0, 1])
    for y in every_way(q, np.array([MOST, MOST, MOST])):
        first, second = 1 / np.sqrt(2), 1 - 1 / np.sqrt(2)
        np.testing.assert_allclose(y / MOST, [first / np.sqrt(2)] * 2 + [second], rtol=1e-14)
    x = np.full((2, 2), MOST)
    for y in every_way(sets.NuclearBall(MOST), x):
        np.testing.assert_allclose(y, x / 2, rtol=1e-14)


def test_groups_in_a_metric_that_spans_150_powers_of_ten():
    x = np.array([1.508, 3.086, -1.386, 0.854, 7.450, 6.037, -6.601])
    h = np.array([2.1e-29, 4.8e-54, 6.5e-31, 5.8e43, 1.1e-74, 1.0e76, 1.1e27])
    q = sets.GroupL1Ball(10.0, groups=[0, 1, 1, 1, 0, 0, 0])
    compiled, recorded, unseen = every_way(q, x, h)
    np.testing.assert_allclose(compiled, recorded, rtol=1e-13)
    np.testing.assert_allclose(compiled[[3, 5, 6]], x[[3, 5, 6]], rtol=1e-12)
    np.testing.assert_allclose(unseen, compiled, rtol=1e-3)


def test_a_tiny_l2_ball_in_a_wide_metric():
    """The direction is that of h x, however far from the metric's largest entry its length is."""
    x, h = np.array([1e-79, 1e139, 7e185]), np.array([1e90, 1e-60, 1e-100])
    pulled = h * x / 1e85
    for y in every_way(sets.L2Ball(1e-300), x, h):
        right = 1e-300 * pulled / np.linalg.norm(pulled)
        np.testing.assert_allclose(y, right, rtol=1e-12, atol=1e-313)


def test_shares_of_a_small_ball_with_uneven_weights():
    q = sets.WeightedL1Ball([1e-30, 10.0], 1e-300)
    for y in every_way(q, np.array([2e-301, 5e-301])):
        np.testing.assert_allclose(y, [2e-301, 1e-301], rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sets.WeightedL1Ball([1, 1e-101], 1), "weights must be at least 1e-100 times"),
        (lambda: sets.WeightedL1Ball([1e10], 1e-300), "radius must be 0 or between 1e-307 and"),
        (lambda: sets.WeightedL1Ball([1e-3], 1e306), "radius must be 0 or between 1e-307 and"),
        (lambda: sets.HalfSpace([1e-300], 1e10), "offset must be a float when divided"),
        (lambda: sets.Affine([[1e-300]], [1e10]), "rhs must be floats when divided"),
        (lambda: sets.L1Ball(1).project([1, 2], [1, 1e-101]), "between 1e-100 and 1e[+]100, got 1"),
        (lambda: sets.L2Ball(1).project([1, 2], [1, 1e101]), "between 1e-100 and 1e[+]100, got 1"),
        (lambda: sets.L1Ball(1).project([1, 2], [1, -1]), "finite and > 0, got -1 to 1"),
        (lambda: sets.L1Ball(1).project([1, 2], np.nan), "finite and > 0, got nan"),
    ],
    ids=range(9),
)
def test_ranges_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_solution_is_looked_for_in_the_equation_s_own_unit():
    for unit in (5e-324, 1e-300, 1e300):
        q = sets.Affine([[3.0, 1.0], [1.0, -1.0]], [unit, unit])
        assert q.contains(q.project([1.0, 2.0]))


def test_an_affine_point_is_not_moved_across_the_metric():
    """The heavy coordinate stays, and the light one gives way."""
    q = sets.Affine([[-5.0, -11.0, 8.7, 3.9]], [0.0])
    x, h = np.array([5e191, 3e49, -2e-263, 2e219]), np.array([1e96, 4e72, 6e-42, 2e-90])
    for y in every_way(q, x, h):
        np.testing.assert_allclose(y[[0, 3]], [5e191, 5e191 * 5 / 3.9], rtol=1e-12)


def test_supports_do_not_overflow_on_the_way():
    assert sets.L2Ball(1e-300).support([MOST, MOST]) == pytest.approx(1e-300 * MOST * np.sqrt(2))
    assert sets.Box(-1, [1e300, 1e300]).support([1e300, -1e300]) == np.inf
    assert sets.Box([1e300, 1e300], [2e300, 2e300]).support([1e10, -2e10]) == 0
    assert sets.Simplex(MOST, dim=1).support([[2.0], [-2.0]]) == 0
    assert sets.Box(-np.inf, 1).support([1e300, -1e-300]) == np.inf
    assert sets.HalfSpace([-1e-9], 0).support([-MOST]) == 0


@pytest.mark.parametrize("n", [1, 1_000_000])
def test_ties_share_alike(n):
    for q in (sets.L1Ball(1), sets.Simplex(1), sets.L2Ball(1), sets.GroupL1Ball(1, dim=0)):
        y = q.project(np.full(n, 7.0))
        size = np.sqrt(n) if isinstance(q, sets.L2Ball | sets.GroupL1Ball) else n
        np.testing.assert_allclose(y, 1 / size, rtol=1e-13)


@pytest.mark.parametrize("q", [sets.L1Ball(1e3), sets.Simplex(1e3), sets.L2Ball(1e3)], ids=repr)
def test_the_memory_of_ten_million_entries(q):
    """The compiled projections need the result and little more, the plain one a few arrays."""
    x = np.random.default_rng(0).standard_normal(10_000_000)
    q.project(x[:10])  # compiled before
    tracemalloc.start()
    y = q.project(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert q.contains(y)
    assert peak <= (4.2 if isinstance(q, sets.L2Ball) else 1.1) * x.nbytes


def test_a_level_is_not_thrown_back_by_slopes_far_apart():
    """Each entry alone fills the radius, and the heavy one stays: the steps must not cycle."""
    most = np.finfo(np.float64).max
    x = torch.tensor([-most, most, -most], dtype=torch.float64)
    h = torch.tensor([6.6e16, 1.9e-16, 1.8e-92], dtype=torch.float64)
    with blindfold():
        y = sets.L1Ball(most).project(x, h)
    assert y.tolist() == [-most, 0.0, 0.0]


@pytest.mark.parametrize(("x", "h"), [(-1.19026893e308, 2.28467648e-16), (-1.7e308, 1e12)])
def test_one_entry_takes_the_largest_float(x, h):
    most = np.finfo(np.float64).max
    simplex = sets.Simplex(most, dim=0)
    assert simplex.project(np.array([x])).tolist() == [most]
    assert simplex.project(np.array([[x, x]]), np.array([[h, 1.0]])).tolist() == [[most, most]]
