"""Results are computed once, written whole, and never mistaken for others."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from rich.console import Console

from adahb.experiments import store as store_module
from adahb.experiments.store import Store, read_json, to_json, write_whole


@dataclass(frozen=True)
class Square:
    x: int

    name = "square"

    def spec(self):
        return asdict(self)

    def compute(self):
        if self.x < 0:
            raise ArithmeticError("negative")
        return {"y": self.x**2}


class Unwilling(Square):
    def compute(self):
        raise AssertionError("computed twice")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


QUIET = Console(quiet=True)


def test_a_result_is_computed_once(store):
    assert store.result(Square(3)) == {"y": 9}
    assert store.result(Unwilling(3)) == {"y": 9}
    assert store.result(Square(4)) == {"y": 16}


def test_complete_computes_what_is_missing(store):
    store.result(Square(1))
    store.complete([Square(1), Square(2), Square(2), Square(3)], workers=2, console=QUIET)
    assert sorted(store.result(Unwilling(x))["y"] for x in (1, 2, 3)) == [1, 4, 9]
    assert len(list(store.folder.iterdir())) == 3
    store.complete([Unwilling(2)], workers=1, console=QUIET)


def test_what_was_done_before_a_failure_is_kept(store):
    with pytest.raises(ArithmeticError):
        store.complete([Square(1), Square(-1)], workers=1, console=QUIET)
    assert store.result(Unwilling(1)) == {"y": 1}


SLEEPER = """
import os, sys, time
from pathlib import Path
from rich.console import Console
from adahb.experiments.store import Interrupted, Store

class Sleep:
    name = "sleep"
    def spec(self): return {}
    def compute(self):
        Path("part").write_text(str(os.getpid()))
        Path("part").rename("worker")
        time.sleep(300)

if __name__ == "__main__":
    try:
        Store(Path("runs")).complete([Sleep()], workers=1, console=Console(quiet=True))
    except Interrupted as interruption:
        sys.exit(str(interruption))
"""


def _wait(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("nothing happened within half a minute")


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_workers_end_with_the_command(tmp_path, number):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    command = subprocess.Popen(
        [sys.executable, "sleeper.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    with command:
        _wait((tmp_path / "worker").exists)
        command.send_signal(number)
        _, errors = command.communicate(timeout=30)
        worker = int((tmp_path / "worker").read_text())
        _wait(lambda: not _runs(worker))
    if number == signal.SIGINT:
        assert command.returncode == 1
        assert "interrupted with 0 of 1 runs done" in errors
    assert not (tmp_path / "runs").exists()


def test_another_version_is_another_result(store, monkeypatch):
    store.result(Square(3))
    monkeypatch.setattr(store_module.adahb, "__version__", "0")
    with pytest.raises(AssertionError, match="computed twice"):
        store.result(Unwilling(3))


@pytest.mark.parametrize("content", [b"", b'{"id": 1', b"\xff\xfe", b"[]", b'{"id": "x"}', b"null"])
def test_a_damaged_file_is_named(store, content):
    store.result(Square(3))
    path = store.path(Square(3))
    path.write_bytes(content)
    with pytest.raises(ValueError, match="delete it and run the command again") as error:
        store.result(Square(3))
    assert str(path) in str(error.value)


def test_one_result_under_the_name_of_another_is_noticed(store):
    store.result(Square(3))
    store.path(Square(3)).rename(store.path(Square(4)))
    with pytest.raises(ValueError, match="does not hold the run"):
        store.result(Square(4))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "file.json"
    write_whole(path, "old")

    def fail(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_files_are_readable_by_others(tmp_path):
    write_whole(tmp_path / "f", b"x")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644


def test_json_without_numbers_that_are_none():
    text = to_json({"a": [1.5, math.inf, (math.nan, -math.inf)], "b": "∞"})
    assert json.loads(text) == {"a": [1.5, None, [None, None]], "b": "∞"}


def test_numbers_come_back_to_the_last_digit(tmp_path):
    numbers = [0.1, 1e-300, 2**53 + 0.0, -5e-324]
    write_whole(tmp_path / "n.json", to_json(numbers))
    assert read_json(tmp_path / "n.json") == numbers
