"""How fast the linear estimators are, beside scikit-learn, HiGHS and their own loop done densely.

steps     seconds a step of a fit, beside SGDClassifier and LinearSVC
accuracy  seconds to a certified relative gap, beside the exact optimum by linear programs
growth    seconds a step as the dimension grows at 75 nonzeros a row, and of the dense loop
auto      epochs to a certified gap with step_size="auto", beside the best of a grid
memory    the peak of a fit, beside the bytes of its CSR matrix

Contenders take turns, on one thread; minimum and median of the turns are kept, and ratios are those
of one run.  The hinge loss on the l1 ball of figure 6, without intercept, throughout.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from adahb import _checks as check
from adahb import schedules
from adahb.experiments import peers
from adahb.experiments.bench_linear_cost import SOLVERS, epoch_of, growth, memory
from adahb.experiments.convex import Problem
from adahb.experiments.rates import theory_alpha
from adahb.experiments.result_files import LINEAR, ResultFile
from adahb.experiments.runs import Method
from adahb.experiments.store import read_json, to_json, write_whole
from adahb.experiments.tables import linear_tables
from adahb.experiments.turns import Json, machine, take_turns
from adahb.linear import HeavyBallClassifier
from adahb.problems import LinearObjective

PARTS = ("steps", "accuracy", "growth", "auto", "memory")
FORMS = ("averaging",)
MULTIPLES = (0.0625, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""Of the step size that "auto" takes."""


def run(
    problems: Sequence[Problem],
    *,
    parts: Sequence[str] = PARTS,
    repeats: int = 5,
    limit: float = 600.0,
    scale: float = 1.0,
    out: Path | None = None,
) -> Json:
    """Measure and return plain data, seconds throughout.

    Args:
        problems: Data sets and radii.
        parts: What is measured.
        repeats: Turns of each contender.
        limit: Seconds after which HiGHS is stopped; these count as its time.
        scale: Multiplies the sizes of what is generated, and the epochs, for a quick look.
        out: A file for what has been measured so far, rewritten after every part; parts of
            an earlier run that are not asked for stay in it.
    """
    for part in parts:
        check.choice("parts", part, PARTS)
    repeats = check.integer("repeats", repeats, at_least=1)
    limit = check.number("limit", limit, above=0)
    scale = check.number("scale", scale, above=0, at_most=1)
    found = {} if out is None or not out.exists() else _kept(out)
    found |= {"benchmark": "linear", "machine": machine()}
    measure: dict[str, Callable[[], Any]] = {
        "steps": lambda: [steps(p, repeats, scale) for p in problems],
        "accuracy": lambda: [accuracy(p, repeats, limit, scale) for p in problems],
        "growth": lambda: growth(repeats, scale),
        "auto": lambda: [auto(p, scale) for p in problems],
        "memory": lambda: [memory(p) for p in problems],
    }
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # epochs are few on purpose
        for part in parts:
            found[part] = measure[part]()
            if out is not None:
                write_whole(out, to_json(found, 1))
    return found


def _kept(path: Path) -> Json:
    """What an earlier run has measured; it is shown again, beside what is new."""
    with ResultFile(path, LINEAR, read_json(path)).understood() as found:
        linear_tables(found)
        return dict(found)


def estimator(problem: Problem, solver: Any, **options: Any) -> Any:
    """The classifier of a problem; what is not given are its defaults."""
    chosen: Json = {"fit_intercept": False, "random_state": 0, **options}
    return HeavyBallClassifier(
        loss="hinge", constraint="l1", radius=problem.radius, solver=solver, **chosen
    )


# ------------------------------------------------------------------------------------------ steps


def steps(problem: Problem, repeats: int, scale: float = 1.0) -> Json:
    """Seconds a step: what ten further epochs of a fit cost, over ten times the rows."""
    from sklearn.linear_model import SGDClassifier

    objective, _ = problem.make()
    more = max(1, round(10 * scale))

    def ours(solver: str, form: str) -> Callable[[int], Any]:
        alpha = _auto(problem, solver)
        options: Json = {"form": form, "step_size": alpha, "tol": None}
        return lambda n: estimator(problem, solver, max_iter=n, **options)

    def sgd(penalty: str) -> Callable[[int], Any]:
        return lambda n: SGDClassifier(
            penalty=penalty, fit_intercept=False, max_iter=n, tol=None, random_state=0
        )

    makers = {f"{s}, {f}": ours(s, f) for s in SOLVERS for f in FORMS}
    makers |= {f"SGDClassifier {penalty}": sgd(penalty) for penalty in ("l1", "l2")}
    calls: dict[str, Callable[[], float]] = {}
    for name, maker in makers.items():
        calls[name] = lambda maker=maker: _further(maker, objective, more)  # type: ignore[misc]
    for solver in SOLVERS:
        name = f"{solver}, steps alone"
        calls[name] = epoch_of(objective, problem.radius, solver, _auto(problem, solver))
    calls["LinearSVC"] = lambda: _svc(objective)
    return {**_about(problem), "seconds a step": _with_ratios(take_turns(calls, repeats))}


def _further(maker: Callable[[int], Any], objective: LinearObjective, more: int) -> float:
    """Seconds a step of the epochs after the first."""
    seconds = []
    for epochs in (1, 1 + more):
        start = time.perf_counter()
        maker(epochs).fit(objective.X, objective.y)
        seconds.append(time.perf_counter() - start)
    return (seconds[1] - seconds[0]) / float(more * objective.n)


def _svc(objective: LinearObjective) -> float:
    from sklearn.svm import LinearSVC

    model = LinearSVC(loss="hinge", fit_intercept=False, max_iter=20, random_state=0)
    start = time.perf_counter()
    model.fit(objective.X, objective.y)
    steps = float(np.max(model.n_iter_) * objective.n)
    return (time.perf_counter() - start) / steps


def _with_ratios(seconds: Json) -> Json:
    """Add to each contender its time over those of the two SGDClassifiers."""
    for found in seconds.values():
        for penalty in ("l1", "l2"):
            peer = seconds[f"SGDClassifier {penalty}"]
            found[f"over SGDClassifier {penalty}"] = {
                key: found[key] / peer[key] for key in ("median", "min")
            }
    return seconds


# --------------------------------------------------------------------------------------- accuracy


def accuracy(problem: Problem, repeats: int, limit: float, scale: float = 1.0) -> Json:
    """Seconds of a fit to a certified relative gap of 1e-3; HiGHS has one go at the optimum."""
    objective, _ = problem.make()
    most, facts = max(1, round(2000 * scale)), {}

    def fit(solver: str, form: str) -> float:
        model = estimator(problem, solver, form=form, tol=1e-3, max_iter=most)
        start = time.perf_counter()
        model.fit(objective.X, objective.y)
        seconds = time.perf_counter() - start
        gap = float(model.gap_) / float(model.history_["objective"][-1])
        facts[f"{solver}, {form}"] = {"epochs": model.n_iter_, "relative gap": gap}
        return seconds

    calls: dict[str, Callable[[], float]] = {}
    for solver in SOLVERS:
        for form in FORMS:
            calls[f"{solver}, {form}"] = lambda s=solver, f=form: fit(s, f)  # type: ignore[misc]
    ours = take_turns(calls, repeats)
    for name, found in ours.items():
        found |= facts[name]
    solvers = {"HiGHS": False, "HiGHS, dual program": True}
    programs = {
        name: peers.highs(objective, problem.radius, dual=dual, limit=limit)
        for name, dual in solvers.items()
    }
    for found in ours.values():
        for name, program in programs.items():
            if found["relative gap"] <= 1e-3:
                found[f"times faster than {name}"] = program["seconds"] / found["median"]
    about = {**_about(problem), "relative gap": 1e-3, "limit": limit}
    return {**about, "ours": ours, "programs": programs}


# ------------------------------------------------------------------------------------------- auto


def auto(problem: Problem, scale: float = 1.0) -> Json:
    """Epochs to a certified relative gap of 1e-2 with step_size="auto" and with multiples of it."""
    objective, _ = problem.make()
    most = max(1, round(300 * scale))
    found: Json = {}
    for solver in SOLVERS:
        alpha = _auto(problem, solver)
        epochs = {}
        for multiple in MULTIPLES:
            model = estimator(
                problem, solver, step_size=multiple * alpha, tol=1e-2, max_iter=most
            ).fit(objective.X, objective.y)
            reached = model.gap_ <= 1e-2 * model.history_["objective"][-1]
            epochs[multiple] = int(model.n_iter_) if reached else None
        best = min((e for e in epochs.values() if e is not None), default=None)
        ratio = None if best is None or epochs[1.0] is None else epochs[1.0] / best
        theory = theory_alpha(problem, _method(solver))
        found[solver] = {
            "alpha": alpha,
            "over the theory's": alpha / theory,
            "epochs by multiple of alpha": epochs,
            "epochs over the best": ratio,
        }
    return {**_about(problem), "relative gap": 1e-2, "most epochs": most, **found}


def _method(solver: str) -> Method:
    if solver == "hb":
        return Method(schedules.HB(alpha=1.0))
    return Method(schedules.AdaHB(alpha=1.0, gamma=1.0))


def _auto(problem: Problem, solver: str) -> float:
    """The step size that "auto" takes."""
    objective, _ = problem.make()
    model = estimator(problem, solver, max_iter=1, tol=None).fit(objective.X, objective.y)
    return float(model.step_size_)


def _about(problem: Problem) -> Json:
    objective, _ = problem.make()
    X = sparse.csr_array(objective.X)
    return {**problem.spec(), "n": objective.n, "d": objective.dim, "nonzeros": int(X.nnz)}
