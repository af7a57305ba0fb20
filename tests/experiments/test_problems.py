"""The bundled hinge problems and their certified optima."""

import numpy as np
import pytest

from adahb.experiments.claims import PROBLEMS
from adahb.experiments.hinge import hinge, optimum
from adahb.sets import L1Ball


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.dataset)
def test_the_optimum_is_certified(problem):
    f, ball = hinge(problem.dataset), L1Ball(problem.radius)
    found = optimum(problem.dataset, problem.radius)
    assert ball.contains(found.w)
    assert f.value(found.w) == found.value
    assert -1e-12 < found.value - found.lower_bound < 1e-10


def test_the_known_optimum_of_breast_cancer():
    assert optimum("breast_cancer", 1.0).value == pytest.approx(0.366058125, abs=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.dataset)
def test_features_are_standardised(problem):
    f = hinge(problem.dataset)
    deviation = np.asarray(f.X).std(axis=0)
    assert np.abs(np.asarray(f.X).mean(axis=0)).max() < 1e-12
    assert np.all(np.isclose(deviation, 1) | (deviation == 0))
    assert set(f.y) == {-1.0, 1.0}
