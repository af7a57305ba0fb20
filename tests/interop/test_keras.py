"""The checks of `keras_checks`, in a process for each backend."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("keras_checks.py")


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_every_check(backend, tmp_path):
    for package in ("keras", backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    own = {"KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    options = ("-q", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, CHECKS],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **own},
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    assert "passed" in done.stdout
