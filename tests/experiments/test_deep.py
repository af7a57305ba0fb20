"""Plans, choices of α, tables and claims of the deep experiments, and sweeps that are stopped."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from adahb.experiments import commands, deep, deep_results, figures
from adahb.experiments.deep import PRESETS, SEEDS, SIX, Best, Cell, Entry
from adahb.experiments.store import Store, read_json

QUIET = Console(quiet=True)
PAIR = (Entry("AdaHB", grid=(0.1, 0.01)), Entry("SGD", grid=(0.1, 0.01)))
TINY = Cell("digits", "cnn", epochs=1, batch=256, held_out=100, entries=PAIR)


@dataclass
class Made(Store):
    """A store whose results are made up from the task, whatever the network would do."""

    folder: object = None

    def has(self, _):
        return True

    def result(self, task):
        best = {"AdaHB": 0.01, "SGD": 0.1}.get(task.entry.optimizer, 0.1)
        off = abs(np.log10(task.alpha / best))
        fair = 0.5 if task.held_out else 0.0
        noise = 0.001 * task.seed
        loss = 0.1 + off + noise + (0.05 if task.entry.optimizer != "AdaHB" else 0.0)
        accuracy = 0.9 - 0.1 * off - noise
        held_out = 0.9 - 0.1 * abs(np.log10(task.alpha / 0.1))
        curves = {"train_loss": [1.0, loss], "test_accuracy": [0.1, accuracy]}
        curves["final_loss"] = [loss / 2]
        return {**curves, "held_out_accuracy": [0.1, held_out + fair], "environment": {"a": "b"}}


def test_a_spec_says_what_determines_the_result():
    task = TINY.task(PAIR[0], 0.1, 3)
    elsewhere = replace(task, home="/data", device="cuda")
    assert elsewhere.spec() == task.spec()
    assert task == elsewhere
    others = [
        replace(task, seed=4),
        replace(task, alpha=0.01),
        replace(task, held_out=100),
        replace(task, bf16=True),
        replace(task, entry=Entry("AdaHB", (("tick", 1),))),
    ]
    store = Store(Path("runs"))
    assert len({store.path(t) for t in [task, elsewhere, *others]}) == 1 + len(others)
    json.dumps(task.spec())


def test_each_protocol_chooses_by_its_own_images():
    store = Made()
    assert TINY.chosen(store, PAIR[0], "published") == 0.01
    assert TINY.chosen(store, PAIR[0], "fair") == 0.1
    assert TINY.chosen(store, PAIR[0], "training") == 0.01
    assert all(task.held_out == 100 for task in TINY.grid(PAIR[0], "fair"))
    repeats = TINY.repeats(store, PAIR[0], "fair")
    assert [task.seed for task in repeats] == list(SEEDS)
    assert {(task.alpha, task.held_out) for task in repeats} == {(0.1, 0)}


def test_a_run_that_diverged_is_never_chosen():
    class Diverged(Made):
        def result(self, task):
            found = super().result(task)
            if task.alpha == 0.01:
                found["test_accuracy"][-1] = None
            return found

    assert TINY.chosen(Diverged(), PAIR[0], "published") == 0.1


def test_stages_come_in_order_of_what_they_tell():
    first, second, third = deep.stages([TINY], Made(), whole=True)
    assert {task.seed for task in first} == {0}
    assert len(first) == 8
    assert len({(t.entry, t.alpha) for t in second}) == 3  # SGD's two choices are one
    assert {t.held_out for t in [*second, *third]} == {0}
    assert len(third) == 2 * 2 * 5
    assert len(list(deep.stages([TINY], Made(), whole=False))) == 2


def test_tables_pair_the_seeds():
    cell = deep_results.data([TINY], Made())["cells"][0]
    ours, theirs = cell["protocols"]["published"]
    assert (ours["alpha"], theirs["alpha"]) == (0.01, 0.1)
    assert ours["train_loss"]["value"] == pytest.approx(0.102)
    assert theirs["AdaHB minus this, train_loss"]["value"] == pytest.approx(-0.05)
    assert theirs["AdaHB minus this, train_loss"]["high"] == pytest.approx(-0.05)  # noise cancels
    assert "AdaHB minus this, train_loss" not in ours
    assert ours["train_loss curve"]["value"] == [1.0, 0.102]


def test_claims_can_come_out_either_way():
    cell = replace(TINY, entries=SIX)
    c5, c7 = deep_results.claims([cell], Made())
    assert (c5.id, c7.id) == ("C5", "C7")
    assert c5.verdict == "not supported"  # fair chooses an α that is ten times too large for AdaHB
    published = [f for f in c5.findings if "published" in f.what]
    assert {f.verdict for f in published} == {"supported"}
    assert {f.verdict for f in c7.findings if "published" in f.what} == {"supported"}
    assert "stand in" in c7.remark
    assert deep_results.claims([TINY], Made()) == []
    fewer = replace(cell, entries=tuple(replace(entry, grid=(0.1, 0.01)) for entry in SIX))
    assert [c.id for c in deep_results.claims([fewer], Made())] == ["C5", "C7"]
    assert [c.id for c in deep_results.claims([replace(cell, network="resnet20")], Made())] == [
        "C6",
        "C7",
    ]


def test_diverged_runs_make_an_infinite_mean():
    estimate = deep_results._mean(np.array([1.0, np.inf]))
    assert estimate.value == np.inf
    assert deep_results._mean(np.array([1.0, -np.inf])).value == -np.inf


def test_presets_are_what_the_docs_say():
    assert {cell.dataset for cell in PRESETS["quick"]} == {"digits"}
    paper = {(cell.network, cell.dataset) for cell in PRESETS["paper"]}
    assert {("cnn", "cifar10"), ("cnn-paper", "cifar10"), ("resnet18", "mnist")} < paper
    for cell in deep.cells("paper", home="x", device="cuda", bf16=True, epochs=3):
        assert (cell.home, cell.device, cell.bf16, cell.epochs) == ("x", "cuda", True, 3)
    with pytest.raises(ValueError, match=r"preset must be one of 'quick', .*, got 'all'"):
        deep.cells("all", home=None, device="cpu", bf16=False)


def test_data_that_cannot_be_had_are_left_out(tmp_path, monkeypatch):
    said = []

    def load(name, home):
        if name == "cifar100":
            raise FileNotFoundError("nowhere")

    monkeypatch.setattr(deep, "load_images", load)
    cells = deep.cells("paper", home=str(tmp_path), device="cpu", bf16=False)
    found = deep.available(cells, said.append)
    assert {c.dataset for c in cells} - {c.dataset for c in found} == {"cifar100"}
    assert said == ["cifar100 is left out: nowhere"]
    with pytest.raises(FileNotFoundError, match="no data for any of cifar100"):
        deep.available([Cell("cifar100", "cnn", 1)], said.append)


def test_the_best_so_far():
    best = Best()
    task, other = TINY.task(PAIR[0], 0.1, 0), TINY.task(PAIR[1], 0.01, 0)
    assert "0.700: AdaHB, α = 0.1" in best.after(task, {"test_accuracy": [0.7]})
    assert "0.700" in best.after(other, {"test_accuracy": [0.6]})
    assert "0.700" in best.after(other, {"test_accuracy": [None]})
    assert "0.800: SGD" in best.after(other, {"test_accuracy": [0.8]})


def test_figures_have_a_panel_for_each_cell():
    data = deep_results.data([TINY, replace(TINY, network="resnet20")], Made())
    for number in figures.DEEP:
        figure = figures.figure_deep(data, number, "fair")
        assert len(figure.axes) == 1
        assert figure.axes[0].get_yscale() == ("log" if number in (1, 3) else "linear")
        assert [t.get_text() for t in figure.legends[0].get_texts()] == ["AdaHB", "SGD"]


def swept(folder, cells=(TINY,), **options):
    return commands.train_deep(
        folder,
        cells,
        "tiny",
        **{"whole": False, "in_flight": 1, "budget": None, **options},
        console=QUIET,
    )


SWEEP = """
import sys
from pathlib import Path
from rich.console import Console
from adahb.experiments import commands
from adahb.experiments.deep import Cell, Entry
entries = (Entry("AdaHB", grid=(0.1, 0.01)), Entry("SGD", grid=(0.1, 0.01)))
cell = Cell("digits", "cnn", epochs=1, batch=256, held_out=100, entries=entries)
if __name__ == "__main__":
    commands.train_deep(
        Path(sys.argv[1]), [cell], "tiny", whole=False, in_flight=1, budget=None,
        console=Console(quiet=True),
    )
"""


def results(folder):
    """All that was kept but the time it took; nothing else must be left."""
    assert not list(folder.rglob(".*"))
    found = {}
    for path in folder.glob("runs/*.json"):
        content = read_json(path)["result"]
        content.pop("seconds")
        found[path.name] = content
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    swept(folder)
    return folder


def test_nothing_is_begun_when_the_budget_is_spent(tmp_path):
    found, paths = swept(tmp_path, budget=0.0)
    assert found is None
    assert not paths
    assert not list(tmp_path.glob("**/*.json"))


@pytest.mark.slow
def test_what_a_sweep_leaves(whole):
    pictures = {
        f"deep-tiny-figure{number}-{protocol}.{kind}"
        for number in (1, 2)
        for protocol in ("published", "fair", "training")
        for kind in ("png", "svg")
    }
    assert {p.name for p in whole.iterdir()} == {"runs", "deep-tiny.json", *pictures}
    stored = read_json(whole / "deep-tiny.json")
    assert stored["cells"][0]["protocols"].keys() == {"published", "fair", "training"}
    assert stored["unfinished"] == []


@pytest.mark.slow
def test_cells_that_are_done_are_shown_when_time_runs_out(tmp_path, whole):
    shutil.copytree(whole / "runs", tmp_path / "runs")
    found, paths = swept(tmp_path, cells=[TINY, replace(TINY, batch=128)], budget=0.0)
    assert [cell["batch"] for cell in found["cells"]] == [256]
    assert found["unfinished"] == ["cnn, digits"]
    assert paths


@pytest.mark.slow
def test_a_sweep_that_was_killed_ends_as_one_that_was_not(tmp_path, whole):
    """Killed in its first run and in the second stage, and started again each time."""
    script = tmp_path / "sweep.py"
    script.write_text(SWEEP)
    folder = tmp_path / "killed"
    moments = (
        lambda: list(folder.glob("runs/.*.lock")),
        lambda: len(list(folder.glob("runs/*.json"))) >= 9,
    )
    for moment in moments:
        with subprocess.Popen([sys.executable, script, folder]) as sweep:
            while not moment() and sweep.poll() is None:
                time.sleep(0.01)
            sweep.send_signal(signal.SIGKILL)
        assert sweep.returncode == -signal.SIGKILL
    assert not (folder / "deep-tiny.json").exists()
    swept(folder)
    assert results(folder) == results(whole)
    one, other = (read_json(f / "deep-tiny.json") for f in (folder, whole))
    assert one == other


@pytest.mark.slow
def test_results_are_merged_by_copying_files(tmp_path, whole, monkeypatch):
    """The same table comes of copied files, and nothing is made anew."""
    shutil.copytree(whole / "runs", tmp_path / "runs")
    monkeypatch.setattr(Store, "_compute", lambda *_: pytest.fail("made anew"))
    swept(tmp_path)
    assert read_json(tmp_path / "deep-tiny.json") == read_json(whole / "deep-tiny.json")
