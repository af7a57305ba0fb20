"""The package itself: what importing it costs, what it says of itself, what it contains."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import adahb

HEAVY = ("torch", "jax", "sklearn", "matplotlib", "numba", "scipy", "numpy", "rich", "typer")
SOURCE = Path(adahb.__file__).parent


def loaded_after(code):
    check = f"import sys; {code}; print(*(m for m in {HEAVY} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing():
    assert loaded_after("import adahb") == set()


@pytest.mark.parametrize("room", sorted(set(adahb._ROOMS) - {"linear", "logging", "optim"}))
def test_rooms_load_no_framework(room):
    used = loaded_after(f"import adahb; adahb.{room}")
    assert used <= {"numpy", "scipy"}


def test_linear_models_load_neither_torch_nor_matplotlib():
    assert not loaded_after("import adahb; adahb.linear") & {"torch", "jax", "matplotlib"}


def test_projecting_numpy_arrays_loads_no_torch():
    code = "import numpy as np; from adahb.sets import L1Ball; L1Ball(1.0).project(np.ones(3))"
    assert "torch" not in loaded_after(code)


def test_the_version_stands_in_one_place():
    assert metadata.version("adahb") == adahb.__version__


def test_unknown_names():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        adahb.nothing  # noqa: B018
    assert set(adahb.__all__) <= set(dir(adahb))


def test_it_says_that_it_is_typed():
    assert (SOURCE / "py.typed").is_file()


SCHEDULE_FORMULA = re.compile(
    r"\bt ?/ ?\(t ?\+ ?(r ?\+ ?)?2|1(\.0)? ?- ?(self\.)?gamma ?/ ?t\b|alpha ?/ ?\S*sqrt\(t\)"
)


def test_schedule_formulas_stand_in_one_module_only():
    """Code, not prose: strings and comments are cut out first."""
    prose = re.compile(r'"""(?:.|\n)*?"""|#.*|"[^"\n]*"')
    having = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if SCHEDULE_FORMULA.search(prose.sub("", path.read_text(encoding="utf-8")))
    }
    assert having == {"schedules.py"}
