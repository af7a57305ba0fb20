"""The heavy balls as optax gradient transformations.

>>> import jax, optax
>>> from adahb.interop.optax import adahb
>>> optimizer = adahb(1e-2)
>>> params = {"w": jax.numpy.ones(3)}
>>> state = optimizer.init(params)
>>> grads = jax.grad(lambda p: (p["w"] ** 2).sum())(params)
>>> updates, state = optimizer.update(grads, state, params)
>>> params = optax.apply_updates(params, updates)

Steps are counted in the state, on the device: a compiled step is compiled once, however far t
advances.  Everything is safe under ``jit``, ``vmap``, ``pmap`` and ``shard_map``, projections too;
of an array that is sharded by hand, each shard is projected as an array of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import optax
from jax import numpy as jnp

from adahb import _checks as check
from adahb.interop.update import (
    Form,
    Method,
    Numbers,
    Projection,
    Stored,
    change,
    float64_at_hand,
    numbers,
    placed,
)
from adahb.sets import ConvexSet

LearningRate: TypeAlias = "float | jax.Array | Callable[[Any], Any]"

STATIC = (
    "gamma",
    "delta",
    "momentum",
    "tick",
    "power",
    "averaging_tick",
    "weight_decay",
    "decoupled_weight_decay",
    "constraint",
    "projection",
    "form",
)
"""What `optax.inject_hyperparams` must leave alone: all of `adahb` but the learning rate."""


class HeavyBallState(NamedTuple):
    """The state: a pytree of arrays; trees are shaped like the parameters."""

    count: jax.Array
    """Calls, of which a schedule of the learning rate is a function."""
    clock: jax.Array
    """Steps made; a call with learning rate zero changes nothing, and is none."""
    buffer: Any
    """u = w - w₋; in the averaging form under a constraint z."""
    v: Any
    """The second moment; None where the method is not adaptive."""
    average: Any
    """The mean of the iterates, with constant momentum; else None."""


def adahb(
    learning_rate: LearningRate = 1e-2,
    *,
    gamma: float = 0.1,
    delta: float = 1e-8,
    momentum: float | None = None,
    tick: int = 100,
    power: float = 0.0,
    averaging_tick: int | None = None,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = True,
    constraint: ConvexSet | None = None,
    projection: Projection = "metric",
    form: Form = "averaging",
) -> optax.GradientTransformation:
    """The adaptive heavy ball, Algorithm 1 of the paper; `adahb.optim.AdaHB` for JAX.

    A constraint is for each array of the parameters; for several, or for some arrays only, there
    are `optax.masked` and `optax.partition`.  Parameters that start outside are projected by the
    first step.

    Args:
        learning_rate: α, the constant of the step size, or a schedule of it by calls.
        gamma: Weight of new squared gradients: β2_t = 1 - gamma/t.
        delta: V̂_t = √V_t + delta/√t.
        momentum: None is t/(t+2), whose last iterate is optimal.  A number is constant momentum,
            whose *average* is; see `averaged_parameters`.
        tick: Steps that share one t.  1 is the theory; in deep networks a slower clock is better.
        power: Averages with weights t^power; larger forgets the beginning faster.
        averaging_tick: Steps that share one t in the momentum; None is ``tick``, 1 averages by the
            step whatever clock the steps go by.
        weight_decay: λ; decoupled, λw joins the preconditioned gradient, else the gradient.
        decoupled_weight_decay: Which of the two.
        constraint: A set of `adahb.sets`.
        projection: "metric" projects in the norm of V̂, as the theory needs; "euclidean" is the
            paper to the letter.
        form: With a constraint, "averaging" projects z and "paper" projects w.
    """
    method = Method(
        adaptive=True,
        gamma=gamma,
        delta=delta,
        momentum=momentum,
        tick=tick,
        power=power,
        averaging_tick=averaging_tick,
        weight_decay=weight_decay,
        decoupled_weight_decay=decoupled_weight_decay,
        constraint=constraint,
        projection=projection,
        form=form,
    )
    return _transformation(method, learning_rate)


def hb(
    learning_rate: LearningRate = 1e-2,
    *,
    momentum: float | None = None,
    tick: int = 100,
    power: float = 0.0,
    averaging_tick: int | None = None,
    weight_decay: float = 0.0,
    decoupled_weight_decay: bool = True,
    constraint: ConvexSet | None = None,
    form: Form = "averaging",
) -> optax.GradientTransformation:
    """The heavy ball without adapting: `adahb` with V̂ = 1; options as there.

    >>> optimizer = hb(0.1, tick=1)
    """
    method = Method(
        adaptive=False,
        momentum=momentum,
        tick=tick,
        power=power,
        averaging_tick=averaging_tick,
        weight_decay=weight_decay,
        decoupled_weight_decay=decoupled_weight_decay,
        constraint=constraint,
        form=form,
    )
    return _transformation(method, learning_rate)


def scale_by_adahb(
    *,
    gamma: float = 0.1,
    delta: float = 1e-8,
    momentum: float | None = None,
    tick: int = 100,
    power: float = 0.0,
    averaging_tick: int | None = None,
) -> optax.GradientTransformation:
    """What `adahb` descends along, m ← β1 m + α V̂⁻¹ g with α for learning rate 1: to be chained.

    With a constant learning rate the following is ``adahb(0.1)``.  A schedule of it would multiply
    the whole of m here, and the newest term of it there.

    >>> optimizer = optax.chain(scale_by_adahb(), optax.scale_by_learning_rate(0.1))
    """
    method = Method(
        adaptive=True,
        gamma=gamma,
        delta=delta,
        momentum=momentum,
        tick=tick,
        power=power,
        averaging_tick=averaging_tick,
    )
    return _transformation(method, 1.0, descend=False)


def keep_in(constraint: ConvexSet) -> optax.GradientTransformation:
    """Let updates, of whichever optimizer stands before in the chain, end inside of a set.

    The nearest point in the plain distance is taken.  `adahb` and `hb` project by themselves, in
    their metric and in step with their momentum: they do not need it.

    >>> from adahb.sets import Simplex
    >>> optimizer = optax.chain(optax.sgd(0.1), keep_in(Simplex()))
    """
    method = Method(adaptive=False, constraint=constraint)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        _require(params, "keep_in")
        fits(params)
        inside = jax.tree.map(lambda w, by: constraint.project(w + by) - w, params, updates)
        return inside, state

    def fits(params: Any) -> None:
        for w in jax.tree.leaves(params):
            method.require_fit(w.shape, w.dtype, is_complex=jnp.iscomplexobj(w))

    def init(params: Any) -> optax.EmptyState:
        fits(params)
        return optax.EmptyState()

    return optax.GradientTransformation(init, update)


def averaged_parameters(state: Any, params: Any) -> Any:
    """The output that the guarantee is about: with constant momentum the average, else ``params``.

    ``state`` is that of the whole optimizer, be it a chain, masked or partitioned.
    """

    def ours(node: Any) -> bool:
        return isinstance(node, HeavyBallState)

    def masked(node: Any) -> bool:
        return isinstance(node, optax.MaskedNode)

    def choose(average: Any, w: Any) -> Any:
        return w if masked(average) else average.astype(w.dtype)

    for node in jax.tree.leaves(state, is_leaf=ours):
        if ours(node) and node.average is not None:
            params = jax.tree.map(choose, node.average, params, is_leaf=masked)
    return params


def _transformation(
    method: Method, learning_rate: LearningRate, *, descend: bool = True
) -> optax.GradientTransformation:
    """The method as a transformation; ``descend=False`` leaves out the minus sign."""
    if not callable(learning_rate) and not isinstance(learning_rate, jax.Array):
        learning_rate = check.number("learning_rate", learning_rate, at_least=0)

    def init(params: Any) -> HeavyBallState:
        buffer = jax.tree.map(lambda w: _buffer(w, method), params)
        v = jax.tree.map(lambda w: jnp.zeros_like(_widened(w).real), params)
        averages = method.keeps_average and descend
        return HeavyBallState(
            count=jnp.zeros((), jnp.int32),
            clock=jnp.zeros((), jnp.int32),
            buffer=buffer,
            v=v if method.adaptive else None,
            average=jax.tree.map(lambda w: _widened(w, copy=True), params) if averages else None,
        )

    def update(
        updates: Any, state: HeavyBallState, params: Any = None
    ) -> tuple[Any, HeavyBallState]:
        if descend:
            _require(params, "the heavy ball")
        lr = learning_rate(state.count) if callable(learning_rate) else learning_rate
        with float64_at_hand(state.clock):
            changes, after = _step(updates, state, params, lr, method)
        if not descend:
            changes = jax.tree.map(jnp.negative, changes)
        return changes, after

    return optax.GradientTransformation(init, update)


def _step(
    grads: Any, state: HeavyBallState, params: Any, lr: Any, method: Method
) -> tuple[Any, HeavyBallState]:
    """All parameters at once; with learning rate zero only the calls are counted."""
    clock = optax.safe_increment(state.clock)
    rate = jnp.asarray(lr, dtype=jnp.float64)
    at = numbers(method, rate, jnp.asarray(clock, dtype=jnp.float64))
    leaves, structure = jax.tree.flatten(grads)

    def column(tree: Any) -> list[Any]:
        return [None] * len(leaves) if tree is None else structure.flatten_up_to(tree)

    rows = zip(leaves, *map(column, (params, state.buffer, state.v, state.average)), strict=True)
    first = state.clock == 0
    done = [_move(g, w, Stored(*kept), at, first, method) for g, w, *kept in rows]

    def tree(kept: Any, which: int) -> Any:
        return None if kept is None else structure.unflatten([s[which] for _, s in done])

    after = HeavyBallState(
        count=optax.safe_increment(state.count),
        clock=clock,
        buffer=tree(state.buffer, 0),
        v=tree(state.v, 1),
        average=tree(state.average, 2),
    )
    changes = structure.unflatten([by for by, _ in done])
    if isinstance(lr, float) and lr > 0:
        return changes, after
    held = state._replace(count=after.count)
    still = jax.tree.map(jnp.zeros_like, changes)
    changes, after = jax.tree.map(
        lambda new, old: jnp.where(rate > 0, new, old), (changes, after), (still, held)
    )
    return changes, after


def _move(
    g: Any, w: Any, stored: Stored, at: Numbers, first: Any, method: Method
) -> tuple[Any, Stored]:
    """The update of one array, cast back to its dtype."""
    if w is None:
        by, after = change(None, _widened(g), stored, at, method)
        return by.astype(g.dtype), after
    start = wide = _widened(w)
    if method.constraint is not None:
        wide, stored = _inside(wide, stored, first, method)
    by, after = change(wide, _widened(g), stored, at, method)
    return (by + (wide - start)).astype(w.dtype), after


def _buffer(w: Any, method: Method) -> Any:
    """The buffer before the first step: z inside of the set, or how far w is from being inside."""
    method.require_fit(w.shape, w.dtype, is_complex=jnp.iscomplexobj(w))
    wide = _widened(w)
    if method.constraint is None:
        return jnp.zeros_like(wide)
    if isinstance(w, jax.core.Tracer):
        inside = method.constraint.project(wide)
    else:
        inside, moved = placed(wide, method.constraint)
        if moved:
            warnings.warn(
                f"a parameter of shape {w.shape} starts outside of {method.constraint!r}: the "
                "first step projects it",
                stacklevel=4,
            )
    inside = jnp.copy(inside)
    return inside if method.averaging else inside - wide


def _inside(w: Any, stored: Stored, first: Any, method: Method) -> tuple[Any, Stored]:
    """At the first step, w projected; later w."""
    buffer = stored.buffer
    if method.averaging:
        return jnp.where(first, buffer, w), stored
    u = jnp.where(first, jnp.zeros_like(buffer), buffer)
    return jnp.where(first, w + buffer, w), stored._replace(buffer=u)


def _widened(x: Any, *, copy: bool = False) -> Any:
    """The array in the dtype that is computed in: float32 for half precision.

    What is kept in the state must be a copy, for parameters and state may both be donated.
    """
    wide = jnp.asarray(x, dtype=jnp.promote_types(x.dtype, jnp.float32))
    return jnp.copy(wide) if copy else wide


def _require(params: Any, who: str) -> None:
    if params is None:
        raise ValueError(f"params must be given to update: {who} starts from where they are")
