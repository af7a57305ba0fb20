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


def run(*command, folder):
    """Run a command in a folder; return what it prints, errors included."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """The folder with both, the wheel made from the sdist, without the network."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = ["-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    run(sys.executable, *command, folder=folder)
    return folder


@pytest.fixture(scope="module")
def installed(released, bare_environment):
    """The Python of an environment in which the wheel is installed."""
    python = bare_environment()
    (wheel,) = released.glob("*.whl")
    pip = ["-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    run(sys.executable, *pip, folder=released)
    return python


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
    assert run(sys.executable, "-W", "error", "-c", IMPORTS, folder=tmp_path) == ""


def test_the_examples_of_every_page_run_from_the_wheel(installed, tmp_path):
    said = run(installed, "-I", "-c", RUN_PAGES, *PAGES, folder=tmp_path)
    where, tried = said.split()[-2:]
    assert Path(where).is_relative_to(installed.parents[1])
    assert int(tried) > 30


def test_the_command_is_installed(installed, tmp_path):
    assert "reproduce" in run(installed.with_name("adahb"), "--help", folder=tmp_path)
