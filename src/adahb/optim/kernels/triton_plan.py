"""What of a Triton step stays the same, laid out on the device: pointers, sizes, who updates what.

A plan is found again by what it was made of, addresses, sizes, dtypes and layouts, so that it holds
no tensor of the user's and none can be mistaken for another that came to lie in its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from adahb.optim.update import STATES

if TYPE_CHECKING:
    from adahb.optim.update import Batch

BLOCK = 1024
"""Elements of a program of four warps: on an H200 nearly the fastest for every kind of state."""
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int8, torch.uint8)
"""What it reads and writes; the last two are states in blocks."""
_PLANS = 64
"""Plans remembered for batches that do not carry theirs."""

_plans: dict[tuple[int, ...], Plan] = {}
captured: list[Any] = []
"""What CUDA graphs read when they are replayed: kept, for nothing says when a graph is gone."""
_dtype: Callable[[Tensor], torch.dtype] = attrgetter("dtype")


@dataclass
class Launch:
    """Tensors that one launch updates, and what the device knows of them."""

    device: torch.device
    types: tuple[torch.dtype, ...]
    members: list[int] | None
    """Places in the batch; None is all of them."""
    fixed: Tensor
    blocks: Tensor
    count: int
    aligned: bool
    compiled: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """Kernels by their compile-time arguments: called directly, they start twice as fast."""
    spare: Tensor | None = None
    """Host memory for the pointers of a capture, in which none can be allocated."""
    table: Tensor | None = None
    table_aligned: bool = False
    """What was uploaded last, and whether it allows loads of 16 bytes,"""
    uploaded: tuple[Any, ...] = ()
    """and of what it was made: as long as that is so, it is used again."""
    choices: tuple[Any, ...] = ()
    """The compile-time arguments of the last step, and"""
    made_for: tuple[Any, ...] = ()
    """of what they were made."""


@dataclass
class Plan:
    """What of a step stays the same."""

    content: tuple[Any, ...]
    at: list[int]
    """Addresses of the parameters."""
    grads: tuple[list[torch.dtype], list[int]]
    """Dtypes and sizes of the gradients."""
    orders: list[tuple[int, ...]] | None
    """Memory layouts of the parameters; None if all are contiguous."""
    launches: list[Launch]


def planned(batch: Batch, known: Plan | None = None) -> Plan | str:
    """The plan of a batch, known, remembered or made now, or why there can be none."""
    at = list(map(Tensor.data_ptr, batch.params))
    types = list(map(_dtype, batch.grads))
    if known is not None and known.at == at and known.grads[0] == types:
        return known  # parameters and states of a batch are the same, and gradients fit parameters
    strange = {*map(type, batch.params)} - {Tensor, Parameter}
    if strange:
        return f"it does not know how a {strange.pop().__name__} lies in memory"
    grads = types, list(map(Tensor.numel, batch.grads))
    content = _content(batch, at, grads)
    key = (len(at), *at[:1], *map(Tensor.data_ptr, batch.buffers[:1]))
    plan = _plans.get(key)
    if plan is not None and plan.content == content:
        return plan
    objection = _objection(batch)
    if objection:
        return objection
    orders = None if content[-1] is None else content[-1][: len(at)]
    plan = Plan(content, at, grads, orders, _launches(batch))
    if plan.launches and not is_capturing(plan.launches[0].device):
        _plans.pop(key, None)
        _plans[key] = plan
        if len(_plans) > _PLANS:
            _plans.pop(next(iter(_plans)))
    return plan


def _content(batch: Batch, at: list[int], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that a plan depends on, so that a stale one is never mistaken for the batch's."""
    states = list(chain.from_iterable(batch.states().values()))
    everything = [*batch.params, *states]
    contiguous = all(map(Tensor.is_contiguous, everything))
    return (
        (len(at), *batch.states()),
        at,
        list(map(Tensor.data_ptr, states)),
        list(map(Tensor.numel, everything)),
        list(map(_dtype, everything)),
        batch.params[0].device if batch.params else None,
        grads,
        None if contiguous else list(map(order, everything)),
    )


def _objection(batch: Batch) -> str | None:
    if not _installed():
        return "triton is not installed"
    kept = batch.states()
    states = {name: kept[name] for name in ("buffers", "squares", "averages") if name in kept}
    scaled = {name for name in states if name[:-1] + "_scales" in kept}
    for i, p in enumerate(batch.params):
        if p.device.type != "cuda" and not (_interpreted() and p.device.type == "cpu"):
            return f"a parameter is on {p.device}, not on a CUDA device"
        own = [("params", p), ("grads", batch.grads[i])]
        for name, x in [*own, *((name, x[i]) for name, x in states.items())]:
            if x.dtype not in (DTYPES if name in scaled else FLOATS):
                return f"it does not compute with {x.dtype}"
            if x.device != batch.params[0].device:
                return f"tensors are on {x.device} and on {batch.params[0].device}"
            if x.shape != p.shape:
                return f"a parameter of shape {tuple(p.shape)} has a state of {tuple(x.shape)}"
        for low in kept.get("lows", [])[i : i + 1]:
            if low.shape != p.shape or order(low) != order(p):
                return f"a parameter of shape {tuple(p.shape)} has low digits of {low.shape}"
        if any(x.is_neg() for x in (p, *(state[i] for state in states.values()))):
            return f"a parameter of shape {tuple(p.shape)} is a view that negates"
        others = [state[i] for state in states.values()]
        if not _dense(p) or (p.numel() and any(order(x) != order(p) for x in others)):
            return (
                f"a parameter of shape {tuple(p.shape)} and strides {p.stride()} has gaps, or a "
                "state with other strides"
            )
    return None


def _launches(batch: Batch) -> list[Launch]:
    """Sort the tensors by their dtypes, empty ones left out, and lay out their tables."""
    lists = [batch.params, batch.grads, batch.buffers, batch.squares, batch.averages]
    kinds: dict[tuple[torch.dtype, ...], list[int]] = {}
    for i, p in enumerate(batch.params):
        if p.numel():
            types = tuple(x[i].dtype if x else p.dtype for x in lists)
            kinds.setdefault(types, []).append(i)
    return [_laid_out(batch, types, members) for types, members in kinds.items()]


def _laid_out(batch: Batch, types: tuple[torch.dtype, ...], members: list[int]) -> Launch:
    device = batch.params[0].device
    lists = [batch.params, *(getattr(batch, name) for name in STATES)]
    sizes = torch.tensor([batch.params[i].numel() for i in members])
    addresses = torch.tensor([[x[i].data_ptr() if x else 0 for x in lists] for i in members])
    counts = (sizes + (BLOCK - 1)) // BLOCK
    tensors = torch.repeat_interleave(torch.arange(len(members)), counts)
    first = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    blocks = (tensors << 32) + torch.arange(len(tensors)) - first
    return Launch(
        device=device,
        types=types,
        members=None if len(members) == len(batch.params) else members,
        fixed=_kept_on(device, torch.cat([addresses, sizes[:, None]], 1)),
        blocks=_kept_on(device, blocks),
        count=len(blocks),
        aligned=bool((addresses % 16 == 0).all() and (sizes % 4 == 0).all()),
    )


def _kept_on(device: torch.device, words: Tensor) -> Tensor:
    """A copy on the device: there before the host goes on, unless it is made by a graph."""
    if not is_capturing(device):
        return words.to(device)
    pinned = words.pin_memory()
    captured.append(pinned)
    return pinned.to(device, non_blocking=True)


def order(x: Tensor) -> tuple[int, ...]:
    """Strides where there is more than one entry: the order of the entries in memory."""
    return tuple(n for n, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def _dense(x: Tensor) -> bool:
    """Whether the entries fill their memory, once each."""
    if not x.numel():
        return True
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def is_capturing(device: torch.device) -> bool:
    """Whether what is launched now becomes part of a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
