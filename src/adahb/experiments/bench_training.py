"""How long an epoch of the deep experiments takes, and how many runs a GPU trains in that time.

The images are drawn at random: how long a step takes does not depend on what they show.  An epoch
is timed with the evaluation at its end, from an idle device until it is idle again.

``eager`` is the same loop with neither a compiled network nor a captured step, ``captured`` has its
step in a CUDA graph, and ``compiled`` is what the experiments do.  Runs in flight are then trained
together as `adahb reproduce deep --jobs N` does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from adahb import _checks as check
from adahb._files import write_whole
from adahb.data import Split
from adahb.experiments.networks import NETWORKS
from adahb.experiments.store import to_json
from adahb.experiments.training import (
    Prepared,
    Recipe,
    Run,
    prepare,
    torch_environment,
    train_together,
)

Json: TypeAlias = dict[str, Any]

MODES: dict[str, dict[str, bool]] = {
    "eager": {"captured": False, "compiled": False},
    "captured": {"captured": True, "compiled": False},
    "compiled": {"captured": True, "compiled": True},
}
NETWORKS_TIMED = ("cnn", "resnet18")
IN_FLIGHT = (1, 2, 4, 6, 8, 12)
_TOGETHER = 3
"""Epochs of each run in flight; the last looks at the whole training set, too."""


def run(
    networks: Sequence[str] = NETWORKS_TIMED,
    *,
    device: str = "cuda",
    batches: Sequence[int] = (128, 512),
    in_flight: Sequence[int] = IN_FLIGHT,
    modes: Sequence[str] = tuple(MODES),
    images: int = 50_000,
    repeats: int = 3,
    out: Path | None = None,
) -> Json:
    """Time epochs and return plain data, seconds throughout.

    Args:
        networks: Names of networks, each trained by AdaHB on images of CIFAR's shape.
        device: "cuda", or "cpu" where nothing is captured: for a look at the benchmark itself.
        batches: Sizes of batches.
        in_flight: Numbers of runs that are trained together, for the first network.
        modes: "eager", "captured" or "compiled".
        images: How many are in an epoch; a fifth of them is what it is tested on.
        repeats: Epochs that are timed; the median counts.
        out: A file that holds what has been measured so far.
    """
    for name in networks:
        check.choice("networks", name, NETWORKS)
    for mode in modes:
        check.choice("modes", mode, MODES)
    repeats = check.integer("repeats", repeats, at_least=1)
    check.choice("device", device, ("cpu", "cuda"))
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a CUDA device, and torch sees none")
    data = _images(check.integer("images", images, at_least=max(batches)), device)
    found: Json = {"benchmark": "training", "images": images, "epochs": [], "in flight": []}
    found["environment"] = torch_environment(device)

    def keep(part: str, row: Json) -> None:
        found[part].append(row)
        if out is not None:
            write_whole(out, to_json(found, 1))

    for name in networks:
        for batch in batches:
            for mode in modes:
                begun = _begun(_recipe(name, batch, 0, repeats + 3), data, MODES[mode])
                seconds = [_timed(partial(_whole_epoch, begun)) for _ in range(repeats)]
                row = {"network": name, "batch": batch, "mode": mode}
                keep("epochs", {**row, "median": statistics.median(seconds), "min": min(seconds)})
    for batch in batches:
        for many in in_flight:
            runs = _runs_a_second(networks[0], batch, many, data)
            row = {"network": networks[0], "batch": batch, "in flight": many}
            keep("in flight", {**row, "epochs a second": runs})
    return found


def _images(count: int, device: str) -> Prepared:
    rng = np.random.default_rng(0)

    def split(n: int) -> Split:
        pixels = rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
        return Split(pixels, rng.integers(0, 10, n))

    parts = split(count), split(count // 5)
    return prepare(*parts, 10, held_out=0, centred=False, device=device)


def _recipe(name: str, batch: int, seed: int, epochs: int) -> Recipe:
    return Recipe(name, "AdaHB", 0.001, seed, epochs, batch)


def _begun(recipe: Recipe, data: Prepared, mode: dict[str, bool]) -> Run:
    """A run after two epochs, in which things are compiled and captured."""
    device = data.train.x.device.type
    on_gpu = device == "cuda"
    captured = mode["captured"] and on_gpu
    run = Run(
        recipe, data, device=device, bf16=on_gpu, captured=captured, compiled=mode["compiled"]
    )
    for _ in range(2):
        _whole_epoch(run)
    return run


def _whole_epoch(run: Run) -> None:
    while not run.advance():
        pass


def _runs_a_second(name: str, batch: int, many: int, data: Prepared) -> float:
    """Epochs of all runs over the time they take together, begun and captured beforehand."""
    mode = MODES["compiled" if data.train.x.is_cuda else "eager"]
    runs = [_begun(_recipe(name, batch, k, 2 + _TOGETHER), data, mode) for k in range(many)]
    begun = iter([(k, lambda run=run: run) for k, run in enumerate(runs)])
    seconds = _timed(lambda: list(train_together(begun, many)))
    return many * _TOGETHER / seconds


def _timed(work: Callable[[], Any]) -> float:
    _wait()
    start = time.perf_counter()
    work()
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
