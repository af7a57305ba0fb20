"""Adaptive heavy-ball methods whose last iterate carries the optimal guarantee.

The heavy ball of Polyak, with momentum t/(t+2) and an adaptive step, converges at the optimal rate
in its *last* iterate [Tao et al., ICLR 2021].  The rooms of this package, from the ground up:

schedules     t -> coefficients, each with what is guaranteed for it
sets          where the weights may live: projections, support functions
problems      objectives to try the methods on
reference     the paper's methods line for line, in float64
certificates  what can be proved of a run
optim         the methods as torch optimizers: AdaHB, HB, NAG, PSG
checkpoints   saving and loading a training, whole or not at all
logging       what these choose by themselves, in CSV files or TensorBoard
linear        constrained linear models as scikit-learn estimators
interop       the methods as optax transformations and as Keras optimizers
experiments   the paper's figures and claims as commands

Each is imported when it is first used, so that ``import adahb`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from adahb import (
        certificates,
        checkpoints,
        linear,
        logging,
        optim,
        problems,
        reference,
        schedules,
        sets,
    )
    from adahb.linear import HeavyBallClassifier, HeavyBallRegressor
    from adahb.optim import HB, NAG, PSG, AdaHB

_ROOMS = (
    "certificates",
    "checkpoints",
    "linear",
    "logging",
    "optim",
    "problems",
    "reference",
    "schedules",
    "sets",
)
_OPTIMIZERS = ("HB", "NAG", "PSG", "AdaHB")
_ESTIMATORS = ("HeavyBallClassifier", "HeavyBallRegressor")
__all__ = [
    "HB",
    "NAG",
    "PSG",
    "AdaHB",
    "HeavyBallClassifier",
    "HeavyBallRegressor",
    "certificates",
    "checkpoints",
    "linear",
    "logging",
    "optim",
    "problems",
    "reference",
    "schedules",
    "sets",
]


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"adahb.{name}")
    if name in _OPTIMIZERS:
        return getattr(import_module("adahb.optim"), name)
    if name in _ESTIMATORS:
        return getattr(import_module("adahb.linear"), name)
    raise AttributeError(f"module 'adahb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
