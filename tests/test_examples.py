"""The examples run, without downloads, and say what the gallery says they do."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture
def output(monkeypatch, tmp_path, capsys):
    """Run an example by its name where no data are, and return what it prints."""

    def call(name):
        monkeypatch.delenv("ADAHB_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setitem(sys.modules, "pooch", None)  # no downloads
        monkeypatch.setattr(sys, "argv", [name])
        path = ROOT / "examples" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"example_{name}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.main()
        return capsys.readouterr().out

    return call


def numbers(line):
    return [float(text) for text in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", line)]


@pytest.mark.filterwarnings("default")
def test_sparse_svm_on_text(output):
    lines = output("sparse_svm_on_text").splitlines()
    assert lines[0].startswith("made-up documents")
    rows = [numbers(line) for line in lines[2:5]]
    assert [row[0] for row in rows] == [5, 10, 20]
    errors, objectives = [row[2] for row in rows], [row[3] for row in rows]
    assert errors[-1] < 5 < errors[0]
    assert objectives == sorted(objectives, reverse=True)
    assert all(0 < row[4] < 0.1 for row in rows)


def test_nonnegative_regression(output):
    lines = output("nonnegative_regression").splitlines()
    assert "gap_ = nan" in lines[0]
    assert 0 < numbers(lines[1])[2] < 0.01
    box, cone, _ = (numbers(line[10:]) for line in lines[3:])
    assert min(box) >= 0
    assert min(cone) >= 0
    assert box == pytest.approx(cone, abs=0.1)


def test_stacking_weights(output):
    lines = output("stacking_weights").splitlines()
    weights, alone = zip(*(numbers(line) for line in lines[:4]), strict=True)
    assert sum(weights) == pytest.approx(1, abs=0.01)
    assert min(weights) >= 0
    blend, within = numbers(lines[4])
    assert blend < min(alone)
    assert within < 0.2


def test_reading_a_certificate(output):
    lines = output("reading_a_certificate").splitlines()
    rows = [numbers(line) for line in lines[1:-1]]
    assert len(rows) > 3
    for _, _, certified, true in rows:
        assert certified >= true >= 0
    assert rows[-1][2] < rows[0][2] / 5


RECIPES = {
    "accelerate_accumulation": ("accelerate", 0.2),
    "grad_scaler": ("torch", 0.2),
    "hugging_face_trainer": ("transformers", 0.2),
    "lightning_module": ("lightning", 0.2),
    "no_decay": ("torch", 0.5),
    "skorch_classifier": ("skorch", 0.2),
}
"""Each with what it needs, and the loss that its training must get below."""


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")
@pytest.mark.parametrize("name", RECIPES)
def test_recipes_train(output, name):
    framework, level = RECIPES[name]
    pytest.importorskip(framework)
    before, after = re.findall(r"\d+\.\d{3}", output(name).splitlines()[-1])
    if "accelerate" in sys.modules:  # its choice of precision holds for the whole process
        sys.modules["accelerate"].state.AcceleratorState._reset_state(reset_partial_state=True)
    assert float(after) < level < 1 < float(before)


def test_fsdp(output):
    lines = output("fsdp").splitlines()
    assert lines[0].startswith("2 processes, each with 1600 of 3200")
    half, _, final, _ = numbers(lines[1])
    assert final < half < 1
    cost, allowed, zeros = numbers(lines[2])
    assert cost == pytest.approx(allowed, rel=1e-4)
    assert zeros > 50


def test_the_gallery_shows_every_example():
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert f"../examples/{path.name}" in text
