"""Data files made to do harm: what would fill memory or disk is refused early, by name."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adahb.data import files, images, libsvm, load_images, load_libsvm

MIB = 2**20
HUGE = 10 * 2**30
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lambda b: lzma.compress(b, preset=0)}
READ = """
import json, sys
from sklearn.datasets import load_svmlight_file
from adahb.data import load_images, load_libsvm
from faults.fuzz import peak

before, said = peak(), []
for name, home in json.loads(sys.argv[1]):
    try:
        load_images(name, home) if home else load_libsvm(name)
        said.append("nothing")
    except ValueError as error:
        said.append(str(error))
print(json.dumps([said, peak() - before]))
"""


def bomb(path, pattern, size=HUGE):
    """A packed file of so many bytes: packed parts, one behind the other, are one packed file."""
    part = PACK[path.suffix](pattern * (16 * MIB // len(pattern)))
    path.write_bytes(part * (size // (16 * MIB)))
    assert path.stat().st_size < 2**24
    return path


def tar_header(name, size, kind=tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


def archive(folder, header):
    """A cifar10 archive that begins with a header and goes on with ten thousand million zeros."""
    folder.mkdir()
    zeros = gzip.compress(bytes(16 * MIB))
    path = folder / "cifar-10-binary.tar.gz"
    path.write_bytes(gzip.compress(header) + zeros * (HUGE // (16 * MIB)))
    return path


def test_bombs_are_refused_and_memory_stays(tmp_path):
    """All in one process, whose peak of memory is looked at."""
    text = [bomb(tmp_path / f"zeros{ending}", b"\0") for ending in PACK]
    text.append(bomb(tmp_path / "tokens.gz", b"1 "))
    junk = ("other", 8 * 2**30 - 1, tarfile.REGTYPE)
    long = ("././@LongLink", 8 * 2**30 - 1, tarfile.GNUTYPE_LONGNAME)
    pax = ("x", 8 * 2**30 - 1, tarfile.XHDTYPE)
    member = ("cifar-10-batches-bin/data_batch_1.bin", 8 * 2**30 - 1, tarfile.REGTYPE)
    tars = [
        archive(tmp_path / str(k), tar_header(*entry))
        for k, entry in enumerate((junk, long, pax, member))
    ]
    given = [(str(path), "") for path in text] + [("cifar10", str(path.parent)) for path in tars]
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join(filter(None, (tests, os.environ.get("PYTHONPATH"))))
    run = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(given)],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said, mebibytes = json.loads(run.stdout)
    for path, words in zip([*text, *tars], said, strict=True):
        assert str(path) in words
        assert re.search(r"more than \d+ bytes|holds more bytes, it must hold 30730000", words)
    assert mebibytes < 600  # a line is in memory whole, and 12 times over in its words


def test_a_limit_can_be_lifted(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SLACK", 1000)
    monkeypatch.setattr(libsvm, "LONGEST_LINE", 50)
    rows = tmp_path / "rows.gz"
    rows.write_bytes(gzip.compress(b"1 1:1\n" * 10_000))
    with pytest.raises(ValueError, match=r"rows\.gz unpacks to more than \d+ bytes, 100 times"):
        load_libsvm(rows)
    assert load_libsvm(rows, max_bytes=60_000).X.shape == (10_000, 1)
    with pytest.raises(ValueError, match=r"rows\.gz unpacks to more than 59999 bytes: it is"):
        load_libsvm(rows, max_bytes=59_999)
    line = tmp_path / "line"
    line.write_bytes(b"1 1:1" + 50 * b"0")
    with pytest.raises(ValueError, match=r"line 1 has more than 50 bytes: .* max_bytes allows"):
        load_libsvm(line)
    assert load_libsvm(line, max_bytes=55).X.nnz == 1
    with pytest.raises(ValueError, match="max_bytes must be an integer of at least 1, got 0"):
        load_libsvm(line, max_bytes=0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 1_0:1", "'1_0:1' is not index:value"),
        (b"1 1:1_0", "'1:1_0' is not index:value"),
        (b"1_0 1:1", "'1_0' is not a finite label"),
        (b"1 " + 5000 * b"9" + b":1", "'9{30}…' is not an index"),
        (b"1 1:1 999999999999:1", "the index '999999999999' comes after 1"),
        (b"1 1:1 qid:2", r"must be 'label index:value"),
        (b"1 qid:\0 #1:1", "it holds a zero byte"),
    ],
    ids=["index", "value", "label", "digits", "huge", "qid", "zero"],
)
def test_lines_that_only_python_would_read(tmp_path, line, message):
    """Or that it reads too much into: each is named, also where the file is damaged further on."""
    path = tmp_path / "odd.gz"
    path.write_bytes(gzip.compress(b"1 1:1\n" + line + b"\n" + 50_000 * b"# far away\n")[:-9])
    with pytest.raises(ValueError, match=rf"odd\.gz, line 2: .*{message}"):
        load_libsvm(path)


def test_a_huge_index_takes_no_memory(tmp_path):
    path = tmp_path / "wide"
    path.write_bytes(b"1 1:1 2147483647:1\n")
    X = load_libsvm(path).X
    assert X.shape == (1, 2**31 - 1)
    assert X.data.nbytes + X.indices.nbytes + X.indptr.nbytes < 100


def test_a_number_too_large_for_the_dtype(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(b"1 1:1e39\n")
    assert load_libsvm(path).X.data[0] == 1e39
    with pytest.raises(ValueError, match=r"large cannot be read: .* not finite in float32"):
        load_libsvm(path, dtype="float32")


def test_memory_that_is_not_there_is_said(tmp_path, monkeypatch):
    """An .xz file says itself how much it takes to unpack; an .lzma file of that name is none."""
    path = tmp_path / "greedy.xz"
    path.write_bytes(lzma.compress(b"1 1:1\n", lzma.FORMAT_ALONE))
    with pytest.raises(ValueError, match=r"greedy\.xz is truncated or damaged"):
        load_libsvm(path)

    class Greedy:
        def readinto(self, _):
            raise MemoryError

        def close(self):
            pass

    monkeypatch.setitem(files._PACKED, ".xz", lambda _: Greedy())
    with pytest.raises(ValueError, match=r"greedy\.xz takes more memory to unpack than there is"):
        load_libsvm(path)


# ---------------------------------------------------------------- archives


@pytest.fixture
def small(monkeypatch):
    """cifar10 with one image in each of its files, and these files."""
    source = replace(images.SOURCES["cifar10"], sizes=(5, 1), smallest_class=0)
    monkeypatch.setattr(images, "SOURCES", {"cifar10": source})
    monkeypatch.setattr(images, "_verify", lambda *_: None)
    rng = np.random.default_rng(0)
    members = {m: rng.bytes(3073) for part in source.members for m in part}
    return {m: b"\x03" + content[1:] for m, content in members.items()}


def packed(entries, *, form=tarfile.GNU_FORMAT):
    """A .tar.gz of (name, content or kind of entry)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", format=form) as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes) and len(content) > 1:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = content, "../../../etc/passwd"
                tar.addfile(entry)
    return file.getvalue()


STRANGE = [
    ("../../outside", b"harm"),
    ("/tmp/absolute", b"harm"),
    ("link", tarfile.SYMTYPE),
    ("hard", tarfile.LNKTYPE),
    ("device", tarfile.CHRTYPE),
    ("block", tarfile.BLKTYPE),
    ("pipe", tarfile.FIFOTYPE),
    ("folder", tarfile.DIRTYPE),
    (200 * "long/", b"harm"),
    ("ünïcode-" + 150 * "x", b"harm"),
]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_strange_entries_are_passed_over(tmp_path, small, form):
    strange = [e for e in STRANGE if len(e[0]) < 100 or form != tarfile.USTAR_FORMAT]
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(packed([*strange, *small.items()], form=form))
    data = load_images("cifar10", tmp_path)
    assert data.train.x.tobytes() == b"".join(c[1:] for c in list(small.values())[:5])
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_a_member_that_is_no_file(tmp_path, small, kind):
    name, *_ = small
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(packed([*{**small, name: kind}.items()]))
    with pytest.raises(ValueError, match=rf"cifar-10-binary\.tar\.gz has no {name}"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize(
    "harm",
    [
        lambda header: header[:124] + b"-0000000001\0" + header[136:],
        lambda header: header[:124] + b"\x80" + 11 * b"\xff" + header[136:],
        lambda header: header[:124] + b"spam" + header[128:],
        lambda header: header[:148] + b"        " + header[156:],
        lambda header: header[:148] + b"0000001\0" + header[156:],
        lambda header: header[:300],
    ],
    ids=["negative", "binary", "words", "no checksum", "checksum", "cut"],
)
def test_headers_that_are_none(tmp_path, harm):
    header = harm(tar_header("other", 100))
    if len(header) == 512 and header[148:156] == tar_header("other", 100)[148:156]:
        checksum = sum(header[:148] + 8 * b" " + header[156:])
        header = header[:148] + b"%06o\0 " % checksum + header[156:]
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(header))
    with pytest.raises(ValueError, match=r"tar\.gz is truncated or damaged \(no header of a tar"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["../../mnist", "mnist/../mnist", "/etc/passwd", "", "\0"])
def test_names_of_sets_are_no_paths(tmp_path, name):
    with pytest.raises(ValueError, match="name must be one of 'mnist'"):
        load_images(name, tmp_path)


def test_a_download_without_end(tmp_path, monkeypatch):
    """A server that never stops sending is left, and nothing is kept."""
    pooch = pytest.importorskip("pooch")
    requests = pytest.importorskip("requests")
    monkeypatch.setattr(pooch, "os_cache", lambda _: tmp_path / "cache")

    class Endless:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def raise_for_status(self):
            pass

        def iter_content(self, size):
            while True:
                yield bytes(size)

    monkeypatch.setattr(requests, "get", lambda *_, **__: Endless())
    with pytest.raises(FileNotFoundError, match=r"w8a\.t failed .*more than the 12110\d+ bytes"):
        load_libsvm("w8a.t")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
