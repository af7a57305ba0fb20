"""What a step of the linear loops costs as the dimension grows, and what a fit takes of memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse

from adahb import schedules
from adahb.experiments import peers
from adahb.experiments.convex import Problem
from adahb.experiments.turns import Json, take_turns
from adahb.linear import HeavyBallClassifier
from adahb.linear.machine import Machine
from adahb.problems import LinearObjective
from adahb.schedules import Schedule
from adahb.sets import L1Ball

NONZEROS, DIMENSIONS, TEXT = 75, tuple(2**k for k in range(14, 21)), 47_236
SOLVERS = ("adahb", "hb")
_DENSE = 2000
"""Steps of a dense loop in a turn."""
_RADIUS = 20.0


def growth(repeats: int, scale: float = 1.0) -> Json:
    """Seconds a step as d grows, on rows of 75 nonzeros with the l1 ball active."""
    n = max(200, round(20_000 * scale))
    found: Json = {"nonzeros a row": NONZEROS, "rows": n, "columns drawn": {}}
    for how in ("like words", "evenly"):
        rows = {d: generated(n, d, evenly=how == "evenly") for d in DIMENSIONS}
        calls: dict[str, Callable[[], float]] = {}
        for solver in SOLVERS:
            for d, X in rows.items():
                calls[f"{solver} {d}"] = _epoch(X, solver)
        seconds = take_turns(calls, repeats)
        least = {s: seconds[f"{s} {DIMENSIONS[0]}"]["median"] for s in SOLVERS}
        for name, turn in seconds.items():
            turn["over the smallest d"] = turn["median"] / least[name.split()[0]]
        found["columns drawn"][how] = seconds
    found["against the dense loop"] = _against_dense(repeats, n)
    return found


def _against_dense(repeats: int, n: int) -> Json:
    """Text-like rows, and the same steps with all coordinates touched.

    "dense" does all that ours does; "steps alone" keeps neither the mean of the iterates nor what a
    certificate is made of.
    """
    rows = generated(n, TEXT, evenly=False)
    objective = LinearObjective(rows["X"], rows["y"], "hinge")
    schedule = schedules.HB(alpha=_alpha(objective, "hb"))
    order = np.random.default_rng(1).permutation(n)[:_DENSE]

    def steps_alone() -> float:
        start = time.perf_counter()
        peers.dense_loop(objective, _RADIUS, schedule, order)
        return (time.perf_counter() - start) / order.size

    calls = {f"{solver}, ours": _epoch(rows, solver) for solver in SOLVERS}
    calls |= {f"{solver}, dense": _epoch(rows, solver, "dense", _DENSE) for solver in SOLVERS}
    seconds: Json = take_turns({**calls, "hb, dense, steps alone": steps_alone}, repeats)
    for name, turn in seconds.items():
        ours = seconds[f"{name.split(',')[0]}, ours"]
        turn["over ours"] = turn["median"] / ours["median"]
    return {"d": TEXT, "contenders": seconds}


def generated(n: int, d: int, *, evenly: bool, seed: int = 0) -> Json:
    """Rows of 75 nonzeros and labels; columns are drawn evenly, or with the frequencies of words.

    A word's frequency falls like one over its rank.  Forty of the frequent columns decide about
    the labels, nine in ten of which agree with them.
    """
    rng = np.random.default_rng(seed)
    u = rng.random((n, 3 * NONZEROS))
    ranks = (d * u if evenly else d**u - 1).astype(np.int64).clip(0, d - 1)
    place = rng.permutation(d)
    indices = np.array([rng.permutation(np.unique(row))[:NONZEROS] for row in ranks])
    values = np.abs(rng.normal(size=indices.shape)) + 0.1
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    deciding = np.zeros(d)
    deciding[:40] = rng.choice([-1.0, 1.0], 40)
    sums = (deciding[indices] * values).sum(axis=1)
    y = np.where(sums + 1e-9 * rng.normal(size=n) > 0, 1.0, -1.0)
    y *= np.where(rng.random(n) < 0.1, -1.0, 1.0)
    columns = np.sort(place[indices], axis=1).astype(np.int32)
    pointers = np.arange(0, columns.size + 1, NONZEROS, dtype=np.int32)
    return {"X": sparse.csr_array((values.ravel(), columns.ravel(), pointers), (n, d)), "y": y}


def _epoch(
    rows: Json, solver: str, loop: str | None = None, most: int | None = None
) -> Callable[[], float]:
    """An epoch on generated rows, with a sensible α and a radius at which the ball is active."""
    objective = LinearObjective(rows["X"], rows["y"], "hinge")
    return epoch_of(objective, _RADIUS, solver, _alpha(objective, solver), loop, most)


def _alpha(objective: LinearObjective, solver: str) -> float:
    """An eighth of the theory's."""
    if solver == "adahb":
        return schedules.best_alpha(2 * _RADIUS, gamma=1.0) / 8
    return schedules.best_alpha(2 * _RADIUS, lipschitz=objective.sample_lipschitz()) / 8


def epoch_of(
    objective: LinearObjective,
    radius: float,
    solver: str,
    alpha: float,
    loop: str | None = None,
    most: int | None = None,
) -> Callable[[], float]:
    """A call that takes an epoch of ``most`` steps further on, and returns the seconds of each."""
    schedule: Schedule = schedules.HB(alpha=alpha)
    if solver == "adahb":
        schedule = schedules.AdaHB(alpha=alpha, gamma=1.0)
    ball = L1Ball(radius)
    machine = Machine(objective.X, objective.y, "hinge", schedule, constraint=ball, loop=loop)
    rng = np.random.default_rng(2)
    machine.run(rng.permutation(objective.n)[:most])

    def epoch() -> float:
        order = rng.permutation(objective.n)[:most]
        start = time.perf_counter()
        machine.run(order)
        return (time.perf_counter() - start) / order.size

    return epoch


def memory(problem: Problem) -> Json:
    """Peak resident bytes of a process that holds the rows and fits, beyond what it began with."""
    objective, _ = problem.make()
    X = sparse.csr_array(objective.X)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("data", "indices", "indptr"):
            np.save(Path(folder) / f"{name}.npy", getattr(X, name))
        np.save(Path(folder) / "y.npy", objective.y)
        code = (
            f"from {__name__} import fit_alone; fit_alone({folder!r}, {X.shape}, {problem.radius})"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
    before, peak = map(int, done.stdout.split())
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    whole = peak - before
    return {**problem.spec(), "csr bytes": size, "peak bytes": whole, "ratio": whole / size}


def fit_alone(folder: str, shape: tuple[int, int], radius: float) -> None:
    """Load rows and fit two epochs; print the resident bytes before, and at the peak.

    A small fit comes first, for compiling is not what is measured.
    """
    small = np.random.default_rng(0).normal(size=(50, 5))
    model = HeavyBallClassifier(
        radius=radius, fit_intercept=False, max_iter=2, tol=1e-9, random_state=0
    )
    warnings.simplefilter("ignore")
    model.fit(sparse.csr_array(small), np.sign(small[:, 0]))
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    parts = (np.load(Path(folder) / f"{name}.npy") for name in ("data", "indices", "indptr"))
    X = sparse.csr_array(tuple(parts), shape)
    model.fit(X, np.load(Path(folder) / "y.npy"))
    sys.stdout.write(f"{before} {_status('VmHWM')}")


def _status(name: str) -> int:
    """A number of bytes from what Linux says about this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise OSError(f"{name} is not in /proc/self/status")
