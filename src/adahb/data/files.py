"""Where a data set's file lies, how it gets there, and how it is opened."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

ENVIRONMENT = "ADAHB_DATA"
_PACKED: dict[str, Callable[[IO[bytes]], Any]] = {
    ".bz2": bz2.BZ2File,
    ".xz": partial(lzma.LZMAFile, format=lzma.FORMAT_XZ),
    ".gz": lambda packed: gzip.GzipFile(fileobj=packed),
}
RATIO, SLACK = 100, 2**24
"""A packed file may unpack to so many times the bytes read of it, and so many bytes more."""
_CHUNK = 2**16


class DownloadFailed(FileNotFoundError):  # noqa: N818 - it says what is not found, and why
    """A file is in no folder, and could not be downloaded."""


class TooLarge(ValueError):  # noqa: N818 - it says what is too large
    """A file holds, or unpacks to, far more than what it is taken for."""


def open_binary(path: Path, at_most: int | None = None) -> IO[bytes]:
    """Open a file for reading, unpacked if its ending says that it is packed.

    What it unpacks to is limited: by ``at_most`` bytes, or by what text can be packed into it.
    """
    return unpacked(path.open("rb"), path, at_most)


def unpacked(file: IO[bytes], path: Path, at_most: int | None = None) -> IO[bytes]:
    """The same of a file that is open; ``path`` says whether it is packed, and names it."""
    unpack = _PACKED.get(path.suffix)
    if unpack is None:
        return file
    return io.BufferedReader(_Unpacked(file, unpack(file), path, at_most), _CHUNK)


class _Unpacked(io.RawIOBase):
    """What a packed file holds, read no further than it may be long."""

    def __init__(self, file: IO[bytes], content: Any, path: Path, at_most: int | None) -> None:
        self._file, self._content, self._path, self._at_most = file, content, path, at_most
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count: int = self._content.readinto(buffer)
        except MemoryError as error:  # .xz says itself how much it takes, up to 4 GiB
            raise TooLarge(f"{self._path} takes more memory to unpack than there is") from error
        self._read += count
        limit = SLACK + RATIO * self._file.tell() if self._at_most is None else self._at_most
        if self._read > limit:
            why = f", {RATIO} times what was read of it" if self._at_most is None else ""
            raise TooLarge(f"{self._path} unpacks to more than {limit} bytes{why}: it is refused")
        return count

    def close(self) -> None:
        self._content.close()
        self._file.close()
        super().close()


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
    largest: int,
    offline: bool,
) -> Path:
    """The file of a set in the cache; if it is not there it is downloaded, unless ``offline``.

    ``folder`` is where it may lie in ``home``, and where it is kept in the cache; ``known_hash`` is
    that of what ``url`` yields, as pooch has it, and ``largest`` its bytes at most.
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
        fetch = _bounded(largest)
        return Path(pooch.retrieve(url, known_hash, kept.name, kept.parent, downloader=fetch))
    except (OSError, ValueError) as error:
        raise DownloadFailed(
            f"{wanted}; downloading {url} failed ({error}): try again, or {remedy}"
        ) from error


def _bounded(largest: int) -> Callable[[str, str, Any], None]:
    """A downloader for pooch that gives up on a file of more bytes, wherever it comes from."""

    def fetch(url: str, output_file: str, _: Any) -> None:
        import requests

        answer = requests.get(url, stream=True, timeout=30)
        with answer as response, Path(output_file).open("wb") as to:
            response.raise_for_status()
            for chunk in response.iter_content(_CHUNK):
                to.write(chunk)
                if to.tell() > largest:
                    raise TooLarge(f"it has more than the {largest} bytes that it may have")

    return fetch


def is_packed(name: str) -> bool:
    """Tell whether a name ends like that of a packed file."""
    return Path(name).suffix in _PACKED
