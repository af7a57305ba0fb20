"""Gradients that a GradScaler has scaled: divided in the step, which skips itself on overflow."""

import pytest
import torch
from optim.paths import DEVICES

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.optim.kernels import eager
from adahb.optim.update import Batch, Numbers, Recipe
from adahb.sets import GroupL1Ball, L1Ball, L2Ball, NuclearBall, Simplex

CASES = {
    "AdaHB": (AdaHB, {}),
    "AdaHB foreach": (AdaHB, {"foreach": True}),
    "AdaHB fused": (AdaHB, {"fused": True}),
    "AdaHB capturable": (AdaHB, {"capturable": True}),
    "AdaHB int8": (AdaHB, {"state_dtype": "int8"}),
    "AdaHB ball": (AdaHB, {"constraint": L2Ball(0.5)}),
    "HB": (HB, {}),
    "NAG": (NAG, {}),
    "PSG": (PSG, {}),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:fused=True falls back"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]


def trained(case, device, *, scaled, dtype=torch.float32, unscaled_first=False):
    """Six steps, of which the third overflows and must leave no trace."""
    kind, options = CASES[case]
    torch.manual_seed(0)
    params = [torch.nn.Parameter((0.01 * torch.randn(s)).to(device, dtype)) for s in ((7, 3), (5,))]
    optimizer = kind(params, lr=0.05, tick=2, **options)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0, growth_interval=1000)
    generator = torch.Generator().manual_seed(1)
    for step in range(6):
        grads = [torch.randn(p.shape, generator=generator).to(device, dtype) for p in params]
        if step == 2:
            if not scaled:
                continue
            grads[0][0, 0] = torch.inf
        if not scaled:
            for p, g in zip(params, grads, strict=True):
                p.grad = g
            optimizer.step()
            continue
        loss = sum((p * g).sum() for p, g in zip(params, grads, strict=True))
        optimizer.zero_grad()
        scaler.scale(loss.float()).backward()
        if unscaled_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update(1024.0)
    return params, optimizer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("unscaled_first", [False, True])
def test_a_scaled_run_is_the_run_that_is_not(case, device, unscaled_first):
    expected, plain = trained(case, device, scaled=False)
    found, optimizer = trained(case, device, scaled=True, unscaled_first=unscaled_first)
    for p, q in zip(found, expected, strict=True):
        torch.testing.assert_close(p, q, rtol=2e-6, atol=1e-7)
        assert int(optimizer.state[p]["clock"]) == int(plain.state[q]["clock"]) == 5
        assert torch.isfinite(p).all()
    assert not hasattr(optimizer, "found_inf")


def test_scaled_gradients_are_not_written_to():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = AdaHB([p])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    assert torch.equal(p.grad, torch.full((3,), 8.0))


def test_small_gradients_survive_their_division():
    """In half precision 2^-24/2^16 would be zero; the step divides in float32."""
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.float16))
    optimizer = AdaHB([p], lr=0.1, tick=1, delta=1e-12)
    p.grad = torch.full_like(p, 2.0**-24)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(2.0**16), torch.tensor(0.0)
    optimizer.step()
    assert (p < -0.01).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", sorted(set(CASES) - {"AdaHB fused"}))
def test_the_host_waits_for_nothing(case):
    kind, options = CASES[case]
    p = torch.nn.Parameter(torch.full((3000,), 1e-3, device="cuda"))
    optimizer = kind([p], **options)
    p.grad = torch.ones_like(p)
    optimizer.grad_scale = torch.tensor(8.0, device="cuda")
    optimizer.found_inf = torch.tensor(0.0, device="cuda")
    optimizer.step()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert int(optimizer.state[p]["clock"]) == 4


@pytest.mark.parametrize(
    "constraint",
    [L2Ball(0.5), L1Ball(0.5), Simplex(1.0), GroupL1Ball(0.5, dim=1), NuclearBall(0.5)],
    ids=repr,
)
def test_a_step_that_does_not_count_projects_what_is_not_finite(constraint):
    """On a device that alone knows of the overflow; here the numbers of such a step are made."""
    w = constraint.project(torch.full((3, 4), 0.2))
    recipe = Recipe(
        adaptive=True,
        averaging=False,
        extrapolates=False,
        keeps_average=False,
        maximize=False,
        weight_decay=0.0,
        decoupled=True,
        constraint=constraint,
        metric=False,
    )
    batch = Batch([w.clone()], [torch.full((3, 4), torch.nan)], [torch.zeros(3, 4)])
    batch.squares = [torch.ones(3, 4)]
    one = torch.tensor(0.5, dtype=torch.float64)
    at = Numbers(*[one] * 8, step=torch.tensor(1), live=torch.tensor(False))
    eager.step(batch, at, recipe)
    assert torch.equal(batch.params[0], w)
    assert torch.equal(batch.squares[0], torch.ones(3, 4))
    eager.step(batch, at._replace(live=torch.tensor(True)), recipe)
    assert not torch.equal(batch.squares[0], torch.ones(3, 4))
