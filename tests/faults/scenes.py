"""What one process does with the library, together or interrupted: run as a script.

    python tests/faults/scenes.py threads=2 forks=1 --seed 3

Every scene compares digests of results, hence bit for bit, and writes what it tried as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

Counts = dict[str, int]
PATIENCE = 120
"""Seconds after which something that waits is said to hang."""


def digest(*arrays: Any) -> str:
    """A name for the bits of the arrays."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


def rows(seed: int, n: int = 300, d: int = 8, classes: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    scores = X @ rng.normal(size=(d, classes)) + 0.3 * rng.normal(size=(n, classes))
    return X, scores.argmax(axis=1)


# ---------------------------------------------------------------- what is done, alone or together


def classifier(seed: int) -> str:
    from adahb.linear import HeavyBallClassifier

    X, y = rows(seed)
    model = HeavyBallClassifier(max_iter=4, tol=None, random_state=seed)
    return digest(*(model.fit(M, y).coef_ for M in (X, sparse.csr_array(X))), model.predict(X))


def one_against_the_rest(seed: int, jobs: int | None = 2) -> str:
    from adahb.linear import HeavyBallClassifier

    X, y = rows(seed, classes=4)
    options = {"constraint": "l2", "max_iter": 3, "tol": None, "random_state": seed}
    model = HeavyBallClassifier(**options, n_jobs=jobs).fit(X, y)
    return digest(model.coef_, model.intercept_)


def streamed(seed: int) -> str:
    from adahb.linear import HeavyBallRegressor

    X, y = rows(seed)
    model = HeavyBallRegressor(step_size=0.5, random_state=seed)
    for start in range(0, len(y), 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
    return digest(model.coef_, model.intercept_, model.predict(X))


def projections(seed: int) -> str:
    import torch

    from adahb.sets import L1Ball, Simplex

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(20, 50))
    weights = rng.uniform(0.5, 2, 50)
    y = L1Ball(1.0).project(x[0], weights)
    return digest(L1Ball(2.0).project(x), y, Simplex().project(torch.from_numpy(x)).numpy())


def trained(method: str, size: int, seed: int, fused: bool | None) -> str:
    import torch

    from adahb import optim
    from adahb.sets import Box

    generator = torch.Generator().manual_seed(seed)
    w = torch.nn.Parameter(torch.randn(size, generator=generator).clamp_(-1.0, 1.0))
    target = torch.randn(size, generator=generator)
    options = {"tick": 1, "constraint": Box(-1.0, 1.0)}
    optimizer = getattr(optim, method)([w], lr=0.1, fused=fused, **options)
    for _ in range(8):
        w.grad = (w.detach() - target).sign_()
        optimizer.step()
    return digest(w.detach().numpy())


WORK: dict[str, Callable[[int], str]] = {
    "classifier": classifier,
    "one against the rest": one_against_the_rest,
    "partial_fit": streamed,
    "projections": projections,
    "compiled AdaHB": lambda seed: trained("AdaHB", 300_000, seed, True),
    "compiled NAG": lambda seed: trained("NAG", 300_000, seed, True),
    "compiled HB": lambda seed: trained("HB", 300_000, seed, True),
    "eager AdaHB": lambda seed: trained("AdaHB", 100, seed, False),
}
COMPILED = ("compiled AdaHB", "compiled NAG", "compiled HB")


# ---------------------------------------------------------------- threads


def at_once(tasks: list[Callable[[], Any]]) -> list[Any]:
    """What the tasks return when as many threads begin them at the same moment."""
    results: list[Any] = [None] * len(tasks)
    gate = threading.Barrier(len(tasks))

    def run(i: int) -> None:
        gate.wait()
        try:
            results[i] = tasks[i]()
        except BaseException as error:
            results[i] = error

    workers = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(tasks))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE)
        assert not worker.is_alive(), f"a thread hangs: {sys._current_frames()}"
    return results


def threads(seed: int, rounds: int) -> Counts:
    """Everything in threads at once, in the first round before anything has been compiled."""
    done: Counts = {}
    for each in range(rounds):
        # Twice each: two threads that do the same compile the same.
        names = [*WORK, *WORK] if each == 0 else random.Random(seed + each).sample(list(WORK), 4)
        seeds = [seed + each + i for i in range(len(names))]
        made = at_once([lambda n=n, s=s: WORK[n](s) for n, s in zip(names, seeds, strict=True)])
        for name, own, result in zip(names, seeds, made, strict=True):
            alone = WORK[name](own)
            assert result == alone, f"{name} with seed {own}: {result!r} in threads, {alone} alone"
            done[name] = done.get(name, 0) + 1
    return done


def predictions(seed: int, rounds: int) -> Counts:
    """One fitted estimator that several threads ask."""
    from adahb.linear import HeavyBallClassifier

    X, y = rows(seed, n=500, classes=3)
    model = HeavyBallClassifier("log_loss", max_iter=3, tol=None, random_state=seed).fit(X, y)
    alone = digest(model.predict(X), model.predict_proba(X))
    tasks = [lambda: digest(model.predict(X), model.predict_proba(X))] * 8
    for _ in range(rounds):
        assert set(at_once(tasks)) == {alone}
    return {"predict of one estimator": 8 * rounds}


# ---------------------------------------------------------------- processes


def _tell(pipe: Any, name: str, seed: int) -> None:
    import torch

    torch.set_num_threads(1)  # else torch's own operations hang where it had threads before a fork
    pipe.send(WORK[name](seed))


def forks(seed: int, rounds: int) -> Counts:
    """Forked after threads have been used, and while others are stepping; and spawned."""
    names = [*COMPILED, "classifier", "one against the rest", "partial_fit", "projections"]
    alone = {name: WORK[name](seed) for name in names}
    over = threading.Event()

    def keep_busy() -> None:
        while not over.is_set():
            WORK["compiled AdaHB"](seed)

    busy = threading.Thread(target=keep_busy, daemon=True)
    done: Counts = {}
    for each in range(rounds):
        if each == 1:
            busy.start()
        chosen = names if each == 0 else random.Random(seed + each).sample(names, 3)
        for kind in ("spawn", "fork") if each == 1 else ("fork",):
            asked = chosen if kind == "fork" else chosen[:1]
            for name, result in _in_children(kind, asked, seed).items():
                assert result == alone[name], f"{name}, seed {seed}, {kind}: {result!r}"
                done[f"{name}, {kind}"] = done.get(f"{name}, {kind}", 0) + 1
    over.set()
    if busy.ident:
        busy.join(PATIENCE)
    return done


def _in_children(kind: str, names: list[str], seed: int) -> dict[str, str]:
    context = multiprocessing.get_context(kind)
    children = []
    for name in names:
        here, there = context.Pipe()
        child = context.Process(target=_tell, args=(there, name, seed), daemon=True)
        child.start()
        there.close()
        children.append((name, here, child))
    results = {}
    for name, here, child in children:
        assert here.poll(PATIENCE), f"{name}, seed {seed}, hangs in a process made by {kind}"
        results[name] = here.recv()
        child.join(PATIENCE)
    return results


class Projected:
    """A data set whose samples are projected where they are loaded."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        import torch

        from adahb.sets import L1Ball

        rng = np.random.default_rng([self.seed, i])
        x = L1Ball(1.0).project(rng.normal(size=40))
        return torch.from_numpy(x).float(), torch.tensor(float(rng.normal()))


def loaders(seed: int, rounds: int) -> Counts:
    """Training on batches that worker processes load and project."""
    import torch
    from torch.utils.data import DataLoader

    from adahb.optim import AdaHB

    def train(**options: Any) -> str:
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.Linear(300, 1))
        optimizer = AdaHB(model.parameters(), lr=0.01, fused=True)
        for x, y in DataLoader(Projected(seed), batch_size=4, **options):
            optimizer.zero_grad()
            ((model(x)[:, 0] - y) ** 2).mean().backward()
            optimizer.step()
        return digest(*(p.detach().numpy() for p in model.parameters()))

    done: Counts = {}
    alone = train()
    for each in range(rounds):
        kind = ("fork", "spawn")[each % 2]
        made = train(num_workers=2, multiprocessing_context=kind, timeout=PATIENCE)
        assert made == alone, f"seed {seed}: another model with workers made by {kind}"
        done[f"workers made by {kind}"] = done.get(f"workers made by {kind}", 0) + 1
    return done


def loky(seed: int, rounds: int) -> Counts:
    """Fits in joblib's processes and threads, each of which may use threads itself."""
    from joblib import Parallel, delayed, parallel_config

    alone = [one_against_the_rest(seed + i, None) for i in range(3)]
    done: Counts = {}
    for each in range(rounds):
        backend = ("loky", "threading")[each % 2]
        with parallel_config(backend=backend):
            tasks = (delayed(one_against_the_rest)(seed + i) for i in range(3))
            made = Parallel(n_jobs=2)(tasks)
        assert made == alone, f"seed {seed}: other models under {backend}"
        done[f"under {backend}"] = done.get(f"under {backend}", 0) + 3
    return done


def compiling(seed: int, rounds: int) -> dict[str, str]:
    """Digests of what the compiled kernels make, for processes that share a cache, in any order."""
    names = list(COMPILED[:2])
    random.Random(os.getpid()).shuffle(names)
    return {name: WORK[name](seed) for name in names}


SCENES: dict[str, Callable[[int, int], Any]] = {
    scene.__name__: scene for scene in (threads, predictions, forks, loaders, loky, compiling)
}


def main() -> None:
    import interrupted  # beside this file
    import torch

    torch.set_num_threads(2)
    scenes = {**SCENES, **interrupted.SCENES}
    parser = argparse.ArgumentParser()
    parser.add_argument("scenes", nargs="+", help="each a name and its rounds: threads=2")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    results = {}
    for each in given.scenes:
        name, rounds = each.split("=")
        results[name] = scenes[name](given.seed, int(rounds))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
