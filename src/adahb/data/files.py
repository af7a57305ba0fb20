"""Where a data set's file lies, how it gets there, and how it is opened."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

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


def find(file: str, home: Path | None, *folders: str) -> Path | None:
    """The file in a folder or one of its subfolders, packed or not; None if it is in none."""
    if home is None:
        return None
    places = (home, *(home / folder for folder in folders))
    candidates = (place / f"{file}{ending}" for place in places for ending in ("", *_PACKED))
    return next((path for path in candidates if path.is_file()), None)


def download(
    name: str,
    file: str,
    url: str | None,
    known_hash: str | None,
    home: Path | None,
    *,
    folder: str,
    offline: bool,
) -> Path:
    """The file of a set in the cache; if it is not there it is downloaded, unless ``offline``.

    ``folder`` is where it may lie in ``home``, and where it is kept in the cache; ``known_hash`` is
    that of what ``url`` yields, as pooch has it.
    """
    searched = "" if home is None else f", which is not in {home} or {home / folder}"
    remedy = f"put it into a folder and name that with data_home or {ENVIRONMENT}"
    wanted = f"{name!r} needs the file {file} (or .bz2, .xz, .gz){searched}"
    if url is None:
        raise FileNotFoundError(f"{wanted}; it is not published for download: {remedy}")
    try:
        import pooch
    except ModuleNotFoundError:
        raise FileNotFoundError(
            f"{wanted}; {remedy}, or pip install 'adahb[data]', which downloads {url}"
        ) from None
    kept = Path(pooch.os_cache("adahb")) / folder / Path(url).name
    if offline:
        if kept.is_file():
            return kept
        raise FileNotFoundError(f"{wanted}; {remedy}")
    try:
        return Path(pooch.retrieve(url, known_hash, kept.name, kept.parent))
    except (OSError, ValueError) as error:
        raise DownloadFailed(
            f"{wanted}; downloading {url} failed ({error}): try again, or {remedy}"
        ) from error


def is_packed(name: str) -> bool:
    """Tell whether a name ends like that of a packed file."""
    return Path(name).suffix in _PACKED
