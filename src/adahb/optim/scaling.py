"""What torch's GradScaler leaves on an optimizer for the time of a step, and what becomes of it.

There is the number by which gradients are to be divided, and whether any of them was infinite or
NaN, in which case the step must not count.  On a GPU that is known only there, and asking would
make the host wait: so the clock moves to the device, which decides by itself whether it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from adahb.optim import state as kept

if TYPE_CHECKING:
    from adahb.optim.base import HeavyBall
    from adahb.optim.options import Group


def grad_scale(optimizer: HeavyBall) -> Tensor | None:
    """The number by which gradients are to be divided, if there is one."""
    return getattr(optimizer, "grad_scale", None)


def found_by_scaler(optimizer: HeavyBall) -> Tensor | None:
    """Not zero if a gradient was infinite or NaN; None if no scaler has looked."""
    return getattr(optimizer, "found_inf", None)


def is_refused(optimizer: HeavyBall, group: Group) -> bool:
    """Tell whether the step must not be made, as far as the host can know."""
    found = optimizer._unsound
    if found is None or torch.compiler.is_compiling():
        return False
    if found.device.type == "cpu" or all(p.device.type == "cpu" for p in group["params"]):
        return bool(found)
    if _move_clocks(optimizer, group):
        optimizer._partings += 1  # plans, and steps that were compiled, know the clocks of before
    return False


def _move_clocks(optimizer: HeavyBall, group: Group) -> bool:
    """Put the clocks of a group on the devices of its parameters; tell if any had to be moved.

    Parameters that have made no step yet begin with a clock there: see `clock_device`.
    """
    moved: dict[tuple[int, torch.device], Tensor] = {}
    held = []  # so that no clock's identity is given to another
    for p in group["params"]:
        state = optimizer.state.get(p)
        if state and state[kept.CLOCK].device != p.device:
            clock = state[kept.CLOCK]
            held.append(clock)
            key = id(clock), p.device
            if key not in moved:
                moved[key] = clock.to(p.device)
            state[kept.CLOCK] = moved[key]
    return bool(moved)


def clock_device(optimizer: HeavyBall, p: Tensor, group: Group) -> torch.device:
    """Where the clock of a new parameter is."""
    return p.device if optimizer._unsound is not None else kept.clock_device(p, group)
