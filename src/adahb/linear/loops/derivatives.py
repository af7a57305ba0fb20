"""Which losses the compiled loops know, and by what code."""

from __future__ import annotations

from adahb.problems import losses
from adahb.problems.losses import Loss

PARAMETERS: dict[type[Loss], str | None] = {
    losses.Hinge: None,
    losses.SquaredHinge: None,
    losses.ModifiedHuber: None,
    losses.Logistic: None,
    losses.Squared: None,
    losses.Absolute: None,
    losses.Huber: "delta",
    losses.EpsilonInsensitive: "epsilon",
    losses.Quantile: "q",
}
"""In the order of the codes of `adahb.linear.loops.compiled`: what a loss's parameter is called."""


def coded(loss: Loss) -> tuple[int, float] | None:
    """Return the code and the parameter of a loss; None for one that is not compiled."""
    for code, (kind, name) in enumerate(PARAMETERS.items()):
        if type(loss) is kind:
            return code, (0.0 if name is None else float(getattr(loss, name)))
    return None
