"""Parameters that are DTensors: sharded over a mesh of ranks, or replicated on it.

Their states are DTensors like them, so that torch's distributed checkpoints know what lies where.
Kernels are given what this rank holds, as the plain tensors that those are: all the arithmetic is
element by element, but for projections, and these are `adahb.sets.sharded`'s.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor

from adahb.optim.kernels.eager import interval

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

    from adahb.sets import ConvexSet
    from adahb.sets.sharded import ShardedSet


def is_dtensor(x: Tensor) -> TypeGuard[DTensor]:
    """Tell whether x is a DTensor; where nobody has imported them, there are none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(x, module.DTensor)


def here(x: Tensor) -> Tensor:
    """What this rank holds of a tensor, to be written to: all of it, if it is a plain one."""
    if not is_dtensor(x):
        return x
    part = x._local_tensor
    return part.wait() if hasattr(part, "wait") else part  # it may still be on its way


def gradient(p: Tensor) -> Tensor:
    """What of p's gradient, which is there, belongs to what this rank holds of p."""
    g = p.grad
    assert g is not None
    if is_dtensor(p) and is_dtensor(g) and g.placements != p.placements:
        g = g.redistribute(placements=p.placements)
    return here(g)


def layout(p: Tensor) -> tuple[Any, ...] | None:
    """How a parameter lies on its mesh; None if it is a plain tensor."""
    return (p.device_mesh, p.placements, p.shape) if is_dtensor(p) else None


def set_over_mesh(constraint: ConvexSet, p: Tensor) -> ShardedSet | None:
    """The constraint for what this rank holds of p; None if that is the constraint itself."""
    if not is_dtensor(p):
        return None
    from adahb.sets import sharded

    return sharded.sharded(constraint, p)


def projects_alone(constraint: ConvexSet | None) -> bool:
    """Tell whether every element is projected by itself, and all of them alike."""
    return constraint is None or interval(constraint) is not None


def laid_out_like(p: Tensor, saved: Tensor) -> Tensor:
    """A copy of a saved state of p, on its device and spread over its mesh as p is.

    A state from a run without a mesh is taken apart; one from a mesh is put together if p is whole.
    """
    if is_dtensor(p):
        if is_dtensor(saved):
            saved = saved.redistribute(p.device_mesh, p.placements)
        else:
            from torch.distributed.tensor import distribute_tensor

            saved = distribute_tensor(saved, p.device_mesh, p.placements, src_data_rank=None)
    elif is_dtensor(saved):
        saved = saved.full_tensor()
    return saved.to(p.device, copy=True)
