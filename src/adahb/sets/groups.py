"""The group l1 ball: the l2 norms of groups of coordinates sum to at most a radius."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from adahb._checks import number
from adahb.sets.arrays import (
    Array,
    Namespace,
    at_least,
    copied,
    device,
    direction,
    headroom,
    norm,
    one_hot,
    power_of_two,
    read_only,
    repeated,
    rounding,
    unseen,
    wide,
)
from adahb.sets.base import Axes, ConvexSet, Cut, every_axis, fit_dim, optional_dim, relative_excess
from adahb.sets.thresholds import project_l1, secular

_MOST_STEPS = 200

_HALVINGS, _STEPS_AFTER_HALVING = 10, 5
"""For the multiplier, as in `thresholds` for the norms: enough for 100 binary digits."""


@dataclass(frozen=True, eq=False, repr=False)
class GroupL1Ball(ConvexSet):
    """The ball {x: sum over groups of ||x_group||_2 <= radius}.

    Groups are the slices along ``dim``, or the entries that share a label in the integer array
    ``groups`` of x's shape (stored padded to the largest group).

    Projection, when the metric is constant on each group: the l1 projection of the group norms.
    Otherwise group norms r_g are sought such that, for one multiplier t shared by all groups,
    y = h x r_g/(h r_g + t), with r_g = 0 where ||h x||_2 <= t.  In graphs and of traced arrays,
    where t comes from a fixed number of steps, digits are lost in metrics that span more than 30
    powers of ten.

    >>> GroupL1Ball(1, dim=1).project([[3.0, 4.0], [0.0, 4.5]])
    array([[0.45, 0.6 ],
           [0.  , 0.25]])
    """

    radius: float
    dim: int | None = None
    groups: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", number("radius", self.radius, at_least=0))
        object.__setattr__(self, "dim", optional_dim(self.dim))
        if (self.dim is None) == (self.groups is None):
            raise ValueError(
                f"give exactly one of dim and groups, got dim={self.dim}, groups={self.groups!r}"
            )
        if self.groups is not None:
            object.__setattr__(self, "groups", _labels(self.groups))

    def _fit(self, shape: tuple[int, ...]) -> None:
        fit_dim(self.dim, shape)
        if self.groups is not None and self.groups.shape != shape:
            raise ValueError(f"groups must have shape {shape} here, got {self.groups.shape}")

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Where each slot of the padded table reads from, and where each entry sits in it."""
        if self.groups is None:
            return {}
        _, numbers = np.unique(self.groups, return_inverse=True)
        return _table(numbers.reshape(-1), self._count)

    @cached_property
    def _count(self) -> int:
        """How many labels there are."""
        return len(np.unique(self.groups))

    def _axes(self, ndim: int) -> Axes:
        if self.dim is None:
            return Axes(rows=every_axis(ndim))
        row = frozenset({self.dim % ndim})
        return Axes(rows=row, all=every_axis(ndim) - row)

    def _cut(self, cut: Cut, shape: tuple[int, ...]) -> dict[str, Any]:  # noqa: ARG002
        if self.groups is None:
            return {}
        _, numbers = np.unique(self.groups, return_inverse=True)
        return _table(cut(numbers.reshape(self.groups.shape)).reshape(-1), self._count)

    def _rows(self, x: Array, fill: float, xp: Namespace) -> Array:
        """Return the groups as rows, short ones filled up."""
        if self.dim is not None:
            rows = xp.moveaxis(x, self.dim, -1)
            return xp.reshape(rows, (prod(rows.shape[:-1]), rows.shape[-1]))
        source = self._own("source", x, xp)
        filler = xp.full((1,), fill, dtype=x.dtype, device=device(x))
        padded = xp.concat([xp.reshape(x, (-1,)), filler])
        return xp.reshape(xp.take(padded, xp.reshape(source, (-1,)), axis=0), source.shape)

    def _unrows(self, rows: Array, shape: tuple[int, ...], xp: Namespace) -> Array:
        if self.dim is not None:
            batch = list(shape)
            length = batch.pop(self.dim)
            return xp.moveaxis(xp.reshape(rows, (*batch, length)), -1, self.dim)
        place = self._own("place", rows, xp)
        return xp.reshape(xp.take(xp.reshape(rows, (-1,)), place, axis=0), shape)

    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        slack = 1 + rounding(x, xp)
        x = wide(x, xp)
        rows = self._rows(x, 0.0, xp)
        unit = headroom(x, xp)
        norms = norm(rows / unit, xp)[..., 0]
        inside = xp.sum(norms) / slack <= self.radius / unit
        if not unseen(x) and bool(inside):
            return copied(x)
        weight = None if h is None else self._rows(h, np.nan, xp)
        each = None if weight is None or unseen(x) else _shared(weight, xp)
        if weight is None or each is not None:
            kept = project_l1(norms[None, :], self.radius, _of_groups(xp), h=each, unit=unit)[0]
            pulled = direction(rows, xp) * kept[:, None]
        else:
            weight = xp.where(xp.isnan(weight), 1.0, weight / xp.max(h))
            pulled = _in_metric(rows, weight, self.radius, xp)
        return xp.where(inside, x, self._unrows(pulled, x.shape, xp))

    def _support(self, g: Array, xp: Namespace) -> Array:
        return self.radius * xp.max(norm(self._rows(g, 0.0, xp), xp))

    def _lmo(self, g: Array, xp: Namespace) -> Array:
        rows = self._rows(g, 0.0, xp)
        norms = norm(rows / headroom(g, xp), xp)[..., 0]
        best = one_hot(xp.argmax(norms), norms, xp)[:, None]
        point = xp.where(best, -self.radius * direction(rows, xp), 0.0)
        return self._unrows(point, g.shape, xp)

    def _excess(self, x: Array, xp: Namespace) -> Array:
        return relative_excess(xp.sum(norm(self._rows(x, 0.0, xp), xp)), self.radius, xp)


def _table(labels: np.ndarray[Any, Any], count: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the table of ``count`` groups, numbered from 0, of which some may be empty."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=count)
    width = counts.max(initial=0)
    starts = np.cumsum(counts) - counts
    row = np.repeat(np.arange(count), counts)
    slot = row * width + np.arange(labels.size) - np.repeat(starts, counts)
    source = np.full((count, width), labels.size)
    source.reshape(-1)[slot] = order
    place = np.empty(labels.size, dtype=np.int64)
    place[order] = slot
    return {"source": source, "place": place}


def _labels(groups: Any) -> np.ndarray[Any, Any]:
    """Return a copy of integer labels that is not to be written to."""
    labels = np.asarray(groups)
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"groups must hold integer labels, got an array of {labels.dtype}")
    return read_only(labels.astype(np.int64))


def _of_groups(xp: Namespace) -> Namespace:
    """Return the namespace for rows that have one entry for each group."""
    return getattr(xp, "of_rows", xp)


def _shared(weight: Array, xp: Namespace) -> Array | None:
    """Return as one row what each row holds throughout, if it does (NaN marks filled-up places)."""
    unused = xp.isnan(weight)
    least = xp.min(xp.where(unused, np.inf, weight), axis=-1)
    most = xp.max(xp.where(unused, -np.inf, weight), axis=-1)
    return most[None, :] if bool(xp.all(least == most)) else None


def _in_metric(rows: Array, h: Array, radius: float, xp: Namespace) -> Array:
    """Project groups in a general metric: find the multiplier t, and with it the norms.

    For a given t, each norm r solves sum (h_i x_i/(h_i r + t))^2 = 1 (`secular`); their sum falls
    with t, with slope -sum (v^2/(h r + t)) / sum (v^2 h/(h r + t)) over v = h x/(h r + t). With a
    radius below the rounding of x no group may be left; then the last one fills it alone.
    """
    scale = power_of_two(xp.max(xp.abs(rows)), xp)
    pull = h * (rows / scale)
    least = 1e-100 * xp.max(norm(pull, xp))
    limit = at_least(least, xp.clip(radius / scale, None, 1e100), xp)
    search = _multiplier_unseen if unseen(rows) else _multiplier
    t = search(pull, h, limit, xp)
    norms, _ = _norms(pull, h, t, xp)
    y = pull * norms / (h * norms + t)
    total = xp.sum(norm(y, xp))
    sizes = norm(pull, xp)
    alone = xp.where(sizes == xp.max(sizes), direction(pull, xp), 0.0)
    y = xp.where(total > 0, y / xp.where(total > 0, total, 1.0), alone)
    return y / xp.sum(norm(y, xp)) * radius


def _multiplier(pull: Array, h: Array, limit: Array, xp: Namespace) -> Array:
    """Find the multiplier by Newton's method, safeguarded by a bracket."""
    low, high = xp.zeros_like(limit), xp.max(norm(pull, xp))
    t = high / 2
    for _ in range(_MOST_STEPS):
        norms, slope = _norms(pull, h, t, xp)
        excess = xp.sum(norms) - limit
        low, high = (t, high) if bool(excess > 0) else (low, t)
        newton = t + excess / xp.where(slope > 0, slope, 1.0)
        safe = bool((newton > low) & (newton < high))
        following = newton if safe else _middle(low, high, xp)
        if bool(xp.abs(excess) <= 1e-15 * limit) or not bool(
            (following > low) & (following < high)
        ):
            break
        t = following
    return t


def _multiplier_unseen(pull: Array, h: Array, limit: Array, xp: Namespace) -> Array:
    """Find it in a number of steps that is always the same: halve the logarithm, then Newton.

    The sum of the norms is a convex function of t, so Newton's steps rise to the root.
    """
    low, high = xp.zeros_like(limit), xp.max(norm(pull, xp))

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        t = _middle(low, high, xp)
        left = xp.sum(_norms(pull, h, t, xp)[0]) > limit
        return xp.where(left, t, low), xp.where(left, high, t)

    def rise(state: tuple[Array]) -> tuple[Array]:
        (t,) = state
        norms, slope = _norms(pull, h, t, xp)
        newton = t + (xp.sum(norms) - limit) / xp.where(slope > 0, slope, 1.0)
        return (xp.where((slope > 0) & (newton > 0), newton, t),)

    low, high = repeated(halve, _HALVINGS, (low, high))
    (t,) = repeated(rise, _STEPS_AFTER_HALVING, (xp.where(low > 0, low, _middle(low, high, xp)),))
    return t


def _middle(low: Array, high: Array, xp: Namespace) -> Array:
    """Return the geometric middle of a bracket, for multipliers span many powers of ten."""
    least = 1e-30 * high
    return xp.sqrt(xp.where(low > least, low, least)) * xp.sqrt(high)


def _norms(pull: Array, h: Array, t: Array, xp: Namespace) -> tuple[Array, Array]:
    """Return the group norms for the multiplier t, and minus the derivative of their sum."""
    start = xp.zeros((pull.shape[0], 1), dtype=pull.dtype, device=device(pull))
    norms = secular(pull, t + xp.zeros_like(h), h, start, xp)
    terms = h * norms + t
    squares = (pull / terms) ** 2 / terms
    across = xp.sum(squares * h, axis=-1, keepdims=True)
    ratio = xp.sum(squares, axis=-1, keepdims=True) / xp.where(across > 0, across, 1.0)
    return norms, xp.sum(xp.where(norms > 0, ratio, 0.0))
