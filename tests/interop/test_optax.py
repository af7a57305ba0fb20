"""The optax transformations make the steps of the reference, under every transformation of JAX."""

import itertools

import numpy as np
import pytest
from optim.paths import CONSTRAINTS, SHAPES, Case, by_optimizer, by_reference, problem

from adahb.sets import Box, L1Ball, L2Ball, NuclearBall, Simplex

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from jax import numpy as jnp  # noqa: E402

from adahb.interop import optax as ours  # noqa: E402

METHODS = {"AdaHB": ours.adahb, "HB": ours.hb}
CASES = [
    Case("AdaHB"),
    Case("AdaHB", tick=7, options={"power": 2.0}),
    Case("AdaHB", "l1"),
    Case("AdaHB", "l1", 7, {"form": "paper"}),
    Case("AdaHB", "l2", options={"form": "paper"}),
    Case("AdaHB", "l2", 7, {"projection": "euclidean"}),
    Case("AdaHB", "box", options={"momentum": 0.9}),
    Case("AdaHB", "simplex", options={"form": "paper", "momentum": 0.9}),
    Case("HB"),
    Case("HB", "l2 rows", options={"power": 2.0}),
    Case("HB", "simplex", 7, {"form": "paper"}),
    Case("HB", "l1 rows", options={"momentum": 0.9}),
]


def start(case, dtype):
    constraint = CONSTRAINTS[case.constraint]
    problems = [problem(shape, constraint) for shape in SHAPES]
    a, b, w = ([jnp.asarray(x, dtype=dtype) for x in each] for each in zip(*problems, strict=True))
    return a, b, w


def optimizer(case, learning_rate=None, **more):
    return METHODS[case.method](
        case.lr if learning_rate is None else learning_rate,
        tick=case.tick,
        constraint=CONSTRAINTS[case.constraint],
        **case.options,
        **more,
    )


def walk(transformation, case, steps, dtype, decay=0.0):
    """Parameters and averages after the steps, all of them in one compiled loop."""
    a, b, w = start(case, dtype)

    @jax.jit
    def run(w):
        def step(_, carry):
            w, state = carry
            g = [a * (w - b) + decay * w for a, b, w in zip(a, b, w, strict=True)]
            updates, state = transformation.update(g, state, w)
            return optax.apply_updates(w, updates), state

        return jax.lax.fori_loop(0, steps, step, (w, transformation.init(w)))

    w, state = run(w)
    return w, ours.averaged_parameters(state, w)


def compare(found, expected, rel):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=rel, atol=rel * np.abs(y).max())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float64_is_the_reference(case):
    with jax.enable_x64(True):
        last, average = walk(optimizer(case), case, 100, jnp.float64)
    expected = by_reference(case, 100)
    compare(last, [w for w, _ in expected], 1e-12)
    if "momentum" in case.options:
        compare(average, [mean for _, mean in expected], 1e-12)
    else:
        compare(average, [w for w, _ in expected], 1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_is_the_torch_optimizer(case):
    import torch

    last, average = walk(optimizer(case), case, 500, jnp.float32)
    expected = by_optimizer(case, 500, torch.float32)
    compare(last, expected[0], 1e-6)
    compare(average, expected[1], 1e-6)
