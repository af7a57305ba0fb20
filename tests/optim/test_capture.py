"""A step that is captured in a CUDA graph: it waits for nothing, and is the same step."""

import pytest
import torch
from sets.samples import every_set
from sets.waiting import WithoutWaiting, as_if_captured

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import NuclearBall

SETS = {"none": None, **{name: q for name, q in every_set((3, 4)).items() if name != "nuclear"}}
KINDS = {
    "AdaHB": (AdaHB, {}),
    "AdaHB paper": (AdaHB, {"form": "paper", "projection": "euclidean"}),
    "AdaHB average": (AdaHB, {"momentum": 0.9, "weight_decay": 0.1}),
    "HB": (HB, {"power": 1.0}),
    "NAG": (NAG, {}),
    "PSG": (PSG, {}),
}
pytestmark = pytest.mark.filterwarnings("ignore:a parameter of shape .* starts outside")


def start(kind, q, device="cpu", **more):
    made, options = KINDS[kind]
    generator = torch.Generator().manual_seed(0)
    p = torch.nn.Parameter(torch.randn(3, 4, generator=generator).to(device))
    p.grad = torch.zeros_like(p)
    return p, made([p], lr=0.3, tick=2, constraint=q, capturable=True, **options, **more)


def gradients(steps):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 4, generator=generator) - 0.3 for _ in range(steps)]


def plainly(kind, q, steps, device="cpu"):
    p, optimizer = start(kind, q, device)
    for g in gradients(steps):
        p.grad.copy_(g)
        optimizer.step()
    return p.detach(), optimizer.state[p]


def assert_same(p, state, expected):
    torch.testing.assert_close(p.detach(), expected[0], rtol=1e-5, atol=1e-6)
    for key, value in state.items():
        torch.testing.assert_close(value, expected[1][key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETS)
def test_no_step_waits_for_the_device(name, kind, monkeypatch):
    q = SETS[name]
    p, optimizer = start(kind, q)
    for k, g in enumerate(gradients(6)):
        p.grad.copy_(g)
        if k < 2:  # as before every capture
            optimizer.step()
            continue
        with monkeypatch.context() as patch, WithoutWaiting():
            as_if_captured(patch)
            optimizer.step()
        with optimizer.averaged_parameters():
            assert q is None or q.contains(p)
    assert int(optimizer.state[p]["clock"]) == 6
    assert_same(p, optimizer.state[p], plainly(kind, q, 6))


def test_what_cannot_be_captured_says_so(monkeypatch):
    _, optimizer = start("HB", NuclearBall(0.5))
    optimizer.step()
    as_if_captured(monkeypatch)
    with pytest.raises(
        RuntimeError, match=r"constraint=NuclearBall.* must stay out of CUDA graphs"
    ):
        optimizer.step()


def captured(kind, q, steps, **more):
    p, optimizer = start(kind, q, "cuda", **more)
    stream, given = torch.cuda.Stream(), [g.cuda() for g in gradients(steps)]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for g in given[:3]:
            p.grad.copy_(g)
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    for g in given[3:]:
        p.grad.copy_(g)
        graph.replay()
    return p, optimizer


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETS)
def test_a_captured_step_is_the_same_step(name, kind):
    p, optimizer = captured(kind, SETS[name], 9)
    assert int(optimizer.state[p]["clock"]) == 9
    assert_same(p, optimizer.state[p], plainly(kind, SETS[name], 9, "cuda"))
    with optimizer.averaged_parameters():
        assert SETS[name] is None or SETS[name].contains(p)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["l1", "l2 rows", "simplex", "weighted l1", "affine"])
@pytest.mark.filterwarnings("ignore::UserWarning:torch")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_step_on_the_device(name):
    q = SETS[name]
    p, optimizer = start("AdaHB", q, "cuda")
    step = torch.compile(optimizer.step, fullgraph=True)
    for g in gradients(5):
        p.grad.copy_(g)
        step()
    assert_same(p, optimizer.state[p], plainly("AdaHB", q, 5, "cuda"))
