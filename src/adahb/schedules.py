r"""Schedules: what each method multiplies by at step t, and what is guaranteed for it.

A schedule is a small frozen object.  Called with the number of the step, 1, 2, 3, ..., it returns
the step's :class:`Coefficients` in float64.  The formulas t/(t+2), 1 - γ/t and α/√t stand in this
module and nowhere else: kernels receive numbers.

>>> hb = HB(alpha=8.0)
>>> hb(1).beta1, hb(2).beta1
(0.3333333333333333, 0.5)
>>> print(hb.guarantees[0])
last iterate: O(1/sqrt(t)) at every t, Euclidean projection [Theorem 3 of the paper]

A method can be written in two ways.  The *paper form* moves w, with step ``alpha`` and momentum
``beta1``; the *averaging form* moves z, with step ``eta``, and w follows as its weighted mean with
weight ``c`` for the newest z:

    paper       w₊ = P[w - alpha V̂⁻¹ g(w) + beta1 (w - w₋)]
    averaging   z₊ = P[z - eta V̂⁻¹ g(w)],   w₊ = (1 - c) w + c z₊

with alpha = c eta, so that while no projection is active both make the same sequence.

``tick`` slows the clock: the coefficients change every ``tick`` steps only, as
t = 1 + ⌊(step - 1)/tick⌋.  ``tick=1`` is the theory; the steps of an epoch are the paper's setting
for deep networks, about which nothing is proved.  Inside a tick the momentum is constant, hence
there c = 1 - beta1.  The momentum can have a clock of its own: with ``averaging_tick=1`` w is at
every step the weighted mean of all z, whatever clock the steps of z go by.

Steps may be ints, floats, NumPy or other arrays, or tensors, which stay on their device and are not
inspected, so that a step counter on a GPU is never waited for; everything else is checked.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from adahb import _checks as check

Output = Literal["last", "average"]

LATEST = 2**53
"""The last step that float64 tells from the one after it."""
SMALLEST = 1e-300
"""The smallest δ: δ/√t is then a number until the last step."""


class Coefficients(NamedTuple):
    """The numbers of one step; each a float, or an array or a tensor of the step's shape."""

    alpha: Any
    """Step size of the recursion in w."""
    beta1: Any
    """Momentum: the weight of w - w₋."""
    eta: Any
    """Step size of the recursion in z."""
    c: Any
    """Weight of the newest z in w."""
    beta2: Any = None
    """Weight of the old second moment; None where the method is not adaptive."""
    delta: Any = None
    """What is added to the root of the second moment; None where the method is not adaptive."""


@dataclass(frozen=True)
class Guarantee:
    """A proved rate of convergence: of which output, when, and for which projection."""

    output: Output
    rate: Literal["1/sqrt(t)", "log(t)/sqrt(t)"]
    projection: Literal["euclidean", "metric"]
    source: str
    horizon: Literal["anytime", "known"] = "anytime"

    def __str__(self) -> str:
        output = "last iterate" if self.output == "last" else "average"
        when = "at every t" if self.horizon == "anytime" else "at the horizon"
        projection = (
            "Euclidean projection"
            if self.projection == "euclidean"
            else "projection in the metric (for boxes, any)"
        )
        return f"{output}: O({self.rate}) {when}, {projection} [{self.source}]"


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """What all schedules share: the constant α of the step size, and the clock."""

    alpha: float
    tick: int = 1

    extrapolates: ClassVar[bool] = False
    """Whether the subgradient is taken at w + beta1 (w - w₋) and not at w."""
    _guarantees: ClassVar[tuple[Guarantee, ...]] = ()

    def __post_init__(self) -> None:
        self._set("alpha", check.number("alpha", self.alpha, above=0))
        self._set("tick", check.integer("tick", self.tick, at_least=1, at_most=LATEST))

    def __call__(self, step: Any) -> Coefficients:
        """Return the coefficients of step 1, 2, 3, ...; a shape in gives that shape out."""
        at = self._at(self.time(step))
        if self.tick == 1:
            return at
        constant = self._weight_of_newest(self.time(step), at)
        return at._replace(c=constant, eta=at.alpha / constant)

    def _weight_of_newest(self, t: Any, at: Coefficients) -> Any:  # noqa: ARG002
        """Return 1 - beta1, the c of a constant momentum."""
        return 1.0 - at.beta1

    def time(self, step: Any) -> Any:
        """Return the clock's t at step 1, 2, 3, ..., in float64."""
        return _slowed(step, self.tick)

    @property
    def period(self) -> int:
        """Steps in which no coefficient changes; they come one after another from step 1."""
        return self.tick

    @abstractmethod
    def _at(self, t: Any) -> Coefficients:
        """Coefficients at the clock's t, a float64 of any shape."""

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """What is proved for a convex objective on a bounded set; empty where nothing is."""
        return self._guarantees if self.tick == 1 else ()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class PSG(Schedule):
    """Projected subgradient: α_t = α/√t."""

    _guarantees = (
        Guarantee("average", "1/sqrt(t)", "euclidean", "Zinkevich 2003"),
        Guarantee("last", "log(t)/sqrt(t)", "euclidean", "Harvey et al. 2019, tight"),
    )

    def _at(self, t: Any) -> Coefficients:
        return _plain(self.alpha / _math(t).sqrt(t))


@dataclass(frozen=True, kw_only=True)
class LinearDecay(Schedule):
    """Projected subgradient with α_t = α (T + 1 - t)/(T + 1)^{3/2} [Zamani & Glineur 2023].

    With α = R/G (distance to the solution over a bound of the subgradients) the iterate after the
    T-th step, w_{T+1}, is within G R/√(T + 1) of the optimum, which no method improves; T must be
    known.
    """

    horizon: int

    _guarantees = (Guarantee("last", "1/sqrt(t)", "euclidean", "Zamani & Glineur 2023", "known"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        horizon = check.integer("horizon", self.horizon, at_least=1, at_most=LATEST)
        self._set("horizon", horizon)

    def _at(self, t: Any) -> Coefficients:
        _within_horizon(t, self.horizon)
        return _plain(self.alpha * (self.horizon + 1 - t) / (self.horizon + 1) ** 1.5)


@dataclass(frozen=True, kw_only=True)
class JainNagarajNetrapalli(Schedule):
    """Projected subgradient with α_t = α 2^{-i}/√T while T - ⌈T 2^{-i}⌉ < t ≤ T - ⌈T 2^{-i-1}⌉.

    The step is halved in phases that each take half of what remains of the horizon T; the last
    phase is the T-th step alone [Jain, Nagaraj & Netrapalli 2019].
    """

    horizon: int

    _guarantees = (
        Guarantee("last", "1/sqrt(t)", "euclidean", "Jain, Nagaraj & Netrapalli 2019", "known"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        horizon = check.integer("horizon", self.horizon, at_least=1, at_most=LATEST)
        self._set("horizon", horizon)

    def _at(self, t: Any) -> Coefficients:
        _within_horizon(t, self.horizon)
        # t is past T - ⌈T/2^i⌉ while 2^i < T/(T - t); the half makes the last step its own phase.
        left = self.horizon - t + 0.5 * (t >= self.horizon)
        phase = _math(t).ceil(_math(t).log2(self.horizon / left)) - 1.0
        return _plain(self.alpha * 2.0**-phase / math.sqrt(self.horizon))


@dataclass(frozen=True, kw_only=True)
class NAG(Schedule):
    """Nesterov's extrapolation, θ_t = 2/(t + 1) and α_t = α/((t + 1)√t) [Tao et al. 2020].

    y = w + θ_t(1/θ_{t-1} - 1)(w - w₋),  w₊ = P[y - α_t g(y)].  The ICLR paper compares with this
    method without printing it: the coefficients are a reconstruction.  ``beta1`` is the weight of
    w - w₋ in y.
    """

    extrapolates = True
    _guarantees = (Guarantee("last", "1/sqrt(t)", "euclidean", "Tao et al. 2020, reconstructed"),)

    def _at(self, t: Any) -> Coefficients:
        theta, theta_before = 2.0 / (t + 1.0), 2.0 / t
        alpha = self.alpha / ((t + 1.0) * _math(t).sqrt(t))
        return Coefficients(alpha, theta * (1.0 / theta_before - 1.0), eta=alpha, c=1.0 + 0.0 * t)

    def _weight_of_newest(self, t: Any, at: Coefficients) -> Any:  # noqa: ARG002
        return 3.0 / (t + 1.0)


@dataclass(frozen=True, kw_only=True)
class HB(Schedule):
    """The heavy ball whose last iterate is optimal: β_t = t/(t + 2), α_t = α/((t + 2)√t).

    ``power=r`` averages z with weights that grow like t^r.  With c_t = (r + 1)/(t + r + 1),

        β_t = c_{t+1}(1 - c_t)/c_t,   α_t = c_{t+1} η_t,   η_t = α/√t,

    of which r = 0 is the paper; r > 0 forgets the beginning faster and keeps the rate.
    """

    power: float = 0.0
    averaging_tick: int | None = None
    """Steps that share one t in c and β; None is ``tick``."""

    _guarantees = (Guarantee("last", "1/sqrt(t)", "euclidean", "Theorem 3 of the paper"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("power", check.number("power", self.power, at_least=0))
        if self.averaging_tick is not None:
            wanted = self.averaging_tick
            tick = check.integer("averaging_tick", wanted, at_least=1, at_most=LATEST)
            self._set("averaging_tick", None if tick == self.tick else tick)

    def __call__(self, step: Any) -> Coefficients:
        """Return the coefficients of step 1, 2, 3, ...; a shape in gives that shape out."""
        if self.averaging_tick is None:
            return super().__call__(step)
        at = self._at(self.time(step))
        c, beta1 = self._averaging(_slowed(step, self.averaging_tick))
        if self.averaging_tick > 1:
            c = 1.0 - beta1
        return at._replace(alpha=c * at.eta, beta1=beta1, c=c)

    @property
    def period(self) -> int:
        """Steps in which no coefficient changes; they come one after another from step 1."""
        return math.gcd(self.tick, self.averaging_tick or self.tick)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """What is proved; the theorem is r = 0, and its proof goes through with weights t^r."""
        if self.averaging_tick is not None:
            return ()
        weights = f", its proof with weights t^{self.power:g}" if self.power else ""
        return tuple(replace(g, source=g.source + weights) for g in super().guarantees)

    def _at(self, t: Any) -> Coefficients:
        c, beta1 = self._averaging(t)
        eta = self.alpha / _math(t).sqrt(t)
        return Coefficients(alpha=c * eta, beta1=beta1, eta=eta, c=c)

    def _averaging(self, t: Any) -> tuple[Any, Any]:
        """c_{t+1} and β_t, without the division of small numbers: (1 - c_t)/c_t = t/(r + 1)."""
        r = self.power
        return (r + 1.0) / (t + r + 2.0), t / (t + r + 2.0)

    def _weight_of_newest(self, t: Any, at: Coefficients) -> Any:  # noqa: ARG002
        # 1 - β_t without the difference of numbers that are nearly equal
        return (self.power + 2.0) / (t + self.power + 2.0)


@dataclass(frozen=True, kw_only=True)
class HBConstant(Schedule):
    """The heavy ball as everybody runs it: β constant, α_t = α/√t; its *average* is optimal."""

    beta: float = 0.9

    _guarantees = (Guarantee("average", "1/sqrt(t)", "euclidean", "Theorem 4 of the paper"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("beta", check.number("beta", self.beta, at_least=0, below=1))

    def _at(self, t: Any) -> Coefficients:
        alpha = self.alpha / _math(t).sqrt(t)
        c = 1.0 - self.beta
        return Coefficients(alpha, self.beta + 0.0 * t, eta=alpha / c, c=c + 0.0 * t)


@dataclass(frozen=True, kw_only=True)
class Adaptive(Schedule):
    """The second moment: V_t = β2_t V_{t-1} + (1 - β2_t) g², β2_t = 1 - γ/t, V̂_t = √V_t + δ/√t."""

    gamma: float = 0.1
    delta: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("gamma", check.number("gamma", self.gamma, above=0, at_most=1))
        self._set("delta", check.number("delta", self.delta, at_least=SMALLEST))

    def _at(self, t: Any) -> Coefficients:
        return (
            super()
            ._at(t)  # type: ignore[safe-super]
            ._replace(beta2=1.0 - self.gamma / t, delta=self.delta / _math(t).sqrt(t))
        )


@dataclass(frozen=True, kw_only=True)
class AdaHB(Adaptive, HB):
    """Algorithm 1: the heavy ball of :class:`HB`, each coordinate's step divided by V̂_t."""

    _guarantees = (Guarantee("last", "1/sqrt(t)", "metric", "Theorem 5 of the paper"),)


@dataclass(frozen=True, kw_only=True)
class AdaHBConstant(Adaptive, HBConstant):
    """Algorithm 1 with constant momentum and α_t = α/√t; its *average* is optimal.

    The step size is that of the paper's equation for constant momentum and of Theorem 6; the line
    of Algorithm 1 would read αβ/(t√t) here, for which nothing is proved.
    """

    _guarantees = (Guarantee("average", "1/sqrt(t)", "metric", "Theorem 6 of the paper"),)


def best_alpha(
    diameter: float, *, lipschitz: float | None = None, gamma: float | None = None
) -> float:
    """The α that minimises the bound of Theorem 3, or with ``gamma`` that of Theorem 5.

    Theorem 3: α M² + D²/(2α), with M = ``lipschitz`` and D the l2 diameter of the set.
    Theorem 5: α(2 - γ)/γ + D²/(2α) times a factor without α, D being the largest distance in one
    coordinate; the gradients do not matter, which is what adapting is for.
    """
    D = check.number("diameter", diameter, above=0)
    if (lipschitz is None) == (gamma is None):
        raise ValueError(
            f"one of lipschitz and gamma must be given, got {lipschitz!r} and {gamma!r}"
        )
    if lipschitz is not None:
        return D / (math.sqrt(2) * check.number("lipschitz", lipschitz, above=0))
    gamma = check.number("gamma", gamma, above=0, at_most=1)
    return D * math.sqrt(gamma / (2 * (2 - gamma)))


def require_no_averaging(power: float, averaging_tick: int | None) -> None:
    """Refuse what says how the weights of t/(t+2) go, where momentum is constant."""
    if power != 0:
        raise ValueError(f"power must be 0 with constant momentum, got {power!r}")
    if averaging_tick is not None:
        raise ValueError(
            f"averaging_tick must be None with constant momentum, got {averaging_tick!r}"
        )


def _slowed(step: Any, tick: int) -> Any:
    """The t of a clock that goes on every ``tick`` steps."""
    t = _clock(step)
    return t if tick == 1 else (t - 1.0) // tick + 1.0


def _plain(alpha: Any) -> Coefficients:
    """Coefficients without momentum: w and z are one."""
    return Coefficients(alpha, 0.0 * alpha, eta=alpha, c=1.0 + 0.0 * alpha)


def _clock(step: Any) -> Any:
    """``step`` in float64; numbers and NumPy arrays must be finite and at least 1."""
    if isinstance(step, Real) and not isinstance(step, np.generic):
        return check.number("step", step, at_least=1)
    if isinstance(step, (np.ndarray, np.generic, list, tuple)):  # torch.compile reads no unions
        t = _float64(step)
        if not np.all((t >= 1) & np.isfinite(t)):
            raise ValueError(f"step must be finite and at least 1, got {step!r}")
        return t if t.ndim else float(t)
    if hasattr(step, "double"):  # a torch tensor
        return step.double()
    if hasattr(step, "__array_namespace__"):
        return step.astype(step.__array_namespace__().float64)
    raise TypeError(f"step must be a number, an array or a tensor, got {step!r}")


def _float64(step: Any) -> Any:
    """An array of numbers in float64."""
    steps = np.asarray(step)
    if steps.dtype.kind not in "iuf" and steps.size:
        raise TypeError(f"step must be real numbers, got {step!r}")
    return steps.astype(np.float64)


def _math(t: Any) -> Any:
    """The module whose sqrt, ceil and log2 take ``t``."""
    if isinstance(t, float):
        return math
    if hasattr(t, "__array_namespace__"):
        return t.__array_namespace__()
    import torch

    return torch


def _within_horizon(t: Any, horizon: int) -> None:
    beyond = isinstance(t, (float, np.ndarray)) and t > horizon
    if beyond if isinstance(beyond, bool) else beyond.any():
        raise ValueError(f"step must be at most the horizon of {horizon} ticks, got {t!r}")
