"""The linear benchmark's results as tables of text, for the terminal and for the docs."""

from __future__ import annotations

from typing import Any

Row = tuple[str, ...]
Table = tuple[Row, list[Row]]


def linear_tables(result: dict[str, Any]) -> dict[str, Table]:
    """A head and rows for each part that was measured."""
    makers = {
        "steps": ("Nanoseconds a step of a fit", steps),
        "accuracy": ("Seconds to a certified relative gap of 1e-3", accuracy),
        "growth": ("Nanoseconds a step at 75 nonzeros a row", growth),
        "auto": ('Epochs to a certified relative gap of 1e-2, step_size="auto"', auto),
        "memory": ("Peak memory of a fit", memory),
    }
    tables = {title: make(result[part]) for part, (title, make) in makers.items() if part in result}
    if "growth" in result:
        tables["Nanoseconds a step of the same loop written densely"] = dense(result["growth"])
    return tables


def steps(cases: list[Any]) -> Table:
    """A row for each data set and contender."""
    rows: list[Row] = [
        (
            case["dataset"],
            name,
            f"{1e9 * found['median']:.0f}",
            f"{found['over SGDClassifier l1']['median']:.2f}",
            f"{found['over SGDClassifier l2']['median']:.2f}",
        )
        for case in cases
        for name, found in case["seconds a step"].items()
    ]
    return ("data", "contender", "ns", "over SGD l1", "over SGD l2"), rows


def accuracy(cases: list[Any]) -> Table:
    """Ours beside both linear programs."""
    rows: list[Row] = []
    for case in cases:
        programs = case["programs"]
        for name, found in case["ours"].items():
            row: Row = (case["dataset"], name, f"{found['median']:.2f}", str(found["epochs"]))
            reached = found["relative gap"] <= case["relative gap"]
            for peer, program in programs.items():
                ratio = found.get(f"times faster than {peer}")
                sign = "" if program["solved"] else "> "
                faster = f" (× {ratio:.3g})" if reached and ratio is not None else ""
                row += (f"{sign}{program['seconds']:.1f}{faster}",)
            rows.append(row if reached else (*row[:2], f"> {row[2]}", *row[3:]))
    return ("data", "ours", "s", "epochs", "HiGHS, s", "HiGHS, dual program, s"), rows


def growth(found: Any) -> Table:
    """A row for each dimension, a column for each solver and way of drawing columns."""
    drawn = found["columns drawn"]
    names = [(how, solver) for how in drawn for solver in ("adahb", "hb")]
    dimensions = dict.fromkeys(key.split()[1] for turns in drawn.values() for key in turns)
    rows: list[Row] = []
    for d in dimensions:
        turns = (drawn[how][f"{solver} {d}"] for how, solver in names)
        cells = (f"{1e9 * t['median']:.0f} (× {t['over the smallest d']:.2f})" for t in turns)
        rows.append((d, *cells))
    return ("d", *(f"{solver}, {how}" for how, solver in names)), rows


def dense(found: Any) -> Table:
    """Ours, and the same with vector operations over all coordinates."""
    against = found["against the dense loop"]
    rows: list[Row] = [
        (name, f"{1e9 * turn['median']:.0f}", f"{turn['over ours']:.3g}")
        for name, turn in against["contenders"].items()
    ]
    return (f"d = {against['d']}", "ns", "over ours"), rows


def auto(cases: list[Any]) -> Table:
    """Epochs of the automatic step size beside the best of the grid."""
    rows: list[Row] = []
    for case in cases:
        for solver in ("adahb", "hb"):
            found = case[solver]
            epochs = found["epochs by multiple of alpha"]
            reached = {m: e for m, e in epochs.items() if e is not None}
            best = min(reached, key=lambda m: reached[m], default=None)
            ours, ratio = _at(epochs, 1.0), found["epochs over the best"]
            rows.append(
                (
                    case["dataset"],
                    solver,
                    f"> {case['most epochs']}" if ours is None else str(ours),
                    "none" if best is None else f"{reached[best]} (α × {float(best):g})",
                    "" if ratio is None else f"{ratio:.2f}",
                )
            )
    return ("data", "solver", "epochs", "best of the grid", "ratio"), rows


def memory(cases: list[Any]) -> Table:
    """Bytes, and their ratio."""
    rows: list[Row] = [
        (
            case["dataset"],
            f"{case['csr bytes'] / 2**20:.1f}",
            f"{case['peak bytes'] / 2**20:.1f}",
            f"{case['ratio']:.2f}",
        )
        for case in cases
    ]
    return ("data", "CSR, MiB", "peak, MiB", "ratio"), rows


def _at(epochs: dict[Any, Any], multiple: float) -> Any:
    """The entry of a multiple, whether its key is still a number or was read from JSON."""
    return next(e for m, e in epochs.items() if float(m) == multiple)
