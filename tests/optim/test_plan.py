"""A step that uses the last one's plan again is the step that would have been made anew."""

import weakref

import pytest

torch = pytest.importorskip("torch")

from adahb.optim import HB, AdaHB  # noqa: E402
from adahb.sets import Box  # noqa: E402


def make(**options):
    torch.manual_seed(0)
    params = [torch.randn(5, 3, requires_grad=True), torch.randn(4, requires_grad=True)]
    params.append(torch.randn(2, dtype=torch.float64, requires_grad=True))
    return params, AdaHB(params, lr=0.1, tick=3, **options)


def give(params, step):
    generator = torch.Generator().manual_seed(step)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


def forget(optimizer):
    optimizer._plans = {}


def swap_option(params, optimizer):
    optimizer.param_groups[0]["weight_decay"] = 0.1


def new_gamma(params, optimizer):
    optimizer.param_groups[0]["gamma"] = 0.9


def skip_one(params, optimizer):
    params[1].grad = None


def replace_state(params, optimizer):
    state = optimizer.state[params[0]]
    state["v"] = state["v"].clone()


def reload(params, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def forget_state(params, optimizer):
    optimizer.state.clear()


def freeze_and_add(params, optimizer):
    extra = torch.ones(3, requires_grad=True)
    extra.grad = torch.ones(3)
    params.append(extra)
    optimizer.add_param_group({"params": [extra], "constraint": Box(-2, 2)})


def schedule_lr(params, optimizer):
    optimizer.param_groups[0]["lr"] = 0.03


CHANGES = [
    swap_option,
    new_gamma,
    skip_one,
    replace_state,
    reload,
    forget_state,
    freeze_and_add,
    schedule_lr,
]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_steps_is_noticed(change, fused):
    ends = []
    for remembers in (True, False):
        params, optimizer = make(fused=fused)
        for step in range(1, 9):
            give(params, step)
            if step == 4:
                change(params, optimizer)
            if not remembers:
                forget(optimizer)
            optimizer.step()
        ends.append([p.detach().clone() for p in params])
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


def test_a_plan_is_used_again_and_dropped():
    params, optimizer = make()
    give(params, 1)
    optimizer.step()
    (plan,) = optimizer._plans.values()
    give(params, 2)
    optimizer.step()
    assert list(optimizer._plans.values()) == [plan]
    params[0].grad = None
    optimizer.step()
    assert not optimizer._plans


def test_optimizers_do_not_share_plans():
    params, first = make()
    give(params, 1)
    first.step()
    second = HB(params, lr=0.1)
    assert not second._plans
    assert not HB._plans


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"constraint": Box(-9, 9)}])
def test_gradients_are_let_go_of(options):
    """What a step has used is freed with the parameter's gradient, before the next backward."""
    params, optimizer = make(**options)
    for step in (1, 2):
        give(params, step)
        optimizer.step()
        watched = [weakref.ref(p.grad) for p in params]
        optimizer.zero_grad()
        assert [ref() for ref in watched] == [None] * 3
