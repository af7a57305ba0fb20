"""How a command is stopped: Ctrl-C and SIGTERM end it with a word and a code, wherever it is."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CTRL_C = 128 + signal.SIGINT
"""What a shell says of a command that was stopped so."""
_SAME = 1.0
"""Seconds within which further signals are the first one again, as `timeout` and npm send them."""


class Interrupted(BaseException):
    """The user stopped the work; what is done is kept.  ``code`` is for the command to end with."""

    def __init__(self, words: str, code: int = CTRL_C) -> None:
        super().__init__(words)
        self.code = code


class _Handler:
    """Ends what is going on, once it may be ended."""

    def __init__(self) -> None:
        self.code, self._when = 0, -math.inf
        self._held, self._due = 0, False

    def __call__(self, number: int, _: FrameType | None) -> None:
        if time.monotonic() - self._when >= _SAME:
            self._when = time.monotonic()
            self.code = 128 + number
            self._due = self._held > 0
            if not self._due:
                raise self.interruption()

    def interruption(self) -> Interrupted:
        return Interrupted(
            "interrupted; what is done is kept, and the same command goes on from there", self.code
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._due and not self._held:
                self._due = False
                raise self.interruption()


_handler: _Handler | None = None


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM raise :class:`Interrupted`; signals that nohup ignores stay ignored.

    Libraries may turn that into an error of their own, above all while they are imported: after a
    signal every error is taken for it.
    """
    global _handler  # noqa: PLW0603 - a process has one handler of a signal
    if not _in_main_thread():
        yield  # only there signals can be handled
        return
    handler = _handler = _Handler()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    except BaseException as error:
        if not handler.code or isinstance(error, Interrupted):
            raise
        raise handler.interruption() from None
    finally:
        _handler = None
        for number, was in before.items():
            signal.signal(number, was)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold signals back until the end of the block, here and in processes that are begun in it."""
    if not _in_main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # may raise for one that came just before
        if _handler is None:
            yield
        else:
            with _handler.held():  # for the system may give the signal to another thread
                yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
