"""Figure 6 and the claims about it, on small problems and on curves made up."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from adahb import cli
from adahb.data import files
from adahb.experiments import claims, convex, convex_claims
from adahb.experiments.convex import GRID, Contender, Curve, Minimum, Problem
from adahb.experiments.hinge import hinge, optimum
from adahb.experiments.rates import TUNING_SEED
from adahb.experiments.runs import Method
from adahb.experiments.store import Store, read_json, to_json
from adahb.schedules import HB, PSG, best_alpha

CANCER = Problem("breast_cancer", 1.0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with all runs of a short figure."""
    store = Store(tmp_path_factory.mktemp("runs"))
    panels = [convex.contenders(CANCER, repeats=2, epochs=1)]
    for job in convex.tuning(panels):
        store.result(job)
    for job in convex.repeats(store, panels):
        store.result(job)
    return store


@pytest.fixture
def offline(monkeypatch):
    """Downloads fail; what was tried, and whether it was allowed to, is listed."""
    tried = []

    def download(name, file, url, known_hash, home, *, folder, offline, largest):
        tried.append((name, offline))
        raise (FileNotFoundError if offline else files.DownloadFailed)(f"no {name}")

    monkeypatch.delenv(files.ENVIRONMENT, raising=False)
    monkeypatch.setattr(files, "download", download)
    return tried


def test_all_sets_that_are_in_the_folder(tmp_path, offline):
    (tmp_path / "libsvm").mkdir()
    for name in ("a9a", "libsvm/news20.bz2", "covtype.libsvm.binary.scale.xz"):
        (tmp_path / name).touch()
    said = []
    found = convex.available(str(tmp_path), None, said.append)
    assert [(p.dataset, p.radius) for p in found] == [
        ("covtype", 50),
        ("a9a", 20),
        ("news20", 60),
    ]
    assert len(said) == 5
    assert [name for name, forbidden in offline if not forbidden] == ["real-sim"]


def test_without_data_and_network_the_bundled_sets_and_a_word(offline):
    said = []
    found = convex.available(None, None, said.append)
    assert [p.dataset for p in found] == ["breast_cancer", "digits"]
    assert "no data set of the paper can be had" in said[-1]


def test_sets_asked_for_must_be_known_and_there(offline):
    assert convex.available(None, ["digits"], print) == [Problem("digits", 5.0)]
    with pytest.raises(ValueError, match=r"sets must be some of covtype, .*, got 'iris'"):
        convex.available(None, ["a9a", "iris"], print)
    with pytest.raises(FileNotFoundError, match="no a9a"):
        convex.available(None, ["digits", "a9a"], print)


@pytest.mark.parametrize("epochs", [1, 2, 10, 100])
def test_what_is_recorded(epochs):
    found = convex.recorded(epochs)
    assert found == sorted(set(found))
    assert (found[0], found[-1]) == (0.125, epochs)
    assert len(found) <= 35


def test_epochs_by_the_size():
    assert Problem("covtype", 1.0).epochs() == 10
    assert Problem("w8a", 1.0).epochs() == 20
    assert Problem("news20", 1.0).epochs() == 10
    assert CANCER.epochs() == 100


def test_the_minimum_is_that_of_the_plain_program(store):
    found, plain = store.result(Minimum(CANCER)), optimum("breast_cancer", 1.0)
    assert found["value"] == pytest.approx(plain.value, abs=1e-12)
    assert abs(found["value"] - found["lower_bound"]) < 1e-14
    assert (found["n"], found["d"]) == (569, 30)


def test_specs_tell_runs_apart_but_not_folders():
    method = Method(HB(alpha=0.5), "paper")
    curves = [
        Curve(CANCER, method, 2, 0),
        Curve(CANCER, method, 2, 1),
        Curve(CANCER, method, 3, 0),
        Curve(CANCER, Method(HB(alpha=0.25), "paper"), 2, 0),
        Curve(CANCER, Method(HB(alpha=0.5)), 2, 0),
        Curve(CANCER, Method(PSG(alpha=0.5), "paper"), 2, 0),
        Curve(Problem("digits", 1.0), method, 2, 0),
        Curve(Problem("breast_cancer", 2.0), method, 2, 0),
    ]
    assert len({json.dumps(curve.spec(), sort_keys=True) for curve in curves}) == len(curves)
    moved = Curve(Problem("breast_cancer", 1.0, "/elsewhere"), method, 2, 0)
    assert moved.spec() == curves[0].spec()
    assert "/elsewhere" not in json.dumps(moved.spec())


def test_a_curve_is_the_method_at_a_multiple_of_the_theorys_alpha():
    """PSG by hand, on the samples that the seed draws."""
    objective = hinge("breast_cancer")
    found = Curve(CANCER, Method(PSG(alpha=0.5)), 1, 3).compute()
    alpha = 0.5 * best_alpha(2.0, lipschitz=objective.sample_lipschitz())
    assert found["alpha"] == pytest.approx(alpha, rel=1e-15)
    rng, steps = np.random.default_rng(3), [round(e * 569) for e in (0.125, 0.25, 0.5, 1)]
    rows = np.concatenate([rng.integers(569, size=n) for n in np.diff([0, *steps])])
    w, total, ball = np.zeros(30), np.zeros(30), CANCER.make()[1]
    for t, i in enumerate(rows, start=1):
        total += w
        w = ball.project(w - alpha / np.sqrt(t) * objective.sample_subgradient(w, i))
    assert found["last"][-1] == pytest.approx(objective.value(w), abs=1e-10)
    assert found["average"][-1] == pytest.approx(objective.value(total / 569), abs=1e-10)


def test_alpha_is_chosen_by_another_seed_than_those_shown(store):
    for contender in convex.contenders(CANCER, repeats=2, epochs=1):
        assert {run.seed for run in contender.tuning()} == {TUNING_SEED}
        shown = contender.curves(store)
        assert [run.seed for run in shown] == [0, 1]
        ends = [store.result(run)[contender.output][-1] for run in contender.tuning()]
        assert shown[0].method.schedule.alpha == GRID[int(np.argmin(ends))]
    many = dataclasses.replace(contender, repeats=7)
    assert [run.seed for run in many.curves(store)] == [0, 1, 2, 3, 4, 6, 7]


def test_the_figures_data(store):
    panels = [convex.contenders(CANCER, repeats=2, epochs=1)]
    (panel,) = convex.data(store, panels)["panels"]
    assert panel["smallest gap over that of the minimum"] > 100
    assert panel["epoch"] == [0.125, 0.25, 0.5, 1]
    labels = [curve["label"] for curve in panel["curves"]]
    assert labels == [contender.label for contender in panels[0]]
    assert sum("NAG (reconstructed)" in label for label in labels) == 1
    for curve in panel["curves"]:
        value, low, high = (np.array(curve[key]) for key in ("value", "low", "high"))
        assert (low > 0).all()
        assert (low <= value).all()
        assert (value <= high).all()
    assert len(to_json(panel)) < 10_000


@pytest.fixture
def made_up(monkeypatch):
    """Gaps c·t^p with a little noise for each label, instead of runs."""
    laws = {
        "PSG, average": (1.0, -0.5),
        "PSG, last": (3.0, -0.3),
        "HB, last": (1.5, -0.5),
        "HB, averaging form, last": (1.0, -0.4),
        "AdaHB, metric, averaging form, last": (2.5, -0.6),
        "NAG (reconstructed), last": (3.0, -0.5),
        "AdaHB, metric, last": (0.1, -0.9),
        "AdaHB as printed, last": (0.1, 0.0),
    }

    def gaps(contender, store):
        c, p = laws[contender.label]
        noise = np.linspace(0.99, 1.01, contender.repeats)[:, None]
        return c * noise * np.array(convex.recorded(contender.epochs)) ** p

    monkeypatch.setattr(Contender, "gaps", gaps)


def test_the_verdicts_follow_from_the_curves(made_up, tmp_path):
    store = Store(tmp_path)
    judged = {part.id: part.judge(store) for part in convex_claims.parts([CANCER])}
    assert {name: claim.verdict for name, claim in judged.items()} == {
        "C2 HB, figure 6": "not supported",
        "C2 HB, paper form, figure 6": "supported",
        "C2 AdaHB, figure 6": "supported",
        "C2 AdaHB, paper form, figure 6": "supported",
        "C2 AdaHB printed, figure 6": "not supported",
        "C3 HB": "supported",
        "C3 HB, paper form": "supported",
        "C3 NAG": "not supported",
        "C3 AdaHB": "supported",
        "C3 AdaHB, paper form": "supported",
        "C3 AdaHB printed": "supported",
    }
    ratio = judged["C3 NAG"].findings[0].estimate
    assert ratio.low < 3 < ratio.high
    exponent = judged["C2 HB, paper form, figure 6"].findings[0].estimate
    assert exponent.value == pytest.approx(-0.5)


def test_claims_about_figure_6_are_among_the_claims():
    problems = [Problem("a9a", 20.0), Problem("covtype", 50.0)]
    parts = [p for p in claims.all_parts(problems) if isinstance(p, convex_claims.OnFigure6)]
    assert {part.id for part in parts} >= {"C3 HB", "C3 NAG", "C3 AdaHB", "C2 HB, figure 6"}
    for part in parts:
        assert [panel[0].problem for panel in part.panels] == problems
        wanted = {contender.label for panel in part._wanted() for contender in panel}
        assert wanted == {part.label, "PSG, average", "PSG, last"}


def test_the_command(tmp_path, monkeypatch, capfd):
    out = tmp_path / "out"
    options = ["--sets", "breast_cancer", "--repeats", "2", "--epochs", "1", "--jobs", "2"]
    monkeypatch.setattr(sys, "argv", ["adahb", "reproduce", "convex", "--out", str(out), *options])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    names = {"convex.png", "convex.svg", "convex.json"}
    assert {path.name for path in out.iterdir()} == names | {"runs"}
    printed = capfd.readouterr().out
    assert all(name in printed for name in names)
    (panel,) = read_json(out / "convex.json")["panels"]
    assert panel["dataset"] == "breast_cancer"
    assert b"<svg" in (out / "convex.svg").read_bytes()
