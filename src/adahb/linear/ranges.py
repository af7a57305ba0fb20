"""The sizes of numbers that linear models are trained with, so that nothing overflows unseen.

Gradients are squared, summed and divided by; of sizes up to these every intermediate result is a
float, and beyond them there is an error instead of a NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adahb.sets.arrays import power_of_two_below

if TYPE_CHECKING:
    from adahb.problems.linear import Matrix

Vector = NDArray[np.float64]

LARGEST = 1e40
"""Of features and targets: more than float32 can hold."""

WIDEST = 1e100
"""Of the set and the step size; one over it is the smallest."""

UNEVEN = 2.0**40
"""Weights beyond it, or below one over it, are divided by a common factor."""


def largest(values: Matrix) -> float:
    """Return the size of the largest number."""
    numbers: Any = values if isinstance(values, np.ndarray) else values.data
    return max(float(numbers.max()), -float(numbers.min())) if numbers.size else 0.0


def require_held(name: str, values: Matrix) -> None:
    """Refuse numbers beyond `LARGEST`."""
    most = largest(values)
    if most > LARGEST:
        raise ValueError(
            f"{name} must hold numbers of at most {LARGEST:g} in size, got {most:g}: scale it"
        )


def require_size(name: str, owner: object, sizes: list[float]) -> None:
    """Refuse what is too large or too small to be trained with, zero aside."""
    for size in sizes:
        if size and not 1 / WIDEST <= size <= WIDEST:
            raise ValueError(
                f"{name} must have a size between {1 / WIDEST:g} and {WIDEST:g}, got {owner!r}"
            )


def of_set(constraint: object) -> list[float]:
    """Return the radius or the total of a set; of a box the largest bound if it is too large."""
    named = [getattr(constraint, name, None) for name in ("radius", "total")]
    bounds = [np.abs(np.asarray(b)) for b in getattr(constraint, "_bounds", ())]
    most = max((float(b[np.isfinite(b)].max(initial=0.0)) for b in bounds), default=0.0)
    return [float(size) for size in named if size is not None] + [max(most, 1.0)]


def even(weights: Vector | None) -> Vector | None:
    """Return weights near one: only their ratios matter, and those stay as they are."""
    if weights is None:
        return None
    most = float(weights.max())
    if 1 / UNEVEN <= most <= UNEVEN or not most > 0:
        return weights
    return weights / power_of_two_below(most)
