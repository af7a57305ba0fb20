"""The Triton kernel is the eager one: in Triton's interpreter, and on a device if there is one.

Triton reads ``TRITON_INTERPRET`` once, when it is imported, so that the interpreted tests run in a
process of their own; the first test starts it.
"""

import copy
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from adahb import schedules, sets  # noqa: E402
from adahb.optim import dispatch, narrow  # noqa: E402
from adahb.optim.kernels import eager, triton  # noqa: E402
from adahb.optim.update import STATES, Batch, Numbers, Recipe  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
gpu = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        pytest.mark.skipif(INTERPRETED, reason="the device does not interpret"),
    ],
)
cpu = pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="not interpreted"))
everywhere = pytest.mark.parametrize("device", [cpu, gpu])

SIZES = [(0,), (), (3,), (1023,), (1024,), (1025,), (5, 1000), (4, 0, 2)]
TENSORS = ("params", "grads", *STATES)


def twin(batch):
    """The same tensors once more, without what a kernel has remembered of them."""
    return Batch(**{name: copy.deepcopy(getattr(batch, name)) for name in TENSORS})


PLAIN = Recipe(
    adaptive=True,
    averaging=False,
    extrapolates=False,
    keeps_average=False,
    maximize=False,
    weight_decay=0.0,
    decoupled=True,
    constraint=None,
    metric=True,
    rounding="nearest",
)
BOX = sets.Box(-0.5, 0.25)
FORMS = {
    "w": {},
    "clipped w": {"constraint": BOX},
    "z": {"constraint": BOX, "averaging": True},
    "y": {"extrapolates": True},
    "clipped y": {"extrapolates": True, "constraint": BOX},
}
DECAYS = {"none": {}, "coupled": {"decoupled": False}, "decoupled": {"decoupled": True}}


@pytest.mark.skipif(INTERPRETED, reason="is what runs the others")
def test_in_the_interpreter():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", __file__],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_without_triton_nothing_imports_it():
    code = "import sys, adahb.optim, adahb.optim.kernels.triton; assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def random(rng, shape, dtype, device):
    return torch.tensor(rng.standard_normal(shape), dtype=dtype, device=device)


def batch_of(shapes, dtype, device, recipe, *, grad_dtype=None, like=None, seed=0):
    """Parameters within reach of the bounds, with states as after some steps."""
    rng = np.random.default_rng(seed)
    change = like or (lambda x: x)
    batch = Batch()
    state = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    for shape in shapes:
        batch.params.append(change(random(rng, shape, dtype, device)))
        batch.grads.append(change(random(rng, shape, grad_dtype or dtype, device)))
        batch.buffers.append(change(0.1 * random(rng, shape, state, device)))
        if recipe.adaptive:
            batch.squares.append(change(random(rng, shape, state, device).square()))
        if recipe.keeps_average:
            batch.averages.append(change(random(rng, shape, state, device)))
    return batch


def numbers(recipe, step, device=None):
    """Those of a schedule, floats or tensors on a device."""
    t = step if device is None else torch.tensor(float(step), dtype=torch.float64, device=device)
    adaptive = schedules.AdaHB(alpha=0.3, gamma=0.5, delta=1e-3)
    at = (adaptive if recipe.adaptive else schedules.HB(alpha=0.3))(t)
    return Numbers(
        at.alpha, at.beta1, at.eta, at.c, at.beta2, at.delta, 0.9 * at.beta1, 1.0 / t, step
    )


def assert_equal(found, expected, tolerance=None):
    for name in ("params", "buffers", "squares", "averages"):
        for x, y in zip(getattr(found, name), getattr(expected, name), strict=True):
            assert x.dtype == y.dtype
            rtol = tolerance or (1e-12 if x.dtype == torch.float64 else 1e-6)
            scale = float(y.abs().max()) if y.numel() else 0.0
            torch.testing.assert_close(x, y, rtol=rtol, atol=rtol * scale)


def compare(batch, recipe, *, steps=3, device=None, tolerance=None, seed=1, **more):
    """Make steps with both kernels, each with new gradients, and compare all that they change."""
    other = twin(batch)
    other.memo.clear()
    rng = np.random.default_rng(seed)
    for step in range(1, steps + 1):
        at = numbers(recipe, step, device)
        before = [g.clone() for g in batch.grads]
        triton.step(batch, at._replace(**more), recipe)
        for g, unchanged in zip(batch.grads, before, strict=True):
            assert torch.equal(g, unchanged)
        eager.step(other, at, recipe)
        assert_equal(batch, other, tolerance)
        for which in (batch, other):
            state = copy.deepcopy(rng)
            which.grads = [
                torch.empty_like(g).copy_(random(state, g.shape, g.dtype, g.device))
                for g in which.grads
            ]
        rng = state
    return batch


@everywhere
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("decay", DECAYS)
def test_every_update(device, dtype, form, decay):
    options = {**FORMS[form], **DECAYS[decay], "weight_decay": 0.1 * (decay != "none")}
    for adaptive, keeps, maximize in product([True, False], [True, False], [True, False]):
        recipe = replace(
            PLAIN, adaptive=adaptive, keeps_average=keeps, maximize=maximize, **options
        )
        compare(batch_of([(), (3,), (1025,)], dtype, device, recipe), recipe, steps=2)


@everywhere
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_many_sizes_in_one_launch(device, dtype):
    recipe = replace(PLAIN, constraint=BOX)
    batch = compare(batch_of(SIZES, dtype, device, recipe), recipe, steps=3)
    (launch,) = batch.memo["triton plan"].launches
    assert launch.count == 1 + 1 + 1 + 1 + 2 + 5
    assert not launch.aligned


@everywhere
def test_sizes_and_addresses_that_allow_wide_loads(device):
    batch = compare(batch_of([(1024,), (3, 4), (2000,)], torch.float32, device, PLAIN), PLAIN)
    (launch,) = batch.memo["triton plan"].launches
    expected = all(x.data_ptr() % 16 == 0 for x in [*batch.params, *batch.buffers, *batch.squares])
    assert launch.aligned == expected
    batch.grads = [torch.randn(g.numel() + 1, device=device)[1:].view(g.shape) for g in batch.grads]
    compare(batch, PLAIN)


@everywhere
@pytest.mark.parametrize(
    "constraint", [sets.NonNegative(), sets.LinfBall(0.3), sets.LinfBall(0.3, dim=0)]
)
@pytest.mark.parametrize("averaging", [True, False])
def test_other_boxes(device, constraint, averaging):
    recipe = replace(PLAIN, constraint=constraint, averaging=averaging)
    compare(batch_of([(7,), (4, 5)], torch.float64, device, recipe), recipe)


@everywhere
@pytest.mark.parametrize("extrapolates", [True, False])
def test_nan_is_not_clipped_away(device, extrapolates):
    recipe = replace(PLAIN, constraint=BOX, extrapolates=extrapolates)
    batch = batch_of([(5,)], torch.float32, device, recipe)
    batch.grads[0][2] = float("nan")
    triton.step(batch, numbers(recipe, 1), recipe)
    assert batch.params[0].isnan().tolist() == [False, False, True, False, False]


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


def transposed(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@everywhere
@pytest.mark.parametrize("layout", [channels_last, transposed])
@pytest.mark.parametrize("gradients", ["alike", "contiguous"])
def test_memory_layouts(device, layout, gradients):
    shapes = [(2, 3, 4, 5), (8, 1, 3, 3), (8, 4, 1, 1)]
    batch = batch_of(shapes, torch.float64, device, PLAIN, like=layout)
    if gradients == "contiguous":
        batch.grads = [g.contiguous() for g in batch.grads]
    compare(batch, PLAIN)


@everywhere
def test_contiguous_parameters_with_gradients_of_another_layout(device):
    batch = batch_of([(2, 3, 4, 5)], torch.float64, device, PLAIN)
    batch.grads = [channels_last(g) for g in batch.grads]
    compare(batch, PLAIN)
    batch.grads = [torch.ones((), dtype=torch.float64, device=device).expand(2, 3, 4, 5)]
    compare(batch, PLAIN, steps=1)


@everywhere
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grad_dtype", [None, torch.float32])
@pytest.mark.parametrize("form", FORMS)
def test_half_precision_is_read_as_float32(device, dtype, grad_dtype, form):
    recipe = replace(PLAIN, **FORMS[form])
    batch = batch_of([(3,), (1025,)], dtype, device, recipe, grad_dtype=grad_dtype)
    compare(batch, recipe, steps=1, tolerance=2.0**-7)
    for x in (*batch.buffers, *batch.squares):
        assert x.dtype == torch.float32


@everywhere
def test_gradients_of_two_dtypes_take_two_launches(device):
    batch = batch_of([(3,), (5,), (0,), (7,)], torch.float32, device, PLAIN)
    batch.grads[1] = batch.grads[1].half()
    other = twin(batch)
    triton.step(batch, numbers(PLAIN, 1), PLAIN)
    other.grads[1] = other.grads[1].float()
    eager.step(other, numbers(PLAIN, 1), PLAIN)
    assert_equal(batch, other)
    assert [launch.members for launch in batch.memo["triton plan"].launches] == [[0, 3], [1]]


@everywhere
@pytest.mark.parametrize("adaptive", [True, False])
def test_numbers_that_are_on_the_device(device, adaptive):
    recipe = replace(PLAIN, adaptive=adaptive, keeps_average=True, weight_decay=0.1)
    batch = batch_of([(3,), (1025,)], torch.float64, device, recipe)
    compare(batch, recipe, device=device)


@everywhere
@pytest.mark.parametrize("live", [True, False])
def test_a_step_that_the_device_calls_off(device, live):
    recipe = replace(PLAIN, keeps_average=True)
    batch = batch_of([(3,), (1025,)], torch.float32, device, recipe)
    batch.grads[0][1] = float("inf") if not live else 1.0
    before = twin(batch)
    triton.step(batch, numbers(recipe, 1)._replace(live=torch.tensor(live, device=device)), recipe)
    if live:
        eager.step(before, numbers(recipe, 1), recipe)
    assert_equal(batch, before)


@everywhere
@pytest.mark.parametrize("maximize", [True, False])
def test_scaled_gradients(device, maximize):
    recipe = replace(PLAIN, maximize=maximize, weight_decay=0.1, decoupled=False)
    batch = batch_of([(3,), (1025,)], torch.float64, device, recipe)
    other = twin(batch)
    batch.grads = [1024.0 * g for g in batch.grads]
    scale = torch.tensor(1024.0, device=device)
    triton.step(batch, numbers(recipe, 1)._replace(grad_scale=scale), recipe)
    eager.step(other, numbers(recipe, 1), recipe)
    assert_equal(batch, other)


@everywhere
def test_plans_follow_the_tensors(device):
    """Parameters that move, shrink or are replaced where others lay are seen."""
    batch = batch_of([(40,), (30,)], torch.float64, device, PLAIN)
    compare(batch, PLAIN, steps=1)
    plan = batch.memo["triton plan"]
    fresh = Batch(batch.params, batch.grads, batch.buffers, batch.squares)
    assert triton.supports(fresh, PLAIN) is None
    assert fresh.memo["triton plan"] is plan
    triton.step(fresh, numbers(PLAIN, 1), PLAIN)
    fresh.params[0].data = fresh.params[0].clone()
    compare(fresh, PLAIN, steps=1)
    assert fresh.memo["triton plan"] is not plan
    smaller = Batch(
        *(
            [x[:20] for x in tensors]
            for tensors in (batch.params, batch.grads, batch.buffers, batch.squares)
        )
    )
    compare(smaller, PLAIN, steps=1)


def narrowed(batch, recipe):
    """The batch with states as the recipe has them, each holding what rounding leaves of it."""
    dtype = batch.params[0].dtype
    kinds = {"bf16": (torch.bfloat16, torch.bfloat16), "int8": (torch.int8, torch.uint8)}
    if recipe.state_dtype is not None:
        for name, kind in zip(("buffers", "squares"), kinds[recipe.state_dtype], strict=True):
            scales = []
            for i, x in enumerate(getattr(batch, name)):
                state = torch.zeros_like(x, dtype=kind)
                scales.append(narrow.scales_of(state) if recipe.state_dtype == "int8" else None)
                narrow.write(state, scales[-1], x, narrow.noise(x, 0))
                getattr(batch, name)[i] = state
            if recipe.state_dtype == "int8":
                setattr(batch, name[:-1] + "_scales", scales)
    if recipe.compensates(dtype):
        rng = np.random.default_rng(5)
        batch.lows = [
            torch.tensor(rng.integers(-(2**15), 2**15, p.shape), dtype=torch.int16).to(p.device)
            for p in batch.params
        ]
    return batch


NARROW = [
    *({"state_dtype": kind, "averaging": z} for kind in ("bf16", "int8") for z in (False, True)),
    {"rounding": "compensated"},
    {"rounding": "stochastic"},
    {"rounding": "compensated", "state_dtype": "int8", "averaging": True, "constraint": BOX},
    {"rounding": "stochastic", "state_dtype": "int8", "adaptive": False},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", NARROW, ids=str)
@everywhere
def test_what_is_stored_in_few_bits_is_stored_alike(options, dtype, device):
    """To the bit, with steps of size zero: else a last digit of a root would tip roundings."""
    recipe = replace(PLAIN, **options)
    shapes = [(), (3,), (255,), (257,), (1025,), (5, 300), (0,)]
    batch = narrowed(batch_of(shapes, dtype, device, recipe), recipe)
    other = twin(batch)
    rng = np.random.default_rng(1)
    for step in (1, 2, 2**31 + 3):
        at = numbers(recipe, step)._replace(alpha=0.0, eta=0.0)
        triton.step(batch, at, recipe)
        eager.step(other, at, recipe)
        for x, y in zip(batch.stored(), other.stored(), strict=True):
            assert x.dtype == y.dtype
            torch.testing.assert_close(x, y, rtol=0, atol=0)
        for mine, others in zip(batch.grads, other.grads, strict=True):
            fresh = random(rng, mine.shape, mine.dtype, device)
            mine.copy_(fresh)
            others.copy_(fresh)


@pytest.mark.parametrize("options", NARROW, ids=str)
@everywhere
def test_steps_with_few_bits_are_alike(options, device):
    recipe = replace(PLAIN, **options)
    batch = narrowed(batch_of([(3, 700)], torch.bfloat16, device, recipe), recipe)
    other = twin(batch)
    for step in (1, 2, 3):
        triton.step(batch, numbers(recipe, step), recipe)
        eager.step(other, numbers(recipe, step), recipe)
    assert (batch.params[0].double() - other.params[0].double()).abs().mean() < 1e-4
    v, others = (
        (
            narrow.read(
                x.squares[0], x.square_scales[0] if x.square_scales else None, torch.float32
            )
            for x in (batch, other)
        )
        if recipe.adaptive
        else (torch.zeros(1), torch.zeros(1))
    )
    assert torch.equal(v, others)  # no root is in them


@everywhere
def test_noise_comes_from_the_clock_on_the_device_too(device):
    recipe = replace(PLAIN, state_dtype="int8", rounding="stochastic")
    batch = narrowed(batch_of([(700,)], torch.bfloat16, device, recipe), recipe)
    other = twin(batch)
    late = 2**32 + 3
    at = numbers(recipe, late)
    clock = torch.tensor(late, device=device)
    tensors = {
        n: torch.tensor(float(x), dtype=torch.float64, device=device)
        for n, x in at._asdict().items()
        if isinstance(x, float)
    }
    triton.step(batch, at, recipe)
    triton.step(other, at._replace(**tensors, step=clock), recipe)
    for x, y in zip(batch.stored(), other.stored(), strict=True):
        assert torch.equal(x, y)


@everywhere
def test_what_is_not_supported_is_said(device):
    batch = batch_of([(3, 4)], torch.float32, device, PLAIN)
    assert triton.supports(batch, PLAIN) is None
    for constraint in (sets.L2Ball(1.0), sets.Box([0.0, 0.0, 0.0, 0.0], 1.0)):
        recipe = replace(PLAIN, constraint=constraint)
        assert "is not a box with numbers" in triton.supports(batch, recipe)
        with pytest.raises(ValueError, match="cannot make this update: the constraint"):
            triton.step(replace(batch, memo={}), numbers(recipe, 1), recipe)
    gappy = Batch(
        *(
            [x[:, :2] for x in tensors]
            for tensors in (batch.params, batch.grads, batch.buffers, batch.squares)
        )
    )
    assert "has gaps" in triton.supports(gappy, PLAIN)
    odd = replace(batch, buffers=[batch.buffers[0].T.contiguous().T], memo={})
    assert "strides" in triton.supports(odd, PLAIN)
    complex_ = replace(batch, params=[batch.params[0].cfloat()], memo={})
    assert "complex64" in triton.supports(complex_, PLAIN)
    blocks = replace(batch, buffers=[torch.zeros(3, 4, dtype=torch.int8, device=device)], memo={})
    assert "int8" in triton.supports(blocks, PLAIN)

    class Sharded(torch.Tensor):
        pass

    sharded = replace(batch, params=[batch.params[0].as_subclass(Sharded)], memo={})
    assert "Sharded" in triton.supports(sharded, PLAIN)


def test_parameters_on_the_cpu_are_not_supported():
    if INTERPRETED:
        pytest.skip("the interpreter takes them")
    batch = batch_of([(3,)], torch.float32, "cpu", PLAIN)
    assert "on cpu" in triton.supports(batch, PLAIN)


@everywhere
def test_autograd_sees_that_parameters_have_changed(device):
    batch = batch_of([(3,)], torch.float32, device, PLAIN)
    w = batch.params[0].requires_grad_()
    square = w.square().sum()
    with torch.no_grad():
        triton.step(batch, numbers(PLAIN, 1), PLAIN)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.backward()


@everywhere
def test_nothing_to_do(device):
    triton.step(Batch(), numbers(PLAIN, 1), PLAIN)
    compare(batch_of([(0,), (2, 0)], torch.float32, device, PLAIN), PLAIN)


@pytest.mark.parametrize("device", [gpu])
def test_cuda_graphs(device):
    """A captured step, replayed with new gradients in place, is the step that is not captured."""
    recipe = replace(PLAIN, constraint=BOX, weight_decay=0.1, keeps_average=True)
    batch = batch_of(SIZES, torch.float32, device, recipe)
    other = twin(batch)
    clock = torch.zeros((), dtype=torch.float64, device=device)
    schedule = schedules.AdaHB(alpha=0.3, gamma=0.5, delta=1e-3)

    def step():
        clock.add_(1.0)
        at = schedule(clock)
        triton.step(batch, Numbers(*at, at.beta1, share=1.0 / clock), recipe)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    batch.grads = [g.clone() for g in batch.grads]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for t in range(1, 6):
        if t > 1:
            graph.replay()
        at = schedule(float(t))
        eager.step(other, Numbers(*at, at.beta1, share=1.0 / t), recipe)
        assert_equal(batch, other, 1e-5)
        for g, h in zip(batch.grads, other.grads, strict=True):
            g.normal_()
            h.copy_(g)


@pytest.mark.parametrize("device", [gpu])
def test_steps_run_ahead_of_the_device(device):
    """Pointers are not overwritten while an earlier step still waits to read them."""
    batch = batch_of([(1000,)] * 50, torch.float32, device, PLAIN)
    other = twin(batch)
    grads = [[torch.randn_like(g) for g in batch.grads] for _ in range(30)]
    torch.cuda._sleep(200_000_000)
    for t, fresh in enumerate(grads, 1):
        batch.grads = fresh
        triton.step(batch, numbers(PLAIN, t), PLAIN)
    for t, fresh in enumerate(grads, 1):
        other.grads = fresh
        eager.step(other, numbers(PLAIN, t), PLAIN)
    assert_equal(batch, other, 1e-5)


@pytest.mark.parametrize("device", [gpu])
def test_a_device_that_is_not_the_current_one(device):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    compare(batch_of([(1025,)], torch.float32, "cuda:1", PLAIN), PLAIN)


@pytest.mark.slow
@pytest.mark.parametrize("device", [gpu])
def test_more_elements_than_an_int32_counts(device):
    n = 2**31 + 5
    recipe = replace(PLAIN, adaptive=False)
    tensors = [torch.zeros(n, dtype=torch.float16, device=device) for _ in range(3)]
    batch = Batch([tensors[0]], [tensors[1]], [tensors[2]])
    tensors[1][-3:] = 1.0
    triton.step(batch, numbers(recipe, 1), recipe)
    assert float(tensors[0][-3:].sum()) == pytest.approx(-0.3, rel=1e-2)
    assert float(tensors[0].sum()) == pytest.approx(-0.3, rel=1e-2)


def group_of(**options):
    return {"fused": None, "foreach": None, "differentiable": False, **options}


@pytest.mark.skipif(INTERPRETED, reason="the interpreter takes what is refused here")
@pytest.mark.parametrize("grad_scale", [None, 8.0])
def test_a_fallback_is_said_once_and_makes_the_same_update(grad_scale):
    """Called as for a GPU, with tensors that are on none."""
    batch = batch_of([(3,)], torch.float64, "cpu", PLAIN)
    other = twin(batch)
    at = numbers(PLAIN, 1)
    if grad_scale is not None:
        batch.grads = [g * grad_scale for g in batch.grads]
        at = at._replace(grad_scale=torch.tensor(grad_scale))
    kernel = dispatch._compiled(group_of(fused=True), triton, on_device=False)
    dispatch._say_once.cache_clear()
    with pytest.warns(
        UserWarning, match="falls back to operations of torch: a parameter is on cpu"
    ):
        kernel(batch, at, PLAIN)
    eager.step(other, numbers(PLAIN, 1), PLAIN)
    assert_equal(batch, other)
    kernel(batch, at, PLAIN)


@pytest.mark.parametrize("device", [gpu])
def test_the_fastest_kernel_is_chosen_on_a_gpu(device):
    batch, at = batch_of([(3,)], torch.float32, device, PLAIN), numbers(PLAIN, 1)
    for options in ({}, {"fused": True}):
        batch.memo.clear()
        dispatch.kernel(group_of(**options), batch, at)(batch, at, PLAIN)
        assert "triton plan" in batch.memo
    for options in ({"fused": False}, {"foreach": True}, {"differentiable": True}):
        batch.memo.clear()
        dispatch.kernel(group_of(**options), batch, at)(batch, at, PLAIN)
        assert "triton plan" not in batch.memo


@pytest.mark.skipif(INTERPRETED, reason="compiles")
@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        *product(["w", "clipped z", "clipped y"], ["float64", "float32", "bfloat16"]),
        *product(["int8", "bf16", "compensated", "stochastic"], ["float32", "bfloat16"]),
    ],
)
def test_compiles_for_a_gpu_that_is_not_there(form, dtype, tmp_path, monkeypatch):
    """What the interpreter lets pass the compiler may not."""
    from triton import compile as compiled
    from triton import knobs
    from triton import language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from adahb.optim.kernels import triton_update as kernel

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))
    stored = getattr(tl, dtype)
    wide = tl.float64 if dtype == "float64" else tl.float32
    narrow_states = {"int8": (tl.int8, tl.uint8), "bf16": (tl.bfloat16, tl.bfloat16)}
    fixed = dict.fromkeys("WG", stored) | dict.fromkeys("UVAT", wide)
    fixed |= dict(zip("UV", narrow_states.get(form, (wide, wide)), strict=True))
    fixed |= {"FIRST": kernel.NUMBERS, "STRIDE": kernel.ROW, "PART": kernel.PART, "BLOCK": 1024}
    fixed |= {"ROUNDING": {"compensated": 1, "stochastic": 2}.get(form, 0)}
    options = {"AVERAGING": "z" in form, "EXTRAPOLATES": "y" in form, "CLIPS": "clipped" in form}
    options |= {"OFFSET": form == "int8", "AVERAGING": form == "int8" or options["AVERAGING"]}
    pointers = {"scale": "*fp32", "step": "i32"}
    arguments = kernel.update.arg_names
    on = {name: name not in fixed for name in arguments if name.isupper()} | fixed | options
    signature = {
        name: "constexpr" if name in on else pointers.get(name, "*i64") for name in arguments
    }
    places = {(arguments.index(name),): value for name, value in on.items()}
    source = ASTSource(kernel.update, signature, constexprs=places)
    made = compiled(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False})
    assert ".v4.b32" in made.asm["ptx"] or dtype != "float32"


@everywhere
def test_places_beyond_31_bits(device):
    """A tensor of 2^31 + 1500 entries of which only the last exist: nobody may touch the others."""
    beyond = 2**31
    batch = batch_of([(1500,)], torch.float32, device, PLAIN)
    wanted = twin(batch)
    at = numbers(PLAIN, 1)
    eager.step(wanted, at, PLAIN)
    assert triton.supports(batch, PLAIN) is None
    (launch,) = batch.memo["triton plan"].launches
    table, _ = triton._table(launch, batch.grads, at, PLAIN)
    table[-1] -= 4 * beyond
    launch.fixed[0, :3] -= 4 * beyond
    launch.fixed[0, -1] += beyond
    launch.blocks += beyond // 1024
    triton._run(launch, batch.grads, at, PLAIN)
    assert_equal(batch, wanted)


@pytest.mark.gpu
@pytest.mark.skipif(INTERPRETED or not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"state_dtype": "int8"}], ids=str)
def test_parameters_of_more_than_2_to_31_entries(options):
    """The last entries move as the first do, and as they do in a small tensor."""
    from adahb.optim import AdaHB

    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < 100:
        pytest.skip(f"needs 100 GiB on the device, got {free:.0f}")
    few = torch.tensor([1.0, -0.5, 0.25], device="cuda")
    ends = []
    for size in (2**31 + 1, 700):
        w = torch.nn.Parameter(torch.zeros(size, device="cuda"))
        optimizer = AdaHB([w], lr=0.1, tick=1, nonfinite="skip", **options)
        for k in range(4):
            w.grad = torch.zeros_like(w)
            w.grad[:3] = w.grad[-3:] = few
            if k == 1:
                w.grad[-1] = torch.nan
            optimizer.step()
            w.grad = None
        assert optimizer.skipped_steps == 1
        assert int(w.detach().count_nonzero()) == 6
        ends.append((w.detach()[:3].clone(), w.detach()[-3:].clone()))
        del w, optimizer
        torch.cuda.empty_cache()
    tolerance = 0.1 if "state_dtype" in options else 1e-6  # rounded by another noise
    for found in (*ends[0], ends[1][1]):
        torch.testing.assert_close(found, ends[1][0], rtol=tolerance, atol=0)
