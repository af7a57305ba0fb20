"""Fuzzing of what reads files, state dicts and arguments: `python -m tests.faults.fuzz`.

Each target is a function of bytes that returns how it ended, "right answer" or "clear error", and
raises whatever else happens.  A target runs in a process of its own, which makes its inputs from a
seed, watches time and memory, and notes the number of the input it is at, so that not even a crash
of the interpreter hides what led to it.  Where atheris is installed a part of the inputs is chosen
by what code they reach.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TARGETS = {
    "LIBSVM files": "faults.fuzz_data:libsvm_target",
    "idx files": "faults.fuzz_data:idx_target",
    "CIFAR files": "faults.fuzz_data:cifar_target",
    "result files": "faults.fuzz_results:results_target",
    "state dicts": "faults.fuzz_states:states_target",
    "command lines": "faults.fuzz_cli:cli_target",
}
INPUTS = 200_000
"""Of each target in a whole soak, and for some a tenth of that more by coverage."""
PATIENCE = 5
"""Seconds of computing that one input may take."""
ROOM = 2**31
"""Bytes of addresses that a process may take beyond what it has before the first input."""
GROWTH = 256
"""MiB by which the most memory in use may grow."""
SEED = 7
GUIDED = ("LIBSVM files", "idx files", "CIFAR files", "result files", "state dicts")
"""Targets of which atheris chooses some inputs; the parsing of command lines is typer's."""
COMPILED = ("adahb.sets.compiled_plain", "adahb.sets.compiled_weighted")
"""Modules that atheris must leave as they are, for Numba compiles them."""


@dataclass(frozen=True)
class Target:
    """What is fuzzed; without seeds its inputs are choices, that is, any bytes."""

    attempt: Callable[[bytes], str]
    seeds: Sequence[bytes] = ()
    words: Sequence[bytes] = ()


class Choices:
    """Decisions read from bytes, zeros when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        self._at += 2
        return int.from_bytes(self._data[self._at - 2 : self._at], "little") % n

    def pick(self, options: Sequence[Any]) -> Any:
        """One of several."""
        return options[self.below(len(options))]

    def rest(self) -> bytes:
        """All that is left."""
        return self._data[self._at :]


def soak(scale: float, folder: Path) -> dict[str, Any]:
    """Fuzz every target: INPUTS times ``scale`` inputs each."""
    count = max(1, round(INPUTS * scale))
    found = {name: fuzz(name, count, folder) for name in TARGETS}
    guided = round(count / 10) if scale >= 0.1 and find_spec("atheris") else 0
    by_coverage = {n: fuzz(n, guided, folder, guided=True) for n in GUIDED if guided}
    rows = [
        {"kind": f"{name}{how}", "tried": run["tried"], "outcomes": run["outcomes"]}
        for how, runs in (("", found), (", chosen by coverage", by_coverage))
        for name, run in runs.items()
    ]
    runs = {name: found[name] | {"guided": by_coverage.get(name)} for name in TARGETS}
    return {"rows": rows, "defects": 0, "seed": SEED, "targets": runs}


def fuzz(
    name: str, inputs: int, folder: Path, *, seed: int = SEED, guided: bool = False
) -> dict[str, Any]:
    """Fuzz one target in a process of its own; its defect is an AssertionError here."""
    told, place = folder / "told.json", folder / "place"
    told.unlink(missing_ok=True)
    here = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "faults.fuzz", TARGETS[name]]
    command += ["--guided"] if guided else []
    options = {"inputs": inputs, "seed": seed, "patience": PATIENCE, "folder": folder}
    command += [f"--{option}={value}" for option, value in options.items()]
    done = subprocess.run(
        command,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120 + inputs / 50,
    )
    if done.returncode or not told.exists():
        (at,) = struct.unpack("q", place.read_bytes())
        raise AssertionError(
            f"{name}, seed {seed}, input {at}{' by atheris' * guided}: the process ended with "
            f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        )
    return dict(json.loads(told.read_text()))


def made(target: Target, rng: random.Random) -> bytes:
    """An input: a seed with some harm done to it, or any bytes."""
    if not target.seeds:
        return rng.randbytes(96)
    data = bytearray(rng.choice(target.seeds))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        _harm(data, target, rng)
    return bytes(data)


def _harm(data: bytearray, target: Target, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice((1, 1, 2, 4, 16, 100, len(data))))
    how = rng.randrange(7)
    if how == 0 and start < len(data):
        data[start] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[start:stop]
    elif how == 2 and len(data) < 2**16:
        data[start:start] = data[start:stop] * rng.choice((1, 2, 9))
    elif how == 3 and target.words:
        data[start:start] = rng.choice(target.words)
    elif how == 4 and target.words:
        word = rng.choice(target.words)
        data[start : start + len(word)] = word
    elif how == 5:
        data[start:stop] = rng.randbytes(rng.choice((1, 2, 4, 8)))
    elif how == 6:
        other = rng.choice(target.seeds)
        data[start:] = other[rng.randrange(len(other) + 1) :]


# ---------------------------------------------------------------- the process of a target


class Watch:
    """Counts inputs and outcomes, and ends the process when one goes wrong."""

    def __init__(self, target: Target, given: argparse.Namespace) -> None:
        self._target, self._inputs = target, given.inputs
        self._patience, self._folder = given.patience, given.folder
        self._file = (self._folder / "place").open("w+b")
        self._file.truncate(8)
        self._place = mmap.mmap(self._file.fileno(), 8)
        self._outcomes: Counter[str] = Counter()
        self.tried = 0
        target.attempt(target.seeds[0] if target.seeds else bytes(96))  # loads what loads late
        self._before, self._begun = peak(), time.process_time()
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
        signal.signal(signal.SIGPROF, _too_long)

    def __call__(self, data: bytes) -> None:
        """Try one input."""
        self._place[:] = struct.pack("q", self.tried)
        signal.setitimer(signal.ITIMER_PROF, self._patience)
        try:
            outcome = self._target.attempt(data)
        except BaseException:
            signal.setitimer(signal.ITIMER_PROF, 0)
            traceback.print_exc()
            sys.stderr.write(f"the input was {data!r}\n")
            sys.stderr.flush()
            os._exit(1)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._outcomes[outcome] += 1
        self.tried += 1
        if self.tried == self._inputs:
            self._tell()

    def _tell(self) -> None:
        seconds, grown = time.process_time() - self._begun, peak() - self._before
        assert grown < GROWTH, f"the memory in use grew by {grown:.0f} MiB"
        told = {
            "tried": self.tried,
            "outcomes": dict(self._outcomes),
            "inputs a second": round(self.tried / seconds),
            "memory grew by, MiB": round(grown, 1),
        }
        (self._folder / "told.json").write_text(json.dumps(told))


class TooLong(BaseException):
    """An input that does not come to an end; no reader may take it for an error in a file."""


def _too_long(*_: object) -> None:
    raise TooLong("it does not come to an end")


def peak() -> float:
    """MiB of memory in use at most, so far, by this program.

    What `getrusage` says a process begins with is the most that the process used which began it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _loaded(place: str, folder: Path) -> Target:
    module, _, make = place.partition(":")
    target: Target = getattr(importlib.import_module(module), make)(folder)
    return target


def main() -> None:
    """Fuzz one target in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", help="as in TARGETS, a module and what makes a target")
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--patience", type=int, default=PATIENCE)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--guided", action="store_true")
    given = parser.parse_args()
    faulthandler.enable()
    if given.guided:
        _guided(given)
        return
    target, rng = _loaded(given.target, given.folder), random.Random(given.seed)
    watch = Watch(target, given)
    for _ in range(given.inputs):
        watch(made(target, rng))


def _guided(given: argparse.Namespace) -> None:
    """The same with inputs that atheris chooses; it ends the process by itself."""
    import atheris

    for module in COMPILED:
        importlib.import_module(module)
    with atheris.instrument_imports(include=["adahb"]):
        target = _loaded(given.target, given.folder)
    corpus = given.folder / ("corpus-" + given.target.partition(":")[2])
    corpus.mkdir(exist_ok=True)
    rng = random.Random(given.seed)
    for number, content in enumerate(target.seeds or [made(target, rng) for _ in range(50)]):
        (corpus / str(number)).write_bytes(content)
    options = [f"-runs={given.inputs + 9}", f"-seed={given.seed}", "-max_len=65536"]
    options += ["-timeout=100", "-rss_limit_mb=0", "-verbosity=0", str(corpus)]
    atheris.Setup([sys.argv[0], *options], Watch(target, given))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
