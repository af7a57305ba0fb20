"""The cache of compiled code: trusted, shared, and never needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from adahb._numba import njit

SCRIPT = """
import sys
from adahb._numba import njit

def adding(what):
    @njit()
    def run(x):
        return x + what
    return run

def answers():
    return [adding(what)(x) for what in (1, 2) for x in (3, 4.5)]
"""
ANSWERS = "[4, 5.5, 5, 6.5]"


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Run the script in a process of its own, with a cache in a folder."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))

    def run(before="pass"):
        code = f"import script; from adahb import _numba; {before}; print(script.answers())"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    return run


def cached(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.nbc"))


def test_a_signature_has_a_file_of_its_own_and_damage_is_seen(answers, tmp_path):
    """Closures of one function with one signature are told apart, which an index may mix up."""
    assert answers() == ANSWERS
    files = cached(tmp_path)
    assert len(files) == 4
    assert not list((tmp_path / "cache").rglob("*.nbi"))
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents, strict=True):
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    files[0].write_bytes(b"")
    files[1].write_bytes(contents[0])  # whole, but of another signature
    assert answers() == ANSWERS
    made = [file.stat().st_mtime_ns for file in files]
    assert answers() == ANSWERS
    assert [file.stat().st_mtime_ns for file in files] == made, "what is whole is not used"


def test_no_folder_at_all(answers, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_LOCATOR_CLASSES", "ZipCacheLocator")  # and this is no archive
    assert answers() == ANSWERS
    assert not cached(tmp_path)


def test_a_folder_that_cannot_be_written_to_any_more(answers, tmp_path):
    spoil = "import shutil, pathlib; c = pathlib.Path('cache'); "
    spoil += "script.adding(1); shutil.rmtree(c); c.write_text('not a folder')"
    assert answers(spoil) == ANSWERS
    assert not cached(tmp_path)


def test_without_a_compiler(monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)

    def function(x):
        return x

    assert njit()(function) is function


def test_no_other_cache_is_used():
    """Numba's own, `cache=True`, mixes up what processes compile at the same time."""
    package = Path(__file__).resolve().parents[1] / "src" / "adahb"
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "cache=True" not in text, file
        assert '"cache": True' not in text, file
