"""A sparse layer trained on several processes, none of which ever holds all of its weights.

The first layer is confined to an l1 ball.  Its weights, gradients and states are sharded by FSDP2;
for the projection the processes tell each other a few sums, and what comes out is the projection of
the whole.  Half-way the run is saved, and taken up again from the checkpoint.

    python examples/fsdp.py                                         two processes on this machine
    torchrun --standalone --nproc-per-node 4 examples/fsdp.py       any number; saves ./checkpoint
"""

import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from adahb import AdaHB
from adahb.sets import L1Ball

BALL = L1Ball(100.0)
STEPS = 60


def sharded():
    """The model and its optimizer; constructed after sharding, as with every optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    with torch.no_grad():
        model[0].weight.copy_(BALL.project(model[0].weight))
    fully_shard(model)
    first, *others = model.parameters()
    groups = [{"params": [first], "constraint": BALL, "form": "paper"}, {"params": others}]
    return model, AdaHB(groups, lr=0.03, tick=10)


def train(model, optimizer, x, y, steps):
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loss = loss.detach()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def checkpointed(model, optimizer, folder):
    """Another model and optimizer, as they are after loading; their number of ranks may differ."""
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)
    model, optimizer = sharded()
    weights, states = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    return model, optimizer


def work(folder):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = load_digits(return_X_y=True)
    count = len(x) // world
    mine = slice(rank * count, (rank + 1) * count)
    x, y = torch.tensor(x[mine] / 16, dtype=torch.float32), torch.tensor(y[mine])

    model, optimizer = sharded()
    half = train(model, optimizer, x, y, STEPS)
    model, optimizer = checkpointed(model, optimizer, folder)
    final = train(model, optimizer, x, y, STEPS)

    weight = model[0].weight
    zeros = (weight == 0).float().mean().full_tensor()
    cost = weight.abs().sum().full_tensor()
    if rank == 0:
        print(
            f"{world} processes, each with {weight.to_local().numel()} of {weight.numel()} weights"
        )
        print(f"loss {half:.4f} after {STEPS} steps, {final:.4f} after {2 * STEPS}")
        print(f"sum of |weights| {cost:.3f}, allowed {BALL.radius}; {100 * zeros:.0f} % are zero")
    dist.destroy_process_group()


def main():
    if "RANK" in os.environ:
        work(os.environ.get("FOLDER", "checkpoint"))
        return
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node=2", __file__]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"FOLDER": folder, "OMP_NUM_THREADS": "1"}
        run = subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
    print(run.stdout, end="")


if __name__ == "__main__":
    main()
