"""The guaranteed output in place of the training weights, and back."""

import pytest
import torch

from adahb.optim import HB, NAG, PSG, AdaHB

MAKERS = {
    "AdaHB": lambda p: AdaHB(p, lr=0.1, tick=2, momentum=0.9),
    "HB": lambda p: HB(p, lr=0.1, tick=1, momentum=0.5),
    "PSG": lambda p: PSG(p, lr=0.1, tick=1),
}


def walk(optimizer, p, steps):
    points = []
    for k in range(steps):
        points.append(p.detach().clone())
        p.grad = p.detach() + 0.1 * k - 1
        optimizer.step()
    return points


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_the_mean_of_the_points_at_which_gradients_were_taken(name, foreach, dtype):
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=dtype))
    optimizer = MAKERS[name]([p])
    optimizer.param_groups[0]["foreach"] = foreach
    points = walk(optimizer, p, 7)
    before = p.detach().clone()
    with optimizer.averaged_parameters():
        mean = torch.stack(points).double().mean(0)
        torch.testing.assert_close(
            p.detach().double(), mean, rtol=2e-2 if dtype.itemsize == 2 else 1e-12, atol=0
        )
    assert torch.equal(p.detach(), before)


@pytest.mark.parametrize("name", MAKERS)
def test_they_come_back_after_an_exception_too(name):
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = MAKERS[name]([p])
    walk(optimizer, p, 3)
    before = p.detach().clone()

    def look():
        with optimizer.averaged_parameters():
            assert not torch.equal(p.detach(), before)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        look()
    assert torch.equal(p.detach(), before)


@pytest.mark.parametrize("make", [*MAKERS.values(), lambda p: NAG(p, tick=1)])
def test_before_the_first_step_nothing_happens(make):
    p, idle = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = make([p, idle])
    with optimizer.averaged_parameters():
        assert p.tolist() == [1.0, 1.0]
    walk(optimizer, p, 2)
    with optimizer.averaged_parameters():
        assert idle.tolist() == [1.0, 1.0]


def test_nag_shows_the_iterate_and_not_the_point_of_its_gradients():
    """By its definition: y = w + (t - 2)/(t + 1)(w - w₋), w₊ = y - α/((t + 1)√t) g."""
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = NAG([p], lr=0.5, tick=1)
    w = before = p.detach().clone()
    for t in range(1, 8):
        y = w + (t - 2) / (t + 1) * (w - before)
        torch.testing.assert_close(p.detach(), y, rtol=1e-12, atol=0)
        p.grad = torch.sin(y)
        optimizer.step()
        w, before = y - 0.5 / ((t + 1) * t**0.5) * torch.sin(y), w
        with optimizer.averaged_parameters():
            torch.testing.assert_close(p.detach(), w, rtol=1e-12, atol=0)


def test_where_the_last_iterate_is_the_output_it_stays():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaHB([p])
    walk(optimizer, p, 3)
    held = p.detach().clone()
    with optimizer.averaged_parameters():
        assert torch.equal(p.detach(), held)
    assert "average" not in optimizer.state[p]


def test_training_goes_on_as_if_nothing_had_been_looked_at():
    runs = []
    for look in (False, True):
        p = torch.nn.Parameter(torch.ones(2))
        optimizer = PSG([p], tick=1)
        for _ in range(4):
            walk(optimizer, p, 1)
            if look:
                with optimizer.averaged_parameters():
                    pass
        runs.append(p.detach())
    assert torch.equal(*runs)
