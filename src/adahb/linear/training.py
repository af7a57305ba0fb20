"""Epochs of one linear model: visits, certificates at their ends, history, stopping."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from adahb._whole import Whole
from adahb.linear.certificate import Certificate
from adahb.linear.order import Visits
from adahb.problems.linear import Matrix
from adahb.schedules import Output

if TYPE_CHECKING:
    from adahb.linear.machine import Machine
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]
Reason = Literal["tol", "validation", "max_iter", "interrupted"]
Score = Callable[[Vector, float], float]

PIECE = 1 << 15
"""Samples whose coefficients are in memory at once."""
_EVERY = 16
"""Certificates are made when the epochs have grown by one part in so many since the last."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Another thread has said stop."""


@dataclass(frozen=True)
class Samples:
    """What one model is trained on, and what each row counts for in the objective."""

    X: Matrix
    y: Vector
    visits: Visits
    weights: Vector | None
    """Of the objective: repetitions and class weights multiplied; None is ones."""
    scale: Vector | None
    """What multiplies the gradient at a visit; None is ones."""


def pieces(machine: Machine, samples: Samples, epoch: int) -> Iterator[NDArray[np.intp]]:
    """Yield the rows that an epoch visits, in pieces between which it can be interrupted."""
    return samples.visits.pieces(epoch, machine.model.batch_size, min(PIECE, machine.stretch))


@dataclass
class History:
    """What was seen at the ends of epochs; a value for each certificate."""

    epoch: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    time: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns as arrays of one length."""
        columns = {
            "epoch": np.array(self.epoch, dtype=np.int64),
            "objective": np.array(self.objective, dtype=np.float64),
            "gap": np.array(self.gap, dtype=np.float64),
            "time": np.array(self.time, dtype=np.float64),
        }
        if self.validation:
            columns["validation_score"] = np.array(self.validation, dtype=np.float64)
        return columns


@dataclass(frozen=True)
class Stopping:
    """When to stop: ``tol`` is the relative certified gap, 0 for never."""

    max_iter: int
    tol: float = 0.0
    score: Score | None = None
    """Of the validation rows, higher is better; None without early stopping."""
    patience: int = 5


def require_inside(constraint: ConvexSet | None, coef: Vector) -> None:
    """Raise where rounding has led out of the set, which steps far beyond it do."""
    if constraint is None or not hasattr(constraint, "contains"):
        return
    if not (np.isfinite(coef).all() and constraint.contains(coef)):
        raise FloatingPointError(
            f"the coefficients have left {constraint!r} by rounding, for the steps are so much "
            "longer than it is wide; choose a smaller step size"
        )


@dataclass
class Training:
    """One model in training; ``run`` may be interrupted and leaves everything consistent."""

    machine: Machine
    samples: Samples
    certificate: Certificate
    output: Output
    epochs: int = 0
    """Epochs done in the machine's life: they choose the permutations."""
    name: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set from another thread, it ends ``run`` with `Stopped`, which leaves what was reached."""
    history: History = field(default_factory=History)
    reason: Reason = "max_iter"
    done: int = 0
    """Epochs done by ``run``."""

    @property
    def model(self) -> tuple[Vector, float]:
        """The chosen output: coefficients and intercept."""
        if self.output == "last" or not self.machine.steps:
            return self.machine.coef, self.machine.intercept
        return self.machine.average_coef, self.machine.average_intercept

    @property
    def gap(self) -> float:
        """The certified gap at the last certificate; NaN where nothing is proved."""
        return self.history.gap[-1] if self.history.gap else math.nan

    def run(self, stopping: Stopping, *, verbose: bool = False) -> None:
        """Train until something says stop."""
        start, best, worse, last = time.perf_counter(), -math.inf, 0, 0
        self.reason = "interrupted"
        while self.done < stopping.max_iter:
            self.epoch()
            score = math.nan
            if stopping.score is not None:
                score = stopping.score(*self.model)
                worse = 0 if score > best else worse + 1
                best = max(best, score)
            over = stopping.score is not None and worse >= stopping.patience
            ends = over or self.done == stopping.max_iter
            due = ends or self.done - last >= max(1, self.done // _EVERY)
            if due:
                last = self.done
                self._certify(start)
                if stopping.score is not None:
                    self.history.validation.append(score)
            if verbose:
                self._say(due, score, time.perf_counter() - start)
            if due and self._proved(stopping.tol):
                self.reason = "tol"
                return
            if over:
                self.reason = "validation"
                return
        self.reason = "max_iter"

    def epoch(self) -> None:
        """Visit every row once."""
        for rows in pieces(self.machine, self.samples, self.epochs):
            if self.stop.is_set():
                raise Stopped
            self.machine.run(rows)
        with Whole():
            self.epochs += 1
            self.done += 1

    def _certify(self, start: float) -> None:
        machine = self.machine
        require_inside(machine.model.settings.constraint, self.model[0])
        value = self.certificate.visit(*self.model, machine.dual_sums, machine.visits)
        machine.reset_duals()
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the objective is {value} after epoch {self.epochs}: scale features and targets "
                "to sizes near one"
            )
        bound = self.certificate.lower_bound
        self.history.epoch.append(self.epochs)
        self.history.objective.append(value)
        gap = max(value - bound, 0.0) + self.certificate.doubt
        self.history.gap.append(gap if math.isfinite(bound) else math.nan)
        self.history.time.append(time.perf_counter() - start)

    def _proved(self, tol: float) -> bool:
        return tol > 0 and self.gap <= tol * abs(self.history.objective[-1])

    def _say(self, certified: bool, score: float, seconds: float) -> None:
        line = f"{self.name}epoch {self.epochs}"
        if certified:
            line += f"  objective {self.history.objective[-1]:.6g}  gap {self.gap:.3g}"
        if not math.isnan(score):
            line += f"  validation score {score:.4f}"
        sys.stdout.write(f"{line}  {seconds:.2f} s\n")
