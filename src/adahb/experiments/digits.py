"""A small network on scikit-learn's digits: AdaHB as it comes, beside rivals at their best."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import numpy as np

from adahb.experiments.findings import mean
from adahb.experiments.store import Json, Store, environment

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

SEEDS = (0, 1, 2, 3, 4)
GRID = (0.1, 0.01, 0.001, 0.0001)
ADAHB_GRID = (0.1, 0.03, 0.01, 0.003, 0.001)
TICKS = (1, 3, 10, 22, 30, 100, 300)
"""22 steps are an epoch."""
EPOCHS, BATCH, HELD_OUT = 50, 64, 360


@dataclass(frozen=True)
class DigitsTask:
    """One training run; without ``lr`` and ``tick`` AdaHB takes its own defaults."""

    optimizer: str
    lr: float | None
    tick: int | None
    seed: int
    epochs: int = EPOCHS

    @property
    def name(self) -> str:
        """The optimizer."""
        return f"digits-{self.optimizer}".lower()

    def spec(self) -> dict[str, Json]:
        """What determines the numbers, as plain data."""
        return {"kind": "digits", **asdict(self)}

    def compute(self) -> Json:
        """Train, and return the loss on the training set and the accuracy on the rest."""
        return trained(self.seed, self.epochs, lambda model: _optimizer(self, model))[0]


def trained(
    seed: int,
    epochs: int,
    optimizer_for: Callable[[nn.Module], torch.optim.Optimizer],
    *,
    dtype: str = "float32",
) -> tuple[dict[str, Json], nn.Module]:
    """Train a network; the loss on the training set after each epoch, and what came out.

    Weights, activations and gradients are in ``dtype``; losses are computed in float32.
    """
    import torch
    from torch.nn.functional import cross_entropy

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    (x, y), held_out = _split(seed)
    model, x = network().to(getattr(torch, dtype)), x.to(getattr(torch, dtype))
    optimizer = optimizer_for(model)
    losses = []
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH)[: len(x) // BATCH]:
            optimizer.zero_grad()
            cross_entropy(model(x[rows]).float(), y[rows]).backward()
            optimizer.step()
        losses.append(_evaluate(model, x, y)[0])
    images, labels = held_out
    accuracy = _evaluate(model, images.to(x.dtype), labels)[1]
    return {"train_loss": losses, "test_accuracy": accuracy}, model


def network() -> nn.Sequential:
    """Two convolutions and a dense layer, each followed by ReLU and batch normalisation."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.BatchNorm2d(16),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(32),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.BatchNorm1d(64),
        nn.Linear(64, 10),
    )


Setting = tuple[str, float | None, int | None]


def settings(*, grid: bool) -> list[Setting]:
    """AdaHB as it comes, the rivals over their grid, and with ``grid`` AdaHB over its own."""
    found: list[Setting] = [("AdaHB", None, None)]
    found += [(name, lr, None) for name in ("Adam", "SGD") for lr in GRID]
    return found + [("AdaHB", lr, tick) for lr in ADAHB_GRID for tick in TICKS if grid]


def tasks(setting: Setting) -> list[DigitsTask]:
    """Five seeds of a setting."""
    name, lr, tick = setting
    return [DigitsTask(name, lr, tick, seed) for seed in SEEDS]


def summary(store: Store, *, grid: bool) -> Json:
    """Final training loss and test accuracy of every setting, and AdaHB against the best rival."""
    losses, rows = {}, []
    for setting in settings(grid=grid):
        results = [store.result(task) for task in tasks(setting)]
        losses[setting] = np.array([result["train_loss"][-1] for result in results])
        accuracy = mean([result["test_accuracy"] for result in results])
        row: Json = dict(zip(("optimizer", "lr", "tick"), setting, strict=True))
        row |= {"train_loss": asdict(mean(losses[setting])), "test_accuracy": asdict(accuracy)}
        rows.append(row)
    rivals = [setting for setting in losses if setting[0] != "AdaHB"]
    best = min(rivals, key=lambda setting: float(losses[setting].mean()))
    difference = mean(losses["AdaHB", None, None] - losses[best])
    return {
        "network": "two convolutions and a dense layer on scikit-learn's digits",
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "seeds": list(SEEDS),
        "best_rival": dict(zip(("optimizer", "lr"), best[:2], strict=True)),
        "loss_of_AdaHB_minus_best_rival": asdict(difference),
        "settings": rows,
        "environment": {**environment(), "torch": metadata.version("torch")},
    }


def _optimizer(task: DigitsTask, model: nn.Module) -> torch.optim.Optimizer:
    import torch

    from adahb.optim import AdaHB

    if task.optimizer == "AdaHB" and task.lr is None and task.tick is None:
        return AdaHB(model.parameters())
    if task.optimizer == "AdaHB" and task.lr is not None and task.tick is not None:
        return AdaHB(model.parameters(), lr=task.lr, tick=task.tick)
    if task.lr is None:
        raise ValueError(f"lr must be given for {task.optimizer}")
    if task.optimizer == "Adam":
        return torch.optim.Adam(model.parameters(), lr=task.lr)
    return torch.optim.SGD(model.parameters(), lr=task.lr, momentum=0.9)


def _split(seed: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    import torch
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.tensor(x / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(y)
    order = torch.tensor(np.random.default_rng(seed).permutation(len(y)))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return (images[train], labels[train]), (images[test], labels[test])


def _evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    import torch
    from torch.nn.functional import cross_entropy

    model.eval()
    with torch.no_grad():
        scores = model(x).float()
        loss, right = cross_entropy(scores, y), (scores.argmax(1) == y).float().mean()
    model.train()
    return float(loss), float(right)
