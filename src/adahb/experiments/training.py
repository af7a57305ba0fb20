"""Training one network: the loop of figures 1 to 4, on a CPU or on a GPU.

On a GPU everything stays on the device: the images, the order of an epoch, the sums of losses.  A
training step (forward, backward, optimizer) is captured once as a CUDA graph, and several runs,
each with a stream of its own, are in flight together; the host waits for none of them until an
epoch is over.

What a run draws depends on its seed alone: weights, the order of samples and dropout's noise come
from generators of its own.  On the CPU a run is repeated bit for bit.  On a GPU sums of gradients
may be added in another order, and runs agree to rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from adahb.data import Split
from adahb.experiments import rivals
from adahb.experiments.networks import network, penalty

Name = TypeVar("Name")

_WARM_UP = 3
"""Steps before a capture: torch's libraries choose and allocate in them."""
_EVALUATED = 2_000
"""Images evaluated at a time."""


@dataclass(frozen=True)
class Recipe:
    """What is trained, how, and for how long."""

    network: str
    optimizer: str
    alpha: float
    seed: int
    epochs: int
    batch: int
    options: tuple[tuple[str, Any], ...] = ()
    """Beyond α, of the optimizer."""


@dataclass(frozen=True)
class Prepared:
    """Images on the device of the training, as the network wants them."""

    train: Batches
    test: Batches
    held_out: Batches | None
    classes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.train.x.shape[1:]
        return channels, height, width


@dataclass(frozen=True)
class Batches:
    """Images and classes; images are bytes until they are used."""

    x: Tensor
    y: Tensor
    mean: Tensor | float

    def take(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Images as numbers between 0 and 1, less their mean where that is wanted."""
        return self.x[rows].float() / 255 - self.mean, self.y[rows]

    def __len__(self) -> int:
        return len(self.y)


def prepare(
    train: Split, test: Split, classes: int, *, held_out: int, centred: bool, device: str
) -> Prepared:
    """Put a data set on a device; ``held_out`` images of the training set are kept for choosing.

    They are drawn with a seed of their own, the same for every run.  ``centred`` takes off the mean
    image of what is trained on.
    """
    order = np.random.default_rng(0).permutation(len(train.y))
    chosen, kept = order[held_out:], order[:held_out]

    def on_device(x: np.ndarray[Any, Any]) -> Tensor:
        moved = torch.from_numpy(x).to(device)
        return moved.contiguous(memory_format=torch.channels_last) if device != "cpu" else moved

    images = on_device(train.x[np.sort(chosen)])
    mean: Tensor | float = images.double().mean(0).float() / 255 if centred else 0.0

    def batches(split: Split, rows: np.ndarray[Any, Any] | None = None) -> Batches:
        x, y = split if rows is None else (split.x[rows], split.y[rows])
        return Batches(on_device(x), torch.from_numpy(y).to(device), mean)

    return Prepared(
        batches(train, np.sort(chosen)),
        batches(test),
        batches(train, np.sort(kept)) if held_out else None,
        classes,
    )


class Run:
    """A network in training; `advance` makes a step, `finished` tells when the last is made."""

    def __init__(
        self,
        recipe: Recipe,
        data: Prepared,
        *,
        device: str = "cpu",
        bf16: bool = False,
        captured: bool | None = None,
    ) -> None:
        if recipe.batch > len(data.train):
            raise ValueError(
                f"batch must be at most the {len(data.train)} training images, got {recipe.batch}"
            )
        self.recipe, self.data, self.bf16 = recipe, data, bf16
        on_gpu = device != "cpu"
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        with self._own_stream():
            self._noise = Generator(device).manual_seed(recipe.seed)
            self._order = Generator().manual_seed(recipe.seed)
            self.model = network(
                recipe.network,
                data.shape,
                data.classes,
                seed=recipe.seed,
                generator=self._noise,
            ).to(device)
            if on_gpu:
                self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.steps_an_epoch = len(data.train) // recipe.batch
            wanted = rivals.Wanted(
                params=list(self.model.parameters()),
                alpha=recipe.alpha,
                options=dict(recipe.options),
                steps_an_epoch=self.steps_an_epoch,
                epochs=recipe.epochs,
                capturable=on_gpu,
            )
            self.optimizer = rivals.made(recipe.optimizer, wanted)
            self._decayed = [
                m.weight for m in self.model.modules() if isinstance(m, nn.Conv2d)
            ] * bool(penalty(recipe.network))
            self._rows = torch.zeros(recipe.batch, dtype=torch.int64, device=device)
            self._running = torch.zeros((), dtype=torch.float64, device=device)
        self._captures = on_gpu and self.optimizer.capturable if captured is None else captured
        self._graph: torch.cuda.CUDAGraph | None = None
        self._permutation = torch.empty(0, dtype=torch.int64)
        self.steps = 0
        self._started = time.perf_counter()
        self.curves = Curves()

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.steps // self.steps_an_epoch

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.recipe.epochs

    def advance(self) -> bool:
        """Make one step, and evaluate where it ends an epoch; tell whether it did."""
        with self._own_stream():
            place = self.steps % self.steps_an_epoch
            if not place:
                self._begin_epoch()
            chosen = self._permutation[place * self.recipe.batch : (place + 1) * self.recipe.batch]
            self._rows.copy_(chosen, non_blocking=True)
            self.optimizer.before(self.steps)
            self._step()
            self.steps += 1
            ended = self.steps % self.steps_an_epoch == 0
            if ended:
                self._end_epoch()
        return ended

    def result(self) -> dict[str, Any]:
        """The curves so far as plain data; waits for the device."""
        return self.curves.plain()

    # ------------------------------------------------------------ a step

    def _begin_epoch(self) -> None:
        self.model.train()
        order = torch.randperm(len(self.data.train), generator=self._order)
        self._permutation = order.to(self._rows.device, non_blocking=True)
        self._running.zero_()

    def _step(self) -> None:
        if not self._captures or self.steps < _WARM_UP:
            self._train()
        else:
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()

    def _train(self) -> None:
        """Forward, backward, update: what is captured."""
        self.optimizer.zero_grad()
        x, y = self.data.train.take(self._rows)
        with self._autocast():
            scores = self.model(x)
        loss = cross_entropy(scores.float(), y)
        self._running += loss.detach()
        if self._decayed:
            squares = torch.stack([w.square().sum() for w in self._decayed]).sum()
            loss = loss + penalty(self.recipe.network) * squares
        loss.backward()
        self.optimizer.step()

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._noise)
        self.optimizer.zero_grad()
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._train()
        return graph

    # ------------------------------------------------------------ the end of an epoch

    def _end_epoch(self) -> None:
        """Evaluate; numbers stay on the device until somebody asks for them."""
        running = self._running / self.steps_an_epoch
        with self.optimizer.shipped(self._refresh):
            self.model.eval()
            train, test = self._evaluate(self.data.train), self._evaluate(self.data.test)
            held_out = self.data.held_out
            kept = None if held_out is None else self._evaluate(held_out)
        self.curves.add(running, train, test, kept, time.perf_counter() - self._started)

    @torch.no_grad()
    def _evaluate(self, data: Batches) -> Tensor:
        """Mean loss and share of right answers."""
        sums = torch.zeros(2, dtype=torch.float64, device=self._rows.device)
        for start in range(0, len(data), _EVALUATED):
            x, y = data.take(slice(start, start + _EVALUATED))
            with self._autocast():
                scores = self.model(x)
            scores = scores.float()
            loss = cross_entropy(scores, y, reduction="sum")
            sums += torch.stack([loss, (scores.argmax(1) == y).sum()])
        return sums / len(data)

    @torch.no_grad()
    def _refresh(self) -> None:
        """Make the statistics of batch normalisation anew, for weights that were not trained at."""
        norms = [m for m in self.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        kept = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        self.model.train()
        for start in range(0, len(self.data.train), _EVALUATED):
            with self._autocast():
                self.model(self.data.train.take(slice(start, start + _EVALUATED))[0])
        for norm, momentum in zip(norms, kept, strict=True):
            norm.momentum = momentum

    def _autocast(self) -> Any:
        kind = self._rows.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=self.bf16, cache_enabled=False)

    def _own_stream(self) -> Any:
        return torch.cuda.stream(self._stream)  # of no effect for None


@dataclass
class Curves:
    """What is recorded at the end of every epoch."""

    _running: list[Tensor] = field(default_factory=list)
    _train: list[Tensor] = field(default_factory=list)
    _test: list[Tensor] = field(default_factory=list)
    _held_out: list[Tensor] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)

    def add(
        self, running: Tensor, train: Tensor, test: Tensor, held_out: Tensor | None, seconds: float
    ) -> None:
        """Add an epoch; tensors are copied to the host when the curves are asked for."""
        self._running.append(running)
        self._train.append(train)
        self._test.append(test)
        if held_out is not None:
            self._held_out.append(held_out)
        self._seconds.append(seconds)

    def plain(self) -> dict[str, Any]:
        """Lists, an entry for every epoch.

        ``running_loss`` is the mean over the steps of the epoch, with dropout, as Keras reports it;
        the other losses are of the weights at its end.
        """
        curves: dict[str, Any] = {
            "running_loss": [float(x) for x in self._running],
            "seconds": self._seconds,
        }
        pairs = {"train": self._train, "test": self._test, "held_out": self._held_out}
        for name, tensors in pairs.items():
            if tensors:
                loss, accuracy = torch.stack(tensors).cpu().T.tolist()
                curves |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        return curves


def train(run: Run) -> dict[str, Any]:
    """Train to the end, and return the curves."""
    while not run.finished:
        run.advance()
    return run.result()


def train_together(
    waiting: Iterator[tuple[Name, Callable[[], Run]]], in_flight: int
) -> Iterator[tuple[Name, Run]]:
    """Train several runs in turns, ``in_flight`` at a time, and yield each as it is done.

    What a run computes does not depend on which others are under way.  ``waiting`` yields names and
    makers of runs; it may end early, and what is in flight is then still finished.
    """
    running: list[tuple[Name, Run]] = []
    more = True
    while more or running:
        while more and len(running) < in_flight:
            following = next(waiting, None)
            if following is None:
                more = False
            else:
                running.append((following[0], following[1]()))
        for pair in list(running):
            name, run = pair
            if run.advance() and run.finished:
                running.remove(pair)
                yield name, run
