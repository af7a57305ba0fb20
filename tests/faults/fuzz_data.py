"""What is fuzzed of the readers of data, each beside a reader that is simple enough to be right."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from adahb.data import files, images, libsvm

from .fuzz import Choices, Target

RIGHT, REFUSED = "right answer", "clear error"
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
UNPACK = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lambda b: lzma.decompress(b, lzma.FORMAT_XZ),
}
DAMAGE = (EOFError, MemoryError, OSError, ValueError, lzma.LZMAError, zlib.error)
ENDINGS = ("", "", "", "", "", ".gz", ".bz2", ".xz")
"""Chosen by the first byte of an input: what follows it is the file."""


def named(data: bytes) -> tuple[Path, bytes]:
    """The name of a file and what stands in it."""
    return Path("fuzzed" + ENDINGS[data[0] % len(ENDINGS) if data else 0]), data[1:]


def seed(ending: str, content: bytes) -> bytes:
    packed = PACK[ending](content) if ending else content
    return bytes([ENDINGS.index(ending)]) + packed


def plain(path: Path, content: bytes) -> bytes | None:
    """What a file holds, by Python's own means; None if it does not unpack."""
    if not path.suffix:
        return content
    try:
        return UNPACK[path.suffix](content)
    except DAMAGE:
        return None


def outcome(path: Path, read: Callable[[], Any]) -> tuple[Any, str]:
    """What was read and no words, or nothing and the words of an error that names the file."""
    try:
        return read(), ""
    except ValueError as refusal:
        error = refusal
    assert type(error) in (ValueError, files.TooLarge), repr(error)
    assert path.name in str(error), f"no file is named: {error}"
    return None, str(error)


# ---------------------------------------------------------------- LIBSVM

TEXTS = (
    b"+1 1:0.5 4:2\n-1 2:-1e-3 \n-1\n+1 3:1 4:-1 # a remark\n",
    b"2.5 1:1\n0 1:2\n",
    b"1 qid:3 1:1 2147483647:0.25\r\n\n# nothing\n-1e300 7:1e-300",
    b"".join(b"%d %d:%.17g\n" % (i % 2, i + 1, math.sqrt(i)) for i in range(40)),
)
WORDS = (
    *(b"nan", b"inf", b"-inf", b"1e999", b"1_0", b"0x1", b"1:", b":1", b" ", b"\n", b"\r", b"\0"),
    *(b"#", b"qid:1", b"qid", b"1:1", b"2147483647:1", b"2147483648:1", b"999999999999:1", b"+1"),
    *(b"-1", b"1e39", b"4e-324", b"\xff", "١".encode(), b"9" * 5000, b"\x0b", b"\x1c", b","),
)


def libsvm_target(_: Path) -> Target:
    seeds = [seed(ending, text) for text in TEXTS for ending in ("", "", "", *PACK)]
    return Target(_read_libsvm, [*seeds, *(bytes([255]) + text for text in TEXTS)], WORDS)


def _read_libsvm(data: bytes) -> str:
    if data[:1] == b"\xff":
        return _written_and_read(Choices(data[1:]))
    path, content = named(data)
    dtype = np.dtype((np.float64, np.float32)[len(data) % 2])
    text = plain(path, content)
    expected = None if text is None else _rows(text, dtype)
    found, refusal = outcome(path, lambda: _parse(path, content, dtype))
    assert bool(expected) != bool(refusal), f"{expected} and {refusal!r}"
    if not expected:
        return REFUSED
    X, y, _ = found
    labels, rows = expected
    assert X.shape[0] == len(rows) == len(y)
    np.testing.assert_array_equal(y, labels)
    for k, row in enumerate(rows):
        part = slice(X.indptr[k], X.indptr[k + 1])
        assert X.indices[part].tolist() == [index - 1 for index, _ in row]
        np.testing.assert_array_equal(X.data[part], np.array([v for _, v in row], dtype))
    return RIGHT


def _parse(path, content, dtype):
    def opened(name, at_most):
        return files.unpacked(io.BytesIO(content), name, at_most)

    return libsvm._read(path, None, dtype, None, opened)


def _rows(text: bytes, dtype: np.dtype) -> tuple[list, list] | None:
    """Labels and rows of a file of the format; None of another."""
    labels, rows = [], []
    for line in text.split(b"\n"):
        words = line.split(b"#")[0].split()
        if b"\0" in line or any(b"_" in word for word in words):
            return None
        if not words:
            continue
        entries = words[1:]
        if entries and entries[0].startswith(b"qid") and b":" in entries[0]:
            del entries[0]
        pairs = [entry.split(b":", 1) for entry in entries]
        if any(len(pair) < 2 for pair in pairs):
            return None
        label, row = _number(words[0], np.float64), []
        for index, value in pairs:
            k, x = _index(index), _number(value, dtype)
            if k is None or x is None or (row and k <= row[-1][0]):
                return None
            row.append((k, x))
        if label is None:
            return None
        labels.append(label)
        rows.append(row)
    return (labels, rows) if rows else None


def _index(text: bytes) -> int | None:
    digits = text.removeprefix(b"+")
    if not digits.isdigit() or len(digits) > 4000:
        return None
    return int(digits) if 0 < int(digits) < 2**31 else None


def _number(text: bytes, dtype: type | np.dtype) -> float | None:
    try:
        with np.errstate(over="ignore"):
            x = float(np.asarray(float(text), dtype))
    except ValueError:
        return None
    return x if math.isfinite(x) and b"_" not in text else None


def _written_and_read(choose: Choices) -> str:
    """A matrix of any shape and any numbers is what it was before."""
    rng = np.random.default_rng(choose.below(2**16))
    rows = [np.flatnonzero(rng.random(choose.below(9)) < 0.6) for _ in range(1 + choose.below(6))]
    values = [rng.standard_normal(r.size) * 10.0 ** rng.integers(-300, 300) for r in rows]
    labels = rng.standard_normal(len(rows))
    text = b"".join(
        b" ".join(
            [
                repr(float(y)).encode(),
                *(b"%d:%r" % (k + 1, float(v)) for k, v in zip(r, x, strict=True)),
            ]
        )
        + b"\n"
        for y, r, x in zip(labels, rows, values, strict=True)
    )
    ending = choose.pick(("", *PACK))
    path = Path("fuzzed" + ending)
    X, y, _ = _parse(path, PACK[ending](text) if ending else text, np.dtype(np.float64))
    np.testing.assert_array_equal(y, labels)
    np.testing.assert_array_equal(X.data, np.concatenate(values))
    np.testing.assert_array_equal(X.indices, np.concatenate(rows))
    return RIGHT


# ---------------------------------------------------------------- idx

HEADER = struct.pack(">4i", images._IDX_IMAGES, 3, 4, 4)
LABELS = struct.pack(">2i", images._IDX_LABELS, 9)


def idx_target(_: Path) -> Target:
    whole = [HEADER + bytes(range(48)), LABELS + bytes(range(9))]
    seeds = [seed(ending, content) for content in whole for ending in ("", "", *PACK)]
    return Target(_read_idx, seeds, [HEADER, LABELS, b"\0", b"\xff", b"\n", b"\x0a"])


def _read_idx(data: bytes) -> str:
    path, content = named(data)
    of_labels = len(data) < 40 or LABELS in data
    header, size = (LABELS, 9) if of_labels else (HEADER, 48)
    bytes_of = plain(path, content)
    fits = bytes_of is not None and bytes_of[: len(header)] == header
    fits = fits and len(bytes_of) == len(header) + size
    fits = fits and (not of_labels or max(bytes_of[8:]) < 10)

    def read() -> np.ndarray:
        with files.unpacked(io.BytesIO(content), path) as stream:
            found = images._idx_bytes(stream, path, "mnist", header, size, None)
        if not of_labels:
            return found
        return images._split(np.zeros((9, 1, 4, 4), np.uint8), found, 10, path.name).y

    found, refusal = outcome(path, read)
    assert fits != bool(refusal), f"{fits} and {refusal!r}"
    if not fits:
        return REFUSED
    assert found.tolist() == list(bytes_of[len(header) :])
    return RIGHT


# ---------------------------------------------------------------- CIFAR

RECORD = 9
"""Bytes of a record here: the reader is told how long members are."""
MEMBERS = {f"cifar/data_batch_{k}.bin": 2 * RECORD for k in range(1, 4)} | {
    "cifar/test.bin": RECORD
}


def cifar_target(_: Path) -> Target:
    contents = {m: bytes(k % 10 for k in range(size)) for m, size in MEMBERS.items()}
    archives = [_archive(contents, form) for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]
    seeds = [b"\0" + a for a in archives for _ in range(4)]
    seeds += [b"\5" + gzip.compress(a) for a in archives]
    seeds += [seed(e, contents["cifar/test.bin"] * 2) + b"\xfe" for e in ("", ".gz", ".bz2", ".xz")]
    kinds = [bytes([kind]) for kind in b"0123456xgLKSV"]
    names = [name.encode() + b"\0" for name in ("../../x", "/etc/passwd", *MEMBERS)]
    words = [
        *kinds,
        *names,
        b"\0" * 512,
        b"\x80" + b"\xff" * 11,
        b"-0000000001\0",
        b"77777777777\0",
    ]
    return Target(_read_cifar, seeds, words)


def _archive(contents: dict[str, bytes], form: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        link = tarfile.TarInfo("cifar/" + 120 * "long")
        link.type, link.linkname = tarfile.SYMTYPE, "../../etc/passwd"
        tar.addfile(link)
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def _read_cifar(data: bytes) -> str:
    if data.endswith(b"\xfe"):
        return _read_batch(data[:-1])
    path, content = named(data)
    if not path.suffix:  # the harm that was done reaches the archive and not its packing alone
        content = _with_checksums(content) if len(content) % 2 else content

    def read() -> dict[str, bytes]:
        with files.unpacked(io.BytesIO(content), path, 2**16) as stream:
            return images._members(stream, path, MEMBERS)

    found, refusal = outcome(path, read)
    if refusal:
        return REFUSED
    assert {name: len(content) for name, content in found.items()} == MEMBERS
    whole = plain(path, content)
    assert whole is not None or path.suffix  # what is behind the last member is not looked at
    assert whole is None or all(member in whole for member in found.values())
    return RIGHT


def _with_checksums(content: bytes) -> bytes:
    """The same archive with every block that looks like a header given the right sum."""
    blocks = bytearray(content)
    for at in range(0, len(blocks) - 511, 512):
        if blocks[at + 257 : at + 262] == b"ustar":
            blocks[at + 148 : at + 156] = 8 * b" "
            blocks[at + 148 : at + 156] = b"%06o\0 " % sum(blocks[at : at + 512])
    return bytes(blocks)


def _read_batch(data: bytes) -> str:
    path, content = named(data)
    size = 2 * RECORD
    whole = plain(path, content)

    def read() -> bytes:
        with files.unpacked(io.BytesIO(content), path) as stream:
            return images._exactly(stream, path, size)

    found, refusal = outcome(path, read)
    assert bool(refusal) == (whole is None or len(whole) != size), refusal
    if refusal:
        return REFUSED
    assert found == whole
    return RIGHT
