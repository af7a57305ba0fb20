"""Figures 1 to 4: which networks are trained on what, by whom, and which α is looked at.

A *cell* is a network on a data set with a line-up of optimizers, each over its grid of α.  Its runs
come in three stages, the most telling first:

1. one seed over the grid, on the whole training set and on all but what is held out of it;
2. five seeds at the α that each protocol chooses;
3. five seeds over the grid.

Three protocols choose α: ``published`` by the test accuracy at the end, as was done for the paper;
``fair`` by the accuracy at the end on images held out of the training set, which runs of their own
have not seen; ``training`` by the training loss at the end, which the paper speaks of, too.  What
is compared are in all cases runs on the whole training set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from adahb import _checks as check
from adahb.data import Split, load_images
from adahb.experiments.store import Job, Json, Store
from adahb.experiments.training import (
    Prepared,
    Recipe,
    Run,
    prepare,
    torch_environment,
    train,
)

Protocol = Literal["published", "fair", "training"]
BY_ACCURACY: tuple[Protocol, ...] = ("published", "fair")
PROTOCOLS: tuple[Protocol, ...] = (*BY_ACCURACY, "training")
_JUDGES: Mapping[Protocol, str] = MappingProxyType(
    {"published": "test_accuracy", "fair": "held_out_accuracy", "training": "train_loss"}
)
GRID = (0.1, 0.01, 0.001, 0.0001)
SEEDS = (0, 1, 2, 3, 4)
STAND_IN = "digits"
"""What scikit-learn carries, for where there are no data and no network."""
_DIGITS_TEST = 360


@dataclass(frozen=True)
class Entry:
    """An optimizer in a line-up, with the options it is given beyond α."""

    optimizer: str
    options: tuple[tuple[str, Any], ...] = ()
    grid: tuple[float, ...] = GRID
    name: str = ""

    @property
    def label(self) -> str:
        """What stands in figures and tables."""
        return self.name or self.optimizer


SIX = tuple(Entry(name) for name in ("AdaHB", "Adam", "SGD", "SGD-momentum", "AdaGrad", "RMSprop"))
"""The line-up of the paper."""
MODERN = (
    Entry("AdaHB"),
    Entry("AdaHB", (("tick", 100),), name="AdaHB, tick 100"),
    *(
        Entry(
            "AdaHB",
            (("averaging_tick", 1), ("power", power)),
            name=f"AdaHB, averaged by the step, power {power:g}",
        )
        for power in (10.0, 30.0)
    ),
    Entry("Adam cosine"),
    Entry("AdamW cosine"),
    Entry("Schedule-Free AdamW"),
)
"""AdaHB under other clocks beside what is used today; a cosine must know its horizon.

Averaged by the step, the steps and the second moment still go by the epoch."""


@dataclass(frozen=True)
class DeepTask:
    """One training run."""

    dataset: str
    network: str
    entry: Entry
    alpha: float
    seed: int
    epochs: int
    batch: int
    held_out: int = 0
    bf16: bool = False
    device: str = field(default="cpu", compare=False)
    home: str | None = field(default=None, compare=False)
    """Where the data are; this and the device do not determine the result but for rounding."""

    @property
    def name(self) -> str:
        """Data set, network and optimizer."""
        text = f"{self.dataset}-{self.network}-{self.entry.optimizer}".lower()
        return re.sub(r"[^a-z0-9]+", "-", text)

    def spec(self) -> dict[str, Json]:
        """What determines the result."""
        plain = {k: v for k, v in asdict(self).items() if k not in ("device", "home", "entry")}
        options = dict(sorted(self.entry.options))
        return {"kind": "deep", **plain, "optimizer": self.entry.optimizer, "options": options}

    def compute(self) -> Json:
        """Train, alone and on one thread."""
        import torch

        torch.set_num_threads(1)
        run = self.begin()
        train(run)
        return self.finish(run)

    def begin(self) -> Run:
        """The run, before its first step."""
        centred = self.network.startswith("resnet")
        data = _prepared(self.dataset, self.home, self.held_out, centred, self.device)
        recipe = Recipe(
            network=self.network,
            optimizer=self.entry.optimizer,
            alpha=self.alpha,
            seed=self.seed,
            epochs=self.epochs,
            batch=self.batch,
            options=self.entry.options,
        )
        return Run(recipe, data, device=self.device, bf16=self.bf16)

    def finish(self, run: Run) -> Json:
        """The curves, and what they were made with."""
        return {**run.result(), "environment": torch_environment(self.device)}


@dataclass(frozen=True)
class Cell:
    """A network on a data set, with a line-up."""

    dataset: str
    network: str
    epochs: int
    batch: int = 512
    held_out: int = 5000
    entries: tuple[Entry, ...] = SIX
    bf16: bool = False
    device: str = "cpu"
    home: str | None = None

    @property
    def name(self) -> str:
        """Network and data set."""
        return f"{self.network}, {self.dataset}"

    def task(self, entry: Entry, alpha: float, seed: int, *, held_out: bool = False) -> DeepTask:
        """One of its runs."""
        return DeepTask(
            self.dataset,
            self.network,
            entry,
            alpha,
            seed,
            self.epochs,
            self.batch,
            self.held_out if held_out else 0,
            self.bf16,
            self.device,
            self.home,
        )

    def grid(self, entry: Entry, protocol: Protocol) -> list[DeepTask]:
        """The runs by which a protocol chooses α."""
        fair = protocol == "fair"
        return [self.task(entry, alpha, SEEDS[0], held_out=fair) for alpha in entry.grid]

    def chosen(self, store: Store, entry: Entry, protocol: Protocol) -> float:
        """The α that a protocol chooses, once the grid is in the store."""
        judge = _JUDGES[protocol]
        reached = [last(store.result(task), judge) for task in self.grid(entry, protocol)]
        best = np.argmin(reached) if judge.endswith("loss") else np.argmax(reached)
        return entry.grid[int(best)]

    def repeats(self, store: Store, entry: Entry, protocol: Protocol) -> list[DeepTask]:
        """The runs that are compared: every seed at the chosen α."""
        alpha = self.chosen(store, entry, protocol)
        return [self.task(entry, alpha, seed) for seed in SEEDS]


class Best:
    """The best result so far, of all that is trained in a command."""

    def __init__(self) -> None:
        self._reached, self._said = -np.inf, ""

    def after(self, job: Job, result: Json) -> str:
        """Say what is the best after one more result."""
        reached = last(result, "test_accuracy")
        if isinstance(job, DeepTask) and reached > self._reached:
            self._reached = reached
            self._said = (
                f"best {reached:.3f}: {job.entry.label}, α = {job.alpha:g}, "
                f"{job.network} on {job.dataset}"
            )
        return self._said


def stages(cells: Iterable[Cell], store: Store, *, whole: bool) -> Iterator[list[DeepTask]]:
    """Yield the runs stage by stage; a stage is only known when the one before is complete.

    ``whole`` asks for the third stage.
    """
    cells = list(cells)
    pairs = [(cell, entry) for cell in cells for entry in cell.entries]
    yield [task for p in BY_ACCURACY for cell, entry in pairs for task in cell.grid(entry, p)]
    yield [task for p in PROTOCOLS for c, e in pairs for task in c.repeats(store, e, p)]
    if whole:
        yield [c.task(e, alpha, seed) for c, e in pairs for alpha in e.grid for seed in SEEDS]


def is_done(cell: Cell, store: Store, *, whole: bool) -> bool:
    """Tell whether every run of a cell is there."""
    return all(all(map(store.has, stage)) for stage in stages([cell], store, whole=whole))


def _cells(networks: Mapping[str, int], datasets: Iterable[str]) -> list[Cell]:
    return [Cell(data, name, epochs) for name, epochs in networks.items() for data in datasets]


_CNN, _RESNET = 100, 50
_FEWER = tuple(replace(entry, grid=GRID[:3]) for entry in SIX)
PRESETS: Mapping[str, tuple[Cell, ...]] = MappingProxyType(
    {
        "quick": (
            Cell(STAND_IN, "cnn", epochs=10, batch=16, held_out=200, entries=_FEWER),
            Cell(STAND_IN, "resnet20", epochs=4, batch=32, held_out=200, entries=_FEWER),
        ),
        "paper": (
            *_cells({"cnn": _CNN}, ("cifar10", "mnist", "fashion-mnist", "cifar100")),
            Cell("cifar10", "cnn-paper", _CNN),
            *_cells({"resnet18": _RESNET}, ("cifar10", "mnist", "cifar100")),
            Cell("cifar10", "resnet20", _RESNET),
        ),
        "modern": (
            Cell("cifar10", "cnn", _CNN, entries=MODERN),
            Cell("cifar10", "resnet18", _RESNET, entries=MODERN),
        ),
    }
)
"""What `adahb reproduce deep` runs; ``quick`` needs neither data nor a network connection."""


def cells(
    preset: str,
    *,
    home: str | None,
    device: str,
    bf16: bool,
    epochs: int | None = None,
    networks: Iterable[str] | None = None,
    datasets: Iterable[str] | None = None,
) -> list[Cell]:
    """The cells of a preset, to be run somewhere; ``epochs`` shortens all of them.

    ``networks`` and ``datasets`` keep those of the preset that are named.
    """
    found = PRESETS[check.choice("preset", preset, PRESETS)]
    for name, wanted in (("network", networks), ("dataset", datasets)):
        there = list(dict.fromkeys(getattr(cell, name) for cell in found))
        kept = there if wanted is None else [check.choice(f"{name}s", w, there) for w in wanted]
        found = tuple(cell for cell in found if getattr(cell, name) in kept)
    if not found:
        raise ValueError(f"preset={preset!r} has none of these networks on none of these datasets")
    return [
        replace(cell, home=home, device=device, bf16=bf16, epochs=epochs or cell.epochs)
        for cell in found
    ]


def available(wanted: Iterable[Cell], say: Callable[[str], None]) -> list[Cell]:
    """The cells whose data can be had; the others are told of."""
    wanted, found = list(wanted), []
    missing: dict[str, str] = {}
    for cell in wanted:
        if cell.dataset not in missing and cell.dataset != STAND_IN:
            try:
                missing[cell.dataset] = ""
                load_images(cell.dataset, cell.home)
            except FileNotFoundError as error:
                missing[cell.dataset] = str(error)
                say(f"{cell.dataset} is left out: {error}")
        if not missing.get(cell.dataset):
            found.append(cell)
    if not found:
        raise FileNotFoundError(f"no data for any of {', '.join(sorted(missing))}")
    return found


@lru_cache(maxsize=4)
def _prepared(
    dataset: str, home: str | None, held_out: int, centred: bool, device: str
) -> Prepared:
    if dataset == STAND_IN:
        train_set, test_set, classes = _digits()
    else:
        images = load_images(dataset, home)
        train_set, test_set, classes = images.train, images.test, images.classes
    return prepare(train_set, test_set, classes, held_out=held_out, centred=centred, device=device)


def _digits() -> tuple[Split, Split, int]:
    """scikit-learn's digits, 8 × 8, as images of bytes."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = np.minimum(x * 16, 255).astype(np.uint8).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(y.size)
    test, rest = order[:_DIGITS_TEST], order[_DIGITS_TEST:]
    labels = y.astype(np.int64)
    return Split(images[rest], labels[rest]), Split(images[test], labels[test]), 10


def last(result: Json, curve: str) -> float:
    """The end of a curve; what is not finite was kept as null, and is the worst."""
    value = result[curve][-1]
    worst = np.inf if curve.endswith("loss") else -np.inf
    return worst if value is None else float(value)
