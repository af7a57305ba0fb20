"""The figures as small plain data that ``report.js`` draws: titles, axes, curves, numbers.

A chart has *views* of which one is seen at a time, and the same curves in every panel of a view, so
that one legend speaks for all.  Colours and dashes are those of the pictures in figures.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any, Literal

from adahb.experiments.figures import COLOURS, DEEP, DEEP_COLOURS, GAP_COLOURS, deep_panels
from adahb.experiments.store import Json

Dash = Literal["solid", "dash", "dot"]
GAP = "f(w<sub>t</sub>) − f*"
BOUND = "lower bound for PSG"
_BOUND_COLOUR = "#7f7f7f"


def figure5(data: Json) -> Json:
    """f(w_t) against t, a panel for each T, with the lower bound."""
    panels = [
        {
            "title": f"T = {panel['T']}",
            "x": _numbers(panel["step"]),
            "lines": [
                *({"value": _rounded(curve["value"])} for curve in panel["curves"]),
                {"x": _numbers([1, panel["T"]]), "value": _rounded([panel["lower_bound"]] * 2)},
            ],
        }
        for panel in data["panels"]
    ]
    curves = _published_or_not(data["panels"][0]["curves"], COLOURS)
    curves.append(_curve(BOUND, _BOUND_COLOUR, "dot"))
    return _chart("iteration t", GAP, curves, {"": panels}, log_y=False)


def figure6(data: Json) -> Json:
    """f(w) - f* against the epoch, a panel for each data set, with bands."""
    panels = [
        {
            "title": f"{panel['dataset']} (τ = {panel['radius']:g})",
            "x": _numbers(panel["epoch"]),
            "lines": [_with_band(curve) for curve in panel["curves"]],
        }
        for panel in data["panels"]
    ]
    curves = _published_or_not(data["panels"][0]["curves"], GAP_COLOURS)
    return _chart("epoch", GAP, curves, {"": panels}, log_y=True)


def figure_deep(data: Json, number: int) -> Json:
    """One of figures 1 to 4: a view for each protocol, a panel for each cell."""
    _, quantity, axis = DEEP[number]
    cells = deep_panels(data, number)
    protocols = list(cells[0]["protocols"])
    labels = dict.fromkeys(
        row["label"] for cell in cells for name in protocols for row in cell["protocols"][name]
    )
    curves = [
        _curve(label, colour, "solid")
        for label, colour in zip(labels, cycle(DEEP_COLOURS), strict=False)
    ]
    views = {
        f"α by {name} protocol": [_deep_panel(cell, name, quantity, list(labels)) for cell in cells]
        for name in protocols
    }
    return _chart("epoch", axis, curves, views, log_y=quantity == "train_loss")


def _deep_panel(cell: Json, protocol: str, quantity: str, labels: Sequence[str]) -> Json:
    """A cell's curves; one of an optimizer that is not in its line-up is empty."""
    found = {
        row["label"]: _with_band(row[f"{quantity} curve"]) for row in cell["protocols"][protocol]
    }
    epochs = len(next(iter(found.values()))["value"])
    absent = {"value": [None] * epochs}
    return {
        "title": f"{cell['network']}, {cell['dataset']}",
        "x": list(range(1, epochs + 1)),
        "lines": [found.get(label, absent) for label in labels],
    }


def _chart(
    x: str, y: str, curves: Sequence[Json], views: dict[str, list[Json]], *, log_y: bool
) -> Json:
    if not all(views.values()) or not views:
        raise ValueError("there must be panels, and there are none")
    for name, panels in views.items():
        for panel in panels:
            lengths = [len(line.get("x", panel["x"])) for line in panel["lines"]]
            if len(lengths) != len(curves):
                raise ValueError(
                    f"panel {panel['title']} {name} must have {len(curves)} curves, "
                    f"got {len(lengths)}"
                )
            if lengths != [len(line["value"]) for line in panel["lines"]]:
                raise ValueError(f"panel {panel['title']} {name} has curves of other lengths")
    shown = [{"name": name, "panels": panels} for name, panels in views.items()]
    return {"x": x, "y": y, "logY": log_y, "curves": list(curves), "views": shown}


def _published_or_not(curves: Sequence[Json], colours: Sequence[str]) -> list[Json]:
    """Solid where the paper has the curve, dashed where it is added."""
    return [
        _curve(curve["label"], colour, "solid" if curve["published"] else "dash")
        for curve, colour in zip(curves, cycle(colours), strict=False)
    ]


def _curve(label: str, colour: str, dash: Dash) -> Json:
    return {"label": str(label), "colour": colour, "dash": dash}


def _with_band(curve: Json) -> Json:
    return {part: _rounded(curve[part]) for part in ("value", "low", "high")}


def _numbers(values: Sequence[Any]) -> list[float]:
    """The same, if they are numbers."""
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise TypeError("the steps of a curve must be numbers")
    return list(values)


def _rounded(values: Sequence[Any]) -> list[float | None]:
    """Four digits of each, which is more than can be seen; null where a run had diverged."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
        for value in values
    ]
