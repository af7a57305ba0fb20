"""The headers of tar archives: as much of the format as it takes to find files in one.

An archive is read once, from its beginning, and nothing in it is followed, unpacked or believed: a
header whose checksum is wrong or whose length is no octal number is none.
"""

from __future__ import annotations

from typing import IO

BLOCK = 512
"""Bytes that an archive is made of."""
_DATALESS = b"123456"
"""Kinds of entries that are names only: links, devices, folders, pipes."""


def entry(header: bytes) -> tuple[str, int]:
    """Name and length of what follows a header; no name if that is not a file."""
    name, size, checksum = (
        header[a:b].split(b"\0")[0] for a, b in ((0, 100), (124, 136), (148, 156))
    )
    try:
        length, expected = int(size, 8), int(checksum, 8)
    except ValueError as error:
        raise EOFError(f"no header of a tar archive: {error}") from None
    if len(header) < BLOCK or sum(header[:148] + 8 * b" " + header[156:]) != expected or length < 0:
        raise EOFError("no header of a tar archive")
    if header[156:157] in _DATALESS:
        return "", 0
    is_file = header[156:157] in b"0\0"
    return name.decode(errors="replace").removeprefix("./") if is_file else "", length


def pass_over(stream: IO[bytes], size: int) -> None:
    """Read so many bytes, and forget them."""
    while size:
        read = len(stream.read(min(size, 2**16)))
        if not read:
            raise EOFError("it ends too early")
        size -= read
