r"""The methods of the paper in float64 NumPy, line for line: slow, readable, the yardstick.

>>> import numpy as np
>>> from adahb.problems import HardFunction
>>> from adahb.sets import L2Ball
>>> run = hb(HardFunction(T=100), 100, alpha=8.0, constraint=L2Ball(1.0))
>>> f"{run.certificate.value:.4f}"
'0.0079'

Every method is the same loop (:func:`run`) under another schedule.  ``form`` chooses what is
projected.  The *paper* form projects w.  The *averaging* form keeps z = w + p, projects z and lets
w be the weighted mean of the z, so that the mean the theory speaks of is the iterate itself.  With
no projection active the two make the same sequence.  The averaging form is the default because z
then never leaves the set, as the proofs need; on hinge losses the paper form is often the closer.

For the adaptive methods ``projection`` is "metric" (that of the norm V̂, which the proofs use) or
"euclidean" (Algorithm 1 as printed, which can stop at the wrong point on sets that are not boxes).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from adahb import _checks as check
from adahb import schedules
from adahb._oracles import Evidence, Sampling, oracle
from adahb.certificates import Certificate
from adahb.schedules import Coefficients, Output, Schedule

if TYPE_CHECKING:
    from adahb.problems import Objective
    from adahb.sets import ConvexSet

Vector = NDArray[np.float64]
Form = Literal["averaging", "paper"]
Projection = Literal["metric", "euclidean"]
Draw = Callable[[int, Vector], tuple[float, Vector]]


class Point(NamedTuple):
    """What a step moves."""

    w: Vector
    """The iterate: where the next subgradient is taken."""
    u: Vector
    """w - w₋, the momentum buffer."""
    z: Vector
    """w + p."""
    v: Vector
    """V, the second moment."""


class Step(NamedTuple):
    """One step of a run, as its ``callback`` sees it."""

    step: int
    coefficients: Coefficients
    w: Vector
    value: float
    """f(w); of a mini-batch run, NaN."""
    g: Vector
    v_hat: Vector | float
    """V̂; 1 where the method is not adaptive."""
    z: Vector
    """w + p."""
    w_next: Vector
    z_next: Vector


@dataclass(frozen=True)
class Settings:
    """How a method is run: what a continuation must have in common with the run it continues."""

    constraint: ConvexSet | None = None
    form: Form = "averaging"
    projection: Projection = "metric"
    batch_size: int | None = None
    sampling: Sampling = "independent"
    seed: int = 0

    def __post_init__(self) -> None:
        projects = hasattr(self.constraint, "project") and not isinstance(self.constraint, type)
        if self.constraint is not None and not projects:
            raise TypeError(f"constraint must be a set or None, got {self.constraint!r}")
        check.choice("form", self.form, ("averaging", "paper"))
        check.choice("projection", self.projection, ("metric", "euclidean"))
        check.choice("sampling", self.sampling, ("independent", "epochs"))
        check.integer("seed", self.seed, at_least=0)
        if self.batch_size is not None:
            check.integer("batch_size", self.batch_size, at_least=1)

    def moves_z(self, schedule: Schedule) -> bool:
        """Whether z is projected; without a constraint the recursion in w defines both forms."""
        averaging = self.form == "averaging" and self.constraint is not None
        return averaging and not schedule.extrapolates

    def project(self, x: Vector, v_hat: Vector | float) -> Vector:
        """P_Q[x], in the metric V̂ if there is one and it is asked for."""
        if self.constraint is None:
            return x
        metric = v_hat if isinstance(v_hat, np.ndarray) and self.projection == "metric" else None
        return cast("Vector", self.constraint.project(x, metric))


@dataclass(frozen=True)
class State:
    """All that the next step needs."""

    schedule: Schedule
    settings: Settings
    step: int
    """Steps done."""
    point: Point
    average: Vector
    """(1/t) (w_1 + ... + w_t) over the steps done."""
    evidence: Evidence | None


@dataclass(frozen=True)
class Trace:
    """What was recorded: arrays of one length."""

    step: NDArray[np.int64]
    value: Vector
    """f(w_t)."""
    average_value: Vector
    """f of the mean of w_1, ..., w_t."""
    lower_bound: Vector
    """A number proved to be at most f*; -inf where nothing is proved."""

    @property
    def gap(self) -> Vector:
        """The certified gap of the last iterate, f(w_t) minus the lower bound."""
        return self.value - self.lower_bound


@dataclass(frozen=True)
class Run:
    """The result of T steps: T subgradients were taken, the last one at ``last``."""

    output: Output
    last: Vector
    """w_T."""
    average: Vector
    """(1/T) (w_1 + ... + w_T)."""
    certificate: Certificate
    """Of the chosen output."""
    trace: Trace
    state: State
    """Where a continuation starts: it holds w_{T+1}."""

    @property
    def w(self) -> Vector:
        """The chosen output."""
        return self.last if self.output == "last" else self.average


class Options(TypedDict, total=False):
    """What every method takes beside its own parameters; see :func:`run`."""

    w0: Vector | None
    constraint: ConvexSet | None
    form: Form
    projection: Projection
    output: Output
    batch_size: int | None
    sampling: Sampling
    seed: int
    record: int | Collection[int] | None
    callback: Callable[[Step], None] | None
    resume: State | None


def psg(objective: Objective, steps: int, *, alpha: float, **options: Unpack[Options]) -> Run:
    """Projected subgradient, w₊ = P[w - (α/√t) g(w)]."""
    return run(objective, steps, schedules.PSG(alpha=alpha), **options)


def nag(objective: Objective, steps: int, *, alpha: float, **options: Unpack[Options]) -> Run:
    """Nesterov's extrapolation with the steps of :class:`adahb.schedules.NAG`; it has one form."""
    return run(objective, steps, schedules.NAG(alpha=alpha), **options)


def hb(
    objective: Objective,
    steps: int,
    *,
    alpha: float,
    momentum: float | None = None,
    power: float = 0.0,
    tick: int = 1,
    averaging_tick: int | None = None,
    **options: Unpack[Options],
) -> Run:
    """The heavy ball; ``momentum=None`` is t/(t+2), a number is constant."""
    schedule: Schedule
    if momentum is None:
        schedule = schedules.HB(alpha=alpha, power=power, tick=tick, averaging_tick=averaging_tick)
    else:
        schedules.require_no_averaging(power, averaging_tick)
        schedule = schedules.HBConstant(alpha=alpha, beta=momentum, tick=tick)
    return run(objective, steps, schedule, **options)


def adahb(
    objective: Objective,
    steps: int,
    *,
    alpha: float,
    gamma: float = 0.1,
    delta: float = 1e-8,
    momentum: float | None = None,
    power: float = 0.0,
    tick: int = 1,
    averaging_tick: int | None = None,
    **options: Unpack[Options],
) -> Run:
    """Algorithm 1, the adaptive heavy ball; ``momentum=None`` is t/(t+2), a number is constant."""
    schedule: Schedule
    if momentum is None:
        schedule = schedules.AdaHB(
            alpha=alpha,
            gamma=gamma,
            delta=delta,
            power=power,
            tick=tick,
            averaging_tick=averaging_tick,
        )
    else:
        schedules.require_no_averaging(power, averaging_tick)
        schedule = schedules.AdaHBConstant(
            alpha=alpha, gamma=gamma, delta=delta, beta=momentum, tick=tick
        )
    return run(objective, steps, schedule, **options)


def run(
    objective: Objective,
    steps: int,
    schedule: Schedule,
    *,
    w0: Vector | None = None,
    constraint: ConvexSet | None = None,
    form: Form = "averaging",
    projection: Projection = "metric",
    output: Output = "last",
    batch_size: int | None = None,
    sampling: Sampling = "independent",
    seed: int = 0,
    record: int | Collection[int] | None = None,
    callback: Callable[[Step], None] | None = None,
    resume: State | None = None,
) -> Run:
    """Run ``steps`` steps of the method that ``schedule`` makes.

    ``w0`` is zero if not given, and is projected if it is outside of ``constraint``.
    ``batch_size=None`` takes full subgradients; a number takes means over that many samples, drawn
    with replacement (``sampling="independent"``) or by walking through a new permutation in every
    epoch (``"epochs"``).  What is drawn at a step depends on ``seed`` and the step alone.
    ``record`` says at which steps f is evaluated for the trace: every so many, or those given; by
    default every step with full subgradients and every epoch with samples.
    ``callback`` sees every :class:`Step`.
    ``resume`` continues another run from its ``state``, with the steps it would have gone on to.
    """
    check.integer("steps", steps, at_least=1)
    check.choice("output", output, ("last", "average"))
    if not isinstance(schedule, Schedule):
        raise TypeError(f"schedule must be one of adahb.schedules, got {schedule!r}")
    if resume is not None and not isinstance(resume, State):
        raise TypeError(f"resume must be the state of a run, got {type(resume).__name__}")
    settings = Settings(constraint, form, projection, batch_size, sampling, seed)
    state = resume or _start(objective, schedule, settings, w0)
    if resume is not None:
        _check_continuation(resume, objective, schedule, settings, w0)
    source = oracle(
        objective,
        constraint,
        deepcopy(state.evidence),
        batch_size=batch_size,
        sampling=sampling,
        seed=seed,
    )
    recorded = _recorded(record, source.epoch)

    point, average = state.point, state.average
    stop = state.step + steps
    value_is_known = batch_size is None and not schedule.extrapolates
    rows: list[tuple[int, float, float, float]] = []
    for t in range(state.step + 1, stop + 1):
        taken, point_next = take_step(t, point, source.draw, schedule, settings)
        last = point.w
        average = average + (last - average) / t
        if t == stop or t in recorded:
            value = taken.value if value_is_known else objective.value(last)
            rows.append((t, value, objective.value(average), source.lower_bound()))
        if callback is not None:
            callback(taken)
        point = point_next

    _, value, average_value, lower_bound = rows[-1]
    return Run(
        output=output,
        last=last,
        average=average,
        certificate=Certificate(value if output == "last" else average_value, lower_bound),
        trace=_trace(rows if stop in recorded else rows[:-1]),
        state=State(schedule, settings, stop, point, average, source.evidence),
    )


def take_step(
    t: int, point: Point, draw: Draw, schedule: Schedule, settings: Settings
) -> tuple[Step, Point]:
    """Make step t from ``point``: lines 3 to 6 of Algorithm 1, and the same for its relatives."""
    w, u, z, v = point
    at = schedule(t)
    y = w + at.beta1 * u if schedule.extrapolates else w
    value, g = draw(t, y)  # line 3
    v_hat: Vector | float = 1.0
    if at.beta2 is not None:
        v = at.beta2 * v + (1 - at.beta2) * _squared(t, g)  # line 4
        v_hat = np.sqrt(v) + at.delta  # line 5
    if settings.moves_z(schedule):
        z_next = settings.project(z - at.eta * g / v_hat, v_hat)
        w_next = (1 - at.c) * w + at.c * z_next
        u_next = w_next - w
    else:
        u_next = at.beta1 * u - at.alpha * g / v_hat
        w_next = settings.project(w + u_next, v_hat)  # line 6
        u_next = u_next + (w_next - (w + u_next))  # w₊ - w, and to the last digit if P did nothing
        z_next = w_next + (1 - at.c) / at.c * u_next
    taken = Step(t, at, w, value, g, v_hat, z, w_next, z_next)
    return taken, Point(w_next, u_next, z_next, v)


def _squared(t: int, g: Vector) -> Vector:
    """g², where float64 has it: an infinite one would silently stop the method."""
    try:
        with np.errstate(over="raise"):
            return g**2
    except FloatingPointError as error:
        raise FloatingPointError(
            f"the subgradient at step {t} must be at most 1.3e154, for its square to be finite, "
            f"got {np.abs(g).max():.2g}: scale the objective"
        ) from error


def _start(
    objective: Objective, schedule: Schedule, settings: Settings, w0: Vector | None
) -> State:
    zero = np.zeros(objective.dim)
    try:
        w = zero if w0 is None else np.array(w0, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"w0 must be {objective.dim} finite numbers, got {w0!r}") from error
    if w.shape != zero.shape or not np.isfinite(w).all():
        raise ValueError(f"w0 must be {objective.dim} finite numbers, got {w0!r}")
    w = settings.project(w, 1.0)
    return State(schedule, settings, 0, Point(w, zero, w, zero), zero, None)


def _check_continuation(
    state: State,
    objective: Objective,
    schedule: Schedule,
    settings: Settings,
    w0: Vector | None,
) -> None:
    if w0 is not None:
        raise ValueError("w0 must be left out with resume: the state holds the iterate")
    for name, old, new in (
        ("schedule", state.schedule, schedule),
        ("settings", state.settings, settings),
        ("dimension of the objective", state.point.w.size, objective.dim),
    ):
        if old != new:
            raise ValueError(f"resume must continue with the same {name}, {old!r}, got {new!r}")


def _recorded(record: int | Collection[int] | None, epoch: int) -> Collection[int]:
    """The steps at which f is evaluated, as a container."""
    if record is None:
        record = epoch
    if isinstance(record, Collection):
        return frozenset(check.integer("record", step, at_least=1) for step in record)
    return range(0, sys.maxsize, check.integer("record", record, at_least=1))


def _trace(rows: list[tuple[int, float, float, float]]) -> Trace:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return Trace(table[:, 0].astype(np.int64), *table[:, 1:].T)
