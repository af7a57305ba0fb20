"""Where a data set's file lies, how it gets there, and how it is opened."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from adahb.data.registry import Source

ENVIRONMENT = "ADAHB_DATA"
_OPENERS: dict[str, Callable[[Path], Any]] = {"": lambda path: path.open("rb")}
_OPENERS |= {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked if its ending says that it is packed."""
    opener = _OPENERS.get(path.suffix, _OPENERS[""])
    opened: IO[bytes] = opener(path)
    return opened


def folder(data_home: str | os.PathLike[str] | None) -> Path | None:
    """The local folder: the argument, else the environment's, else none."""
    chosen = os.environ.get(ENVIRONMENT) if data_home is None else data_home
    if not chosen:
        return None
    path = Path(chosen).expanduser()
    if not path.is_dir():
        where = f"the environment variable {ENVIRONMENT}" if data_home is None else "data_home"
        raise FileNotFoundError(f"{where} must name an existing folder, got {str(chosen)!r}")
    return path


def find(source: Source, home: Path | None) -> Path | None:
    """The file in a folder or its subfolder ``libsvm``, packed or not; None if it is in neither."""
    if home is None:
        return None
    candidates = (
        place / f"{source.file}{ending}" for place in (home, home / "libsvm") for ending in _OPENERS
    )
    return next((path for path in candidates if path.is_file()), None)


def download(name: str, source: Source, home: Path | None) -> Path:
    """The file in the cache, downloaded if it is not there."""
    searched = "" if home is None else f", which is not in {home} or {home / 'libsvm'}"
    remedy = f"put it into a folder and name that with data_home or {ENVIRONMENT}"
    wanted = f"{name!r} needs the file {source.file} (or .bz2, .xz, .gz){searched}"
    if source.url is None:
        raise FileNotFoundError(f"{wanted}; it is not published for download: {remedy}")
    try:
        import pooch
    except ModuleNotFoundError:
        raise FileNotFoundError(
            f"{wanted}; {remedy}, or pip install 'adahb[data]', which downloads {source.url}"
        ) from None
    cache = Path(pooch.os_cache("adahb")) / "libsvm"
    packed = Path(source.url).suffix in _OPENERS
    known_hash = None if packed and Path(source.url).suffix else source.sha256
    try:
        return Path(pooch.retrieve(source.url, known_hash, Path(source.url).name, cache))
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"{wanted}; downloading {source.url} failed ({error}): try again, or {remedy}"
        ) from error
