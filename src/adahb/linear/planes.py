r"""The best lower bound that several planes prove together.

A plane is a pair (c, g) with f(w) ≥ c + ⟨g, w⟩ for every w.  Any mean of planes is one too, and
over a set Q each proves a number, so that for all weights θ ≥ 0 with Σθ_k = 1

    f* ≥ Σ_k θ_k c_k - σ_Q(-Σ_k θ_k g_k).

Whatever θ is, the bound holds: how θ was found needs no trust.  The best θ is the multiplier of
min over w in Q of max_k c_k + ⟨g_k, w⟩.  On the l1 ball and the simplex it comes from a linear
program over the coordinates that matter, elsewhere from a primal-dual iteration.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from adahb.sets import L1Ball, Simplex

if TYPE_CHECKING:
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]

_ROUNDS = 8
_ITERATIONS = 300
_PERIOD = 25
"""Iterations between two looks at what is proved."""
_ENOUGH = 1e-5
"""How near the best weights' bound, relative to it, the search stops."""


class Planes:
    """A bundle of planes below a convex function; ``bound`` is the best number they prove."""

    def __init__(self, dim: int, constraint: ConvexSet, *, capacity: int) -> None:
        self.constraint = constraint
        self.bound = -math.inf
        self._c: Vector = np.empty(0)
        self._g: Vector = np.empty((0, dim))
        self._theta: Vector = np.empty(0)
        self.lowest: Vector | None = None
        """A point of the set where the largest plane is lowest, roughly."""
        self._capacity = max(capacity, 2)
        self._coordinates: NDArray[np.intp] = np.empty(0, dtype=np.intp)

    def __len__(self) -> int:
        return self._c.size

    def add(self, c: float, g: Vector) -> None:
        """Add the plane c + <g, w>."""
        if not (math.isfinite(c) and np.isfinite(g).all()):
            return
        if len(self) == self._capacity:
            self._make_room()
        self._c = np.append(self._c, c)
        self._g = np.concatenate([self._g, g[None]])
        self._theta = np.append(self._theta, 0.0)
        self._try(np.eye(len(self))[-1])

    def tighten(self) -> float:
        """Look for the best weights of the planes, and return the best bound so far."""
        if len(self) > 1:
            solve = self._program if isinstance(self.constraint, L1Ball | Simplex) else self._saddle
            solve()
        return self.bound

    def _value(self, theta: Vector) -> float:
        """Return what the mean plane proves."""
        return float(self._c @ theta) - float(self.constraint.support(-(theta @ self._g)))

    def _try(self, theta: Vector) -> bool:
        """Take these weights if they prove more."""
        theta = np.maximum(theta, 0.0)
        total = theta.sum()
        if not total > 0:
            return False
        theta = theta / total
        value = self._value(theta)
        if not self.bound < value < math.inf:
            return False
        self.bound, self._theta = value, theta
        return True

    def _make_room(self) -> None:
        """Put the mean plane of the best weights in the place of the older half."""
        half = len(self) // 2
        idle = np.flatnonzero(self._theta == 0)
        gone = idle[:half]
        if gone.size:
            keep = np.setdiff1d(np.arange(len(self)), gone)
            self._c, self._g, self._theta = self._c[keep], self._g[keep], self._theta[keep]
            return
        c, g = self._theta @ self._c, self._theta @ self._g
        self._c = np.append(c, self._c[half:])
        self._g = np.concatenate([g[None], self._g[half:]])
        self._theta = np.eye(self._c.size)[0]

    def _program(self) -> None:
        """Find where the largest plane is lowest, over coordinates that are added as they count.

        On the l1 ball a point is a difference of two of a simplex's parts.  A coordinate left out
        can only make the program's value too large, hence the next round has those whose slopes
        exceed what the program knew of.
        """
        ball = isinstance(self.constraint, L1Ball)
        radius = self.constraint.radius if ball else self.constraint.total  # type: ignore[attr-defined]
        theta = self._theta
        for _ in range(_ROUNDS):
            slope = theta @ self._g
            size = np.abs(slope) if ball else -slope
            most = min(size.size, 2 * len(self) + 16)
            worst = np.argpartition(-size, most - 1)[:most]
            self._coordinates = np.union1d(self._coordinates, worst)
            slopes = self._g[:, self._coordinates]
            slopes = np.concatenate([slopes, -slopes], axis=1) if ball else slopes
            parts = slopes.shape[1]
            solution = linprog(
                np.eye(1, 1 + parts)[0],  # the height, and the parts
                A_ub=np.column_stack([np.full(len(self), -1.0), slopes]),
                b_ub=-self._c,
                A_eq=np.append(0.0, np.ones(parts))[None],
                b_eq=[radius],
                bounds=[(None, None)] + [(0, None)] * parts,
                method="highs",
                options={"presolve": False},  # it takes longer than it saves
            )
            if solution.x is None or solution.fun is None:
                return
            theta = -solution.ineqlin.marginals
            self._try(theta)
            w = solution.x[1:]
            half = self._coordinates.size
            self.lowest = np.zeros(self._g.shape[1])
            self.lowest[self._coordinates] = w[:half] - w[half:] if ball else w
            if solution.fun - self.bound <= _ENOUGH * abs(self.bound):
                break
        if self._coordinates.size > 8 * (2 * len(self) + 16):
            self._coordinates = np.empty(0, dtype=np.intp)

    def _saddle(self) -> None:
        """Chambolle and Pock's iteration for min over w of max over θ of Σθ(c + <g, w>)."""
        spread = float(np.linalg.norm(self._g - self._g.mean(axis=0), 2))
        slope = self._theta @ self._g
        norm = float(np.linalg.norm(slope))
        if spread == 0 or norm == 0:
            return
        simplex = Simplex()
        start = np.zeros(slope.size) if self.lowest is None else self.lowest
        w = self.constraint.project(start)
        theta, ahead = self._theta, w
        total = np.zeros_like(theta)
        scale = abs(float(self.constraint.support(-slope / norm))) or 1.0  # how far w may go
        for k in range(1, _ITERATIONS + 1):
            theta = simplex.project(theta + (self._c + self._g @ ahead) / (scale * spread))
            next_w = self.constraint.project(w - scale / spread * (theta @ self._g))
            w, ahead = next_w, 2 * next_w - w
            total += theta
            if k % _PERIOD == 0:
                self._try(theta)
                self._try(total / k)
                lowest = float((self._c + self._g @ w).max())
                if lowest - self.bound <= _ENOUGH * abs(self.bound):
                    break
        self.lowest = w
