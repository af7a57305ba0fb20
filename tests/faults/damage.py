"""Files are cut short, bytes in them changed: what is read is right, or an error says what to do.

Where nothing in a format can tell, and the documentation says so, other data may be read: of plain
LIBSVM text by its path, and of unpacked CIFAR files.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from adahb import checkpoints
from adahb.data import images, libsvm, load_images, load_libsvm
from adahb.data.registry import Source
from adahb.experiments import synthetic
from adahb.experiments.result_files import read_results
from adahb.experiments.store import Store, sealed, to_json, write_whole
from adahb.optim import AdaHB

TRIALS = 900
"""Of each kind of file in a whole soak."""
WORDS = (
    "delete it",
    "replace it",
    "or the file is truncated",
    "every line must be",
    "not that set",
)
"""What an error says is to be done, or what is wrong with the set."""
TRAIN, TEST = 100, 40

Rng = np.random.Generator


@dataclass(frozen=True)
class Victim:
    """A file, and how it is read: plain data that are equal if and only if what was read is."""

    kind: str
    path: Path
    read: Callable[[], Any]
    checked: bool = True
    """Whether something in it tells of every change."""


# ---------------------------------------------------------------- damages


def cut(content: bytes, rng: Rng) -> bytes:
    """Truncated anywhere, also to nothing."""
    return content[: int(rng.integers(0, len(content)))]


def flip(content: bytes, rng: Rng) -> bytes:
    """One to three bytes with a bit changed."""
    changed = bytearray(content)
    for place in rng.integers(0, len(content), size=rng.integers(1, 4)):
        changed[place] ^= 1 << int(rng.integers(0, 8))
    return bytes(changed)


def lose(content: bytes, rng: Rng) -> bytes:
    """A piece is zeros, as after a crash of the system."""
    begin = int(rng.integers(0, len(content)))
    end = min(len(content), begin + int(rng.integers(1, 513)))
    return content[:begin] + bytes(end - begin) + content[end:]


DAMAGES = {"cut short": cut, "bytes changed": flip, "a piece lost": lose}


def try_damage(victim: Victim, harm: str, seed: int, undisturbed: Any, content: bytes) -> str:
    """Damage the file and read it; the outcome in words, an AssertionError if it is wrong."""
    rng = np.random.default_rng(seed)
    victim.path.write_bytes(DAMAGES[harm](content, rng))
    context = f"{victim.kind}, {harm}, seed {seed}"
    try:
        found = victim.read()
    except (ValueError, OSError) as error:
        said = str(error)
        assert victim.path.name in said or "not that set" in said, f"{context}: {said}"
        assert any(word in said for word in WORDS), f"{context}: {said}"
        return "an error that names the file and says what to do"
    except Exception as error:
        raise AssertionError(f"{context}: {type(error).__name__}: {error}") from error
    finally:
        victim.path.write_bytes(content)
    if found == undisturbed:
        return "read as it was"
    assert not victim.checked, f"{context}: other data were read"
    return "other data, as documented: nothing in the file can tell"


# ---------------------------------------------------------------- victims


def results(folder: Path) -> Iterator[Victim]:
    """A run's result, and the data of a figure."""
    store = Store(folder / "runs")
    task = synthetic.curves(40)[0].task
    store.result(task)
    yield Victim("result of a run", store.path(task), lambda: store.result(task))
    figure = folder / "figures" / "figure5.json"
    for curve in synthetic.curves(40):
        store.result(curve.task)
    write_whole(figure, to_json(sealed(synthetic.data(store, [40], 2.0))))

    def panels() -> Any:
        return read_results(figure.parent)[0].content["panels"]

    yield Victim("data of a figure", figure, panels)


def checkpoint(folder: Path) -> Iterator[Victim]:
    """Model and optimizer in the midst of a training."""
    model = torch.nn.Linear(20, 10)
    optimizer = AdaHB(model.parameters(), lr=0.1, tick=1)
    model(torch.ones(1, 20)).sum().backward()
    optimizer.step()
    path = folder / "run.pt"
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    checkpoints.save(state, path)

    def read() -> str:
        buffer = io.BytesIO()
        torch.save(checkpoints.load(path), buffer)
        return hashlib.sha256(buffer.getvalue()).hexdigest()

    yield Victim("checkpoint", path, read)


_PACKED = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def texts(folder: Path) -> Iterator[Victim]:
    """LIBSVM files, by a name whose checksum is known and by their paths."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(40):
        columns = np.sort(rng.choice(np.arange(1, 30), 5, replace=False))
        entries = " ".join(f"{j}:{v:.4g}" for j, v in zip(columns, rng.normal(size=5), strict=True))
        lines.append(f"{rng.choice(['+1', '-1'])} {entries}\n")
    text = "".join(lines).encode()
    signs = {"positive": frozenset({1.0}), "negative": frozenset({-1.0})}
    known = Source("known", 40, 29, 200, **signs, sha256=hashlib.sha256(text).hexdigest())
    for ending, pack in _PACKED.items():
        path = folder / f"known{ending}"
        path.write_bytes(pack(text))
        words = f"packed as {ending}" if ending else "plain"
        yield Victim(
            f"LIBSVM file by its path, {words}",
            path,
            lambda path=path: _plain(load_libsvm(path)),
            checked=bool(ending),
        )
        with _known(libsvm, {"known": known}):
            yield Victim(
                f"LIBSVM file by its name, {words}",
                path,
                lambda: _plain(load_libsvm("known", folder)),
            )
        path.unlink()


def _plain(data: Any) -> Any:
    X = data.X
    return X.shape, X.indptr.tolist(), X.indices.tolist(), X.data.tolist(), data.y.tolist()


@contextmanager
def _known(module: Any, sources: dict[str, Any]) -> Iterator[None]:
    with patch.object(module, "SOURCES", sources):
        yield


def pictures(folder: Path) -> Iterator[Victim]:
    """Image sets: packed and plain idx, the archive of CIFAR and what is in it."""
    rng = np.random.default_rng(0)
    for name in ("fashion-mnist", "mnist"):
        parts, source = _idx_files(name, rng)
        at = folder / name
        at.mkdir()
        with _known(images, {name: source}):
            ending = ".gz" if name == "fashion-mnist" else ""
            for file, content in parts.items():
                (at / f"{file}{ending}").write_bytes(_PACKED[ending](content))
            for file in list(parts)[:2]:
                words = f"{'images' if 'images' in file else 'labels'}{', packed' * bool(ending)}"
                path = at / f"{file}{ending}"
                yield Victim(f"idx file of {words}", path, lambda n=name: _digest(n, folder))
    name, at = "cifar10", folder / "cifar10"
    members, source = _cifar_files(rng)
    archive = at / source.files[0].name
    at.mkdir()
    with _known(images, {name: source}):
        with tarfile.open(archive, "w:gz") as tar:
            for member, content in members.items():
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        yield Victim("archive of CIFAR", archive, lambda: _digest(name, folder))
        archive.unlink()
        for member, content in members.items():
            (at / member).parent.mkdir(exist_ok=True)
            (at / member).write_bytes(content)
        first = at / next(iter(members))
        yield Victim("unpacked CIFAR file", first, lambda: _digest(name, folder), checked=False)


def _digest(name: str, folder: Path) -> str:
    data = load_images(name, folder)
    arrays = (data.train.x, data.train.y, data.test.x, data.test.y)
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def _idx_files(name: str, rng: Rng) -> tuple[dict[str, bytes], Any]:
    published = images.SOURCES[name]
    contents = []
    for n in (TRAIN, TEST):
        x = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        y = (np.arange(n) % 10).astype(np.uint8)
        contents += [
            struct.pack(f">i{a.ndim}i", 0x0800 + a.ndim, *a.shape) + a.tobytes() for a in (x, y)
        ]
    files = tuple(
        replace(f, sha256=hashlib.sha256(c).hexdigest() if f.sha256 else None)
        for f, c in zip(published.files, contents, strict=True)
    )
    pixels = np.frombuffer(contents[0], np.uint8, offset=16).reshape(TRAIN, 1, 28, 28)
    source = _measured(replace(published, files=files), pixels)
    return {f.name: c for f, c in zip(files, contents, strict=True)}, source


def _cifar_files(rng: Rng) -> tuple[dict[str, bytes], Any]:
    source = images.SOURCES["cifar10"]
    members = {}
    for n, part in zip((TRAIN, TEST), source.members, strict=True):
        x = rng.integers(0, 256, (n, 3072), dtype=np.uint8)
        records = np.hstack([(np.arange(n) % 10).astype(np.uint8)[:, None], x])
        members |= {
            name: piece.tobytes()
            for name, piece in zip(part, np.split(records, len(part)), strict=True)
        }
        if n == TRAIN:
            source = _measured(source, x.reshape(n, 3, 32, 32))
    return members, source


def _measured(source: Any, x: Any) -> Any:
    """The source, with what is known of the set taken from these images."""
    counts = [np.bincount(x[:, k].ravel(), minlength=256) for k in range(x.shape[1])]
    mean, deviation = zip(*map(images._moments, counts), strict=True)
    sizes = (TRAIN, TEST)
    return replace(source, sizes=sizes, mean=mean, deviation=deviation, smallest_class=TRAIN // 10)


FAMILIES = {"results": results, "checkpoint": checkpoint, "texts": texts, "pictures": pictures}

# ---------------------------------------------------------------- the soak


def soak(scale: float, folder: Path) -> dict[str, Any]:
    """Damage every kind of file in every way, and count."""
    trials = max(5, round(TRIALS * scale))
    rows = []
    for family, victims in FAMILIES.items():
        at = folder / family
        at.mkdir()
        for victim in victims(at):
            undisturbed, content = victim.read(), victim.path.read_bytes()
            for harm in DAMAGES:
                outcomes = Counter(
                    try_damage(victim, harm, seed, undisturbed, content)
                    for seed in range(trials // len(DAMAGES) + 1)
                )
                kind = f"{victim.kind}, {harm}"
                rows.append({"kind": kind, "tried": outcomes.total(), "outcomes": dict(outcomes)})
    return {"rows": rows, "defects": 0, "seeds": "0, 1, 2, ... of each kind"}
