"""Numbers at the ends of the floats, and beyond them, for sets, estimators and certificates.

Every try has a defined outcome, a right answer or a clear error; anything else is an
AssertionError that says how to repeat it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import convex_fits, convex_sets

PROJECTIONS, MISTAKES, FITS = 60_000, 20_000, 3_000
"""At scale 1."""


def soak(scale: float, folder: Path, first: int = 0) -> dict[str, Any]:
    """Try random extreme numbers, beginning with the seed ``first``; return what came of them."""
    rows = convex_sets.run(round(PROJECTIONS * scale), round(MISTAKES * scale), first)
    rows |= convex_fits.run(round(FITS * scale), first, every=scale >= 0.1)
    table = [
        {"kind": kind, "tried": sum(outcomes.values()), "outcomes": outcomes}
        for kind, outcomes in sorted(rows.items())
    ]
    return {"rows": table, "defects": 0, "first_seed": first, "scale": scale}
