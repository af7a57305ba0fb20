"""Projections of tensors that are sharded over a mesh of ranks, each rank holding its part.

The formulas are those of the sets; only where sums go is another matter, and that is the
namespace's.  `OverMesh` is torch's, except that sums and extremes go over a mesh: a rank reduces
what it holds, and the ranks tell each other the outcome, one number for each row.  No rank ever
sees the entries of another, and all find the same multipliers, for every decision rests on reduced
numbers.  What a rank holds may be of any size, nothing at all included.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from array_api_compat import torch as local
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from adahb.sets.arrays import Namespace, promote, wide

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor.placement_types import Placement

    from adahb.sets.base import Axes, ConvexSet

    Groups = tuple[ProcessGroup, ...]

_SUM, _MAX, _MIN = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN


def namespace(rows: Groups, others: Groups) -> Namespace:
    """Return the functions for rows that go on on the ranks of ``rows``.

    Sums of everything also go over ``others``; without any ranks these are torch's own.
    """
    return OverMesh(rows, others) if rows or others else local


class OverMesh:
    """The functions of torch, with those that end in few numbers taken over a mesh."""

    def __init__(self, rows: Groups, others: Groups) -> None:
        self._rows, self._others = rows, others
        self.parted = bool(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(local, name)

    @property
    def of_rows(self) -> Namespace:
        """The functions for rows of which each entry stands for a row of these."""
        return namespace(self._others, ())

    def row_sums(self, terms: Sequence[Tensor]) -> Sequence[Tensor]:
        """The sums of the rows of several tensors, told in one message."""
        sums = torch.stack([torch.sum(term, dim=-1, keepdim=True) for term in terms])
        return _told(sums, _SUM, self._rows).unbind()

    def sum(self, x: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The sum of each row; or of all entries, in which each row is to count once."""
        if axis is None:
            return _told(torch.sum(x), _SUM, self._others)
        return _told(torch.sum(x, dim=_last(axis), keepdim=keepdims), _SUM, self._rows)

    def max(
        self, x: Tensor, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Tensor:
        """The largest entry, of each row, of each matrix (those are never sharded) or of all."""
        if isinstance(axis, tuple):
            return x.amax(axis, keepdim=keepdims)
        if axis is None:
            found = x.amax() if x.numel() else x.new_full((), -torch.inf)
            return _told(found, _MAX, self._rows + self._others)
        if x.shape[-1]:
            found = x.amax(_last(axis), keepdim=keepdims)
        else:
            found = x.new_full((*x.shape[:-1], 1)[: x.ndim - 1 + keepdims], -torch.inf)
        return _told(found, _MAX, self._rows)

    def min(self, x: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The smallest entry, of each row or of all."""
        return -self.max(-x, axis=axis, keepdims=keepdims)

    def any(self, x: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Whether any entry is true, of each row or of all."""
        if axis is None:
            found, groups = torch.any(x), self._rows + self._others
        else:
            found, groups = torch.any(x, dim=_last(axis), keepdim=keepdims), self._rows
        return _told(found.to(torch.int32), _MAX, groups) > 0

    def all(self, x: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Whether every entry is true, of each row or of all."""
        return ~self.any(~x, axis=axis, keepdims=keepdims)

    def argmax(self, x: Tensor, *, axis: int, keepdims: bool) -> Tensor:
        """The place of the largest entry of each row, -1 on all ranks but the one that holds it."""
        here = x.new_full((*x.shape[:-1], 1), -1, dtype=torch.int64)
        if x.shape[-1]:
            here = x.argmax(_last(axis), keepdim=keepdims)
        largest = self.max(x, axis=axis, keepdims=keepdims)
        holds = (x == largest).any(dim=-1, keepdim=True)
        nobody, me = dist.get_world_size(), dist.get_rank()
        first = _told(torch.where(holds, me, nobody), _MIN, self._rows)
        return torch.where(first == me, here, -1)


def _told(x: Tensor, how: dist.ReduceOp.RedOpType, groups: Groups) -> Tensor:
    """Reduce a few numbers of our own over ranks that all call this together."""
    for group in groups:
        x = x.contiguous()
        dist.all_reduce(x, how, group)
    return x


def _last(axis: int) -> int:
    """Refuse to reduce along an axis of which it is not known how it is sharded."""
    if axis != -1:
        raise NotImplementedError(f"axis must be -1 or None over a mesh, got {axis}")
    return axis


class ShardedSet:
    """A set, for the shards of tensors of one shape that lie on a mesh in one way."""

    def __init__(
        self,
        constraint: ConvexSet,
        shape: tuple[int, ...],
        mesh: DeviceMesh,
        placements: Sequence[Placement],
    ) -> None:
        axes = constraint._axes(len(shape))
        sharded = sharded_axes(placements)
        for axis in sharded & axes.whole:
            raise ValueError(
                f"constraint={constraint!r} must not be given to a parameter that is sharded along "
                f"axis {axis}, for its projection needs that axis whole; got the shape {shape} "
                f"with {tuple(placements)} on {mesh}"
            )
        self.constraint = constraint
        self._xp = namespace(*_groups(axes, mesh, placements))
        rows = axes._replace(all=frozenset(range(len(shape))) - axes.rows)
        self._judging = namespace(*_groups(rows, mesh, placements))
        self._part = copy(constraint)
        arrays = constraint._cut(lambda array: _cut(array, shape, mesh, placements), shape)
        vars(self._part).update(_arrays=arrays, _tensors={})

    def __repr__(self) -> str:
        return f"{self.constraint!r} over a mesh"

    def project(self, x: Tensor, metric: Tensor | None = None) -> Tensor:
        """Return this rank's part of the projection of what all hold, given its part of that."""
        xp = self._xp
        sound = torch.isfinite(x)
        if metric is not None:
            sound = sound & torch.isfinite(metric) & (metric > 0)
        if not bool(xp.all(sound)):
            raise ValueError("x and metric must be finite, and metric > 0, on every rank")
        if not x.numel() and xp is local:
            return x.clone()
        h = None if metric is None else wide(metric, xp)
        y: Tensor = self._part._project(promote(x, xp), h, xp)
        return y.reshape(x.shape).to(x.dtype)

    def contains(self, x: Tensor) -> bool:
        """Tell on every rank whether what all hold together is a point of the set."""
        xp = self._judging
        if xp is local:
            return not x.numel() or self._is_inside(x, local)
        return self._is_inside(x, xp)

    def _is_inside(self, x: Tensor, xp: Namespace) -> bool:
        tolerance: float = torch.finfo(x.dtype).eps ** (2 / 3)
        return bool(xp.max(self._part._excess(wide(x, xp), xp)) <= tolerance)


def sharded(constraint: ConvexSet, x: DTensor) -> ShardedSet | None:
    """Return the set for the shards of x; None where each rank can use the set itself."""
    if not sharded_axes(x.placements):
        return None
    return ShardedSet(constraint, tuple(x.shape), x.device_mesh, x.placements)


def sharded_axes(placements: Sequence[Placement]) -> frozenset[int]:
    """Return the axes of a tensor along which ranks hold different parts."""
    return frozenset(axis for axis in map(_axis, placements) if axis is not None)


def _axis(placement: Placement) -> int | None:
    """Return the axis that a placement shards: also one that shards what is sharded already."""
    return getattr(placement, "dim", None)


def _groups(axes: Axes, mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[Groups, Groups]:
    """Return the ranks on which rows go on, and those on which there are others."""
    parts = [
        (axis, mesh.get_group(number))
        for number, axis in enumerate(map(_axis, placements))
        if axis is not None and mesh.size(number) > 1
    ]
    rows = tuple(group for axis, group in parts if axis in axes.rows)
    return rows, tuple(group for axis, group in parts if axis in axes.all)


def _cut(
    array: Any, shape: tuple[int, ...], mesh: DeviceMesh, placements: Sequence[Placement]
) -> Any:
    """Return what of an array that broadcasts to ``shape`` belongs to this rank's shard."""
    lengths = (1,) * (len(shape) - array.ndim) + array.shape
    like_x = [
        Replicate() if axis is not None and lengths[axis] != shape[axis] else placement
        for placement in placements
        for axis in [_axis(placement)]
    ]
    whole = torch.tensor(array).reshape(lengths)
    part = distribute_tensor(whole, mesh, like_x, src_data_rank=None).to_local()
    return part.cpu().numpy()
