"""Numba's compiler with a cache on disk that can be trusted, and can be done without.

Numba keeps one index for all signatures of a function, which processes that compile different ones
at the same time write over each other, so that a signature may find the machine code of another;
and it takes what the files hold as it is.  Here every signature has a file of its own, written
whole, with a checksum.  One that is damaged, stale, or cannot be read or written, counts as absent:
the cache saves time and is never a reason to fail.

This module imports Numba; it is imported where loops are compiled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import caching
from numba.core.dispatcher import Dispatcher

_F = TypeVar("_F", bound=Callable[..., Any])
_SUM = hashlib.sha256().digest_size
_FileCache: Any = caching.IndexDataCacheFile  # has no types
_FunctionCache: Any = caching.FunctionCache


def njit(**options: Any) -> Callable[[_F], _F]:
    """Return `numba.njit` with these options and the cache of this module."""

    def compiled(function: _F) -> _F:
        made: Any = numba.njit(**options)(function)
        if Dispatcher in type(made).__mro__:  # not with NUMBA_DISABLE_JIT
            with suppress(RuntimeError, OSError):  # nowhere to write
                made._cache = _Cache(function)
        result: _F = made
        return result

    return compiled


@lru_cache
def _folder(path: Path) -> tuple[tuple[str, float, int], ...]:
    """What tells the sources of a folder from earlier ones: what is compiled calls its neighbours.

    Numba looks at the file of the caller alone, and goes on with a neighbour that has changed.
    """
    found = ((file.name, file.stat()) for file in sorted(path.glob("*.py")))
    return tuple((name, at.st_mtime, at.st_size) for name, at in found)


class _Files(_FileCache):  # type: ignore[misc]
    """A file for each signature, and no index."""

    def save(self, key: Any, data: Any) -> None:
        """Write what was compiled for ``key``, and behind it the checksum."""
        content = self._dump((self._version, self._source_stamp, key, data))
        with self._open_for_write(self._data_path(self._name(key))) as file:
            file.write(content + hashlib.sha256(content).digest())

    def load(self, key: Any) -> Any:
        """Return what was compiled for ``key``; None if it is not there, or not as written."""
        name = self._name(key)
        stored = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(stored[:-_SUM]).digest() != stored[-_SUM:]:
            return None
        *of, data = self._load_data(name)
        return data if of == [self._version, self._source_stamp, key] else None

    def _name(self, key: Any) -> str:
        base = self._index_name.removesuffix(".nbi")
        return f"{base}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"


class _Cache(_FunctionCache):  # type: ignore[misc]
    """The cache of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        code: Any = function.__code__
        stamp = self._impl.locator.get_source_stamp(), _folder(Path(code.co_filename).parent)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled signature, or None if it is to be compiled."""
        with suppress(OSError):
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled signature for other processes, if it can be kept."""
        with suppress(OSError):
            super().save_overload(sig, data)
