"""What must hold where parameters are spread over ranks; each check is made by all ranks at once."""

import itertools
import re
import warnings
from contextlib import contextmanager
from functools import cache

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
    return init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("other", "own"))["own"]


def spread(x, mesh, placements):
    return distribute_tensor(x, mesh, placements, src_data_rank=None)


def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def close(found, expected, atol=1e-6, what=None):
    found, expected = whole(found).detach(), expected.detach()
    torch.testing.assert_close(found, expected, rtol=0, atol=atol, msg=what and f"{what}: {{}}".format)


@contextmanager
def raises(kind, pattern):
    try:
        yield
    except kind as error:
        assert re.search(pattern, str(error)), str(error)
    else:
        raise AssertionError(f"no {kind.__name__} about {pattern!r}")


def network():
    """Sizes that no number of ranks divides."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3))


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
    mesh, rng = line(), torch.Generator().manual_seed(0)
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
        with raises(ValueError, f"constraint={type(q).__name__}.*sharded along axis 0"):
            AdaHB([matrix], constraint=q, projection="euclidean")
    with raises(ValueError, "state_dtype must be None or 'bf16' for DTensors"):
        AdaHB([matrix], state_dtype="int8")
    with raises(ValueError, "differentiable=True must go without"):
        AdaHB([matrix], differentiable=True)
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
    with raises(ValueError, "finite"):
        optimizer.step()


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
