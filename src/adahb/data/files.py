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
_PACKED: dict[str, Callable[[Path], Any]] = {
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".gz": gzip.open,
}


class DownloadFailed(FileNotFoundError):  # noqa: N818 - it says what is not found, and why
    """A file is in no folder, and could not be downloaded."""


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked if its ending says that it is packed."""
    opener = _PACKED.get(path.suffix)
    opened: IO[bytes] = path.open("rb") if opener is None else opener(path)
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
    folders, endings = (home, home / "libsvm"), ("", *_PACKED)
    candidates = (place / f"{source.file}{ending}" for place in folders for ending in endings)
    return next((path for path in candidates if path.is_file()), None)


def download(name: str, source: Source, home: Path | None, *, offline: bool) -> Path:
    """The file in the cache; if it is not there it is downloaded, unless ``offline``."""
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
    kept = Path(pooch.os_cache("adahb")) / "libsvm" / Path(source.url).name
    if offline:
        if kept.is_file():
            return kept
        raise FileNotFoundError(f"{wanted}; {remedy}")
    known_hash = None if kept.suffix in _PACKED else source.sha256
    try:
        return Path(pooch.retrieve(source.url, known_hash, kept.name, kept.parent))
    except (OSError, ValueError) as error:
        raise DownloadFailed(
            f"{wanted}; downloading {source.url} failed ({error}): try again, or {remedy}"
        ) from error
