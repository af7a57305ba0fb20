"""The benchmark of a step runs, measures what it says, and steps the networks it names."""

import math

import pytest

torch = pytest.importorskip("torch")

from adahb.experiments import bench_step  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_shapes_are_those_of_the_networks():
    assert sum(map(math.prod, bench_step.gpt2())) == 124_439_808
    assert len(bench_step.gpt2()) == 148
    assert sum(map(math.prod, bench_step.resnet18())) == 11_689_512
    assert len(bench_step.resnet18()) == 62
    (_, single), *_, (_, small) = bench_step.cases("cuda")
    assert single == [(256_000_000,)]
    assert small == [(100,)] * 10_000


def test_every_contender_is_measured_beside_fused_adam_and_a_copy():
    found = bench_step.run("cpu", 2, scale=0.0005)
    for case in found["cases"]:
        assert not {name for name in case["failed"] if "torch" in name or "HB" in name}
        yardstick = case["contenders"]["torch Adam fused"]
        assert case["contenders"]["copy"]["copy bandwidth"] == pytest.approx(1.0)
        for name in ("AdaHB", "AdaHB foreach", "HB eager", "torch SGD momentum fused"):
            entry = case["contenders"][name]
            seconds = entry["seconds"]["median"]
            ratio = entry["time over torch Adam fused"]["median"]
            assert ratio == pytest.approx(seconds / yardstick["seconds"]["median"])
            moved = {"A": 28, "H": 20, "t": 20}[name[0]] * case["parameters"]
            assert entry["bytes a second"] == pytest.approx(moved / seconds)
            assert entry["state bytes"] >= (8 if name.startswith("AdaHB") else 4)
            assert entry["peak bytes"] is None


def test_a_peer_that_fails_is_reported_and_leaves_the_gradients(monkeypatch):
    class Greedy(torch.optim.SGD):
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.grad = None

    real = bench_step.contenders("cpu")
    greedy = bench_step._maker(Greedy, {}), None
    made = {"greedy": greedy, "torch Adam fused": real["torch Adam fused"]}
    monkeypatch.setattr(bench_step, "contenders", lambda _: made)
    case = bench_step.run("cpu", 1, scale=0.0005)["cases"][0]
    assert "takes the gradients away" in case["failed"]["greedy"]
    assert case["contenders"]["torch Adam fused"]["seconds"]["min"] > 0


def test_wrong_arguments_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="needs a CUDA device"):
        bench_step.run("cuda")
    with pytest.raises(ValueError, match="scale must be"):
        bench_step.run("cpu", scale=2.0)
