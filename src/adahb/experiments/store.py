"""Results on disk: one file a result, named by what was run, written whole or not at all."""

import hashlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import adahb
from adahb.experiments.backends import Backend, Processes

Json = Any


class Job(Protocol):
    """Something to compute once: plain data that determines it, and the computation."""

    @property
    def name(self) -> str:
        """A short name, for the file and the progress bar."""

    def spec(self) -> Mapping[str, Json]:
        """What determines the result."""

    def compute(self) -> Json:
        """The result, as plain data."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The user stopped the work; what is done is kept."""


class Store:
    """A folder of results.  Interrupted work goes on where it stopped: what is there is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, job: Job) -> Path:
        """Where the job's result lies: its name and a hash of what determines it."""
        return self.folder / f"{job.name}-{_digest(job)}.json"

    def result(self, job: Job) -> Json:
        """Return the stored result, computing it first if it is not there."""
        path = self.path(job)
        if not path.exists():
            self._keep(job, job.compute())
        kept = read_json(path)
        if not isinstance(kept, dict) or "result" not in kept or kept.get("id") != _digest(job):
            raise ValueError(
                f"{path} does not hold the run that its name says; delete it and run the command "
                "again"
            )
        return kept["result"]

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
        news: Callable[[Job, Json], str] | None = None,
    ) -> bool:
        """Compute what is missing of ``jobs``, with a progress bar; tell whether nothing is.

        ``backend`` says where, by default in ``workers`` processes.  After ``deadline``, a time of
        :func:`time.monotonic`, no job is begun any more.  What ``news`` makes of the latest result
        is shown beside the bar.
        """
        missing = {self.path(job): job for job in jobs if not self.has(job)}
        if not missing:
            return True
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[news]}"),
        )
        waiting = (job for job in missing.values() if time.monotonic() < deadline)
        begun, done = time.monotonic(), 0
        try:
            with Progress(*columns, console=console, transient=True) as progress:
                bar = progress.add_task("runs", total=len(missing), rate="", news="")
                for job, result in (backend or Processes(workers)).results(waiting):
                    self._keep(job, result)
                    done += 1
                    rate = f"{60 * done / (time.monotonic() - begun):.3g} a minute"
                    word = "" if news is None else news(job, result)
                    progress.update(bar, advance=1, description=job.name, rate=rate, news=word)
        except KeyboardInterrupt:
            done = sum(path.exists() for path in missing)
            raise Interrupted(
                f"interrupted with {done} of {len(missing)} runs done, which are kept; the same "
                "command goes on from there"
            ) from None
        return done == len(missing)

    def _keep(self, job: Job, result: Json) -> None:
        record = {"id": _digest(job), "spec": job.spec(), "result": result}
        write_whole(self.path(job), to_json(record))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file such that whoever looks finds the old one or all of the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def to_json(value: Json, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite becomes null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False) + "\n"


def read_json(path: Path) -> Json:
    """Read a JSON file; the error names the file and what to do."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is not a whole JSON file ({error}); delete it and run the command again"
        ) from error


def environment() -> dict[str, str]:
    """What the numbers were computed with."""
    packages = ("numba", "numpy", "scikit-learn", "scipy")
    found = {package: metadata.version(package) for package in packages}
    python = {"python": platform.python_version(), "machine": platform.machine()}
    return {"adahb": adahb.__version__, **python, **found}


def _digest(job: Job) -> str:
    whole = json.dumps({"version": adahb.__version__, **job.spec()}, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def _finite(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value
