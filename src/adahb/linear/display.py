"""A plot of how a fit went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    from adahb.linear.base import HeavyBallLinear

Axis = Literal["epoch", "time"]
Quantity = Literal["gap", "objective", "validation_score"]


class HistoryDisplay:
    """The history of a fit against its epochs or its time.

    Make it with `from_estimator`.  After `plot` the attributes ``ax_``, ``figure_`` and ``lines_``
    are Matplotlib's.

    Parameters
    ----------
    histories : list of dict
        ``history_`` of each model of the estimator.
    names : list of str
        What to call each model in the legend; one name is not shown.
    """

    def __init__(self, histories: list[dict[str, NDArray[Any]]], names: list[str]) -> None:
        self.histories = histories
        self.names = names

    @classmethod
    def from_estimator(
        cls,
        estimator: HeavyBallLinear,
        *,
        quantity: Quantity = "gap",
        x: Axis = "epoch",
        ax: Any = None,
        **line_options: Any,
    ) -> HistoryDisplay:
        """Plot a fitted estimator's history; parameters as in `plot`."""
        check_is_fitted(estimator, "history_")
        history = estimator.history_
        histories = [history] if isinstance(history, dict) else list(history)
        labels = getattr(estimator, "classes_", np.array([""]))
        names = [str(label) for label in labels] if len(histories) > 1 else [""]
        display = cls(histories, names)
        return display.plot(quantity=quantity, x=x, ax=ax, **line_options)

    def plot(
        self,
        *,
        quantity: Quantity = "gap",
        x: Axis = "epoch",
        ax: Any = None,
        **line_options: Any,
    ) -> HistoryDisplay:
        """Draw the histories.

        Parameters
        ----------
        quantity : {"gap", "objective", "validation_score"}
            The gap is the certified one, on a logarithmic axis.
        x : {"epoch", "time"}
            What the horizontal axis is.
        ax : Matplotlib axes, default=None
            Where to draw; None makes a new figure.
        **line_options
            Passed on to Matplotlib's ``plot``.
        """
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError(
                "HistoryDisplay.plot needs matplotlib: pip install matplotlib"
            ) from error

        for name, value in (("quantity", quantity), ("x", x)):
            known = sorted(self.histories[0])
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}")
        if ax is None:
            _, ax = pyplot.subplots()
        self.lines_ = []
        for name, history in zip(self.names, self.histories, strict=True):
            options = {"label": name or None, **line_options}
            self.lines_ += ax.plot(history[x], history[quantity], **options)
        finite = [np.isfinite(h[quantity]) & (h[quantity] > 0) for h in self.histories]
        if quantity == "gap" and any(mask.any() for mask in finite):
            ax.set_yscale("log")
        ax.set_xlabel("time in seconds" if x == "time" else "epoch")
        ax.set_ylabel(
            {"gap": "certified gap", "objective": "objective"}.get(quantity, "validation score")
        )
        if len(self.histories) > 1:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
