"""The numbers of the README and the docs are those of the committed results."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("readme", ROOT / "benchmarks" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/optimizers.md",
        "docs/linear.md",
        "docs/dependencies.md",
        "docs/reliability.md",
    ],
)
def test_the_numbers_are_those_of_the_results(tool, page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert page in tool.PAGES
    assert tool.filled(page, text, ROOT / "results") == text


def test_the_two_commands_are_targets():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("reproduce", "test"):
        assert f"make {target}" in text
        assert f"\n{target}:" in targets


def test_a_place_must_be_there_once(tool):
    with pytest.raises(ValueError, match="one place named claims"):
        tool.filled("README.md", "no places", ROOT / "results")


SOAKED = {
    "minutes": 20,
    "machine": {"python": "3.11", "cores": 2},
    "parts": {
        "kills": {
            "rows": [{"kind": "a sweep", "tried": 1234, "outcomes": {"right": 1200, "told": 34}}],
            "defects": 0,
            "lost": 0,
            "scale": 1.0,
            "minutes": 4.06,
            "series": [1.0, 2.0],
        },
        "fuzz": {"rows": [], "defects": 1, "defect": "Traceback", "scale": 1.0, "minutes": 1.0},
    },
}


def test_the_figures_of_a_soak(tool, tmp_path):
    """Parts that are not there, or that found a defect, are told and not shown as passed."""
    page = "docs/reliability.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    unmeasured = tool.filled(page, text, tmp_path)
    assert unmeasured.count("*Not measured yet.*") == 1 + len(tool.SOAK)
    (tmp_path / "soak.json").write_text(json.dumps(SOAKED), encoding="utf-8")
    told = tool.filled(page, text, tmp_path)
    assert "| Sweeps and training that are killed | 1,234 | 0 | 4.1 |" in told
    assert "| Long runs | not measured yet |  |  |" in told
    assert "On: python 3.11, cores 2." in told
    assert "| a sweep | 1,234 | right: 1,200, told: 34 |" in told
    assert "defects: 0; lost: 0; scale: 1." in told
    assert "**1 defects**" in told
    assert told.count("*Not measured yet.*") == len(tool.SOAK) - 2


def test_the_tests_that_the_reliability_page_names_are_there():
    """Those of parts that no soak has run yet may be missing."""
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", text))
    faults = {name for name in named if name.startswith("tests/faults/")}
    assert len(faults) == 8
    if not (ROOT / "results" / "soak.json").is_file():
        named -= faults
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
