"""Which kernel makes a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from adahb.optim.kernels import eager, foreach
from adahb.optim.update import Batch, Numbers, Recipe

Kernel = Callable[[Batch, Numbers, Recipe], None]


def kernel(group: dict[str, Any], batch: Batch, at: Numbers) -> Kernel:
    """The fastest kernel that can make the step, or the one that the group asks for."""
    on_device = isinstance(at.alpha, Tensor)
    plain = not any(torch.is_complex(p) for p in batch.params)
    if group["differentiable"] or on_device or not plain or group["foreach"] is False:
        return eager.step
    if group["foreach"] or all(p.device.type == "cuda" for p in batch.params):
        return foreach.step
    return eager.step
