"""The loops that a linear model can be trained with, all of which make the same steps.

lazy     the averaging form, at the cost of the row's nonzeros
dense    every coordinate in every step, compiled; for few features and for dense rows
general  NumPy, one step at a time, for every set, loss and schedule: the yardstick
"""

from adahb.linear.loops.base import Loop, Model, Place, Samples
from adahb.linear.loops.dense import Dense
from adahb.linear.loops.general import General
from adahb.linear.loops.lazy import Lazy

__all__ = ["Dense", "General", "Lazy", "Loop", "Model", "Place", "Samples", "choose"]

LOOPS: tuple[type[Loop], ...] = (Lazy, Dense, General)
"""The fastest first."""


def choose(model: Model, samples: Samples, name: str | None = None) -> type[Loop]:
    """Return the fastest loop that can train the model on such samples, or the one of that name."""
    for loop in LOOPS:
        if name in (None, loop.name):
            reason = loop.refuses(model, samples)
            if reason is None:
                return loop
            if name is not None:
                raise ValueError(f"loop={name!r} cannot be used: {reason}")
    names = ", ".join(repr(loop.name) for loop in LOOPS)
    raise ValueError(f"loop must be None or one of {names}, got {name!r}")
