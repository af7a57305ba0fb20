"""Contenders that take turns, and what they ran on."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

Json = dict[str, Any]


def take_turns(calls: Mapping[str, Callable[[], float]], repeats: int) -> Json:
    """Let the contenders take turns; the first turn, in which things are compiled, is not kept."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            taken = call()
            if turn:
                seconds[name].append(taken)
    return {
        name: {"median": statistics.median(taken), "min": min(taken)}
        for name, taken in seconds.items()
    }


def machine() -> Json:
    """The machine, and the versions of what was measured."""
    names = ("adahb", "numba", "numpy", "scikit-learn", "scipy")
    return {
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in names},
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": 1,
    }
