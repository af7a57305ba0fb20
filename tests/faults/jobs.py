"""The sweeps and trainings that are disturbed, and what is compared afterwards."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from adahb import HB, NAG, AdaHB, HeavyBallClassifier, _files, checkpoints, cli
from adahb.experiments import commands, deep, store
from adahb.experiments.deep import Cell, Entry
from adahb.experiments.store import Job, Json
from adahb.logging import CSVWriter, record
from adahb.sets import L1Ball

Work = Callable[[Path], None]
"""Fills a folder; begun again it goes on with what is there."""

# ---------------------------------------------------------------- sweeps

_TINY = Cell(
    "digits",
    "cnn",
    epochs=1,
    batch=256,
    held_out=100,
    entries=tuple(Entry(name, grid=(0.01,)) for name in ("AdaHB", "SGD")),
)
ARGUMENTS = {
    "reproduce synthetic": ("--T", "40,60,80"),
    "reproduce convex": ("--sets", "breast_cancer", "--repeats", "2", "--epochs", "1"),
    "reproduce deep": ("--preset", "quick", "--epochs", "1"),
}
"""The commands; the quick preset is one small cell here."""


class Here:
    """Computes in this process: a command that is killed is killed with its computation."""

    def __init__(self, workers: int) -> None:
        del workers

    def results(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Json]]:
        for job in jobs:
            yield job, job.compute()


def sweep(command: str, *, here: bool = True) -> Work:
    """A command, with its runs in its own process or in those of its backend."""

    def work(folder: Path) -> None:
        if here:
            store.Processes = commands.Processes = Here
        deep.PRESETS = {"quick": (_TINY,)}
        more = () if here else ("--jobs", "2")
        sys.argv = ["adahb", *command.split(), "--out", str(folder), *ARGUMENTS[command], *more]
        cli.main()

    return work


# ---------------------------------------------------------------- trainings

_STEPS, _EVERY = 300, 3


def _mlp(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 3)).to(dtype)


def _network(make: Callable[[Any], Any], dtype: torch.dtype = torch.float32) -> Work:
    """A loop over random batches, with a checkpoint every few steps and a log."""

    def work(folder: Path) -> None:
        torch.set_num_threads(1)
        folder.mkdir(exist_ok=True)
        model, saved = _mlp(dtype), folder / "run.pt"
        optimizer = make(model)
        batches = torch.Generator().manual_seed(1)
        record(optimizer, to=CSVWriter(folder / "log.csv"), every=5)
        begin = 0
        if saved.exists():
            state = checkpoints.load(saved)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            batches.set_state(state["batches"])
            torch.set_rng_state(state["rng"])
            begin = state["step"]
        for step in range(begin + 1, _STEPS + 1):
            x = torch.randn(8, 16, generator=batches).to(dtype)
            y = x[:, :3].argmax(1)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if step % _EVERY == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "batches": batches.get_state(),
                    "rng": torch.get_rng_state(),
                    "step": step,
                }
                checkpoints.save(state, saved)
        weights = [p.detach().to(torch.float64).numpy().tobytes() for p in model.parameters()]
        _finish(folder, weights)

    return work


def _partial_fits(folder: Path) -> None:
    """A linear model fed in portions and kept as scikit-learn's users keep models."""
    folder.mkdir(exist_ok=True)
    saved, begin = folder / "run.pkl", 0
    model = HeavyBallClassifier(random_state=0)
    if saved.exists():
        begin, model = pickle.loads(saved.read_bytes())
    for part in range(begin, 40):
        rng = np.random.default_rng(part)
        X = rng.normal(size=(50, 12))
        y = (X[:, 0] + X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
        model.partial_fit(X, y, classes=[0, 1, 2])
        _files.write_whole(saved, pickle.dumps((part + 1, model)))
    _finish(folder, [model.coef_.tobytes(), model.intercept_.tobytes()])


def _finish(folder: Path, arrays: list[bytes]) -> None:
    digests = [hashlib.sha256(array).hexdigest() for array in arrays]
    _files.write_whole(folder / "final.json", json.dumps(digests))


def _confined(model: nn.Module) -> AdaHB:
    first, *others = model.parameters()
    groups = [{"params": [first], "constraint": L1Ball(1.0, dim=1)}, {"params": others}]
    return AdaHB(groups, lr=0.02, tick=10)


TRAININGS: dict[str, Work] = {
    "AdaHB": _network(lambda model: AdaHB(model.parameters(), lr=0.02, tick=10)),
    "AdaHB on l1 balls": _network(_confined),
    "AdaHB with int8 states": _network(
        lambda model: AdaHB(model.parameters(), lr=0.02, state_dtype="int8")
    ),
    "AdaHB on bfloat16 weights, rounded at random": _network(
        lambda model: AdaHB(model.parameters(), lr=0.02, rounding="stochastic"), torch.bfloat16
    ),
    "HB": _network(lambda model: HB(model.parameters(), lr=0.1)),
    "NAG": _network(lambda model: NAG(model.parameters(), lr=0.1)),
    "partial_fit": _partial_fits,
}


def work(what: str) -> Work:
    """A sweep or a training by its name."""
    return TRAININGS.get(what) or sweep(what)


# ---------------------------------------------------------------- results


def results(folder: Path) -> dict[str, Any]:
    """All that a finished job has left, without the seconds it took: equal means bit for bit."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in ("run.pt", "run.pkl"):
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            found[name] = _timeless(json.loads(path.read_text(encoding="utf-8")))
        elif path.name == "log.csv":
            lines = [line.split(",") for line in path.read_text().splitlines()]
            found[name] = {tuple(line[:2]): line for line in lines}  # the later line holds
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):  # the sum is of the seconds too
        return {k: _timeless(v) for k, v in value.items() if k not in ("seconds", "sum")}
    return [_timeless(item) for item in value] if isinstance(value, list) else value
