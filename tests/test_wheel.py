"""What is released: an sdist and a wheel, and what a user finds who has installed the wheel."""

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import adahb

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
STEM = f"adahb-{adahb.__version__}"
IMPORTS = """
import adahb
for name in adahb.__all__:
    getattr(adahb, name)
"""
RUN_PAGES = """
import doctest, sys, warnings
import adahb
warnings.resetwarnings()
warnings.simplefilter("error")
tried = 0
for page in sys.argv[1:]:
    failed, examples = doctest.testfile(page, module_relative=False)
    assert not failed, page
    tried += examples
print(adahb.__file__, tried)
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The folder with both, built without the network from the sources as they are."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = ["-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir", folder, ROOT]
    subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="module")
def installed(released, bare_environment):
    """The Python of an environment in which the wheel is installed."""
    python = bare_environment()
    (wheel,) = released.glob("*.whl")
    pip = ["-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([sys.executable, *pip], check=True, capture_output=True, text=True)
    return python


def run(python, code, *args, folder):
    done = subprocess.run(
        [python, "-c", code, *map(str, args)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_the_wheel_has_the_package_and_nothing_else(released):
    with zipfile.ZipFile(released / f"{STEM}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
        metadata = Parser().parsestr(wheel.read(f"{STEM}.dist-info/METADATA").decode())
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "adahb").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc")
    }
    about = {name for name in names if name.startswith(f"{STEM}.dist-info/")}
    assert names - about == sources
    assert {"adahb/py.typed", "adahb/experiments/templates/report.html"} <= sources
    assert f"{STEM}.dist-info/licenses/LICENSE" in about
    assert metadata["Version"] == adahb.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"jax", "keras", "experiments", "docs", "dev"} <= set(metadata.get_all("Provides-Extra"))
    assert "Typing :: Typed" in metadata.get_all("Classifier")


def test_the_sdist_has_what_the_tests_need(released):
    with tarfile.open(released / f"{STEM}.tar.gz") as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for folder in ("src", "tests", "benchmarks", "docs", "examples", "results"):
        assert any(name.startswith(f"{folder}/") for name in names)
    assert {"CITATION.cff", "SECURITY.md", "LICENSE", "Makefile", "constraints.txt"} <= names
    assert not any(".venv" in name or "__pycache__" in name for name in names)


def test_importing_warns_of_nothing(tmp_path):
    """Not in the environment above, for which no caches of compiled code are kept."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTS], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_examples_of_every_page_run_from_the_wheel(installed, tmp_path):
    out, _ = run(installed, RUN_PAGES, *PAGES, folder=tmp_path)
    where, tried = out.split()
    assert Path(where).is_relative_to(installed.parents[1])
    assert int(tried) > 30


def test_the_command_says_what_it_is(installed, tmp_path):
    script = installed.with_name("adahb")
    done = subprocess.run(
        [script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "reproduce" in done.stdout
