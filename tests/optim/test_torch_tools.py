"""What torch's own tools do with an optimizer: schedules, checkpoints, averages, profiles."""

import copy

import pytest
import torch
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn.utils import parametrizations
from torch.optim import lr_scheduler as schedulers
from torch.optim import swa_utils

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import L1Ball, L2Ball

EVERY = (AdaHB, HB, NAG, PSG)
every = pytest.mark.parametrize("kind", EVERY)

SCHEDULERS = {
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda _: 0.9),
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [2, 4]),
    "ConstantLR": schedulers.ConstantLR,
    "LinearLR": schedulers.LinearLR,
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o, 4),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.1, 0.5, 2, cycle_momentum=False),
    "ReduceLROnPlateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda o: schedulers.SequentialLR(
        o, [schedulers.LinearLR(o), schedulers.ExponentialLR(o, 0.9)], [3]
    ),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler(
        [schedulers.LinearLR(o), schedulers.ExponentialLR(o, 0.9)]
    ),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.01, anneal_epochs=3),
}


def make(kind=AdaHB, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    return model, kind(model.parameters(), **{"lr": 0.1, "tick": 2, **options})


def train(model, optimizer, steps):
    for k in range(steps):
        optimizer.zero_grad()
        model(torch.full((4, 3), 0.3 * (k + 1))).square().sum().backward()
        optimizer.step()


def same(one, other):
    return all(map(torch.equal, one.parameters(), other.parameters()))


@pytest.mark.parametrize("name", SCHEDULERS)
@every
def test_every_scheduler_sets_the_rate_and_resumes(kind, name):
    model, optimizer = make(kind)
    by_hand, plain = make(kind)
    scheduler = SCHEDULERS[name](optimizer)
    rates = []
    for k in range(8):
        if k == 4:  # stopped, and taken up by new objects
            saved = optimizer.state_dict(), scheduler.state_dict()
            optimizer = kind(model.parameters())
            scheduler = SCHEDULERS[name](optimizer)
            optimizer.load_state_dict(saved[0])
            scheduler.load_state_dict(saved[1])
        rates.append(optimizer.param_groups[0]["lr"])
        plain.param_groups[0]["lr"] = rates[-1]
        train(model, optimizer, 1)
        train(by_hand, plain, 1)
        scheduler.step(1.0) if name == "ReduceLROnPlateau" else scheduler.step()
    assert len(set(rates)) > 1
    assert same(model, by_hand)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("options", [{}, {"constraint": L1Ball(2.0)}, {"momentum": 0.9}], ids=str)
def test_distributed_checkpoints(options, flat):
    """They create a missing state by a step with lr = 0, which must leave no trace."""
    kept = checkpoint.StateDictOptions(flatten_optimizer_state_dict=flat)
    model, optimizer = make(**options)
    train(model, optimizer, 3)
    weights, state = copy.deepcopy(checkpoint.get_state_dict(model, optimizer, options=kept))
    resumed, other = make(**options)
    checkpoint.set_state_dict(
        resumed, other, model_state_dict=weights, optim_state_dict=state, options=kept
    )
    assert {int(s["clock"]) for s in other.state.values()} == {3}
    train(model, optimizer, 3)
    train(resumed, other, 3)
    assert same(model, resumed)


def test_asking_for_a_checkpoint_before_the_first_step_changes_nothing():
    model, optimizer = make()
    before = copy.deepcopy(model)
    checkpoint.get_optimizer_state_dict(model, optimizer)
    assert same(model, before)
    train(model, optimizer, 2)
    plain, other = make()
    train(plain, other, 2)
    assert same(model, plain)


@every
def test_the_representation_names_every_option(kind):
    _, optimizer = make(kind, constraint=L2Ball(3.0))
    shown = repr(optimizer)
    assert shown.startswith(kind.__name__)
    assert "constraint: L2Ball(radius=3.0, dim=None)" in shown
    assert all(f"    {name}: " in shown for name in optimizer.defaults)


def test_averaged_models_follow_the_weights():
    model, optimizer = make()
    averaged = swa_utils.AveragedModel(model)
    points = []
    for _ in range(3):
        train(model, optimizer, 1)
        averaged.update_parameters(model)
        points.append(model.weight.detach().clone())
    torch.testing.assert_close(averaged.module.weight, torch.stack(points).mean(0))


@pytest.mark.parametrize("name", ["weight_norm", "orthogonal", "spectral_norm"])
def test_parametrized_weights(name):
    torch.manual_seed(0)
    model = getattr(parametrizations, name)(torch.nn.Linear(3, 3))
    twin = copy.deepcopy(model)
    train(model, AdaHB(model.parameters(), foreach=False), 3)
    train(twin, AdaHB(twin.parameters(), foreach=True), 3)
    torch.testing.assert_close(model.weight, twin.weight)
    assert not torch.equal(model.bias, torch.zeros(3))


def test_steps_are_named_in_profiles():
    model, optimizer = make()
    with torch.profiler.profile(acc_events=True) as profile:
        train(model, optimizer, 1)
    assert any("AdaHB.step" in event.key for event in profile.key_averages())


def test_parameters_that_are_there_twice():
    p = torch.nn.Parameter(torch.zeros(2))
    with pytest.warns(UserWarning, match="duplicate parameters"):
        AdaHB([p, p])
    with pytest.raises(ValueError, match="non-leaf"):
        AdaHB([p * 2])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("constraint", [None, L1Ball(1.0)], ids=str)
@every
def test_devices_in_one_optimizer_do_not_see_each_other(kind, constraint):
    params = [torch.nn.Parameter(torch.full((3,), 0.2, device=d)) for d in ("cpu", "cuda")]
    optimizer = kind(params, lr=0.1, tick=2, constraint=constraint)
    for k in range(5):
        for p in params:
            p.grad = torch.full_like(p, k - 1.5)
        optimizer.step()
    torch.testing.assert_close(params[1].cpu(), params[0], rtol=1e-6, atol=1e-7)
