"""All faults for as long as you like: ``python -m tests.faults.soak --minutes 20``.

Each part is a module beside this one with a function ``soak(scale, folder)``; its result is written
as soon as it is there, and a soak that was stopped goes on with the parts that it has not done.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from importlib import metadata, util
from pathlib import Path
from typing import Any

from rich.console import Console

from adahb._files import write_whole
from adahb._stopping import Interrupted, stoppable
from adahb.experiments.progress import Board
from adahb.experiments.store import Json, environment, read_json, sealed, to_json

TESTS = Path(__file__).resolve().parents[1]
PARTS = ("kills", "disks", "damage", "numbers_optim", "numbers_convex", "fuzz", "together", "long")
WHOLE = 20.0
"""Minutes that a scale of one stands for, on two cores."""


class Part:
    """A part, as it is shown while it runs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, scale: float) -> Json:
        """Its result, or the defect that it has found, and how long it took."""
        found: Json
        begun = time.monotonic()
        module = importlib.import_module(f"faults.{self.name}")
        with tempfile.TemporaryDirectory(prefix=f"soak-{self.name}-") as folder:
            try:
                found = module.soak(scale, Path(folder))
            except AssertionError:
                found = {"rows": [], "defects": 1, "defect": traceback.format_exc()[-8000:]}
        return {**found, "scale": scale, "minutes": round((time.monotonic() - begun) / 60, 2)}


def soak(out: Path, minutes: float, names: tuple[str, ...], console: Console) -> Json:
    """Run the parts that the file does not have, for about so long, and return what it has then."""
    scale = minutes / WHOLE
    found = _begun(out, minutes)
    missing = [name for name in names if name not in found["parts"]]
    there = [Part(name) for name in missing if util.find_spec(f"faults.{name}")]
    found["not there"] = sorted({*missing} - {part.name for part in there})
    for name in found["not there"]:
        console.print(f"{name} is left out: there is no such module here", highlight=False)
    with Board(len(there), console, _news) as board:
        for part in there:
            board.begin(part.name)
            found["parts"][part.name] = part.run(scale)
            write_whole(out, to_json(sealed(found), 1))
            board.done(part, found["parts"][part.name])
    return found


def _begun(out: Path, minutes: float) -> Json:
    """What went well in a soak of the same code and length that was stopped; else a new one."""
    new = {
        "soak": "what was tried to break the package, and how that ended",
        "minutes": minutes,
        "code": _digest(),
        "machine": _machine(),
        "parts": {},
    }
    if not out.exists():
        return new
    old = read_json(out)
    old.pop("sum", None)
    same = all(old.get(key) == new[key] for key in ("minutes", "code", "machine"))
    if not same:
        return new
    good = {name: part for name, part in old["parts"].items() if not part["defects"]}
    return {**old, "parts": good}


def _digest() -> str:
    """Of the package and of what tries to break it."""
    whole = hashlib.sha256()
    for folder in (TESTS.parent / "src", TESTS / "faults"):
        for path in sorted(folder.rglob("*.py")):
            whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


def _machine() -> Json:
    return {
        **environment(),
        "torch": metadata.version("torch"),
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }


def _news(part: Any, result: Json) -> str:
    tried = sum(row["tried"] for row in result["rows"])
    return f"{part.name}: {tried} tried, {result['defects']} defects"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=WHOLE)
    parser.add_argument("--out", type=Path, help="file of the results, else they are only shown")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas")
    given = parser.parse_args()
    names = tuple(given.parts.split(","))
    if not given.minutes > 0:
        parser.error(f"--minutes must be above 0, got {given.minutes}")
    if unknown := sorted({*names} - {*PARTS}):
        parser.error(f"--parts takes {', '.join(PARTS)}, got {', '.join(unknown)}")
    sys.path.insert(0, str(TESTS))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for what waits
    console = Console(stderr=True)
    try:
        with tempfile.TemporaryDirectory() as scratch, stoppable():
            out = given.out or Path(scratch, "soak.json")
            found = soak(out, given.minutes, names, console)
    except Interrupted as interruption:
        console.print(str(interruption), highlight=False)
        sys.exit(interruption.code)
    defects = sum(part["defects"] for part in found["parts"].values())
    for name, part in found["parts"].items():
        console.print(f"{_news(Part(name), part)}, {part['minutes']} minutes", highlight=False)
        if part["defects"]:
            console.print(part["defect"], highlight=False, markup=False)
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
