"""What a method may ask of an objective, and the two simplest objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adahb._checks import integer

Vector: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = int | np.integer[Any] | NDArray[np.integer[Any]] | list[int]


class Supported(Protocol):
    """The one thing an objective asks of a constraint set Q."""

    def support(self, g: Any, /) -> Any:
        """Return σ_Q(g) = max over u in Q of ⟨u, g⟩."""


class Objective(Protocol):
    """A convex function on R^dim with one subgradient at every point."""

    @property
    def dim(self) -> int:
        """The number of variables."""

    def value(self, w: Vector, /) -> float:
        """Return f(w)."""

    def subgradient(self, w: Vector, /) -> Vector:
        """Return a g with f(u) ≥ f(w) + ⟨g, u − w⟩ for every u."""

    def value_and_subgradient(self, w: Vector, /) -> tuple[float, Vector]:
        """Return both for less than the price of each."""


class FiniteSum(Objective, Protocol):
    """A mean f = (1/n) Σ f_i of losses of linear predictions, f_i(w) = loss_i(⟨x_i, w⟩).

    ``rows`` is one sample's index or an array of them; repeated indices count as often as they
    occur.
    """

    @property
    def n(self) -> int:
        """The number of samples."""

    def derivatives(self, w: Vector, rows: Rows, /) -> Vector:
        """Return loss_i′(⟨x_i, w⟩) for the samples i in ``rows``, in the shape of ``rows``."""

    def combine(self, derivatives: ArrayLike, rows: Rows, /) -> Vector:
        """Return the mean over ``rows`` of derivative_i · x_i."""

    def sample_subgradient(self, w: Vector, rows: Rows, /) -> Vector:
        """Return ``combine(derivatives(w, rows), rows)``."""

    def dual_value(self, s: ArrayLike, constraint: Supported | None, /) -> float:
        """Return a lower bound on the minimum of f over Q, one number s_i for each sample."""


def array(name: str, value: ArrayLike, kinds: str = "fiub") -> NDArray[Any]:
    """Return ``value`` as an array; its dtype must be of one of NumPy's ``kinds``."""
    try:
        x = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from error
    if x.dtype.kind not in kinds:
        raise TypeError(f"{name} must hold real numbers, got dtype {x.dtype}")
    return x


def vector(name: str, value: ArrayLike, dim: int) -> Vector:
    """Return ``value`` as a float64 vector of length ``dim``."""
    x = array(name, value, "fiubO").astype(np.float64, copy=False)
    if x.shape != (dim,):
        raise ValueError(f"{name} must be a vector of shape ({dim},), got shape {x.shape}")
    return x


def support(constraint: Supported | None, g: Vector) -> float:
    """Return σ_Q(g); without a constraint Q is the whole space, where σ is 0 at 0, else ∞."""
    if constraint is None:
        return float("inf") if g.any() else 0.0
    return float(constraint.support(g))


@dataclass(frozen=True)
class Function:
    """An objective of your own, from two callables of a float64 vector.

    >>> f = Function(2, lambda w: abs(w).sum(), np.sign)
    >>> f.value_and_subgradient(np.array([3.0, -1.0]))
    (4.0, array([ 1., -1.]))
    """

    dim: int
    value: Callable[[Vector], float]
    subgradient: Callable[[Vector], Vector]

    def __post_init__(self) -> None:
        integer("dim", self.dim, at_least=1)
        for name in ("value", "subgradient"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, got {getattr(self, name)!r}")

    def value_and_subgradient(self, w: Vector) -> tuple[float, Vector]:
        """Return f(w) and a subgradient there."""
        return float(self.value(w)), self.subgradient(w)


class Linear:
    """The linear function f(w) = ⟨c, w⟩, whose minimum over Q is exactly −σ_Q(−c).

    >>> Linear([1.0, 0.5]).value([2.0, -4.0])
    0.0
    """

    def __init__(self, c: ArrayLike) -> None:
        self.c = np.array(c, dtype=np.float64)
        if self.c.ndim != 1 or not self.c.size or not np.isfinite(self.c).all():
            raise ValueError(f"c must be a non-empty vector of finite numbers, got {c!r}")
        self.c.flags.writeable = False

    def __repr__(self) -> str:
        return f"Linear({self.c.tolist()})"

    @property
    def dim(self) -> int:
        """The number of variables."""
        return self.c.size

    def value(self, w: ArrayLike) -> float:
        """Return ⟨c, w⟩."""
        return float(self.c @ vector("w", w, self.dim))

    def subgradient(self, w: ArrayLike) -> Vector:
        """Return c, the gradient everywhere."""
        vector("w", w, self.dim)
        return self.c.copy()

    def value_and_subgradient(self, w: ArrayLike) -> tuple[float, Vector]:
        """Return ⟨c, w⟩ and c."""
        return self.value(w), self.c.copy()

    def minimum(self, constraint: Supported | None) -> float:
        """Return the minimum over Q, −σ_Q(−c): −∞ where f is unbounded below."""
        return -support(constraint, -self.c)
