"""Disks that are full, or read-only, or pulled away: an error that says so, and a restart as usual.

Small file systems are mounted in a namespace of the process; where that is not permitted, a limit
on the size of files stands for the full disk, and a folder of another user for the read-only one.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from faults.harness import share, side_by_side, undisturbed
from faults.kills import Watch

TRIALS = {"full": 16, "limited": 16, "read-only": 8, "removed": 20, "a file": 4, "together": 12}
"""Of each sort in a whole soak."""
SWEEPS = ("reproduce synthetic", "reproduce convex")
NAMESPACE = 0x00020000
"""CLONE_NEWNS"""
REFUSED = "refused with an error that says what to do"
REMEDY = "go on with the same command"

Rng = np.random.Generator
Outcome = tuple[str, str]
"""What was tried, and how it ended."""


def mounts() -> bool:
    """Give this process mounts of its own, that nobody else sees; whether that is permitted."""
    if ctypes.CDLL(None, use_errno=True).unshare(NAMESPACE):
        return False
    return not subprocess.run(["mount", "--make-rprivate", "/"], check=False).returncode


def mount(folder: Path, kilobytes: int, *more: str) -> None:
    """A file system of a size, or the new options of the one that is there."""
    folder.mkdir(exist_ok=True)
    options = ",".join([*more, f"size={kilobytes}k"])
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True)


class Trial:
    """A job on a disk that fails it, begun again until it is done."""

    def __init__(self, what: str, folder: Path, expected: Any) -> None:
        from faults import jobs

        self.what, self.at, self.expected = what, folder / "out", expected
        self.work = jobs.work(what)
        self.log = folder / "log"
        self.watch = Watch(self.at)
        folder.mkdir(parents=True)

    def begin(self, before: Callable[[], object] = lambda: None, log: str = "log") -> Any:
        """Begin it; ``before`` is done first, in its process."""
        from faults import forks

        def job() -> None:
            before()
            self.work(self.at)

        return forks.fork(job, self.log.with_name(log))

    def refused(self, begun: Any, *words: str) -> None:
        """It ends with an error that names a file of its folder, these words, and what to do."""
        code, said = begun.wait(), begun.said()
        flat = " ".join(said.split())
        assert code == 1, f"{code}: {said[-3000:]}"
        assert any(word in flat for word in words), said[-3000:]
        assert str(self.at) in said.replace("\n", ""), said[-3000:]
        assert REMEDY in flat, said[-3000:]
        if self.what.startswith("reproduce"):
            assert "Traceback" not in said, said[-3000:]
        assert not self.watch.left_behind(), self.watch.left_behind()
        self.watch.look()

    def completes(self) -> None:
        """It ends as if nothing had been."""
        from faults import jobs

        last = self.begin()
        assert last.wait() == 0, last.said()[-3000:]
        self.watch.look()
        assert jobs.results(self.at) == self.expected, "other results"


# ---------------------------------------------------------------- what is tried


def full(trial: Trial, rng: Rng, permitted: bool) -> Outcome:
    """The disk fills at some moment, again and again, and is made larger."""
    if not permitted:
        return limited(trial, rng, permitted)
    most = 60 if trial.what in SWEEPS else 8
    sizes = np.sort(rng.integers(1, most, size=3)) * 4
    mount(trial.at, int(sizes[0]))
    times = 0
    for size in sizes.tolist():
        mount(trial.at, size, "remount")
        begun = trial.begin()
        if begun.wait() == 0:
            break
        trial.refused(begun, "No space left on device")
        times += 1
    mount(trial.at, 1 << 16, "remount")
    trial.completes()
    return "a full disk", _times(REFUSED, times)


def limited(trial: Trial, rng: Rng, permitted: bool) -> Outcome:
    """Files may not grow beyond a size, as under a quota."""
    del permitted
    size = int(rng.integers(500, 20_000))
    limits = (size, resource.RLIM_INFINITY)
    begun = trial.begin(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))
    times = 0
    if begun.wait():
        trial.refused(begun, "File too large", "No space left on device")
        times = 1
    trial.completes()
    return "a limit on the size of files", _times(
        "refused with an error that says what to do", times
    )


def read_only(trial: Trial, rng: Rng, permitted: bool) -> Outcome:
    """The folder cannot be written, before or after some of the work."""
    if not permitted and os.getuid() == 0:
        return "a read-only folder", "not tried: root may write everywhere but on a mount"
    if permitted:
        mount(trial.at, 1 << 16)
    _some_work(trial, rng)
    trial.at.mkdir(exist_ok=True)
    if permitted:
        mount(trial.at, 1 << 16, "remount", "ro")
        trial.refused(trial.begin(), "Read-only file system")
        mount(trial.at, 1 << 16, "remount", "rw")
    else:
        for folder in (trial.at, trial.at / "runs"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o555)
        trial.refused(trial.begin(), "Permission denied")
        for folder in (trial.at, trial.at / "runs"):
            folder.chmod(0o755)
    trial.completes()
    return "a read-only folder", f"{REFUSED}; done as undisturbed"


def removed(trial: Trial, rng: Rng, permitted: bool) -> Outcome:
    """The folder is removed while it is filled."""
    del permitted
    begun = trial.begin()
    time.sleep(rng.uniform(0, 1.0))
    while trial.at.exists() and not begun.ended():
        shutil.rmtree(trial.at, ignore_errors=True)
    code, said = begun.wait(), begun.said()
    if code:
        assert code == 1, f"{code}: {said[-3000:]}"
        assert str(trial.at) in said.replace("\n", ""), said[-3000:]
        assert "Traceback" not in said, said[-3000:]
    trial.completes()
    end = "an error that names the file" if code else "went on"
    return "the folder removed while it is filled", f"{end}; done as undisturbed"


def a_file(trial: Trial, rng: Rng, permitted: bool) -> Outcome:
    """Where the folder is to be, or that of the runs, a file is."""
    del permitted
    place = trial.at if rng.random() < 0.5 else trial.at / "runs"
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    begun = trial.begin()
    trial.refused(begun, "File exists", "Not a directory")
    assert place.read_text() == "mine"
    place.unlink()
    trial.completes()
    return "a file in the place of the folder", f"{REFUSED}; done as undisturbed"


def together(trial: Trial, rng: Rng, permitted: bool) -> Outcome:
    """Two or three do the same at once, and perhaps one of them is killed."""
    from faults import jobs

    del permitted
    several = [trial.begin(log=f"log-{k}") for k in range(int(rng.integers(2, 4)))]
    dies = several[0] if rng.random() < 0.5 else None
    if dies is not None:
        time.sleep(rng.uniform(0, 0.5))
        if not dies.ended():
            dies.send(9)
    while sum(begun.ended() for begun in several) < len(several):
        trial.watch.look()
        time.sleep(0.01)
    for begun in several:
        assert begun.wait() == 0 or begun is dies, begun.said()[-3000:]
    trial.watch.look()
    assert jobs.results(trial.at) == trial.expected, "other results"
    kind = f"{len(several)} sweeps at once on one folder"
    killed = dies is not None and dies.code != 0
    return kind + (", one killed" if killed else ""), "each result made once, all as undisturbed"


def _some_work(trial: Trial, rng: Rng) -> None:
    begun = trial.begin()
    time.sleep(rng.uniform(0, 0.3))
    if not begun.ended():
        begun.send(15)
    begun.wait()


def _times(what: str, times: int) -> str:
    return f"{what} {times} times; then done as undisturbed" if times else "there was room enough"


SORTS: dict[str, Callable[[Trial, Rng, bool], Outcome]] = {
    "full": full,
    "limited": limited,
    "read-only": read_only,
    "removed": removed,
    "a file": a_file,
    "together": together,
}

# ---------------------------------------------------------------- the soak


def trials(plan: str, numbers: range, folder: Path) -> list[dict[str, Any]]:
    """Try what stands in a plan such as "full 3, limited 2" at these places."""
    listed = [part.rpartition(" ") for part in plan.split(", ")]
    each = [(sort, seed) for sort, _, n in listed for seed in range(int(n))]
    permitted = mounts()
    expected: dict[str, Any] = {}
    found = []
    for sort, seed in each[numbers.start : numbers.stop]:
        rng = np.random.default_rng([seed, *sort.encode()])
        what = "AdaHB" if sort in ("full", "limited") and seed % 3 == 2 else SWEEPS[seed % 2]
        if what not in expected:
            expected[what] = undisturbed(what, folder)
        try:
            trial = Trial(what, folder / f"{sort}-{seed}", expected[what])
            kind, end = SORTS[sort](trial, rng, permitted)
        except AssertionError as error:
            raise AssertionError(f"{sort} for {what!r} with seed {seed}: {error}") from error
        found.append({"kind": kind, "end": end})
    return found


def soak(scale: float, folder: Path) -> dict[str, Any]:
    """Try everything, and count."""
    counts = {sort: max(1, round(number * scale)) for sort, number in TRIALS.items()}
    plan = ", ".join(f"{sort} {number}" for sort, number in counts.items())
    outcomes: dict[str, Counter[str]] = {}
    for trial in side_by_side("disks", plan, sum(counts.values()), folder):
        outcomes.setdefault(trial["kind"], Counter())[trial["end"]] += 1
    rows = [
        {"kind": kind, "tried": ends.total(), "outcomes": dict(ends)}
        for kind, ends in sorted(outcomes.items())
    ]
    return {"rows": rows, "defects": 0, "seeds": "0, 1, 2, ... of each sort"}


if __name__ == "__main__":
    share(trials)
