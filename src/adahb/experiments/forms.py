"""The digits network with its dense layers confined: both forms, both projections."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from adahb.experiments.digits import SEEDS, trained
from adahb.experiments.findings import mean
from adahb.experiments.store import Json, Store, environment

if TYPE_CHECKING:
    from torch import Tensor, nn

    from adahb.optim import AdaHB
    from adahb.sets import ConvexSet

FORMS = ("averaging", "paper")
PROJECTIONS = ("metric", "euclidean")
KINDS = ("l1", "l2 rows", "box")
SHARES = (0.1, 0.5)
"""Radii, as shares of the size that the weights have without a constraint."""
EPOCHS = 50


@dataclass(frozen=True)
class FormTask:
    """One training run of AdaHB at its defaults.

    ``kind=None`` leaves the weights free; otherwise every dense layer's weights are confined to a
    set of that kind, whose radius is the layer's number in ``radii``.
    """

    seed: int
    kind: str | None = None
    radii: tuple[float, ...] = ()
    form: str = "averaging"
    projection: str = "metric"
    epochs: int = EPOCHS

    @property
    def name(self) -> str:
        """The kind of the set."""
        return f"forms-{self.kind or 'free'}".replace(" ", "-")

    def spec(self) -> dict[str, Json]:
        """What determines the numbers, as plain data."""
        return {**asdict(self), "kind": "forms", "set": self.kind}

    def compute(self) -> Json:
        """Train; beside loss and accuracy, sizes of the dense weights and the share of zeros."""
        result, model = trained(self.seed, self.epochs, self._optimizer)
        weights = [p.detach() for p in _dense(model)]
        zeros = sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)
        sizes = {kind: [_size(kind, w) for w in weights] for kind in KINDS}
        return {**result, "zeros": zeros, "sizes": sizes}

    def _optimizer(self, model: nn.Module) -> AdaHB:
        from adahb.optim import AdaHB

        dense = _dense(model) if self.kind else []
        known = {id(p) for p in dense}
        groups: list[Json] = [{"params": [p for p in model.parameters() if id(p) not in known]}]
        for p, radius in zip(dense, self.radii, strict=True):
            groups.append({"params": [p], "constraint": _set(self.kind, radius)})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "a parameter of shape .* starts outside")
            return AdaHB(groups, form=self.form, projection=self.projection)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Setting:
    """What is compared: a set, and the way in which the weights are kept in it."""

    kind: str
    share: float
    form: str
    projection: str


def settings() -> list[Setting]:
    """All of them; on boxes the two projections are one."""
    every = (Setting(*chosen) for chosen in product(KINDS, SHARES, FORMS, PROJECTIONS))
    return [s for s in every if s.kind != "box" or s.projection == "metric"]


def free_tasks(epochs: int = EPOCHS) -> list[FormTask]:
    """Runs without a constraint, from which the radii follow."""
    return [FormTask(seed, epochs=epochs) for seed in SEEDS]


def tasks(store: Store, setting: Setting, epochs: int = EPOCHS) -> Iterator[FormTask]:
    """Five seeds of a setting; the free runs must be in the store."""
    for free in free_tasks(epochs):
        sizes = store.result(free)["sizes"][setting.kind]
        radii = tuple(float(f"{setting.share * size:.4g}") for size in sizes)
        yield FormTask(free.seed, setting.kind, radii, setting.form, setting.projection, epochs)


def summary(store: Store, epochs: int = EPOCHS) -> Json:
    """Loss, accuracy and zeros of every setting, and each form against the other, seed by seed."""
    rows, losses = [], {}
    for setting in settings():
        results = [store.result(task) for task in tasks(store, setting, epochs)]
        final = np.array([result["train_loss"][-1] for result in results])
        losses[setting] = np.log10(final)
        found = {"train_loss": final, "log10_train_loss": losses[setting]}
        found |= {key: np.array([r[key] for r in results]) for key in ("test_accuracy", "zeros")}
        rows.append(asdict(setting) | {key: asdict(mean(v)) for key, v in found.items()})
    compared = []
    for setting in settings():
        if setting.form == "averaging":
            other = Setting(setting.kind, setting.share, "paper", setting.projection)
            row = {key: getattr(setting, key) for key in ("kind", "share", "projection")}
            row["log10_loss_of_averaging_minus_paper"] = asdict(
                mean(losses[setting] - losses[other])
            )
            compared.append(row)
    return {
        "network": "two convolutions and a dense layer on scikit-learn's digits; dense layers "
        "confined to a share of the size they have without a constraint",
        "epochs": epochs,
        "seeds": list(SEEDS),
        "settings": rows,
        "compared": compared,
        "environment": {**environment(), "torch": metadata.version("torch")},
    }


def _dense(model: nn.Module) -> list[Tensor]:
    from torch import nn

    return [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]


def _size(kind: str, w: Tensor) -> float:
    """The l1 norm, the mean l2 norm of the rows, or the largest entry."""
    if kind == "l1":
        return float(w.abs().sum())
    return float(w.norm(dim=1).mean()) if kind == "l2 rows" else float(w.abs().max())


def _set(kind: str | None, radius: float) -> ConvexSet:
    from adahb.sets import Box, L1Ball, L2Ball

    if kind == "l1":
        return L1Ball(radius)
    return L2Ball(radius, dim=1) if kind == "l2 rows" else Box(-radius, radius)
