"""Processes that do a share of the trials each: they import everything, and fork the jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
SHARES = 2
"""Processes at a time."""
FEWEST = 8
"""With fewer trials one process is enough."""

Trials = Callable[[str, range, Path], list[dict[str, Any]]]
"""The trials of a sort with these seeds, made in a folder; a result of plain data for each."""


def side_by_side(module: str, sort: str, trials: int, folder: Path) -> list[dict[str, Any]]:
    """Let processes of ``faults.<module>`` share the trials; the first failure is raised."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
    shares = min(SHARES, trials // FEWEST + 1)
    bounds = np.linspace(0, trials, shares + 1).astype(int).tolist()
    running = []
    for first, end in pairwise(bounds):
        at = tempfile.mkdtemp(prefix="share-", dir=folder)
        command = [sys.executable, "-m", f"faults.{module}", sort, str(first), str(end), at]
        log = Path(at, "log")
        with log.open("wb") as out:
            running.append(
                (subprocess.Popen(command, env=environment, stdout=out, stderr=out), log)
            )
    try:
        return _gathered(running)
    finally:
        for process, _ in running:
            process.kill()


def _gathered(running: list[tuple[subprocess.Popen[bytes], Path]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for process, log in running:
        code = process.wait()
        said = log.read_text(encoding="utf-8", errors="replace")
        assert code == 0, said[-6000:]
        found += json.loads(said.splitlines()[-1])
    return found


def share(trials: Trials) -> None:
    """The main program of such a process."""
    sort, first, end, folder = sys.argv[1:]
    found = trials(sort, range(int(first), int(end)), Path(folder))
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def undisturbed(what: str, folder: Path) -> Any:
    """The results of a job that nobody disturbs, made here: what is forked then begins warm."""
    from faults import jobs

    at = folder / f"undisturbed-{what.replace(' ', '-')}"
    with suppress(SystemExit):
        jobs.work(what)(at)
    return jobs.results(at)
