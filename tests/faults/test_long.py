"""Long runs, made short: see `long.py`."""

import pytest
import torch
from faults import long, plots
from numpy.testing import assert_allclose

from adahb import optim
from adahb.experiments.figures import render
from adahb.optim.numbers import numbers


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return long.soak(0.01, tmp_path_factory.mktemp("long"))


def test_a_small_soak(found):
    nearest, compensated = found["drift"]["curves"]
    assert nearest["step"][-1] == 100_000
    assert compensated["step"][-1] == 2_000
    for curve in (nearest, compensated):
        assert len(curve["step"]) == len(curve["distance"]) <= 200
        assert curve["distance"][-1] > 0, "float32 and float64 are the same"
    assert found["estimator"]["samples"] == 100_000
    assert found["loop"]["step"][-1] == 6_000
    assert found["sweep"]["run"][-1] == 40
    assert [row["tried"] for row in found["rows"]] == [100_000, 2_000, 100_000, 6_000, 40]


def test_the_pictures_show_the_curves(found):
    drift, memory = plots.drift(found["drift"]), plots.memory(found)
    (axes,) = drift.axes
    for line, curve in zip(axes.lines, found["drift"]["curves"], strict=False):
        assert line.get_xdata().tolist() == curve["step"]
        assert_allclose(line.get_ydata()[-1], curve["distance"][-1])
    assert [axes.get_title() for axes in memory.axes] == [
        "a training loop",
        "a sweep in two processes",
    ]
    parent = memory.axes[1].lines[0].get_ydata()
    rise = (found["sweep"]["parent"][-1] - found["sweep"]["parent"][0]) / plots.MIB
    assert_allclose(parent[-1] - parent[0], rise, atol=1e-9)
    for figure in (drift, memory):
        assert b"<svg" in render(figure, "svg")


def test_growth_is_seen():
    at = list(range(0, 3000, 10))
    low, high = long.slope(at, [5000 + 16 * step for step in at])
    assert_allclose([low, high], 16.0)
    low, high = long.slope(at, [7000] * len(at))
    assert low == high == 0.0


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("method", [optim.AdaHB, optim.HB, optim.NAG, optim.PSG])
def test_clocks_count_beyond_what_float32_can(method, capturable):
    """2^24 + 1 is the first whole number that float32 has not."""
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = method([w], lr=0.1, capturable=capturable)
    w.grad = torch.ones(2)
    optimizer.step()
    clock = optimizer.state[w]["clock"]
    clock.fill_(2**24)
    for count in range(1, 4):
        optimizer.step()
        assert int(optimizer.state[w]["clock"]) == 2**24 + count
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert int(optimizer.state[w]["clock"]) == 2**24 + 3


@pytest.mark.parametrize("step", [2**24 + 1, 10**9 + 7, 2**40 + 1])
def test_coefficients_far_out_are_those_of_float64(step):
    told = optim.AdaHB._schedule({**_options(), "tick": 1})
    on_host = numbers(told, 0.1, step)
    on_device = numbers(told, torch.tensor(0.1, dtype=torch.float64), torch.tensor(step))
    for name in ("alpha", "beta1", "eta", "c", "beta2", "delta"):
        assert_allclose(float(getattr(on_device, name)), getattr(on_host, name), rtol=1e-15)
    assert_allclose(1 - on_host.beta1, 2 / (step + 2), rtol=1e-3)
    assert_allclose(on_host.c, 1 / step, rtol=1e-6)


def _options():
    return optim.AdaHB([torch.nn.Parameter(torch.ones(1))]).param_groups[0]
