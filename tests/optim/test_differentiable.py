"""Derivatives of what a run of steps arrives at, against finite differences."""

import pytest
import torch
from torch.autograd import gradcheck

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import Box, L1Ball, L2Ball

CASES = [
    (AdaHB, {}),
    (AdaHB, {"momentum": 0.9, "weight_decay": 0.1}),
    (AdaHB, {"maximize": True, "weight_decay": 0.1, "decoupled_weight_decay": False}),
    (AdaHB, {"constraint": L1Ball(0.6), "form": "averaging"}),
    (AdaHB, {"constraint": L2Ball(0.6), "form": "paper"}),
    (HB, {}),
    (HB, {"constraint": L1Ball(0.6), "form": "averaging", "power": 1.0}),
    (HB, {"constraint": Box(-0.4, 0.4), "form": "paper", "momentum": 0.5}),
    (NAG, {"constraint": L2Ball(0.6)}),
    (PSG, {"weight_decay": 0.1}),
]


def after_steps(kind, options, start, lr, *grads):
    p = start.clone()
    optimizer = kind([p], lr=lr, tick=2, differentiable=True, **options)
    for g in grads:
        p.grad = g
        optimizer.step()
    with_average = [s["average"] for s in optimizer.state.values() if "average" in s]
    return (p, *with_average)


def double(values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("kind", "options"), CASES)
def test_derivatives_with_respect_to_start_learning_rate_and_gradients(kind, options):
    start, lr = double([0.3, -0.2, 0.05]), double(0.3)
    grads = [double([1.0, -0.5, 0.7]), double([0.4, -0.9, 0.8]), double([-0.3, 1.1, 0.6])]
    if kind is AdaHB:
        options = {"delta": 0.1, **options}
    assert gradcheck(
        lambda *given: after_steps(kind, options, *given), (start, lr, *grads), eps=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("form", ["averaging", "paper"])
def test_gradients_of_zero_leave_no_nan(form):
    start, lr, g = double([0.3, -0.2]), double(0.1), double([0.0, 1.0])
    options = {"constraint": L2Ball(1.0), "form": form}
    (p,) = after_steps(AdaHB, options, start, lr, g, g)
    p.sum().backward()
    assert all(x.grad.isfinite().all() for x in (start, lr, g))


def test_only_groups_that_ask_for_it_are_recorded():
    inner, outer = double([1.0]).clone(), torch.nn.Parameter(torch.ones(1))
    groups = [{"params": [inner]}, {"params": [outer], "differentiable": False}]
    optimizer = AdaHB(groups, differentiable=True)
    inner.grad, outer.grad = torch.ones_like(inner), torch.ones(1)
    optimizer.step()
    assert inner.grad_fn is not None
    assert outer.grad_fn is None
    assert not optimizer.state[outer]["u"].requires_grad


def test_learning_a_learning_rate():
    """One step of descent on the learning rate lowers the loss after three steps."""

    def loss(lr):
        p = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True).clone()
        optimizer = HB([p], lr=lr, tick=1, differentiable=True)
        for _ in range(3):
            p.grad = 2 * p
            optimizer.step()
        return p.square().sum()

    lr = double(0.1)
    before = loss(lr)
    before.backward()
    assert loss(lr.detach() - 0.01 * lr.grad.sign()) < before
