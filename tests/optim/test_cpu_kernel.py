"""The compiled kernel for host memory is the eager one, whatever the tensors look like."""

import copy
import gc
import itertools
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import torch

from adahb import schedules
from adahb.optim import HB, NAG, PSG, AdaHB, dispatch
from adahb.optim.kernels import cpu, eager
from adahb.optim.update import Batch, Numbers, Recipe
from adahb.sets import Box, L2Ball, LinfBall, NonNegative

SHAPES = [(0,), (), (3,), (1000,), (70_001,), (4, 0, 2), (17, 5)]
REL = {torch.float32: 1e-6, torch.float64: 1e-12}
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
)
MOVES = {
    "w": {},
    "w clipped": {"constraint": Box(-0.3, 0.2)},
    "z clipped": {"constraint": LinfBall(0.25), "averaging": True},
    "z free": {"averaging": True},
    "y": {"extrapolates": True},
    "y clipped": {"constraint": NonNegative(), "extrapolates": True},
}
DECAYS = {
    "none": {},
    "coupled": {"weight_decay": 0.1, "decoupled": False},
    "decoupled": {"weight_decay": 0.1},
}


def recipe(**choices):
    return Recipe(**{**vars(PLAIN), **choices})


def numbers(k):
    """Coefficients in which nothing is zero or one, so that each of them is seen."""
    at, after = schedules.AdaHB(alpha=0.05, tick=3)(k), schedules.AdaHB(alpha=0.05, tick=3)(k + 1)
    return Numbers(*at[:4], *at[4:6], beta1_next=after.beta1, share=1 / (k + 1))


def made(shapes, dtype, wanted, seed=0):
    """A batch in the state of a run that has begun."""
    torch.manual_seed(seed)
    params = [torch.randn(shape, dtype=dtype) * 0.2 for shape in shapes]
    return Batch(
        params=params,
        grads=[torch.randn_like(p) for p in params],
        buffers=[p.clone() if wanted.averaging else torch.randn_like(p) * 0.01 for p in params],
        squares=[torch.rand_like(p) for p in params] if wanted.adaptive else [],
        averages=[torch.randn_like(p) for p in params] if wanted.keeps_average else [],
    )


def cloned(batch):
    return Batch(*([t.detach().clone() for t in tensors] for tensors in columns(batch)))


def columns(batch):
    return batch.params, batch.grads, batch.buffers, batch.squares, batch.averages


def walk(kernel, batch, wanted, steps, scale=1.0):
    """Steps towards the first gradients, which draw the parameters out of every set."""
    goals = [g.clone() for g in batch.grads]
    for k in range(1, steps + 1):
        batch.grads = [scale * (p - b) for p, b in zip(batch.params, goals, strict=True)]
        kernel(batch, numbers(k), wanted)


def assert_same(one, other, rel=0.0):
    """Equal up to ``rel`` of the largest parameter, whose rounding is in the buffers too."""
    scale = max((float(p.abs().max()) for p in other.params if p.numel()), default=0.0)
    for mine, theirs in zip(columns(one), columns(other), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=rel, atol=rel * scale)


@pytest.fixture
def threads():
    """Set the number of torch's threads, for the length of a test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# ---------------------------------------------------------------- equal to eager


@pytest.mark.parametrize("dtype", REL, ids=str)
@pytest.mark.parametrize(
    ("move", "decay", "adaptive", "averages", "maximize"),
    [*itertools.product(MOVES, DECAYS, (True, False), (True, False), (True, False))],
)
def test_every_option_does_what_eager_does(dtype, move, decay, adaptive, averages, maximize):
    wanted = recipe(
        **MOVES[move],
        **DECAYS[decay],
        adaptive=adaptive,
        keeps_average=averages,
        maximize=maximize,
    )
    batch = made(SHAPES, dtype, wanted)
    expected = cloned(batch)
    assert cpu.supports(batch, wanted) is None
    for kernel, one in ((cpu.step, batch), (eager.step, expected)):
        walk(kernel, one, wanted, 4, scale=-1.0 if maximize else 1.0)
    assert_same(batch, expected, REL[dtype])


@pytest.mark.parametrize("dtype", REL, ids=str)
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("adaptive", [True, False])
def test_a_thousand_steps_do_not_part_them(dtype, move, adaptive):
    wanted = recipe(**MOVES[move], **DECAYS["decoupled"], adaptive=adaptive, keeps_average=True)
    batch = made([(), (1000,)], dtype, wanted)
    expected = cloned(batch)
    walk(cpu.step, batch, wanted, 1000)
    walk(eager.step, expected, wanted, 1000)
    assert_same(batch, expected, REL[dtype])


@pytest.mark.parametrize("size", [0, 1, 3, 15, 1000, 70_001])
@pytest.mark.parametrize("dtype", REL, ids=str)
def test_one_tensor_of_any_size(size, dtype):
    batch = made([(size,)], dtype, PLAIN)
    expected = cloned(batch)
    cpu.step(batch, numbers(3), PLAIN)
    eager.step(expected, numbers(3), PLAIN)
    assert_same(batch, expected, REL[dtype])


@pytest.mark.parametrize("shapes", [[], [()], [(0,)], [(0,), (0, 3)]])
def test_batches_with_little_in_them(shapes):
    batch = made(shapes, torch.float32, PLAIN)
    expected = cloned(batch)
    assert cpu.supports(batch, PLAIN) is None
    cpu.step(batch, numbers(1), PLAIN)
    eager.step(expected, numbers(1), PLAIN)
    assert_same(batch, expected, 1e-6)


def test_many_tensors_in_one_batch_shared_by_threads(threads):
    threads(3)
    shapes = [(n % 400,) for n in range(3000)]
    wanted = recipe(keeps_average=True)
    batch = made(shapes, torch.float32, wanted)
    expected = cloned(batch)
    walk(cpu.step, batch, wanted, 3)
    walk(eager.step, expected, wanted, 3)
    assert_same(batch, expected, 1e-6)


def test_bounds_and_coefficients_beyond_float32_are_infinite_there():
    wanted = recipe(constraint=Box(-1e300, 1e300))
    batch = made([(9,)], torch.float32, wanted)
    expected = cloned(batch)
    cpu.step(batch, numbers(1), wanted)
    eager.step(expected, numbers(1), PLAIN)
    assert_same(batch, expected, 1e-6)


def test_nan_stays_visible_where_values_are_clipped():
    wanted = recipe(constraint=LinfBall(0.1))
    batch = made([(40,)], torch.float32, wanted)
    batch.grads[0][7] = torch.nan
    cpu.step(batch, numbers(1), wanted)
    assert batch.params[0].isnan().nonzero().tolist() == [[7]]


# ---------------------------------------------------------------- layouts


def laid_out(batch, change):
    """The same numbers, parameters and states in the layout that ``change`` gives a tensor."""
    for tensors in (batch.params, batch.buffers, batch.squares, batch.averages):
        tensors[:] = [change(t) for t in tensors]
    return batch


LAYOUTS = {
    "channels last": lambda t: t.to(memory_format=torch.channels_last),
    "transposed": lambda t: t.transpose(0, 3).contiguous().transpose(0, 3),
    "permuted": lambda t: t.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2),
}
GRADIENTS = {
    "contiguous": torch.Tensor.contiguous,
    "expanded": lambda g: g[:, :1].expand(g.shape),
    "sliced": lambda g: torch.stack([g, g], dim=-1)[..., 0],
    "negated": lambda g: torch.complex(g, g).conj().imag,
}


@pytest.mark.parametrize("layout", [*LAYOUTS, "contiguous"])
@pytest.mark.parametrize("gradient", ["alike", *GRADIENTS])
@pytest.mark.parametrize("shape", [(6, 5, 3, 2), (6, 1, 3, 1), (2, 0, 3, 4), (1, 1, 1, 1)])
def test_any_dense_layout_with_any_gradient(layout, gradient, shape):
    change = LAYOUTS.get(layout, torch.Tensor.contiguous)
    wanted = recipe(constraint=Box(-0.3, 0.2), averaging=True)
    batch = laid_out(made([shape], torch.float32, wanted), change)
    batch.grads = [GRADIENTS.get(gradient, change)(batch.grads[0].contiguous())]
    expected = cloned(batch)
    before, strides = batch.grads[0].clone(), batch.params[0].stride()
    assert cpu.supports(batch, wanted) is None
    cpu.step(batch, numbers(2), wanted)
    eager.step(expected, numbers(2), wanted)
    assert_same(batch, expected, 1e-6)
    assert torch.equal(batch.grads[0], before)
    assert batch.params[0].stride() == strides


@pytest.mark.parametrize("choices", [{}, {"maximize": True}, DECAYS["coupled"]])
def test_gradients_are_read_only(choices):
    wanted = recipe(**choices)
    batch = made(SHAPES, torch.float32, wanted)
    held, before = list(batch.grads), [g.clone() for g in batch.grads]
    cpu.step(batch, numbers(1), wanted)
    for mine, now, then in zip(batch.grads, held, before, strict=True):
        assert mine is now
        assert torch.equal(now, then)


def test_views_into_one_flat_parameter_change_nothing_else():
    flat = torch.ones(64)
    params = [flat[3:10], flat[20:40].view(4, 5)]
    batch = Batch(
        params=params,
        grads=[torch.ones_like(p) for p in params],
        buffers=[torch.zeros_like(p) for p in params],
        squares=[torch.zeros_like(p) for p in params],
    )
    assert cpu.supports(batch, PLAIN) is None
    cpu.step(batch, numbers(1), PLAIN)
    changed = torch.zeros(64, dtype=torch.bool)
    changed[3:10] = changed[20:40] = True
    assert torch.equal(flat != 1, changed)


def test_autograd_notices_that_the_parameters_changed():
    w = torch.nn.Parameter(torch.ones(5))
    loss = (w**2).sum()
    w.grad = torch.ones(5)
    AdaHB([w], fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("wanted", [PLAIN, recipe(keeps_average=True, **MOVES["z clipped"])])
def test_the_number_of_threads_does_not_show(threads, wanted):
    results = []
    for count in (1, 2, 3, 7):
        threads(count)
        batch = made([(300_007,), (5,), (2, 123_457), (0,)], torch.float32, wanted)
        walk(cpu.step, batch, wanted, 3)
        results.append(batch)
    for other in results[1:]:
        assert_same(other, results[0])


def test_two_optimizers_step_in_two_threads(threads):
    threads(2)

    def run(seed):
        torch.manual_seed(seed)
        w = torch.nn.Parameter(torch.randn(400_000))
        optimizer = AdaHB([w], lr=0.1, tick=1, fused=True)
        for _ in range(20):
            w.grad = w.detach() - seed
            optimizer.step()
        return w.detach()

    alone = [run(seed) for seed in range(2)]
    together = [None, None]

    def keep(seed):
        together[seed] = run(seed)

    workers = [threading.Thread(target=keep, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other)


FORKED = """
import os, sys, torch
from adahb.optim import AdaHB
torch.set_num_threads(2)
w = torch.nn.Parameter(torch.ones(600_000))
w.grad = torch.ones_like(w)
optimizer = AdaHB([w], fused=True)
optimizer.step()
child = os.fork()
optimizer.step()
if child == 0:
    os._exit(int(not (w.detach().numpy() < 1).all()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="does not fork")
def test_a_forked_process_can_step():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)


# ---------------------------------------------------------------- which kernel is taken


class Named(torch.Tensor):
    pass


def with_params(change):
    batch = made([(4, 6)], torch.float32, PLAIN)
    batch.params = [change(p) for p in batch.params]
    return batch


UNSUPPORTED = {
    "L2Ball": (made([(3,)], torch.float32, PLAIN), recipe(constraint=L2Ball(1.0))),
    "same numbers": (made([(2,)], torch.float32, PLAIN), recipe(constraint=Box([0, 1], 2))),
    "torch.bfloat16": (made([(3,)], torch.bfloat16, PLAIN), PLAIN),
    "torch.complex64": (with_params(lambda p: p.to(torch.complex64)), PLAIN),
    "a Named, not a plain": (with_params(lambda p: p.as_subclass(Named)), PLAIN),
    "not in host memory": (with_params(lambda p: p.to("meta")), PLAIN),
    "not strided": (with_params(torch.Tensor.to_sparse), PLAIN),
    "gradient has another dtype": (with_params(torch.Tensor.double), PLAIN),
    "another shape": (with_params(lambda p: p.reshape(6, 4)), PLAIN),
    "is not dense": (with_params(lambda p: torch.cat([p, p], 1)[:, ::2]), PLAIN),
    "strides (6, 1) and its": (with_params(lambda p: p.T.contiguous().T), PLAIN),
    "negates": (with_params(lambda p: torch.complex(p, p).conj().imag), PLAIN),
}


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_what_it_cannot_do_it_says(reason):
    assert reason in cpu.supports(*UNSUPPORTED[reason])


def test_without_compiler_it_stands_back(monkeypatch):
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert "NUMBA_DISABLE_JIT" in cpu.supports(made([(3,)], torch.float32, PLAIN), PLAIN)


@pytest.fixture
def compiled_steps(monkeypatch):
    """The batches that the compiled kernel has been given."""
    seen = []

    def step(batch, at, wanted):
        seen.append(batch)
        return original(batch, at, wanted)

    original = cpu.step
    monkeypatch.setattr(cpu, "step", step)
    return seen


def stepped(cls, sizes, dtype=torch.float32, steps=1, **options):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(size).to(dtype) * 0.1) for size in sizes]
    optimizer = cls(params, **options)
    for _ in range(steps):
        for p in params:
            p.grad = (2 * p.detach() - 1).to(dtype)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize(
    ("sizes", "options", "taken"),
    [
        ([400_000], {}, True),
        ([100] * 30, {}, True),
        ([1000], {}, False),
        ([1000], {"fused": True}, True),
        ([400_000], {"fused": False}, False),
        ([400_000], {"foreach": False}, False),
        ([400_000], {"foreach": True}, False),
        ([400_000], {"capturable": True}, False),
        ([400_000], {"constraint": L2Ball(1e3)}, False),
        ([400_000], {"dtype": torch.bfloat16}, False),
    ],
    ids=str,
)
def test_when_it_is_taken(compiled_steps, sizes, options, taken):
    stepped(AdaHB, sizes, **options)
    assert bool(compiled_steps) is taken


def test_what_autograd_follows_is_left_to_eager():
    batch = made([(400_000,)], torch.float32, PLAIN)
    group = {"fused": None, "foreach": None, "differentiable": True}
    assert dispatch._unfused(group, batch, False) is eager.step
    dispatch.kernel(group, batch, numbers(1))(batch, numbers(1), PLAIN)
    assert "compiled" not in repr(batch.memo)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"constraint": L2Ball(1e3)}, "L2Ball"),
        ({"dtype": torch.bfloat16}, "bfloat16"),
        ({"capturable": True}, "capturable"),
    ],
)
def test_what_was_asked_for_and_is_not_done_is_said_once(compiled_steps, options, reason):
    dispatch._say_once.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = stepped(AdaHB, [30], steps=3, fused=True, **options)
    assert [reason in str(w.message) and "fused=True" in str(w.message) for w in said] == [True]
    assert not compiled_steps
    for one, other in zip(found, stepped(AdaHB, [30], steps=3, **options), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (AdaHB, {}),
        (AdaHB, {"constraint": Box(-0.05, 0.2)}),
        (AdaHB, {"constraint": Box(-0.05, 0.2), "form": "paper", "weight_decay": 0.1}),
        (AdaHB, {"momentum": 0.9}),
        (HB, {"constraint": LinfBall(0.2)}),
        (HB, {"momentum": 0.9, "maximize": True}),
        (NAG, {"constraint": NonNegative()}),
        (PSG, {"constraint": Box(-0.05, 0.2)}),
    ],
    ids=lambda x: str(getattr(x, "__name__", x)),
)
@pytest.mark.filterwarnings("ignore:a parameter of shape")
def test_optimizers_arrive_where_eager_ones_do(compiled_steps, cls, options):
    fused = stepped(cls, [7, 300], steps=30, tick=1, fused=True, **options)
    assert len(compiled_steps) == 30
    other = stepped(cls, [7, 300], steps=30, tick=1, fused=False, foreach=False, **options)
    for one, two in zip(fused, other, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


def test_a_run_may_change_its_kernel():
    w = torch.nn.Parameter(torch.linspace(-1, 1, 50))
    optimizer = AdaHB([w], tick=1, fused=True)
    other = copy.deepcopy(optimizer)
    for k in range(6):
        for one, fused in ((optimizer, True), (other, k % 2 == 0)):
            group = one.param_groups[0]
            group["fused"] = fused
            group["params"][0].grad = group["params"][0].detach().sin()
            one.step()
    torch.testing.assert_close(w, other.param_groups[0]["params"][0], rtol=1e-6, atol=1e-7)


def test_importing_the_optimizers_does_not_import_numba():
    code = "import sys, adahb.optim; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_array_of_the_size_of_the_parameters_is_allocated():
    batch = made([(1_000_000,)], torch.float32, PLAIN)
    cpu.step(batch, numbers(1), PLAIN)
    gc.collect()
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        cpu.step(batch, numbers(2), PLAIN)
    allocated = [e.self_cpu_memory_usage for e in profile.events()]
    assert max(allocated, default=0) < 4 * 1_000_000 // 100
    assert np.isfinite(float(batch.params[0].sum()))


# ---------------------------------------------------------------- large tensors


@pytest.mark.parametrize("move", ["w", "z", "y"])
@pytest.mark.parametrize("averaged", [True, False])
def test_places_beyond_31_bits(move, averaged):
    """A tensor of more than 2^31 entries of which only the last exist: the loop is exact there."""
    from adahb.optim.kernels import cpu_loops

    beyond, count = 2**31 + 1, 70_001  # more than what it asks the memory for in advance
    choices = {"averaging": move == "z", "extrapolates": move == "y", "keeps_average": averaged}
    wanted = recipe(**choices)
    batch = made([(count,)], torch.float32, wanted)
    expected = cloned(batch)
    cpu.step(expected, numbers(1), wanted)
    tensors = [batch.params, batch.grads, batch.buffers, batch.squares, batch.averages]
    at = [t[0].data_ptr() - 4 * beyond if t else 0 for t in tensors]
    table = np.array(at, dtype=np.int64).reshape(5, 1)
    given = [*cpu._numbers(numbers(1), wanted), -np.inf, np.inf, wanted.largest(torch.float32)]
    run = cpu_loops.compiled(move, True, False, averaged)
    ends = np.array([beyond + count], dtype=np.int64)
    run(table, ends, beyond, beyond + count, np.array(given, dtype=np.float32), -np.inf, np.inf)
    assert_same(batch, expected)


def test_large_work_is_shared_out_without_gaps(threads):
    threads(3)
    done = []
    cpu._share_out(lambda start, stop: done.append((start, stop)), 2**31 + 1)
    done.sort()
    assert (done[0][0], done[-1][1]) == (0, 2**31 + 1)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(done))
