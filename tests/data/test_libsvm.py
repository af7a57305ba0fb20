"""Files in the LIBSVM format: what is read, what is refused, and what the error says."""

import bz2
import functools
import gzip
import hashlib
import http.server
import lzma
import re
import threading

import numpy as np
import pytest
from scipy import sparse

from adahb.data import Dataset, files, libsvm, load_libsvm, names
from adahb.data.registry import SOURCES, Source

TEXT = b"+1 1:0.5 4:2\n-1 2:-1e-3 \n-1\n+1 3:1 4:-1 # a remark\n"
DENSE = [[0.5, 0, 0, 2], [0, -1e-3, 0, 0], [0, 0, 0, 0], [0, 0, 1, -1]]
PACKED = {"": bytes, ".bz2": bz2.compress, ".xz": lzma.compress, ".gz": gzip.compress}
PM = {"positive": frozenset({1.0}), "negative": frozenset({-1.0})}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch, tmp_path):
    """Neither a folder nor a cache but the test's own."""
    monkeypatch.delenv(files.ENVIRONMENT, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tiny(monkeypatch):
    """A set of four rows by the name of "tiny", and a test set."""
    checksum = hashlib.sha256(TEXT).hexdigest()
    sources = {
        "tiny": Source("tiny.txt", 4, 4, 6, **PM, sha256=checksum),
        "tiny.t": Source("tiny.t", 1, 4, 1, **PM),
    }
    monkeypatch.setattr(libsvm, "SOURCES", sources)
    return sources


def file(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_by_path(tmp_path, ending, dtype):
    path = file(tmp_path, f"my{ending}", PACKED[ending](TEXT))
    data = load_libsvm(path, dtype=dtype)
    assert isinstance(data, Dataset)
    assert isinstance(data.X, sparse.csr_array)
    assert data.X.dtype == dtype
    assert data.X.indices.dtype == data.X.indptr.dtype == np.int32
    np.testing.assert_array_equal(data.X.toarray(), np.array(DENSE, dtype))
    np.testing.assert_array_equal(data.y, [1, -1, -1, 1])
    assert (data.name, data.path) == (f"my{ending}", path)
    assert "4 × 4, 5 nonzeros" in repr(data)


def test_targets_of_a_path_are_left_alone(tmp_path):
    data = load_libsvm(str(file(tmp_path, "r", b"2.5 1:1\n0 1:2\n")), n_features=7)
    np.testing.assert_array_equal(data.y, [2.5, 0])
    assert data.X.shape == (2, 7)


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("place", [".", "libsvm"])
def test_by_name_from_a_folder(tmp_path, monkeypatch, tiny, ending, place):
    tiny["tiny"] = Source("tiny.txt", 4, 4, 5, **PM, sha256=hashlib.sha256(TEXT).hexdigest())
    file(tmp_path / place, f"tiny.txt{ending}", PACKED[ending](TEXT))
    by_argument = load_libsvm("tiny", tmp_path)
    monkeypatch.setenv(files.ENVIRONMENT, str(tmp_path))
    for data in (by_argument, load_libsvm("tiny")):
        np.testing.assert_array_equal(data.X.toarray(), DENSE)
        assert data.name == "tiny"


def test_the_argument_comes_before_the_environment(tmp_path, monkeypatch, tiny):
    for folder, text in (("a", b"+1 4:1\n"), ("b", b"-1 4:1\n")):
        file(tmp_path / folder, "tiny.t", text)
    monkeypatch.setenv(files.ENVIRONMENT, str(tmp_path / "a"))
    assert load_libsvm("tiny.t").y == [1]
    assert load_libsvm("tiny.t", tmp_path / "b").y == [-1]


def test_a_test_set_is_as_wide_as_its_training_set(tmp_path, tiny):
    file(tmp_path, "tiny.t", b"+1 2:1\n")
    assert load_libsvm("tiny.t", tmp_path).X.shape == (1, 4)


def test_labels_become_signs():
    covtype, news20 = SOURCES["covtype"], SOURCES["news20"]
    np.testing.assert_array_equal(covtype.signs(np.array([1.0, 2.0])), [-1, 1])
    np.testing.assert_array_equal(news20.signs(np.array([1.0, 10, 11, 20])), [1, 1, -1, -1])
    with pytest.raises(ValueError, match=r"labels \[3.0\], expected \[1.0, 2.0\]"):
        covtype.signs(np.array([1.0, 3.0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT[: TEXT.index(b"+1 3")], "has 3 rows, but 'tiny' has 4: the file is not whole"),
        (TEXT.replace(b" 4:-1", b" 5:-1"), "has 5 columns, but 'tiny' has 4"),
        (TEXT, "has 5 nonzeros, but 'tiny' has 6"),
        (TEXT.replace(b" 4:2", b" 3:7 4:2"), "not the published file of 'tiny'.*sha256"),
    ],
)
def test_a_named_file_must_be_whole(tmp_path, tiny, content, message):
    path = file(tmp_path, "tiny.txt", content)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}.*replace it by"):
        load_libsvm("tiny", tmp_path)


def test_a_named_file_must_have_its_labels(tmp_path, tiny):
    file(tmp_path, "tiny.t", b"3 2:1\n")
    with pytest.raises(ValueError, match=r"tiny\.t has the labels \[3.0\]"):
        load_libsvm("tiny.t", tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 2:", "'2:' is not index:value"),
        (b"1 2:1 5", "'5' is not index:value"),
        (b"1 a:1", "'a:1' is not index:value"),
        (b"1 2:1:1", "'2:1:1' is not index:value"),
        (b"1 2:x", "'2:x' is not index:value"),
        (b"1 2:nan", "'2:nan' is not index:value with a finite value"),
        (b"1 2:1e999", "with a finite value"),
        (b"inf 2:1", "'inf' is not a finite label"),
        (b"spam 1:1", "'spam' is not a finite label"),
        (b"1,2 1:1", "'1,2' is not a finite label"),
        (b"\x80\x81" + 40 * b"x", r"'\\\\x80\\\\x81x*…' is not a finite label"),
        (b"1 0:1", "'0' is not an index, which start at 1"),
        (b"1 3:1 2:1", "the index '2' comes after 3"),
        (b"1 2:1 2:1", "the index '2' comes after 2"),
        (b"1 99999999999:1", "'99999999999' is not an index"),
        (b"1 -1:1", "'-1:1' is not index:value"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".bz2"])
def test_a_malformed_line_is_named(tmp_path, line, message, ending):
    content = b"1 1:1\n# remark\n\n" + line + b"\n1 1:1\n"
    path = file(tmp_path, f"bad{ending}", PACKED[ending](content))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}, line 4: .*{message}"):
        load_libsvm(path)


@pytest.mark.parametrize("ending", [".bz2", ".xz", ".gz"])
def test_a_truncated_or_damaged_archive(tmp_path, ending):
    rng = np.random.default_rng(0)
    text = b"".join(b"1 1:%.17g\n" % x for x in rng.random(20_000))
    packed = PACKED[ending](text)
    cut = file(tmp_path, f"cut{ending}", packed[: len(packed) // 2])
    alien = file(tmp_path, f"alien{ending}", text)
    broken = bytearray(packed)
    broken[len(broken) // 2] ^= 0xFF
    for path in (cut, alien, file(tmp_path, f"broken{ending}", bytes(broken))):
        with pytest.raises(ValueError, match=re.escape(str(path))):
            load_libsvm(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n"])
def test_an_empty_file(tmp_path, content):
    with pytest.raises(ValueError, match=r"has no samples"):
        load_libsvm(file(tmp_path, "empty", content))


def test_arguments(tmp_path, tiny, monkeypatch):
    path = file(tmp_path, "ok", TEXT)
    with pytest.raises(FileNotFoundError, match=r"one of tiny, tiny\.t; got 'huge'"):
        load_libsvm("huge", tmp_path)
    with pytest.raises(TypeError, match="dtype must be float32 or float64, got int64"):
        load_libsvm(path, dtype="int64")
    with pytest.raises(ValueError, match=r"n_features must be at least the 4 columns.*got 3"):
        load_libsvm(path, n_features=3)
    with pytest.raises(ValueError, match="n_features must be left out for 'tiny'"):
        load_libsvm("tiny", tmp_path, n_features=9)
    with pytest.raises(FileNotFoundError, match="data_home must name an existing folder"):
        load_libsvm("tiny", tmp_path / "nowhere")
    monkeypatch.setenv(files.ENVIRONMENT, str(path))
    with pytest.raises(FileNotFoundError, match="variable ADAHB_DATA must name an existing"):
        load_libsvm("tiny")


def test_what_is_not_published_must_be_in_a_folder(tmp_path, tiny):
    with pytest.raises(FileNotFoundError, match=r"tiny.txt .* not published for download: put it"):
        load_libsvm("tiny", tmp_path)


def test_without_pooch_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r"adahb\[data\]', which downloads https://"):
        load_libsvm("rcv1", tmp_path)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A web server with the files of a folder."""
    pytest.importorskip("pooch")
    monkeypatch.setenv("NO_PROXY", "*")
    folder = tmp_path / "www"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("ending", ["", ".bz2"])
def test_a_download_is_checked_and_kept(published, tiny, ending, tmp_path):
    folder, url = published
    checksum = hashlib.sha256(TEXT).hexdigest()
    link = f"{url}/tiny.txt{ending}"
    tiny["tiny"] = Source("tiny.txt", 4, 4, 5, **PM, url=link, sha256=checksum)
    there = file(folder, f"tiny.txt{ending}", PACKED[ending](TEXT))
    (tmp_path / "mine").mkdir()
    np.testing.assert_array_equal(load_libsvm("tiny", tmp_path / "mine").X.toarray(), DENSE)
    there.unlink()
    again = load_libsvm("tiny")
    assert again.path.is_relative_to(tmp_path / "cache")


def test_a_download_that_fails_or_is_another_file(published, tiny):
    folder, url = published
    checksum = hashlib.sha256(TEXT).hexdigest()
    tiny["tiny"] = Source("tiny.txt", 4, 4, 5, **PM, url=f"{url}/tiny.txt", sha256=checksum)
    with pytest.raises(FileNotFoundError, match=r"tiny\.txt failed .*try again, or put it"):
        load_libsvm("tiny")
    file(folder, "tiny.txt", TEXT + b"\n")
    with pytest.raises(FileNotFoundError, match=r"tiny\.txt failed .*hash"):
        load_libsvm("tiny")


def test_the_sets_of_the_paper_are_known():
    assert {"covtype", "real-sim", "a9a", "w8a", "ijcnn1", "rcv1"} < set(names())
    for name, source in SOURCES.items():
        assert source.url is None or source.url.startswith("https://www.csie.ntu.edu.tw/"), name
        assert not source.positive & source.negative


@pytest.mark.parametrize("name", names())
def test_the_real_files(name, data_home):
    if files.find(SOURCES[name].file, data_home, "libsvm") is None:
        pytest.skip(f"{name} is not in {data_home}")
    data, source = load_libsvm(name, data_home), SOURCES[name]
    assert data.X.shape == (source.rows, source.columns)
    assert data.X.nnz == source.nonzeros
    assert data.X.indices.dtype == np.int32
    assert set(data.y) == {-1.0, 1.0}


def test_values_at_the_ends_of_the_floats(tmp_path):
    path = tmp_path / "extreme"
    path.write_text("1 1:1e300 2:5e-324 3:-1e-320\n-1 1:0 2:-1.7976931348623157e308\n")
    data = load_libsvm(path)
    dense = data.X.toarray()
    assert dense.tolist() == [[1e300, 5e-324, -1e-320], [0.0, -1.7976931348623157e308, 0.0]]
    with pytest.raises(ValueError, match="numbers that are not finite in float32"):
        load_libsvm(path, dtype=np.float32)
    for bad in ("nan", "inf", "-inf", "1e400"):
        path.write_text(f"1 1:{bad}\n")
        with pytest.raises(ValueError, match=r"line 1: .* is not index:value with a finite"):
            load_libsvm(path)
        path.write_text(f"{bad} 1:1\n")
        with pytest.raises(ValueError, match=r"line 1: .* is not a finite label"):
            load_libsvm(path)
