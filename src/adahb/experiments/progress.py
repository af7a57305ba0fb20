"""What is seen of runs that are being made."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from adahb.experiments.store import Job, Json

News = Callable[["Job", "Json"], str]


class Board:
    """A bar: runs done, how many a minute, the time left, and what there is to tell of them."""

    def __init__(self, total: int, console: Console, news: News | None) -> None:
        self._news = news
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[news]}"),
            console=console,
            transient=True,
        )
        self._bar = self._progress.add_task("runs", total=total, rate="", news="")
        self._begun, self._done = time.monotonic(), 0

    def __enter__(self) -> Board:
        self._progress.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, name: str) -> None:
        """The next one is under way, alone."""
        self._progress.update(self._bar, description=name)

    def done(self, job: Job, result: Json) -> None:
        """One more run is done, here."""
        self._done += 1
        rate = f"{60 * self._done / (time.monotonic() - self._begun):.3g} a minute"
        word = "" if self._news is None else self._news(job, result)
        self._progress.update(self._bar, advance=1, description=job.name, rate=rate, news=word)

    def done_elsewhere(self, runs: int) -> None:
        """Others, who work on the same folder, have done some of what is missing."""
        self._progress.update(self._bar, advance=runs)

    def waiting(self) -> None:
        """All that is missing is being made by others."""
        self._progress.update(self._bar, description="waiting for others at work in this folder")
