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
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from adahb import _checks as check
from adahb.data import Split
from adahb.experiments.files import write_whole
from adahb.experiments.networks import NETWORKS
from adahb.experiments.store import environment, to_json
from adahb.experiments.training import Prepared, Recipe, Run, prepare, train_together

Json: TypeAlias = dict[str, Any]

MODES: dict[str, dict[str, bool]] = {
    "eager": {"captured": False, "compiled": False},
    "captured": {"captured": True, "compiled": False},
    "compiled": {"captured": True, "compiled": True},
}
IN_FLIGHT = (1, 2, 4, 6, 8, 12)


def run(
    networks: Sequence[str] = ("cnn", "resnet18"),
    *,
    batches: Sequence[int] = (128, 512),
    in_flight: Sequence[int] = IN_FLIGHT,
    modes: Sequence[str] = tuple(MODES),
    images: int = 50_000,
    repeats: int = 3,
    out: Path | None = None,
) -> Json:
    """Time epochs on the CUDA device and return plain data, seconds throughout.

    Args:
        networks: Names of networks, each trained by AdaHB on images of CIFAR's shape.
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
    if not torch.cuda.is_available():
        raise ValueError("the benchmark of training needs a CUDA device, and torch sees none")
    data = _images(check.integer("images", images, at_least=max(batches)))
    found: Json = {"benchmark": "training", "images": images, "epochs": [], "in flight": []}
    found["environment"] = {
        **environment(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "cuda": str(torch.version.cuda),
    }

    def keep(part: str, row: Json) -> None:
        found[part].append(row)
        if out is not None:
            write_whole(out, to_json(found, 1))

    for name in networks:
        for batch in batches:
            for mode in modes:
                seconds = _epoch(_recipe(name, batch, 0, repeats + 2), data, MODES[mode])
                row = {"network": name, "batch": batch, "mode": mode}
                keep("epochs", {**row, "median": statistics.median(seconds), "min": min(seconds)})
    for batch in batches:
        for many in in_flight:
            runs = _runs_a_second(networks[0], batch, many, data)
            row = {"network": networks[0], "batch": batch, "in flight": many}
            keep("in flight", {**row, "epochs a second": runs})
    return found


def _images(count: int) -> Prepared:
    rng = np.random.default_rng(0)

    def split(n: int) -> Split:
        pixels = rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
        return Split(pixels, rng.integers(0, 10, n))

    parts = split(count), split(count // 5)
    return prepare(*parts, 10, held_out=0, centred=False, device="cuda")


def _recipe(name: str, batch: int, seed: int, epochs: int) -> Recipe:
    return Recipe(name, "AdaHB", 0.001, seed, epochs, batch)


def _epoch(recipe: Recipe, data: Prepared, mode: dict[str, bool]) -> list[float]:
    """Seconds of each epoch but the first two, in which things are compiled and captured."""
    run = Run(recipe, data, device="cuda", bf16=True, **mode)
    seconds = [_timed(lambda: _whole_epoch(run)) for _ in range(recipe.epochs)]
    return seconds[2:]


def _whole_epoch(run: Run) -> None:
    while not run.advance():
        pass


def _runs_a_second(name: str, batch: int, many: int, data: Prepared) -> float:
    """Epochs of all runs over the time they take together, begun and captured beforehand."""
    runs = [Run(_recipe(name, batch, k, 5), data, device="cuda", bf16=True) for k in range(many)]
    for run in runs:
        for _ in range(2):
            _whole_epoch(run)
    begun = iter([(k, lambda run=run: run) for k, run in enumerate(runs)])
    seconds = _timed(lambda: list(train_together(begun, many)))
    return many * 3 / seconds


def _timed(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start
