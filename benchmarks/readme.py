"""Fill the marked places of the README and of docs/ from the files in results/.

    python benchmarks/readme.py

A place is `<!-- name -->...<!-- /name -->`; a test compares the pages with what this makes.
"""

import math
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from adahb.experiments import result_tables, tables
from adahb.experiments.result_tables import interval
from adahb.experiments.store import read_json, write_whole

ROOT = Path(__file__).resolve().parent.parent
SOAK = {
    "kills": "Sweeps and training that are killed",
    "disks": "Full and read-only disks",
    "damage": "Damaged files",
    "numbers_optim": "Numbers given to the optimizers and the projections",
    "numbers_convex": "Numbers given to the estimators and the problems",
    "fuzz": "Files, state dicts and arguments made up by a fuzzer",
    "together": "Threads, processes and interrupts",
    "long": "Long runs",
}
"""The parts of the soak, and what each of them tries."""
NOT_MEASURED = "\n*Not measured yet.*\n"
PAGES = {
    "README.md": ("claims", "stuck", "rivals", "step", "projection", "linear-accuracy"),
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
    "docs/dependencies.md": ("dependencies",),
    "docs/reliability.md": ("soak", *(f"soak-{part}" for part in SOAK)),
}

TABLES = {
    "digits": ("digits.json", result_tables.grid),
    "rivals": ("digits.json", result_tables.rivals),
    "forms": ("forms.json", result_tables.forms),
    "precision": ("precision.json", result_tables.precision),
    "step": ("step-h200.json", result_tables.step),
    "step-cpu": ("step-cpu.json", result_tables.step),
    "projection": ("projection.json", result_tables.projection),
}


def filled(page: str, text: str, results: Path) -> str:
    """Return a page with every marked place made anew."""
    makers: dict[str, Callable[[Path], str]] = {
        "claims": _claims,
        "stuck": _stuck,
        "convex-minima": _minima,
        "convex-claims": _claims_of_figure6,
        "dependencies": lambda _: _dependencies((ROOT / "pyproject.toml").read_text("utf-8")),
        "soak": _soak,
    }
    for part in SOAK:
        makers[f"soak-{part}"] = partial(_soaked, part)
    for place, (file, table) in TABLES.items():
        makers[place] = partial(_measured, file, table)
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


def _measured(file: str, table: Callable[[Any], tables.Table], results: Path) -> str:
    """A file of results as a table."""
    return _table(*table(read_json(results / file)))


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


def _dependencies(pyproject: str) -> str:
    """Every dependency, whom it is for, and the reason that pyproject.toml gives beside it."""
    project = tomllib.loads(pyproject)["project"]
    reasons = dict(re.findall(r'^ +"([^"]+)", +# (.+)$', pyproject, re.MULTILINE))
    rows = []
    for extra, wanted in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in wanted:
            if requirement not in reasons:
                raise ValueError(f"pyproject.toml gives no reason for {requirement}: add # and one")
            name = re.match(r"[\w.-]+", requirement)
            if name is not None and name[0] != project["name"]:
                link = f"[{name[0]}](https://pypi.org/project/{name[0]}/)"
                rows.append((link, _oldest(requirement), extra, reasons[requirement]))
    return _table(("package", "from", "extra", "what for"), rows)


def _oldest(requirement: str) -> str:
    return requirement.partition(">=")[2].partition(";")[0]


def _soak(results: Path) -> str:
    """What the last soak tried, a row for each part, and where."""
    if not (results / "soak.json").is_file():
        return NOT_MEASURED
    found = read_json(results / "soak.json")
    rows = []
    for part, title in SOAK.items():
        if (result := found["parts"].get(part)) is None:
            rows.append((title, "not measured yet", "", ""))
        else:
            tried = sum(row["tried"] for row in result["rows"])
            rows.append((title, f"{tried:,}", str(result["defects"]), f"{result['minutes']:.1f}"))
    machine = ", ".join(f"{name} {value}" for name, value in found["machine"].items())
    return _table(("what", "tried", "defects", "minutes"), rows) + f"\nOn: {machine}.\n"


def _soaked(part: str, results: Path) -> str:
    """What one part of the soak tried, with outcomes, and the other numbers that it found."""
    file = results / "soak.json"
    found = read_json(file)["parts"].get(part) if file.is_file() else None
    if found is None:
        return NOT_MEASURED
    if found["defects"]:
        return f"\n**{found['defects']} defects**, the last of which stopped it.\n"
    rows = [(row["kind"], f"{row['tried']:,}", _outcomes(row["outcomes"])) for row in found["rows"]]
    numbers = [
        f"{name.replace('_', ' ')}: {_shown(value)}"
        for name, value in found.items()
        if isinstance(value, int | float | str) and name != "minutes"
    ]
    return _table(("tried", "times", "outcomes"), rows) + f"\n{'; '.join(numbers)}.\n"


def _outcomes(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{outcome}: {count:,}" for outcome, count in outcomes.items())


def _shown(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        write_whole(path, filled(page, path.read_text(encoding="utf-8"), ROOT / "results"))
