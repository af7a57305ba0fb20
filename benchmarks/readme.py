"""Fill the marked places of the README and of docs/ from the files in results/.

    python benchmarks/readme.py

A place is `<!-- name -->...<!-- /name -->`; a test compares the pages with what this makes.
"""

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from adahb.experiments import tables
from adahb.experiments.report import interval
from adahb.experiments.store import read_json, write_whole

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": ("claims", "stuck", "rivals", "step", "projection"),
    "docs/optimizers.md": ("digits", "rivals", "forms", "precision", "step", "step-cpu"),
    "docs/linear.md": (
        *(f"linear-{part}" for part in ("auto", "steps", "growth", "dense", "accuracy", "memory")),
        "convex-minima",
        "convex-claims",
    ),
    "docs/gallery.md": (
        "sparse_svm_on_text",
        "nonnegative_regression",
        "stacking_weights",
        "reading_a_certificate",
    ),
}


def filled(page: str, text: str, results: Path) -> str:
    """Return a page with every marked place made anew."""
    makers: dict[str, Callable[[Path], str]] = {
        "step-cpu": _step_on_cpu,
        "claims": _claims,
        "stuck": _stuck,
        "projection": _projection,
        "digits": _digits,
        "rivals": _rivals,
        "forms": _forms,
        "precision": _precision,
        "step": _step,
        "convex-minima": _minima,
        "convex-claims": _claims_of_figure6,
    }
    for part in ("auto", "steps", "growth", "dense", "accuracy", "memory"):
        makers[f"linear-{part}"] = partial(_linear, part)
    for example in PAGES["docs/gallery.md"]:
        makers[example] = partial(_printed, example)
    for name in PAGES[page]:
        place = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
        if len(place.findall(text)) != 1:
            raise ValueError(f"{page} must have one place named {name}")
        content = makers[name](results)
        text = place.sub(lambda match, content=content: match[1] + content + match[2], text)
    return text


def _linear(part: str, results: Path) -> str:
    """A part of the linear benchmark."""
    found = read_json(results / "linear.json")
    return _table(*getattr(tables, part)(found["growth" if part == "dense" else part]))


def _minima(results: Path) -> str:
    """What figure 6 is measured against."""
    rows = []
    for panel in read_json(results / "convex.json")["panels"]:
        minimum = panel["minimum"]
        rows.append(
            (
                panel["dataset"],
                f"{minimum['n']} × {minimum['d']}",
                f"{panel['radius']:g}",
                f"{minimum['value']:.9f}",
                f"{minimum['value'] - minimum['lower_bound']:.0e}",
                str(minimum["nonzeros"]),
                f"{min(min(curve['low']) for curve in panel['curves']):.1e}",
            )
        )
    return _table(("data", "size", "τ", "f*", "proved to", "weights", "smallest gap shown"), rows)


def _claims_of_figure6(results: Path) -> str:
    claims = read_json(results / "claims.json")["claims"]
    chosen = [c for c in claims if c["id"].startswith("C3") or c["id"].endswith("figure 6")]
    rows = [(c["id"], c["statement"], _verdict(c), _decisive(c)) for c in chosen]
    return _table(("claim", "statement", "verdict", "decided by"), rows)


def _printed(example: str, _: Path) -> str:
    """What an example prints where there are no data."""
    environment = {k: v for k, v in os.environ.items() if k != "ADAHB_DATA"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{example}.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return f"\n```text\n{done.stdout}```\n"


def _claims(results: Path) -> str:
    claims = read_json(results / "claims.json")["claims"]
    rows = [(c["id"], c["statement"], _verdict(c), _decisive(c)) for c in claims]
    return _table(("claim", "statement", "verdict", "decided by"), rows)


def _projection(results: Path) -> str:
    cases = read_json(results / "projection.json")["cases"]
    head = ("float64, d = 1 000 000", "ms", "× NumPy", "cold", "× NumPy without SIMD")
    return _table(head, [_speed(case) for case in cases if case["dtype"] == "float64"])


def _digits(results: Path) -> str:
    """AdaHB's training loss over lr and tick."""
    rows = [row for row in read_json(results / "digits.json")["settings"] if row["tick"]]
    ticks = sorted({row["tick"] for row in rows})
    loss = {(row["lr"], row["tick"]): row["train_loss"]["value"] for row in rows}
    table = [
        (f"lr {lr:g}", *(f"{loss[lr, tick]:.1e}" for tick in ticks))
        for lr in sorted({row["lr"] for row in rows}, reverse=True)
    ]
    return _table(("", *(f"tick {tick}" for tick in ticks)), table)


def _rivals(results: Path) -> str:
    """AdaHB as it comes, and every setting of the rivals."""
    rows = [row for row in read_json(results / "digits.json")["settings"] if not row["tick"]]
    table = [
        (
            row["optimizer"],
            "default" if row["lr"] is None else f"{row['lr']:g}",
            interval(row["train_loss"]),
            interval(row["test_accuracy"]),
        )
        for row in rows
    ]
    return _table(("optimizer", "lr", "training loss [95 %]", "test accuracy [95 %]"), table)


def _forms(results: Path) -> str:
    """Training loss in both forms and, where they differ, in both projections."""
    found = read_json(results / "forms.json")
    rows = {
        (row["kind"], row["share"], row["projection"], row["form"]): row
        for row in found["settings"]
    }
    table = []
    for row in found["compared"]:
        place = (row["kind"], row["share"], row["projection"])
        pair = [rows[*place, form] for form in ("averaging", "paper")]
        difference = row["log10_loss_of_averaging_minus_paper"]
        table.append(
            (
                f"{row['kind']}, {row['share']:g}",
                "any" if row["kind"] == "box" else row["projection"],
                *(f"{each['log10_train_loss']['value']:.2f}" for each in pair),
                interval(difference),
                *(f"{each['zeros']['value']:.1%}" for each in pair),
            )
        )
    head = ("set, share", "projection", "averaging", "paper", "difference [95 %]")
    return _table((*head, "zeros, averaging", "zeros, paper"), table)


def _precision(results: Path) -> str:
    """What narrow states and weights do to the training loss."""
    keys = ("log10_train_loss", "log10_loss_minus_that_of_float32", "test_accuracy")
    table = [
        (
            *(row["weights"], row["rounding"] or "", row["state_dtype"] or "float32"),
            *(interval(row[key]) for key in keys),
        )
        for row in read_json(results / "precision.json")["settings"]
    ]
    head = (
        "weights",
        "rounding",
        "states",
        "log10 loss [95 %]",
        "minus float32's",
        "test accuracy",
    )
    return _table(head, table)


def _step(results: Path) -> str:
    """AdaHB's step beside torch's fused Adam, in one run on a GPU, with narrow states too."""
    found = read_json(results / "step-h200.json")
    rows = [
        (
            *_beside_adam(case),
            f"{100 * case['contenders']['AdaHB']['copy bandwidth']:.0f} %",
            *(_ratio(case, f"AdaHB {kind}") for kind in ("bf16", "int8")),
        )
        for case in found["cases"]
    ]
    gpu, versions = found["machine"]["gpu"], found["machine"]["versions"]
    columns = ("of copy bandwidth", "ratio, bf16 states", "ratio, int8 states")
    return _table((f"{gpu}, float32, torch {versions['torch']}", *_STEP, *columns), rows)


def _step_on_cpu(results: Path) -> str:
    """The same on a CPU."""
    found = read_json(results / "step-cpu.json")
    machine = found["machine"]
    head = f"{machine['threads']} threads, float32, torch {machine['versions']['torch']}"
    return _table((head, *_STEP), [_beside_adam(case) for case in found["cases"]])


_STEP = ("AdaHB, ms", "Adam(fused=True), ms", "ratio")


def _beside_adam(case: Any) -> tuple[str, ...]:
    ours, adam = (case["contenders"][name] for name in ("AdaHB", "torch Adam fused"))
    times = (f"{1e3 * each['seconds']['median']:.2f}" for each in (ours, adam))
    return (case["name"], *times, _ratio(case, "AdaHB"))


def _ratio(case: Any, contender: str) -> str:
    return f"{case['contenders'][contender]['time over torch Adam fused']['median']:.2f}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _verdict(claim: Any) -> str:
    return claim["verdict"] if claim["verdict"] == "supported" else f"**{claim['verdict']}**"


def _decisive(claim: Any) -> str:
    """The finding that fails worst, or holds by the least."""
    finding = min((f for f in claim["findings"] if f["verdict"]), key=_margin)
    return f"{finding['what']}: {interval(finding['estimate'])} (needs {finding['range']})"


def _margin(finding: Any) -> float:
    estimate, least, most = finding["estimate"], finding["at_least"], finding["at_most"]
    below = math.inf if least is None else estimate["low"] - least
    above = math.inf if most is None else most - estimate["high"]
    return min(below, above)


def _stuck(results: Path) -> str:
    claims = read_json(results / "claims.json")["claims"]
    (claim,) = (c for c in claims if c["id"] == "C8 Theorem 5, printed")
    (finding,) = (
        f
        for f in claim["findings"]
        if f["what"].startswith("gap at the end") and "euclidean" in f["what"]
    )
    return f"{finding['estimate']['value']:.3f}"


def _speed(case: Any) -> tuple[str, ...]:
    ours, numpy = case["seconds"]["ours"], case["seconds"]["numpy sort"]
    faster = case["times faster than"]
    ratios = (faster["numpy sort"], numpy["cold"] / ours["cold"], faster["numpy sort without simd"])
    return case["name"], f"{1e3 * ours['best']:.2f}", *(f"{ratio:.0f}" for ratio in ratios)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        write_whole(path, filled(page, path.read_text(encoding="utf-8"), ROOT / "results"))
