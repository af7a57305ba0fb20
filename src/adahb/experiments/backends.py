"""Where runs are computed: in processes of this machine, or together on one GPU."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context, parent_process
from typing import TYPE_CHECKING, Protocol

from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from adahb.experiments.store import Job, Json
    from adahb.experiments.training import Run


class Backend(Protocol):
    """Computes jobs, some at a time."""

    def results(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Json]]:
        """Yield each job with its result as soon as that is there.

        A job is asked for when there is room for it, and not before: ``jobs`` may end at any time.
        """


class Processes:
    """So many processes of this machine, each with one thread for its linear algebra."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def results(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Json]]:
        """Compute each job in a process of its own kind; they end when the iteration does."""
        others = active_children()
        pool = ProcessPoolExecutor(self.workers, get_context("spawn"), initializer=_prepare_worker)
        running: dict[Future[Json], Job] = {}
        try:
            while True:
                while len(running) < self.workers and (job := next(jobs, None)) is not None:
                    running[pool.submit(job.compute)] = job
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BaseException:
            for worker in set(active_children()).difference(others):
                worker.terminate()  # nobody waits for a run that nobody will keep
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Trainable(Protocol):
    """A job that can be made step by step."""

    def begin(self) -> Run:
        """The run, before its first step."""

    def finish(self, run: Run) -> Json:
        """The result of the run after its last step."""


class OneDevice:
    """Several runs in flight on one GPU, in this process."""

    def __init__(self, in_flight: int) -> None:
        self.in_flight = in_flight

    def results(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Json]]:
        """Make a step of each run in turn."""
        from adahb.experiments.training import train_together

        def makers() -> Iterator[tuple[Job, Callable[[], Run]]]:
            for job in jobs:
                trainable: Trainable = job  # type: ignore[assignment]
                yield job, trainable.begin

        for job, run in train_together(makers(), self.in_flight):
            finisher: Trainable = job  # type: ignore[assignment]
            yield job, finisher.finish(run)


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
