"""Long runs: how far float32 strays from float64, and what memory does meanwhile."""

from __future__ import annotations

import gc
import os
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]

STEPS = 10_000_000
COMPENSATED = 200_000
SAMPLES = 10_000_000
LOOP = 100_000
RUNS = 2_000
WARM = 500
"""Runs of a sweep below which its memory says nothing: it comes in pages and arenas."""

PLAIN_LIMIT, COMPENSATED_LIMIT = 5e-3, 5e-7
"""What the largest difference of a coordinate may be, for coordinates between -1 and 1."""
LEAK_PER_STEP, LEAK_PER_RUN = 8.0, 1024.0
"""Bytes: a place in a list, and less than a run's result in memory."""


def soak(scale: float, folder: Path) -> Json:
    """Everything, ``scale=1`` being five minutes; ``folder`` is for the results of the sweep."""
    drift = strays(scale)
    estimator = streamed(max(20_000, round(scale * SAMPLES)))
    loop = training_loop(max(6_000, round(scale * LOOP)))
    runs = sweep(max(40, round(scale * RUNS)), folder / "sweep")
    rows = [
        _row(f"steps of {c['method']} ({c['rounding']}) in float32", c["step"][-1], "within limit")
        for c in drift["curves"]
    ]
    rows.append(_row("samples of partial_fit in float32", estimator["samples"], "as in float64"))
    rows.append(_row("steps of a training loop", loop["step"][-1], "flat memory"))
    rows.append(_row("runs of a sweep", runs["run"][-1], "flat memory"))
    return {
        "rows": rows, "defects": 0, "drift": drift, "estimator": estimator, "loop": loop,
        "sweep": runs,
    }  # fmt: skip


def _row(kind: str, tried: int, outcome: str) -> Json:
    return {"kind": kind, "tried": tried, "outcomes": {outcome: tried}}


# ---------------------------------------------------------------- digits


def strays(scale: float) -> Json:
    """How far float32 is from float64, of each method, against the step."""
    from faults import steps

    methods = steps.METHODS if scale >= 0.1 else steps.METHODS[:1]
    curves, reference = [], {}
    for method in methods:
        reference[method] = steps.check(method, max(100, round(scale * 2_000)))
        assert reference[method] < 1e-13, f"{method} is {reference[method]} from the reference"
        last = max(10_000, round(scale * STEPS))
        curves.append(_curve(method, "nearest", last, steps.distances(method, last)))
    last = max(300, round(scale * COMPENSATED))
    curves.append(_curve("AdaHB", "compensated", last, steps.compensated("AdaHB", last)))
    limits = {"nearest": PLAIN_LIMIT, "compensated": COMPENSATED_LIMIT}
    for curve in curves:
        worst, limit = max(curve["distance"]), limits[curve["rounding"]]
        assert worst <= limit, f"{curve['method']}, {curve['rounding']}: {worst} > {limit}"
    return {"curves": curves, "reference": reference, "limits": limits}


def _curve(method: str, rounding: str, last: int, distance: list[float]) -> Json:
    from faults import steps

    return {
        "method": method, "rounding": rounding, "step": steps.marks(last), "distance": distance,
    }  # fmt: skip


def streamed(samples: int) -> Json:
    """The estimator's models of the same rows in float32 and float64, call after call."""
    from adahb.linear import HeavyBallRegressor

    batch = 20_000
    rng = np.random.default_rng(0)
    X = rng.normal(size=(batch, 6)).astype(np.float32)
    y = X @ np.linspace(-0.5, 0.5, 6) + rng.normal(size=batch)
    models = [HeavyBallRegressor(step_size=0.5, random_state=0, radius=1.0) for _ in range(2)]
    distance, calls = 0.0, max(1, samples // batch)
    wide = X.astype(np.float64)
    for _ in range(calls):
        one, other = (model.partial_fit(M, y) for model, M in zip(models, (X, wide), strict=True))
        distance = max(distance, float(np.abs(one.coef_ - other.coef_).max()))
    assert models[0].t_ == models[1].t_ == calls * batch
    assert distance < 1e-12, f"after {models[0].t_} samples the models are {distance} apart"
    return {"samples": models[0].t_, "distance": distance}


# ---------------------------------------------------------------- memory


def training_loop(steps: int) -> Json:
    """Memory of a torch loop: what Python has allocated, and what the process has of the machine.

    The model is small, so that a kept tensor, number or closure would be seen.
    """
    import torch

    from adahb.optim import AdaHB
    from adahb.sets import L2Ball

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = AdaHB(model.parameters(), lr=0.1, constraint=L2Ball(3.0))
    x, y = torch.randn(16, 8), torch.randn(16, 4)
    every = max(300, steps // 100)
    at = np.arange(every, steps + 1, every)
    traced, resident = np.zeros((2, at.size), dtype=np.int64)  # what is noted takes no memory later
    tracemalloc.start()
    try:
        for step in range(1, every * at.size + 1):
            optimizer.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            optimizer.step()
            if step % every == 0:
                gc.collect()
                traced[step // every - 1] = tracemalloc.get_traced_memory()[0]
                resident[step // every - 1] = usage(os.getpid())["bytes"]
    finally:
        tracemalloc.stop()
    found = {"step": at.tolist(), "traced": traced.tolist(), "resident": resident.tolist()}
    slopes = {name: slope(found["step"], found[name]) for name in ("traced", "resident")}
    for name, (low, _) in slopes.items():
        assert low < LEAK_PER_STEP, f"{name} memory grows by {low} bytes a step: {found[name]}"
    return {**found, "bytes_per_step": slopes}


@dataclass(frozen=True)
class Tiny:
    """A run of a moment."""

    number: int

    @property
    def name(self) -> str:
        return f"tiny-{self.number}"

    def spec(self) -> Json:
        return {"number": self.number}

    def compute(self) -> Json:
        from adahb.problems import HardFunction
        from adahb.reference import run
        from adahb.schedules import HB

        trained = run(HardFunction(20), 20, HB(alpha=0.1 + self.number))
        return {"w": trained.w.tolist(), "process": os.getpid()}


def sweep(runs: int, folder: Path) -> Json:
    """What a sweep of tiny runs in two processes has of the machine, run after run."""
    from rich.console import Console

    from adahb.experiments.store import Store

    jobs = [Tiny(number) for number in range(runs)]
    every, seen = max(1, runs // 150), set()
    rows: list[tuple[int, ...]] = []
    count = 0

    def look(_: Any, result: Json) -> str:
        nonlocal count
        count += 1
        seen.add(result["process"])
        if count % every == 0:
            own, others = usage(os.getpid()), [usage(pid) for pid in sorted(seen)]
            workers = sum(other["bytes"] for other in others)
            files = own["files"] + sum(other["files"] for other in others)
            threads = own["threads"] + sum(other["threads"] for other in others)
            rows.append((count, own["bytes"], workers, files, threads))
        return ""

    store = Store(folder)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        assert store.complete(jobs, workers=2, console=Console(file=nowhere), news=look)
    assert len(list(folder.iterdir())) == runs, "there are other files than the results"
    assert len(seen) == 2, f"{len(seen)} processes made the runs"
    at, parent, workers, files, threads = map(list, zip(*rows, strict=True))
    found = {"run": at, "parent": parent, "workers": workers, "files": files, "threads": threads}
    slopes = {name: slope(at, found[name]) for name in ("parent", "workers", "files", "threads")}
    for name, (low, _) in slopes.items():
        limit = LEAK_PER_RUN if name in ("parent", "workers") else 0.001
        if runs < WARM:  # the second worker may begin late, and counts from then on
            continue
        assert low < limit, f"{name} grow by {low} a run: {found[name]}"
    return {**found, "per_run": slopes}


def usage(pid: int) -> dict[str, int]:
    """Resident bytes, open files and threads of a process, as Linux tells them."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 - a Path is kept
        pages = int(file.read().split()[1])
    return {
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "files": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
    }


def slope(at: list[int], values: list[int]) -> tuple[float, float]:
    """The 95 % interval of the growth per step after a warm-up of a third.

    Memory grows in leaps; ten means of neighbours are taken for independent, their ranks are not.
    """
    from scipy import stats

    start = len(at) // 3
    x, y = np.array(at[start:], dtype=float), np.array(values[start:], dtype=float)
    pieces = min(10, x.size)
    xs = np.array([part.mean() for part in np.array_split(x, pieces)])
    ys = np.array([part.mean() for part in np.array_split(y, pieces)])
    off = xs - xs.mean()
    rise = float(off @ ys / (off @ off))
    left = ys - ys.mean() - rise * off
    error = float(np.sqrt(left @ left / (pieces - 2) / (off @ off)))
    half = float(stats.t.ppf(0.975, pieces - 2)) * error
    return rise - half, rise + half
