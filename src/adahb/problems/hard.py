"""The convex function on which the last iterate of plain subgradient descent is slow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from adahb._checks import choice, integer, number
from adahb.problems.base import Vector, vector


@dataclass(frozen=True)
class HardFunction:
    """f(x) = max_i ⟨h_i, x⟩ on the unit ball of R^T, after Harvey et al. (COLT 2019).

    With a_i = 1/(8c(T−i+1)) and b_i = √i/(2c√T) for i = 1..T,

        h_ij = a_j for j < i,   −b_i for j = i ≤ m,   0 for j > i,   i = 1..m+1,

    and the subgradient is the row of the *smallest* maximising index.  Started at 0 with steps
    c/√t, projected subgradient descent meets a new row in every step, and its last iterate stays
    above log T/(32c√T), while its average, and the last iterate of the heavy ball, do not.

    ``reading="original"`` is m = T: T+1 rows, the last one a.  ``reading="paper"`` is m = T−1, as
    the heavy-ball paper prints it (i in [T], and −b only where i = j < T): T rows, and x_T is
    never used.  In both, row m+1 has no negative entry.  That is what puts 0 into the convex hull
    of the rows, so that f ≥ 0 = f(0) everywhere.  The tempting mixture, T rows that keep −b_T,
    has a minimum below 0 and is another problem.

    Value and subgradient take O(T): one cumulative sum serves all rows.

    >>> f = HardFunction(3)
    >>> f.value(np.zeros(3))
    0.0
    >>> f.subgradient(np.zeros(3)) * 4
    array([-0.57735027,  0.        ,  0.        ])
    """

    T: int
    c: float = 2.0
    reading: Literal["original", "paper"] = "original"
    f_star: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "T", integer("T", self.T, at_least=1))
        object.__setattr__(self, "c", number("c", self.c, at_least=1))
        choice("reading", self.reading, ("original", "paper"))

    @property
    def dim(self) -> int:
        """The number of variables, T."""
        return self.T

    @property
    def step(self) -> float:
        """The constant c of the steps c/√t against which the function is built."""
        return self.c

    @cached_property
    def a(self) -> Vector:
        """The entries left of the diagonal, a_i = 1/(8c(T−i+1))."""
        return _frozen(1 / (8 * self.c * np.arange(self.T, 0, -1)))

    @cached_property
    def b(self) -> Vector:
        """The negated diagonal, b_i = √i/(2c√T)."""
        return _frozen(np.sqrt(np.arange(1, self.T + 1) / self.T) / (2 * self.c))

    @property
    def _m(self) -> int:
        """The number of rows with a −b on the diagonal; one more row follows them."""
        return self.T if self.reading == "original" else self.T - 1

    def _rows(self, x: ArrayLike) -> Vector:
        """Return ⟨h_i, x⟩ for all rows.

        Row i is Σ_{j<i} a_j x_j − b_i x_i.  Where x ends in zeros, the cumulative sum adds nothing
        and the rows tie exactly, as choosing the smallest index requires.
        """
        x = vector("x", x, self.T)[: self._m]
        rows = np.zeros(self._m + 1)
        np.cumsum(self.a[: self._m] * x, out=rows[1:])
        rows[:-1] -= self.b[: self._m] * x
        return rows

    def _row(self, i: int) -> Vector:
        """Return h for the row of index ``i``, counted from 0."""
        h = np.zeros(self.T)
        h[:i] = self.a[:i]
        if i < self._m:
            h[i] = -self.b[i]
        return h

    def value(self, x: ArrayLike) -> float:
        """Return max_i ⟨h_i, x⟩."""
        return float(self._rows(x).max())

    def subgradient(self, x: ArrayLike) -> Vector:
        """Return the row of the smallest maximising index."""
        return self.value_and_subgradient(x)[1]

    def value_and_subgradient(self, x: ArrayLike) -> tuple[float, Vector]:
        """Return the maximum and the first row that attains it."""
        rows = self._rows(x)
        i = int(rows.argmax())
        return float(rows[i]), self._row(i)

    @cached_property
    def lipschitz(self) -> float:
        """The largest norm of a row, max_i √(Σ_{j<i} a_j² + b_i²); it is below 1."""
        squares = np.zeros(self._m + 1)
        np.cumsum(self.a[: self._m] ** 2, out=squares[1:])
        squares[:-1] += self.b[: self._m] ** 2
        return math.sqrt(squares.max())

    def lower_bound(self, T: int | None = None) -> float:
        """Return log T/(32c√T), which f(x_T) of projected subgradient descent does not go below.

        For another ``T`` than the function's own it speaks of the function built for that T.
        """
        horizon = self.T if T is None else integer("T", T, at_least=1)
        return math.log(horizon) / (32 * self.c * math.sqrt(horizon))


def _frozen(x: Vector) -> Vector:
    x.flags.writeable = False
    return x
