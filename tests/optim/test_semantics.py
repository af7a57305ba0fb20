"""What torch's users expect of an optimizer, one convention after the other."""

import copy

import pytest
import torch
from torch.optim import lr_scheduler

import adahb
from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import L1Ball

EVERY = (AdaHB, HB, NAG, PSG)
KERNELS = [{"foreach": False}, {"foreach": True}]
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=["eager", "foreach"])
every = pytest.mark.parametrize("kind", EVERY)


def leaf(*values, dtype=torch.float64):
    return torch.nn.Parameter(torch.tensor(values, dtype=dtype))


def step(optimizer, *pairs):
    for p, g in pairs:
        p.grad = None if g is None else torch.as_tensor(g, dtype=p.dtype).expand(p.shape).clone()
    optimizer.step()


def test_they_are_imported_from_the_package():
    assert adahb.AdaHB is AdaHB
    assert issubclass(AdaHB, torch.optim.Optimizer)


@kernels
@every
def test_gradients_are_never_modified(kind, kernel):
    for options in ({}, {"maximize": True, "weight_decay": 0.1, "decoupled_weight_decay": False}):
        p, q = leaf(1.0, -2.0), leaf(0.5, dtype=torch.bfloat16)
        optimizer = kind([p, q], tick=1, **options, **kernel)
        for _ in range(2):
            step(optimizer, (p, [3.0, 4.0]), (q, 2.0))
        assert (p.grad.tolist(), q.grad.tolist()) == ([3.0, 4.0], [2.0])


@kernels
def test_every_option_is_a_group_s_own(kernel):
    """Parameters of one optimizer with groups are those of an optimizer for each group."""
    options = [
        {"lr": 0.1},
        {"gamma": 0.9, "delta": 1e-3},
        {"momentum": 0.5},
        {"tick": 3, "power": 1.0},
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": False},
        {"constraint": L1Ball(0.7), "projection": "euclidean"},
        {"constraint": L1Ball(0.7), "form": "paper"},
        {"maximize": True},
        {"foreach": True},
        {"foreach": False, "capturable": True},
    ]
    together = [leaf(0.4, -0.3) for _ in options]
    alone = copy.deepcopy(together)
    one = AdaHB(
        [{"params": [p], **o} for p, o in zip(together, options, strict=True)], tick=1, **kernel
    )
    many = [AdaHB([p], **{"tick": 1, **kernel, **o}) for p, o in zip(alone, options, strict=True)]
    for k in range(6):
        g = [-1.0 - k, 0.5]
        step(one, *((p, g) for p in together))
        for optimizer, p in zip(many, alone, strict=True):
            step(optimizer, (p, g))
    assert all(map(torch.equal, together, alone))
    assert len({tuple(p.tolist()) for p in together}) == len(options) - 1  # foreach changes nothing


def test_named_parameters():
    model = torch.nn.Linear(2, 1)
    optimizer = AdaHB(model.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]


@every
def test_closures_and_loss(kind):
    p = leaf(1.0)
    optimizer = kind([p], lr=0.1, tick=1)
    calls = []

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        calls.append(loss)
        return loss

    with torch.no_grad():
        assert optimizer.step(closure) is calls[0]
    assert len(calls) == 1
    assert p.item() < 1.0


@kernels
def test_groups_added_later_start_their_own_clock(kernel):
    p, q = leaf(1.0), leaf(1.0)
    optimizer = AdaHB([p], tick=1, **kernel)
    for _ in range(5):
        step(optimizer, (p, 1.0))
    optimizer.add_param_group({"params": [q], "lr": 0.5})
    step(optimizer, (p, 1.0), (q, 1.0))
    assert [int(optimizer.state[x]["clock"]) for x in (p, q)] == [6, 1]


@kernels
@every
def test_a_parameter_without_gradient_stands_still_and_so_does_its_clock(kind, kernel):
    """Whenever gradients come, each parameter goes as if it were alone with its own."""
    pattern = [(0, 1), (0, 1), (0,), (0, 2), (1, 2), (0, 1, 2), (), (0, 1, 2)]
    together = [leaf(1.0, 2.0) for _ in range(3)]
    alone = copy.deepcopy(together)
    one = kind(together, lr=0.1, tick=2, **kernel)
    many = [kind([p], lr=0.1, tick=2, **kernel) for p in alone]
    for k, having in enumerate(pattern):
        step(one, *((p, k + 1.0 if i in having else None) for i, p in enumerate(together)))
        for i in having:
            step(many[i], (alone[i], k + 1.0))
    assert all(map(torch.equal, together, alone))
    assert [int(one.state[p]["clock"]) for p in together] == [6, 5, 4]


def test_the_first_gradient_at_step_100_is_of_step_1():
    early, late, frozen = leaf(0.0), leaf(0.0), leaf(0.0).requires_grad_(False)
    optimizer = AdaHB([early, late, frozen], lr=0.1, tick=1, gamma=1.0)
    for _ in range(99):
        step(optimizer, (early, 1.0))
    step(optimizer, (early, 1.0), (late, 1.0))
    # α_1 = α/(3 √1) and V̂ = |g|
    assert late.item() == pytest.approx(-0.1 / 3, rel=1e-6)
    assert frozen not in optimizer.state
    frozen.requires_grad_(True)
    step(optimizer, (frozen, 1.0))
    assert frozen.item() == pytest.approx(-0.1 / 3, rel=1e-6)


def test_zero_grad():
    p = leaf(1.0)
    optimizer = AdaHB([p])
    p.grad = torch.ones_like(p)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.step()
    assert (p.tolist(), len(optimizer.state)) == ([1.0], 0)


@kernels
@every
def test_maximizing_is_minimizing_the_negative(kind, kernel):
    up, down = leaf(1.0, -1.0), leaf(1.0, -1.0)
    ascent = kind([up], maximize=True, weight_decay=0.1, tick=1, **kernel)
    descent = kind([down], weight_decay=0.1, tick=1, **kernel)
    for k in range(4):
        step(ascent, (up, [k + 1.0, 2.0]))
        step(descent, (down, [-k - 1.0, -2.0]))
    assert torch.equal(up, down)


@pytest.mark.parametrize("capturable", [False, True])
@every
def test_a_tensor_as_learning_rate(kind, capturable):
    p, q = leaf(1.0, 2.0), leaf(1.0, 2.0)
    number = kind([p], lr=0.25, tick=2)
    for lr in (torch.tensor(0.25), torch.tensor([0.25])):
        tensor = kind([q], lr=lr, tick=2, capturable=capturable, foreach=False)
    for k in range(5):
        step(number, (p, k + 1.0))
        step(tensor, (q, k + 1.0))
    assert torch.equal(p, q)
    assert lr.tolist() == [0.25]


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 6),  # ends at zero
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: k / 4),  # starts at zero
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=9, cycle_momentum=False),
}


@pytest.mark.parametrize(
    "lr", [0.1, torch.tensor(0.1, dtype=torch.float64)], ids=["float", "tensor"]
)
@pytest.mark.parametrize("name", SCHEDULERS)
@every
def test_learning_rate_schedulers(kind, name, lr):
    """Like setting the group's learning rate by hand."""
    p, q = leaf(1.0, -2.0), leaf(1.0, -2.0)
    optimizer = kind([p], lr=lr if not isinstance(lr, torch.Tensor) else lr.clone(), tick=2)
    by_hand = kind([q], tick=2)
    scheduler = SCHEDULERS[name](optimizer)
    for k in range(8):
        by_hand.param_groups[0]["lr"] = float(optimizer.param_groups[0]["lr"])
        step(optimizer, (p, k + 1.0))
        step(by_hand, (q, k + 1.0))
        scheduler.step()
    assert torch.equal(p, q)
    assert p[0].item() != 1.0
    resumed = kind([{"params": [p], "initial_lr": 0.1}])  # as schedulers want it to continue
    SCHEDULERS[name](resumed)


@pytest.mark.parametrize("make", [lr_scheduler.OneCycleLR, lr_scheduler.CyclicLR])
def test_schedulers_must_not_cycle_a_momentum_that_is_a_schedule(make):
    p = leaf(1.0)
    args = (0.5, 5) if make is lr_scheduler.OneCycleLR else (0.1, 0.5)
    optimizer = AdaHB([p])
    make(optimizer, *args)
    with pytest.raises(ValueError, match=r"momentum must stay None.*cycle_momentum=False"):
        step(optimizer, (p, 1.0))
    constant = AdaHB([p], momentum=0.9)
    make(constant, *args)
    step(constant, (p, 1.0))


@every
def test_step_hooks(kind):
    p = leaf(1.0)
    optimizer = kind([p])
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(p.item()))
    optimizer.register_step_post_hook(lambda *_: seen.append(p.item()))
    step(optimizer, (p, 1.0))
    assert seen == [1.0, p.item()]
    assert p.item() < 1.0


def test_optimizers_in_the_backward_pass():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    twin = copy.deepcopy(model)
    optimizer = AdaHB(model.parameters(), tick=2)
    each = {p: AdaHB([p], tick=2) for p in twin.parameters()}

    def hook(p):
        each[p].step()
        each[p].zero_grad()

    for p in twin.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for k in range(4):
        x = torch.full((5, 3), 0.1 * (k + 1))
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        twin(x).square().sum().backward()
    assert all(p.grad is None for p in twin.parameters())
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


@every
def test_a_step_that_the_gradient_scaler_skips_changes_nothing(kind):
    p, q = leaf(1.0, 2.0, dtype=torch.float32), leaf(1.0, 2.0, dtype=torch.float32)
    scaled, plain = kind([p], tick=1), kind([q], tick=1)
    scaler = torch.amp.GradScaler(device="cpu", init_scale=4.0, growth_interval=100)
    for factor in (1.0, float("inf"), 3.0, float("nan"), 2.0):
        scaled.zero_grad()
        scaler.scale((p * factor).sum()).backward()
        before = copy.deepcopy((p, scaled.state_dict()["state"]))
        scaler.step(scaled)
        scaler.update()
        if factor * 0 == 0:
            step(plain, (q, factor))
        else:
            assert torch.equal(before[0], p)
            for key, value in before[1][0].items():
                assert torch.equal(value, scaled.state[p][key])
    assert torch.equal(p, q)
    assert int(scaled.state[p]["clock"]) == 3


def test_hb_is_schedule_free_sgd_at_interpolation_one():
    """x ← (1 - c)x + c z with gradients taken at x, z ← z - γ g, and a weight sum started at 2."""
    p = leaf(0.5, -1.5)
    optimizer = HB([p], lr=0.2, tick=1)
    x = z = p.detach().clone()
    for t in range(1, 200):
        g = torch.sin(3 * x) + x
        z = z - 0.2 / t**0.5 * g
        c = 1 / (t + 2)
        x = (1 - c) * x + c * z
        step(optimizer, (p, torch.sin(3 * p.detach()) + p.detach()))
        torch.testing.assert_close(p.detach(), x, rtol=1e-12, atol=1e-13)
