"""Results as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from adahb.experiments import result_tables
from adahb.experiments.result_tables import interval
from adahb.experiments.store import Json
from adahb.experiments.tables import linear_tables

COLOURS = {
    "supported": "green",
    "not supported": "red",
    "undecided": "yellow",
    "not measured": "dim",
}


def claims(judged: Sequence[Json], console: Console) -> None:
    """Every claim with its findings, then all verdicts, then how to measure what is not."""
    verdicts = Table("claim", "statement", "verdict", title="The claims", pad_edge=False)
    for claim in judged:
        name, statement, verdict = claim["id"], claim["statement"], claim["verdict"]
        findings = Table("found", "value", "needed", "", pad_edge=False, title_justify="left")
        findings.title = f"{name}: {statement}"
        for finding in claim["findings"]:
            estimate = interval(finding["estimate"])
            word = finding["verdict"] or "beside"
            findings.add_row(finding["what"], estimate, finding["range"], word)
        if claim["findings"]:
            console.print(findings)
        verdicts.add_row(name, statement, Text(verdict, COLOURS[verdict]))
    console.print(verdicts)
    for claim in judged:
        if not claim["findings"]:
            console.print(f"{claim['id']}: {claim['remark']}", highlight=False, soft_wrap=True)


def precisions(found: Json, console: Console) -> None:
    """Narrow states and weights beside float32."""
    table = Table("weights", "rounding", "states", "log10 loss", "minus float32's", "test accuracy")
    for row in found["settings"]:
        choice = (row["weights"], row["rounding"] or "", row["state_dtype"] or "")
        keys = ("log10_train_loss", "log10_loss_minus_that_of_float32", "test_accuracy")
        table.add_row(*choice, *(interval(row[key]) for key in keys))
    console.print(table)


def deep(found: Json, console: Console) -> None:
    """Every network on every data set, by both protocols, and the claims."""
    for cell in found["cells"]:
        title = f"{cell['network']} on {cell['dataset']}, {cell['epochs']} epochs"
        table = Table("optimizer", "α by", "α", title=title, title_justify="left", pad_edge=False)
        for column in ("training loss [95 %]", "test accuracy [95 %]"):
            table.add_column(column, justify="right")
        for protocol, rows in cell["protocols"].items():
            for row in rows:
                numbers = interval(row["train_loss"]), interval(row["test_accuracy"])
                table.add_row(row["label"], protocol, f"{row['alpha']:g}", *numbers)
        console.print(table)
    for claim in found["claims"]:
        console.print(f"{claim['id']}: {claim['statement']}: {claim['verdict']}", highlight=False)


def digits(found: Json, console: Console) -> None:
    """AdaHB beside its rivals."""
    table = Table("optimizer", "lr", "tick", "training loss", "test accuracy", pad_edge=False)
    for row in found["settings"]:
        choice = ("default" if row["lr"] is None else f"{row['lr']:g}", str(row["tick"] or ""))
        loss, accuracy = interval(row["train_loss"]), interval(row["test_accuracy"])
        table.add_row(row["optimizer"], *choice, loss, accuracy)
    console.print(table)


def forms(found: Json, console: Console) -> None:
    """Both forms and projections."""
    columns = ("set", "share", "form", "projection", "log10 training loss", "test accuracy")
    table = Table(*columns, "zeros", pad_edge=False)
    for row in found["settings"]:
        loss, accuracy = interval(row["log10_train_loss"]), interval(row["test_accuracy"])
        chosen = (row["kind"], f"{row['share']:g}", row["form"], row["projection"])
        table.add_row(*chosen, loss, accuracy, f"{row['zeros']['value']:.0%}")
    console.print(table)


def projection(result: Json, console: Console) -> None:
    """Our projections beside the peers'."""
    table = Table(
        "case", "dtype", "ours, ms", title="Projection: times faster than", pad_edge=False
    )
    peers = list(dict.fromkeys(p for case in result["cases"] for p in case["times faster than"]))
    for peer in peers:
        table.add_column(peer, justify="right")
    for case in result["cases"]:
        ratios = (case["times faster than"].get(peer) for peer in peers)
        cells = ("" if ratio is None else f"{ratio:.1f}" for ratio in ratios)
        table.add_row(
            case["name"], case["dtype"], f"{1e3 * case['seconds']['ours']['best']:.2f}", *cells
        )
    console.print(table)


def steps(result: Json, console: Console, errors: Console) -> None:
    """A step of each optimizer; what could not be measured goes to ``errors``."""
    for case in result["cases"]:
        table = Table(Column("optimizer", no_wrap=True), "ms", "host, ms", pad_edge=False)
        for column in ("over fused Adam", "of copy bandwidth", "state, bytes"):
            table.add_column(column, justify="right")
        table.title = f"{case['name']}: {case['parameters']} parameters in {case['tensors']}"
        for name, found in case["contenders"].items():
            over = found.get("time over torch Adam fused", {}).get("median")
            share, state = found.get("copy bandwidth"), found.get("state bytes")
            table.add_row(
                name,
                f"{1e3 * found['seconds']['median']:.3f}",
                f"{1e3 * found['host']['median']:.3f}",
                "" if over is None else f"{over:.2f}",
                "" if share is None else f"{share:.0%}",
                "" if state is None else f"{state:.1f}",
            )
        console.print(table)
        for name, reason in case["failed"].items():
            errors.print(f"{name}: {reason}", highlight=False, soft_wrap=True)


def linear(result: Json, console: Console) -> None:
    """The parts of the linear benchmark."""
    _tables(linear_tables(result), console)


def training(result: Json, console: Console) -> None:
    """Epochs of networks, alone and in flight."""
    _tables(result_tables.training(result), console)


def _tables(
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[str]]]], console: Console
) -> None:
    for title, (head, rows) in tables.items():
        table = Table(*head, title=title, title_justify="left", pad_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)
