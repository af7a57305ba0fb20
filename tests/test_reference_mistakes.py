"""What is not a set, a schedule, a state or a subgradient is refused by its name."""

import numpy as np
import pytest

from adahb import reference, schedules
from adahb.problems import Function, Linear
from adahb.sets import L1Ball

F = Linear([1.0, 0.5])
HB = schedules.HB(alpha=1.0)


@pytest.mark.parametrize("constraint", ["l1", L1Ball, 1.0])
def test_what_is_not_a_set(constraint):
    with pytest.raises(TypeError, match="constraint must be a set or None, got"):
        reference.hb(F, 3, alpha=1.0, constraint=constraint)


def test_what_is_not_a_schedule():
    with pytest.raises(TypeError, match=r"schedule must be one of adahb\.schedules, got 'hb'"):
        reference.run(F, 3, "hb")


def test_what_is_not_a_state():
    run = reference.run(F, 3, HB)
    with pytest.raises(TypeError, match="resume must be the state of a run, got Run"):
        reference.run(F, 3, HB, resume=run)


@pytest.mark.parametrize("w0", ["a", [[1.0], [2.0, 3.0]], [1j, 1.0]])
def test_what_is_not_a_start(w0):
    with pytest.raises(ValueError, match="w0 must be 2 finite numbers"):
        reference.run(F, 3, HB, w0=w0)


@pytest.mark.parametrize("method", [reference.hb, reference.adahb])
def test_constant_momentum_has_no_power(method):
    with pytest.raises(ValueError, match=r"power must be 0 with constant momentum, got 2.0"):
        method(F, 3, alpha=1.0, momentum=0.5, power=2.0)


@pytest.mark.parametrize("g", [np.ones(3), np.ones((2, 1)), 1.0])
def test_what_is_not_a_subgradient(g):
    f = Function(2, lambda _: 0.0, lambda _: g)
    with pytest.raises(ValueError, match=r"subgradient must have shape \(2,\) like w, got \("):
        reference.run(f, 3, HB)


def test_a_subgradient_may_be_a_list():
    f = Function(2, lambda w: float(w.sum()), lambda _: [1, 1])
    same = Function(2, lambda w: float(w.sum()), np.ones_like)
    np.testing.assert_array_equal(
        reference.run(f, 5, HB, constraint=L1Ball(1.0)).w,
        reference.run(same, 5, HB, constraint=L1Ball(1.0)).w,
    )
