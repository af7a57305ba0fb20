"""Convex sets that the weights of a model may be confined to.

Every set projects (in the plain distance or in a diagonal metric), evaluates its support function,
minimises linear functions and tests membership, for NumPy arrays and torch tensors alike:

>>> from adahb.sets import L1Ball
>>> L1Ball(1).project([3.0, -2.5, 0.1])
array([ 0.75, -0.25,  0.  ])
>>> L1Ball(1).project([3.0, -2.5, 0.1], metric=[1.0, 4.0, 1.0])
array([ 0., -1.,  0.])

Numbers at the ends of the floats have defined outcomes.  NaN and infinity in x, g or the metric are
refused (of a traced JAX array, and inside a compiled graph, they pass through).  Of finite numbers
a projection is as near as that of a point and a radius that are off by a few ulps, and feasible
within so many ulps of the radius, with entries and radii of any size from the smallest denormal to
the largest float, in both precisions.  What is not: a metric's entries must be between 1e-100 and
1e100, weights not further than 1e-100 apart, and a result that x's dtype cannot hold, as that on
``Simplex(1e300)`` in float32, is an error.  A support value beyond the largest float is infinite.
"""

from adahb.sets.balls import L1Ball, L2Ball, WeightedL1Ball
from adahb.sets.base import ConvexSet
from adahb.sets.boxes import Box, LinfBall, NonNegative
from adahb.sets.flats import Affine, HalfSpace
from adahb.sets.groups import GroupL1Ball
from adahb.sets.registry import from_dict
from adahb.sets.simplex import Simplex
from adahb.sets.spectral import NuclearBall

__all__ = [
    "Affine",
    "Box",
    "ConvexSet",
    "GroupL1Ball",
    "HalfSpace",
    "L1Ball",
    "L2Ball",
    "LinfBall",
    "NonNegative",
    "NuclearBall",
    "Simplex",
    "WeightedL1Ball",
    "from_dict",
]
