"""Extreme numbers through the torch optimizers: the soak in small, and what must hold by name."""

import copy
import logging

import numpy as np
import pytest
import torch
from faults.numbers_optim import KINDS, PATHS, soak

from adahb import schedules
from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import Box, L1Ball, L2Ball, Simplex

WIDE = {**PATHS, "bf16 states": {"state_dtype": "bf16"}, "int8 states": {"state_dtype": "int8"}}
LATE = (2**24 - 1, 2**24, 10**9, 2**31 - 1, 2**31, 2**53 - 3)
pytestmark = [
    pytest.mark.filterwarnings("ignore:fused=True falls back"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def test_the_soak_in_small(tmp_path):
    found = soak(0.004, tmp_path)
    counts = {row["kind"]: row["tried"] for row in found["rows"]}
    assert {*KINDS} <= counts.keys()
    assert all(sum(row["outcomes"].values()) == row["tried"] > 0 for row in found["rows"])
    assert counts["finite gradients at the ends of a format"] == 160
    assert found["defects"] == 0


def after(optimizer, p, gradients):
    for g in gradients:
        p.grad = g
        optimizer.step()
    return p.detach().double()


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("path", WIDE)
@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_gradients_whose_squares_overflow_make_the_steps_of_their_direction(path, momentum, dtype):
    """AdaHB does not see the scale of gradients: 1e38 makes the steps that 1 makes."""
    small, huge = (torch.nn.Parameter(torch.zeros(7, dtype=dtype)) for _ in range(2))
    signs = torch.tensor([1, -1, 1, 1, -1, 0, -1], dtype=dtype)
    size = torch.finfo(dtype).max
    options = {"lr": 0.1, "tick": 1, "momentum": momentum, **WIDE[path]}
    wanted = after(AdaHB([small], **options), small, [signs] * 5)
    found = after(AdaHB([huge], **options), huge, [signs * size] * 5)
    assert huge.isfinite().all()
    torch.testing.assert_close(found, wanted, rtol=1e-2 if "states" in path else 1e-6, atol=0)


@pytest.mark.parametrize("path", WIDE)
def test_after_a_huge_gradient_the_second_moment_is_finite(path):
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = AdaHB([p], lr=0.1, tick=1, **WIDE[path])
    gradients = [torch.full((3,), size) for size in (1.0, 3e38, 1.0, -3e38, 0.0, 1e-45)]
    assert after(optimizer, p, gradients).isfinite().all()


@pytest.mark.parametrize("path", WIDE)
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-46])
def test_no_delta_is_so_small_that_zero_is_divided_by_zero(path, delta):
    p = torch.nn.Parameter(torch.tensor([0.5, -0.25, 0.125]))
    optimizer = AdaHB([p], lr=0.1, tick=1, delta=delta, **WIDE[path])
    zero = torch.zeros(3)
    assert torch.equal(
        after(optimizer, p, [zero, zero]), p.new_tensor([0.5, -0.25, 0.125]).double()
    )
    moved = after(optimizer, p, [torch.full((3,), 1e-30)]) - p.new_tensor([0.5, -0.25, 0.125])
    assert moved.abs().max() < 0.1 / 0.1**0.5


@pytest.mark.parametrize("kind", [AdaHB, HB, NAG, PSG])
@pytest.mark.parametrize(
    "constraint", [Box(-1, 1), L1Ball(1.0), L2Ball(1.0), Simplex(1.0)], ids=repr
)
def test_under_constraints_every_iterate_is_feasible(kind, constraint):
    w0 = torch.tensor([1.0, 0.0, 0.0])
    p = torch.nn.Parameter(w0.clone())
    optimizer = kind([p], lr=0.1, tick=1, constraint=constraint)
    for size in (1e38, 1e-45, 0.0, 3e38, 1e19, 1e-38):
        p.grad = torch.tensor([size, -size, size / 2])
        optimizer.step()
        with optimizer.averaged_parameters():
            assert p.isfinite().all()
            assert constraint.contains(p.detach())


def test_complex_gradients_keep_their_direction():
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    optimizer = AdaHB([p], lr=0.1, tick=1)
    for _ in range(3):
        p.grad = torch.tensor([complex(3e38, -3e38), complex(0.0, 1e38)])
        optimizer.step()
    assert p.isfinite().all()
    torch.testing.assert_close(p[0].real, -p[0].imag)
    assert p[1].real == 0
    assert p[1].imag < -0.01


def test_compiled_for_autograd_s_graphs_too():
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(logging.ERROR)
    pair = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    one, other = (AdaHB([p], lr=torch.tensor(0.1), tick=1) for p in pair)
    step = torch.compile(other.step, backend="aot_eager", fullgraph=True)
    for size in (1e38, 0.0, 1e-45, 3e38, 1.0):
        for p, go in zip(pair, (one.step, step), strict=True):
            p.grad = torch.tensor([size, -size, 0.0])
            go()
    torch._dynamo.reset()
    assert pair[0].isfinite().all()
    torch.testing.assert_close(pair[1], pair[0], rtol=1e-6, atol=0)


# ---------------------------------------------------------------- clocks


@pytest.mark.parametrize("path", WIDE)
@pytest.mark.parametrize("kind", [AdaHB, NAG])
def test_late_clocks_count_every_step(path, kind):
    """Float32 would stand still at 2^24; the coefficients are those of the step in float64."""
    for late in LATE:
        p = torch.nn.Parameter(torch.zeros(3))
        optimizer = kind([p], lr=1e6, tick=1, **WIDE[path])
        after(optimizer, p, [torch.zeros(3)])
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][0]["clock"] += late - 1
        optimizer.load_state_dict(saved)
        g = torch.tensor([1.0, -1.0, 0.5])
        found = after(optimizer, p, [g])
        assert int(optimizer.state[p]["clock"]) == late + 1
        at = optimizer._schedule(optimizer.param_groups[0])(late + 1)
        size = 1e6 * at.alpha
        wanted = -size * g.double()
        if kind is AdaHB:
            wanted /= (1 - at.beta2) ** 0.5 * g.double().abs() + at.delta
        else:
            wanted *= 1 + optimizer._schedule(optimizer.param_groups[0])(late + 2).beta1
        rtol = {"bf16 states": 0.05, "int8 states": 0.05}.get(path, 1e-5)
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=1e-30)


def test_schedules_take_late_steps_of_any_kind():
    for late in (2**24 + 1, 10**9, 10**9 + 1):
        for schedule in (
            schedules.AdaHB(alpha=1.0, tick=1),
            schedules.AdaHB(alpha=1.0, tick=10**9),
            schedules.NAG(alpha=1.0, tick=3),
            schedules.PSG(alpha=1.0),
        ):
            expected = schedule(late)
            for step in (
                torch.tensor(late),
                torch.tensor(late, dtype=torch.float64),
                np.int64(late),
                np.array([late], dtype=np.float64),
            ):
                for mine, theirs in zip(schedule(step), expected, strict=True):
                    assert (mine is None) == (theirs is None)
                    if mine is not None:
                        assert np.ravel(mine)[0] == pytest.approx(theirs, rel=1e-15)
    for mine in schedules.AdaHB(alpha=1.0)(torch.tensor(1e9, dtype=torch.float32)):
        assert mine.dtype == torch.float64


def test_ticks_of_a_billion_steps_end_where_they_should():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = AdaHB([p], tick=10**9)
    after(optimizer, p, [torch.ones(2)])
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["clock"] += 10**9 - 2  # the last step of the first tick comes next
    optimizer.load_state_dict(saved)
    plans = []
    for _ in range(2):
        p.grad = torch.ones(2)
        optimizer.step()
        step = int(optimizer.state[p]["clock"])
        plans.append((step, optimizer._schedule(optimizer.param_groups[0]).time(step)))
    assert plans == [(10**9, 1), (10**9 + 1, 2)]


# ---------------------------------------------------------------- step sizes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_learning_rates_that_would_be_infinite_are_refused_before_anything_changes(dtype):
    p = torch.nn.Parameter(torch.zeros(2, dtype=dtype))
    optimizer = HB([p], momentum=1 - 2**-53, constraint=Box(-1, 1))
    after(optimizer, p, [torch.zeros_like(p)])
    most = torch.finfo(torch.promote_types(dtype, torch.float32)).max
    optimizer.param_groups[0]["lr"] = most * 2.0**-50  # times 1/(1 - momentum) = 2^53
    p.grad = torch.zeros_like(p)
    with pytest.raises(ValueError, match=r"lr must be a number in \[0, "):
        optimizer.step()
    assert int(optimizer.state[p]["clock"]) == 1
    optimizer.param_groups[0]["lr"] = most * 2.0**-54
    optimizer.step()
    assert torch.equal(p.detach(), torch.zeros_like(p))


def test_parameters_that_start_as_nan_in_a_set_are_named():
    p = torch.nn.Parameter(torch.tensor([1.0, float("nan")]))
    with pytest.raises(ValueError, match=r"a parameter of shape \(2,\) must be finite to start"):
        AdaHB([p], constraint=L2Ball(1.0))
