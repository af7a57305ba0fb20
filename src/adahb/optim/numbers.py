"""From learning rate, clock and schedule to the numbers of a step."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from adahb import _checks as check
from adahb.optim.options import Group
from adahb.optim.update import Numbers, Recipe
from adahb.schedules import Schedule


def learning_rate(group: Group, on_device: bool, at_most: float) -> float | Tensor:
    """The learning rate: a float64 on its device where it must not be waited for or has a graph."""
    lr = group["lr"]
    if isinstance(lr, Tensor):
        if on_device or group["differentiable"]:
            return lr.reshape(()).double()
        lr = lr.item()
    return check.number("lr", lr, at_least=0, at_most=at_most)


def largest_rate(schedule: Schedule, recipe: Recipe, dtypes: Iterable[torch.dtype]) -> float:
    """The learning rate that makes the largest step size which the arithmetic can hold.

    A larger one would be infinite, and NaN where it multiplies a gradient of zero.
    """
    first = schedule.__call__(1)
    size = first.eta if recipe.averaging else first.alpha
    kept = [torch.float32 if recipe.state_dtype else recipe.arithmetic(d) for d in dtypes]
    most = [torch.finfo(dtype).max for dtype in kept]
    largest: float = min(most, default=math.inf) / max(1.0, size)
    return largest


def numbers(schedule: Schedule, lr: float | Tensor, step: int | Tensor) -> Numbers:
    """The schedule's coefficients at a step, times the learning rate where it belongs."""
    count = step
    if isinstance(step, Tensor):
        if isinstance(lr, Tensor):
            lr = lr.to(step.device)
        step = step.double().clamp(min=1.0)  # a clock that has not started yields unused numbers
    coefficients = schedule.__call__  # torch 2.11 compiles no call of an object made in the graph
    at = coefficients(step)
    return Numbers(
        alpha=lr * at.alpha,
        beta1=at.beta1,
        eta=lr * at.eta,
        c=at.c,
        beta2=at.beta2,
        delta=at.delta,
        beta1_next=coefficients(step + 1).beta1 if schedule.extrapolates else at.beta1,
        share=1.0 / step,
        step=count,
    )
