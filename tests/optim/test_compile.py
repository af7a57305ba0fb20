"""A compiled step: whole, compiled once however far the clock goes, and the same step."""

import copy
import logging

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import (
    Box,
    GroupL1Ball,
    HalfSpace,
    L1Ball,
    L2Ball,
    NuclearBall,
    Simplex,
    WeightedL1Ball,
)

pytestmark = [  # of torch's own code
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

CASES = {
    "AdaHB": (AdaHB, {"tick": 2, "weight_decay": 0.1}),
    "AdaHB capturable": (AdaHB, {"tick": 1, "capturable": True, "power": 1.0}),
    "AdaHB foreach": (AdaHB, {"tick": 2, "foreach": True}),
    "AdaHB average": (AdaHB, {"tick": 2, "momentum": 0.9, "maximize": True}),
    "AdaHB tensor": (AdaHB, {"tick": 2, "weight_decay": 0.1}),
    "AdaHB int8": (AdaHB, {"tick": 2, "state_dtype": "int8"}),
    "AdaHB compensated": (AdaHB, {"tick": 2, "rounding": "compensated"}),
    "AdaHB box": (AdaHB, {"tick": 2, "constraint": Box(-0.1, 0.1)}),
    "HB": (HB, {"tick": 1}),
    "HB paper box": (HB, {"tick": 1, "constraint": Box(-0.1, 0.1), "form": "paper"}),
    "NAG": (NAG, {"tick": 2}),
    "PSG": (PSG, {"tick": 2, "capturable": True}),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(logging.ERROR)
    yield
    torch._dynamo.reset()


def run(case, pattern, *, compiled, fullgraph=True, aot=False, lrs=None, size=3):
    kind, options = CASES[case]
    options = {**options, **({"lr": torch.tensor(0.1)} if lrs or "tensor" in case else {})}
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(3, 4) * 0.01) for _ in range(size)]
    optimizer = kind(params, **options)
    counter = CompileCounterWithBackend("aot_eager" if aot else "eager")

    def step():
        optimizer.step()

    if compiled:
        step = torch.compile(step, backend=counter, fullgraph=fullgraph)
    generator = torch.Generator().manual_seed(1)
    for k, having in enumerate(pattern):
        if lrs is not None:
            optimizer.param_groups[0]["lr"].fill_(lrs[k])
        for i, p in enumerate(params):
            p.grad = torch.randn(3, 4, generator=generator) if i in having else None
        step()
    return params, optimizer, counter.frame_count


def assert_same(one, other):
    for p, q in zip(one[0], other[0], strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)
        for key, value in one[1].state[p].items():
            torch.testing.assert_close(value, other[1].state[q][key], rtol=1e-6, atol=1e-7)


ALL = (0, 1, 2)


CONSTRAINED = {
    "l1": (AdaHB, {"constraint": L1Ball(0.3)}),
    "l1 paper": (AdaHB, {"constraint": L1Ball(0.3), "form": "paper", "projection": "euclidean"}),
    "l2": (AdaHB, {"constraint": L2Ball(0.2), "form": "paper"}),
    "l2 rows": (AdaHB, {"constraint": L2Ball(0.2, dim=1), "capturable": True}),
    "weighted l1": (AdaHB, {"constraint": WeightedL1Ball([1.0, 2.0, 3.0, 4.0], 0.5, dim=1)}),
    "simplex": (HB, {"constraint": Simplex(0.5, dim=0)}),
    "half-space": (PSG, {"constraint": HalfSpace([[1.0] * 4] * 3, -0.1)}),
    "array box": (NAG, {"constraint": Box([-0.1, -0.2, -0.3, -0.4], 0.1)}),
    "group l1": (AdaHB, {"constraint": GroupL1Ball(0.3, dim=1)}),
    "nuclear": (HB, {"constraint": NuclearBall(0.3)}),
}
"""Sets whose projections ask for sums of numbers, or for more; tight, so that they are active."""


@pytest.mark.parametrize("case", CASES)
def test_compiled_once_and_whole(case):
    compiled = run(case, [ALL] * 12, compiled=True)
    assert compiled[2] == 1
    assert_same(compiled, run(case, [ALL] * 12, compiled=False))


def test_compiled_for_autograd_s_graphs():
    compiled = run("AdaHB", [ALL] * 3, compiled=True, aot=True)
    assert compiled[2] == 1
    assert_same(compiled, run("AdaHB", [ALL] * 3, compiled=False))


def test_a_tensor_learning_rate_may_change_and_be_zero():
    lrs = [0.0, 0.1, 0.2, 0.0, 0.3]
    compiled = run("AdaHB", [ALL] * 5, compiled=True, lrs=lrs)
    assert compiled[2] == 1
    assert int(compiled[1].state[compiled[0][0]]["clock"]) == 3
    assert_same(compiled, run("AdaHB", [ALL] * 5, compiled=False, lrs=lrs))


def test_parameters_that_part_keep_their_own_clocks():
    """Compiled anew when they part, for a step compiled before would move one clock for all."""
    pattern = [ALL, (0, 1), ALL, (0, 1), ALL, ALL]
    compiled = run("AdaHB", pattern, compiled=True)
    assert [int(compiled[1].state[p]["clock"]) for p in compiled[0]] == [6, 6, 4]
    assert_same(compiled, run("AdaHB", pattern, compiled=False))


@pytest.mark.filterwarnings("ignore:a parameter of shape .* starts outside")
@pytest.mark.parametrize("case", CONSTRAINED)
def test_sets_are_projected_on_in_the_graph(case, monkeypatch):
    kind, options = CONSTRAINED[case]
    monkeypatch.setitem(CASES, case, (kind, {"lr": 0.3, "tick": 2, **options}))
    params, optimizer, count = compiled = run(case, [(0,)] * 8, compiled=True, size=1)
    assert count == 1
    assert_same(compiled, run(case, [(0,)] * 8, compiled=False, size=1))
    with optimizer.averaged_parameters():
        assert options["constraint"].contains(params[0])


def test_sets_of_a_loaded_state_too(monkeypatch):
    """Whose arrays no graph has seen yet."""
    q = WeightedL1Ball([1.0, 2.0, 3.0, 4.0], 0.5, dim=1)
    monkeypatch.setitem(CASES, "loaded", (AdaHB, {"tick": 2, "constraint": q}))
    params, optimizer, _ = run("loaded", [(0,)], compiled=False, size=1)
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    assert not vars(optimizer.param_groups[0]["constraint"]).get("_tensors")
    torch.compile(optimizer.step, backend="eager", fullgraph=True)()
    assert q.contains(params[0])


def test_a_training_step_with_loss_and_optimizer():
    model = torch.nn.Linear(3, 1)
    optimizer = AdaHB(model.parameters(), tick=1)

    @torch.compile(backend="eager")
    def train(x):
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [train(torch.ones(2, 3)).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert all(int(s["clock"]) == 5 for s in optimizer.state.values())
