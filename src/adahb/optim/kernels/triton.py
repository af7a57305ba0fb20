"""The update in one launch for all tensors of a batch, or one a combination of dtypes, in Triton.

A step reads and writes each number once, so that memory bandwidth is the limit where tensors are
large, and the host's work where they are many and small.  Hence what does not change from step to
step, the pointers of parameters and states and which program updates which block, is laid out on
the device once, in a plan; a step uploads the coefficients and the gradients' pointers, together.

A batch that is used for many steps carries its plan, and then only parameters and gradients are
looked at.

Under CUDA-graph capture the coefficients are computed on the device, and the copy of the pointers
becomes part of the graph: its source is never written again, and kept for as long as the program
runs, for nothing says when a graph is gone.

With ``TRITON_INTERPRET=1`` in the environment the kernel runs on tensors of the CPU, slowly: that
is for tests.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from adahb.optim import narrow
from adahb.optim.kernels.eager import interval
from adahb.optim.kernels.triton_plan import (
    BLOCK,
    DTYPES,
    Launch,
    Plan,
    captured,
    is_capturing,
    order,
    planned,
)
from adahb.optim.update import COEFFICIENTS

if TYPE_CHECKING:
    from adahb.optim.update import Batch, Numbers, Recipe

_PLAN, _CHECKED = "triton plan", "triton plan of this step"


def supports(batch: Batch, recipe: Recipe) -> str | None:
    """None if `step` can make the update, else the reason why not."""
    if recipe.constraint is not None and interval(recipe.constraint) is None:
        return f"the constraint {recipe.constraint!r} is not a box with numbers as bounds"
    if not batch.lows and any(recipe.compensates(p.dtype) for p in batch.params[:1]):
        return "the parameters have no low digits beside them"
    plan = planned(batch, batch.memo.get(_PLAN))
    if isinstance(plan, str):
        return plan
    batch.memo[_PLAN] = batch.memo[_CHECKED] = plan
    return None


def step(batch: Batch, at: Numbers, recipe: Recipe) -> None:
    """Update every parameter of the batch in place, if `supports` has no objection.

    What `supports` has just looked at is not looked at again.
    """
    if _CHECKED not in batch.memo:
        objection = supports(batch, recipe)
        if objection:
            raise ValueError(f"the Triton kernel cannot make this update: {objection}")
    plan: Plan = batch.memo.pop(_CHECKED)
    gradients = _gradients(batch, plan)
    for launch in plan.launches:
        with _on(launch.device):
            _run(launch, gradients, at, recipe)
    torch.autograd.graph.increment_version(batch.params)  # autograd has not seen them change


def _run(launch: Launch, gradients: list[Tensor], at: Numbers, recipe: Recipe) -> None:
    grads = gradients if launch.members is None else [gradients[i] for i in launch.members]
    on_device = isinstance(at.alpha, Tensor)
    table, aligned = _table(launch, grads, None if on_device else at, recipe)
    numbers = _stacked(_coefficients(at, recipe), launch.device) if on_device else table
    scale = None if at.grad_scale is None else at.grad_scale.to(launch.device, torch.float32)
    live = None if at.live is None else at.live.to(launch.device, torch.int64)
    given = recipe, scale is not None, live is not None, aligned
    if launch.made_for != given:
        launch.made_for, launch.choices = given, _choices(launch, *given)
    random = recipe.state_dtype is not None or recipe.rounding == "stochastic"
    arguments = (
        *(numbers, table, launch.fixed, launch.blocks),
        *(table if scale is None else scale, table if live is None else live),
        int(at.step) & narrow.SEEDS if random and not on_device else 0,
        *launch.choices,
    )
    compiled = launch.compiled.get(launch.choices)
    if compiled is None:
        kernel, grid = _kernel()[0], (launch.count, 1, 1)
        # products are rounded before they are added, as in the other kernels: that is free here
        made = kernel[grid](*arguments, enable_fp_fusion=False)
        launch.compiled[launch.choices] = made if made is None else made[grid]
    else:
        compiled(*arguments)


def _choices(
    launch: Launch, recipe: Recipe, scaled: bool, skips: bool, aligned: bool
) -> tuple[Any, ...]:
    """The compile-time arguments."""
    _, types, fixed_arguments = _kernel()
    dtype = launch.types[0]
    rounding = 1 if recipe.compensates(dtype) else 2 if recipe.randomises(dtype) else 0
    return (
        *(types[dtype] for dtype in (*launch.types, recipe.arithmetic(dtype))),
        *(recipe.adaptive, recipe.averaging, recipe.extrapolates, recipe.keeps_average),
        recipe.maximize,
        bool(recipe.weight_decay) and not recipe.decoupled,
        bool(recipe.weight_decay) and recipe.decoupled,
        *(recipe.constraint is not None, scaled, skips, recipe.offset, rounding, aligned),
        *fixed_arguments,
    )


def _coefficients(at: Numbers, recipe: Recipe) -> tuple[float | Tensor, ...]:
    """What the kernel multiplies with, in its order."""
    bounds = None if recipe.constraint is None else interval(recipe.constraint)
    return (
        *(at.alpha, 1 - at.beta1, at.eta, at.c),
        *((1 - at.beta2, at.delta) if recipe.adaptive else (0.0, 1.0)),
        *(at.beta1_next, at.share, recipe.weight_decay),
        *(bounds or (0.0, 0.0)),
        at.step if isinstance(at.step, Tensor) else 0.0,
    )


@cache
def _kernel() -> tuple[Any, dict[torch.dtype, Any], tuple[int, int, int, int]]:
    """The kernel, Triton's names of the dtypes, and the arguments that are always the same."""
    from triton import language as tl

    from adahb.optim.kernels import triton_update as made

    names = (tl.float64, tl.float32, tl.bfloat16, tl.float16, tl.int8, tl.uint8)
    types = dict(zip(DTYPES, names, strict=True))
    return made.update, types, (made.NUMBERS, made.ROW, made.PART, BLOCK)


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Make the tensors' device the current one: that is where Triton launches."""
    if device.type == "cpu" or device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(device)


def _gradients(batch: Batch, plan: Plan) -> list[Tensor]:
    """The gradients, each in the memory layout of its parameter, copied only if it must be."""
    grads = batch.grads
    if plan.orders is None and all(map(Tensor.is_contiguous, grads)):  # what costs next to nothing
        return [g.resolve_neg() for g in grads] if any(map(Tensor.is_neg, grads)) else grads
    orders = plan.orders or [order(p) for p in batch.params]
    return [
        g if order(g) == wanted and not g.is_neg() else torch.empty_like(p, dtype=g.dtype).copy_(g)
        for p, g, wanted in zip(batch.params, batch.grads, orders, strict=True)
    ]


def _table(
    launch: Launch, grads: list[Tensor], at: Numbers | None, recipe: Recipe
) -> tuple[Tensor, bool]:
    """Coefficients, if they are the host's, and gradients' pointers, as words on the device.

    Also tells whether all pointers and sizes allow loads of 16 bytes.  What has been uploaded is
    used again while it is the same: within a tick, if gradients come to lie where they lay.

    The host memory is new each time: torch's allocator hands it out again when the copy is done.
    """
    first = _kernel()[2][0]
    capturing = is_capturing(launch.device)
    addresses = list(map(Tensor.data_ptr, grads))
    on_gpu = launch.device.type == "cuda"
    stream = torch._C._cuda_getCurrentRawStream(launch.device.index) if on_gpu else 0
    content = at and at[:COEFFICIENTS], recipe, stream, addresses
    if launch.table is not None and launch.uploaded == content and not capturing:
        return launch.table, launch.table_aligned
    pinned = launch.spare if capturing else None
    if pinned is None:
        pinned = torch.empty(first + len(grads), dtype=torch.int64, pin_memory=on_gpu)
    words = pinned.numpy()
    words[:first].view(np.float64)[:] = 0.0 if at is None else _coefficients(at, recipe)
    words[first:] = addresses
    aligned = launch.aligned and not int(np.bitwise_or.reduce(words[first:])) % 16
    if capturing:
        launch.spare = None
        captured.append((pinned, launch))
    elif at is None and on_gpu and launch.spare is None:
        launch.spare = torch.empty_like(pinned, pin_memory=True)
    table = pinned.to(launch.device, non_blocking=True) if on_gpu else pinned
    if not capturing:
        launch.table, launch.table_aligned, launch.uploaded = table, aligned, content
    return table, aligned


def _stacked(coefficients: tuple[float | Tensor, ...], device: torch.device) -> Tensor:
    """The coefficients as words, put together without asking the device for them."""
    numbers = [
        x.detach().reshape(()).to(device, torch.float64)
        if isinstance(x, Tensor)
        else torch.full((), x, dtype=torch.float64, device=device)
        for x in coefficients
    ]
    return torch.stack(numbers).view(torch.int64)
