"""The figures of the paper as charts, with the pictures that stand in for them."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from adahb.experiments import charts
from adahb.experiments.figures import deep_panels
from adahb.experiments.findings import STAND_IN
from adahb.experiments.result_files import (
    DEEP,
    FIGURE5,
    FIGURE6,
    Kind,
    ResultFile,
    of_kind,
    picture,
)
from adahb.experiments.store import Json

FIGURES: dict[int, tuple[str, Kind, str]] = {
    1: ("training loss of CNNs", DEEP, ""),
    2: ("test accuracy of CNNs", DEEP, ""),
    3: ("training loss of ResNets", DEEP, ""),
    4: ("test accuracy of ResNets", DEEP, ""),
    5: (
        "the hard function",
        FIGURE5,
        (
            "Every method starts at the optimum, and every subgradient leads away from it. Near T "
            "the last iterate of the subgradient method (PSG, last) is driven above its lower "
            "bound, log T/(32c√T). Solid curves are the paper's, with its constants; dashed ones "
            "are added."
        ),
    ),
    6: (
        "the hinge loss on l1 balls",
        FIGURE6,
        (
            "One sample a step, every method with its own best α of a grid; geometric means and "
            "range over the repeats, f* certified by duality. Solid curves are the paper's, dashed "
            "ones are added; the paper cites NAG without printing it."
        ),
    ),
}
"""What each figure shows, the files it is drawn from, and what a reader should know."""
PROTOCOLS = ("published", "fair", "training")


def figure(n: int, folder: Path, files: Sequence[ResultFile]) -> Json:
    """A figure of the paper, with a chart for each file that has something to show in it."""
    title, kind, about = FIGURES[n]
    drawn = ((file, *_chart(n, file)) for file in of_kind(files, kind))
    return {
        "number": n,
        "title": title,
        "about": about,
        "command": kind.command,
        "blocks": [_block(n, file, chart, words, folder) for file, chart, words in drawn if chart],
    }


def _chart(n: int, file: ResultFile) -> tuple[Json, str]:
    """What a file shows in a figure, and words about it; nothing where it has nothing to show."""
    with file.understood() as content:
        if file.kind is FIGURE5:
            return charts.figure5(content), ""
        if file.kind is FIGURE6:
            return charts.figure6(content), ""
        if deep_panels(content, n):
            return charts.figure_deep(content, n), _about(content, n)
    return None, ""


def _block(n: int, file: ResultFile, chart: Json, about: str, folder: Path) -> Json:
    """A chart with the pictures that stand in for it."""
    is_deep = file.kind is DEEP
    panels = chart["views"][0]["panels"]
    axes = f"{re.sub('<.*?>', '', chart['y'])} against {chart['x']}"
    curves = ", ".join(curve["label"] for curve in chart["curves"])
    titles = "; ".join(panel["title"] for panel in panels)
    says = f"Figure {n}, {len(panels)} panel{'s' * (len(panels) > 1)} ({titles}): {axes}, {curves}"
    names = {f"-figure{n}-{p}": f"α by {p} protocol" for p in PROTOCOLS} if is_deep else {"": ""}
    found = {view: picture(folder, file.path.stem + end) for end, view in names.items()}
    images = [
        {
            "source": f"data:{kept[0]};base64,{base64.b64encode(kept[1]).decode()}",
            "alt": f"{says}; {view}." if view else f"{says}.",
            "caption": view,
        }
        for view, kept in found.items()
        if kept is not None
    ]
    return {
        "id": f"figure-{n}-{file.stem}",
        "title": f"Preset {file.preset}" if is_deep else "",
        "about": about,
        "chart": {**chart, "says": says},
        "images": images,
        "command": file.command,
    }


def _about(content: Json, n: int) -> str:
    cells = deep_panels(content, n)
    seeds = f"Means of {len(content['seeds'])} seeds with 95 % intervals."
    return f"{seeds} {STAND_IN}" if all(cell["dataset"] == "digits" for cell in cells) else seeds


def coverage(files: Sequence[ResultFile]) -> list[Json]:
    """What of the paper's deep experiments has been measured, and what has not."""
    from adahb.experiments.deep import PRESETS, SIX

    six = {entry.label for entry in SIX}
    measured: dict[tuple[str, str], str] = {}
    for file in of_kind(files, DEEP):
        with file.understood() as content:
            for cell in content["cells"]:
                if six <= {row["label"] for row in cell["protocols"]["fair"]}:
                    where = (cell["network"], cell["dataset"])
                    measured.setdefault(where, f"{cell['epochs']} epochs, {file.name}")
    return [
        {
            "network": cell.network,
            "dataset": cell.dataset,
            "found": measured.get((cell.network, cell.dataset)),
        }
        for cell in PRESETS["paper"]
    ]
