"""How fast the l1 and simplex projections are, beside what one would write without them.

Each case is timed against peers in the same run, in turn, on one thread. A turn is a burst of
calls: the first finds in caches and allocator what another contender left there (``cold``), the
others find their own, as in a training loop (``best`` and ``median``). The peers:

``numpy sort``      the sort-based projection in vectorised NumPy, as it runs here
``compiled sort``   the same in a compiled loop
``michelot``        Michelot's method (1986) in a compiled loop
``condat``          Condat's method (2016) in a compiled loop
``numpy sort without simd``   the first once more, with NumPy's vector sorting switched off

The last one runs in a process of its own, for NumPy chooses its instructions when it is imported.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import numba
import numpy as np

from adahb._checks import integer
from adahb._numba import njit
from adahb.sets import ConvexSet, L1Ball, Simplex

Vector: TypeAlias = Any
Json: TypeAlias = dict[str, Any]

_BURST = 5


def sort_l1(x: Vector, radius: float) -> Vector:
    """Project on the l1 ball by sorting, as a competent user of NumPy would write it."""
    size = np.abs(x)
    if size.sum() <= radius:
        return x.copy()
    return np.sign(x) * np.maximum(size - _sorted_level(size, radius), 0)


def sort_simplex(x: Vector, total: float) -> Vector:
    """Project on the simplex by sorting."""
    return np.maximum(x - _sorted_level(x, total), 0)


def _sorted_level(a: Vector, radius: float) -> Any:
    ordered = np.sort(a)[::-1]
    excess = np.cumsum(ordered, dtype=np.float64) - radius
    last = np.flatnonzero(ordered * np.arange(1, a.size + 1) > excess)[-1]
    return excess[last] / (last + 1)


def sort_metric_l1(x: Vector, radius: float, h: Vector) -> Vector:
    """Project on the l1 ball in the metric h by sorting the entries by h |x|."""
    size = np.abs(x)
    if size.sum() <= radius:
        return x.copy()
    pull = h * size
    order = np.argsort(pull)[::-1]
    level = (np.cumsum(size[order]) - radius) / np.cumsum(1 / h[order])
    last = np.flatnonzero(pull[order] > level)[-1]
    return np.sign(x) * np.maximum(size - level[last] / h, 0)


def _sort_loop(x: Vector, radius: float) -> Vector:
    size = np.abs(x)
    ordered = np.sort(size)
    total, level = 0.0, 0.0
    for k in range(x.size):
        entry = np.float64(ordered[x.size - 1 - k])
        total += entry
        if entry * (k + 1) <= total - radius:
            break
        level = (total - radius) / (k + 1)
    return _shrink(x, size, max(level, 0.0))


def _michelot_loop(x: Vector, radius: float) -> Vector:
    size = np.abs(x)
    active, count = size.copy(), size.size
    total = 0.0
    for i in range(count):
        total += np.float64(active[i])
    level = max((total - radius) / count, 0.0)
    while True:
        kept, total = 0, 0.0
        for i in range(count):
            if active[i] > level:
                active[kept] = active[i]
                total += np.float64(active[i])
                kept += 1
        if kept == count or kept == 0:
            return _shrink(x, size, level)
        count, level = kept, max((total - radius) / kept, level)


def _condat_loop(x: Vector, radius: float) -> Vector:
    size = np.abs(x)
    active, waiting = np.empty_like(size), np.empty_like(size)
    active[0], count, parked = size[0], 1, 0
    level: float = np.float64(size[0]) - radius
    for i in range(1, size.size):
        if size[i] > level:
            level += (np.float64(size[i]) - level) / (count + 1)
            if level > size[i] - radius:
                active[count] = size[i]
                count += 1
            else:
                for j in range(count):
                    waiting[parked + j] = active[j]
                parked += count
                active[0], count = size[i], 1
                level = np.float64(size[i]) - radius
    for i in range(parked):
        if waiting[i] > level:
            active[count] = waiting[i]
            count += 1
            level += (np.float64(waiting[i]) - level) / count
    while True:
        kept = 0
        total = 0.0
        for i in range(count):
            if active[i] > level:
                active[kept] = active[i]
                total += np.float64(active[i])
                kept += 1
        if kept == count or kept == 0:
            return _shrink(x, size, max(level, 0.0))
        count, level = kept, (total - radius) / kept


def _shrink_loop(x: Vector, size: Vector, level: float) -> Vector:
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = np.copysign(max(size[i] - level, 0.0), x[i])
    return out


_shrink = njit()(_shrink_loop)
_LOOPS: dict[str, Callable[[Vector, float], Vector]] = {
    "compiled sort": njit()(_sort_loop),
    "michelot": njit()(_michelot_loop),
    "condat": njit()(_condat_loop),
}


def cases(d: int, seed: int) -> list[Json]:
    """Return what is timed: a name, the set, the point, the metric and the NumPy peer."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal(d)
    sparse = np.where(rng.random(d) < 0.01, dense, 0.0)
    h = np.sqrt(rng.random(d)) + 1e-8
    norm, sparse_norm = (float(np.abs(x).sum()) for x in (dense, sparse))
    ties = np.round(dense)
    plain: list[tuple[str, Vector, float]] = [
        ("l1, dense, radius 1", dense, 1.0),
        ("l1, dense, radius 0.1 of the norm", dense, 0.1 * norm),
        ("l1, dense, radius 0.5 of the norm", dense, 0.5 * norm),
        ("l1, dense, radius 0.99 of the norm", dense, 0.99 * norm),
        ("l1, 1 % nonzero, radius 0.99 of the norm", sparse, 0.99 * sparse_norm),
        ("l1, 1 % nonzero, radius 1", sparse, 1.0),
        ("l1, ties, radius 0.3 of the norm", ties, 0.3 * float(np.abs(ties).sum())),
    ]
    found = [_case(name, L1Ball(r), x, sort_l1, radius=r) for name, x, r in plain]
    found += [_case(name, L1Ball(r), x.astype("f4"), sort_l1, radius=r) for name, x, r in plain]
    for total in (1.0, float(d) / 10):
        name = f"simplex, dense, total {total:g}"
        found.append(_case(name, Simplex(total), dense, sort_simplex, radius=total))
    for name, x, r in (plain[0], plain[2], plain[4]):
        peer = _with_metric(h)
        found.append(_case(f"metric {name}", L1Ball(r), x, peer, radius=r, metric=h))
    return found


def _with_metric(h: Vector) -> Callable[[Vector, float], Vector]:
    return lambda x, radius: sort_metric_l1(x, radius, h)


def _case(
    name: str,
    target: ConvexSet,
    x: Vector,
    peer: Callable[[Vector, float], Vector],
    *,
    radius: float,
    metric: Vector | None = None,
) -> Json:
    return {
        "name": name,
        "set": target,
        "x": x,
        "numpy": peer,
        "radius": radius,
        "metric": metric,
        "loops": metric is None and isinstance(target, L1Ball),
    }


def run(d: int = 1_000_000, repeats: int = 4, seed: int = 0) -> Json:
    """Time every case and return plain data, seconds throughout.

    Args:
        d: The number of entries.
        repeats: How many turns each contender gets.
        seed: Of the random points.
    """
    d, repeats = integer("d", d, at_least=1), integer("repeats", repeats, at_least=1)
    scalar = _without_simd(d, repeats, seed)
    found = []
    for case in cases(d, seed):
        peers = _peers(case)
        ours = peers["ours"]()
        for name, peer in peers.items():
            if not np.allclose(peer(), ours, rtol=1e-4, atol=1e-6 * np.abs(case["x"]).max()):
                raise RuntimeError(f"{name} disagrees with ours on {case['name']}")
        seconds = _interleaved(peers, repeats)
        seconds["numpy sort without simd"] = scalar[_key(case)]
        best = seconds["ours"]["best"]
        found.append(
            {
                "name": case["name"],
                "dtype": str(case["x"].dtype),
                "d": d,
                "seconds": seconds,
                "times faster than": {
                    name: s["best"] / best for name, s in seconds.items() if name != "ours"
                },
            }
        )
    return {"benchmark": "projection", "cases": found, "repeats": repeats, "machine": _machine()}


def _key(case: Json) -> str:
    return f"{case['name']} {case['x'].dtype}"


def _peers(case: Json) -> dict[str, Callable[[], Vector]]:
    x, radius = case["x"], case["radius"]
    peers: dict[str, Callable[[], Vector]] = {
        "ours": lambda: case["set"].project(x, case["metric"]),
        "numpy sort": lambda: case["numpy"](x, radius),
    }
    if case["loops"]:
        for name, loop in _LOOPS.items():
            peers[name] = lambda loop=loop: loop(x, radius)  # type: ignore[misc]
    return peers


def _interleaved(peers: dict[str, Callable[[], Vector]], repeats: int) -> Json:
    warm: dict[str, list[float]] = {name: [] for name in peers}
    cold: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(repeats):
        for name, peer in peers.items():
            first, *others = (_seconds(peer) for _ in range(_BURST))
            cold[name].append(first)
            warm[name].extend(others)
    return {
        name: {
            "best": min(warm[name]),
            "median": float(np.median(warm[name])),
            "cold": float(np.median(cold[name])),
        }
        for name in peers
    }


def _seconds(call: Callable[[], Vector]) -> float:
    start = time.perf_counter()
    result = call()
    taken = time.perf_counter() - start
    del result  # giving memory back is not part of it
    return taken


def _without_simd(d: int, repeats: int, seed: int) -> Json:
    """Time the NumPy peers in a process whose NumPy does not sort with vector instructions."""
    switched = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(_dispatched())}
    code = f"from {__name__} import time_numpy; time_numpy({d}, {repeats}, {seed})"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=switched,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def time_numpy(d: int, repeats: int, seed: int) -> None:
    """Print the seconds of the NumPy peers alone, as JSON."""
    seconds = {}
    for case in cases(d, seed):
        peer = {"numpy": _peers(case)["numpy sort"]}
        seconds[_key(case)] = _interleaved(peer, max(1, repeats // 2))["numpy"]
    sys.stdout.write(json.dumps(seconds))


def _dispatched() -> list[str]:
    """Return the optional instruction sets this NumPy uses here, as NumPy names them."""
    found = np.show_config(mode="dicts")
    features: list[str] = list(found["SIMD Extensions"].get("found", [])) if found else []
    return features


def _machine() -> Json:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "processor": platform.processor() or platform.machine(),
        "numpy dispatches to": _dispatched(),
        "threads": 1,
    }
