"""Projections inside of graphs, where no number may be looked at.

A graph is compiled (torch.compile) or captured (CUDA).  Sets project in operations of torch whose
course does not depend on the numbers; where those are too many to be compiled well, or where there
are none, the projection stands in a compiled graph as one operation, which is made as outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from array_api_compat import torch as xp
from torch import Tensor

from adahb.sets import GroupL1Ball, NuclearBall
from adahb.sets.arrays import blindfold, unseen

if TYPE_CHECKING:
    from adahb.sets import ConvexSet
    from adahb.sets.sharded import ShardedSet

_NUMBER = "_number_in_graphs"
_numbers = count()
_numbered: WeakValueDictionary[int, ConvexSet] = WeakValueDictionary()


def prepare(constraint: ConvexSet, params: Iterable[Tensor]) -> None:
    """Make what a graph of these parameters will need and cannot make itself."""
    for device in {p.device for p in params}:
        constraint._prepare(device)
    if _NUMBER not in vars(constraint):
        number = next(_numbers)
        vars(constraint)[_NUMBER] = number
        _numbered[number] = constraint


def project(constraint: ConvexSet, x: Tensor, metric: Tensor | None) -> Tensor:
    """P[x] in a graph; numbers that are not finite yield others, for nobody sees them."""
    if x.numel() <= 1:
        metric = None
    many = isinstance(constraint, GroupL1Ball) and metric is not None
    if torch.compiler.is_compiling() and (many or isinstance(constraint, NuclearBall)):
        number: int = getattr(constraint, _NUMBER)
        whole: Tensor = torch.ops.adahb.project(x, metric, number)
        return whole
    if isinstance(constraint, NuclearBall):
        raise RuntimeError(
            f"constraint={constraint!r} must stay out of CUDA graphs, for it looks at numbers"
        )
    if x.numel() == 0:
        return x.clone()
    y: Tensor = constraint._project(x, None if metric is None else metric.double(), xp)
    return y.reshape(x.shape).to(x.dtype)


def project_blindly(constraint: ConvexSet, x: Tensor, metric: Tensor | None) -> Tensor:
    """P[x] where only the device knows whether x is finite, and the host does not wait to learn.

    The exception is the nuclear norm, whose singular values are the host's business anyway.
    """
    if torch.compiler.is_compiling():
        return project(constraint, x, metric)
    if isinstance(constraint, NuclearBall):
        projected: Tensor = constraint.project(x.nan_to_num(), metric)
        return projected
    with blindfold():
        return project(constraint, x, metric)


def project_over_mesh(
    constraint: ShardedSet, x: Tensor, metric: Tensor | None, *, blind: bool
) -> Tensor:
    """P[x] for what this rank holds of x; the ranks look at numbers to know when to end."""
    if unseen(x):
        raise RuntimeError(
            f"constraint={constraint.constraint!r} must stay out of graphs where parameters are "
            "sharded, for the ranks look at numbers to know when they are done"
        )
    if blind:
        x = x.nan_to_num(0.0, 0.0, 0.0)
        metric = None if metric is None else metric.nan_to_num(1.0, 1.0)
    return constraint.project(x, metric)


@torch.library.custom_op(
    "adahb::project", mutates_args=(), schema="(Tensor x, Tensor? metric, int number) -> Tensor"
)
def _project(x: Tensor, metric: Tensor | None, number: int) -> Tensor:
    projected: Tensor = _numbered[number].project(x, metric)
    return projected


@_project.register_fake
def _(x: Tensor, metric: Tensor | None, number: int) -> Tensor:  # noqa: ARG001
    return torch.empty_like(x)
