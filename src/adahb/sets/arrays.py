"""One vocabulary for NumPy, torch and JAX arrays, and the arithmetic every set leans on.

Nothing here imports torch or JAX: ``array_api_compat`` hands out the namespace ``xp`` of an array.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_numpy_array, is_torch_array

Array: TypeAlias = Any
"""A NumPy array, a torch tensor or a JAX array."""

Namespace: TypeAlias = Any
"""The functions that go with an array: those of ``array_api_compat`` for it, or ``jax.numpy``."""

HUGE = 1e300
"""Stands in for an overflowed ratio, so that 0 * HUGE is still 0."""

LARGE = 1e200
"""The same where it is still to be multiplied."""

_SMALLEST, _LARGEST = 2.0**-1022, 2.0**1022


def real_array(name: str, value: Any) -> tuple[Array, Namespace]:
    """Return ``value`` as an array of real floating-point numbers, and its namespace.

    Lists become NumPy arrays and integers become floats; complex numbers and anything that is not
    a number are refused.

    >>> real_array("x", [1, 2])[0]
    array([1., 2.])
    """
    array = value if is_array_api_obj(value) else _from_python(name, value)
    if isinstance(array, np.ndarray):
        array = np.asarray(array)  # np.matrix means another product by *
    xp = array_namespace(array)
    if xp.isdtype(array.dtype, "real floating"):
        return array, xp
    if xp.isdtype(array.dtype, ("bool", "integral")):
        return xp.astype(array, xp.asarray(0.0).dtype), xp
    raise TypeError(f"{name} must hold real numbers, got an array of {array.dtype}")


def _from_python(name: str, value: Any) -> Array:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of real numbers, got {value!r}") from error


def require_finite(name: str, x: Array, xp: Namespace) -> None:
    """Refuse NaN and infinity."""
    if not bool(xp.all(xp.isfinite(x))):
        raise ValueError(f"{name} must be finite, got NaN or infinity in it")


def parameter(name: str, value: Any, *, infinite: bool = False) -> np.ndarray[Any, Any]:
    """Return a float64 copy of ``value`` that is not to be written to."""
    array, _ = real_array(name, value)
    if is_torch_array(array):
        array = array.detach().cpu().double().numpy()
    array = np.asarray(array, dtype=np.float64) + 0.0
    if np.isnan(array).any() or not (infinite or np.isfinite(array).all()):
        wanted = "must not hold NaN" if infinite else "must be finite"
        raise ValueError(f"{name} {wanted}, got {np.array2string(array, threshold=8)}")
    return read_only(array)


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy that is not to be written to, of memory that is its own.

    Of memory that cannot be written to at all, torch.compile makes no tensors.
    """
    copy = np.array(array, order="C")
    copy.flags.writeable = False
    return copy


def like(value: Any, x: Array, xp: Namespace) -> Array:
    """Return a parameter as an array with the namespace, device and dtype of ``x``."""
    if is_torch_array(x):
        value = np.array(value)
    return xp.asarray(value, dtype=x.dtype, device=device(x))


def device(x: Array) -> Any:
    """Return where to make arrays that go with ``x``; JAX, whose traced arrays are nowhere, knows.

    >>> device(np.zeros(2))
    'cpu'
    """
    return None if is_jax(x) else x.device


def copied(x: Array) -> Array:
    """Return a copy that derivatives pass through."""
    return x.clone() if is_torch_array(x) else x.copy()


def wide(x: Array, xp: Namespace) -> Array:
    """Return ``x`` in float64, where sums of a million float32 values keep all their digits."""
    return xp.astype(x, xp.float64, copy=False)


def promote(x: Array, xp: Namespace) -> Array:
    """Return ``x`` in a precision to compute in: half precisions become float32."""
    return x if x.dtype in (xp.float32, xp.float64) else xp.astype(x, _compute_dtype(x, xp))


def _compute_dtype(x: Array, xp: Namespace) -> Any:
    return xp.float32 if xp.finfo(x.dtype).bits < 32 else xp.float64


def rounding(x: Array, xp: Namespace) -> float:
    """Return the relative excess at which a point still counts as inside: a few ulps."""
    return 4 * float(xp.finfo(x.dtype).eps)


def power_of_two(x: Array, xp: Namespace) -> Array:
    """Return a power of two near ``x >= 0``: dividing by it is exact, and brings x near one."""
    exponent = xp.floor(xp.log2(xp.clip(x, _SMALLEST, _LARGEST)))
    return xp.exp2(exponent)


def power_of_two_below(x: float) -> float:
    """Return the same of a number."""
    return 2.0 ** (math.frexp(min(max(x, _SMALLEST), _LARGEST))[1] - 1)


def at_least(low: Array, x: Array, xp: Namespace) -> Array:
    """Return the larger of two arrays, entry by entry."""
    return xp.where(x > low, x, low)


def headroom(x: Array, xp: Namespace, axis: tuple[int, ...] | None = None) -> Array:
    """Return a power of two to divide by, so that norms of the largest floats do not overflow."""
    size = xp.max(xp.abs(x)) if axis is None else xp.max(xp.abs(x), axis=axis, keepdims=True)
    return xp.where(size > 2.0**900, 2.0**64, xp.ones_like(size))


def largest(x: Array, xp: Namespace) -> Array:
    """Return the largest absolute value of each row, keeping the last axis."""
    return xp.max(xp.abs(x), axis=-1, keepdims=True)


def norm(x: Array, xp: Namespace) -> Array:
    """Return the l2 norm of each row, keeping the last axis, free of overflow and underflow.

    Its derivative at zero is zero rather than NaN.
    """
    scale = power_of_two(largest(x, xp), xp)
    squares = xp.sum((x / scale) ** 2, axis=-1, keepdims=True)
    positive = squares > 0
    return xp.where(positive, scale * xp.sqrt(xp.where(positive, squares, 1.0)), 0.0)


def direction(x: Array, xp: Namespace) -> Array:
    """Return each row divided by its l2 norm, or zero where it is zero."""
    scaled = x / power_of_two(largest(x, xp), xp)
    length = norm(scaled, xp)
    return scaled / xp.where(length > 0, length, 1.0)


def one_hot(index: Array, x: Array, xp: Namespace) -> Array:
    """Return the mask of the entry that ``index`` (last axis kept) names in each row of ``x``."""
    return xp.arange(x.shape[-1], device=device(x)) == index


def peak(x: Array, xp: Namespace) -> Array:
    """Return the mask of the first of the largest entries of each row.

    Of float64, JAX compiles no argmax unless it is in float64 altogether.
    """
    if not is_jax(x):
        return one_hot(xp.argmax(x, axis=-1, keepdims=True), x, xp)
    highest = x == xp.max(x, axis=-1, keepdims=True)
    return highest & (xp.cumsum(highest, axis=-1) == 1)


def pick(x: Array, mask: Array, xp: Namespace) -> Array:
    """Return the entry of each row that ``mask`` marks, keeping the last axis."""
    return xp.sum(xp.where(mask, x, 0.0), axis=-1, keepdims=True)


def repeated(step: Callable[[Any], Any], times: int, start: Any) -> Any:
    """Return what ``step`` makes of the arrays in ``start`` when applied to them so many times.

    JAX compiles a loop instead of its steps one after the other.
    """
    if is_jax(start[0]):
        from jax.lax import fori_loop

        return fori_loop(0, times, lambda _, state: step(state), start)
    for _ in range(times):
        start = step(start)
    return start


def parted(xp: Namespace) -> bool:
    """Tell whether the rows go on on other ranks: see `adahb.sets.sharded`.

    Then there are sums over a row, and its extremes, but nothing can be sorted.
    """
    return bool(getattr(xp, "parted", False))


def row_sums(terms: Sequence[Array], xp: Namespace) -> Sequence[Array]:
    """Return the sums of the rows of several arrays, keeping the last axis.

    Where rows are parted, the ranks tell each other all of them at once.
    """
    if parted(xp):
        sums: Sequence[Array] = xp.row_sums(terms)
        return sums
    return [xp.sum(term, axis=-1, keepdims=True) for term in terms]


def on_cpu_without_grad(*arrays: Array | None) -> bool:
    """Tell whether compiled code may read these arrays: host memory, no derivative wanted."""
    return all(array is None or _readable(array) for array in arrays)


def compilable(xp: Namespace, *arrays: Array | None) -> bool:
    """Tell whether compiled code may project these rows: as above, and all of each row is here."""
    return not parted(xp) and on_cpu_without_grad(*arrays)


def _readable(array: Array) -> bool:
    if unseen(array):
        return False
    if is_numpy_array(array):
        return True
    return is_torch_array(array) and array.device.type == "cpu" and not wants_gradient(array)


_blindfold: ContextVar[bool] = ContextVar("blindfold", default=False)


@contextmanager
def blindfold() -> Iterator[None]:
    """Within the context numbers of tensors are not looked at, as in a graph: nothing waits."""
    token = _blindfold.set(True)
    try:
        yield
    finally:
        _blindfold.reset(token)


def unseen(array: Array) -> bool:
    """Tell whether the numbers must not be looked at: in a graph being compiled or captured.

    Whatever depends on them is then to be computed, not decided; and no tensor can be made of
    numbers from elsewhere.  JAX arrays may always be traced, and take the same way if they are not.
    """
    if is_jax(array):
        return True
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    if torch.compiler.is_compiling() or _blindfold.get():
        return True
    return bool(array.is_cuda and torch.cuda.is_current_stream_capturing())


def is_jax(array: Array) -> bool:
    """Tell whether it is a JAX array, traced or not."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is None or (torch is not None and isinstance(array, torch.Tensor)):
        return False  # of a tensor JAX must not be asked: torch.compile would have to follow
    return isinstance(array, jax.Array)


def wants_gradient(array: Array) -> bool:
    """Tell whether the array is a tensor whose derivatives are being recorded."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    return bool(array.requires_grad and torch.is_grad_enabled())


def as_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Return a NumPy view of a host array."""
    return np.asarray(array.detach() if is_torch_array(array) else array)
