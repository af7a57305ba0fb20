"""What must hold where parameters are spread over ranks; all make each check together."""

import itertools
import warnings
from functools import cache

import pytest
import torch
import torch.distributed as dist
from sets.samples import every_set
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from adahb import sets
from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets.sharded import sharded

CHECKS = []
BOTH = (2, 4)


def on(*worlds):
    """Mark a check, and say on how many ranks it is made."""

    def mark(check):
        check.worlds = worlds
        CHECKS.append(check)
        return check

    return mark


# ---------------------------------------------------------------- meshes and models


@cache
def line():
    return init_device_mesh("cpu", (dist.get_world_size(),))


@cache
def square(*names):
    return init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=names or None)


@cache
def alone():
    """A mesh of this rank only: a world of size one."""
    return init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("other", "own"))[
        "own"
    ]


def spread(x, mesh, placements):
    return distribute_tensor(x, mesh, placements, src_data_rank=None)


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def close(found, expected, atol=1e-6, what=None):
    found, expected = whole(found).detach(), expected.detach()
    torch.testing.assert_close(
        found, expected, rtol=0, atol=atol, msg=what and f"{what}: {{}}".format
    )


def network(hidden=7):
    """Of sizes that no number of ranks divides, but tensor parallelism wants those inside even."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, 3))


def tower():
    """A layer for each of the constraints."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 3)
    )


def batch():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(16, 6, generator=generator), torch.randn(16, 3, generator=generator)


def parts(mesh):
    """Of the batch, what the rank of this mesh learns from."""
    return [x.chunk(mesh.size())[mesh.get_local_rank()] for x in batch()]


def quietly(kind, *args, **options):
    """An optimizer; the parameters that it is given may start outside of the constraint."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a parameter of shape", UserWarning)
        return kind(*args, **options)


def optimizer_of(model, kind=AdaHB, constraint=None, **options):
    """The constraint is for the weights."""
    weights = [p for p in model.parameters() if p.ndim == 2]
    biases = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": weights, "constraint": constraint}, {"params": biases}]
    return quietly(kind, groups, **{"lr": 0.05, "tick": 10, **options})


def train(model, optimizer, data, steps, clip=None):
    x, y = data
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def same_weights(model, other, atol=1e-6):
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        close(p, q, atol)


def fully_sharded(model, mesh):
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


CONSTRAINTS = {
    "none": None,
    "l1": sets.L1Ball(2.0),
    "l2": sets.L2Ball(0.9),
    "simplex": sets.Simplex(1.5),
}
ROWS = {
    "l1 rows": sets.L1Ball(0.5, dim=1),
    "l1 columns": sets.L1Ball(0.5, dim=0),
    "l2 rows": sets.L2Ball(0.4, dim=1),
    "l2 columns": sets.L2Ball(0.4, dim=0),
    "simplex columns": sets.Simplex(0.7, dim=0),
    "groups": sets.GroupL1Ball(1.5, dim=1),
}


# ---------------------------------------------------------------- projections


def placements():
    """Meshes and what may be done on them: even, uneven and empty shards, of one axis or two."""
    ways = [(line(), [p]) for p in (Shard(0), Shard(1), Replicate())]
    if dist.get_world_size() == 4:
        pairs = [
            [Shard(0), Shard(1)],
            [Shard(0), Shard(0)],
            [Replicate(), Shard(0)],
            [Shard(1), Replicate()],
            [_StridedShard(0, split_factor=2), Shard(0)],
        ]
        ways += [(square(), pair) for pair in pairs]
    return ways


@on(*BOTH)
def projections_are_those_of_one_process(folder):
    shape = (3, 4)
    scales = itertools.cycle((1.0, 0.05, 1e8, 1e-8))
    for seed, ((mesh, way), scale) in enumerate(zip(placements(), scales, strict=False)):
        generator = torch.Generator().manual_seed(seed)
        x = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        h = 10.0 ** (8 * torch.rand(shape, generator=generator, dtype=torch.float64) - 4)
        for name, q in every_set(shape, seed).items():
            for metric in (None, h) if len(way) == 1 else (h,):
                if name in ("affine", "nuclear"):
                    continue
                expected, size = q.project(x, metric), float(x.abs().max())
                found = projected(q, x, metric, mesh, way)
                close(found, expected, 1e-12 * max(size, float(expected.abs().max())), name)
                over_mesh = sharded(q, found) or q
                assert over_mesh.contains(found.to_local())
                assert over_mesh.contains(spread(x, mesh, way).to_local()) == q.contains(x)


def projected(q, x, metric, mesh, way):
    """Its projection, every rank knowing no more than its part of x and of the metric."""
    shard = spread(x, mesh, way)
    by = None if metric is None else spread(metric, mesh, way).to_local()
    part = (sharded(q, shard) or q).project(shard.to_local(), by)
    return DTensor.from_local(part, mesh, way, shape=x.shape, stride=x.stride())


@on(*BOTH)
def large_projections_are_those_of_one_process(folder):
    """Many steps of Newton's method, and a metric over many powers of ten."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5000, generator=rng, dtype=torch.float64) ** 3
    h = 10.0 ** (12 * torch.rand(5000, generator=rng, dtype=torch.float64) - 6)
    for share in (1e-9, 1e-3, 0.5, 0.999):
        for q in (
            sets.L1Ball(share * float(x.abs().sum())),
            sets.L2Ball(share * float(x.norm())),
            sets.Simplex(share * float(x.abs().sum())),
        ):
            for metric in (None, h):
                found = projected(q, x, metric, line(), [Shard(0)])
                close(found, q.project(x, metric), 1e-12 * float(x.abs().max()))


@on(2)
def sets_that_are_constant_on_groups_and_matrices_in_a_batch(folder):
    x = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(1.0, 5.0, dtype=torch.float64)[:, None].expand(3, 4, 5)
    for q, metric in ((sets.NuclearBall(1.2), None), (sets.GroupL1Ball(1.2, dim=-1), rows)):
        found = projected(q, x, metric, line(), [Shard(0)])
        close(found, q.project(x, metric), 1e-12)
        assert sharded(q, found).contains(found.to_local())


@on(2)
def what_needs_an_axis_whole_is_refused_by_name(folder):
    matrix = nn.Parameter(spread(torch.zeros(4, 2), line(), [Shard(0)]))
    for q in (sets.NuclearBall(1.0), sets.Affine(torch.ones(1, 8), [0.0])):
        with pytest.raises(
            ValueError, match=f"constraint={type(q).__name__}.*sharded along axis 0"
        ):
            AdaHB([matrix], constraint=q, projection="euclidean")
    with pytest.raises(ValueError, match="state_dtype must be None or 'bf16' for DTensors"):
        AdaHB([matrix], state_dtype="int8")
    with pytest.raises(ValueError, match="differentiable=True must go without"):
        AdaHB([matrix], differentiable=True)
    optimizer = AdaHB([matrix])
    matrix.grad = torch.ones_like(matrix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.compiler.is_compiling", lambda: True)
        with pytest.raises(RuntimeError, match="must be given the step of plain parameters"):
            optimizer.step()
    replicated = nn.Parameter(spread(torch.ones(4, 2), line(), [Replicate()]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        AdaHB([replicated], constraint=sets.NuclearBall(1.0), projection="euclidean")
    close(torch.linalg.svdvals(replicated.to_local()).sum(), torch.tensor(1.0))


@on(2)
def numbers_that_are_not_finite_are_refused_on_every_rank(folder):
    w = nn.Parameter(spread(torch.zeros(4), line(), [Shard(0)]))
    optimizer = AdaHB([w], constraint=sets.L2Ball(1.0))
    w.grad = spread(torch.tensor([torch.nan, 0, 0, 0]), line(), [Shard(0)])
    with pytest.raises(ValueError, match="finite"):
        optimizer.step()


@on(2, 4)
def ranks_decide_alike_what_to_leave_out(folder):
    """Only the last rank's shard holds the NaN, and only the last axis of the mesh knows it."""
    meshes = [(line(), [Shard(0)])]
    if dist.get_world_size() == 4:
        meshes.append((square(), [Replicate(), Shard(0)]))
    for mesh, way in meshes:
        start, bad = torch.zeros(8, 2), torch.zeros(8, 2)
        bad[7, 1] = torch.nan
        for how, error in (("skip", None), ("raise", FloatingPointError)):
            w = nn.Parameter(spread(start, mesh, way))
            plain = nn.Parameter(torch.zeros(3))
            optimizer = AdaHB([plain, w], nonfinite=how)
            for gradient in (torch.ones(8, 2), bad, torch.ones(8, 2)):
                w.grad, plain.grad = spread(gradient, mesh, way), torch.ones(3)
                if gradient is bad and error:
                    with pytest.raises(error, match=r"1 NaN|a gradient on another rank"):
                        optimizer.step()
                else:
                    optimizer.step()
            assert optimizer.skipped_steps == (how == "skip")
            assert int(optimizer.state[w]["clock"]) == int(optimizer.state[plain]["clock"]) == 2
            assert whole(w).isfinite().all()


@on(2)
def only_few_numbers_travel(folder):
    """Nothing is gathered, and where every row is whole on its rank nothing is said at all."""
    from torch.distributed.tensor.debug import CommDebugMode

    told = []

    def watched(x, *args):
        told.append(x.numel())
        return dist.all_reduce(x, *args)

    start, rows = (
        torch.randn(50, 40) / 500,
        {sets.L2Ball(1.0, dim=0): 40, sets.GroupL1Ball(1, 1): 2},
    )
    small = {q: 2 for q in CONSTRAINTS.values() if q is not None}
    for constraint, most in (small | rows | {sets.L2Ball(0.1, dim=1): 0}).items():
        w = nn.Parameter(spread(start, line(), [Shard(0)]))
        optimizer = quietly(AdaHB, [w], constraint=constraint)
        w.grad = torch.ones_like(w)
        optimizer.step()  # the first one looks whether w starts inside
        for _ in range(2):
            with pytest.MonkeyPatch.context() as patch, CommDebugMode() as messages:
                patch.setattr("adahb.sets.sharded.dist", _Watched(watched))
                optimizer.step()
            assert max(told, default=0) <= 2 * most, constraint
            assert messages.get_total_counts() == len(told)
            assert bool(told) == bool(most)
            told.clear()


class _Watched:
    """The module `torch.distributed` with one function replaced."""

    def __init__(self, all_reduce):
        self.all_reduce = all_reduce

    def __getattr__(self, name):
        return getattr(dist, name)


# ---------------------------------------------------------------- runs


def compared(mesh, wrap=fully_sharded, kind=AdaHB, constraint=None, steps=20, clip=None, **options):
    """Train a model on a mesh and in one process; return both models and both optimizers."""
    alone, model = network(), wrap(network(), mesh)
    runs = []
    for one, data in ((alone, batch()), (model, parts(mesh))):
        optimizer = optimizer_of(one, kind, constraint, **options)
        train(one, optimizer, data, steps, clip)
        runs.append(optimizer)
    same_weights(model, alone)
    return model, alone, *reversed(runs)


@on(2, 4)
def fsdp_is_one_process(folder):
    """On 4 ranks, on 2, and on a mesh of one: each layer has a constraint of its own."""
    meshes = [line()] if dist.get_world_size() == 4 else [line(), alone()]
    for mesh in meshes:
        models = [tower(), fully_sharded(tower(), mesh)]
        for model, data in zip(models, (batch(), parts(mesh)), strict=True):
            weights = [p for p in model.parameters() if p.ndim == 2]
            groups = [
                {"params": [p], "constraint": q}
                for p, q in zip(weights, CONSTRAINTS.values(), strict=True)
            ]
            groups.append({"params": [p for p in model.parameters() if p.ndim == 1]})
            train(model, quietly(AdaHB, groups, lr=0.05, tick=10), data, 100)
        same_weights(*reversed(models))
        for p, q in zip(weights, CONSTRAINTS.values(), strict=True):
            assert q is None or q.contains(whole(p).detach())


@on(2)
def every_method_every_row_and_every_average(folder):
    mesh = line()
    cases = [
        (AdaHB, "l1 rows", {"projection": "euclidean", "form": "paper"}),
        (AdaHB, "groups", {"momentum": 0.9, "weight_decay": 0.1}),
        (HB, "l1 columns", {"form": "paper"}),
        (NAG, "l2 rows", {}),
        (PSG, "simplex columns", {}),
    ]
    for kind, name, options in cases:
        model, other, optimizer, single = compared(mesh, fully_sharded, kind, ROWS[name], **options)
        with optimizer.averaged_parameters(), single.averaged_parameters():
            same_weights(model, other)
        same_weights(model, other)


@on(2)
def what_is_evaluated_is_the_average_and_then_training_goes_on(folder):
    """FSDP keeps what it has gathered for the root, so it must be told when weights change."""
    model = fully_sharded(network(), line())
    optimizer = optimizer_of(model, constraint=sets.L2Ball(0.9), momentum=0.9)
    train(model, optimizer, parts(line()), 10)
    x, _ = batch()
    with torch.no_grad():
        before = model(x)
        model.reshard()
        with optimizer.averaged_parameters():
            average = network()
            for p, q in zip(average.parameters(), model.parameters(), strict=True):
                p.copy_(whole(q))
            averaged = model(x)
            close(averaged, average(x))
            assert not torch.allclose(averaged, before)
            model.reshard()
        close(model(x), before, 0.0)


@on(4)
def meshes_of_two_dimensions(folder):
    """Replicas of shards; and shards of shards, by FSDP over tensor parallelism."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    def hybrid(model, mesh):
        fully_shard(model, mesh=mesh)
        return model

    def both(model, mesh):
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return fully_sharded(model, mesh["dp"])

    def trained(wrap, mesh, data, constraint):
        one, model = network(8), wrap(network(8), mesh)
        for m, d in ((one, batch()), (model, data)):
            train(m, optimizer_of(m, constraint=constraint), d, 10)
        same_weights(model, one)
        return model

    mesh = square("dp", "tp")
    trained(hybrid, mesh, [x.chunk(4)[dist.get_rank()] for x in batch()], sets.L2Ball(0.9))
    for constraint in (sets.L1Ball(1.5), ROWS["l2 rows"]):
        model = trained(both, mesh, parts(mesh["dp"]), constraint)
    assert any(isinstance(q, _StridedShard) for q in model[0].weight.placements)


@on(2)
def tensor_parallelism_is_one_process(folder):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    for constraint in (sets.L1Ball(1.5), ROWS["l2 rows"], ROWS["simplex columns"]):
        one = network(8)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        model = parallelize_module(network(8), line(), plan)
        for m in (one, model):
            train(m, optimizer_of(m, constraint=constraint), batch(), 20)
        same_weights(model, one)


@on(2)
def ddp_is_one_process(folder):
    def wrap(model, mesh):
        return nn.parallel.DistributedDataParallel(model)

    compared(line(), wrap, constraint=sets.L1Ball(1.5), steps=50)


@on(2)
def zero_redundancy_is_one_process(folder):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def zero(params, kind, **options):
        params = list(params)
        return ZeroRedundancyOptimizer(params, optimizer_class=kind, **options)

    options = {"lr": 0.05, "tick": 10, "constraint": sets.L2Ball(2.0)}
    assert all(options["constraint"].contains(p.detach()) for p in network().parameters())
    one, model = network(), nn.parallel.DistributedDataParallel(network())
    single = quietly(AdaHB, one.parameters(), **options)
    optimizer = quietly(zero, model.parameters(), AdaHB, **options)
    train(one, single, batch(), 10)
    train(model, optimizer, parts(line()), 10)
    same_weights(model, one)
    kept = sum(len(state) > 0 for state in optimizer.optim.state.values())
    assert 0 < kept < 4
    for to in range(2):
        optimizer.consolidate_state_dict(to=to)
        if dist.get_rank() == to:
            saved = optimizer.state_dict()
    resumed = quietly(zero, model.parameters(), AdaHB, **options)
    resumed.load_state_dict(saved)
    train(one, single, batch(), 10)
    train(model, resumed, parts(line()), 10)
    same_weights(model, one)


@on(2)
def clipping_is_of_the_norm_of_all(folder):
    compared(line(), constraint=sets.L2Ball(0.9), clip=0.1)


@on(2)
def every_kernel_moves_what_is_here(folder):
    from adahb.optim.kernels import eager, triton

    box = sets.LinfBall(0.3)
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        compared(line(), constraint=box, **options)
    try:
        import triton as _
    except ImportError:
        return
    models = []
    for kernel in (triton, eager):
        model, _, optimizer, _ = compared(line(), constraint=box)
        (model(parts(line())[0])).square().sum().backward()
        for group in optimizer.param_groups:
            plan = optimizer._new_plan(group)
            for made, recipe, _ in plan.batches:
                kernel.step(made, plan.numbers(0, 0.05, 21), recipe)
        models.append(model)
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        close(p, whole(q))


@on(2)
def half_precision_and_narrow_states(folder):
    one, model = network().bfloat16(), fully_sharded(network().bfloat16(), line())
    for m in (one, model):
        optimizer = optimizer_of(m, constraint=sets.L2Ball(0.9))
        for p in m.parameters():
            p.grad = torch.ones_like(p)
        for _ in range(20):
            optimizer.step()
    same_weights(model, one, 0.0)
    model = fully_sharded(network(), line())
    optimizer = optimizer_of(model, constraint=sets.L2Ball(0.9), state_dtype="bf16")
    train(model, optimizer, parts(line()), 20)
    assert optimizer.state[model[0].weight]["v"].dtype is torch.bfloat16
    assert sets.L2Ball(0.9).contains(whole(model[0].weight).detach())


@on(2)
def states_are_spread_like_their_parameters(folder):
    model, one, optimizer, single = compared(line(), constraint=sets.L1Ball(2.0))
    for p, state in optimizer.state.items():
        for name, tensor in state.items():
            if name != "clock":
                assert isinstance(tensor, DTensor)
                assert (tensor.placements, tensor.device_mesh) == (p.placements, p.device_mesh)
    onto_mesh = optimizer_of(model, constraint=sets.L1Ball(2.0))
    onto_mesh.load_state_dict(single.state_dict())
    onto_one = optimizer_of(one, constraint=sets.L1Ball(2.0))
    onto_one.load_state_dict(optimizer.state_dict())
    train(model, onto_mesh, parts(line()), 5)
    train(one, onto_one, batch(), 5)
    same_weights(model, one)


@on(2)
def a_scaled_step_is_skipped_by_all_or_none(folder):
    model = fully_sharded(network(), line())
    optimizer = optimizer_of(model, constraint=sets.L2Ball(0.9))
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for bad in (False, True, False):
        optimizer.zero_grad()
        x, y = parts(line())
        scaler.scale((model(x) - y).square().mean()).backward()
        if bad and dist.get_rank() == 0:
            model[0].weight.grad.to_local()[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
    assert int(optimizer.state[model[0].weight]["clock"]) == 2
    assert scaler.get_scale() == 8.0


@on(4, 2)
def a_checkpoint_of_four_ranks_goes_on_on_two(folder):
    """Ten steps here; ten more on as many ranks, and on half of them, are twenty in one process."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    for name, constraint in (("l1", sets.L1Ball(2.0)), ("plain", None)):
        model = fully_sharded(network(), line())
        optimizer = optimizer_of(model, constraint=constraint)
        place = folder / f"checkpoint {name}"
        if dist.get_world_size() == 4:
            train(model, optimizer, parts(line()), 10)
            weights, states = get_state_dict(model, optimizer)
            checkpoint.save({"model": weights, "optimizer": states}, checkpoint_id=place)
            continue
        weights, states = get_state_dict(model, optimizer)
        saved = {"model": weights, "optimizer": states}
        checkpoint.load(saved, checkpoint_id=place)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=saved["model"],
            optim_state_dict=saved["optimizer"],
        )
        one = network()
        single = optimizer_of(one, constraint=constraint)
        train(one, single, batch(), 10)
        same_weights(model, one)
        train(model, optimizer, parts(line()), 10)
        train(one, single, batch(), 10)
        same_weights(model, one)
