"""One smooth problem that both the reference and the optimizers walk down, parameter by parameter.

The gradient is a(w - b), with b outside of every set, so that projections stay active; it is smooth
so that two runs which round differently stay near each other.
"""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from adahb import optim, reference, schedules
from adahb.problems import Function
from adahb.sets import Box, L1Ball, L2Ball, Simplex

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
"""Where a test runs: the second where there is one."""
SHAPES = ((3, 4), (5,), (1, 1))
CONSTRAINTS = {
    "none": None,
    "l1": L1Ball(0.8),
    "l2": L2Ball(0.9),
    "box": Box(-0.1, 0.3),
    "simplex": Simplex(0.75),
    "l1 rows": L1Ball(0.5, dim=-1),
    "l2 rows": L2Ball(0.6, dim=-1),
}
METHODS = {
    "AdaHB": (optim.AdaHB, reference.adahb),
    "HB": (optim.HB, reference.hb),
    "NAG": (optim.NAG, None),
    "PSG": (optim.PSG, None),
}


@dataclass(frozen=True)
class Case:
    """What is run: a method with options that the reference has too."""

    method: str
    constraint: str = "none"
    tick: int = 1
    options: dict = field(default_factory=dict)
    lr: float = 0.1

    def __str__(self):
        extra = [f"{k}={v}" for k, v in self.options.items()]
        return "-".join(
            [self.method, self.constraint.replace(" ", "_"), f"tick={self.tick}", *extra]
        )


def problem(shape, constraint):
    """Curvature a, target b and start, in float64 but such that float32 holds them too."""
    rng = np.random.default_rng(sum(shape))
    a, b = rng.uniform(0.5, 2.0, shape), rng.normal(0.3, 1.0, shape)
    start = rng.normal(0.0, 0.01, shape)
    if isinstance(constraint, Simplex):
        start = np.where(np.arange(start.size) == 0, constraint.total, 0.0).reshape(shape)
    return tuple(x.astype(np.float32).astype(np.float64) for x in (a, b, start))


def by_reference(case, steps, decay=0.0):
    """For each shape: w after the steps, and the average over them."""
    key = (str(case), case.lr, steps, decay)
    if key not in _known:
        _known[key] = [_by_reference(case, shape, steps, decay) for shape in SHAPES]
    return _known[key]


_known = {}


def _by_reference(case, shape, steps, decay):
    constraint = CONSTRAINTS[case.constraint]
    by_rows = getattr(constraint, "dim", None) is not None
    pieces = [
        np.reshape(x, (-1, shape[-1]) if by_rows else (1, -1)) for x in problem(shape, constraint)
    ]
    runs = [_one(case, *piece, steps, decay) for piece in zip(*pieces, strict=True)]
    lasts, averages = [r.state.point.w for r in runs], [r.average for r in runs]
    return np.reshape(np.array(lasts), shape), np.reshape(np.array(averages), shape)


def _one(case, a, b, start, steps, decay):
    f = Function(
        a.size,
        lambda w: float(np.sum(a * (w - b) ** 2 + decay * w**2) / 2),
        lambda w: a * (w - b) + decay * w,
    )
    options = {"w0": start, "constraint": CONSTRAINTS[case.constraint], "record": [steps]}
    if case.method in ("NAG", "PSG"):
        schedule = getattr(schedules, case.method)(alpha=case.lr, tick=case.tick)
        return reference.run(f, steps, schedule, **options)
    run = METHODS[case.method][1]
    return run(f, steps, alpha=case.lr, tick=case.tick, **options, **case.options)


def walk(optimizer, params, goals, steps):
    """Step with the problem's gradients, closed loop."""
    for _ in range(steps):
        for p, (a, b) in zip(params, goals, strict=True):
            p.grad = (a * (p.detach().double() - b)).to(p.dtype)
        optimizer.step()


def by_optimizer(case, steps, dtype=torch.float64, **more):
    """The same as `by_reference`, from the optimizer under test."""
    constraint = CONSTRAINTS[case.constraint]
    params, goals = [], []
    for shape in SHAPES:
        a, b, start = map(torch.tensor, problem(shape, constraint))
        params.append(torch.nn.Parameter(start.to(dtype)))
        goals.append((a, b))
    optimizer = METHODS[case.method][0](
        params, lr=case.lr, tick=case.tick, constraint=constraint, **case.options, **more
    )
    walk(optimizer, params, goals, steps)
    with optimizer.averaged_parameters():
        outputs = [p.detach().double().numpy().copy() for p in params]
    return [p.detach().double().numpy() for p in params], outputs
