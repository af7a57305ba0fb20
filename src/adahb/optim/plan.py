"""What a step of a group has found, for the next one to use again."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adahb.optim.options import Group
from adahb.optim.update import Batch, Recipe
from adahb.schedules import Schedule

if TYPE_CHECKING:
    from adahb.optim.base import HeavyBall


@dataclass
class Plan:
    """What a step of a group has found: what is updated, how, and on which clocks."""

    schedule: Schedule
    recipe: Recipe
    clocks: list[Tensor]
    batches: list[tuple[Batch, int]]
    """Each with the number of its clock."""
    members: list[list[int]]
    """The numbers of each batch's parameters in the group."""
    params: list[Tensor] = field(default_factory=list)
    _group: Group | None = None
    _options: tuple[Any, ...] = ()
    _states: list[Group] = field(default_factory=list)
    _held: list[Any] = field(default_factory=list)
    _known: tuple[int, int] = (0, 0)

    def remember(self, group: Group, optimizer: HeavyBall) -> None:
        """Note all that the plan rests on; every parameter of the group has a gradient."""
        self.params = list(group["params"])
        self._group, self._options = group, _options(group)
        self._states = [optimizer.state[p] for p in self.params]
        self._held = list(chain.from_iterable(map(dict.values, self._states)))
        self._known = optimizer._partings, len(optimizer.state)

    def holds(self, group: Group, optimizer: HeavyBall) -> bool:
        """Tell whether options, parameters, states and clocks are the ones they were."""
        return (
            self._group is group
            and self._known == (optimizer._partings, len(optimizer.state))
            and self._options == _options(group)
            and len(self.params) == len(group["params"])
            and all(map(is_, self.params, group["params"]))
            and sum(map(len, self._states)) == len(self._held)
            and all(map(is_, chain.from_iterable(map(dict.values, self._states)), self._held))
        )

    def take(self, grads: list[Any]) -> None:
        """Put the gradients of this step in place of the last one's."""
        grads = [_dense(grad) for grad in grads]
        for (batch, _), chosen in zip(self.batches, self.members, strict=True):
            batch.grads = grads if len(chosen) == len(grads) else [grads[i] for i in chosen]


def _options(group: Group) -> tuple[Any, ...]:
    """All options but the learning rate, which changes from step to step."""
    return tuple(item for item in group.items() if item[0] not in ("params", "lr"))


def parted(
    every: Batch, clock_of: list[int], batch_of: list[int]
) -> tuple[list[tuple[Batch, int]], list[list[int]]]:
    """Batches, each with the number of its clock, and the parameters that each consists of."""
    every.grads = [_dense(grad) for grad in every.grads]
    if not batch_of:
        return [], []
    if max(batch_of) == 0:
        return [(every, 0)], [list(range(len(batch_of)))]
    batches, members = [], []
    for number in range(max(batch_of) + 1):
        chosen = [i for i, other in enumerate(batch_of) if other == number]
        batch = Batch(
            params=[every.params[i] for i in chosen],
            grads=[every.grads[i] for i in chosen],
            buffers=[every.buffers[i] for i in chosen],
            squares=[every.squares[i] for i in chosen] if every.squares else [],
            averages=[every.averages[i] for i in chosen] if every.averages else [],
        )
        batches.append((batch, clock_of[chosen[0]]))
        members.append(chosen)
    return batches, members


def _dense(grad: Tensor) -> Tensor:
    """The gradient as a dense tensor: a row without one has gradient zero, and moves like it."""
    return grad if grad.layout is torch.strided else grad.to_dense()
