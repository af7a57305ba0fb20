"""Every kernel makes the steps of the reference."""

import itertools

import numpy as np
import pytest
import torch
from optim.paths import CONSTRAINTS, METHODS, SHAPES, Case, by_optimizer, by_reference, problem

from adahb import schedules
from adahb.optim import AdaHB

KERNELS = {"eager": {"foreach": False}, "foreach": {"foreach": True}}
FORMS = ("averaging", "paper")
MOMENTA = ({}, {"power": 2.0}, {"momentum": 0.9})


def _variants(method, constraint):
    """Options of a method that differ on this constraint."""
    if method in ("NAG", "PSG"):
        return [{}]
    forms = [{}] if constraint == "none" else [{"form": form} for form in FORMS]
    if method == "AdaHB" and constraint not in ("none", "box"):  # where the metric matters
        forms = [{**f, "projection": p} for f in forms for p in ("metric", "euclidean")]
    return [{**f, **m} for f, m in itertools.product(forms, MOMENTA)]


EVERY = [
    Case(method, constraint, tick, options)
    for method, constraint, tick in itertools.product(METHODS, CONSTRAINTS, (1, 7))
    for options in _variants(method, constraint)
]
LONG = [
    Case("AdaHB"),
    Case("AdaHB", tick=100, options={"power": 1.0, "gamma": 0.9, "delta": 1.0}),
    Case("AdaHB", "l1", options={"form": "averaging", "projection": "metric"}),
    Case("AdaHB", "l1 rows", 100, {"form": "paper", "projection": "euclidean", "delta": 1.0}),
    Case("AdaHB", "l2", options={"form": "paper", "projection": "metric"}),
    Case("AdaHB", "box", options={"form": "paper", "momentum": 0.9}),
    Case("AdaHB", "simplex", 10, {"form": "averaging", "projection": "metric"}),
    Case("AdaHB", tick=10, options={"averaging_tick": 1, "power": 5.0, "delta": 1.0}),
    Case("AdaHB", "l1", 10, {"averaging_tick": 1, "form": "averaging", "delta": 1.0}),
    Case("HB", "l2", 6, {"averaging_tick": 4, "form": "paper"}),
    Case("HB"),
    Case("HB", "l2 rows", options={"form": "averaging", "power": 2.0}),
    Case("HB", "simplex", 100, {"form": "paper", "momentum": 0.9}),
    Case("NAG", "l1"),
    Case("NAG", tick=100),
    Case("PSG", "l2"),
]
COARSE = ("NAG-none-tick=100", "HB-l2_rows", "AdaHB-l1_rows", "PSG")
"""Here what a step adds to w, or to the average, falls below its rounding in float32: 5e-6.

With the digits kept that rounding takes off, they too are the reference to 1e-6."""


def compare(case, steps, kernel, dtype, rel, **more):
    expected = by_reference(case, steps)
    last, outputs = by_optimizer(case, steps, dtype, **KERNELS[kernel], **more)
    averages = case.method == "PSG" or "momentum" in case.options
    for (w, average), found, output in zip(expected, last, outputs, strict=True):
        scale = np.abs(w).max()
        if case.method != "NAG":  # which holds the point where gradients are taken
            np.testing.assert_allclose(found, w, rtol=rel, atol=rel * scale)
        np.testing.assert_allclose(output, average if averages else w, rtol=rel, atol=rel * scale)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_combination(case, kernel):
    compare(case, 20, kernel, torch.float64, 1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", LONG, ids=str)
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_after_a_thousand_steps(case, kernel, dtype, rel):
    if dtype == torch.float32 and str(case).startswith(COARSE):
        compare(case, 1000, kernel, dtype, 5e-6)
        compare(case, 1000, kernel, dtype, 1e-6, rounding="compensated")
    else:
        compare(case, 1000, kernel, dtype, rel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "case",
    [
        Case("AdaHB"),
        Case("AdaHB", "l1", 7, {"form": "averaging"}),
        Case("HB", "l2", 1, {"form": "paper", "momentum": 0.9}),
        Case("PSG", "box"),
    ],
    ids=str,
)
def test_coupled_decay_is_a_term_of_the_objective(case, kernel):
    expected = by_reference(case, 60, decay=0.3)
    last, _ = by_optimizer(
        case, 60, weight_decay=0.3, decoupled_weight_decay=False, **KERNELS[kernel]
    )
    for (w, _), found in zip(expected, last, strict=True):
        np.testing.assert_allclose(found, w, rtol=1e-12, atol=1e-12)


def by_hand(shape, constraint, form, tick, steps, lr, decay):
    """Decoupled decay as it is defined: λw beside the preconditioned gradient."""
    a, b, w = problem(shape, constraint)
    schedule = schedules.AdaHB(alpha=lr, tick=tick)
    v, u, z = np.zeros(shape), np.zeros(shape), w
    for t in range(1, steps + 1):
        at = schedule(t)
        g = a * (w - b)
        v = at.beta2 * v + (1 - at.beta2) * g**2
        v_hat = np.sqrt(v) + at.delta
        d = g / v_hat + decay * w
        if constraint is not None and form == "averaging":
            z = constraint.project(z - at.eta * d, v_hat)
            w = (1 - at.c) * w + at.c * z
        else:
            moved = w + at.beta1 * u - at.alpha * d
            w_next = moved if constraint is None else constraint.project(moved, v_hat)
            w, u = w_next, w_next - w
    return w


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("constraint", ["none", "l1", "box"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tick", [1, 7])
def test_decoupled_decay(kernel, constraint, form, tick):
    case = Case("AdaHB", constraint, tick, {"form": form})
    last, _ = by_optimizer(case, 60, weight_decay=0.3, **KERNELS[kernel])
    for shape, found in zip(SHAPES, last, strict=True):
        w = by_hand(shape, CONSTRAINTS[constraint], form, tick, 60, case.lr, 0.3)
        np.testing.assert_allclose(found, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gamma_and_delta(kernel):
    options = {"gamma": 0.7, "delta": 0.3}
    compare(Case("AdaHB", "l1", 3, options), 60, kernel, torch.float64, 1e-12)


def test_the_squared_gradients_are_what_the_schedule_says():
    """v after k steps of constant gradient g is g² whatever γ: weights of a mean add up to one."""
    p = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = AdaHB([p], tick=1, gamma=1.0)
    for g in (2.0, 4.0, 6.0):
        p.grad = torch.full_like(p, g)
        optimizer.step()
    expected = np.mean([4.0, 16.0, 36.0])  # γ = 1 is the plain mean
    np.testing.assert_allclose(optimizer.state[p]["v"].numpy(), expected, rtol=1e-14)
