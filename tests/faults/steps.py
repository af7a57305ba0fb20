"""Ten million steps in float32 beside float64: on a small problem that has an answer.

The steps are those of the compiled CPU kernel of the torch optimizers, called in a compiled loop
with the coefficients that an optimizer would give it, each rounded to the dtype as there; `check`
compares the first steps with the optimizer's own, bit for bit, and with the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numba
import numpy as np
import torch

from adahb import optim, schedules
from adahb.optim.kernels import cpu
from adahb.optim.numbers import numbers
from adahb.optim.update import Recipe
from adahb.reference import Point, Settings, take_step
from adahb.sets import Box

Vector = np.ndarray[Any, Any]
N, D, LR = 32, 8, 0.5
BOX = Box(-1.0, 1.0)
METHODS = ("AdaHB", "HB", "NAG", "PSG")
CHUNK = 100_000


def problem(dtype: Any) -> tuple[Vector, Vector]:
    """Least squares whose rows come in turn; some bounds hold at the solution, others do not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    y = X @ np.linspace(-1.5, 1.5, D) + rng.normal(size=N)
    return X.astype(np.float32).astype(dtype), y.astype(np.float32).astype(dtype)


def schedule(method: str) -> schedules.Schedule:
    made: schedules.Schedule = getattr(schedules, method)(alpha=1.0)
    return made


def recipe(method: str) -> Recipe:
    w = torch.nn.Parameter(torch.zeros(D))
    optimizer = _optimizer(method, w)
    return optimizer._recipe(optimizer.param_groups[0])


def _optimizer(method: str, w: Any, **options: Any) -> Any:
    made = getattr(optim, method)
    return made([w], lr=LR, tick=1, constraint=BOX, **options)


@numba.njit  # type: ignore[untyped-decorator]
def gradient(X: Vector, y: Vector, w: Vector, step: int, g: Vector) -> None:
    """Of the row whose turn it is at the step."""
    i = step * 5 % y.size
    residual = -y[i]
    for j in range(w.size):
        residual += X[i, j] * w[j]
    for j in range(w.size):
        g[j] = residual * X[i, j]


@cache
def _loop(method: str) -> Callable[..., None]:
    """Steps of the kernel, one after the other."""
    how = recipe(method)
    run = cpu._loop(how)

    @numba.njit  # type: ignore[untyped-decorator]
    def steps(
        X: Vector, y: Vector, w: Vector, g: Vector, table: Vector, ends: Vector, at: Vector,
        first: int,
    ) -> None:  # fmt: skip
        for k in range(len(at)):
            gradient(X, y, w, first + k, g)
            run(table, ends, 0, w.size, at[k], -1.0, 1.0)

    made: Callable[..., None] = steps
    return made


class Kernel:
    """A model that the kernel trains."""

    def __init__(self, method: str, dtype: Any) -> None:
        self.method, self.dtype, self.steps = method, dtype, 0
        self.how = recipe(method)
        # w, g, the buffer, v and the average: zero is where all of them start
        self.arrays = [np.zeros(D, dtype=dtype) for _ in range(5)]
        self.X, self.y = problem(dtype)
        self.table = np.array([[a.ctypes.data] for a in self.arrays], dtype=np.int64)
        self.ends = np.array([D], dtype=np.int64)

    def train(self, until: int) -> Vector:
        """Go on until that step; return the output that is guaranteed."""
        while self.steps < until:
            t = np.arange(self.steps + 1, min(self.steps + CHUNK, until) + 1)
            parts = cpu._numbers(numbers(schedule(self.method), LR, t), self.how)
            largest = self.how.largest(torch.from_numpy(np.empty(0, self.dtype)).dtype)
            columns = np.broadcast_arrays(*parts, -1.0, 1.0, largest)
            at = np.stack(columns, axis=1).astype(self.dtype)
            w, g = self.arrays[:2]
            _loop(self.method)(self.X, self.y, w, g, self.table, self.ends, at, self.steps + 1)
            self.steps += t.size
        return self.arrays[4 if self.how.keeps_average else 0]


def marks(last: int) -> list[int]:
    """Steps at which to look: eight in each power of ten."""
    powers = 8 * math.log10(last)
    return sorted({round(10 ** (k / 8)) for k in range(int(powers) + 1)} | {last})


def distances(method: str, last: int) -> list[float]:
    """The largest difference of a coordinate between float32 and float64, at the marks."""
    narrow, wide = Kernel(method, np.float32), Kernel(method, np.float64)
    return [float(np.abs(narrow.train(t) - wide.train(t)).max()) for t in marks(last)]


def by_torch(method: str, dtype: Any, **options: Any) -> Iterator[Vector]:
    """What the torch optimizer makes of each step, in the parameter."""
    X, y = problem(dtype)
    w = torch.nn.Parameter(torch.from_numpy(np.zeros(D, dtype=dtype)))
    optimizer = _optimizer(method, w, **options)
    g, step = np.zeros(D, dtype=dtype), 0
    w.grad = torch.from_numpy(g)
    here = w.detach().numpy()
    while True:
        step += 1
        gradient(X, y, here, step, g)
        optimizer.step()
        yield optimizer.state[w]["average"].numpy() if method == "PSG" else here


def compensated(method: str, last: int) -> list[float]:
    """As `distances`, of the torch optimizer with rounding="compensated"."""
    steps = by_torch(method, np.float32, rounding="compensated")
    wide, found, at = Kernel(method, np.float64), [], set(marks(last))
    for step, output in zip(range(1, last + 1), steps, strict=False):
        if step in at:
            found.append(float(np.abs(output - wide.train(step)).max()))
    return found


def check(method: str, steps: int) -> float:
    """Compare with the optimizer bit for bit; return the distance of float64 from the reference."""
    for dtype in (np.float32, np.float64):
        kernel = Kernel(method, dtype)
        for step, output in zip(range(1, steps + 1), by_torch(method, dtype, fused=True)):  # noqa: B905
            assert np.array_equal(kernel.train(step), output), f"{method}, {dtype}, step {step}"
    X, y = problem(np.float64)

    def draw(t: int, w: Vector) -> tuple[float, Vector]:
        g = np.zeros(D)
        gradient(X, y, w, t, g)
        return math.nan, g

    zero, average = np.zeros(D), np.zeros(D)
    point = Point(zero, zero, zero, zero)
    told: Any = getattr(schedules, method)(alpha=LR)
    for t in range(1, steps + 1):
        average = average + (point.w - average) / t
        _, point = take_step(t, point, draw, told, Settings(BOX, "averaging", "metric", None))
    here = average if method == "PSG" else point.w
    if method == "NAG":  # the parameter holds the point at which gradients are taken
        here = point.w + told(steps + 1).beta1 * point.u
    return float(np.abs(kernel.train(steps) - here).max())
