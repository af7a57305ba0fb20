"""What the command line does, as functions: each writes its files whole, from complete results."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from rich.console import Console

from adahb.experiments import (
    claims,
    convex,
    deep,
    deep_results,
    digits,
    figures,
    forms,
    precision,
    report,
    synthetic,
)
from adahb.experiments.backends import Backend, OneDevice, Processes
from adahb.experiments.store import Json, Store, environment, sealed, to_json, write_whole


def draw_synthetic(
    folder: Path, horizons: Sequence[int], c: float, *, workers: int, console: Console
) -> list[Path]:
    """Figure 5 as PNG and SVG, and its data as JSON."""
    import matplotlib  # noqa: F401 - missing, it is to be missed before the runs

    store = Store(folder / "runs")
    tasks = (curve.task for T in horizons for curve in synthetic.curves(T, c))
    store.complete(tasks, workers=workers, console=console)
    data = synthetic.data(store, horizons, c)
    figure = figures.figure5(data)
    contents = {kind: figures.render(figure, kind) for kind in ("png", "svg")}
    contents["json"] = to_json(sealed(data)).encode()
    return _write(folder, {f"{report.FIGURE}.{kind}": data for kind, data in contents.items()})


def draw_convex(
    folder: Path,
    problems: Sequence[convex.Problem],
    *,
    repeats: int,
    epochs: int | None,
    workers: int,
    console: Console,
    backend: Backend | None = None,
) -> list[Path]:
    """Figure 6 as PNG and SVG, and its data as JSON."""
    import matplotlib  # noqa: F401 - missing, it is to be missed before the runs

    store = Store(folder / "runs")
    panels = [convex.contenders(p, repeats=repeats, epochs=epochs) for p in problems]
    store.complete(convex.tuning(panels), workers=workers, console=console, backend=backend)
    store.complete(convex.repeats(store, panels), workers=workers, console=console, backend=backend)
    data = convex.data(store, panels)
    figure = figures.figure6(data)
    contents = {kind: figures.render(figure, kind) for kind in ("png", "svg")}
    contents["json"] = to_json(sealed(data)).encode()
    return _write(folder, {f"{report.CONVEX}.{kind}": data for kind, data in contents.items()})


def judge_claims(
    folder: Path,
    problems: Sequence[convex.Problem] | None = None,
    *,
    workers: int,
    console: Console,
) -> tuple[list[Json], list[Path]]:
    """Every claim: the convex ones, also as JSON, and C5 to C7 as `train_deep` has left them."""
    deep_claims = deep_results.kept_claims(folder)  # a damaged file is better met before the runs
    judged = claims.judge(Store(folder / "runs"), problems, workers=workers, console=console)
    convex_claims = [claim.plain() for claim in judged]
    content = to_json(sealed({"claims": convex_claims, "environment": environment()}), 1)
    paths = _write(folder, {report.CLAIMS: content.encode()})
    return sorted([*convex_claims, *deep_claims], key=lambda claim: str(claim["id"][:2])), paths


def train_digits(
    folder: Path, *, grid: bool, workers: int, console: Console
) -> tuple[Json, list[Path]]:
    """AdaHB with its defaults beside tuned rivals on a small network, as JSON."""
    store = Store(folder / "runs")
    tasks = [task for setting in digits.settings(grid=grid) for task in digits.tasks(setting)]
    store.complete(tasks, workers=workers, console=console)
    found = digits.summary(store, grid=grid)
    return found, _write(folder, {"digits.json": to_json(sealed(found), 1).encode()})


def compare_forms(folder: Path, *, workers: int, console: Console) -> tuple[Json, list[Path]]:
    """Both forms and both projections on the same network with its dense layers confined."""
    store = Store(folder / "runs")
    store.complete(forms.free_tasks(), workers=workers, console=console)
    tasks = [task for setting in forms.settings() for task in forms.tasks(store, setting)]
    store.complete(tasks, workers=workers, console=console)
    found = forms.summary(store)
    return found, _write(folder, {"forms.json": to_json(sealed(found), 1).encode()})


def compare_precisions(folder: Path, *, workers: int, console: Console) -> tuple[Json, list[Path]]:
    """Narrow states and weights in bfloat16 beside float32, on the same network."""
    store = Store(folder / "runs")
    store.complete(precision.tasks(), workers=workers, console=console)
    found = precision.summary(store)
    return found, _write(folder, {"precision.json": to_json(sealed(found), 1).encode()})


def train_deep(
    folder: Path,
    cells: Sequence[deep.Cell],
    preset: str,
    *,
    whole: bool,
    in_flight: int,
    budget: float | None,
    console: Console,
    backend: Backend | None = None,
) -> tuple[Json | None, list[Path]]:
    """Figures 1 to 4 as PNG and SVG, with tables and claims as JSON.

    Where time runs out, of the cells whose runs are all there; None if there are none such.
    ``backend`` is by default what the device asks for: processes, or one that several runs share.
    """
    import matplotlib  # noqa: F401 - missing, it is to be missed before the runs

    store, best = Store(folder / "runs"), deep.Best()
    if backend is None:
        on_gpu = cells[0].device != "cpu"
        backend = OneDevice(in_flight) if on_gpu else Processes(in_flight)
    deadline = math.inf if budget is None else time.monotonic() + budget
    in_time = all(
        store.complete(
            stage,
            workers=in_flight,
            console=console,
            backend=backend,
            deadline=deadline,
            news=best.after,
        )
        for stage in deep.stages(cells, store, whole=whole)
    )
    done = [cell for cell in cells if in_time or deep.is_done(cell, store, whole=whole)]
    if not done:
        return None, []
    data = deep_results.data(done, store)
    data["unfinished"] = [cell.name for cell in cells if cell not in done]
    data["claims"] = [claim.plain() for claim in deep_results.claims(done, store)]
    contents = {f"deep-{preset}.json": to_json(sealed(data)).encode()}
    for number, protocol in product(figures.DEEP, deep.PROTOCOLS):
        if figures.deep_panels(data, number):
            figure = figures.figure_deep(data, number, protocol)
            for kind in ("png", "svg"):
                name = f"deep-{preset}-figure{number}-{protocol}.{kind}"
                contents[name] = figures.render(figure, kind)
    return data, _write(folder, contents)


def _write(folder: Path, contents: dict[str, bytes]) -> list[Path]:
    for name, content in contents.items():
        write_whole(folder / name, content)
    return [folder / name for name in contents]
