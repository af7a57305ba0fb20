"""What Ctrl-C must not leave half done."""

from __future__ import annotations

import threading
from _signal import getsignal, signal  # type: ignore[import-not-found] # that of `signal` is slow
from signal import SIGINT
from types import FrameType, TracebackType
from typing import Any


class Whole:
    """A context whose inside is done whole, or not begun: Ctrl-C takes effect at its end.

    Python delivers an interrupt between any two operations, and right after a long call before its
    result is kept.  It does so in the main thread alone, and for handlers of Python's: elsewhere
    nothing is changed.  What is inside should take a fraction of a second.

    >>> import signal
    >>> try:
    ...     with Whole():
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("whole")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    whole
    interrupted
    """

    __slots__ = ("_came", "_frame", "_handler")

    def __enter__(self) -> None:
        self._came, self._handler = False, None
        self._frame: FrameType | None = None
        if threading.get_ident() == threading.main_thread().ident:
            handler: Any = getsignal(SIGINT)
            if callable(handler):
                self._handler = handler
                signal(SIGINT, self._note)

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        handler = self._handler
        if handler is not None:
            signal(SIGINT, handler)
            if self._came:
                handler(SIGINT, self._frame)

    def _note(self, _: int, frame: FrameType | None) -> None:
        self._came, self._frame = True, frame
