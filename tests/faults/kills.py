"""Sweeps and trainings are killed at random moments and begun again: nothing is lost or changed.

Most of them are forked from a process that has imported everything, so that a kill costs a fraction
of a second; the others are commands as a user types them, with workers of their own.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
from faults import harness
from faults.harness import share, side_by_side

from adahb import _files
from adahb._stopping import CTRL_C
from adahb.experiments.store import read_json

NUMBERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CLEAN_ENDS = {signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGINT: CTRL_C}
GOES_ON = "the same command goes on from there"
FORKED, COMMANDS, CLUSTERED = 72, 6, 1
"""Disturbed jobs of each sort in a whole soak."""
KINDS = {
    "forked": "",
    "command": ", as a command with workers",
    "cluster": ", as a command with a cluster",
}
LONGEST = {"training": 0.15, "forked": 0.4, "command": 5.0, "cluster": 5.0}
"""Seconds from the beginning to a strike at a random time, at most."""
_LINES = 150
"""A strike while writing comes within so many lines of the code that writes."""


@dataclass
class Watch:
    """What was seen in a folder of results, which no later look may contradict."""

    folder: Path
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    looks: int = 0

    def look(self) -> None:
        """Every result is whole, none is gone, and none was made again."""
        now = {}
        for path in self.folder.glob("runs/*.json"):
            assert "result" in read_json(path)
            now[path.name] = (path.stat().st_ino, path.stat().st_mtime_ns)
        for name, was in self.seen.items():
            assert name in now, f"{name} was lost"
            assert now[name] == was, f"{name} was made twice"
        self.seen = now
        self.looks += len(now)

    def left_behind(self) -> set[Path]:
        """Temporary files."""
        return set(self.folder.rglob(".*"))


@dataclass
class Disturber:
    """Kills one job again and again, until it is done."""

    what: str
    folder: Path
    rng: np.random.Generator
    begin: Callable[[int, int], Any]
    """Begins it, with a signal due at some line of the writing; line 0 is none."""
    clean: bool
    """Whether it promises to end in order when it is asked to."""
    longest: float
    """Seconds, the longest time before a strike."""
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)

    def disturb(self, kills: int) -> int:
        """Kill it so often, unless it is done before, and let it end; how much was looked at."""
        watch = Watch(self.folder)
        for _ in range(kills):
            number = signal.Signals(int(self.rng.choice(NUMBERS)))
            writing = self.longest < 2 and self.rng.random() < 0.5
            line = int(self.rng.integers(1, _LINES)) if writing else 0
            everybody = not writing and self.rng.random() < 0.5
            before = set(self.folder.rglob("*"))
            begun = self.begin(line, number)
            if not writing:
                time.sleep(self.rng.uniform(0, self.longest))
                if not begun.ended():
                    begun.send(number, all_of_it=everybody)
            code = begun.wait()
            watch.look()
            if code == 0:
                assert not watch.left_behind(), watch.left_behind()
                break
            how = f"{number.name} {'while writing' if writing else 'at a random time'}"
            end = self._end(number, code, begun.said(), before)
            if end.startswith("in order"):  # those of one that was killed before may still be there
                assert watch.left_behind() <= before, watch.left_behind() - before
            self.outcomes[how, end] += 1
        last = self.begin(0, 0)
        assert last.wait() == 0, last.said()[-3000:]
        watch.look()
        return watch.looks

    def _end(self, number: int, code: int, said: str, before: set[Path]) -> str:
        """How it ended; only what is promised may be."""
        context = f"{number!r} led to code {code}: {said[-3000:]}"
        if number == signal.SIGKILL or not self.clean:
            assert code in (-number, 1 if number == signal.SIGINT else -number), context
            return "at once"
        if code == CLEAN_ENDS[number]:
            assert GOES_ON in said.replace("\n", " "), context
            assert "Traceback" not in said, context
            assert "Exception ignored" not in said, context
            return "in order, with a word"
        assert code in (-number, 1), context
        if said.strip() and all(
            str(self.folder) in line for line in said.split()
        ):  # the list of what it has made
            return "after it was done"
        assert "KeyboardInterrupt" in said or not said.strip(), context
        assert set(self.folder.rglob("*")) == before, context
        return "before it began"


# ---------------------------------------------------------------- one harness


def trials(sort: str, seeds: range, folder: Path) -> list[dict[str, Any]]:
    """Disturb a job for each seed, and compare it with an undisturbed one."""
    if sort != "cluster":
        return _trials(sort, seeds, folder, ())
    from experiments.cluster import cluster

    with cluster(folder) as (address, _):
        return _trials(sort, seeds, folder, ("--backend", "dask", "--scheduler", address))


def _trials(sort: str, seeds: range, folder: Path, more: tuple[str, ...]) -> list[dict[str, Any]]:
    from faults import jobs

    undisturbed: dict[str, Any] = {}
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, *sort.encode()])
        training = sort == "forked" and seed % 2 == 1
        names = [*(jobs.TRAININGS if training else jobs.ARGUMENTS)]
        names = ["reproduce convex"] if sort == "cluster" else names
        what = names[(seed // 2 if sort == "forked" else seed) % len(names)]
        if what not in undisturbed:
            undisturbed[what] = harness.undisturbed(what, folder)
        at = folder / f"{sort}-{seed}"
        disturber = Disturber(
            what,
            at,
            rng,
            _forked(what, at) if sort == "forked" else _command(what, at, more),
            clean=not training,
            longest=LONGEST["training" if training else sort],
        )
        try:
            looks = disturber.disturb(int(rng.integers(6, 11) if sort == "forked" else 3))
            assert jobs.results(at) == undisturbed[what], "other results"
        except AssertionError as error:
            raise AssertionError(f"{sort} {what!r} with seed {seed}: {error}") from error
        kind = f"{'a training loop' if training else 'a sweep'}{KINDS[sort]}"
        ends = [[*how, n] for how, n in disturber.outcomes.items()]
        found.append({"kind": kind, "ends": ends, "looks": looks})
    return found


def _forked(what: str, at: Path) -> Callable[[int, int], Any]:
    from faults import forks, jobs

    work = jobs.work(what)

    def begin(line: int, number: int) -> Any:
        def job() -> None:
            if line:
                forks.strike_at_line(line, _files.__file__, number)
            work(at)

        return forks.fork(job, at.with_suffix(".log"))

    return begin


def _command(what: str, at: Path, more: tuple[str, ...]) -> Callable[[int, int], Any]:
    from faults import forks, jobs

    if what == "reproduce deep":  # its smallest preset is no small thing
        program = (
            f"from faults import jobs; jobs.sweep({what!r}, here=False)(jobs.Path({str(at)!r}))"
        )
        command = [sys.executable, "-c", program]
    else:
        options = ["--out", str(at), *jobs.ARGUMENTS[what], "--jobs", "2", *more]
        command = [sys.executable, "-m", "adahb", *what.split(), *options]

    def begin(line: int, number: int) -> Any:
        log = at.with_suffix(".log")
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        return forks.Begun(process.pid, log)

    return begin


# ---------------------------------------------------------------- the soak


def soak(scale: float, folder: Path) -> dict[str, Any]:
    """Kill sweeps and trainings, some at a time, and count."""
    counts = {
        "forked": max(2, round(FORKED * scale)),
        "command": max(1, round(COMMANDS * scale)),
        "cluster": round(CLUSTERED * scale) if util.find_spec("distributed") else 0,
    }
    found = [
        job for sort, n in counts.items() if n for job in side_by_side("kills", sort, n, folder)
    ]
    kills: Counter[tuple[str, str]] = Counter()
    outcomes: dict[tuple[str, str], Counter[str]] = {}
    for job in found:
        for how, end, n in job["ends"]:
            kills[job["kind"], how] += n
            outcomes.setdefault((job["kind"], how), Counter())[end] += n
    rows = [
        {
            "kind": f"{kind} ended by {how}",
            "tried": n,
            "outcomes": {
                f"{end}; then as undisturbed": m for end, m in outcomes[kind, how].items()
            },
        }
        for (kind, how), n in sorted(kills.items())
    ]
    return {
        "rows": rows,
        "defects": 0,
        "kills": sum(kills.values()),
        "sweeps": sum(job["kind"].startswith("a sweep") for job in found),
        "trainings": sum(job["kind"].startswith("a training") for job in found),
        "looks": sum(job["looks"] for job in found),
        "looks are": "at a result after a kill: whole, still there, and not made again",
        "bitwise equal in the end": len(found),
        "seeds": "of the jobs: 0, 1, 2, ...",
    }


if __name__ == "__main__":
    share(trials)
