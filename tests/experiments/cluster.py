"""A ``dask.distributed`` cluster of this machine, each part a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and the processes: that of the scheduler and of two workers."""
    at = folder / "scheduler.json"
    common = ["--scheduler-file", str(at), "--no-dashboard"]
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1"]
    places = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([*each, *common], **places))
            for each in (command, worker, worker)
        ]
        try:
            end = time.monotonic() + 60
            while not (at.exists() and at.read_text().strip().endswith("}")):
                assert time.monotonic() < end, "no scheduler within a minute"
                time.sleep(0.05)
            yield json.loads(at.read_text())["address"], processes
        finally:
            for process in processes:
                process.kill()
