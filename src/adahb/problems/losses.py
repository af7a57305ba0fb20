"""Losses of a prediction p against a target y: value, derivative in p, conjugate.

Every loss here is a convex function φ of one number.  For classes y in {−1, +1} that number is the
margin y·p (`MarginLoss`), for real targets the residual p − y (`ResidualLoss`).  Its slopes fill
an interval, and that interval is both the domain of the conjugate φ*(s) = sup_z (s·z − φ(z)) and
the source of the Lipschitz constant.  A loss of your own is a subclass with the same four parts.

At a kink the derivative is the subgradient of least magnitude.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, xlog1py, xlogy

from adahb._checks import choice, number

Array = NDArray[np.float64]

_SLACK = 16 * np.finfo(np.float64).eps


class Loss(ABC):
    """A convex loss(p, y), vectorised over predictions p and targets y."""

    classification: ClassVar[bool]

    @property
    @abstractmethod
    def slopes(self) -> tuple[float, float]:
        """The closed interval of the slopes of φ, which is the domain of φ*."""

    @abstractmethod
    def _phi(self, z: Array) -> Array:
        """Return φ(z)."""

    @abstractmethod
    def _slope(self, z: Array) -> Array:
        """Return φ′(z)."""

    @abstractmethod
    def _conjugate(self, s: Array) -> Array:
        """Return φ*(s) for s among the slopes."""

    @abstractmethod
    def value(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return loss(p, y)."""

    @abstractmethod
    def derivative(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return the derivative in p; at a kink, the subgradient of least magnitude."""

    @abstractmethod
    def conjugate(self, s: ArrayLike, y: ArrayLike) -> Array:
        """Return sup over p of (s·p − loss(p, y)), which is +∞ outside the domain.

        An ``s`` outside by no more than rounding counts as the domain's end.
        """

    @abstractmethod
    def snap(self, s: ArrayLike, y: ArrayLike) -> Array:
        """Return ``s`` with what lies outside the domain by rounding moved to its end."""

    @property
    def lipschitz(self) -> float:
        """The largest |derivative|, +∞ where there is none."""
        return max(map(abs, self.slopes))

    def _snap_slope(self, s: Array) -> Array:
        low, high = self.slopes
        slack = _SLACK * (self.lipschitz if math.isfinite(self.lipschitz) else 1.0)
        s = np.where((s > high) & (s <= high + slack), high, s)
        return np.where((s < low) & (s >= low - slack), low, s)

    def _conjugate_or_inf(self, s: Array) -> Array:
        """Return φ*(s), +∞ where s is not a slope (0 is one in every loss with a minimum)."""
        low, high = self.slopes
        known = (low <= s) & (s <= high) & np.isfinite(s)
        return np.where(known, self._conjugate(np.where(known, s, 0.0)), np.inf)


class MarginLoss(Loss):
    """loss(p, y) = φ(y·p) for y in {−1, +1}; its conjugate is φ*(y·s)."""

    classification = True

    def value(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return φ(y·p)."""
        return self._phi(_array(y) * _array(p))

    def derivative(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return y·φ′(y·p); at a kink, the subgradient of least magnitude."""
        y = _array(y)
        return y * self._slope(y * _array(p))

    def conjugate(self, s: ArrayLike, y: ArrayLike) -> Array:
        """Return φ*(y·s), +∞ outside the domain."""
        return self._conjugate_or_inf(self._snap_slope(_array(y) * _array(s)))

    def snap(self, s: ArrayLike, y: ArrayLike) -> Array:
        """Return ``s`` with y·s, where outside by rounding, moved to the domain's end."""
        y = _array(y)
        return y * self._snap_slope(y * _array(s))


class ResidualLoss(Loss):
    """loss(p, y) = φ(p − y) for real y; its conjugate is φ*(s) + s·y."""

    classification = False

    def value(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return φ(p − y)."""
        return self._phi(_array(p) - _array(y))

    def derivative(self, p: ArrayLike, y: ArrayLike) -> Array:
        """Return φ′(p − y); at a kink, the subgradient of least magnitude."""
        return self._slope(_array(p) - _array(y))

    def conjugate(self, s: ArrayLike, y: ArrayLike) -> Array:
        """Return φ*(s) + s·y, +∞ outside the domain."""
        s = self._snap_slope(_array(s))
        conjugate = self._conjugate_or_inf(s)
        return conjugate + np.where(np.isfinite(conjugate), s, 0.0) * _array(y)

    def snap(self, s: ArrayLike, y: ArrayLike) -> Array:  # noqa: ARG002
        """Return ``s`` with what is outside by rounding moved to the domain's end."""
        return self._snap_slope(_array(s))


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """max(0, 1 − y·p).

    >>> Hinge().value([0.5, 2.0], [1, 1])
    array([0.5, 0. ])
    """

    slopes = (-1.0, 0.0)

    def _phi(self, z: Array) -> Array:
        return np.maximum(0.0, 1.0 - z)

    def _slope(self, z: Array) -> Array:
        return np.where(z < 1.0, -1.0, 0.0)

    def _conjugate(self, s: Array) -> Array:
        return s


@dataclass(frozen=True)
class SquaredHinge(MarginLoss):
    """max(0, 1 − y·p)²."""

    slopes = (-math.inf, 0.0)

    def _phi(self, z: Array) -> Array:
        return np.maximum(0.0, 1.0 - z) ** 2

    def _slope(self, z: Array) -> Array:
        return -2.0 * np.maximum(0.0, 1.0 - z)

    def _conjugate(self, s: Array) -> Array:
        return s + s**2 / 4


@dataclass(frozen=True)
class ModifiedHuber(MarginLoss):
    """max(0, 1 − y·p)² where y·p ≥ −1, and its tangent −4y·p beyond."""

    slopes = (-4.0, 0.0)

    def _phi(self, z: Array) -> Array:
        return np.maximum(0.0, 1.0 - np.maximum(z, -1.0)) ** 2 + 4.0 * np.maximum(0.0, -1.0 - z)

    def _slope(self, z: Array) -> Array:
        return -2.0 * np.clip(1.0 - z, 0.0, 2.0)

    def _conjugate(self, s: Array) -> Array:
        return s + s**2 / 4


@dataclass(frozen=True)
class Logistic(MarginLoss):
    """log(1 + exp(−y·p))."""

    slopes = (-1.0, 0.0)

    def _phi(self, z: Array) -> Array:
        return np.logaddexp(0.0, -z)

    def _slope(self, z: Array) -> Array:
        return -_array(expit(-z))

    def _conjugate(self, s: Array) -> Array:
        return _array(xlogy(-s, -s) + xlog1py(1.0 + s, s))


@dataclass(frozen=True)
class Squared(ResidualLoss):
    """(p − y)²/2."""

    slopes = (-math.inf, math.inf)

    def _phi(self, z: Array) -> Array:
        return z**2 / 2

    def _slope(self, z: Array) -> Array:
        return z

    def _conjugate(self, s: Array) -> Array:
        return s**2 / 2


@dataclass(frozen=True)
class Absolute(ResidualLoss):
    """|p − y|."""

    slopes = (-1.0, 1.0)

    def _phi(self, z: Array) -> Array:
        return np.abs(z)

    def _slope(self, z: Array) -> Array:
        return np.sign(z)

    def _conjugate(self, s: Array) -> Array:
        return np.zeros_like(s)


@dataclass(frozen=True)
class Huber(ResidualLoss):
    """r²/2 where |r| ≤ δ, and δ(|r| − δ/2) beyond, for the residual r = p − y.

    >>> Huber(delta=0.5).value([0.2, 2.0], 0.0)
    array([0.02 , 0.875])
    """

    delta: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", number("delta", self.delta, above=0))

    @property
    def slopes(self) -> tuple[float, float]:
        """The interval [−δ, δ]."""
        return -self.delta, self.delta

    def _phi(self, z: Array) -> Array:
        near = np.minimum(np.abs(z), self.delta)
        return near * (np.abs(z) - near / 2)

    def _slope(self, z: Array) -> Array:
        return np.clip(z, -self.delta, self.delta)

    def _conjugate(self, s: Array) -> Array:
        return s**2 / 2


@dataclass(frozen=True)
class EpsilonInsensitive(ResidualLoss):
    """max(0, |p − y| − ε)."""

    epsilon: float = 0.1
    slopes = (-1.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", number("epsilon", self.epsilon, at_least=0))

    def _phi(self, z: Array) -> Array:
        return np.maximum(0.0, np.abs(z) - self.epsilon)

    def _slope(self, z: Array) -> Array:
        return np.where(np.abs(z) > self.epsilon, np.sign(z), 0.0)

    def _conjugate(self, s: Array) -> Array:
        return self.epsilon * np.abs(s)


@dataclass(frozen=True)
class Quantile(ResidualLoss):
    """The pinball loss q·max(0, y − p) + (1 − q)·max(0, p − y), smallest at the q-quantile.

    >>> Quantile(0.9).value([0.0, 2.0], 1.0)
    array([0.9, 0.1])
    """

    q: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", number("q", self.q, above=0, below=1))

    @property
    def slopes(self) -> tuple[float, float]:
        """The interval [−q, 1 − q]."""
        return -self.q, 1 - self.q

    def _phi(self, z: Array) -> Array:
        return np.maximum(-self.q * z, (1 - self.q) * z)

    def _slope(self, z: Array) -> Array:
        return np.where(z < 0, -self.q, np.where(z > 0, 1 - self.q, 0.0))

    def _conjugate(self, s: Array) -> Array:
        return np.zeros_like(s)


BY_NAME: Mapping[str, Callable[[], Loss]] = MappingProxyType(
    {
        "hinge": Hinge,
        "squared_hinge": SquaredHinge,
        "log_loss": Logistic,
        "modified_huber": ModifiedHuber,
        "squared_error": Squared,
        "absolute_error": Absolute,
        "huber": Huber,
        "epsilon_insensitive": EpsilonInsensitive,
        "quantile": Quantile,
    }
)


def get(loss: str | Loss) -> Loss:
    """Return the loss of that name with its default parameters, or the loss object given.

    >>> get("huber")
    Huber(delta=1.0)
    >>> get("0-1")
    Traceback (most recent call last):
        ...
    ValueError: loss must be one of 'hinge', 'squared_hinge', 'log_loss', 'modified_huber', \
'squared_error', 'absolute_error', 'huber', 'epsilon_insensitive', 'quantile', got '0-1'
    """
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(
            f"loss must be a Loss or one of {', '.join(map(repr, BY_NAME))}, got {loss!r}"
        )
    return BY_NAME[choice("loss", loss, BY_NAME)]()


def _array(x: ArrayLike) -> Array:
    return np.asarray(x, dtype=np.float64)
