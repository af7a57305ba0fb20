"""``nonfinite``: what becomes of a step whose gradients hold NaN or infinity."""

import copy
import io
import logging

import pytest
import torch
from optim.paths import DEVICES

from adahb.logging import quantities
from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import Box, L1Ball, L2Ball

nan, inf = float("nan"), float("inf")
METHODS = {"AdaHB": AdaHB, "HB": HB, "NAG": NAG, "PSG": PSG}
PATHS = {
    "eager": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "int8": {"state_dtype": "int8"},
    "bf16": {"state_dtype": "bf16"},
    "compensated": {"rounding": "compensated"},
    "ball": {"constraint": L2Ball(0.5)},
    "box": {"constraint": Box(-0.1, 0.1)},
    "average": {"momentum": 0.9},
    "tensor lr": {"lr": torch.tensor(0.05)},
}
CASES = [("AdaHB", path) for path in PATHS] + [(method, "eager") for method in ("HB", "NAG", "PSG")]
pytestmark = pytest.mark.filterwarnings(
    "ignore:fused=True falls back",
    "ignore:Synchronization debug mode is a prototype",
    "ignore:.*torch.jit.script_method.*:DeprecationWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf",
)


def parameters(device="cpu", dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.nn.Parameter((0.01 * torch.randn(s, generator=generator)).to(device, dtype))
        for s in ((7, 3), (5,), (0,), ())
    ]


def give(params, k, bad=None):
    generator = torch.Generator().manual_seed(k)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p)
    if bad is not None:
        params[0].grad[2, 1] = bad


def trained(method, options, device, bad, *, step=None):
    """Six steps, of which the first and the third hold ``bad``, if any: then they must not count.

    Without ``bad`` these two are not made at all.
    """
    params = parameters(device)
    optimizer = METHODS[method](params, **{"lr": 0.05, "tick": 2, **options})
    go = optimizer.step if step is None else step(optimizer)
    for k in range(6):
        if k in (0, 2) and bad is None:
            continue
        give(params, k, bad if k in (0, 2) else None)
        go()
    return params, optimizer


def assert_same(one, other, tolerance=0.0):
    for p, q in zip(one[0], other[0], strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
        mine, theirs = one[1].state[p], other[1].state[q]
        assert mine.keys() == theirs.keys()
        for key in mine:
            expected = theirs[key].to(mine[key].device)
            torch.testing.assert_close(mine[key], expected, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("method", "path"), CASES)
@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_skipped_step_is_one_that_was_never_made(device, method, path, bad):
    options = {**PATHS[path], "nonfinite": "skip"}
    skipping = trained(method, options, device, bad)
    plain = trained(method, PATHS[path], device, None)
    assert skipping[1].skipped_steps == 2
    assert_same(skipping, plain, 0.0 if device == "cpu" else 2e-6)


@pytest.mark.parametrize("path", ["eager", "average", "int8", "ball"])
def test_compiled_it_is_one_graph_and_the_same(path):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(logging.ERROR)
    counter = CompileCounterWithBackend("eager")

    def compiled(optimizer):
        return torch.compile(optimizer.step, backend=counter, fullgraph=True)

    skipping = trained("AdaHB", {**PATHS[path], "nonfinite": "skip"}, "cpu", inf, step=compiled)
    torch._dynamo.reset()
    assert counter.frame_count == 1
    assert skipping[1].skipped_steps == 2
    assert_same(skipping, trained("AdaHB", PATHS[path], "cpu", None), 1e-6)


def test_compiled_it_cannot_raise():
    params = parameters()
    optimizer = AdaHB(params, nonfinite="raise")
    give(params, 0)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="nonfinite must be 'skip' or 'propagate' inside"):
        torch.compile(optimizer.step, backend="eager", fullgraph=True)()
    torch._dynamo.reset()


def test_one_gradient_stops_all_groups():
    params = parameters()
    optimizer = AdaHB([{"params": params[1:], "nonfinite": "skip"}, {"params": params[:1]}])
    give(params, 0)
    params[1].grad[0] = nan
    before = [p.detach().clone() for p in params]
    optimizer.step()
    assert all(map(torch.equal, params, before))
    assert not optimizer.state
    assert optimizer.skipped_steps == 1
    give(params, 0, bad=nan)  # of the group that is not looked at
    optimizer.step()
    assert optimizer.skipped_steps == 1
    assert params[0].isnan().any()


def test_closures_are_looked_at_after_they_have_run():
    params = parameters()
    optimizer = HB(params, nonfinite="skip")
    before = [p.detach().clone() for p in params]

    def closure():
        give(params, 0, inf)
        return torch.tensor(nan)

    assert optimizer.step(closure).isnan()
    assert all(map(torch.equal, params, before))
    assert optimizer.skipped_steps == 1


def test_gradients_that_are_sparse_or_complex():
    w = torch.nn.Parameter(torch.zeros(4, 2))
    z = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    optimizer = AdaHB([w, z], nonfinite="skip")
    big = torch.full((2, 2), 3e38)
    # two that are finite, and their sum is not
    w.grad = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), big, (4, 2), check_invariants=True)
    z.grad = torch.ones_like(z)
    optimizer.step()
    assert optimizer.skipped_steps == 1
    w.grad = torch.sparse_coo_tensor(torch.tensor([[1, 2]]), big, (4, 2), check_invariants=True)
    z.grad = torch.full_like(z, complex(3e38, 3e38))  # finite, though its modulus is not
    optimizer.step()
    assert optimizer.skipped_steps == 1
    z.grad = torch.full_like(z, complex(0, inf))
    optimizer.step()
    assert optimizer.skipped_steps == 2
    assert w.isfinite().all()
    assert z.isfinite().all()


def test_steps_that_a_scaler_leaves_out_are_counted_and_not_refused():
    for how in ("skip", "raise"):
        params = parameters()
        optimizer = AdaHB(params, nonfinite=how)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for k in range(3):
            give(params, k)
            scaler.scale(torch.ones(()))
            params[0].grad[0, 0] = inf if k == 1 else 1.0
            scaler.step(optimizer)
            scaler.update()
        assert optimizer.skipped_steps == (how == "skip")
        assert int(optimizer.state[params[0]]["clock"]) == 2


def test_the_count_is_saved_loaded_copied_and_logged():
    params = parameters()
    optimizer = AdaHB(params, nonfinite="skip")
    for k, bad in enumerate((nan, inf, None)):
        give(params, k, bad)
        optimizer.step()
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=True)
    assert saved["param_groups"][0]["skipped_steps"] == 2
    other = AdaHB(parameters())
    other.load_state_dict(saved)
    assert other.skipped_steps == optimizer.skipped_steps == 2
    assert copy.deepcopy(optimizer).skipped_steps == 2
    (row,) = quantities(optimizer)
    assert (row["step"], row["skipped_steps"]) == (1, 2)
    give(params, 3, nan)
    optimizer.step()
    assert (optimizer.skipped_steps, other.skipped_steps) == (3, 2)
    assert saved["param_groups"][0]["skipped_steps"] == 2


def test_states_saved_without_the_option_are_taken_up():
    params = parameters()
    optimizer = AdaHB(params)
    give(params, 0)
    optimizer.step()
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        del group["nonfinite"]
    other = AdaHB(parameters(), nonfinite="skip")
    other.load_state_dict(saved)
    assert other.param_groups[0]["nonfinite"] == "skip"
    assert other.skipped_steps == 0


def test_the_option_may_be_changed_on_the_way():
    params = parameters()
    optimizer = AdaHB(params)
    optimizer.param_groups[0]["nonfinite"] = "skip"
    give(params, 0, nan)
    optimizer.step()
    assert optimizer.skipped_steps == 1
    assert all(p.isfinite().all() for p in params)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("path", ["eager", "foreach", "fused", "capturable", "int8", "ball", "box"])
def test_the_host_waits_for_nothing(path):
    params = parameters("cuda")
    optimizer = AdaHB(params, nonfinite="skip", **PATHS[path])
    for k in range(2):
        give(params, k)
        optimizer.step()
    give(params, 2, nan)
    torch.cuda.set_sync_debug_mode("error")
    try:
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert optimizer.skipped_steps == 1
    assert int(optimizer.state[params[0]]["clock"]) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_step_skips_and_counts():
    params = parameters("cuda")
    optimizer = AdaHB(params, nonfinite="skip", capturable=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for k in range(2):
            give(params, k)
            optimizer.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    graph.replay()
    before = [p.detach().clone() for p in params]
    params[0].grad[0, 0] = nan
    graph.replay()
    assert all(map(torch.equal, params, before))
    params[0].grad[0, 0] = 1.0
    graph.replay()
    assert not torch.equal(params[0], before[0])
    assert optimizer.skipped_steps == 1
    assert int(optimizer.state[params[0]]["clock"]) == 4


# ---------------------------------------------------------------- raise


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_raise_says_where_and_what_and_changes_nothing(device, method):
    params = parameters(device)
    named = [(f"layer.{i}", p) for i, p in enumerate(params)]
    optimizer = METHODS[method](
        [{"params": named[1:]}, {"params": named[:1], "name": "head"}], nonfinite="raise", tick=2
    )
    for k in range(2):
        give(params, k)
        optimizer.step()
    before = copy.deepcopy([dict(optimizer.state[p]) for p in params])
    weights = [p.detach().clone() for p in params]
    give(params, 2, nan)
    params[0].grad[0, 0] = -inf
    with pytest.raises(
        FloatingPointError,
        match=r"parameter 'layer.0' \(group 1 \('head'\), place 0, shape \(7, 3\)\) holds 1 NaN "
        r"and 1 infinite of 21 numbers; no weight .* nonfinite='skip'",
    ):
        optimizer.step()
    assert all(map(torch.equal, params, weights))
    for p, state in zip(params, before, strict=True):
        for key, value in state.items():
            torch.testing.assert_close(optimizer.state[p][key], value, rtol=0, atol=0)
    give(params, 3)
    optimizer.step()
    assert not torch.equal(params[0], weights[0])


def test_raise_before_the_first_step_makes_no_state():
    params = parameters()
    optimizer = AdaHB(params, nonfinite="raise", constraint=L1Ball(5.0))
    give(params, 0, inf)
    params[1].grad[:] = nan
    with pytest.raises(FloatingPointError, match=r"parameter 0 .*and 1 more gradients are"):
        optimizer.step()
    assert not optimizer.state


# ---------------------------------------------------------------- propagate, and refusals


@pytest.mark.parametrize("path", ["eager", "foreach", "fused", "capturable", "int8", "bf16"])
@pytest.mark.parametrize("bad", [nan, inf])
def test_by_default_they_pass_through_to_their_own_weights(path, bad):
    params, optimizer = trained("AdaHB", PATHS[path], "cpu", bad)
    assert not params[0][2, 1].isfinite()
    assert params[1].isfinite().all()
    if path != "int8":  # which shares a scale among 128 numbers
        assert int(params[0].isfinite().sum()) == params[0].numel() - 1
    assert optimizer.skipped_steps == 0
    assert "skipped_steps" not in optimizer.param_groups[0]


def test_nobody_looks_at_gradients_by_default(monkeypatch):
    monkeypatch.setattr("adahb.optim.nonfinite._found", None)
    trained("AdaHB", {}, "cpu", nan)


@pytest.mark.parametrize("kind", METHODS.values())
def test_values_that_are_not_allowed(kind):
    with pytest.raises(
        ValueError, match="nonfinite must be one of 'propagate', 'skip', 'raise', got 'ignore'"
    ):
        kind(parameters(), nonfinite="ignore")
    with pytest.raises(ValueError, match="nonfinite must be 'skip' or 'propagate' with capturable"):
        kind(parameters(), nonfinite="raise", capturable=True)
    with pytest.raises(TypeError, match="positional"):
        kind(parameters(), 0.1, "skip")
