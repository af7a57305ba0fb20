"""The readers of image sets, on data made in their exact formats and on the real files."""

import gzip
import io
import struct
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from adahb.data import images, load_images

RNG = np.random.default_rng(0)
TRAIN, TEST = 600, 200


def made(n, classes, shape):
    y = (np.arange(n) % classes).astype(np.uint8)
    return RNG.integers(0, 256, (n, *shape), dtype=np.uint8), y


def expect(monkeypatch, name, x, y):
    """Let a set be known by what was made for it."""
    source = images.SOURCES[name]
    moments = [
        images._moments(np.bincount(x[:, k].ravel(), minlength=256)) for k in range(x.shape[1])
    ]
    known = replace(
        source,
        sizes=(TRAIN, TEST),
        mean=tuple(m for m, _ in moments),
        deviation=tuple(d for _, d in moments),
        smallest_class=int(np.bincount(y).min()),
        files=tuple(replace(file, sha256=None) for file in source.files),
    )
    monkeypatch.setattr(images, "SOURCES", {name: known})
    return known


def idx(array):
    return struct.pack(f">i{array.ndim}i", 0x0800 + array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A folder with idx files, and what they hold."""
    train, test = made(TRAIN, 10, (1, 28, 28)), made(TEST, 10, (1, 28, 28))
    source = expect(monkeypatch, "mnist", *train)
    parts = (train[0][:, 0], train[1], test[0][:, 0], test[1])
    for file, part in zip(source.files, parts, strict=True):
        (tmp_path / file.name).write_bytes(idx(part))
    return tmp_path, train, test


@pytest.fixture(params=["cifar10", "cifar100"])
def cifar(request, tmp_path, monkeypatch):
    """The name of a set, the files of its archive, and what they hold."""
    classes = {"cifar10": 10, "cifar100": 100}[request.param]
    train, test = made(TRAIN, classes, (3, 32, 32)), made(TEST, classes, (3, 32, 32))
    source = expect(monkeypatch, request.param, *train)
    files = {}
    for (x, y), members in zip((train, test), source.members, strict=True):
        labels = [y[:, None]] if source.label_bytes == 1 else [y[:, None] // 5, y[:, None]]
        records = np.hstack([*labels, x.reshape(len(x), -1)])
        for member, part in zip(members, np.split(records, len(members)), strict=True):
            files[member] = part.tobytes()
    return request.param, files, train, test


def unpacked(files, folder):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def packed(files, path):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {"cifar/readme.html": b"hello", **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def assert_holds(data, train, test):
    for split, (x, y) in zip((data.train, data.test), (train, test), strict=True):
        assert split.x.dtype == np.uint8
        assert split.y.dtype == np.int64
        np.testing.assert_array_equal(split.x, x)
        np.testing.assert_array_equal(split.y, y)


def test_idx(mnist):
    folder, train, test = mnist
    data = load_images("mnist", folder)
    assert_holds(data, train, test)
    assert repr(data) == "Images('mnist', 600 + 200 of 1 × 28 × 28, 10 classes)"


def test_idx_packed_in_a_subfolder_named_by_the_environment(mnist, tmp_path, monkeypatch):
    folder, train, test = mnist
    home = tmp_path / "elsewhere"
    (home / "mnist").mkdir(parents=True)
    for path in folder.glob("*ubyte"):
        (home / "mnist" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setenv("ADAHB_DATA", str(home))
    assert_holds(load_images("mnist"), train, test)


def test_cifar_unpacked(cifar, tmp_path):
    name, files, train, test = cifar
    unpacked(files, tmp_path / name)
    data = load_images(name, tmp_path)
    assert_holds(data, train, test)
    assert data.classes == {"cifar10": 10, "cifar100": 100}[name]


def test_cifar_from_its_archive(cifar, tmp_path):
    name, files, train, test = cifar
    packed(files, tmp_path / images.SOURCES[name].files[0].name)
    assert_holds(load_images(name, tmp_path), train, test)
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_an_archive_without_a_member(cifar, tmp_path):
    name, files, *_ = cifar
    gone = sorted(files)[0]
    packed(
        {k: v for k, v in files.items() if k != gone}, tmp_path / images.SOURCES[name].files[0].name
    )
    with pytest.raises(ValueError, match=f"has no {gone}"):
        load_images(name, tmp_path)


def test_links_in_an_archive_are_not_followed(cifar, tmp_path):
    name, files, *_ = cifar
    gone = sorted(files)[0]
    with tarfile.open(tmp_path / images.SOURCES[name].files[0].name, "w:gz") as tar:
        entry = tarfile.TarInfo(gone)
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(entry)
    with pytest.raises(ValueError, match=gone):
        load_images(name, tmp_path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda b: b[:-1], r"labels.* holds only \d+ bytes, it must hold 608"),
        (lambda b: b + b"x", r"labels.* holds more bytes, it must hold 608"),
        (lambda b: b[:2], "begins with 0000"),
        (lambda b: b"\0\0\x08\x03" + b[4:], "begins with 00000803"),
        (lambda b: b[:-1] + b"\x0a", "must be below 10, got 10"),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), "rarest class"),
    ],
)
def test_damaged_labels(mnist, harm, message):
    path = mnist[0] / "train-labels-idx1-ubyte"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        load_images("mnist", mnist[0])


def test_a_truncated_packed_file(mnist):
    path = mnist[0] / "train-images-idx3-ubyte"
    content = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_suffix(".gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"truncated or damaged .*; delete it"):
        load_images("mnist", mnist[0])


def test_a_truncated_archive(cifar, tmp_path):
    name, files, *_ = cifar
    path = tmp_path / images.SOURCES[name].files[0].name
    packed(files, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="truncated or damaged"):
        load_images(name, tmp_path)


def test_a_changed_pixel_in_an_archive_is_noticed(cifar, tmp_path):
    """Though it lies before the end of the last wanted member, and unpacks without complaint."""
    name, files, *_ = cifar
    path = tmp_path / images.SOURCES[name].files[0].name
    packed(files, path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # noise does not shrink: it is stored as it is
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"truncated or damaged .*; delete it"):
        load_images(name, tmp_path)


def test_an_archive_that_goes_on_after_its_end(cifar, tmp_path):
    name, files, *_ = cifar
    path = tmp_path / images.SOURCES[name].files[0].name
    packed(files, path)
    with path.open("ab") as file:
        file.write(gzip.compress(bytes(2 * images._BESIDE)))
    with pytest.raises(ValueError, match=r"unpacks to more than \d+ bytes: it is refused"):
        load_images(name, tmp_path)


def test_pixels_of_another_set(mnist):
    path = mnist[0] / "train-images-idx3-ubyte"
    content = bytearray(path.read_bytes())
    content[16:] = bytes(len(content) - 16)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"have the mean .* not that set"):
        load_images("mnist", mnist[0])


def test_bytes_that_are_not_the_published_ones(mnist, monkeypatch):
    source = images.SOURCES["mnist"]
    parts = (replace(source.files[0], sha256="0" * 64), *source.files[1:])
    monkeypatch.setattr(images, "SOURCES", {"mnist": replace(source, files=parts)})
    with pytest.raises(ValueError, match="not the published file"):
        load_images("mnist", mnist[0])


def test_names_and_folders(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of 'mnist', .*, got 'imagenet'"):
        load_images("imagenet", tmp_path)
    with pytest.raises(FileNotFoundError, match="data_home must name an existing folder"):
        load_images("mnist", tmp_path / "none")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_the_real_files(name, data_home):
    source = images.SOURCES[name]
    places = [data_home, data_home / name]
    wanted = [source.files[0].name] if source.members is None else list(source.members[0][:1])
    if not any((p / f"{w}{e}").is_file() for p in places for w in wanted for e in ("", ".gz")):
        pytest.skip(f"no {name} in the data folder")
    data = load_images(name, data_home)
    assert np.bincount(data.test.y).sum() == 10_000
