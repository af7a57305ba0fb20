"""Convex sets that the weights of a model may be confined to.

Every set projects (in the plain distance or in a diagonal metric), evaluates its support function,
minimises linear functions and tests membership, for NumPy arrays and torch tensors alike:

>>> from adahb.sets import L1Ball
>>> L1Ball(1).project([3.0, -2.5, 0.1])
array([ 0.75, -0.25,  0.  ])
>>> L1Ball(1).project([3.0, -2.5, 0.1], metric=[1.0, 4.0, 1.0])
array([ 0., -1.,  0.])
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
