"""Checks of arguments: each error names the argument, its value and what is allowed."""

import math
from collections.abc import Collection
from numbers import Integral, Real


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """Return ``value`` as a float if it is a finite number within the given bounds.

    >>> number("gamma", 0.5, above=0, at_most=1)
    0.5
    >>> number("gamma", 1.5, above=0, at_most=1)
    Traceback (most recent call last):
        ...
    ValueError: gamma must be a number in (0, 1], got 1.5
    """
    low = f"[{at_least:g}" if at_least is not None else "(-inf" if above is None else f"({above:g}"
    high = f"{at_most:g}]" if at_most is not None else "inf)" if below is None else f"{below:g})"
    wanted = f"{name} must be a number in {low}, {high}"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{wanted}, got {value!r}")
    try:
        x = float(value)
    except OverflowError:  # an integer beyond the largest float
        x = math.inf
    fits = (
        math.isfinite(x)
        and (above is None or x > above)
        and (at_least is None or x >= at_least)
        and (below is None or x < below)
        and (at_most is None or x <= at_most)
    )
    if not fits:
        raise ValueError(f"{wanted}, got {_shown(value)}")
    return x


def integer(name: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """Return ``value`` as an int if it is a whole number within the given bounds."""
    bounds = f"of at least {at_least}" + ("" if at_most is None else f" and at most {at_most}")
    wanted = f"{name} must be an integer {bounds}"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{wanted}, got {value!r}")
    whole = int(value)
    if whole < at_least or (at_most is not None and whole > at_most):
        raise ValueError(f"{wanted}, got {_shown(value)}")
    return whole


def choice(name: str, value: str, allowed: Collection[str]) -> str:
    """Return ``value`` if it is one of ``allowed``."""
    if not isinstance(value, str) or value not in allowed:
        options = ", ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be one of {options}, got {value!r}")
    return value


def _shown(value: object) -> str:
    """The value, if it is not a whole number that Python itself refuses to write down."""
    if isinstance(value, Integral) and int(value).bit_length() > 10_000:
        return f"one of {int(value).bit_length()} bits"
    return repr(value)
