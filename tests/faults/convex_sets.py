"""Projections of every family at the ends of the floats: what comes out, told by `convex_judge`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adahb import sets

from .convex_judge import verdict

Outcomes = dict[str, dict[str, int]]

MOST = float(np.finfo(np.float64).max)
RADII = (0.0, 5e-324, 1e-300, 1e-20, 1.0, 1e20, 1e300, MOST)
SHAPES = ((1,), (2,), (3,), (7,), (3, 2), (1, 4))
BACKENDS = ("numpy", "numpy", "torch", "recorded", "graph")
"""Compiled; torch's compiled; torch while derivatives are recorded; torch as in a graph."""

Entries = Callable[[np.random.Generator, tuple[int, ...]], Any]
POINTS: dict[str, Entries] = {
    "moderate": lambda rng, n: rng.standard_normal(n),
    "near the largest float": lambda rng, n: signs(rng, n) * MOST * rng.uniform(0.1, 1, n),
    "the largest float": lambda rng, n: signs(rng, n) * MOST,
    "of 1e200": lambda rng, n: signs(rng, n) * 1e200 * rng.random(n),
    "of 1e-300": lambda rng, n: signs(rng, n) * 1e-300 * rng.random(n),
    "denormal": lambda rng, n: signs(rng, n) * 5e-324 * rng.integers(0, 5, n),
    "1e300 beside 1e-300": lambda rng, n: signs(rng, n) * 10.0 ** rng.uniform(-300, 300, n),
    "all equal": lambda rng, n: np.full(n, 10.0 ** rng.uniform(-300, 300)),
    "equal up to signs": lambda rng, n: signs(rng, n) * 10.0 ** rng.integers(-300, 300),
    "all zero": lambda _, n: np.zeros(n),
    "mostly zero": lambda rng, n: rng.standard_normal(n) * (rng.random(n) < 0.3),
}
METRICS: dict[str, Entries] = {
    "no": lambda _, __: None,
    "one number as": lambda rng, _: 10.0 ** rng.uniform(-300, 300),
    "a moderate": lambda rng, n: 10.0 ** rng.uniform(-3, 3, n),
    "a wide": lambda rng, n: 10.0 ** rng.uniform(-16, 16, n),
    "the widest": lambda rng, n: 10.0 ** rng.uniform(-100, 100, n),
}
BAD: dict[str, tuple[float, ...]] = {
    "x": (np.nan, np.inf, -np.inf),
    "metric": (np.nan, np.inf, -np.inf, 0.0, -1.0, 5e-324, 1e-300, 1e300),
}


def attempt(call: Callable[[], Any]) -> tuple[Any, str]:
    """Return what a call returns and nothing; or nothing, and what it says is wrong."""
    try:
        return call(), ""
    except ValueError as error:
        return None, str(error)


def signs(rng: np.random.Generator, n: tuple[int, ...]) -> Any:
    """Return +1 and -1 at random."""
    return rng.choice([-1.0, 1.0], n)


def family(name: str, rng: np.random.Generator, shape: tuple[int, ...], radius: float) -> Any:
    """Return a set of the family for points of this shape."""
    last = len(shape) - 1

    def weights(n: Any) -> Any:
        return 10.0 ** rng.uniform(-50, 50, n)

    makers: dict[str, Callable[[], Any]] = {
        "L1Ball": lambda: sets.L1Ball(radius),
        "L1Ball of rows": lambda: sets.L1Ball(radius, dim=last),
        "L2Ball": lambda: sets.L2Ball(radius),
        "L2Ball of rows": lambda: sets.L2Ball(radius, dim=0),
        "LinfBall": lambda: sets.LinfBall(radius),
        "WeightedL1Ball": lambda: sets.WeightedL1Ball(weights(shape), radius),
        "WeightedL1Ball of rows": lambda: sets.WeightedL1Ball(weights(shape[0]), radius, dim=0),
        "GroupL1Ball": lambda: sets.GroupL1Ball(radius, groups=rng.integers(0, 3, shape)),
        "GroupL1Ball of rows": lambda: sets.GroupL1Ball(radius, dim=last),
        "Simplex": lambda: sets.Simplex(radius),
        "Simplex of rows": lambda: sets.Simplex(radius, dim=0),
        "Box": lambda: sets.Box(-radius * rng.random(shape), radius),
        "half-open Box": lambda: sets.Box(-np.inf, radius * rng.standard_normal(shape).clip(-1, 1)),
        "NonNegative": sets.NonNegative,
        "NuclearBall": lambda: sets.NuclearBall(radius),
        "HalfSpace": lambda: sets.HalfSpace(
            rng.standard_normal(shape) * 10.0 ** rng.integers(-300, 300), signs(rng, ()) * radius
        ),
        "Affine": lambda: sets.Affine(
            rng.standard_normal((1, int(np.prod(shape)))) * 10.0 ** rng.integers(-300, 300),
            [signs(rng, ()) * radius],
        ),
    }
    return makers[name]()


FAMILIES = (
    "L1Ball", "L1Ball of rows", "L2Ball", "L2Ball of rows", "LinfBall", "WeightedL1Ball",
    "WeightedL1Ball of rows", "GroupL1Ball", "GroupL1Ball of rows", "Simplex", "Simplex of rows",
    "Box", "half-open Box", "NonNegative", "NuclearBall", "HalfSpace", "Affine",
)  # fmt: skip


def project(q: sets.ConvexSet, x: Any, metric: Any, backend: str) -> Any:
    """Return the projection by that backend, as a NumPy array."""
    if backend == "numpy":
        return q.project(x, metric)
    if backend == "jax":
        import jax

        with jax.enable_x64(True):
            return np.asarray(q.project(jax.numpy.asarray(x), metric))
    import torch

    from adahb.sets.arrays import blindfold

    h = None if metric is None else torch.as_tensor(metric, dtype=torch.float64)
    t = torch.from_numpy(x.copy())
    if backend == "recorded":
        return q.project(t.requires_grad_(), h).detach().numpy()
    if backend == "graph":
        with blindfold():
            return q.project(t, h).numpy()
    return q.project(t, h).numpy()


def tries(seed: int) -> Iterator[tuple[str, str]]:
    """Make one projection, and what follows from it; yield kinds and outcomes."""
    rng = np.random.default_rng([0, seed])
    shape = SHAPES[rng.integers(len(SHAPES))]
    name, radius = str(rng.choice(FAMILIES)), float(rng.choice(RADII))
    if name == "NuclearBall" and len(shape) < 2:
        shape = (3, 2)
    points, metrics, backend = (str(rng.choice(list(of))) for of in (POINTS, METRICS, BACKENDS))
    x = POINTS[points](rng, shape)
    if rng.random() < 0.3:
        x = np.clip(x, -3.4e38, 3.4e38).astype(np.float32)
    kind = f"{name}, {x.dtype}"
    q, error = attempt(lambda: family(name, rng, shape, radius))
    if error:
        assert re.match("(radius|total|offset|rhs|weights) must be ", error), (seed, error)
        yield kind, "clear error"
        return
    metric = METRICS["one number as" if name == "NuclearBall" else metrics](rng, shape)
    what = (seed, q, points, radius, metrics, backend, x, metric)
    y, error = attempt(lambda: project(q, x, metric, backend))
    if error:
        assert error.startswith("x must have a dtype that can hold"), (error, what)
        assert q._can_overflow(float(np.finfo(x.dtype).max)), (error, what)
        yield kind, "clear error"
        return
    wrong = verdict(q, x, y, metric)
    assert wrong is None, (wrong, y, what)
    again = project(q, y, metric, backend)
    size = np.max(np.abs(np.r_[y.reshape(-1).astype(np.float64), 0.0]))
    tolerance = 64 * np.finfo(x.dtype).eps * size + 4 * np.finfo(x.dtype).smallest_subnormal
    assert np.all(np.abs(again.astype(np.float64) - y) <= tolerance), (
        "not idempotent",
        again,
        what,
    )
    for value in (q.support(x), q.support(-x)):
        assert not np.isnan(value), ("support", value, what)
    yield kind, "right answer"


def bad_points(seed: int) -> Iterator[tuple[str, str]]:
    """Put one bad number into the point or the metric: an error must name which."""
    rng = np.random.default_rng([1, seed])
    shape = SHAPES[rng.integers(1, len(SHAPES))]
    name = str(rng.choice([f for f in FAMILIES if f != "NuclearBall"]))
    q, backend = family(name, rng, shape, 1.0), str(rng.choice(BACKENDS))
    argument = str(rng.choice(list(BAD)))
    bad = float(rng.choice(BAD[argument]))
    given = {"x": rng.standard_normal(shape), "metric": rng.random(shape) + 0.5}
    given[argument].reshape(-1)[rng.integers(given[argument].size)] = bad
    if argument == "x" and rng.random() < 0.5:
        given["metric"] = None
    y, error = attempt(lambda: project(q, given["x"], given["metric"], backend))
    assert error.startswith(f"{argument} must "), (seed, error, y, q, backend, given)
    yield f"{bad} in {argument} of a projection", "clear error"


def count(rows: Outcomes, kind: str, outcome: str) -> None:
    """Count an outcome of a kind."""
    counts = rows.setdefault(kind, {})
    counts[outcome] = counts.get(outcome, 0) + 1


def run(projections: int, mistakes: int, first: int = 0) -> Outcomes:
    """Try so many projections and bad numbers; return the outcomes by kind."""
    rows: Outcomes = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(first, first + projections):
            for kind, outcome in tries(seed):
                count(rows, kind, outcome)
        for seed in range(first, first + mistakes):
            for kind, outcome in bad_points(seed):
                count(rows, kind, outcome)
    return rows
