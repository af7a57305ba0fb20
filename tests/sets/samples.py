"""One sample of every family for a given shape, and hypothesis strategies over them."""

import numpy as np
from hypothesis import strategies as st

from adahb import sets


def every_set(shape=(3, 4), seed=0):
    """Return name -> set, with a point space of this two-dimensional shape."""
    rng = np.random.default_rng(seed)
    normal, matrix = rng.standard_normal(shape), rng.standard_normal((3, int(np.prod(shape))))
    matrix[2] = matrix[0] - 2 * matrix[1]  # a redundant row
    return {
        "box": sets.Box(-0.5 - rng.random(shape), 0.3),
        "half-open box": sets.Box([-np.inf] * (shape[1] - 1) + [0.0], [0.2] * shape[1]),
        "nonnegative": sets.NonNegative(),
        "linf": sets.LinfBall(0.4),
        "l2": sets.L2Ball(1.3),
        "l2 rows": sets.L2Ball(0.8, dim=1),
        "l2 columns": sets.L2Ball(0.7, dim=0),
        "l1": sets.L1Ball(1.5),
        "l1 rows": sets.L1Ball(0.9, dim=-1),
        "l1 columns": sets.L1Ball(0.9, dim=0),
        "weighted l1": sets.WeightedL1Ball(0.2 + rng.random(shape), 1.1),
        "weighted l1 rows": sets.WeightedL1Ball(0.2 + rng.random(shape[1]), 0.6, dim=1),
        "simplex": sets.Simplex(1.4),
        "simplex columns": sets.Simplex(0.6, dim=0),
        "group l1 rows": sets.GroupL1Ball(1.2, dim=1),
        "group l1 columns": sets.GroupL1Ball(1.2, dim=0),
        "group l1 labels": sets.GroupL1Ball(
            1.2, groups=rng.integers(0, 3, int(np.prod(shape))).reshape(shape)
        ),
        "nuclear": sets.NuclearBall(1.2),
        "half-space": sets.HalfSpace(normal, -0.3),
        "affine": sets.Affine(matrix, matrix @ rng.standard_normal(matrix.shape[1])),
    }


NAMES = list(every_set())


@st.composite
def problems(draw, dtype=np.float64):
    """Draw a set, two points and a metric (or None), all moderate in size."""
    shape = draw(st.sampled_from([(3, 4), (1, 1), (1, 4), (4, 2)]))
    name = draw(st.sampled_from(NAMES))
    seed = draw(st.integers(0, 2**32 - 1))
    if name == "affine" and np.prod(shape) < 4:
        shape = (3, 4)
    q = every_set(shape, seed)[name]
    rng = np.random.default_rng(seed + 1)
    kind = draw(st.sampled_from(["normal", "ties", "sparse", "near", "wide"]))
    points = [rng.standard_normal(shape) for _ in range(2)]
    if kind == "ties":
        points = [np.round(x) for x in points]
    elif kind == "sparse":
        points = [x * (rng.random(shape) < 0.3) for x in points]
    elif kind == "near":
        points = [x * 0.05 for x in points]
    elif kind == "wide":
        points = [x * 10.0 ** rng.uniform(-4, 4, shape) for x in points]
    h = 10.0 ** rng.uniform(-2, 2, shape)
    plain = isinstance(q, sets.NuclearBall) or draw(st.booleans())
    return q, [x.astype(dtype) for x in points], None if plain else h.astype(dtype), rng
