"""Half precision for kernels that know only float32: widen, step, round back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from adahb.optim.update import HALF

if TYPE_CHECKING:
    from adahb.optim.update import Batch


def widened(batch: Batch) -> Batch:
    """The batch with parameters and gradients in float32, in which the states are already."""
    if not batch.params or batch.params[0].dtype not in HALF:
        return batch
    return replace(
        batch, params=[p.float() for p in batch.params], grads=[g.float() for g in batch.grads]
    )


def copy_back(wide: Batch, batch: Batch) -> None:
    """Round the parameters of a widened batch into those they came from."""
    if wide is not batch:
        torch._foreach_copy_(batch.params, wide.params)
