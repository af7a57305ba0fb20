"""Linear models: exact constrained stochastic training at the cost of the rows' nonzeros."""

from adahb.linear.base import NoCertificateWarning
from adahb.linear.classifier import HeavyBallClassifier
from adahb.linear.display import HistoryDisplay
from adahb.linear.machine import Machine
from adahb.linear.regressor import HeavyBallRegressor

__all__ = [
    "HeavyBallClassifier",
    "HeavyBallRegressor",
    "HistoryDisplay",
    "Machine",
    "NoCertificateWarning",
]
