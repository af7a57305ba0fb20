"""Errors, immutability, comparison and serialisation."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sets.samples import NAMES, every_set

from adahb import sets

nan, inf = np.nan, np.inf

WRONG = [
    (lambda: sets.L1Ball(-1), ValueError, r"radius must be a number in \[0, inf\), got -1"),
    (lambda: sets.L2Ball(inf), ValueError, "radius must be a number in .* got inf"),
    (lambda: sets.LinfBall(nan), ValueError, "radius must be .* got nan"),
    (lambda: sets.NuclearBall("1"), TypeError, "radius must be .* got '1'"),
    (lambda: sets.Simplex(0), ValueError, r"total must be a number in \(0, inf\), got 0"),
    (lambda: sets.L1Ball(1, dim=0.5), TypeError, "dim must be an integer .* got 0.5"),
    (lambda: sets.WeightedL1Ball([1, 0], 1), ValueError, r"weights must be > 0, got \[1. 0.\]"),
    (lambda: sets.WeightedL1Ball([1, nan], 1), ValueError, "weights must be finite"),
    (lambda: sets.WeightedL1Ball([1j], 1), TypeError, "weights must hold real numbers"),
    (lambda: sets.Box(1, 0), ValueError, "lower must not exceed upper, got Box"),
    (lambda: sets.Box(nan, 0), ValueError, "lower must not hold NaN"),
    (lambda: sets.Box(inf, inf), ValueError, "lower must be below"),
    (lambda: sets.Box([0, 1], [1, 2, 3]), ValueError, "shapes that broadcast"),
    (lambda: sets.HalfSpace([0, 0], 1), ValueError, "normal must have an entry other than zero"),
    (lambda: sets.HalfSpace([1, inf], 1), ValueError, "normal must be finite"),
    (lambda: sets.Affine([1, 2], [1]), ValueError, "matrix must be 2-d .* shapes"),
    (lambda: sets.Affine([[1, 1], [2, 2]], [1, 3]), ValueError, "must have a solution"),
    (lambda: sets.Affine([[0, 0]], [1]), ValueError, "row 0 contradicts"),
    (lambda: sets.GroupL1Ball(1), ValueError, "exactly one of dim and groups"),
    (lambda: sets.GroupL1Ball(1, dim=0, groups=[1]), ValueError, "exactly one of dim and groups"),
    (lambda: sets.GroupL1Ball(1, groups=[0.5]), TypeError, "groups must hold integer labels"),
    (lambda: sets.L1Ball(1).project([1, nan]), ValueError, "x must be finite"),
    (lambda: sets.L1Ball(1).project([1, inf], [1, 2]), ValueError, "x must be finite"),
    (lambda: sets.Simplex().project([-inf, 1]), ValueError, "x must be finite"),
    (lambda: sets.Simplex().project([[1.0, 2], [-nan, 1]]), ValueError, "x must be finite"),
    (lambda: sets.L2Ball(1).project([nan]), ValueError, "x must be finite"),
    (lambda: sets.L1Ball(1).project(torch.tensor([inf])), ValueError, "x must be finite"),
    (lambda: sets.L1Ball(1).support([nan]), ValueError, "g must be finite"),
    (lambda: sets.L1Ball(1).lmo([inf]), ValueError, "g must be finite"),
    (lambda: sets.L1Ball(1).contains([nan]), ValueError, "x must be finite"),
    (lambda: sets.L1Ball(1).contains([1], tol=-1), ValueError, "tol must be"),
    (lambda: sets.L1Ball(1).project([1j]), TypeError, "x must hold real numbers"),
    (lambda: sets.L1Ball(1).project(["a"]), TypeError, "x must hold real numbers"),
    (lambda: sets.L1Ball(1).project([[1], [1, 2]]), ValueError, "x must be an array"),
    (lambda: sets.L1Ball(1, dim=1).project([1.0]), ValueError, r"shape \(1,\), got dim=1"),
    (lambda: sets.LinfBall(1, dim=-2).project([1.0]), ValueError, "dim must be an axis"),
    (lambda: sets.Simplex().project([]), ValueError, "at least one entry per simplex"),
    (lambda: sets.NuclearBall(1).project([1.0]), ValueError, "needs matrices"),
    (lambda: sets.Box([0, 0], 1).project([1.0]), ValueError, r"lower of shape \(2,\)"),
    (lambda: sets.HalfSpace([1, 1], 0).project([1.0]), ValueError, r"shape \(2,\) like the normal"),
    (lambda: sets.Affine([[1, 1]], [0]).project([1.0]), ValueError, "x must have 2 entries"),
    (lambda: sets.WeightedL1Ball([1, 2], 1).project([1.0]), ValueError, "weights must have shape"),
    (lambda: sets.GroupL1Ball(1, groups=[1, 2]).project([1.0]), ValueError, "groups must have sh"),
    (lambda: sets.L1Ball(1).project([1, 2], [1, 0]), ValueError, "metric must be finite and > 0"),
    (lambda: sets.L1Ball(1).project([1, 2], [1, nan]), ValueError, "metric must be finite and > 0"),
    (lambda: sets.L1Ball(1).project([1, 2], [1, 2, 3]), ValueError, "metric must broadcast"),
    (lambda: sets.L1Ball(1).project([1], [[1], [2]]), ValueError, "metric must broadcast"),
    (lambda: sets.NuclearBall(1).project(np.eye(2), [1, 2]), ValueError, "metric must be constant"),
    (lambda: sets.NonNegative().lmo([-1.0]), ValueError, r"NonNegative\(\) is unbounded"),
    (lambda: sets.from_dict({"kind": "Ball"}), ValueError, "kind must be one of 'Affine'"),
    (lambda: sets.from_dict({}), ValueError, "kind must be one of .* got None"),
    (lambda: sets.from_dict({"kind": "L1Ball"}), ValueError, r"missing: \['radius'\]"),
    (lambda: sets.from_dict({"kind": "Simplex", "r": 1}), ValueError, r"unknown: \['r'\]"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=range(len(WRONG)))
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", NAMES)
def test_sets_survive_every_journey(name, tmp_path):
    q = every_set()[name]
    plain = q.to_dict()
    torch.save(plain, tmp_path / "set.pt")
    for twin in (
        sets.from_dict(plain),
        sets.from_dict(json.loads(json.dumps(plain))),
        sets.from_dict(torch.load(tmp_path / "set.pt", weights_only=True)),
        pickle.loads(pickle.dumps(q)),
        copy.copy(q),
        copy.deepcopy(q),
        every_set()[name],
    ):
        assert twin == q
        assert hash(twin) == hash(q)
        assert repr(twin) == repr(q)
    for other in every_set(seed=1).values():
        if type(other) is not type(q):
            assert other != q
    assert q != plain
    assert repr(q).startswith(type(q).__name__)
    assert len(repr(q)) < 700


def test_sets_differ_by_their_parameters():
    assert sets.L1Ball(1) != sets.L1Ball(2)
    assert sets.L1Ball(1) != sets.L1Ball(1, dim=0)
    assert sets.L1Ball(1) == sets.L1Ball(1.0)
    assert sets.Box(0, [1, 2]) != sets.Box(0, [1, 3])
    assert sets.HalfSpace([1, -0.0], 1) == sets.HalfSpace([1, 0.0], 1)
    assert len({sets.L1Ball(1), sets.L1Ball(1.0), sets.L2Ball(1)}) == 2
    assert repr(sets.WeightedL1Ball(np.ones(10**6), 1)) == (
        "WeightedL1Ball(weights=[1., 1., 1., ..., 1., 1., 1.], radius=1.0, dim=None)"
    )


def test_nothing_can_be_changed():
    weights = np.ones(3)
    q = sets.WeightedL1Ball(weights, 1)
    weights[0] = 5
    assert q.weights[0] == 1
    with pytest.raises(AttributeError):
        q.radius = 2
    with pytest.raises(ValueError, match="read-only"):
        q.weights[0] = 2
    with pytest.raises(ValueError, match="read-only"):
        pickle.loads(pickle.dumps(q)).weights[0] = 2


def test_parameters_may_be_tensors():
    q = sets.WeightedL1Ball(torch.tensor([1.0, 2.0], requires_grad=True), 1)
    assert q == sets.WeightedL1Ball([1, 2], 1)


@pytest.mark.parametrize("name", NAMES)
def test_zero_is_no_special_case(name):
    q = every_set()[name]
    zero = np.zeros((3, 4))
    assert q.contains(q.project(zero))
    assert q.support(zero) == 0
    grad = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    q.project(grad).sum().backward()
    assert torch.isfinite(grad.grad).all()


def test_a_radius_of_zero_is_a_point():
    x = np.array([[1.0, -2.0], [3.0, 0.0]])
    for q in (
        sets.L1Ball(0),
        sets.L2Ball(0),
        sets.LinfBall(0),
        sets.WeightedL1Ball(np.ones((2, 2)), 0),
        sets.GroupL1Ball(0, dim=0),
        sets.NuclearBall(0),
    ):
        assert not q.project(x).any()
        assert q.contains(0 * x)
        assert not q.contains(x)
        assert q.support(x) == 0
        if not isinstance(q, sets.NuclearBall):
            assert not q.project(x, metric=1 + x**2).any()


def test_scalars_and_empty_arrays():
    for q in (sets.L1Ball(1), sets.L2Ball(1), sets.LinfBall(1), sets.Box(-1, 1)):
        assert q.project(np.float64(3)).shape == ()
        assert q.project(3) == 1
        assert q.project(torch.tensor(-3.0)) == -1
        assert q.project(np.zeros((0, 3))).shape == (0, 3)
        assert q.project(torch.zeros(0)).shape == (0,)
        assert q.support(np.zeros(0)) == 0
        assert q.contains(np.zeros(0))
    assert sets.Simplex(dim=1).project(np.zeros((0, 3))).shape == (0, 3)


def test_integers_become_floats():
    assert sets.L1Ball(1).project(np.array([3, 1])).tolist() == [1.0, 0.0]
    assert sets.L1Ball(1).project(torch.tensor([3, 1])).dtype == torch.float32


def test_a_matrix_is_an_array():
    with pytest.warns(PendingDeprecationWarning):
        x = np.matrix([[3.0, 4.0]])
    for y in (sets.L2Ball(1).project(x), sets.Affine([[1, 0]], [0.6]).project(x)):
        assert type(y) is np.ndarray
        assert y[0, 0] == pytest.approx(0.6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_derivatives_pass_through_the_support(name, dtype):
    """Where it is differentiable, the gradient of the support is the point that attains it."""
    q = every_set()[name]
    g = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    value = q.support(g)
    if not torch.isfinite(value):
        return
    value.backward()
    best = q.lmo(-g.detach())
    torch.testing.assert_close(g.grad, best, rtol=1e-4, atol=1e-4)


def test_a_constant_metric_is_no_metric():
    x = np.array([[3.0, 1.0], [0.5, -2.0]])
    for h in (7.0, np.full((2, 2), 7.0)):
        np.testing.assert_allclose(
            sets.NuclearBall(1).project(x, h), sets.NuclearBall(1).project(x), rtol=1e-14
        )


def test_membership_has_a_tolerance_relative_to_the_set():
    big = sets.L1Ball(1e10)
    assert big.contains([1e10 + 1e-3])
    assert not big.contains([1e10 + 10])
    assert big.contains([1e10 + 10], tol=1e-8)
    assert not sets.L1Ball(1e-10).contains([1.001e-10])
    assert sets.L1Ball(1).contains(np.array([1 + 1e-6], dtype=np.float32))
    assert not sets.L1Ball(1).contains(np.array([1 + 1e-6]))
    assert not sets.Simplex().contains([0.5, 0.4])
    assert not sets.Simplex().contains([1.1, -0.1])


def test_bounded_says_whether_every_support_is_finite():
    assert not sets.NonNegative().bounded
    assert not sets.Box(0, [1, np.inf]).bounded
    assert sets.Box(0, 1).bounded
    assert not sets.HalfSpace([1.0], 0).bounded
    assert not sets.Affine([[1, 1]], [0]).bounded
    assert sets.Affine(np.eye(2), [1, 2]).bounded
    assert sets.Affine(np.eye(2), [1, 2]).project([5.0, 5.0]).tolist() == [1, 2]
    assert sets.L1Ball(1).bounded


def test_importing_sets_imports_neither_torch_nor_numba():
    code = "import sys, adahb.sets; print('torch' in sys.modules, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
