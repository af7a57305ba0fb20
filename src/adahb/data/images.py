"""Small images: MNIST and Fashion-MNIST (idx), CIFAR-10 and CIFAR-100 (their binary version).

Files are read as plain bytes of a known layout and length.  Nothing is unpickled and no archive is
unpacked to disk: from a .tar.gz the wanted members are read by name, no further than they are long.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adahb import _checks as check
from adahb.data import files, tar

Bytes = NDArray[np.uint8]

_IDX_IMAGES, _IDX_LABELS = 0x0803, 0x0801
_SIDE = 32
_TOLERANCE = 1e-4
_BESIDE = 2**20
"""Bytes that an archive may hold beside the files of a set."""


class Split(NamedTuple):
    """Images, (n, channels, height, width) as bytes, and the numbers of their classes."""

    x: Bytes
    y: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Images:
    """A data set of images as it was published: training and test set."""

    name: str
    train: Split
    test: Split
    classes: int

    def __repr__(self) -> str:
        n, *shape = self.train.x.shape
        size = " × ".join(map(str, shape))
        return f"Images({self.name!r}, {n} + {len(self.test.y)} of {size}, {self.classes} classes)"


@dataclass(frozen=True)
class _File:
    """A published file."""

    name: str
    checksum: str | None = None
    """As pooch has it, of what is downloaded."""
    sha256: str | None = None
    """Of the unpacked bytes, where they are known for certain."""


@dataclass(frozen=True)
class _Source:
    """What is known of a set."""

    url: str
    files: tuple[_File, ...]
    sizes: tuple[int, int]
    """Images for training and for the test."""
    classes: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    """Of the training pixels of each channel, divided by 255."""
    smallest_class: int
    """How many training images the rarest class has."""
    members: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """The files inside of the archive, for training and for the test."""
    label_bytes: int = 1
    """Of a record; the last one is the class."""


def _idx(
    url: str, checksums: tuple[str, ...], sha256: tuple[str | None, ...], **facts: Any
) -> _Source:
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    parts = tuple(
        _File(name, f"md5:{md5}", whole)
        for name, md5, whole in zip(names, checksums, sha256, strict=True)
    )
    return _Source(url, parts, (60_000, 10_000), 10, **facts)


SOURCES: Mapping[str, _Source] = MappingProxyType(
    {
        "mnist": _idx(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
            mean=(0.13066,),
            deviation=(0.30811,),
            smallest_class=5421,
        ),
        "fashion-mnist": _idx(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
            (None, None, None, None),
            mean=(0.28604,),
            deviation=(0.35302,),
            smallest_class=6000,
        ),
        "cifar10": _Source(
            "https://www.cs.toronto.edu/~kriz/",
            (_File("cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
            (50_000, 10_000),
            10,
            mean=(0.49140, 0.48216, 0.44653),
            deviation=(0.24703, 0.24349, 0.26159),
            smallest_class=5000,
            members=(
                tuple(f"cifar-10-batches-bin/data_batch_{k}.bin" for k in range(1, 6)),
                ("cifar-10-batches-bin/test_batch.bin",),
            ),
        ),
        "cifar100": _Source(
            "https://www.cs.toronto.edu/~kriz/",
            (_File("cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8"),),
            (50_000, 10_000),
            100,
            mean=(0.50708, 0.48655, 0.44092),
            deviation=(0.26733, 0.25644, 0.27615),
            smallest_class=500,
            members=(("cifar-100-binary/train.bin",), ("cifar-100-binary/test.bin",)),
            label_bytes=2,  # of the 20 coarse classes, then of the 100
        ),
    }
)


def load_images(name: str, data_home: str | os.PathLike[str] | None = None) -> Images:
    """Read "mnist", "fashion-mnist", "cifar10" or "cifar100".

    Files are looked for in ``data_home`` and its subfolder of the set's name; without the argument
    the environment variable ``ADAHB_DATA`` names the folder.  What is not there is downloaded into
    the cache once, which needs the extra ``adahb[data]``.  idx files may be packed (.gz); of CIFAR
    the archive (.tar.gz) is as good as its unpacked folder.

    Downloads are checked by their published checksums, packed files by those in them, MNIST by all
    its bytes.  Whatever the source, layout, length, the number of images of the rarest class, and
    mean and deviation of the pixels must be those of the set; in unpacked files of the other sets
    a few changed pixels would not be noticed.
    """
    source = SOURCES[check.choice("name", name, SOURCES)]
    home = files.folder(data_home)
    read = _read_idx if source.members is None else _read_cifar
    train, test = read(name, source, home)
    _verify(name, source, train)
    return Images(name, train, test, source.classes)


# ---------------------------------------------------------------- idx


def _read_idx(name: str, source: _Source, home: Path | None) -> tuple[Split, Split]:
    splits = []
    for images, labels, n in zip(source.files[::2], source.files[1::2], source.sizes, strict=True):
        header = struct.pack(">4i", _IDX_IMAGES, n, 28, 28)
        x = _idx_content(name, source, images, header, n * 28 * 28, home)
        y = _idx_content(name, source, labels, struct.pack(">2i", _IDX_LABELS, n), n, home)
        splits.append(_split(x.reshape(n, 1, 28, 28), y, source.classes, labels.name))
    return splits[0], splits[1]


def _idx_content(
    name: str, source: _Source, file: _File, header: bytes, size: int, home: Path | None
) -> Bytes:
    path = files.find(file.name, home, name) or files.download(
        name,
        file.name,
        f"{source.url}{file.name}.gz",
        file.checksum,
        home,
        folder=name,
        largest=len(header) + size + _BESIDE,
        offline=False,
    )
    with files.open_binary(path) as stream:
        return _idx_bytes(stream, path, name, header, size, file.sha256)


def _idx_bytes(
    stream: IO[bytes], path: Path, name: str, header: bytes, size: int, sha256: str | None
) -> Bytes:
    with _explained(path):
        content = stream.read(len(header) + size + 1)
    if content[: len(header)] != header:
        raise ValueError(
            f"{path} begins with {content[: len(header)].hex()}, an idx file of {name!r} with "
            f"{header.hex()}; delete it and get it again"
        )
    _check_length(path, len(content), len(header) + size)
    if sha256 not in (None, hashlib.sha256(content).hexdigest()):
        raise ValueError(f"{path} is not the published file; delete it and get it again")
    return np.frombuffer(content, np.uint8, offset=len(header))


# ---------------------------------------------------------------- CIFAR


def _read_cifar(name: str, source: _Source, home: Path | None) -> tuple[Split, Split]:
    assert source.members is not None
    unpacked = [[files.find(member, home, name) for member in part] for part in source.members]
    record = source.label_bytes + 3 * _SIDE**2
    sizes = [n // len(part) * record for n, part in zip(source.sizes, source.members, strict=True)]
    if all(path is not None for part in unpacked for path in part):
        contents = [
            [_content(path, size) for path in part if path is not None]
            for part, size in zip(unpacked, sizes, strict=True)
        ]
    else:
        file = source.files[0]
        members = {m: size for part, size in zip(source.members, sizes, strict=True) for m in part}
        most = sum(members.values()) + _BESIDE
        archive = files.find(file.name, home, name) or files.download(
            name,
            file.name,
            f"{source.url}{file.name}",
            file.checksum,
            home,
            folder=name,
            largest=most,
            offline=False,
        )
        with files.open_binary(archive, most) as stream:
            found = _members(stream, archive, members)
        contents = [[found[member] for member in part] for part in source.members]
    train, test = (
        _records(b"".join(part), source, where)
        for part, where in zip(contents, ("training", "test"), strict=True)
    )
    return train, test


def _content(path: Path, size: int) -> bytes:
    with files.open_binary(path) as stream:
        return _exactly(stream, path, size)


def _exactly(stream: IO[bytes], path: Path, size: int) -> bytes:
    with _explained(path):
        content = stream.read(size + 1)
    _check_length(path, len(content), size)
    return content


def _members(stream: IO[bytes], archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The wanted members of a tar archive; no others are looked at, and nothing is written.

    It is read once, from its beginning to the last of them.  What an archive can hold beside files,
    such as links, long names and attributes, is passed over.
    """
    found: dict[str, bytes] = {}
    with _explained(archive):
        while len(found) < len(wanted):
            header = stream.read(tar.BLOCK)
            if not header.strip(b"\0"):
                break
            name, size = tar.entry(header)
            padding = -size % tar.BLOCK
            if name in wanted:
                _check_length(f"{name} in {archive}", size, wanted[name])
                found[name] = stream.read(size)
                _check_length(f"{name} in {archive}", len(found[name]), size)
                size = 0
            tar.pass_over(stream, size + padding)
        while stream.read(tar.BLOCK):  # at its end the checksum is compared
            pass
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise ValueError(f"{archive} has no {', '.join(missing)}; delete it and get it again")
    return found


def _records(content: bytes, source: _Source, where: str) -> Split:
    """Records of the labels and then the red, the green and the blue plane."""
    records = np.frombuffer(content, np.uint8).reshape(-1, source.label_bytes + 3 * _SIDE**2)
    x = records[:, source.label_bytes :].reshape(-1, 3, _SIDE, _SIDE)
    return _split(x, records[:, source.label_bytes - 1], source.classes, f"the {where} set")


# ---------------------------------------------------------------- checks


class _explained:  # noqa: N801 - reads as a statement
    """Says of a file that ends too early or does not unpack what is to be done."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        damaged = isinstance(error, (EOFError, lzma.LZMAError, zlib.error))
        if damaged or (isinstance(error, OSError) and error.errno is None):
            raise ValueError(
                f"{self._path} is truncated or damaged ({error}); delete it and get it again"
            ) from error


def _check_length(path: Path | str, found: int, expected: int) -> None:
    if found != expected:
        length = f"only {found}" if found < expected else "more"
        raise ValueError(
            f"{path} holds {length} bytes, it must hold {expected}; delete it and get it again"
        )


def _split(x: Bytes, y: Bytes, classes: int, where: str) -> Split:
    if y.max(initial=0) >= classes:
        raise ValueError(f"the labels of {where} must be below {classes}, got {y.max()}")
    return Split(np.ascontiguousarray(x), y.astype(np.int64))


def _verify(name: str, source: _Source, train: Split) -> None:
    """Compare what the files hold with what is known of the set."""
    rarest = int(np.bincount(train.y, minlength=source.classes).min())
    if rarest != source.smallest_class:
        raise ValueError(
            f"the rarest class of {name!r} has {source.smallest_class} training images, {rarest} "
            "here: the files are not that set"
        )
    counts = [np.bincount(train.x[:, k].ravel(), minlength=256) for k in range(len(source.mean))]
    for what, known, found in (
        ("mean", source.mean, [_moments(count)[0] for count in counts]),
        ("deviation", source.deviation, [_moments(count)[1] for count in counts]),
    ):
        if not np.allclose(found, known, rtol=0, atol=_TOLERANCE):
            raise ValueError(
                f"the training pixels of {name!r} have the {what} {known}, here "
                f"{np.round(found, 5).tolist()}: the files are not that set"
            )


def _moments(count: NDArray[np.intp]) -> tuple[float, float]:
    """Mean and deviation of bytes over 255, of how often each of them occurs."""
    values, share = np.arange(256) / 255, count / count.sum()
    mean = float(share @ values)
    return mean, float(np.sqrt(share @ (values - mean) ** 2))
