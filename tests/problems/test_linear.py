"""Linear objectives: subgradients, samples, duality and Lipschitz bounds, dense and CSR."""

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

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
)
from adahb.sets import Box, HalfSpace, L1Ball, L2Ball

LOSSES = [
    Hinge(),
    SquaredHinge(),
    ModifiedHuber(),
    Logistic(),
    Squared(),
    Absolute(),
    Huber(0.7),
    EpsilonInsensitive(0.2),
    Quantile(0.3),
]
SETS = [L1Ball(1.5), L2Ball(0.8), Box(-0.5, 1.0)]
EXAMPLES = settings(deadline=None, max_examples=60)


def problem(loss, n=12, dim=5, seed=0, density=0.6):
    """Random dense rows, the first of them zero, with targets that fit the loss."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim)) * (rng.random((n, dim)) < density)
    X[0] = 0
    y = X @ rng.normal(size=dim) + 0.3 * rng.normal(size=n)
    return LinearObjective(X, np.where(y > 0, 1.0, -1.0) if loss.classification else y, loss)


def as_csr(f, dtype=np.float64, index=np.int32):
    X = sparse.csr_array(f.X.astype(dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return LinearObjective(X, f.y, f.loss)


def feasible_points(constraint, dim, rng, count=20):
    for scale in np.geomspace(0.1, 100, count):
        yield np.asarray(constraint.project(scale * rng.normal(size=dim)))


problems = st.builds(
    problem,
    st.sampled_from(LOSSES),
    n=st.integers(1, 15),
    dim=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
seeds = st.integers(0, 10**6)


@EXAMPLES
@given(problems, seeds)
def test_value_and_subgradient_are_the_definition(f, seed):
    w = np.random.default_rng(seed).normal(size=f.dim)
    value, g = f.value_and_subgradient(w)
    terms = [float(f.loss.value(x @ w, y)) for x, y in zip(f.X, f.y, strict=True)]
    slopes = [float(f.loss.derivative(x @ w, y)) for x, y in zip(f.X, f.y, strict=True)]
    assert value == f.value(w) == pytest.approx(sum(terms) / f.n)
    np.testing.assert_array_equal(g, f.subgradient(w))
    expected = sum(s * x for s, x in zip(slopes, f.X, strict=True)) / f.n
    np.testing.assert_allclose(g, expected, atol=1e-12)


@EXAMPLES
@given(problems, seeds)
def test_the_subgradient_inequality(f, seed):
    w, u = np.random.default_rng(seed).normal(size=(2, f.dim))
    value, g = f.value_and_subgradient(w)
    assert f.value(u) >= value + g @ (u - w) - 1e-12 * (1 + abs(value))


@EXAMPLES
@given(problems, seeds, st.sampled_from(SETS))
def test_every_dual_value_is_a_lower_bound(f, seed, constraint):
    rng = np.random.default_rng(seed)
    points = list(feasible_points(constraint, f.dim, rng))
    least = min(f.value(w) for w in points)
    for w in points:
        s = f.derivatives(w, np.arange(f.n))
        for dual in (s, 0 * s, rng.random(f.n) * s):
            bound = f.dual_value(dual, constraint)
            assert math.isfinite(bound)
            assert bound <= least + 1e-10


def cvxpy_losses(loss, p, y):
    """The loss written with cvxpy's own atoms."""
    match loss:
        case Hinge():
            return cp.pos(1 - cp.multiply(y, p))
        case SquaredHinge():
            return cp.square(cp.pos(1 - cp.multiply(y, p)))
        case Logistic():
            return cp.logistic(-cp.multiply(y, p))
        case Squared():
            return cp.square(p - y) / 2
        case Absolute():
            return cp.abs(p - y)
        case Huber(delta):
            return cp.huber(p - y, delta) / 2
        case EpsilonInsensitive(epsilon):
            return cp.pos(cp.abs(p - y) - epsilon)
        case Quantile(q):
            return cp.maximum(q * (y - p), (1 - q) * (p - y))


def cvxpy_sets(w):
    return [
        (L1Ball(1.5), cp.norm1(w) <= 1.5),
        (L2Ball(0.8), cp.norm2(w) <= 0.8),
        (Box(-0.5, 1.0), [w >= -0.5, w <= 1]),
    ]


@pytest.mark.parametrize("loss", [x for x in LOSSES if x != ModifiedHuber()], ids=repr)
@pytest.mark.parametrize("which", range(3), ids=["l1", "l2", "box"])
def test_the_dual_value_is_the_optimum_at_the_optimal_dual(loss, which):
    """The multipliers of p = Xw in an independent solver are n·(1/n)s: strong duality."""
    f = problem(loss, n=30, seed=3)
    w, p = cp.Variable(f.dim), cp.Variable(f.n)
    constraint, inside = cvxpy_sets(w)[which]
    link = p == f.X @ w
    inside = inside if isinstance(inside, list) else [inside]
    program = cp.Problem(cp.Minimize(cp.sum(cvxpy_losses(loss, p, f.y)) / f.n), [link, *inside])
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8)
    low, high = loss.slopes
    s = -f.n * link.dual_value
    s = f.y * np.clip(f.y * s, low, high) if loss.classification else np.clip(s, low, high)
    bound = f.dual_value(s, constraint)
    assert f.value(w.value) == pytest.approx(program.value, abs=1e-7)
    assert bound == pytest.approx(program.value, abs=1e-6)
    assert bound <= f.value(constraint.project(w.value)) + 1e-12


@pytest.mark.parametrize("loss", [Squared(), Logistic(), ModifiedHuber()], ids=repr)
def test_the_gap_closes_where_the_minimum_is_smooth_and_inside(loss):
    """Projected gradient steps to an inner minimum; there the derivatives are the optimal dual."""
    f = problem(loss, n=40, seed=1)
    constraint = L2Ball(1.0)
    w = np.zeros(f.dim)
    for _ in range(3000):
        w = np.asarray(constraint.project(w - 0.3 * f.subgradient(w)))
    s = f.derivatives(w, np.arange(f.n))
    assert 0 <= f.value(w) - f.dual_value(s, constraint) + 1e-12 < 1e-8


def test_the_hinge_dual_on_the_l1_ball_is_the_printed_formula():
    f = problem(Hinge(), n=20, seed=5)
    a = np.random.default_rng(0).random(20)
    tau = 1.5
    printed = a.mean() - tau * np.abs(f.X.T @ (a * f.y) / f.n).max()
    assert f.dual_value(-a * f.y, L1Ball(tau)) == pytest.approx(printed, rel=1e-12)


def test_without_a_constraint_only_a_stationary_dual_gives_a_finite_bound():
    f = LinearObjective([[1.0], [1.0]], [0.0, 2.0], "squared_error")
    assert f.dual_value([1.0, -1.0], None) == 0.5 == f.value([1.0])
    assert f.dual_value([1.0, 0.0], None) == -math.inf


def test_the_dual_value_is_minus_infinity_outside_the_domain_but_not_by_rounding():
    f = problem(Hinge(), n=4)
    ball = L1Ball(1.0)
    edge = f.dual_value(-f.y, ball)
    assert math.isfinite(edge)
    assert f.dual_value(-f.y * (1 + 2e-16), ball) == edge
    assert f.dual_value(-f.y * (1 + 1e-9), ball) == -math.inf
    assert f.dual_value(f.y * 0.5, ball) == -math.inf
    with pytest.raises(ValueError, match="s must be finite, got NaN"):
        f.dual_value(np.full(4, math.nan), ball)


def test_means_of_derivatives_stay_in_the_domain():
    """A running mean leaves [−1, 1] by rounding; the bound must survive a long run of them."""
    f = problem(Absolute(), n=3)
    mean = np.zeros(3)
    for k in range(1, 20_001):
        mean += (0.1 * 10.0 * np.ones(3) - mean) / k
    assert math.isfinite(f.dual_value(mean, L2Ball(1.0)))


@EXAMPLES
@given(problems, seeds, st.sampled_from(SETS))
def test_lipschitz_bounds_hold_on_the_set(f, seed, constraint):
    rng = np.random.default_rng(seed)
    whole, sample = f.lipschitz(constraint), f.sample_lipschitz(constraint)
    assert whole <= sample + 1e-12
    for w in feasible_points(constraint, f.dim, rng):
        assert np.linalg.norm(f.subgradient(w)) <= whole + 1e-9
        single = [np.linalg.norm(f.sample_subgradient(w, i)) for i in range(f.n)]
        assert math.sqrt(np.mean(np.square(single))) <= sample + 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_lipschitz_bound_of_one_sample_is_attained(loss):
    """One sample x = 2e_1, w in [−30, 30]: the bound must be the steepest slope, not above it."""
    f = LinearObjective([[2.0]], [1.0], loss)
    ends = [abs(f.subgradient([w])[0]) for w in (-30.0, 30.0)]
    assert f.lipschitz(Box(-30.0, 30.0)) == pytest.approx(max(ends))
    assert f.sample_lipschitz(Box(-30.0, 30.0)) == pytest.approx(max(ends))


def test_a_global_constant_needs_no_constraint():
    f = LinearObjective([[3.0, 4.0], [0.0, 1.0]], [1, -1], "hinge")
    assert f.lipschitz() == f.lipschitz(None) == 3.0
    assert f.sample_lipschitz() == pytest.approx(math.sqrt(13))


@pytest.mark.parametrize("constraint", [None, HalfSpace(np.ones(5), 1.0)], ids=["none", "half"])
@pytest.mark.parametrize("loss", [Squared(), SquaredHinge()], ids=repr)
def test_a_loss_without_a_constant_needs_a_set_that_bounds_the_predictions(loss, constraint):
    f = problem(loss)
    for bound in (f.lipschitz, f.sample_lipschitz):
        with pytest.raises(ValueError, match="constraint must bound every prediction, since Squ"):
            bound(constraint)


@EXAMPLES
@given(problems, seeds, st.sampled_from([np.int32, np.int64]))
def test_csr_is_dense(f, seed, index):
    rng = np.random.default_rng(seed)
    g = as_csr(f, index=index)
    w, rows = rng.normal(size=f.dim), rng.integers(0, f.n, size=7)
    s = f.derivatives(w, np.arange(f.n))
    ball = L2Ball(1.0)
    assert g.value(w) == pytest.approx(f.value(w), rel=1e-13)
    for ours, theirs in [
        (g.subgradient(w), f.subgradient(w)),
        (g.derivatives(w, rows), f.derivatives(w, rows)),
        (g.sample_subgradient(w, rows), f.sample_subgradient(w, rows)),
        (g.sample_subgradient(w, 0), f.sample_subgradient(w, 0)),
        (g.dual_value(s, ball), f.dual_value(s, ball)),
        (g.lipschitz(ball), f.lipschitz(ball)),
        (g.sample_lipschitz(ball), f.sample_lipschitz(ball)),
    ]:
        assert np.asarray(ours).dtype == np.float64
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@EXAMPLES
@given(problems, seeds, st.booleans())
def test_samples_are_parts_of_the_whole(f, seed, csr):
    f = as_csr(f) if csr else f
    rng = np.random.default_rng(seed)
    w = rng.normal(size=f.dim)
    every = [f.sample_subgradient(w, i) for i in range(f.n)]
    np.testing.assert_allclose(np.mean(every, axis=0), f.subgradient(w), atol=1e-12)
    np.testing.assert_allclose(
        f.sample_subgradient(w, np.arange(f.n)), f.subgradient(w), atol=1e-12
    )
    i = int(rng.integers(f.n))
    for one in (np.array([i]), [i], np.int64(i)):
        np.testing.assert_array_equal(f.sample_subgradient(w, one), every[i])
    repeated = f.sample_subgradient(w, np.array([i, i, 0]))
    np.testing.assert_allclose(repeated, (2 * every[i] + every[0]) / 3, atol=1e-12)


@pytest.mark.parametrize("csr", [False, True])
def test_derivatives_have_the_shape_of_the_rows_and_combine_to_the_subgradient(csr):
    f = problem(Logistic())
    f = as_csr(f) if csr else f
    w = np.linspace(-1, 1, f.dim)
    assert np.shape(f.derivatives(w, 3)) == ()
    assert f.derivatives(w, [3]).shape == (1,)
    means = np.zeros(f.n)
    means[3] += f.derivatives(w, 3)
    np.testing.assert_array_equal(means[[3]], f.derivatives(w, [3]))
    for rows in (3, np.array([3, 1, 1])):
        s = f.derivatives(w, rows)
        np.testing.assert_array_equal(f.combine(s, rows), f.sample_subgradient(w, rows))
    np.testing.assert_allclose(f.combine([1.0, 3.0], [2, 5]), _dense(f)[[2, 5]].T @ [0.5, 1.5])


def _dense(f):
    return f.X.toarray() if sparse.issparse(f.X) else f.X


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floating_data_are_not_copied(dtype):
    X = np.asfortranarray(np.eye(3, dtype=dtype))
    f = LinearObjective(X, np.ones(3), "hinge")
    assert np.shares_memory(f.X, X)
    S = sparse.csr_matrix(X)
    g = LinearObjective(S, np.ones(3), "hinge")
    assert np.shares_memory(g.X.data, S.data)
    assert g.X.dtype == f.X.dtype == dtype


@pytest.mark.parametrize("csr", [False, True])
def test_float32_data_give_float64_results(csr):
    """Squares of 1e20 overflow float32, and sums of 1e5 equal rows lose digits in it."""
    X = np.full((100_000, 1), 0.1, dtype=np.float32)
    X[0] = 1e20
    f = LinearObjective(sparse.csr_array(X) if csr else X, np.zeros(100_000), "absolute_error")
    exact = (1e20 + 99_999 * float(np.float32(0.1))) / 100_000
    assert f.lipschitz() == pytest.approx(exact, rel=1e-7)
    assert math.isfinite(f.sample_lipschitz())
    X[0] = 0.1
    f = LinearObjective(sparse.csr_array(X) if csr else X, np.zeros(100_000), "absolute_error")
    assert f.value([1.0]) == pytest.approx(float(np.float32(0.1)), rel=1e-13)
    assert f.subgradient([1.0]) == pytest.approx([float(np.float32(0.1))], rel=1e-13)


@pytest.mark.parametrize("form", ["csc_matrix", "coo_array", "lil_matrix", "csr_matrix"])
def test_other_sparse_formats_and_integers_are_converted(form):
    dense = np.array([[1, 0], [0, -2], [3, 4]])
    f = LinearObjective(getattr(sparse, form)(dense), [1, -1, 1], "hinge")
    assert f.X.format == "csr"
    assert f.X.dtype == np.float64
    np.testing.assert_array_equal(f.X.toarray(), dense)


def test_repeated_entries_of_a_csr_matrix_are_added_and_the_original_is_left_alone():
    X = sparse.csr_array(([3.0, 4.0, 1.0], [1, 1, 0], [0, 3]), shape=(1, 2))
    f = LinearObjective(X, [1.0], "hinge")
    assert f.lipschitz() == pytest.approx(math.sqrt(50))
    np.testing.assert_array_equal(f.sample_subgradient([0.0, 0.0], 0), [-1.0, -7.0])
    assert X.nnz == 3
    assert X.indices.tolist() == [1, 1, 0]


def test_it_prints_what_it_is():
    assert repr(problem(Huber(0.7))) == "LinearObjective(n=12, dim=5, loss=Huber(delta=0.7))"


EYE = np.eye(2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((EYE, [1, 1], "zero"), ValueError, "loss must be one of 'hinge', .*got 'zero'"),
        ((EYE, [0, 1], "hinge"), ValueError, r"y must hold only -1 and \+1 .*\[0\.0, 1\.0\]"),
        ((EYE, [1, 1, 1], "hinge"), ValueError, r"y must be a vector of shape \(2,\), got .*3"),
        ((EYE, [[1], [1]], "hinge"), ValueError, r"y must be a vector of shape \(2,\)"),
        ((EYE, [1, math.nan], "huber"), ValueError, "y must be finite"),
        ((EYE * math.nan, [1, 1], "hinge"), ValueError, "X must be finite"),
        ((sparse.csr_array([[math.inf]]), [1], "hinge"), ValueError, "X must be finite"),
        ((np.ones(3), [1, 1, 1], "hinge"), ValueError, r"X must be a non-empty matrix.*\(3,\)"),
        ((np.ones((0, 3)), [], "hinge"), ValueError, r"X must be a non-empty matrix.*\(0, 3\)"),
        ((sparse.csr_array((2, 0)), [1, 1], "hinge"), ValueError, "X must be a non-empty matrix"),
        ((EYE * 1j, [1, 1], "hinge"), TypeError, "X must hold real numbers, got dtype complex"),
        ((sparse.csr_array(EYE * 1j), [1, 1], "hinge"), TypeError, "X must hold real numbers"),
        (([[1, 2], [3]], [1, 1], "hinge"), ValueError, "X must hold real numbers: .*sequence"),
        ((EYE, [1j, 1], "huber"), TypeError, "y must hold real numbers, got dtype complex"),
        ((EYE, ["a", "b"], "hinge"), TypeError, "y must hold real numbers, got dtype <U1"),
        ((EYE.astype(object), [1, 1], "hinge"), TypeError, "X must hold real .*object"),
    ],
)
def test_errors_name_the_argument_and_what_is_allowed(arguments, error, message):
    with pytest.raises(error, match=message):
        LinearObjective(*arguments)


def test_errors_of_the_methods():
    f = problem(Hinge())
    w = np.zeros(5)
    with pytest.raises(ValueError, match=r"w must be a vector of shape \(5,\), got shape \(5, 1\)"):
        f.value(w[:, None])
    with pytest.raises(ValueError, match=r"s must be a vector of shape \(12,\), got shape \(1,\)"):
        f.dual_value([1.0], L1Ball(1.0))
    with pytest.raises(ValueError, match="rows must be an index or a non-empty vector"):
        f.sample_subgradient(w, np.array([], dtype=int))
    with pytest.raises(ValueError, match="derivatives must be a vector of shape"):
        f.combine([1.0, 2.0], 3)
    with pytest.raises(IndexError):
        f.sample_subgradient(w, 12)
