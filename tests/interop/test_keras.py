"""The checks of `keras_checks`, on each backend."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("keras_checks.py")


def on_backend(backend, tmp_path, *command):
    """Run Python where Keras has this backend, and writes its settings nowhere."""
    for package in ("keras", backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    env = {**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path)}
    return subprocess.run(
        [sys.executable, *command], check=False, capture_output=True, text=True, env=env
    )


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_every_check(backend, tmp_path):
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=")
    done = on_backend(
        backend, tmp_path, "-m", "pytest", *options, "--import-mode=importlib", CHECKS
    )
    assert done.returncode == 0, done.stdout[-10_000:]
    assert "passed" in done.stdout


def test_other_backends_are_refused(tmp_path):
    code = "from adahb.interop.keras import AdaHB; AdaHB()"
    done = on_backend("numpy", tmp_path, "-c", code)
    assert "keras.backend.backend() must be one of 'torch', 'jax', got 'numpy'" in done.stderr
