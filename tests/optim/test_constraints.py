"""Constrained parameters are feasible, whatever the set, the form and the kernel."""

import numpy as np
import pytest
import torch
from sets.samples import every_set

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import Box, HalfSpace, L1Ball, L2Ball, NuclearBall, Simplex

SETS = every_set((3, 4))
OPTIMIZERS = {
    "AdaHB averaging": (AdaHB, {"form": "averaging"}),
    "AdaHB paper": (AdaHB, {"form": "paper"}),
    "AdaHB constant": (AdaHB, {"form": "averaging", "momentum": 0.9}),
    "HB averaging": (HB, {"form": "averaging"}),
    "HB paper": (HB, {"form": "paper"}),
    "PSG": (PSG, {}),
    "NAG": (NAG, {}),
}


def options_for(method, name):
    euclidean = name == "nuclear" and method.startswith("AdaHB")
    return {"projection": "euclidean"} if euclidean else {}


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("method", OPTIMIZERS)
@pytest.mark.parametrize("name", SETS)
def test_feasible_before_the_first_step_and_after_each(name, method, foreach):
    q, (kind, options) = SETS[name], OPTIMIZERS[method]
    generator = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter(3 * torch.randn(3, 4, generator=generator))
    with pytest.warns(UserWarning, match=r"shape \(3, 4\) starts outside of .*: it is projected"):
        optimizer = kind(
            [p],
            lr=0.3,
            tick=5,
            constraint=q,
            foreach=foreach,
            **options,
            **options_for(method, name),
        )
    assert q.contains(p)
    for _ in range(12):
        p.grad = torch.randn(3, 4, generator=generator) - 0.3
        optimizer.step()
        with optimizer.averaged_parameters():  # for NAG the iterate, the others' average or w
            assert q.contains(p)
        assert method == "NAG" or q.contains(p)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["averaging", "paper"])
@pytest.mark.parametrize(
    "q", [L1Ball(0.5), L2Ball(0.5, dim=0), Box(-0.1, 0.2), Simplex()], ids=repr
)
def test_feasible_in_every_precision(q, form, dtype):
    start = torch.full((4,), 0.25) if q == Simplex() else torch.zeros(4)
    p = torch.nn.Parameter(start.to(dtype))
    optimizer = AdaHB([p], lr=0.1, tick=5, constraint=q, form=form)
    generator = torch.Generator().manual_seed(0)
    for _ in range(25):
        p.grad = torch.randn(4, generator=generator).to(dtype) - 0.3
        optimizer.step()
        assert q.contains(p)


def test_a_start_inside_is_left_alone():
    p = torch.nn.Parameter(torch.tensor([0.1, 0.2]))
    AdaHB([p], constraint=L1Ball(1.0))
    assert p.tolist() == torch.tensor([0.1, 0.2]).tolist()


def test_weights_loaded_after_construction_are_projected_too():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = AdaHB([p], constraint=L1Ball(1.0))
    with torch.no_grad():
        p.copy_(torch.tensor([3.0, 0.0]))
    p.grad = torch.zeros(2)
    with pytest.warns(UserWarning, match="starts outside"):
        optimizer.step()
    assert L1Ball(1.0).contains(p)


def test_groups_have_sets_of_their_own():
    free, ball, rows = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(3))
    optimizer = AdaHB(
        [
            {"params": [free], "constraint": None},
            {"params": [ball], "form": "paper", "projection": "euclidean"},
            {"params": [rows], "constraint": L1Ball(0.2, dim=1)},
        ],
        lr=1.0,
        tick=1,
        constraint=L2Ball(0.5),
    )
    for _ in range(5):
        for p in (free, ball, rows):
            p.grad = torch.ones(2, 3)
        optimizer.step()
    assert L2Ball(0.5).contains(ball)
    assert float(ball.detach().norm()) == pytest.approx(0.5)
    assert float(free.detach().norm()) > 0.5
    assert L1Ball(0.2, dim=1).contains(rows)
    assert not L1Ball(0.2).contains(rows)


def test_the_metric_projection_finds_the_solution_that_the_euclidean_one_misses():
    """<c, w> on the l1 ball, c = (1, 0.5): minimum -1; the euclidean projection stops at -0.75."""
    found = {}
    for projection in ("metric", "euclidean"):
        p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        optimizer = AdaHB(
            [p], lr=1.0, gamma=1.0, tick=1, constraint=L1Ball(1.0), projection=projection
        )
        for _ in range(4000):
            p.grad = torch.tensor([1.0, 0.5], dtype=torch.float64)
            optimizer.step()
        found[projection] = float(p.detach()[0] + 0.5 * p.detach()[1])
    assert found["metric"] == pytest.approx(-1.0, abs=1e-3)
    assert found["euclidean"] == pytest.approx(-0.75, abs=1e-3)


@pytest.mark.parametrize("form", ["averaging", "paper"])
def test_half_precision_is_projected_in_float32(form):
    q = HalfSpace(np.ones(3), 0.0)
    p = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    optimizer = AdaHB([p], lr=0.1, constraint=q, form=form)
    for k in range(20):
        p.grad = -torch.arange(3.0).bfloat16() - k
        optimizer.step()
    buffer = optimizer.state[p]["z" if form == "averaging" else "u"]
    assert buffer.dtype == torch.float32
    assert float(p.detach().sum()) <= 1e-2


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        ([(3,)], {"constraint": L1Ball(1.0, dim=1)}, ValueError, r"must fit .* shape \(3,\)"),
        ([(2, 3), (3,)], {"constraint": Box([0.0] * 2, 1.0)}, ValueError, "must fit every"),
        ([(3,)], {"constraint": NuclearBall(1.0), "projection": "euclidean"}, ValueError, "fit"),
        ([(3, 3)], {"constraint": NuclearBall(1.0)}, ValueError, "projection must be 'euclidean'"),
        ([(0,)], {"constraint": Simplex()}, ValueError, r"shape \(0,\)"),
        ([(3,)], {"constraint": 1.0}, TypeError, "constraint must be a set .* got 1.0"),
        ([(3,)], {"constraint": L1Ball}, TypeError, "constraint must be a set .* got <class"),
    ],
)
def test_sets_in_which_a_parameter_cannot_live(shapes, options, error, message):
    outside = torch.nn.Parameter(torch.full((2, 3), 9.0))
    params = [outside, *(torch.nn.Parameter(torch.zeros(s)) for s in shapes)]
    optimizer = AdaHB([torch.nn.Parameter(torch.zeros(1))])
    with pytest.raises(error, match=message):
        optimizer.add_param_group({"params": params, **options})
    assert len(optimizer.param_groups) == 1
    assert float(outside.detach().min()) == 9.0  # nothing is projected before everything is checked


def test_complex_parameters_have_no_sets():
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"needs real parameters, got torch.complex64"):
        AdaHB([p], constraint=L1Ball(1.0))


def test_options_that_change_what_the_state_means_are_refused_later():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = AdaHB([p])
    p.grad = torch.ones(2)
    optimizer.step()
    for change in ({"constraint": L1Ball(1.0)}, {"momentum": 0.9}):
        before = dict(optimizer.param_groups[0])
        optimizer.param_groups[0].update(change)
        with pytest.raises(ValueError, match="must stay what they were when the state was created"):
            optimizer.step()
        optimizer.param_groups[0].update(before)
    optimizer.step()
