"""The tables of the report: a section for each kind of file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adahb.experiments import result_tables
from adahb.experiments.result_files import (
    DEEP,
    DIGITS,
    FORMS,
    LINEAR,
    PRECISION,
    PROJECTION,
    STEP,
    Kind,
    ResultFile,
    of_kind,
)
from adahb.experiments.store import Json
from adahb.experiments.tables import Table, linear_tables

Maker = Callable[[Any], dict[str, Table]]


def sections(files: Sequence[ResultFile]) -> list[Json]:
    """A section for each kind of table, with what there is or the command that makes it."""
    found = []
    for kind, title, about, make in _SECTIONS:
        groups = []
        for file in of_kind(files, kind):
            with file.understood() as content:
                tables = [
                    {"caption": caption, "head": head, "rows": rows}
                    for caption, (head, rows) in make(content).items()
                    if rows
                ]
            groups.append({"command": file.command, "tables": tables, "name": file.name})
        found.append(
            {
                "id": "table-" + kind.pattern.partition(".")[0].strip("-*"),
                "title": title,
                "about": about,
                "command": kind.command,
                "groups": groups,
            }
        )
    return found


def _deep_tables(content: Json) -> dict[str, Table]:
    return {
        f"{cell['network']} on {cell['dataset']}: {cell['epochs']} epochs, batch {cell['batch']}, "
        f"{cell['precision']}": result_tables.deep_cell(cell)
        for cell in content["cells"]
    }


def _digits_tables(content: Json) -> dict[str, Table]:
    return {
        f"{content['network']}, {content['epochs']} epochs": result_tables.rivals(content),
        "AdaHB's training loss over its own grid": result_tables.grid(content),
    }


def _step_tables(content: Json) -> dict[str, Table]:
    return {
        "AdaHB beside Adam": result_tables.step(content),
        "Everyone: time over that of torch's fused Adam": result_tables.step_contenders(content),
    }


def _projection_tables(content: Json) -> dict[str, Table]:
    kinds = dict.fromkeys(case["dtype"] for case in content["cases"])
    return {
        f"Milliseconds, and how many times faster, {dtype}": result_tables.projection(
            content, dtype
        )
        for dtype in kinds
    }


_SECTIONS: tuple[tuple[Kind, str, str, Maker], ...] = (
    (
        DEEP,
        "Deep networks, in every protocol",
        (
            "α is chosen for each optimizer by the test accuracy at the end (published, as the "
            "paper did), by the accuracy on images held out of the training set (fair) or by the "
            "training loss (training). Training loss is the mean over the last epoch's steps, with "
            "dropout, as Keras reports it; the last column has none. Differences are paired by "
            "seed; all intervals are 95 %."
        ),
        _deep_tables,
    ),
    (
        DIGITS,
        "Digits: the defaults beside tuned rivals",
        "Training loss and test accuracy at the end, five seeds.",
        _digits_tables,
    ),
    (
        FORMS,
        "Forms and projections under constraints",
        "log10 of the training loss.",
        lambda content: {content["network"]: result_tables.forms(content)},
    ),
    (
        PRECISION,
        "Precision of states and weights",
        "log10 of the training loss.",
        lambda content: {content["network"]: result_tables.precision(content)},
    ),
    (
        STEP,
        "Benchmark: a step",
        "Medians; ratios are taken within one run, turn by turn.",
        _step_tables,
    ),
    (LINEAR, "Benchmark: linear models", "Medians.", linear_tables),
    (
        PROJECTION,
        "Benchmark: projections",
        (
            "The best of calls in a row; cold is the ratio for a call that finds other data in the "
            "caches."
        ),
        _projection_tables,
    ),
)
