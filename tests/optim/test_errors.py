"""Refusals: each names the option, its value and what is allowed."""

import pytest
import torch

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.optim.base import HeavyBall

nan, inf = float("nan"), float("inf")

WRONG = [
    ({"lr": nan}, ValueError, r"lr must be a number in \[0, 3.40282e\+38\], got nan"),
    ({"lr": -0.1}, ValueError, "lr must be .* got -0.1"),
    ({"lr": inf}, ValueError, "lr must be .* got inf"),
    ({"lr": "0.1"}, TypeError, "lr must be .* got '0.1'"),
    ({"lr": None}, TypeError, "lr must be .* got None"),
    ({"lr": torch.tensor(nan)}, ValueError, "lr must be .* got nan"),
    ({"lr": torch.ones(2)}, ValueError, "lr must be a number or a tensor of one element"),
    ({"gamma": 0}, ValueError, r"gamma must be a number in \(0, 1\], got 0"),
    ({"gamma": 1.5}, ValueError, "gamma must be .* got 1.5"),
    ({"delta": 0.0}, ValueError, r"delta must be a number in \[1e-300, inf\), got 0.0"),
    ({"momentum": 1}, ValueError, r"momentum must be a number in \[0, 1\), got 1"),
    ({"momentum": -0.1}, ValueError, "momentum must be .* got -0.1"),
    (
        {"tick": 0},
        ValueError,
        "tick must be an integer of at least 1 and at most 9007199254740992, got 0",
    ),
    (
        {"tick": 2**53 + 1},
        ValueError,
        "tick must be an integer of at least 1 and .* got 9007199254740993",
    ),
    ({"lr": 1e300}, ValueError, r"lr must be a number in \[0, 3.40282e\+38\], got 1e\+300"),
    ({"weight_decay": 1e39}, ValueError, "weight_decay must be .* got 1e"),
    ({"tick": 1.5}, TypeError, "tick must be an integer .* got 1.5"),
    ({"power": -1.0}, ValueError, "power must be .* got -1.0"),
    (
        {"averaging_tick": 1, "momentum": 0.9},
        ValueError,
        "averaging_tick must be None with constant momentum, got 1",
    ),
    ({"averaging_tick": 0, "momentum": 0.9}, ValueError, "averaging_tick must be None .* got 0"),
    ({"averaging_tick": 0}, ValueError, "averaging_tick must be .* got 0"),
    ({"power": 1.0, "momentum": 0.9}, ValueError, "power must be 0 with constant momentum, got 1"),
    ({"weight_decay": -1e-4}, ValueError, "weight_decay must be .* got -0.0001"),
    ({"weight_decay": nan}, ValueError, "weight_decay must be .* got nan"),
    ({"form": "z"}, ValueError, "form must be one of 'averaging', 'paper', got 'z'"),
    ({"projection": "l2"}, ValueError, "projection must be one of 'metric', 'euclidean', got 'l2'"),
    ({"maximize": 1}, TypeError, "maximize must be one of True, False, got 1"),
    ({"decoupled_weight_decay": "no"}, TypeError, "decoupled_weight_decay must be .* got 'no'"),
    ({"foreach": 1}, TypeError, "foreach must be one of True, False, None, got 1"),
    ({"foreach": True, "fused": True}, ValueError, "foreach and fused must not both be True"),
    ({"differentiable": True, "foreach": True}, ValueError, "differentiable=True must go without"),
    ({"differentiable": True, "fused": True}, ValueError, "differentiable=True must go without"),
]


def parameter():
    return torch.nn.Parameter(torch.zeros(2))


@pytest.mark.parametrize(("options", "error", "message"), WRONG)
def test_values_outside_of_the_theory(options, error, message):
    with pytest.raises(error, match=message):
        AdaHB([parameter()], **options)
    optimizer = AdaHB([parameter()])
    with pytest.raises(error, match=message):  # the same of a group of its own
        optimizer.add_param_group({"params": [parameter()], **options})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("kind", [AdaHB, HB, NAG, PSG])
def test_unknown_options(kind):
    with pytest.raises(TypeError, match="eps"):
        kind([parameter()], eps=1e-8)
    with pytest.raises(ValueError, match=f"{kind.__name__} has no option 'betas'; it has lr, "):
        kind([{"params": [parameter()], "betas": (0.9, 0.999)}])
    optimizer = kind([parameter()])
    with pytest.raises(ValueError, match="has no option 'weight_deacy'"):
        optimizer.add_param_group({"params": [parameter()], "weight_deacy": 0.1})


@pytest.mark.parametrize(("kind", "option"), [(HB, "gamma"), (NAG, "momentum"), (PSG, "form")])
def test_options_of_the_others(kind, option):
    with pytest.raises(ValueError, match=f"{kind.__name__} has no option '{option}'"):
        kind([{"params": [parameter()], option: 0.5}])


def test_learning_rates_are_looked_at_in_every_step():
    p = parameter()
    optimizer = AdaHB([p])
    p.grad = torch.ones(2)
    for lr in (nan, -1.0, torch.tensor(nan)):
        optimizer.param_groups[0]["lr"] = lr
        with pytest.raises(ValueError, match="lr must be"):
            optimizer.step()
    assert p.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("params", "error"), [([], ValueError), (torch.zeros(2), TypeError), ([1.0], TypeError)]
)
def test_what_are_no_parameters(params, error):
    with pytest.raises(error):
        AdaHB(params)


def test_one_parameter_in_two_groups():
    p = parameter()
    with pytest.raises(ValueError, match="more than one parameter group"):
        AdaHB([{"params": [p]}, {"params": [p]}])


def test_the_base_is_no_optimizer():
    defaults = AdaHB([parameter()]).defaults
    with pytest.raises(TypeError, match="use one of them"):
        HeavyBall([parameter()], defaults)
