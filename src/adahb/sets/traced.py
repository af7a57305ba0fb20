"""Projections of JAX arrays, inside ``jit``, ``vmap`` and ``shard_map`` or outside of them.

The sets' own arithmetic runs on ``jax.numpy``, the way it runs in graphs of torch: thresholds come
from sorting, multipliers from a fixed number of steps, and no number is looked at.  It is done in
float64, whether or not ``jax_enable_x64`` is set, and so the results are those of the other arrays.
Derivatives through a projection need ``jax_enable_x64``.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import numpy as jnp

from adahb.sets.arrays import promote, real_array, require_finite
from adahb.sets.base import require_metric

if TYPE_CHECKING:
    from adahb.sets.base import ConvexSet


def project(constraint: "ConvexSet", x: Any, metric: Any = None) -> Any:
    """Return the point of the set nearest to ``x``, as `ConvexSet.project` does."""
    x, _ = real_array("x", x)
    constraint._fit(tuple(x.shape))
    if x.size == 0:
        return x
    if not isinstance(x, jax.core.Tracer):
        require_finite("x", x, jnp)
    with jax.enable_x64(True):
        h = None if metric is None else _weights(metric, x.shape)
        y = constraint._project(promote(x, jnp), h, jnp)
        y = jnp.reshape(y, x.shape).astype(x.dtype)
    if not isinstance(y, jax.core.Tracer):
        constraint._require_held(y, jnp)
    return y


def _weights(metric: Any, shape: tuple[int, ...]) -> Any:
    """The metric in float64 and of x's shape, or None where one number serves all entries."""
    h = jnp.asarray(metric, dtype=jnp.float64)
    try:
        fits = np.broadcast_shapes(h.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"metric must broadcast to the shape {shape} of x, got {h.shape}")
    if not isinstance(h, jax.core.Tracer):
        require_metric(h, jnp)
    return None if h.size == 1 else jnp.broadcast_to(h, shape)
