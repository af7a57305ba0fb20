"""To find out, on any device, whether a computation could be captured in a CUDA graph."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from adahb.optim.kernels import eager
from adahb.sets import arrays, base, groups, thresholds

WAITS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select", "lift")
"""Operations that bring numbers to the host, or from there."""


class WithoutWaiting(TorchDispatchMode):
    """Refuses operations that wait for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__
        by_mask = name == "index.Tensor" and any(
            t is not None and t.dtype == torch.bool for t in args[1]
        )
        if by_mask or "check_errors" in name or name.startswith(WAITS):
            raise AssertionError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))


def as_if_captured(monkeypatch):
    """Let tensors be taken for ones in a graph that is being captured."""
    for module in (arrays, base, thresholds, groups, eager):
        monkeypatch.setattr(module, "unseen", torch.is_tensor)
