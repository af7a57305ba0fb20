"""Results on disk: one file a result, named by what was run, written whole or not at all."""

import hashlib
import json
import os
import platform
import signal
import tempfile
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import metadata
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

import adahb

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

    def complete(self, jobs: Iterable[Job], *, workers: int, console: Console) -> None:
        """Compute what is missing of ``jobs``, ``workers`` at a time, with a progress bar."""
        missing = {self.path(job): job for job in jobs if not self.path(job).exists()}
        if not missing:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        others = active_children()
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_prepare_worker)
        try:
            with Progress(*columns, console=console, transient=True) as progress:
                bar = progress.add_task("runs", total=len(missing))
                futures = {pool.submit(job.compute): job for job in missing.values()}
                for future in as_completed(futures):
                    self._keep(futures[future], future.result())
                    progress.update(bar, advance=1, description=futures[future].name)
        except BaseException as error:
            for worker in set(active_children()).difference(others):
                worker.terminate()  # nobody waits for a run that nobody will keep
            if not isinstance(error, KeyboardInterrupt):
                raise
            done = sum(path.exists() for path in missing)
            raise Interrupted(
                f"interrupted with {done} of {len(missing)} runs done, which are kept; the same "
                "command goes on from there"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _keep(self, job: Job, result: Json) -> None:
        record = {"id": _digest(job), "spec": job.spec(), "result": result}
        write_whole(self.path(job), to_json(record))


def _prepare_worker() -> None:
    """Let a worker end with its parent only, and keep its linear algebra to one thread.

    An interrupt from the keyboard reaches all processes: what follows is for the parent to say.
    """
    import numpy  # noqa: F401 - the limit reaches only the libraries that are loaded
    import scipy.linalg  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threadpool_limits(1)


def _end_with_parent() -> None:
    """End this process once its parent is gone, however that ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
