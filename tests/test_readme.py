"""The numbers of the README and the docs are those of the committed results."""

import importlib.util
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
