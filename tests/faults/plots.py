"""Pictures of long runs, from the data of `long.soak`.

``python -m tests.faults.plots results/soak.json`` draws them beside that file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adahb._files import write_whole
from adahb.experiments.figures import COLOURS, render
from adahb.experiments.store import read_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Json = dict[str, Any]
MIB = 1 << 20


def drift(data: Json) -> Figure:
    """How far float32 is from float64 against the step, and the distance that is promised."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    smallest = min(d for curve in data["curves"] for d in curve["distance"] if d > 0)
    for colour, curve in zip(COLOURS, data["curves"], strict=False):
        nearest = curve["rounding"] == "nearest"
        axes.plot(
            curve["step"],
            [max(d, smallest) for d in curve["distance"]],  # equal bits are at the bottom
            color=colour,
            linewidth=1.6,
            linestyle="-" if nearest else (0, (4, 1.5)),
            label=curve["method"] if nearest else f"{curve['method']}, {curve['rounding']}",
        )
    promised = data["limits"]["nearest"]
    axes.axhline(promised, color="#555555", linewidth=1, linestyle=":", label="promised")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(
        title="float32 beside float64",
        xlabel="step",
        ylabel="largest difference of a coordinate",
        xlim=(1, max(curve["step"][-1] for curve in data["curves"])),
    )
    _finish(axes)
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def memory(data: Json) -> Figure:
    """Memory of a training loop and of a sweep, above what each had after a third of the way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    loop, sweep = data["loop"], data["sweep"]
    _levels(left, loop["step"], {"process": loop["resident"], "Python objects": loop["traced"]})
    left.set(title="a training loop", xlabel="step")
    _levels(right, sweep["run"], {"parent": sweep["parent"], "workers": sweep["workers"]})
    right.set(title="a sweep in two processes", xlabel="run")
    return figure


def _levels(axes: Axes, x: list[int], lines: dict[str, list[int]]) -> None:
    warm, reached = len(x) // 3, [-1.0, 1.0]  # at least: what is flat is seen to be
    for colour, (label, values) in zip(COLOURS, lines.items(), strict=False):
        levels = [(v - values[warm]) / MIB for v in values]
        axes.plot(x, levels, color=colour, linewidth=1.6, label=label)
        reached += levels[warm:]
    axes.axvline(x[warm], color="#555555", linewidth=1, linestyle=":", label="warm")
    axes.set(ylabel="MiB above that when warm", xlim=(0, x[-1]))
    axes.set_ylim(1.1 * min(reached), 1.1 * max(reached))  # the way up may begin far below
    _finish(axes)
    axes.legend(frameon=False, fontsize="small")


def _finish(axes: Axes) -> None:
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    file = Path(sys.argv[1])
    data = read_json(file)["parts"]["long"]
    for name, figure in (("drift", drift(data["drift"])), ("memory", memory(data))):
        for kind in ("png", "svg"):
            write_whole(file.with_name(f"soak-{name}.{kind}"), render(figure, kind))


if __name__ == "__main__":
    main()
