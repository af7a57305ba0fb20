"""What the compiled projections share: how they are compiled, and in which pieces they work.

Loops are written over indices and with ``max`` and ``int`` so that they become vector code.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from adahb._numba import njit

Vector = np.ndarray[Any, Any]

BLOCK = 1024
"""Entries that are looked at, kept or passed over together."""

STRIDE = 64
"""Every so many entries make the sample that a long search starts from."""

_F = TypeVar("_F", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

exact: Callable[[_F], _F] = njit(**_OPTIONS)
"""Compile as written."""

reordering: Callable[[_F], _F] = njit(**_OPTIONS, fastmath={"reassoc", "nsz", "contract"})
"""Compile with sums in any order."""

contracting: Callable[[_F], _F] = njit(**_OPTIONS, fastmath={"contract"})
"""Compile with products rounded together with the sum they enter."""

shielded: Callable[[_F], _F] = njit(**_OPTIONS, fastmath={"nsz"})
"""Compile as written, even inside a function of another kind, whose options would be taken over."""


@exact
def unit_of(x: float) -> Any:
    """Return a power of two near x >= 0, within the normal numbers."""
    return 2.0 ** np.floor(np.log2(min(max(x, 2.0**-1022), 2.0**1022)))
