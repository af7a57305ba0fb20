"""Where runs are computed: in processes of this machine, on a cluster, or together on one GPU.

A worker that dies takes no result with it: what it was computing is computed again elsewhere, a few
times, for it may be the run that kills its workers.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from threadpoolctl import threadpool_limits

import adahb
from adahb._stopping import SIGNALS, held_back

if TYPE_CHECKING:
    from adahb.experiments.store import Job, Json
    from adahb.experiments.training import Run

Results = Generator[tuple["Job", "Json"], None, None]

_LIVES = 3
"""So many workers may be lost to a run."""
_IDLE = 300
"""Seconds after which a process of this machine that has nothing to do ends."""
_GLANCE = 1.0
"""Seconds between two looks for workers that have come to a cluster."""


class RunLost(OSError):  # noqa: N818 - said of the run
    """Every worker that tried a run died of it, or with it."""

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"{_LIVES} workers were killed while they computed {job.name}, for want of memory "
            "perhaps; with fewer --jobs each has more"
        )


class Backend(Protocol):
    """Computes jobs, some at a time."""

    def results(self, jobs: Iterator[Job]) -> Results:
        """Yield each job with its result as soon as that is there.

        A job is asked for when there is room for it, and not before: ``jobs`` may end at any time.
        """


class Processes:
    """So many processes of this machine, each with one thread for its linear algebra.

    They stay for what is computed next, and end with this process or when they are idle for long.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def results(self, jobs: Iterator[Job]) -> Results:
        """Keep every process busy; one that is killed is replaced."""
        pool = self._pool()
        running: dict[Future[Json], Job] = {}
        lost: dict[int, int] = {}
        again: list[Job] = []

        def following() -> Job | None:
            return again.pop() if again else next(jobs, None)

        try:
            while True:
                while len(running) < self.workers and (job := following()) is not None:
                    try:
                        with held_back():  # a process half begun would tell of the interrupt
                            running[pool.submit(job.compute)] = job
                    except BrokenExecutor:  # a worker was killed
                        again.append(job)
                        pool = self._pool()
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    try:
                        result = future.result()
                    except BrokenExecutor as error:
                        lost[id(job)] = lost.get(id(job), 0) + 1
                        if lost[id(job)] == _LIVES:
                            raise RunLost(job) from error
                        again.append(job)
                    else:
                        yield job, result
        except BaseException:
            pool.shutdown(wait=True, kill_workers=True)  # nobody waits for what nobody will keep
            raise

    def _pool(self) -> Any:
        from loky import get_reusable_executor

        return get_reusable_executor(
            self.workers,
            timeout=_IDLE,
            initializer=_prepare_worker,
            initargs=(os.getpid(),),
            env={"LOKY_MAX_MEMORY_LEAK_SIZE": "1e15"},  # data that stay loaded are no leak
        )


class Dask:
    """The workers of a ``dask.distributed`` cluster, which must have this version of adahb."""

    def __init__(self, address: str, patience: float = 20.0) -> None:
        self.address, self._patience = address, patience

    def results(self, jobs: Iterator[Job]) -> Results:
        """Keep every thread of the cluster busy; the scheduler moves what a dead worker had."""
        with self._client() as client:
            running: dict[str, Job] = {}
            done: SimpleQueue[Any] = SimpleQueue()
            while True:
                room = max(1, self._threads(client))
                while len(running) < room and (job := next(jobs, None)) is not None:
                    future = client.submit(_compute, job, adahb.__version__, pure=False)
                    running[future.key] = job
                    future.add_done_callback(done.put)
                if not running:
                    return
                try:
                    future = done.get(timeout=_GLANCE)
                except Empty:
                    continue
                job = running.pop(future.key)
                yield job, self._result(future, job)

    def _client(self) -> Any:
        """Connect; a client that cannot is never made, for half of one is closed where it hangs.

        Python may get rid of it while another client starts, which then waits for itself.
        """
        try:
            from distributed import Client
            from distributed.comm.addressing import get_address_host_port
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "backend='dask' needs the package distributed: pip install 'adahb[cluster]'"
            ) from error
        try:
            socket.create_connection(get_address_host_port(self.address), self._patience).close()
            return Client(self.address, timeout=self._patience, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"no dask scheduler answers at {self.address!r}; `dask scheduler` prints its "
                "address when it starts"
            ) from error

    def _threads(self, client: Any) -> int:
        """How many there are now: workers come and go."""
        try:
            return sum(client.nthreads().values())
        except (OSError, RuntimeError) as error:
            raise self._gone() from error

    def _result(self, future: Any, job: Job) -> Json:
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except KilledWorker as error:
            raise RunLost(job) from error
        except CancelledError as error:
            raise self._gone() from error

    def _gone(self) -> ConnectionError:
        return ConnectionError(
            f"the dask scheduler at {self.address} is gone; what is done is kept, and the same "
            "command goes on from there"
        )


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

    def results(self, jobs: Iterator[Job]) -> Results:
        """Make a step of each run in turn."""
        from adahb.experiments.training import train_together

        def makers() -> Iterator[tuple[Job, Callable[[], Run]]]:
            for job in jobs:
                trainable: Trainable = job  # type: ignore[assignment]
                yield job, trainable.begin

        for job, run in train_together(makers(), self.in_flight):
            finisher: Trainable = job  # type: ignore[assignment]
            yield job, finisher.finish(run)


def _compute(job: Job, version: str) -> Json:
    """Compute on a worker of a cluster."""
    if adahb.__version__ != version:
        raise ImportError(
            f"a worker of the cluster has adahb {adahb.__version__}, the command has {version}"
        )
    return job.compute()


def _prepare_worker(parent: int) -> None:
    """Let a worker end with its parent only, and keep its linear algebra to one thread.

    An interrupt from the keyboard reaches all processes: what follows is for the parent to say.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    import numpy  # noqa: F401 - the limit reaches only the libraries that are loaded
    import scipy.linalg  # noqa: F401

    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    threadpool_limits(1)


def _end_with(parent: int) -> None:
    """End this process once its parent is gone, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
