"""The digits network trained by AdaHB with narrow states, and with weights in bfloat16."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from adahb.experiments.digits import EPOCHS, SEEDS, trained
from adahb.experiments.findings import mean
from adahb.experiments.store import Json, Store, environment

if TYPE_CHECKING:
    from torch import nn

    from adahb.optim import AdaHB

BASE = ("float32", None, None)
SETTINGS: tuple[tuple[str, str | None, str | None], ...] = (
    BASE,
    ("float32", None, "bf16"),
    ("float32", None, "int8"),
    ("bfloat16", "compensated", None),
    ("bfloat16", "stochastic", None),
    ("bfloat16", "nearest", None),
    ("bfloat16", "compensated", "int8"),
)
"""Dtype of the weights, how they are rounded, and the dtype of the states."""


@dataclass(frozen=True)
class PrecisionTask:
    """One training run of AdaHB at its defaults."""

    weights: str
    rounding: str | None
    state_dtype: str | None
    seed: int
    epochs: int = EPOCHS

    @property
    def name(self) -> str:
        """The dtype of the weights."""
        return f"precision-{self.weights}"

    def spec(self) -> dict[str, Json]:
        """What determines the numbers, as plain data."""
        return {"kind": "precision", **asdict(self)}

    def compute(self) -> Json:
        """Train, and return the loss on the training set and the accuracy on the rest."""
        return trained(self.seed, self.epochs, self._optimizer, dtype=self.weights)[0]

    def _optimizer(self, model: nn.Module) -> AdaHB:
        from adahb.optim import AdaHB

        return AdaHB(
            model.parameters(),
            rounding=self.rounding,  # type: ignore[arg-type]
            state_dtype=self.state_dtype,  # type: ignore[arg-type]
        )


def tasks(epochs: int = EPOCHS) -> list[PrecisionTask]:
    """Five seeds of every setting."""
    return [PrecisionTask(*setting, seed, epochs) for setting in SETTINGS for seed in SEEDS]


def summary(store: Store, epochs: int = EPOCHS) -> Json:
    """Loss and accuracy of every setting, and its loss beside that of float32, seed by seed."""
    rows, base = [], np.zeros(0)
    for setting in SETTINGS:
        results = [store.result(PrecisionTask(*setting, seed, epochs)) for seed in SEEDS]
        final = np.log10([result["train_loss"][-1] for result in results])
        base = final if setting == BASE else base
        found = {
            "log10_train_loss": final,
            "log10_loss_minus_that_of_float32": final - base,
            "test_accuracy": np.array([result["test_accuracy"] for result in results]),
        }
        row: Json = dict(zip(("weights", "rounding", "state_dtype"), setting, strict=True))
        rows.append(row | {key: asdict(mean(values)) for key, values in found.items()})
    return {
        "network": "two convolutions and a dense layer on scikit-learn's digits",
        "epochs": epochs,
        "seeds": list(SEEDS),
        "settings": rows,
        "environment": {**environment(), "torch": metadata.version("torch")},
    }
