"""What several test modules start from."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def breast_cancer():
    """Hinge loss of the breast-cancer set, standardised: 569 samples, 30 features."""
    from adahb.experiments.hinge import hinge

    return hinge("breast_cancer")


@pytest.fixture(scope="session")
def solution():
    """Its certified optimum on the unit l1 ball."""
    from adahb.experiments.hinge import optimum

    return optimum("breast_cancer", 1.0)


@pytest.fixture
def one_thread():
    """Torch on one thread: on a busy machine, threads that wait for each other take for ever."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data_home():
    """The folder with real data sets: ADAHB_DATA, or ../shared/data beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("ADAHB_DATA") or beside)
    if not folder.is_dir():
        pytest.skip("no folder with data: neither ADAHB_DATA nor ../shared/data")
    return folder


@pytest.fixture(scope="session")
def bare_environment(tmp_path_factory):
    """Make virtual environments that have what this one has, except for adahb: their Pythons."""
    import subprocess
    import sys
    import sysconfig

    def make(*also_on_the_path):
        folder = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (packages,) = folder.glob("lib/python*/site-packages")
        paths = [*map(str, also_on_the_path), sysconfig.get_path("purelib")]
        (packages / "others.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
        return folder / "bin" / "python"

    return make
