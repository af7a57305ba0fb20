"""The objectives of one's own and the linear one."""

import math

import numpy as np
import pytest

from adahb.problems import FiniteSum, Function, HardFunction, Linear, LinearObjective, Objective
from adahb.sets import L1Ball, L2Ball


def test_a_function_of_two_callables():
    f = Function(2, lambda w: float(w @ w), lambda w: 2 * w)
    value, g = f.value_and_subgradient(np.array([1.0, 2.0]))
    assert value == f.value(np.array([1.0, 2.0])) == 5.0
    np.testing.assert_array_equal(g, [2.0, 4.0])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, len, len), ValueError, "dim must be an integer of at least 1, got 0"),
        ((2, 1.0, len), TypeError, "value must be callable, got 1.0"),
        ((2, len, None), TypeError, "subgradient must be callable, got None"),
    ],
)
def test_a_function_refuses_what_it_cannot_call(arguments, error, message):
    with pytest.raises(error, match=message):
        Function(*arguments)


def test_the_linear_function():
    f = Linear([1.0, 0.3, 0.1])
    assert f.dim == 3
    assert f.value([1.0, 10.0, -10.0]) == pytest.approx(3.0)
    value, g = f.value_and_subgradient([1.0, 0.0, 0.0])
    assert value == 1.0
    np.testing.assert_array_equal(g, [1.0, 0.3, 0.1])
    np.testing.assert_array_equal(g, f.subgradient([9.0, 0.0, 0.0]))


def test_the_linear_function_cannot_be_changed_through_what_it_returns_or_was_given():
    c = np.array([1.0, 2.0])
    f = Linear(c)
    c[0] = 9
    f.subgradient([0.0, 0.0])[1] = 9
    assert f.value([1.0, 1.0]) == 3.0
    with pytest.raises(ValueError, match="read-only"):
        f.c[0] = 9


def test_the_minimum_of_the_linear_function_over_a_set():
    assert Linear([3.0, 4.0]).minimum(L2Ball(2.0)) == pytest.approx(-10.0)
    assert Linear([1.0, 0.5]).minimum(L1Ball(1.0)) == pytest.approx(-1.0)
    assert Linear([1.0, 0.5]).minimum(None) == -math.inf
    assert Linear([0.0, 0.0]).minimum(None) == 0.0


@pytest.mark.parametrize("c", [[], [1.0, math.nan], [[1.0]], 2.0])
def test_the_linear_function_refuses_other_shapes_and_nan(c):
    with pytest.raises(ValueError, match="c must be a non-empty vector of finite numbers"):
        Linear(c)


def test_every_objective_fits_the_protocol():
    """A type checker reads these lines; at run time they show that the members exist."""
    data = LinearObjective([[1.0, 2.0]], [1.0], "hinge")
    objectives: list[Objective] = [data, HardFunction(2), Linear([1.0, 2.0])]
    sums: list[FiniteSum] = [data]
    for f in objectives:
        assert f.dim == 2
        assert f.value(np.zeros(2)) == f.value_and_subgradient(np.zeros(2))[0]
        assert f.subgradient(np.zeros(2)).shape == (2,)
    assert sums[0].n == 1
