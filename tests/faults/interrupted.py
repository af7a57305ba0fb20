"""Ctrl-C at random moments of fits and training loops; scenes for `scenes.py`.

The signal comes from a thread of the process itself, so that hundreds fit into one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

Json = dict[str, Any]
SLOW = 20.0
"""Seconds after which an interruption counts as not having arrived, on however busy a machine."""


class Tally:
    """What became of the interruptions, and the longest that one of them took."""

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.slowest = 0.0

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


def ctrl_c(tally: Tally, after: float, work: Callable[[], Any]) -> None:
    """Let SIGINT come ``after`` so many seconds of work, which must end by it."""
    sent: list[float] = []

    def send() -> None:
        time.sleep(after)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    try:
        threading.Thread(target=send, daemon=True).start()
        work()
        while not sent:  # the work was over before: all the same it must arrive
            time.sleep(0.001)
        time.sleep(SLOW)
        raise AssertionError(f"SIGINT did not interrupt within {SLOW} s")
    except KeyboardInterrupt:
        waited = time.monotonic() - sent[0]
        assert waited < SLOW, f"an interruption took {waited:.1f} s"
        tally.slowest = max(tally.slowest, waited)


# ---------------------------------------------------------------- fits


def _sparse(rng: Any) -> Any:
    return sparse.random_array((2000, 400), density=0.05, format="csr", rng=rng)


def _wide(rng: Any) -> Any:
    return rng.normal(size=(1500, 3000)).astype(np.float32)


def _small(rng: Any) -> Any:
    return rng.normal(size=(60, 5))


def _fits() -> dict[str, tuple[Callable[[Any], Any], Json]]:
    from adahb.sets import HalfSpace

    return {
        "lazy loop": (_sparse, {}),
        "dense loop": (_wide, {"constraint": "l2"}),
        "NumPy's loop": (_small, {"constraint": HalfSpace(np.ones(5), 1.0)}),
    }


def fits(seed: int, rounds: int) -> Json:
    """An interrupted fit leaves a model that was made of whole steps, as many as it says."""
    from adahb.linear import HeavyBallClassifier

    rng, tally = np.random.default_rng(seed), Tally()
    for make, options in _fits().values():
        X = make(rng)
        y = np.where(rng.random(X.shape[0]) < 0.5, -1.0, 1.0)
        options = {"step_size": 1.0, "tol": None, "shuffle": False, "max_iter": 10**9, **options}
        HeavyBallClassifier(**{**options, "max_iter": 1}).fit(X, y)
        waits = [random.Random(f"{seed} {i}").uniform(0.0, 0.15) for i in range(rounds)]
        for wait in waits:
            model = HeavyBallClassifier(**options)
            ctrl_c(tally, wait, partial(model.fit, X, y))
            if not hasattr(model, "coef_"):
                tally.count("not fitted, as before")
                continue
            coef, intercept = _steps(X, y, HeavyBallClassifier(**options), model.t_)
            assert np.array_equal(model.coef_[0], coef), f"seed {seed}, {options}, t={model.t_}"
            assert model.intercept_[0] == intercept
            model.set_params(max_iter=1).fit(X, y)
            tally.count("fitted by whole steps")
    return {"outcomes": tally.outcomes, "slowest": tally.slowest}


def _steps(X: Any, y: Any, model: Any, steps: int) -> tuple[Any, float]:
    """The coefficients after so many steps through the rows as they stand, undisturbed."""
    from adahb.linear.machine import Machine
    from adahb.linear.order import Visits
    from adahb.linear.training import Samples, pieces

    X = sparse.csr_array(X) if sparse.issparse(X) else X
    visits = Visits.of(X, y, None, shuffle=False, seed=0)
    told = model._model(1.0)
    machine = Machine(
        X, y, told.loss, told.schedule, constraint=told.settings.constraint,
        form=told.settings.form, projection=told.settings.projection, fit_intercept=True,
    )  # fmt: skip
    epoch = 0
    while machine.steps < steps:
        for piece in pieces(machine, Samples(X, y, visits, None, None), epoch):
            for start in range(0, piece.size, machine.stretch):
                if machine.steps < steps:
                    machine.run(piece[start : start + machine.stretch])
        epoch += 1
    assert machine.steps == steps
    return machine.coef, machine.intercept


def many_models(seed: int, rounds: int) -> Json:
    """An interrupted fit of one against the rest, in threads, leaves none, and no thread."""
    from adahb.linear import HeavyBallClassifier

    rng, tally = np.random.default_rng(seed), Tally()
    X, y = _sparse(rng), rng.integers(0, 4, 2000)
    options = {"step_size": 1.0, "tol": None, "random_state": seed, "n_jobs": 2}
    alone = HeavyBallClassifier(**options, max_iter=2).fit(X, y).coef_
    for i in range(rounds):
        model = HeavyBallClassifier(**options, max_iter=10**9)
        ctrl_c(tally, random.Random(f"{seed} {i}").uniform(0.01, 0.3), partial(model.fit, X, y))
        assert not hasattr(model, "coef_")
        used = time.process_time()
        time.sleep(1.0)
        idle = time.process_time() - used
        assert idle < 0.9, f"seed {seed}: after an interruption threads used {idle:.2f} s of 1 s"
        assert np.array_equal(model.set_params(max_iter=2).fit(X, y).coef_, alone)
        tally.count("not fitted")
    return {"outcomes": tally.outcomes, "slowest": tally.slowest}


def streams(seed: int, rounds: int) -> Json:
    """A call of partial_fit that is interrupted has not happened, or has: repeated it is the same.

    Brief calls wait for their end; those on wide data are longer than an interruption may wait.
    """
    from adahb.linear import HeavyBallClassifier

    rng, tally = np.random.default_rng(seed), Tally()
    for X, batch in ((_sparse(rng), 50), (np.tile(_wide(rng), (8, 1)), 6000)):
        y = rng.integers(0, 3, X.shape[0])
        starts = [*range(0, X.shape[0], batch)] * (10 if batch == 50 else 2)

        parts = [(X[k : k + batch], y[k : k + batch]) for k in starts]

        def go_on(model: Any, k: int, parts: Any = parts) -> None:
            for x, classes in parts[k:]:
                model.partial_fit(x, classes, classes=[0, 1, 2])

        options = {"step_size": 1.0, "random_state": seed, "constraint": "linf"}
        alone = HeavyBallClassifier(**options)
        begun = time.monotonic()
        go_on(alone, 0)
        length = time.monotonic() - begun
        for i in range(rounds):
            model = HeavyBallClassifier(**options)
            after = random.Random(f"{seed} {i}").uniform(0.0, 0.8 * length)
            ctrl_c(tally, after, partial(go_on, model, 0))
            steps = getattr(model, "t_", 0)
            assert steps % batch == 0, f"seed {seed}, {i}: {steps} steps are half a call"
            tally.count("calls whole")
            go_on(model, steps // batch)
            assert np.array_equal(model.coef_, alone.coef_), f"seed {seed}, {i}"
            assert np.array_equal(model.intercept_, alone.intercept_)
            assert model.t_ == alone.t_
    return {"outcomes": tally.outcomes, "slowest": tally.slowest}


# ---------------------------------------------------------------- optimizers


def optimizers(seed: int, rounds: int) -> Json:
    """An interrupted step is whole or not begun, which the clock tells: repeated it is the same."""
    import torch

    from adahb.optim import HB, NAG, AdaHB

    tally = Tally()
    kinds = [(AdaHB, 300_000, True), (NAG, 2_000_000, True), (AdaHB, 50, False), (HB, 50, False)]
    for method, size, fused in kinds:

        def begin(method: Any = method, size: int = size, fused: bool = fused) -> Any:
            generator = torch.Generator().manual_seed(seed)
            ws = [torch.nn.Parameter(torch.randn(size, generator=generator)) for _ in range(2)]
            return ws, method(ws, lr=0.1, tick=1, fused=fused)

        def go_on(ws: Any, optimizer: Any, steps: int) -> None:
            while clock(ws, optimizer) < steps:
                for w in ws:
                    w.grad = torch.sin(w.detach() + clock(ws, optimizer))
                optimizer.step()

        ws, optimizer = begin()
        go_on(ws, optimizer, 5)
        one = time.monotonic()
        go_on(ws, optimizer, 25)
        steps = 5 + int(0.1 * 20 / max(time.monotonic() - one, 1e-4))
        alone, optimizer = begin()
        go_on(alone, optimizer, steps)
        for i in range(rounds):
            ws, optimizer = begin()
            after = random.Random(f"{seed} {i}").uniform(0.0, 0.08)
            ctrl_c(tally, after, partial(go_on, ws, optimizer, 10**9))
            reached = clock(ws, optimizer)
            own, other = begin()
            go_on(own, other, reached)
            assert all(map(torch.equal, ws, own)), f"seed {seed}, {method}, {size}, step {reached}"
            go_on(ws, optimizer, max(reached, steps))
            if reached <= steps:
                assert all(map(torch.equal, ws, alone)), f"seed {seed}, {method}, {size}"
            tally.count("steps whole")
    return {"outcomes": tally.outcomes, "slowest": tally.slowest}


def clock(ws: Any, optimizer: Any) -> int:
    state = optimizer.state.get(ws[0], {})
    return int(state["clock"]) if state else 0


def averages(seed: int, rounds: int) -> Json:
    """Parameters that hold the average inside a context hold what they held when it is left."""
    import torch

    from adahb.optim import PSG

    tally = Tally()
    ws = [torch.nn.Parameter(torch.ones(300)) for _ in range(20)]
    optimizer = PSG(ws, lr=0.1)
    for _ in range(3):
        for w in ws:
            w.grad = torch.ones_like(w)
        optimizer.step()
    before = [w.detach().clone() for w in ws]

    def look() -> None:
        while True:
            with optimizer.averaged_parameters():
                pass

    for i in range(rounds):
        ctrl_c(tally, random.Random(f"{seed} {i}").uniform(0.0, 0.02), look)
        assert all(map(torch.equal, ws, before)), f"seed {seed}, {i}: the average stayed"
        tally.count("parameters as before")
    return {"outcomes": tally.outcomes, "slowest": tally.slowest}


SCENES = {scene.__name__: scene for scene in (fits, many_models, streams, optimizers, averages)}
