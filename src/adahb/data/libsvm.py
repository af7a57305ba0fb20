"""Reading data in the LIBSVM format, checked, with errors that say where and what to do."""

from __future__ import annotations

import hashlib
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from adahb import _checks as check
from adahb.data import files
from adahb.data.registry import SOURCES, Source

FOLDER = "libsvm"
"""Where the files lie in a folder of data."""
LONGEST_LINE = 2**24
"""Bytes of a line, all of which are in memory at a time, and many times over."""
_OF_A_NUMBER = 64
"""Bytes that an entry or a label is written with, at most."""
_DIGITS = 4000
"""Of an index; Python turns no text of many more into a number."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples in the rows of a CSR matrix, and their targets."""

    X: sparse.csr_array[Any]
    """Column indices are sorted, and of 32 bits where they fit."""
    y: NDArray[np.float64]
    """Of a set known by name -1 and +1; of any other file what stands in it."""
    name: str
    path: Path
    """The file that was read."""

    def __repr__(self) -> str:
        rows, columns = self.X.shape
        return f"Dataset({self.name!r}, {rows} × {columns}, {self.X.nnz} nonzeros)"


def load_libsvm(
    name_or_path: str | os.PathLike[str],
    data_home: str | os.PathLike[str] | None = None,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    max_bytes: int | None = None,
) -> Dataset:
    """Read a data set of the LIBSVM collection by its name, or a file in that format by its path.

    By name (:func:`adahb.data.names`) the file is looked for in ``data_home`` and its subfolder
    ``libsvm``; without the argument the environment variable ``ADAHB_DATA`` names the folder.  What
    is not there is downloaded into the cache once, which needs the extra ``adahb[data]``.  Files
    are checked: rows, columns and nonzeros always, all bytes where their checksum is known.

    Targets of named sets are -1 and +1.  In "covtype" the label 2 (lodgepole pine) is +1 and 1
    (the rest) is -1; in "news20" the classes 1 to 10 are +1 and 11 to 20 are -1; in "reuters"
    (money-fx against the rest) and all others the signs are the file's.  "a9a.t", "w8a.t",
    "ijcnn1.t", "rcv1.t" and "reuters.t" are the test sets.

    By path, which may end in .bz2, .xz or .gz, targets stay as they are, and ``n_features`` makes
    the matrix wider than the largest column met (a test set is often narrower than its training
    set).  Nothing is known of such a file: plain text with a digit changed, or that ends too early,
    may be another file that is as good; in a packed one its checksum tells.  Values are read into
    ``dtype``, float64 or float32.

    A packed file that unpacks to more than text does, more than 100 times its size and 16 MiB, is
    refused, and so is a line of more than 16 MiB.  ``max_bytes`` is another limit for both.
    """
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float32 or float64, got {dtype}")
    if n_features is not None:
        check.integer("n_features", n_features, at_least=1)
    if max_bytes is not None:
        check.integer("max_bytes", max_bytes, at_least=1)
    name = os.fspath(name_or_path)
    if name in SOURCES:
        if n_features not in (None, SOURCES[name].columns):
            raise ValueError(
                f"n_features must be left out for {name!r}, which has {SOURCES[name].columns}, "
                f"got {n_features}"
            )
        return _load_known(name, SOURCES[name], locate(name, data_home), dtype, max_bytes)
    path = Path(name).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"name_or_path must be an existing file or one of {', '.join(SOURCES)}; got {name!r}"
        )
    X, y, _ = _read(path, n_features, dtype, max_bytes)
    return Dataset(X, y, path.name, path)


def locate(
    name: str, data_home: str | os.PathLike[str] | None = None, *, download: bool = True
) -> Path:
    """Return where the file of a named set lies, downloading it first if need be and if asked to.

    Nothing is read yet.  A file that cannot be had is a FileNotFoundError, which says what to do.
    """
    source, home = SOURCES[name], files.folder(data_home)
    path = files.find(source.file, home, FOLDER)
    if path is not None:
        return path
    packed = source.url is not None and files.is_packed(source.url)
    known_hash = None if packed else source.sha256
    return files.download(
        name,
        source.file,
        source.url,
        known_hash,
        home,
        folder=FOLDER,
        largest=_largest(source),
        offline=not download,
    )


def _largest(source: Source) -> int:
    """So many bytes its text has at most."""
    return _OF_A_NUMBER * (source.rows + source.nonzeros)


def _load_known(
    name: str, source: Source, path: Path, dtype: np.dtype[Any], max_bytes: int | None
) -> Dataset:
    remedy = f"replace it by the published file, or read it unchecked by its path {str(path)!r}"
    X, y, sha256 = _read(path, None, dtype, max_bytes)
    found = {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": X.nnz}
    for what, number in found.items():
        expected = getattr(source, what)
        narrower = what == "columns" and number < expected and name.endswith(".t")
        if number != expected and not narrower:  # a test set may lack the last columns
            raise ValueError(
                f"{path} has {number} {what}, but {name!r} has {expected}: the file is not whole "
                f"or not that set; {remedy}"
            )
    if source.sha256 not in (None, sha256):
        raise ValueError(
            f"{path} is not the published file of {name!r}: its contents have the sha256 {sha256}, "
            f"not {source.sha256}; {remedy}"
        )
    try:
        return Dataset(_narrow(X, source.columns), source.signs(y), name, path)
    except ValueError as error:
        raise ValueError(f"{path} {error}; {remedy}") from None


class _Lines:
    """The lines of a file, counted and checksummed as they are read."""

    def __init__(self, file: IO[bytes], path: Path, longest: int) -> None:
        self._file, self._path, self._longest = file, path, longest
        self.hash, self.number, self.last = hashlib.sha256(), 0, b""

    def read(self, size: int = -1) -> bytes:
        """Never called: it says that this is a file, of which the lines are taken."""
        raise NotImplementedError(size)

    def __iter__(self) -> Iterator[bytes]:
        while line := self._file.readline(self._longest + 1):
            self.number, self.last = self.number + 1, line
            if len(line) > self._longest:
                raise files.TooLarge(
                    f"{self._path}, line {self.number} has more than {self._longest} bytes: it is "
                    "refused; max_bytes allows longer ones"
                )
            if b"\0" in line:
                raise ValueError("it holds a zero byte, which no text does")
            if b"_" in line and b"_" in line.split(b"#", 1)[0]:
                raise ValueError("Python takes 1_0 for a number, and nobody else does")
            self.hash.update(line)
            yield line


def _read(
    path: Path,
    n_features: int | None,
    dtype: np.dtype[Any],
    max_bytes: int | None,
    opened: Callable[[Path, int | None], IO[bytes]] = files.open_binary,
) -> tuple[sparse.csr_array[Any], NDArray[np.float64], str]:
    """Return matrix, targets and the sha256 of the (unpacked) file."""
    from sklearn.datasets import load_svmlight_file

    try:
        with opened(path, max_bytes) as file:
            lines = _Lines(file, path, max(LONGEST_LINE, max_bytes or 0))
            X, y = load_svmlight_file(lines, dtype=dtype, zero_based=False)
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the file could not be read at all; the error says why
        raise ValueError(
            f"{path} is truncated or damaged ({error}); delete it and get it again"
        ) from error
    except files.TooLarge:
        raise
    except (ValueError, OverflowError) as error:
        wrong = _wrong(lines.last) or str(error)
        raise ValueError(
            f"{path}, line {lines.number}: {wrong}; {_REMEDY}, or the file is truncated"
        ) from error
    if not X.shape[0]:
        raise ValueError(f"{path} has no samples: it is empty; delete it and get it again")
    if not (np.isfinite(X.data).all() and np.isfinite(y).all()):
        with opened(path, max_bytes) as file:
            raise ValueError(_not_finite(path, file, dtype))
    if n_features is not None and n_features < X.shape[1]:
        raise ValueError(
            f"n_features must be at least the {X.shape[1]} columns of {path}, got {n_features}"
        )
    return _narrow(X, n_features or X.shape[1]), y, lines.hash.hexdigest()


def _narrow(X: Any, columns: int) -> sparse.csr_array[Any]:
    """CSR of so many columns, its indices in 32 bits if they fit."""
    bits = np.int32 if max(X.nnz, columns) <= np.iinfo(np.int32).max else np.int64
    parts = (X.data, X.indices.astype(bits, copy=False), X.indptr.astype(bits, copy=False))
    return sparse.csr_array(parts, shape=(X.shape[0], columns))


_REMEDY = "every line must be 'label index:value ...', indices from 1 and rising"


def _not_finite(path: Path, file: IO[bytes], dtype: np.dtype[Any]) -> str:
    """In which line a number is not finite; in none, if it is only too large for the dtype."""
    wrong = ((number, _wrong(line)) for number, line in enumerate(file, start=1))
    found = next(((number, words) for number, words in wrong if words is not None), None)
    if found is None:
        return f"{path} cannot be read: it holds numbers that are not finite in {dtype}"
    return f"{path}, line {found[0]}: {found[1]}; {_REMEDY}, or the file is truncated"


def _wrong(line: bytes) -> str | None:
    """What is wrong with a line, None if nothing is."""
    label, *entries = line.split(b"#", 1)[0].split() or [b"0"]
    if not _is_finite(label):
        return f"{_shown(label)} is not a finite label"
    before = 0
    for entry in entries:
        index, colon, value = entry.partition(b":")
        if index == b"qid":
            continue
        if not (colon and index.isdigit() and _is_finite(value)):
            return f"{_shown(entry)} is not index:value with a finite value"
        if len(index) > _DIGITS or not before < int(index) < 2**31:
            return (
                f"the index {_shown(index)} comes after {before}"
                if before
                else (f"{_shown(index)} is not an index, which start at 1")
            )
        before = int(index)
    return None


def _is_finite(number: bytes) -> bool:
    try:
        return b"_" not in number and math.isfinite(float(number))
    except ValueError:
        return False


def _shown(text: bytes) -> str:
    """A token as it can be printed, cut short."""
    shown = text[:30].decode("utf-8", "backslashreplace")
    return repr(shown + "…" if len(text) > 30 else shown)
