"""Results are computed once, written whole, and never mistaken for others."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from adahb import _files
from adahb._files import Lease
from adahb._stopping import Interrupted, stoppable
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
from adahb._stopping import Interrupted
from adahb.experiments.store import Store

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
        assert not list((tmp_path / "runs").iterdir())
    assert not list((tmp_path / "runs").glob("*.json"))


COUNTER = """
import sys, time
from pathlib import Path
from rich.console import Console
from adahb.experiments.store import Store

class Cube:
    def __init__(self, x):
        self.x, self.name = x, f"cube-{x}"
    def spec(self):
        return {"x": self.x}
    def compute(self):
        with Path(sys.argv[2]).open("a") as log:
            log.write(f"{self.x} ")
        time.sleep(0.02)
        return {"y": self.x**3, "padding": "x" * 200_000}

class Here:
    def results(self, jobs):
        for job in jobs:
            yield job, job.compute()

if __name__ == "__main__":
    jobs = [Cube(x) for x in range(40)]
    store = Store(Path(sys.argv[1]))
    assert store.complete(jobs, workers=1, console=Console(quiet=True), backend=Here())
    assert [store.result(job)["y"] for job in jobs] == [x**3 for x in range(40)]
"""


@pytest.fixture
def counting(tmp_path):
    """Begin to compute forty cubes in another process."""
    (tmp_path / "counter.py").write_text(COUNTER)
    runs, log = tmp_path / "runs", tmp_path / "log"
    log.touch()

    def begin():
        return subprocess.Popen([sys.executable, tmp_path / "counter.py", runs, log])

    return begin, runs, log


def test_killed_at_any_moment_it_goes_on_from_there(counting):
    begin, runs, log = counting
    seen, moments = 0, np.random.default_rng(0).uniform(0, 0.03, 4)
    for k, moment in enumerate(moments):
        with begin() as command:
            while len(list(runs.glob("*.json"))) < 8 * (k + 1) and command.poll() is None:
                time.sleep(0.002)
            time.sleep(moment)  # before, in or after the writing of a file
            command.kill()
        assert command.returncode == -signal.SIGKILL
        seen = len(list(runs.glob("*.json")))
        for path in runs.glob("*.json"):
            read_json(path)
    assert begin().wait(60) == 0
    begun = [int(word) for word in log.read_text().split()]
    assert seen < 40
    assert set(begun) == set(range(40))
    assert len(begun) <= 40 + len(moments)
    assert len(list(runs.iterdir())) == 40


def test_two_at_once_share_the_work(counting):
    begin, runs, log = counting
    both = [begin(), begin()]
    assert [command.wait(60) for command in both] == [0, 0]
    assert sorted(int(word) for word in log.read_text().split()) == list(range(40))
    assert len(list(runs.iterdir())) == 40


def test_what_another_holds_is_waited_for(store, monkeypatch):
    lease = Lease.of(store.path(Square(2)))
    assert Lease.of(store.path(Square(2))) is None
    naps = []

    def nap(_):
        naps.append(len(list(store.folder.glob("*.json"))))
        if len(naps) == 2:
            lease.release()

    monkeypatch.setattr(store_module.time, "sleep", nap)
    assert store.complete([Square(1), Square(2)], workers=1, console=QUIET, backend=InThisProcess())
    assert naps == [1, 1]
    assert store.result(Unwilling(2)) == {"y": 4}
    assert len(list(store.folder.iterdir())) == 2


class InThisProcess:
    def results(self, jobs):
        for job in jobs:
            yield job, job.compute()


def test_leftovers_of_the_dead_are_removed_and_the_files_of_the_living_are_not(store):
    store.result(Square(1))
    lease = Lease.of(store.path(Square(2)))
    name = store.path(Square(3)).name
    for leftover in (f".{name}.lock", f".{name}.abc.part"):
        (store.folder / leftover).write_text("")
    (store.folder / "notes.part").write_text("mine")
    store.complete([Square(1)], workers=1, console=QUIET)
    held = f".{store.path(Square(2)).name}.lock"
    assert {p.name for p in store.folder.iterdir()} == {
        store.path(Square(1)).name,
        held,
        "notes.part",
    }
    lease.release()
    assert not (store.folder / held).exists()


def test_leftovers_that_are_not_ours_to_remove_do_not_matter(store):
    leftover = store.folder / f".{store.path(Square(3)).name}.abc.part"
    leftover.mkdir(parents=True)  # which nobody can open, not even root
    assert store.complete([Square(3)], workers=1, console=QUIET, backend=InThisProcess())
    assert store.result(Unwilling(3)) == {"y": 9}


def test_where_there_are_no_locks_work_goes_on(store, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(_files.fcntl, "flock", fail)
    leftover = store.folder / f".{store.path(Square(3)).name}.abc.part"
    leftover.parent.mkdir()
    leftover.write_text("")
    assert store.complete([Square(3)], workers=1, console=QUIET, backend=InThisProcess())
    assert store.result(Unwilling(3)) == {"y": 9}
    assert leftover.exists()  # perhaps of somebody who is alive


def test_a_damaged_file_is_named_before_anything_is_computed(store):
    store.result(Square(3))
    path = store.path(Square(3))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="is not a whole JSON file") as error:
        store.complete([Unwilling(2), Square(3)], workers=1, console=QUIET)
    assert str(path) in str(error.value)


def test_another_number_in_a_file_is_noticed(store):
    store.result(Square(3))
    path = store.path(Square(3))
    path.write_text(path.read_text().replace('"y": 9', '"y": 8'))
    with pytest.raises(ValueError, match="is not as it was written") as error:
        store.result(Square(3))
    assert str(path) in str(error.value)


def test_an_interrupt_leaves_no_lock_wherever_it_comes(store, monkeypatch):
    release = Lease.release

    def interrupted_release(lease):
        os.kill(os.getpid(), signal.SIGTERM)
        release(lease)

    monkeypatch.setattr(Lease, "release", interrupted_release)
    with pytest.raises(Interrupted, match="interrupted with 1 of 2 runs done"):
        stoppable()(store.complete)(
            [Square(1), Square(2)], workers=1, console=QUIET, backend=InThisProcess()
        )
    assert list(store.folder.iterdir()) == [store.path(Square(1))]


def test_what_cannot_be_written_is_named_with_what_to_do(store):
    store.folder.write_text("mine")
    with pytest.raises(OSError, match=r"square-.*json cannot be written .* same command") as error:
        store.complete([Square(1)], workers=1, console=QUIET, backend=InThisProcess())
    assert str(store.path(Square(1))) in str(error.value)


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


HOSTILE = {
    "NaN": "NaN is no finite number",
    "-Infinity": "-Infinity is no finite number",
    "1e999": "1e999 is no finite number",
    "9" * 5000: "digits",
    "[" * 100_000 + "]" * 100_000: "recursion",
    "[" * 60 + "]" * 60: "nested more than 50 deep",
    '"\\u001b[2J"': "control character",
    '"a\\\\\\u0007"': "control character",
    '"\x9b2J"': "control character",
    '"\\ud800"': "surrogates not allowed",
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_json_that_would_do_harm_later(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(f'{{"x": {text}}}')
    with pytest.raises(ValueError, match=f"result.json is not a whole JSON .*{HOSTILE[text]}"):
        read_json(path)


def test_text_that_only_looks_like_harm(tmp_path):
    kept = ["C:\\bin\\u0007", "\U0001d46b α\n\t", "[" * 99, 2**64, -0.0]
    write_whole(tmp_path / "t.json", to_json(kept))
    assert read_json(tmp_path / "t.json") == kept


def test_files_that_are_no_results(tmp_path, monkeypatch):
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"pipe\.json must be a file, and is a pipe or a device"):
        read_json(path)
    (tmp_path / "long.json").write_text("[1, 2, 3]")
    monkeypatch.setattr(store_module, "_LARGEST", 8)
    with pytest.raises(ValueError, match=r"long\.json has more than 8 bytes: it is refused"):
        read_json(tmp_path / "long.json")
