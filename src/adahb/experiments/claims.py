"""The convex claims of the paper, judged by measurement: C1, C2, C4 and C8."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from adahb import schedules
from adahb.experiments.findings import Claim, Estimate, Finding, exact, mean, slope
from adahb.experiments.hinge import DATASETS
from adahb.experiments.runs import Hard, Hinge, Method, Task
from adahb.experiments.store import Job, Store
from adahb.experiments.theorems import TheoremTask
from adahb.reference import Form, Projection
from adahb.schedules import Output, Schedule

HORIZONS = tuple(2**k for k in range(7, 15))
SEEDS = range(5)
SLACK = 0.05
"""A fitted exponent counts as -1/2 if it is at most this much above."""


# ---------------------------------------------------------------- C1: figure 5, both T

FIGURE_T = (1000, 5000)
GRID = tuple(2.0**k for k in range(-3, 7))


def figure_task(T: int, schedule: Schedule, form: Form = "averaging", projection: Projection = "metric", c: float = 2.0) -> Task:
    return Task(Hard(T, c), Method(schedule, form, projection), tuple(range(1, T + 1)))
