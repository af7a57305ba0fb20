"""What the runs of figures 1 to 4 amount to: tables, bands, paired differences, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adahb.experiments.deep import (
    BY_ACCURACY,
    GRID,
    PROTOCOLS,
    SEEDS,
    SIX,
    Cell,
    Entry,
    Protocol,
    last,
)
from adahb.experiments.findings import STAND_IN, Claim, Estimate, Finding, check_plain, mean
from adahb.experiments.result_files import DEEP, ResultFile
from adahb.experiments.store import Json, Store, read_json

OURS = "AdaHB"
"""The label of the entry that the others are compared with."""
QUANTITIES = ("train_loss", "test_accuracy")
"""What there are curves of."""
ACCURACY_SLACK = 0.005
"""Test accuracies count as equal within half a percentage point."""

Vector = NDArray[np.float64]


def data(cells: Sequence[Cell], store: Store) -> Json:
    """Tables and curves of every cell as plain data, from runs that are all in the store."""
    return {
        "seeds": list(SEEDS),
        "cells": [_cell(cell, store) for cell in cells],
        "environment": _environments(cells, store),
    }


def _cell(cell: Cell, store: Store) -> Json:
    return {
        "dataset": cell.dataset,
        "network": cell.network,
        "epochs": cell.epochs,
        "batch": cell.batch,
        "held_out": cell.held_out,
        "precision": "bfloat16 autocast" if cell.bf16 else "float32",
        "protocols": {
            p: [_row(cell, entry, p, store) for entry in cell.entries] for p in PROTOCOLS
        },
    }


def _row(cell: Cell, entry: Entry, protocol: Protocol, store: Store) -> Json:
    results = [store.result(task) for task in cell.repeats(store, entry, protocol)]
    row: Json = {
        "label": entry.label,
        "optimizer": entry.optimizer,
        "options": dict(entry.options),
        "alpha": cell.chosen(store, entry, protocol),
    }
    for quantity in QUANTITIES:
        ends = np.array([last(result, quantity) for result in results])
        row[quantity] = asdict(_mean(ends))
        row[f"{quantity} curve"] = _band([result[quantity] for result in results])
    row["final_loss"] = asdict(_mean(np.array([last(result, "final_loss") for result in results])))
    if entry.label != OURS:
        for quantity in QUANTITIES:
            row[f"AdaHB minus this, {quantity}"] = asdict(
                difference(cell, entry, protocol, quantity, store)
            )
    return row


def difference(
    cell: Cell, rival: Entry, protocol: Protocol, quantity: str, store: Store
) -> Estimate:
    """AdaHB minus a rival at the end, seed by seed: both began with the same weights."""
    us = next(entry for entry in cell.entries if entry.label == OURS)
    ours, theirs = (
        np.array([last(store.result(t), quantity) for t in cell.repeats(store, e, protocol)])
        for e in (us, rival)
    )
    return _mean(ours - theirs)


def _mean(values: Vector) -> Estimate:
    """The mean with its interval; where a run diverged, infinite without one."""
    if np.isfinite(values).all():
        return mean(values)
    return Estimate(*[float(np.nansum(values[~np.isfinite(values)]))] * 3)


def _band(curves: Sequence[Sequence[float | None]]) -> Json:
    """Mean and interval epoch by epoch, in four digits; null where a run had diverged."""
    table = np.array([[np.nan if x is None else x for x in curve] for curve in curves])
    estimates = [mean(column) for column in table.T]
    return {
        part: [float(f"{getattr(e, part):.4g}") for e in estimates]
        for part in ("value", "low", "high")
    }


def _environments(cells: Sequence[Cell], store: Store) -> list[dict[str, Any]]:
    """What the runs were made with, each combination once."""
    found: list[dict[str, Any]] = []
    for cell in cells:
        for entry in cell.entries:
            for task in cell.repeats(store, entry, "fair"):
                environment = store.result(task)["environment"]
                if environment not in found:
                    found.append(environment)
    return found


# ---------------------------------------------------------------- claims


STATEMENTS: Mapping[str, str] = MappingProxyType(
    {
        "C5": "AdaHB reaches a lower training loss than the five baselines (CNN)",
        "C6": "AdaHB reaches a lower training loss than the five baselines (ResNet)",
        "C7": "and good test accuracy, beside the best of the five baselines",
    }
)


def claims(cells: Sequence[Cell], store: Store) -> list[Claim]:
    """C5 to C7, on the cells with the paper's line-up; none where there are no such cells."""
    six = [cell for cell in cells if _has_the_six(cell)]
    cnn = [cell for cell in six if cell.network.startswith("cnn")]
    residual = [cell for cell in six if cell.network.startswith("resnet")]
    found = []
    if cnn:
        found.append(_lower_loss("C5", cnn, store))
    if residual:
        found.append(_lower_loss("C6", residual, store))
    if six:
        found.append(_good_accuracy(six, store))
    return found


def kept_claims(folder: Path) -> list[Json]:
    """C5 to C7 as the results in a folder have them, of the paper's preset before the quick one.

    What no result speaks of is there without findings, and with the command that measures it.
    """
    kept: dict[str, Json] = {}
    for preset in ("quick", "paper"):
        path = folder / f"deep-{preset}.json"
        if path.is_file():
            kept |= {claim["id"]: claim for claim in _claims_in(path)}
    command = f"adahb reproduce deep --preset paper --data DATA --out {folder}"
    nothing = {
        name: Claim(name, statement, [], f"measured by: {command}").plain()
        for name, statement in STATEMENTS.items()
    }
    return [kept.get(name, claim) for name, claim in nothing.items()]


def _claims_in(path: Path) -> list[Json]:
    with ResultFile(path, DEEP, read_json(path)).understood() as found:
        for claim in found["claims"]:
            check_plain(claim)
        return list(found["claims"])


def _has_the_six(cell: Cell) -> bool:
    """Whether the line-up is the paper's, over whatever grid."""
    return tuple(replace(entry, grid=GRID) for entry in cell.entries) == SIX


def _lower_loss(name: str, cells: Sequence[Cell], store: Store) -> Claim:
    findings = [
        Finding(
            f"training loss of AdaHB minus that of {rival.label}, {cell.name}, {protocol}",
            difference(cell, rival, protocol, "train_loss", store),
            at_most=0.0,
        )
        for cell in cells
        for protocol in PROTOCOLS
        for rival in cell.entries
        if rival.label != OURS
    ]
    return Claim(name, STATEMENTS[name], findings, _remark(cells))


def _good_accuracy(cells: Sequence[Cell], store: Store) -> Claim:
    findings = []
    for cell in cells:
        for protocol in BY_ACCURACY:
            rivals = [entry for entry in cell.entries if entry.label != OURS]
            best = max(
                rivals,
                key=lambda rival, cell=cell, protocol=protocol: np.mean(  # type: ignore[misc]
                    [
                        last(store.result(task), "test_accuracy")
                        for task in cell.repeats(store, rival, protocol)
                    ]
                ),
            )
            findings.append(
                Finding(
                    f"test accuracy of AdaHB minus that of {best.label}, the best of the five, "
                    f"{cell.name}, {protocol}",
                    difference(cell, best, protocol, "test_accuracy", store),
                    at_least=-ACCURACY_SLACK,
                )
            )
    return Claim("C7", STATEMENTS["C7"], findings, _remark(cells))


def _remark(cells: Sequence[Cell]) -> str:
    protocols = (
        "α is chosen for each optimizer by the test accuracy at the end (published), by images "
        f"held out (fair) or by the training loss (training); {len(SEEDS)} seeds, paired."
    )
    if all(cell.dataset == "digits" for cell in cells):
        protocols += f" {STAND_IN}"
    return protocols
