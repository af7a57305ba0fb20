"""Files that are whole or not there, and leases on what several processes might do at once.

Whoever writes or computes holds a lock on a file of its own beside the result.  The system takes
the lock back when a process ends, however it ends, so that what a killed one left behind is told
from what a living one is using.
"""

from __future__ import annotations

import fcntl
import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from adahb._stopping import held_back


def write_whole(path: Path, content: str | bytes | memoryview) -> None:
    """Write a file such that whoever looks finds the old one or all of the new one."""
    with held_back(), explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, glob.escape(path.name))
        part, file = _begin(path)
        try:
            with file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
                part.chmod(0o644)
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def read_whole(path: Path, at_most: int) -> bytes:
    """The bytes of a file, which must be one, and no longer than what it is taken for is."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} must be a file, and is a pipe or a device")
    with path.open("rb") as file:
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise ValueError(f"{path} has more than {at_most} bytes: it is refused")
    return content


def remove_leftovers(folder: Path, names: str = "*") -> None:
    """Remove what killed processes left in a folder beside the files of these names, if we may."""
    for pattern in (f".{names}.*.part", f".{names}.lock"):
        for leftover in folder.glob(pattern):
            with suppress(OSError), leftover.open("r+b") as file:
                if _lock(file):
                    leftover.unlink(missing_ok=True)


class Lease:
    """The right to make a file, which one process has at a time."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file

    @classmethod
    def of(cls, path: Path) -> Lease | None:
        """The lease of ``path``, or None while another process has it.

        Where a file system knows no locks everybody gets it: work may then be done twice.
        """
        lock = path.with_name(f".{path.name}.lock")
        while True:
            with explained(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                file = lock.open("ab")
            if _lock(file) is False:
                file.close()
                return None
            if _is_at(file, lock):
                return cls(lock, file)
            file.close()  # who had it removed it before we got it

    def release(self) -> None:
        """Let others have it."""
        self._path.unlink(missing_ok=True)
        self._file.close()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say of what the system refuses which file it was for, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(
            error.errno,
            f"{path} cannot be written ({error.strerror}); what was written before is kept: make "
            "room or choose another place, and go on with the same command",
        ) from error


def _begin(path: Path) -> tuple[Path, IO[bytes]]:
    """A locked file beside ``path``, to be filled."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        part, file = Path(name), os.fdopen(handle, "wb")
        if _lock(file) is not False and _is_at(file, part):
            return part, file
        file.close()  # taken for a leftover before it was locked


def _lock(file: IO[bytes]) -> bool | None:
    """Whether the file is locked by us now; None where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
