"""What every convex set can do, and the work that is the same for all of them.

Public methods check and convert once and then call the *raw layer*: the methods with a leading
underscore, which trust their input. An optimizer that has checked its tensors already calls the
raw layer directly.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from array_api_compat import is_torch_array, size

from adahb._checks import integer, number
from adahb.sets.arrays import (
    Array,
    Namespace,
    copied,
    device,
    is_jax,
    like,
    power_of_two,
    promote,
    real_array,
    require_finite,
    unseen,
    wide,
)

LIGHTEST = 1e-100
"""The smallest entry of a metric, and one over the largest: products of three stay finite."""

_ROOM = 2.0**64
"""So much smaller, numbers can be multiplied by any radius and added up."""

Cut: TypeAlias = Callable[[Any], Any]
"""Takes from an array that broadcasts to x what belongs to a shard of x."""


class Axes(NamedTuple):
    """Along which axes of x, counted from 0, the raw layer of a set puts entries together.

    It matters where x is sharded: see `adahb.sets.sharded`.
    """

    rows: frozenset[int] = frozenset()
    """Those that the last axis of its rows is made of."""
    all: frozenset[int] = frozenset()
    """Those over which it sums without naming an axis."""
    whole: frozenset[int] = frozenset()
    """Those along which x must not be sharded."""


@dataclass(frozen=True, eq=False, repr=False)
class ConvexSet(ABC):
    """A closed convex set Q: immutable, comparable, hashable, printable and serialisable.

    A family states the raw layer:

    ``_project(x, h, xp)``
        the nearest point in the metric ``h`` (positive, of x's shape, or None for the plain one)
    ``_support(g, xp)``
        max over u in Q of <u, g>, infinite where unbounded
    ``_lmo(g, xp)``
        a minimiser of <u, g> over Q, or None where there is none
    ``_excess(x, xp)``
        how far x is outside, relative to the scale of the set; at most zero inside
    ``_fit(shape)``
        raises where an array of that shape cannot be a point
    ``_axes(ndim)``
        along which axes of an array its entries depend on each other

    Raw methods get finite arrays in float32 or float64 (``_support``, ``_lmo`` and ``_excess``
    always float64), never write to them, and may answer in float64; the caller casts back. Inside a
    graph that is compiled or captured ``_project`` looks at no number, except for singular values.
    """

    @property
    def bounded(self) -> bool:
        """Whether the set is bounded, so that every support value is finite."""
        return True

    def project(self, x: Array, metric: Array | None = None) -> Array:
        """Return the point of Q nearest to ``x``: argmin over y in Q of sum h_i (y_i - x_i)^2.

        Args:
            x: A NumPy array, torch tensor, JAX array or list of real, finite numbers; it is not
                modified.  A JAX array may be traced, and then its numbers are not checked.
            metric: The weights h, positive and broadcastable to x; None is the plain distance.

        Returns:
            A new array of x's shape, dtype and device. A point of Q comes back bit for bit.
        """
        if is_jax(x):
            from adahb.sets import traced

            return traced.project(self, x, metric)
        x, xp = self._checked("x", x)
        h = None if metric is None else _checked_metric(metric, x, xp)
        if not self._refuses_non_finite(x, h):
            require_finite("x", x, xp)
        if size(x) == 0:
            return copied(x)
        with np.errstate(all="ignore"):
            y = self._project(promote(x, xp), h, xp)
            y = xp.reshape(xp.astype(y, x.dtype, copy=False), x.shape)
        self._require_held(y, xp)
        return y

    def support(self, g: Array) -> Array:
        """Return max over u in Q of <u, g>, as a scalar array; +inf where it is unbounded.

        A value beyond the largest number of g's dtype is infinite too, with its sign.
        """
        g, xp = self._checked("g", g)
        require_finite("g", g, xp)
        with np.errstate(all="ignore"):
            value = xp.zeros((), device=device(g))
            if size(g):
                value = self._support_at_any_scale(wide(g, xp), xp)
            return xp.astype(xp.reshape(value, ()), g.dtype)[()]

    def lmo(self, g: Array) -> Array:
        """Return a point of Q that minimises <u, g> (the linear minimisation oracle)."""
        g, xp = self._checked("g", g)
        require_finite("g", g, xp)
        if size(g) == 0:
            return copied(g)
        with np.errstate(all="ignore"):
            point = self._lmo(wide(g, xp), xp)
            if point is None:
                raise ValueError(f"{self!r} is unbounded in the direction -g: no minimiser exists")
            return xp.reshape(xp.astype(point, g.dtype), g.shape)

    def contains(self, x: Array, tol: float | None = None) -> bool:
        """Tell whether ``x`` lies in Q up to ``tol``, relative to the scale of the set.

        The default tolerance is eps^(2/3) of x's dtype: 3.7e-11 in float64, 2.4e-5 in float32.
        Whatever `project` returns passes it, as long as the entries that matter are not so small
        that the dtype holds them with fewer digits (below 1e-38 in float32).
        """
        x, xp = self._checked("x", x)
        require_finite("x", x, xp)
        if tol is None:
            tol = float(xp.finfo(x.dtype).eps) ** (2 / 3)
        tol = number("tol", tol, at_least=0)
        if size(x) == 0:
            return True
        with np.errstate(all="ignore"):
            return bool(xp.max(self._excess(wide(x, xp), xp)) <= tol)

    def to_dict(self) -> dict[str, Any]:
        """Return the set as plain data: strings, numbers, lists and None only.

        `adahb.sets.from_dict` turns it back into an equal set.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}
        return {"kind": type(self).__name__, **plain}

    @abstractmethod
    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array: ...

    @abstractmethod
    def _support(self, g: Array, xp: Namespace) -> Array: ...

    @abstractmethod
    def _lmo(self, g: Array, xp: Namespace) -> Array | None: ...

    @abstractmethod
    def _excess(self, x: Array, xp: Namespace) -> Array: ...

    @abstractmethod
    def _axes(self, ndim: int) -> Axes: ...

    def _cut(self, cut: Cut, shape: tuple[int, ...]) -> dict[str, Any]:  # noqa: ARG002
        """Return `_arrays` as they are beside a shard of an array of this shape."""
        return {name: cut(array) for name, array in self._arrays.items()}

    def _fit(self, shape: tuple[int, ...]) -> None:  # noqa: B027 - most sets take any shape
        """Raise where an array of this shape cannot be a point of the space the set lives in."""

    def _refuses_non_finite(self, x: Array, h: Array | None) -> bool:  # noqa: ARG002
        """Tell whether ``_project`` looks for NaN and infinity itself while it reads x."""
        return False

    def _support_at_any_scale(self, g: Array, xp: Namespace) -> Array:
        """Return the support, also where numbers on the way to it overflow."""
        value = self._support(g, xp)
        unit = power_of_two(xp.max(xp.abs(g)), xp)
        for room in (1.0, _ROOM):
            if bool(xp.all(xp.isfinite(value))):
                break
            value = self._support(g / unit / room, xp) * room * unit
        return value

    def _can_overflow(self, top: float) -> bool:  # noqa: ARG002
        """Tell whether a nearest point may have entries beyond ``top``, a dtype's largest number.

        Balls around zero have none: they bring every point nearer to zero.
        """
        return False

    def _require_held(self, y: Array, xp: Namespace) -> None:
        """Refuse a projection that its dtype cannot hold."""
        top = float(xp.finfo(y.dtype).max)
        if self._can_overflow(top) and not bool(xp.all(xp.isfinite(y))):
            raise ValueError(
                f"x must have a dtype that can hold its projection on {self!r}, got {y.dtype}, "
                f"whose largest number is {top:g}"
            )

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What arrays the raw layer reads, by name: copies, for torch.compile fails on views."""
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: np.array(v) for name, v in values if isinstance(v, np.ndarray)}

    @cached_property
    def _tensors(self) -> dict[Any, dict[str, Any]]:
        """By device, the same as tensors."""
        return {}

    def _prepare(self, device: Any) -> None:
        """Make the tensors of a device, which cannot be made inside a graph."""
        import torch

        if device not in self._tensors:
            with torch.inference_mode(mode=False):  # to be used with derivatives as well
                self._tensors[device] = {
                    name: torch.tensor(array, device=device) for name, array in self._arrays.items()
                }

    def _own(self, name: str, x: Array, xp: Namespace) -> Array:
        """Return one of the set's arrays beside ``x``: of its kind, on its device, in its dtype."""
        if is_jax(x) or not (unseen(x) or is_torch_array(x)):
            array = self._arrays[name]
            return like(array, x, xp) if array.dtype == np.float64 else array
        if x.device not in self._tensors:
            self._prepare(x.device)
        tensor = self._tensors[x.device][name]
        return tensor.to(x.dtype) if tensor.is_floating_point() else tensor

    def _checked(self, name: str, value: Any) -> tuple[Array, Namespace]:
        x, xp = real_array(name, value)
        self._fit(tuple(x.shape))
        return x, xp

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))

    def _key(self) -> tuple[Any, ...]:
        plain = ((v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v for v in self._values())
        return (type(self), *plain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConvexSet):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()

    def __repr__(self) -> str:
        named = (f"{f.name}={_show(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__}({', '.join(named)})"


@dataclass(frozen=True, eq=False, repr=False)
class RowSet(ConvexSet):
    """A set for each slice of an array along ``dim``, or for the whole array taken as one vector.

    The raw layer of a family works on rows: arrays whose last axis is the vector, any number of
    axes before it.
    """

    @property
    def _dim(self) -> int | None:
        dim: int | None = vars(self)["dim"]
        return dim

    def _fit(self, shape: tuple[int, ...]) -> None:
        fit_dim(self._dim, shape)

    def _axes(self, ndim: int) -> Axes:
        return Axes(rows=every_axis(ndim) if self._dim is None else frozenset({self._dim % ndim}))

    def _rows(self, x: Array, xp: Namespace) -> Array:
        return xp.reshape(x, (1, -1)) if self._dim is None else xp.moveaxis(x, self._dim, -1)

    def _unrows(self, rows: Array, shape: tuple[int, ...], xp: Namespace) -> Array:
        return xp.reshape(rows, shape) if self._dim is None else xp.moveaxis(rows, -1, self._dim)

    def _project(self, x: Array, h: Array | None, xp: Namespace) -> Array:
        metric = None if h is None else self._rows(h, xp)
        return self._unrows(self._project_rows(self._rows(x, xp), metric, xp), x.shape, xp)

    def _support(self, g: Array, xp: Namespace) -> Array:
        return xp.sum(self._support_rows(self._rows(g, xp), xp))

    def _lmo(self, g: Array, xp: Namespace) -> Array:
        return self._unrows(self._lmo_rows(self._rows(g, xp), xp), g.shape, xp)

    def _excess(self, x: Array, xp: Namespace) -> Array:
        return self._excess_rows(self._rows(x, xp), xp)

    @abstractmethod
    def _project_rows(self, x: Array, h: Array | None, xp: Namespace) -> Array: ...

    @abstractmethod
    def _support_rows(self, g: Array, xp: Namespace) -> Array: ...

    @abstractmethod
    def _lmo_rows(self, g: Array, xp: Namespace) -> Array: ...

    @abstractmethod
    def _excess_rows(self, x: Array, xp: Namespace) -> Array: ...


def _checked_metric(metric: Any, x: Array, xp: Namespace) -> Array | None:
    """Return the metric with x's shape in float64, or None where one number serves all entries."""
    h, _ = real_array("metric", metric)
    try:
        fits = np.broadcast_shapes(tuple(h.shape), tuple(x.shape)) == tuple(x.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"metric must broadcast to the shape {tuple(x.shape)} of x, got {tuple(h.shape)}"
        )
    same = is_torch_array(h) == is_torch_array(x)
    h = wide(h, xp) if same else like(h, xp.zeros((), dtype=xp.float64, device=device(x)), xp)
    require_metric(h, xp)
    if size(h) == 1:
        return None
    return h if h.shape == x.shape else xp.broadcast_to(h, x.shape)


def require_metric(h: Array, xp: Namespace) -> None:
    """Refuse weights that are not positive, or so far apart that their ratios overflow."""
    if not size(h):
        return
    low, high = xp.min(h), xp.max(h)  # which NaN passes through
    found = f"got {low.item():g} to {high.item():g}"
    if not bool((low > 0) & (high < np.inf)):
        raise ValueError(f"metric must be finite and > 0, {found}")
    if size(h) > 1 and not bool((low >= LIGHTEST) & (high <= 1 / LIGHTEST)):
        raise ValueError(
            f"metric must have entries between {LIGHTEST:g} and {1 / LIGHTEST:g}, {found}"
        )


def optional_dim(dim: Any) -> int | None:
    """Return ``dim`` as an int or None."""
    return None if dim is None else integer("dim", dim, at_least=-64)


def every_axis(ndim: int) -> frozenset[int]:
    """Return the axes of an array."""
    return frozenset(range(ndim))


def fit_dim(dim: int | None, shape: tuple[int, ...]) -> None:
    """Raise unless ``dim`` is None or an axis of an array of this shape."""
    if dim is not None and not -len(shape) <= dim < len(shape):
        raise ValueError(f"dim must be an axis of an array of shape {shape}, got dim={dim}")


def relative_excess(value: Array, limit: Array | float, xp: Namespace) -> Array:
    """Return (value - limit) / limit, where a limit below the smallest normal float counts as it.

    Both are divided by a power of two first, so that the largest floats do not overflow.
    """
    limit = like(limit, value, xp)
    scale = power_of_two(limit, xp)
    return (value / scale - limit / scale) / xp.clip(limit / scale, 1.0, None)


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        text = np.array2string(value, separator=", ", threshold=8, edgeitems=3)
        return " ".join(text.split())
    return repr(value)
