"""The averaging form at the cost of the row: a coordinate is settled when it is touched.

It covers what leaves z alone where a step does not touch it, up to numbers that all coordinates
share: no constraint, bounds on each coordinate, and the l1 ball (`adahb.linear.loops.lazy_l1`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from scipy import sparse

from adahb import schedules
from adahb.certificates import DualAverages
from adahb.linear.loops.base import (
    BOXES,
    Loop,
    Model,
    Order,
    Place,
    Samples,
    Vector,
    bounds,
    no_average,
    not_finite,
    per_row,
)
from adahb.linear.loops.derivatives import coded
from adahb.reference import Point
from adahb.sets import L1Ball

CHUNK = 1 << 16
"""Steps whose coefficients are made together."""

LOW, TINY = 1e-50, 1e-200
"""A product of coefficients below the first begins anew at 1; none falls below the second."""

FAR = 1.0
"""How many times m t may be left of what the sum of the m to come was taken for."""

LARGE = 1 << 15
"""Bytes of state from which memory is asked for before it is needed."""

KNOWN = (
    schedules.PSG,
    schedules.LinearDecay,
    schedules.JainNagarajNetrapalli,
    schedules.HB,
    schedules.HBConstant,
    schedules.AdaHB,
    schedules.AdaHBConstant,
)
WITHOUT_MOMENTUM = KNOWN[:3]


class Chunk(NamedTuple):
    """The coefficients of some steps, for which products of coefficients stay far from 0."""

    steps: Vector
    """η; in a metric η √t, with h = √t V̂."""
    shares: Vector
    """c."""
    p: Vector
    """The product of the β2 so far, whereby V = p · SQUARES."""
    gains: Vector
    """The weight of g² in SQUARES."""
    deltas: Vector
    """What is added to the root of the second moment; in a metric δ."""
    to_come: Vector
    """What the sum of the m of the steps that follow is taken for."""


class Lazy(Loop):
    """A step costs the row's nonzeros, and an amortised constant for each z that becomes 0."""

    name = "lazy"

    def __init__(self, model: Model, place: Place) -> None:
        super().__init__(model, place)
        from adahb.linear.loops import calendar as c

        constraint = model.settings.constraint
        d = place.point.w.size - model.intercept
        w, _, z, v = (vector[:d] for vector in place.point)
        self._metric = _in_metric(model)
        self._p = 1.0 / max(place.steps, 1)
        self._share = 0.0
        self._to_come = 0.0
        self._rec = rec = c.records(d, wide=model.adaptive or model.average)
        self._state = state = np.zeros(1, dtype=c.STATE)
        h = np.sqrt(v / self._p) + model.delta if self._metric else np.ones(d)
        ball = isinstance(constraint, L1Ball)
        rec["u"] = w
        rec["k"] = np.abs(z) * h if ball else z
        rec["q"] = np.sign(z) / h if ball else 1.0
        rec["bucket"] = np.where(z != 0, 0, c.NOWHERE)
        state["m"] = 1.0
        if model.adaptive:
            rec["squares"] = v / self._p
        if model.average:
            rec["sum"] = place.average[:d] * place.steps
        if model.intercept:
            state["w0"], state["z0"] = place.point.w[d], place.point.z[d]
            state["squares0"] = place.point.v[d] / self._p
            state["sum0"] = place.average[d] * place.steps
        self._pool: Any = None
        self._lower, self._upper, self._radius = np.zeros(1), np.zeros(1), np.inf
        if ball:
            self._radius = cast("L1Ball", constraint).radius
            self._pool = c.queue(d)
            c.fill(np.flatnonzero(z), rec, state[0], self._pool)
        else:
            self._lower, self._upper = bounds(constraint)
        self._keys, self._inverses = np.empty((2, d))

    @classmethod
    def refuses(cls, model: Model, samples: Samples) -> str | None:
        """Say why the loop cannot train this model on such samples; None if it can."""
        schedule, settings = model.schedule, model.settings
        constraint = settings.constraint
        if not sparse.issparse(samples.objective.X):
            return "X is dense"
        if coded(model.loss) is None:
            return f"{model.loss!r} is not compiled"
        if type(schedule) not in KNOWN:
            return f"{type(schedule).__name__} is not a schedule it knows"
        if type(constraint) not in (type(None), L1Ball, *BOXES):
            return f"{type(constraint).__name__} moves every coordinate in every step"
        if type(schedule) not in WITHOUT_MOMENTUM:
            if constraint is not None and settings.form == "paper":
                return "the paper form moves every coordinate with momentum"
            if constraint is None and schedule.tick > 1:
                return "the momentum changes, and w is not the mean of a z"
        if isinstance(schedule, schedules.Adaptive):
            if schedule.gamma == 1 and schedule.tick > 1:
                return "gamma=1 with tick > 1 forgets the second moment of the first tick"
            if _in_metric(model) and schedule.gamma < 1:
                return "the metric of gamma < 1 changes where a step does not touch"
        return None

    def work(self, samples: Samples) -> float:
        """Return about how many numbers a step moves."""
        return self.model.batch_size * per_row(samples)

    def run(self, samples: Samples, order: Order, duals: DualAverages) -> None:
        """Take the steps on the rows in ``order``, noting each derivative in ``duals``."""
        from adahb.linear.loops.lazy_steps import train

        X: Any = samples.objective.X
        model, size = self.model, self.model.batch_size
        code, parameter = coded(model.loss) or (0, 0.0)
        merge = size > 1 or samples.repeats
        where = np.full(X.shape[1] if merge else 0, -1, dtype=np.int32)
        cols = np.empty(where.size, dtype=np.int32)
        values, slopes = np.empty(where.size), np.empty(size)
        done = 0
        while done < order.size:
            if 0 < self._state["m"][0] < LOW or self._p < LOW:
                self._renew()
            at = self._coefficients(-(-(order.size - done) // size))
            rows = order[done : done + at.steps.size * size]
            taken = train(
                rows, size, samples.objective.y, samples.weights, X.indptr, X.indices, X.data,
                code, parameter, model.intercept, self._radius, self._lower, self._upper,
                at.steps, at.shares, at.p, at.gains, at.deltas, at.to_come, self._rec,
                self._state[0], self._pool, self._keys, self._inverses, where, cols, values,
                slopes, duals.sums, duals.visits, merge, self._rec.nbytes > LARGE,
                1 if model.adaptive else None, 1 if self._metric else None,
                1 if model.average else None,
            )  # fmt: skip
            self.steps += taken
            if taken < at.steps.size:
                raise not_finite(self.steps + 1)
            self._p, self._share = float(at.p[-1]), float(at.shares[-1])
            self._to_come = float(at.to_come[-1])
            done += rows.size

    def _coefficients(self, count: int) -> Chunk:
        """Return the coefficients of up to ``count`` steps, fewer where a product nears 0."""
        t = np.arange(self.steps + 1, self.steps + min(count, CHUNK) + 1)
        at = self.model.schedule(t)
        eta, c = at.eta, at.c
        m = self._state["m"][0] * np.cumprod(1.0 - c)
        p = gains = deltas = np.full(t.size, self._p)
        if at.beta2 is not None:
            p = self._p * np.cumprod(np.where(at.beta2 > 0, at.beta2, 1.0))
            gains, deltas = (1.0 - at.beta2) / p, at.delta
            if self._metric:  # δ/δ_t = √t, and p t = 1
                eta, gains, deltas = (
                    eta * self.model.delta / deltas,
                    1 + 0 * p,
                    self.model.delta + 0 * p,
                )
        fits = ((m > TINY) | (c == 1)) & (p > TINY)
        stop = t.size if fits.all() else max(int(np.argmin(fits)), 1)
        before = np.append(self._state["m"][0], m[: stop - 1])
        to_come = np.zeros(stop)
        if self.model.average:
            to_come = self._to_come_after(before, m[stop - 1], c[stop - 1])
        eta, c, p, gains, deltas = (x[:stop] for x in (eta, c, p, gains, deltas))
        return Chunk(eta, c, p, gains, deltas, to_come)

    def _to_come_after(self, m: Vector, last: float, c: float) -> Vector:
        """Return after each step what the sum of the m to come is taken for.

        A sum of w_j has U times that in it, so that what changes U need not know the past.  Any
        number will do that is about of the size of m t, ``last`` being the m after these steps.
        If m falls like 1/t^k, k = c t > 1, then m t/(k - 1) is what will come.
        """
        t, state, rec = self.steps + 1.0 + m.size, self._state, self._rec
        left = self._to_come - m.sum()
        if abs(left) > FAR * last * t:
            left = last * t / (c * t - 1.0) if c * t > 1.5 else 0.0
            moving = rec["q"] * (rec["k"] * state["alphas"] - state["betas"])
            rec["sum"] += moving + rec["u"] * (m.sum() + left - self._to_come)
            state["alphas"] = state["betas"] = 0.0
        after: Vector = left + np.append(np.cumsum(m[:0:-1])[::-1], 0.0)
        return after

    def _renew(self) -> None:
        """Begin the products anew at 1."""
        self._rec["u"] *= self._state["m"]
        self._to_come /= self._state["m"][0]
        self._state["m"] = 1.0
        if self.model.adaptive:
            self._rec["squares"] *= self._p
            self._state["squares0"] *= self._p
            self._p = 1.0

    def _with_intercept(self, vector: Vector, last: str) -> Vector:
        return np.append(vector, self._state[last]) if self.model.intercept else vector

    @property
    def w(self) -> Vector:
        """The iterate."""
        rec, state = self._rec, self._state
        moving = rec["q"] * (rec["k"] * state["alpha"] - state["beta"])
        return self._with_intercept(state["m"] * rec["u"] + moving, "w0")

    @property
    def average(self) -> Vector:
        """The mean of the iterates."""
        if not self.model.average:
            raise no_average()
        rec, state = self._rec, self._state
        if not self.steps:
            return self.w
        moving = rec["q"] * (rec["k"] * state["alphas"] - state["betas"])
        total = rec["sum"] + moving - rec["u"] * self._to_come
        return self._with_intercept(total, "sum0") / self.steps

    def place(self) -> Place:
        """Return where training stands; without momentum w - w₋ is not known, and not needed."""
        rec, state, w, v = self._rec, self._state, self.w, np.zeros(self.w.size)
        z = self._with_intercept(rec["q"] * (rec["k"] - state["level"]), "z0")
        u = (z - w) * (self._share / (1.0 - self._share) if self._share < 1 else 0.0)
        if self.model.adaptive:
            v = self._p * self._with_intercept(rec["squares"], "squares0")
        average = self.average if self.model.average else np.zeros_like(w)
        return Place(self.steps, Point(w, u, z, v), average)


def _in_metric(model: Model) -> bool:
    """Whether z is projected in a metric that matters."""
    ball = isinstance(model.settings.constraint, L1Ball)
    return ball and model.adaptive and model.settings.projection == "metric"
