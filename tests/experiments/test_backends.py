"""Workers are killed, clusters are missing, machines differ: the results are the same."""

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from experiments import cluster as clusters
from rich.console import Console

from adahb import cli
from adahb._stopping import Interrupted
from adahb.experiments import backends, deep, figures
from adahb.experiments.backends import Dask, Processes, RunLost
from adahb.experiments.deep import Cell, Entry
from adahb.experiments.store import Store

QUIET = Console(quiet=True)

PATIENT = '''
import os, time
from pathlib import Path

class Patient:
    """Says where it is computed, and is done when told so; 0 never is."""

    def __init__(self, number, folder):
        self.number, self.folder = number, folder
        self.name = f"patient-{number}"

    def spec(self):
        return {"number": self.number}

    def compute(self):
        begun = Path(self.folder, f"{self.number}-{os.getpid()}")
        begun.touch()
        while not Path(self.folder, "go").exists() or not self.number:
            time.sleep(0.05)
        return {"square": self.number**2}
'''


@pytest.fixture
def patient(tmp_path, monkeypatch):
    """A class of jobs that goes to workers by its source, wherever they are."""
    cloudpickle = pytest.importorskip("cloudpickle")
    (tmp_path / "patient.py").write_text(PATIENT)
    monkeypatch.syspath_prepend(tmp_path)
    import patient

    cloudpickle.register_pickle_by_value(patient)
    yield patient.Patient
    cloudpickle.unregister_pickle_by_value(patient)
    del sys.modules["patient"]


def wait_for(condition):
    for _ in range(1200):
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail("nothing happened within a minute")


def begun(folder):
    """Pairs of a job's number and the process that began it."""
    names = [path.name for path in Path(folder).iterdir() if "-" in path.name]
    return [tuple(map(int, name.split("-"))) for name in names]


@contextmanager
def meanwhile(action):
    """Call ``action`` in a thread."""
    from threading import Thread

    thread = Thread(target=action)
    thread.start()
    yield
    thread.join()


def squares(store, jobs):
    return [store.result(job)["square"] for job in jobs]


def test_what_a_killed_process_was_computing_is_computed_again(tmp_path, patient):
    folder = tmp_path / "signs"
    folder.mkdir()

    def kill_one():
        wait_for(lambda: len(begun(folder)) == 2)
        os.kill(begun(folder)[0][1], signal.SIGKILL)
        (folder / "go").touch()

    store, jobs = Store(tmp_path / "runs"), [patient(k, str(folder)) for k in (1, 2, 3)]
    with meanwhile(kill_one):
        assert store.complete(jobs, workers=2, console=QUIET)
    assert squares(store, jobs) == [1, 4, 9]
    assert len(list(store.folder.iterdir())) == 3
    assert len(begun(folder)) > 3


def test_a_process_may_keep_what_it_has_loaded(tmp_path):
    pids = []

    class Hoarder:
        def __init__(self, number):
            self.number, self.name = number, f"hoarder-{number}"

        def spec(self):
            return {"number": self.number}

        def compute(self):
            if self.number == 1:
                os.hoard = b"x" * 400_000_000
                time.sleep(1.1)  # loky looks once a second
            return {"pid": os.getpid()}

    store = Store(tmp_path)
    for number in range(3):
        store.complete([Hoarder(number)], workers=1, console=QUIET)
        pids.append(store.result(Hoarder(number))["pid"])
    assert len(set(pids)) == 1


def test_a_run_that_kills_its_workers_is_given_up(tmp_path, patient):
    folder = tmp_path / "signs"
    folder.mkdir()
    killed = set()

    def kill_all():
        while len(killed) < 3:
            for pair in wait_for(lambda: set(begun(folder)) - killed):
                os.kill(pair[1], signal.SIGKILL)
                killed.add(pair)

    with meanwhile(kill_all), pytest.raises(RunLost, match=r"3 workers were killed .* patient-0"):
        Store(tmp_path / "runs").complete([patient(0, str(folder))], workers=1, console=QUIET)
    assert not list((tmp_path / "runs").iterdir())


# ---------------------------------------------------------------- a cluster


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers, with their addresses."""
    pytest.importorskip("distributed")
    with clusters.cluster(tmp_path) as found:
        yield found


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker(tmp_path, patient, cluster):
    address, (_, *workers) = cluster
    folder = tmp_path / "signs"
    folder.mkdir()

    def kill_one():
        wait_for(lambda: len({pid for _, pid in begun(folder)}) == 2)
        workers[0].kill()
        (folder / "go").touch()

    store, jobs = Store(tmp_path / "runs"), [patient(k, str(folder)) for k in range(1, 8)]
    with meanwhile(kill_one):
        assert store.complete(jobs, workers=1, console=QUIET, backend=Dask(address))
    assert squares(store, jobs) == [1, 4, 9, 16, 25, 36, 49]
    assert len(list(store.folder.iterdir())) == 7
    again = [number for number, _ in begun(folder)]
    assert sorted(again) != sorted(set(again))


@pytest.mark.slow
def test_a_run_is_the_same_bit_for_bit_wherever_it_is_made(
    tmp_path, cluster, one_thread, monkeypatch
):
    """By the command on a cluster, in another process, and in this one."""
    pair = tuple(Entry(name, grid=(0.01,)) for name in ("AdaHB", "SGD"))
    cell = Cell("digits", "cnn", epochs=1, batch=256, held_out=100, entries=pair)
    monkeypatch.setattr(deep, "PRESETS", {"quick": (cell,)})
    monkeypatch.setattr(figures, "render", lambda *_: b"")
    where = ("--backend", "dask", "--scheduler", cluster[0])
    monkeypatch.setattr(sys, "argv", ["adahb", "reproduce", "deep", "--out", str(tmp_path), *where])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    assert (tmp_path / "deep-quick.json").exists()
    assert len(list((tmp_path / "runs").iterdir())) == 2 * (2 + 4)

    task = cell.task(pair[0], 0.01, 0, held_out=True)
    other = Store(tmp_path / "loky")
    other.complete([task], workers=1, console=QUIET, backend=Processes(1))
    monkeypatch.setattr(Store, "_keep", lambda *_: pytest.fail("made anew"))
    made = [task.compute(), other.result(task), Store(tmp_path / "runs").result(task)]
    here, *elsewhere = ({k: v for k, v in run.items() if k != "seconds"} for run in made)
    assert here["held_out_accuracy"]
    assert elsewhere == [here, here]


@pytest.mark.slow
def test_a_cluster_whose_scheduler_ends(tmp_path, patient, cluster, caplog):
    address, (scheduler, *_) = cluster
    folder = tmp_path / "signs"
    folder.mkdir()

    def end():
        wait_for(lambda: begun(folder))
        scheduler.kill()

    store = Store(tmp_path / "runs")
    with meanwhile(end), pytest.raises(ConnectionError, match="is gone; what is done is kept"):
        store.complete(
            [patient(1, str(folder))], workers=1, console=QUIET, backend=Dask(address, 2.0)
        )
    assert not list(store.folder.iterdir())


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere at all"])
def test_no_scheduler(tmp_path, patient, address):
    pytest.importorskip("distributed")
    store = Store(tmp_path / "runs")
    with pytest.raises(ConnectionError, match=f"no dask scheduler answers at '{address}'"):
        store.complete(
            [patient(1, "")], workers=1, console=QUIET, backend=Dask(address, patience=0.5)
        )
    assert not store.folder.exists()


def test_no_package(tmp_path, patient, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'adahb\[cluster\]'"):
        list(Dask("tcp://127.0.0.1:8786").results(iter([])))


def test_workers_of_another_version_are_refused(patient):
    with pytest.raises(ImportError, match=r"has adahb .*, the command has 0\.0\.0"):
        backends._compute(patient(1, ""), "0.0.0")


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_on_the_cluster(tmp_path, patient, cluster):
    distributed = pytest.importorskip("distributed")
    address, _ = cluster
    (tmp_path / "go").touch()
    store, jobs = Store(tmp_path / "runs"), [patient(k, str(tmp_path)) for k in (1, 2, 3)]

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="interrupted with 1 of 3 runs done"):
        store.complete(jobs, workers=1, console=QUIET, backend=Dask(address), news=interrupt)
    assert len(list(store.folder.iterdir())) == 1
    with distributed.Client(address, set_as_default=False) as client:
        wait_for(lambda: not client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.tasks))
    assert store.complete(jobs, workers=1, console=QUIET, backend=Dask(address))
    assert squares(store, jobs) == [1, 4, 9]
