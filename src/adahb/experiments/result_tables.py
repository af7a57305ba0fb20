"""The result files as tables of text, for the README, the docs and the report."""

from __future__ import annotations

from typing import Any

from adahb.experiments.store import Json
from adahb.experiments.tables import Row, Table

NOTHING = "–"


def number(value: float | None) -> str:
    """Three significant digits; what is not finite was kept as null.

    >>> number(0.000123456), number(-0.5077), number(None)
    ('0.000123', '-0.508', '∞')
    """
    return "∞" if value is None else f"{value:.3g}"


def interval(estimate: Json) -> str:
    """A number and its interval, or the number alone where nothing is uncertain.

    >>> interval({"value": -0.5077, "low": -0.5149, "high": -0.5005})
    '-0.508 [-0.515, -0.5]'
    """
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    return number(value) if low == high else f"{number(value)} [{number(low)}, {number(high)}]"


# ---------------------------------------------------------------- networks


def deep_cell(cell: Json) -> Table:
    """A network on a data set: what each optimizer reaches at the α that each protocol chooses."""
    head = (
        *("optimizer", "α chosen by", "α"),
        *("training loss [95 %]", "AdaHB minus this"),
        *("test accuracy [95 %]", "AdaHB minus this"),
        "loss of the final weights",
    )
    rows: list[Row] = []
    for protocol, entries in cell["protocols"].items():
        for entry in entries:
            row: Row = (entry["label"], protocol, f"{entry['alpha']:g}")
            for quantity in ("train_loss", "test_accuracy"):
                difference = entry.get(f"AdaHB minus this, {quantity}")
                row += (interval(entry[quantity]),)
                row += (NOTHING if difference is None else interval(difference),)
            rows.append((*row, interval(entry["final_loss"])))
    return head, rows


def training(found: Json) -> dict[str, Table]:
    """How long an epoch takes, and how many a device makes in a second."""
    eager = {
        (row["network"], row["batch"]): row["median"]
        for row in found["epochs"]
        if row["mode"] == "eager"
    }
    epochs: list[Row] = []
    for row in found["epochs"]:
        beside = eager.get((row["network"], row["batch"]))
        faster = NOTHING if beside is None else f"{beside / row['median']:.1f}"
        place = row["network"], str(row["batch"]), row["mode"]
        epochs.append((*place, number(row["median"]), faster))
    alone = {
        (row["network"], row["batch"]): row["epochs a second"]
        for row in found["in flight"]
        if row["in flight"] == 1
    }
    together: list[Row] = []
    for row in found["in flight"]:
        one = alone.get((row["network"], row["batch"]))
        rate = row["epochs a second"]
        more = NOTHING if one is None else f"{rate / one:.2f}"
        place = row["network"], str(row["batch"]), str(row["in flight"])
        together.append((*place, number(rate), more))
    return {
        "Seconds an epoch": (("network", "batch", "mode", "seconds", "times faster"), epochs),
        "Runs in flight": (
            ("network", "batch", "in flight", "epochs a second", "of one alone"),
            together,
        ),
    }


def rivals(found: Json) -> Table:
    """AdaHB as it comes, and every setting of the rivals."""
    rows: list[Row] = [
        (
            row["optimizer"],
            "default" if row["lr"] is None else f"{row['lr']:g}",
            interval(row["train_loss"]),
            interval(row["test_accuracy"]),
        )
        for row in found["settings"]
        if not row["tick"]
    ]
    return ("optimizer", "lr", "training loss [95 %]", "test accuracy [95 %]"), rows


def grid(found: Json) -> Table:
    """AdaHB's training loss over lr and tick; no rows where the grid was not asked for."""
    settings = [row for row in found["settings"] if row["tick"]]
    ticks = sorted({row["tick"] for row in settings})
    loss = {(row["lr"], row["tick"]): row["train_loss"]["value"] for row in settings}
    rows: list[Row] = [
        (f"lr {lr:g}", *(f"{loss[lr, tick]:.1e}" for tick in ticks))
        for lr in sorted({row["lr"] for row in settings}, reverse=True)
    ]
    return ("", *(f"tick {tick}" for tick in ticks)), rows


def forms(found: Json) -> Table:
    """Training loss in both forms and, where they differ, in both projections."""
    settings = {
        (row["kind"], row["share"], row["projection"], row["form"]): row
        for row in found["settings"]
    }
    rows: list[Row] = []
    for row in found["compared"]:
        place = (row["kind"], row["share"], row["projection"])
        pair = [settings[*place, form] for form in ("averaging", "paper")]
        rows.append(
            (
                f"{row['kind']}, {row['share']:g}",
                "any" if row["kind"] == "box" else row["projection"],
                *(f"{each['log10_train_loss']['value']:.2f}" for each in pair),
                interval(row["log10_loss_of_averaging_minus_paper"]),
                *(f"{each['zeros']['value']:.1%}" for each in pair),
            )
        )
    head = ("set, share", "projection", "averaging", "paper", "difference [95 %]")
    return (*head, "zeros, averaging", "zeros, paper"), rows


def precision(found: Json) -> Table:
    """What narrow states and weights do to the training loss."""
    keys = ("log10_train_loss", "log10_loss_minus_that_of_float32", "test_accuracy")
    rows: list[Row] = [
        (
            *(row["weights"], row["rounding"] or "", row["state_dtype"] or "float32"),
            *(interval(row[key]) for key in keys),
        )
        for row in found["settings"]
    ]
    head = ("weights", "rounding", "states", "log10 loss [95 %]", "minus float32's")
    return (*head, "test accuracy"), rows


# ---------------------------------------------------------------- benchmarks

_FUSED, _OVER = "torch Adam fused", "time over torch Adam fused"


def step(found: Json) -> Table:
    """AdaHB's step beside torch's fused Adam, in one run; on a GPU with narrow states too."""
    machine, on_gpu = found["machine"], found["device"] != "cpu"
    where = machine["gpu"] if on_gpu else f"{machine['threads']} threads"
    head: Row = (f"{where}, {found['dtype']}, torch {machine['versions']['torch']}",)
    head += ("AdaHB, ms", "Adam(fused=True), ms", "ratio")
    if on_gpu:
        head += ("of copy bandwidth", "ratio, bf16 states", "ratio, int8 states")
    return head, [_beside_adam(case, on_gpu) for case in found["cases"]]


def _beside_adam(case: Json, on_gpu: bool) -> Row:
    row: Row = (case["name"], *(_milliseconds(case, name) for name in ("AdaHB", _FUSED)))
    row += (_ratio(case, "AdaHB"),)
    if on_gpu:
        row += (f"{100 * case['contenders']['AdaHB']['copy bandwidth']:.0f} %",)
        row += tuple(_ratio(case, f"AdaHB {kind}") for kind in ("bf16", "int8"))
    return row


def step_contenders(found: Json) -> Table:
    """Everyone who took part: time over that of fused Adam, case by case."""
    cases = found["cases"]
    names = dict.fromkeys(name for case in cases for name in case["contenders"])
    head = ("optimizer", *(case["name"] for case in cases), "state, bytes a parameter")
    rows: list[Row] = []
    for name in names:
        took_part = [case["contenders"].get(name, {}) for case in cases]
        states = {f"{each['state bytes']:.2f}" for each in took_part if "state bytes" in each}
        ratios = (_ratio(case, name) for case in cases)
        rows.append((name, *ratios, " to ".join(sorted(states, key=float)) or NOTHING))
    return head, rows


def _milliseconds(case: Json, name: str) -> str:
    found = case["contenders"].get(name)
    return NOTHING if found is None else f"{1e3 * found['seconds']['median']:.2f}"


def _ratio(case: Json, name: str) -> str:
    over = case["contenders"].get(name, {}).get(_OVER)
    return NOTHING if over is None else f"{over['median']:.2f}"


def projection(found: Json, dtype: str = "float64") -> Table:
    """Our projections beside the sort-based one in NumPy."""
    cases = [case for case in found["cases"] if case["dtype"] == dtype]
    size = f"{cases[0]['d']:,}".replace(",", " ") if cases else NOTHING
    head = (f"{dtype}, d = {size}", "ms", "× NumPy", "cold", "× NumPy without SIMD")
    return head, [_speed(case) for case in cases]


def _speed(case: Any) -> Row:
    ours, numpy = case["seconds"]["ours"], case["seconds"]["numpy sort"]
    faster = case["times faster than"]
    ratios = (faster["numpy sort"], numpy["cold"] / ours["cold"], faster["numpy sort without simd"])
    return case["name"], f"{1e3 * ours['best']:.2f}", *(f"{ratio:.0f}" for ratio in ratios)


# ---------------------------------------------------------------- what it was made with


def facts(environment: Json) -> Row:
    """Versions and devices, nested or not, each as a phrase.

    >>> facts({"python": "3.12", "versions": {"torch": "2.11", "heavyball": None}, "threads": 2})
    ('python 3.12', 'torch 2.11', 'threads 2')
    """
    found: Row = ()
    for name, value in environment.items():
        if isinstance(value, dict):
            found += facts(value)
        elif isinstance(value, list):
            found += (f"{name} {', '.join(map(str, value))}",)
        elif value is not None:
            found += (f"{name} {value}",)
    return found
