"""Compiled, generic and naive projections agree; NumPy and torch agree; slices are independent."""

import array_api_compat.numpy as xp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sets import oracles
from sets.samples import NAMES, every_set

from adahb import sets
from adahb.sets import compiled, thresholds

few = settings(max_examples=200, deadline=None)


@st.composite
def vectors(draw):
    """Draw x, a radius, weights and a metric, from one entry to several blocks of the kernels."""
    n = draw(st.sampled_from([1, 2, 3, 7, 50, 1023, 1025, 5000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4)
    kind = draw(st.sampled_from(["dense", "ties", "sparse", "wide", "geometric"]))
    if kind == "ties":
        x = np.round(x)
    elif kind == "sparse":
        x = x * (rng.random(n) < 0.05)
    elif kind == "wide":
        x = x * 10.0 ** rng.uniform(-8, 8, n)
    elif kind == "geometric":
        x = 0.9 ** np.arange(n) * rng.choice([-1, 1], n)
    share = draw(st.sampled_from([1e-9, 1e-3, 0.1, 0.5, 0.99, 0.9999999, 2.0]))
    radius = share * np.abs(x).sum() or 1.0
    return x, float(radius), 10.0 ** rng.uniform(-2, 2, n), 10.0 ** rng.uniform(-3, 3, n)


def near(a, b, x, tol=2e-13):
    np.testing.assert_allclose(a, b, rtol=0, atol=tol * max(np.abs(x).max(), np.abs(b).max()))


@few
@given(vectors())
def test_the_three_l1_projections_agree(vector):
    x, radius, weights, metric = vector
    for w, h in ((None, None), (weights, None), (None, metric), (weights, metric)):
        rows = None if h is None else h[None]
        fast = compiled.l1(x[None], radius, weights=w, metric=rows)[0]
        with np.errstate(all="ignore"):
            general = thresholds.project_l1(x[None], radius, xp, weights=w, h=rows)[0]
        near(fast, oracles.l1(x, radius, w, h), x)
        near(general, oracles.l1(x, radius, w, h), x)


@few
@given(vectors())
def test_the_three_simplex_projections_agree(vector):
    x, radius, _, metric = vector
    for h in (None, metric):
        rows = None if h is None else h[None]
        fast = compiled.simplex(x[None], radius, metric=rows)[0]
        with np.errstate(all="ignore"):
            general = thresholds.project_simplex(x[None], radius, xp, h=rows)[0]
        near(fast, general, x)
        near(fast, oracles.simplex(x, radius, h), x, tol=1e-12)


@few
@given(vectors())
def test_the_l2_projections_agree_with_bisection(vector):
    x, _, _, metric = vector
    radius = 0.3 * np.linalg.norm(x)
    for h in (None, metric):
        near(sets.L2Ball(radius).project(x, h), oracles.l2(x, radius, h), x, tol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_the_group_projection_agrees_with_nested_bisection(seed):
    rng = np.random.default_rng(seed)
    x, labels = rng.standard_normal(12), rng.integers(0, 4, 12)
    h = 10.0 ** rng.uniform(-2, 2, 12)
    q = sets.GroupL1Ball(1.0, groups=labels)
    near(q.project(x, h), oracles.group_l1(x, 1.0, labels, h), x, tol=1e-9)
    constant = (10.0 ** rng.uniform(-2, 2, 4))[labels]
    near(q.project(x, constant), oracles.group_l1(x, 1.0, labels, constant), x, tol=1e-9)


def test_a_million_single_precision_entries_keep_their_sum():
    x = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
    for radius in (1.0, 1000.0, 0.5 * float(np.abs(x).sum(dtype=np.float64))):
        y = sets.L1Ball(radius).project(x)
        assert y.dtype == np.float32
        assert np.abs(y).sum(dtype=np.float64) == pytest.approx(radius, rel=1e-6)
        near(y, oracles.l1(x.astype(np.float64), radius), x, tol=1e-7)


POINTS = {"numpy": np.asarray, "torch": torch.from_numpy}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_torch_tensors_give_what_arrays_give(name, dtype):
    q, rng = every_set()[name], np.random.default_rng(1)
    x, h = rng.standard_normal((3, 4)).astype(dtype), 10.0 ** rng.uniform(-1, 1, (3, 4))
    h = None if name == "nuclear" else h.astype(dtype)
    t, ht = torch.from_numpy(x), None if h is None else torch.from_numpy(h)
    grad = torch.from_numpy(x).requires_grad_()
    tol = 1e-12 if dtype == np.float64 else 1e-6
    for metric, mt in ((None, None), (h, ht)):
        y = q.project(x, metric)
        for tensor in (t, grad):
            z = q.project(tensor, mt)
            assert z.dtype == t.dtype
            np.testing.assert_allclose(z.detach().numpy(), y, rtol=tol, atol=tol)
        np.testing.assert_array_equal(t.numpy(), x)
    assert q.contains(q.project(t))
    assert float(q.support(t)) == pytest.approx(float(q.support(x)), rel=1e-6)
    assert q.support(t).dtype == t.dtype
    if q.bounded:
        np.testing.assert_allclose(q.lmo(t).numpy(), q.lmo(x), rtol=tol, atol=tol)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", [False, True], ids=["plain", "metric"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_derivatives_match_finite_differences(name, metric, inside):
    if metric and name == "nuclear":
        pytest.skip("no metric projection")
    q, rng = every_set()[name], np.random.default_rng(5)
    x, h = rng.standard_normal((3, 4)), 10.0 ** rng.uniform(-1, 1, (3, 4))
    if inside and isinstance(q, sets.Box):
        x = np.clip(x, q.lower + 0.1, q.upper - 0.1)
    elif inside:
        x = oracles.feasible(q, rng, x.shape)
    v, step = rng.standard_normal((3, 4)), 1e-6 * rng.standard_normal((3, 4))

    def value(point):
        return np.sum(v * q.project(point, h if metric else None))

    point = torch.from_numpy(x).requires_grad_()
    y = q.project(point, torch.from_numpy(h) if metric else None)
    (y * torch.from_numpy(v)).sum().backward()
    slope = (value(x + step) - value(x - step)) / 2
    assert np.sum(point.grad.numpy() * step) == pytest.approx(slope, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("family", [sets.L2Ball, sets.L1Ball, sets.Simplex])
def test_the_metric_has_a_derivative_too(family):
    rng = np.random.default_rng(0)
    x, h = torch.from_numpy(rng.standard_normal(5)), torch.from_numpy(rng.random(5) + 0.5)
    h.requires_grad_()
    assert torch.autograd.gradcheck(lambda h: family(0.7).project(x, h), (h,))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_slices_are_projected_one_by_one(dim, kind):
    rng = np.random.default_rng(2)
    x, h = rng.standard_normal((3, 4, 5)), 10.0 ** rng.uniform(-1, 1, (3, 4, 5))
    w = rng.random(x.shape[dim]) + 0.1
    for whole, single in (
        (sets.L2Ball(0.7, dim=dim), sets.L2Ball(0.7)),
        (sets.L1Ball(0.7, dim=dim), sets.L1Ball(0.7)),
        (sets.LinfBall(0.7, dim=dim), sets.LinfBall(0.7)),
        (sets.Simplex(0.7, dim=dim), sets.Simplex(0.7)),
        (sets.WeightedL1Ball(w, 0.7, dim=dim), sets.WeightedL1Ball(w, 0.7)),
    ):
        rows, metrics = (np.moveaxis(a, dim, -1).reshape(-1, x.shape[dim]) for a in (x, h))
        for metric in (None, h):
            y = whole.project(POINTS[kind](x), None if metric is None else POINTS[kind](h))
            each = [
                single.project(row, None if metric is None else m)
                for row, m in zip(rows, metrics, strict=True)
            ]
            got = np.moveaxis(np.asarray(y), dim, -1).reshape(rows.shape)
            np.testing.assert_allclose(got, each, rtol=1e-13, atol=1e-15)
        total = sum(single.support(row) for row in rows)
        assert float(whole.support(POINTS[kind](x))) == pytest.approx(total)
        best = np.moveaxis(np.asarray(whole.lmo(POINTS[kind](x))), dim, -1).reshape(rows.shape)
        np.testing.assert_allclose(best, [single.lmo(row) for row in rows])


@pytest.mark.parametrize("name", NAMES)
def test_any_memory_layout_will_do(name):
    q, rng = every_set()[name], np.random.default_rng(4)
    base = rng.standard_normal((8, 6))
    view = base[1:7:2, 5:1:-1]
    kept = base.copy()
    np.testing.assert_array_equal(q.project(view), q.project(view.copy()))
    frozen = view.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(q.project(frozen), q.project(view.copy()))
    np.testing.assert_array_equal(base, kept)
    tensor = torch.from_numpy(base)[1:7:2, 2:6]
    np.testing.assert_array_equal(q.project(tensor), q.project(tensor.clone()))
    swapped = view.astype(">f8")
    np.testing.assert_array_equal(q.project(swapped), q.project(view.copy()))


def test_parameters_of_a_model_may_be_projected_in_any_metric():
    x, h = torch.tensor([3.0, 1.0, -2.0]), torch.tensor([1.0, 5.0, 2.0])
    wanted = sets.L1Ball(1).project(x, h)
    weight = torch.nn.Parameter(x)
    for metric in (h, h.numpy(), h.tolist(), torch.nn.Parameter(h)):
        torch.testing.assert_close(sets.L1Ball(1).project(weight, metric).detach(), wanted)
        with torch.no_grad():
            y = sets.L1Ball(1).project(weight, metric)
        assert not y.requires_grad
        torch.testing.assert_close(y, wanted)
    np.testing.assert_allclose(sets.L1Ball(1).project(x.numpy(), h), wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_computed_in_more(name, dtype):
    q = every_set()[name]
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = q.project(x)
    assert y.dtype == dtype
    assert q.contains(y)
    torch.testing.assert_close(y, q.project(x.float()).to(dtype))


def test_compiled_results_do_not_depend_on_when_they_are_computed():
    x = np.random.default_rng(0).standard_normal(10_000)
    first = sets.L1Ball(50).project(x)
    assert all(np.array_equal(first, sets.L1Ball(50).project(x)) for _ in range(3))
