"""Figures, drawn with matplotlib from the plain data that is kept beside them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from adahb.experiments.store import Json

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which readers with any colour vision tell apart.
COLOURS = (
    "#000000",
    "#7f7f7f",
    "#0072B2",
    "#56B4E9",
    "#D55E00",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#8C6D1F",
)
GAP_COLOURS = tuple(COLOURS[k] for k in (1, 0, 2, 3, 7, 4, 8, 6))
DEEP_COLOURS = tuple(COLOURS[k] for k in (4, 2, 0, 6, 7, 3, 5, 8, 1))
"""The same in the order of the curves of figure 6, and of figures 1 to 4."""


def figure5(data: Json) -> Figure:
    """f(w_t) against t, a panel for each T; published curves solid, ours dashed."""
    from matplotlib.figure import Figure

    panels = data["panels"]
    figure = Figure(figsize=(5.2 * len(panels), 4.6), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _panel(axes, panel)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _panel(axes: Axes, panel: Json) -> None:
    T = panel["T"]
    for colour, curve in zip(COLOURS, panel["curves"], strict=True):
        published = curve["published"]
        axes.plot(
            panel["step"],
            curve["value"],
            color=colour,
            linewidth=1.8 if published else 1.2,
            linestyle="-" if published else (0, (4, 1.5)),
            label=curve["label"],
        )
    axes.axhline(
        panel["lower_bound"],
        color="#555555",
        linewidth=1,
        linestyle=":",
        label="lower bound for PSG",
    )
    axes.set(
        title=f"T = {T}",
        xlabel="iteration $t$",
        ylabel="$f(w_t) - f^*$",
        xlim=(0, T * 1.015),
        ylim=(0, None),
    )
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def figure6(data: Json) -> Figure:
    """f(w) - f* against the epoch on a log scale, a panel for each data set, bands over repeats."""
    from matplotlib.figure import Figure

    panels = data["panels"]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows + 0.5), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(places, panels, strict=False):
        _gaps(axes, panel)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _gaps(axes: Axes, panel: Json) -> None:
    for colour, curve in zip(GAP_COLOURS, panel["curves"], strict=True):
        axes.fill_between(
            panel["epoch"], curve["low"], curve["high"], color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(
            panel["epoch"],
            curve["value"],
            color=colour,
            linewidth=1.6,
            linestyle="-" if curve["published"] else (0, (4, 1.5)),
            label=curve["label"],
        )
    axes.set_yscale("log")
    axes.set(
        title=f"{panel['dataset']} (τ = {panel['radius']:g})",
        xlabel="epoch",
        ylabel="$f(w_t) - f^*$",
        xlim=(0, panel["epoch"][-1]),
    )
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def render(figure: Figure, kind: str) -> bytes:
    """The figure as the bytes of a PNG or an SVG, the same for the same data."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "adahb", "svg.fonttype": "path"}):
        if kind == "svg":
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        else:
            figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


DEEP = {
    1: ("cnn", "train_loss", "training loss"),
    2: ("cnn", "test_accuracy", "test accuracy"),
    3: ("resnet", "train_loss", "training loss"),
    4: ("resnet", "test_accuracy", "test accuracy"),
}
"""What the paper's figures 1 to 4 show: networks whose names begin so, and a quantity."""


def deep_panels(data: Json, number: int) -> list[Json]:
    """The cells that a figure shows."""
    return [cell for cell in data["cells"] if cell["network"].startswith(DEEP[number][0])]


def figure_deep(data: Json, number: int, protocol: str) -> Figure:
    """One of the figures 1 to 4: a panel for each cell, bands over the seeds."""
    from matplotlib.figure import Figure

    _, quantity, label = DEEP[number]
    panels = deep_panels(data, number)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows + 0.5), layout="constrained")
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, cell in zip(places, panels, strict=False):
        for colour, row in zip(DEEP_COLOURS, cell["protocols"][protocol], strict=False):
            _band(axes, row, quantity, colour)
        axes.set(title=f"{cell['network']}, {cell['dataset']}", xlabel="epoch", ylabel=label)
        if quantity == "train_loss":
            axes.set_yscale("log")
        axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    handles, labels = places[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _band(axes: Axes, row: Json, quantity: str, colour: str) -> None:
    curve = row[f"{quantity} curve"]
    epochs = range(1, len(curve["value"]) + 1)
    low, high = curve["low"], curve["high"]
    if quantity == "train_loss":  # on a log scale an interval that crosses zero ends at its axis
        low = [max(x, y / 10) for x, y in zip(low, curve["value"], strict=True)]
    axes.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(epochs, curve["value"], color=colour, linewidth=1.6, label=row["label"])
