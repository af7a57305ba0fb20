"""Objectives to try the methods on, each with its exact subgradient.

HardFunction     the worst case for the last iterate of plain subgradient descent
LinearObjective  mean loss of a linear model, with its dual bound and Lipschitz constants
Linear           ⟨c, w⟩
Function         your own, from two callables
losses           hinge, logistic, Huber, ... : value, derivative and conjugate

`Objective` and `FiniteSum` say what a method may ask of any of them.
"""

from adahb.problems import losses
from adahb.problems.base import FiniteSum, Function, Linear, Objective
from adahb.problems.hard import HardFunction
from adahb.problems.linear import LinearObjective
from adahb.problems.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    ModifiedHuber,
    Quantile,
    Squared,
    SquaredHinge,
)

__all__ = [
    "Absolute",
    "EpsilonInsensitive",
    "FiniteSum",
    "Function",
    "HardFunction",
    "Hinge",
    "Huber",
    "Linear",
    "LinearObjective",
    "Logistic",
    "Loss",
    "ModifiedHuber",
    "Objective",
    "Quantile",
    "Squared",
    "SquaredHinge",
    "losses",
]
