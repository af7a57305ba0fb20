"""Results on disk: one file a result, named by what was run, written whole or not at all."""

import hashlib
import json
import math
import platform
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn, Protocol

from rich.console import Console

import adahb
from adahb._files import Lease, read_whole, remove_leftovers
from adahb._files import write_whole as write_whole
from adahb._stopping import CTRL_C, Interrupted, held_back
from adahb.experiments.backends import Backend, Processes
from adahb.experiments.progress import Board, News

Json = Any

_LARGEST = 2**26
"""Bytes of a file of results, at most."""
_DEEPEST = 50
"""How deep lists may lie in lists."""
_CONTROL = re.compile(r"[\x7f-\x9f]|(?<!\\)(?:\\\\)*\\(?:[bf]|u00(?:[0189][0-9a-f]|7f))", re.I)
_SURROGATE = re.compile(r"\\ud[89a-f]", re.I)
_GLANCE = 1.0
"""Seconds between two looks for what others have done."""


class Job(Protocol):
    """Something to compute once: plain data that determines it, and the computation."""

    @property
    def name(self) -> str:
        """A short name, for the file and the progress bar."""

    def spec(self) -> Mapping[str, Json]:
        """What determines the result."""

    def compute(self) -> Json:
        """The result, as plain data."""


class Store:
    """A folder of results.  Interrupted work goes on where it stopped: what is there is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: Job) -> Path:
        """Where the job's result lies: its name and a hash of what determines it."""
        return self.folder / f"{job.name}-{_digest(job)}.json"

    def result(self, job: Job) -> Json:
        """Return the stored result, computing it first if it is not there."""
        if not self.has(job):
            self._keep(job, job.compute())
        return self._read(job)

    def has(self, job: Job) -> bool:
        """Tell whether the job's result is there."""
        return self.path(job).exists()

    def complete(
        self,
        jobs: Iterable[Job],
        *,
        workers: int,
        console: Console,
        backend: Backend | None = None,
        deadline: float = math.inf,
        news: News | None = None,
    ) -> bool:
        """Compute what is missing of ``jobs``, with a progress bar; tell whether nothing is.

        ``backend`` says where, by default in ``workers`` processes.  After ``deadline``, a time of
        :func:`time.monotonic`, no job is begun any more.  What ``news`` makes of the latest result
        is shown beside the bar.  Who else completes the same folder at the same time does the
        jobs that this one does not.
        """
        missing: dict[Path, Job] = {}
        for job in jobs:
            if self.has(job):
                self._read(job)  # a damaged file is better named now than after the runs
            else:
                missing[self.path(job)] = job
        remove_leftovers(self.folder)
        if not missing:
            return True
        total = len(missing)
        try:
            with Board(total, console, news) as board:
                while True:
                    self._compute(missing, backend or Processes(workers), deadline, board)
                    _strike_done(missing, board)
                    if not missing or time.monotonic() >= deadline:
                        break
                    board.waiting()
                    time.sleep(_GLANCE)
        except (KeyboardInterrupt, Interrupted) as stop:
            done = sum(path.exists() for path in missing) + total - len(missing)
            raise Interrupted(
                f"interrupted with {done} of {total} runs done, which are kept; the same "
                "command goes on from there",
                code=stop.code if isinstance(stop, Interrupted) else CTRL_C,
            ) from None
        return not missing

    def _compute(
        self, missing: dict[Path, Job], backend: Backend, deadline: float, board: Board
    ) -> None:
        """Compute those of the missing results that nobody else is computing."""
        leases: dict[Path, Lease] = {}

        def free() -> Iterator[Job]:
            waiting = deque(missing.items())
            while waiting:  # nothing is kept of those that are done
                path, job = waiting.popleft()
                if time.monotonic() >= deadline:
                    return
                with held_back():
                    lease = Lease.of(path)
                    if lease is None:
                        continue
                    if path.exists():
                        lease.release()
                        continue
                    leases[path] = lease
                yield job

        try:
            with closing(backend.results(free())) as results:
                for job, result in results:
                    path = self.path(job)
                    with held_back():
                        self._keep(job, result)
                        leases.pop(path).release()
                        del missing[path]
                    board.done(job, result)
        finally:
            with held_back():
                for lease in leases.values():
                    lease.release()

    def _keep(self, job: Job, result: Json) -> None:
        record = {"id": _digest(job), "spec": job.spec(), "result": result}
        write_whole(self.path(job), to_json(sealed(record)))

    def _read(self, job: Job) -> Json:
        path = self.path(job)
        kept = read_json(path)
        if not isinstance(kept, dict) or "result" not in kept or kept.get("id") != _digest(job):
            raise ValueError(
                f"{path} does not hold the run that its name says; delete it and run the command "
                "again"
            )
        return kept["result"]


def to_json(value: Json, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False) + "\n"


def sealed(content: Mapping[str, Json]) -> dict[str, Json]:
    """What a file is to hold, with a checksum, by which :func:`read_json` knows it again."""
    kept: dict[str, Json] = _finite(content)
    return {**kept, "sum": _sum(kept.get("result", kept))}


def read_json(path: Path) -> Json:
    """Read a JSON file, sealed or not; the error names the file and what to do."""
    kept = parsed(read_whole(path, _LARGEST), path)
    if isinstance(kept, dict) and "sum" in kept:
        content = {key: value for key, value in kept.items() if key != "sum"}
        if kept["sum"] != _sum(content.get("result", content)):
            raise ValueError(
                f"{path} is not as it was written; delete it and run the command again"
            )
    return kept


def parsed(content: bytes, path: Path) -> Json:
    """What a JSON file holds: finite numbers, text that can be shown, nested as results are.

    Whoever goes on with it need not fear a number that JSON cannot write, control characters that
    a terminal obeys, or a depth at which Python gives up.
    """
    try:
        text = content.decode()
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite_number)
        _check_text(text, value)
        _check_depth(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a whole JSON file ({error}); delete it and run the command again"
        ) from error
    return value


def _finite_number(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _check_text(text: str, value: Json) -> None:
    if found := _CONTROL.search(text):
        raise ValueError(f"control character {found[0]!r}")
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # fails for halves of characters


def _check_depth(value: Json) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise ValueError(f"nested more than {_DEEPEST} deep")


def _inside(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def environment() -> dict[str, str]:
    """What the numbers were computed with."""
    packages = ("numba", "numpy", "scikit-learn", "scipy")
    found = {package: metadata.version(package) for package in packages}
    python = {"python": platform.python_version(), "machine": platform.machine()}
    return {"adahb": adahb.__version__, **python, **found}


def _strike_done(missing: dict[Path, Job], board: Board) -> None:
    """Strike what others have done meanwhile."""
    done = [path for path in missing if path.exists()]
    for path in done:
        del missing[path]
    board.done_elsewhere(len(done))


def _digest(job: Job) -> str:
    return _sum({"version": adahb.__version__, **job.spec()})


def _sum(content: Json) -> str:
    """Twelve digits that another content does not have."""
    whole = json.dumps(content, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _finite(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
