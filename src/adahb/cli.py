"""The ``adahb`` command: a thin door that parses, calls and prints."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

import adahb
from adahb._stopping import Interrupted, stoppable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adahb.experiments.backends import Dask
    from adahb.experiments.convex import Problem

app = typer.Typer(
    help="Adaptive heavy-ball methods: the paper's figures and claims as commands.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="Reproduce the paper's experiments.", no_args_is_help=True)
bench = typer.Typer(help="Measure speed beside named peers.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
app.add_typer(bench, name="bench")

stdout = Console(markup=False, emoji=False)
stderr = Console(markup=False, emoji=False, stderr=True)

OutDir = Annotated[
    Path, typer.Option("--out", help="Folder for the results; runs already in it are kept.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data", envvar="ADAHB_DATA", help="Folder with LIBSVM files."),
]
Sets = Annotated[
    list[str] | None, typer.Option("--sets", help="Data sets; repeat it, or use commas.")
]
BackendName = Annotated[
    str, typer.Option("--backend", help="loky: on this machine; dask: on a cluster.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Of the cluster: tcp://host:8786."),
]
CPUS = os.cpu_count() or 1
HORIZONS = "1000,5000"
LONGEST = 1_000_000


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Adaptive heavy-ball methods: the paper's figures and claims as commands."""
    if version:
        stdout.print(adahb.__version__, highlight=False)
        raise typer.Exit


@reproduce.command("synthetic")
def reproduce_synthetic(
    out: OutDir,
    horizons: Annotated[
        list[str] | None,
        typer.Option("--T", help=f"Horizon; repeat it, or use commas.  [default: {HORIZONS}]"),
    ] = None,
    c: Annotated[float, typer.Option("--c", help="Constant of the function, and of PSG.")] = 2.0,
    jobs: Jobs = CPUS,
) -> None:
    """Draw figure 5, f(w_t) on the hard function: PNG, SVG and the data as JSON.

    [dim]adahb reproduce synthetic --out results[/dim]

    [dim]adahb reproduce synthetic --out results --T 500,2000 --c 4[/dim]
    """
    from adahb.experiments import commands

    T = _integers("--T", horizons or [HORIZONS])
    _list(commands.draw_synthetic(out, T, c, workers=jobs, console=stderr))


@reproduce.command("convex")
def reproduce_convex(
    out: OutDir,
    data: DataDir = None,
    sets: Sets = None,
    repeats: Annotated[int, typer.Option(min=2, help="Runs of each curve.")] = 5,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of every run, not about a million steps.")
    ] = None,
    jobs: Jobs = CPUS,
    backend: BackendName = "loky",
    scheduler: Scheduler = None,
) -> None:
    """Draw figure 6, hinge losses on l1 balls by the epoch: PNG, SVG and the data as JSON.

    Without --sets it takes all sets of the paper that are in the folder or can be downloaded, and
    if there are none, those that scikit-learn carries.

    [dim]adahb reproduce convex --data ~/libsvm --out results[/dim]

    [dim]adahb reproduce convex --sets breast_cancer,digits --out results --repeats 2[/dim]
    """
    from adahb.experiments import commands

    cluster = _cluster(backend, scheduler)
    _list(
        commands.draw_convex(
            out,
            _problems(data, sets),
            repeats=repeats,
            epochs=epochs,
            workers=jobs,
            console=stderr,
            backend=cluster,
        )
    )


@reproduce.command("quick")
def reproduce_quick(out: OutDir, jobs: Jobs = CPUS) -> None:
    """Figures 1 to 6 and all claims on what scikit-learn carries, and a report: `make reproduce`.

    Interrupted, the same command goes on from there.

    [dim]adahb reproduce quick --out reproduction[/dim]
    """
    from adahb.experiments import commands, convex, deep, printed, report

    def begin(part: str) -> None:
        stderr.print(part, highlight=False)

    T = _integers("--T", [HORIZONS])
    problems = convex.bundled()
    cells = deep.cells("quick", home=None, device="cpu", bf16=False)
    begin("1 of 4: figure 5, the hard function")
    paths = commands.draw_synthetic(out, T, 2.0, workers=jobs, console=stderr)
    begin("2 of 4: figure 6, hinge losses on two small sets")
    paths += commands.draw_convex(
        out, problems, repeats=5, epochs=None, workers=jobs, console=stderr
    )
    begin("3 of 4: figures 1 to 4, small networks on scikit-learn's digits")
    _, drawn = commands.train_deep(
        out, cells, "quick", whole=False, in_flight=jobs, budget=None, console=stderr
    )
    begin("4 of 4: the claims")
    judged, more = commands.judge_claims(out, problems, workers=jobs, console=stderr)
    printed.claims(judged, stdout)
    _list([*paths, *drawn, *more, report.write_report(out, out)])


@reproduce.command("digits")
def reproduce_digits(
    out: OutDir,
    grid: Annotated[bool, typer.Option("--grid", help="Also AdaHB over lr and tick.")] = False,
    forms: Annotated[
        bool, typer.Option("--forms", help="Only the forms and projections, under constraints.")
    ] = False,
    precision: Annotated[
        bool, typer.Option("--precision", help="Only narrow states and bfloat16 weights.")
    ] = False,
    jobs: Jobs = CPUS,
) -> None:
    """Train a small network on scikit-learn's digits: AdaHB's defaults beside tuned rivals.

    [dim]adahb reproduce digits --out results[/dim]

    [dim]adahb reproduce digits --out results --forms[/dim]
    """
    from adahb.experiments import commands, printed

    if grid + forms + precision > 1:
        raise typer.BadParameter("--grid, --forms and --precision exclude each other")
    if precision:
        found, paths = commands.compare_precisions(out, workers=jobs, console=stderr)
        printed.precisions(found, stdout)
    elif forms:
        found, paths = commands.compare_forms(out, workers=jobs, console=stderr)
        printed.forms(found, stdout)
    else:
        found, paths = commands.train_digits(out, grid=grid, workers=jobs, console=stderr)
        printed.digits(found, stdout)
    _list(paths)


@reproduce.command("deep")
def reproduce_deep(
    out: OutDir,
    preset: Annotated[str, typer.Option(help="quick, paper or modern.")] = "quick",
    data: Annotated[
        Path | None,
        typer.Option("--data", envvar="ADAHB_DATA", help="Folder with MNIST, CIFAR-10, ..."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = CPUS,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Seconds after which no run is begun.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of every run.")] = None,
    networks: Annotated[
        list[str] | None, typer.Option("--networks", help="Those of the preset to train.")
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option("--datasets", help="Those of the preset to train on.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Every seed over the whole grid.")] = False,
    backend: BackendName = "loky",
    scheduler: Scheduler = None,
) -> None:
    """Draw figures 1 to 4, networks trained by six optimizers: figures, tables, claims C5 to C7.

    Runs are kept one by one, so that the same command goes on where it was stopped; files in
    OUT/runs can be copied from one machine to another.  The preset "quick" trains on scikit-learn's
    digits, which stand in for the paper's data.

    [dim]adahb reproduce deep --out results[/dim]

    [dim]adahb reproduce deep --preset paper --data ~/data --device cuda --out results[/dim]

    [dim]adahb reproduce deep --preset paper --data /shared/data --backend dask
    --scheduler tcp://node1:8786 --out results[/dim]
    """
    from adahb.experiments import commands, deep, printed

    cluster = _cluster(backend, scheduler)
    if device not in ("cpu", "cuda"):
        raise typer.BadParameter(f"--device takes cpu or cuda, got {device!r}")
    if preset not in deep.PRESETS:
        raise typer.BadParameter(f"--preset takes {', '.join(deep.PRESETS)}, got {preset!r}")
    cells = deep.available(
        deep.cells(
            preset,
            home=None if data is None else str(data),
            device=device,
            bf16=device == "cuda",
            epochs=epochs,
            networks=_names(networks),
            datasets=_names(datasets),
        ),
        lambda line: stderr.print(line, highlight=False, soft_wrap=True),
    )
    found, paths = commands.train_deep(
        out,
        cells,
        preset,
        whole=whole,
        in_flight=jobs,
        budget=budget,
        console=stderr,
        backend=cluster,
    )
    if found is not None:
        printed.deep(found, stdout)
        _list(paths)
    if found is None or found["unfinished"]:
        stderr.print("the budget is spent; the same command goes on from there", highlight=False)


@app.command("claims")
def claims(out: OutDir, data: DataDir = None, sets: Sets = None, jobs: Jobs = CPUS) -> None:
    """Judge the claims C1 to C8: numbers, intervals and verdicts.

    The runs of the convex claims are made where they are missing.  Those about figure 6 are judged
    on the sets of the paper that are in the folder, and without --data and --sets on what
    scikit-learn carries.  C5 to C7, about networks, are read from what `adahb reproduce deep` has
    left in OUT; what it has not measured is said to be so.  The code is 0 whatever the verdicts.

    [dim]adahb claims --out results[/dim]

    [dim]adahb claims --out results --data ~/libsvm[/dim]
    """
    from adahb.experiments import commands, printed

    problems = None if data is None and sets is None else _problems(data, sets)
    judged, paths = commands.judge_claims(out, problems, workers=jobs, console=stderr)
    printed.claims(judged, stdout)
    _list(paths)


@app.command("report")
def report(
    results: Annotated[Path, typer.Option(help="Folder that `adahb reproduce quick` has filled.")],
    out: Annotated[Path, typer.Option(help="Folder for the page.")],
) -> None:
    """Write the results as one self-contained page.

    [dim]adahb report --results results --out results[/dim]
    """
    from adahb.experiments.report import write_report

    _list([write_report(results, out)])


@bench.command("projection")
def bench_projection(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    d: Annotated[int, typer.Option("--d", min=1, max=10**8, help="Number of entries.")] = 1_000_000,
    repeats: Annotated[int, typer.Option(min=1, help="The best of so many is kept.")] = 15,
) -> None:
    """Time the l1 and simplex projections beside NumPy's sort and compiled peers, on one thread.

    [dim]adahb bench projection --json > projection.json[/dim]
    """
    from adahb.experiments import bench_projection, printed
    from adahb.experiments.store import to_json

    with stderr.status("measuring"):
        result = bench_projection.run(d, repeats)
    if as_json:
        sys.stdout.write(to_json(result, 1))
    else:
        printed.projection(result, stdout)


@bench.command("step")
def bench_step(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each optimizer, at most.")] = 15,
    scale: Annotated[float, typer.Option(help="Multiplies the sizes, for a quick look.")] = 1.0,
    partial: Annotated[
        Path | None, typer.Option(help="File for the JSON so far, written after every case.")
    ] = None,
) -> None:
    """Time a step of our optimizers beside those of torch and of installed peers.

    [dim]adahb bench step --device cuda --json > step.json[/dim]
    """
    from adahb.experiments import bench_step, printed
    from adahb.experiments.store import to_json

    with stderr.status("measuring"):
        result = bench_step.run(device, repeats, scale=scale, out=partial)
    if as_json:
        sys.stdout.write(to_json(result, 1))
    else:
        printed.steps(result, stdout, stderr)


@bench.command("training")
def bench_training(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    networks: Annotated[
        list[str] | None, typer.Option("--networks", help="cnn, cnn-paper, resnet18, resnet20.")
    ] = None,
    modes: Annotated[
        list[str] | None, typer.Option("--modes", help="eager, captured, compiled.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Epochs that are timed.")] = 3,
    partial: Annotated[
        Path | None, typer.Option("--partial", help="File for the JSON so far.")
    ] = None,
) -> None:
    """Time an epoch of the deep experiments on a GPU, eager, captured and compiled.

    [dim]adahb bench training --json > training.json[/dim]
    """
    from adahb.experiments import bench_training, printed
    from adahb.experiments.store import to_json

    with stderr.status("measuring"):
        result = bench_training.run(
            _names(networks) or bench_training.NETWORKS_TIMED,
            modes=_names(modes) or tuple(bench_training.MODES),
            repeats=repeats,
            out=partial,
        )
    if as_json:
        sys.stdout.write(to_json(result, 1))
    else:
        printed.training(result, stdout)


@bench.command("linear")
def bench_linear(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    data: DataDir = None,
    sets: Sets = None,
    parts: Annotated[
        list[str] | None,
        typer.Option("--parts", help="steps, accuracy, growth, auto, memory.  [default: all]"),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each contender.")] = 5,
    limit: Annotated[float, typer.Option(help="Seconds after which HiGHS is stopped.")] = 600.0,
    scale: Annotated[float, typer.Option(help="Shortens everything, for a quick look.")] = 1.0,
    partial: Annotated[
        Path | None,
        typer.Option("--partial", help="File for the JSON so far; parts not asked for stay."),
    ] = None,
) -> None:
    """Time the linear estimators beside SGDClassifier, LinearSVC, HiGHS and a dense loop.

    [dim]adahb bench linear --data ~/libsvm --json > linear.json[/dim]

    [dim]adahb bench linear --sets breast_cancer --scale 0.1[/dim]
    """
    from adahb.experiments import bench_linear, printed
    from adahb.experiments.store import to_json

    problems = _problems(data, sets)
    wanted = [part for text in parts or bench_linear.PARTS for part in text.split(",")]
    with stderr.status("measuring"):
        result = bench_linear.run(
            problems, parts=wanted, repeats=repeats, limit=limit, scale=scale, out=partial
        )
    if as_json:
        sys.stdout.write(to_json(result, 1))
    else:
        printed.linear(result, stdout)


def main() -> None:
    """Run the command; what goes wrong is one line on standard error and a code that says so."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may be no text
    try:
        with stoppable():
            app()
    except Interrupted as interruption:
        stderr.print(str(interruption), highlight=False, soft_wrap=True)
        sys.exit(interruption.code)
    except ModuleNotFoundError as error:
        hint = f"{error}; pip install 'adahb[experiments]' brings what the commands need"
        stderr.print(Text.assemble(("error: ", "red"), hint), soft_wrap=True)
        sys.exit(1)
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        stderr.print(Text.assemble(("error: ", "red"), str(error)), soft_wrap=True)
        sys.exit(1)


def _cluster(backend: str, scheduler: str | None) -> Dask | None:
    """The cluster that is asked for; None for this machine."""
    from adahb.experiments.backends import Dask

    if backend not in ("loky", "dask"):
        raise typer.BadParameter(f"--backend takes loky or dask, got {backend!r}")
    if (backend == "dask") != (scheduler is not None):
        raise typer.BadParameter("--backend dask and --scheduler ADDRESS belong together")
    return None if scheduler is None else Dask(scheduler)


def _problems(data: Path | None, sets: Sequence[str] | None) -> list[Problem]:
    """The problems of figure 6, with a word about those that cannot be had."""
    from adahb.experiments.convex import available

    return available(
        None if data is None else str(data),
        _names(sets),
        lambda line: stderr.print(line, highlight=False, soft_wrap=True),
    )


def _names(texts: Sequence[str] | None) -> list[str] | None:
    """Names given one by one or separated by commas; None where none was given."""
    return None if texts is None else [name for text in texts for name in text.split(",")]


def _integers(name: str, values: Sequence[str]) -> list[int]:
    """Whole numbers from 1 to LONGEST, given one by one or separated by commas."""
    texts = [text for value in values for text in value.split(",")]
    longest = len(str(LONGEST))
    if not all(
        re.fullmatch(rf"\s*0*[0-9]{{1,{longest}}}\s*", text) and 1 <= int(text) <= LONGEST
        for text in texts
    ):
        raise typer.BadParameter(
            f"{name} takes whole numbers from 1 to {LONGEST}, got {','.join(values)!r}"
        )
    return [int(text) for text in texts]


def _list(paths: Sequence[Path]) -> None:
    for path in paths:
        stdout.print(str(path), highlight=False, soft_wrap=True)
