"""What a step of a group has found, for the next one to use again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adahb.optim.numbers import numbers
from adahb.optim.options import Group
from adahb.optim.sharding import here, is_dtensor
from adahb.optim.update import STATES, Batch, Numbers, Recipe
from adahb.schedules import Schedule

if TYPE_CHECKING:
    from adahb.optim.base import HeavyBall
    from adahb.sets.sharded import ShardedSet

_layout: Callable[[Tensor], torch.layout] = attrgetter("layout")


@dataclass
class Plan:
    """What a step of a group has found: what is updated, how, and on which clocks."""

    schedule: Schedule
    recipe: Recipe
    clocks: list[Tensor]
    batches: list[tuple[Batch, Recipe, int]]
    """Each with its recipe, in which the constraint may be one over a mesh, and its clock."""
    members: list[list[int]]
    """The numbers of each batch's parameters in the group."""
    largest_rate: float
    """The learning rate up to which all numbers of a step are finite."""
    params: list[Tensor] = field(default_factory=list)
    on_mesh: bool = False
    """Whether any of the parameters is a DTensor."""
    _parts: list[Tensor] = field(default_factory=list)
    _group: Group | None = None
    _options: Callable[[Group], tuple[Any, ...]] = field(default=lambda _: ())
    """Takes from a group all options but the learning rate, which may change at every step."""
    _chosen: tuple[Any, ...] = ()
    _states: list[Group] = field(default_factory=list)
    _held: list[Any] = field(default_factory=list)
    _known: tuple[int, int] = (0, 0)
    _numbers: dict[int, tuple[tuple[float, int, int], Numbers]] = field(default_factory=dict)
    """By the number of the clock, the last ones, and of what they were made."""

    def remember(self, group: Group, optimizer: HeavyBall) -> None:
        """Note all that the plan rests on; every parameter of the group has a gradient."""
        self.params = list(group["params"])
        self.on_mesh = any(map(is_dtensor, self.params))
        self._parts = list(map(here, self.params)) if self.on_mesh else []
        self._group, self._options = group, itemgetter(*set(optimizer.defaults) - {"lr"})
        self._chosen = self._options(group)
        self._states = [optimizer.state[p] for p in self.params]
        self._held = list(chain.from_iterable(map(dict.values, self._states)))
        self._known = optimizer._partings, len(optimizer.state)

    def holds(self, group: Group, optimizer: HeavyBall) -> bool:
        """Tell whether options, parameters, states and clocks are the ones they were."""
        return (
            self._group is group
            and self._known == (optimizer._partings, len(optimizer.state))
            and self._chosen == self._options(group)
            and len(self.params) == len(group["params"])
            and all(map(is_, self.params, group["params"]))
            and all(map(is_, self._parts, map(here, self.params)))
            and sum(map(len, self._states)) == len(self._held)
            and all(map(is_, chain.from_iterable(map(dict.values, self._states)), self._held))
        )

    def take(self, grads: list[Any]) -> None:
        """Put the gradients of this step into the batches."""
        if {*map(_layout, grads)} != {torch.strided}:
            grads = [_dense(grad) for grad in grads]
        for (batch, _, _), chosen in zip(self.batches, self.members, strict=True):
            batch.grads = grads if len(chosen) == len(grads) else [grads[i] for i in chosen]

    def drop_gradients(self) -> None:
        """Let go of the gradients, whose memory the next backward pass may need."""
        for batch, _, _ in self.batches:
            batch.grads = []

    def numbers(self, place: int, lr: float, step: int) -> Numbers:
        """The numbers of a step on one of the clocks, made again only where they have changed."""
        period = self.schedule.period
        key = lr, (step - 1) // period, step // period  # the latter for NAG, which looks ahead
        known = self._numbers.get(place)
        if known is None or known[0] != key:
            self._numbers[place] = known = key, numbers(self.schedule, lr, step)
        return known[1].at_step(step) if self.recipe.counts_steps else known[1]


def parted(
    every: Batch,
    recipe: Recipe,
    clock_of: list[int],
    batch_of: list[int],
    sets: list[ShardedSet | None],
) -> tuple[list[tuple[Batch, Recipe, int]], list[list[int]]]:
    """The batches of a plan, and the parameters that each consists of."""
    every.grads = [_dense(grad) for grad in every.grads]
    if not batch_of:
        return [], []
    batches, members = [], []
    for number in range(max(batch_of) + 1):
        chosen = [i for i, other in enumerate(batch_of) if other == number]
        batch = Batch([every.params[i] for i in chosen], [every.grads[i] for i in chosen])
        for name in STATES:
            column = getattr(every, name)
            if column[chosen[0]] is not None:
                setattr(batch, name, [column[i] for i in chosen])
        over_mesh = sets[chosen[0]]
        own = recipe if over_mesh is None else replace(recipe, constraint=over_mesh)
        batches.append((batch, own, clock_of[chosen[0]]))
        members.append(chosen)
    return batches, members


def _dense(grad: Tensor) -> Tensor:
    """The gradient as a dense tensor: a row without one has gradient zero, and moves like it."""
    return grad if grad.layout is torch.strided else grad.to_dense()
