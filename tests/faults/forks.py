"""Jobs that begin at once, forked from a process that has imported everything; and their ends.

What is forked is a session of its own: whoever is still in it after the end has been left behind.
The process that forks computes nothing itself, so that no threads of libraries are lost in it.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from adahb._stopping import SIGNALS

PATIENCE = 120.0
"""Seconds after which something hangs."""


@dataclass
class Begun:
    """A process that is the head of its session, and what it says."""

    pid: int
    log: Path
    code: int | None = field(default=None)
    """Its exit status, negative where a signal ended it."""

    def send(self, number: int, *, all_of_it: bool = False) -> None:
        """A signal to the process, or as Ctrl-C in a terminal to its whole group."""
        try:
            (os.killpg if all_of_it else os.kill)(self.pid, number)
        except ProcessLookupError:
            if not all_of_it:
                raise

    def ended(self) -> bool:
        """Whether it is over."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait for the end, and that nobody of its session is left."""
        wait_for(self.ended, lambda: f"the end of a process: {self.said()[-2000:]}", patience)
        wait_for(
            lambda: not session(self.pid),
            lambda: f"the end of {[command_line(pid) for pid in session(self.pid)]}, left behind",
            patience,
        )
        assert self.code is not None
        return self.code

    def said(self) -> str:
        """Its output and errors."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def fork(job: Callable[[], Any], log: Path) -> Begun:
    """Begin a job in a process of its own; it ends as a program does."""
    sys.stdout.flush()
    sys.stderr.flush()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid = os.fork()
    if pid:
        os.close(out)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return Begun(pid, log)
    os.setsid()
    os.dup2(out, 1)
    os.dup2(out, 2)
    code: Any = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        job()
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(code)


def strike_at_line(line: int, of: str, number: int) -> None:
    """Send this process a signal when it is about to execute that many lines of a file."""
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != of:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)
        return trace

    sys.settrace(trace)


def session(leader: int) -> list[int]:
    """Who is alive in a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    """What a process is, if it still is."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:300]
    except OSError:
        return "(gone)"


def wait_for(
    condition: Callable[[], bool], what: Callable[[], str], patience: float = PATIENCE
) -> None:
    """Wait; what does not come is an error."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what()}"
        time.sleep(0.005)
