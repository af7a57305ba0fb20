"""Training one network: the loop of figures 1 to 4, on a CPU or on a GPU.

On a GPU everything stays on the device: the images, the order of an epoch, the sums of losses.
Forward and backward passes are compiled, a training step (forward, backward, optimizer) and the
evaluation after an epoch are captured once as CUDA graphs, and several runs, each with a stream of
its own, are in flight together; the host waits for none of them.

What a run draws depends on its seed alone: weights, the order of samples and dropout's noise come
from generators of its own.  On the CPU a run is repeated bit for bit.  On a GPU sums of gradients
may be added in another order, and runs agree to rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from adahb.data import Split
from adahb.experiments import rivals
from adahb.experiments.networks import draw_dropout, network, penalty
from adahb.experiments.store import environment

Name = TypeVar("Name")

_WARM_UP = 3
"""Steps before a capture: torch's libraries choose and allocate in them."""
_EVALUATED = 2_500
"""Images evaluated at a time; it divides what there is of the real data sets, held out or not."""
_FORMS = 64
"""Networks, shapes and modes of which one process compiles a form each."""


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

    def take(self, rows: Tensor | slice) -> Batches:
        """Some of them."""
        return Batches(self.x[rows], self.y[rows], self.mean)

    def parts(self, size: int) -> Iterator[Batches]:
        """All of them, ``size`` at a time and what is left."""
        return (self.take(slice(start, start + size)) for start in range(0, len(self), size))

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

    prepared = Prepared(
        batches(train, np.sort(chosen)),
        batches(test),
        batches(train, np.sort(kept)) if held_out else None,
        classes,
    )
    if device != "cpu":  # runs have streams of their own, which do not wait for this one
        torch.cuda.synchronize(device)
    return prepared


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
        compiled: bool | None = None,
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
            self._means = torch.zeros(len(self._looked_at), 2, dtype=torch.float64, device=device)
            if on_gpu:
                torch.backends.cudnn.benchmark = True
        self._compiled = on_gpu if compiled is None else compiled
        self._captures = on_gpu if captured is None else captured
        self._step_graph: torch.cuda.CUDAGraph | None = None
        self._means_graph: torch.cuda.CUDAGraph | None = None
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
        """The curves so far as plain data; waits for the device, which may be epochs behind."""
        if self._stream is not None:
            self._stream.synchronize()
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
            if self._step_graph is None:
                self.optimizer.zero_grad()
                alone = self.optimizer.capturable
                self._step_graph = self._capture(self._train if alone else self._differentiate)
            self._step_graph.replay()
            if not self.optimizer.capturable:
                self.optimizer.step()

    def _train(self) -> None:
        """Forward, backward, update."""
        self._differentiate()
        self.optimizer.step()

    def _differentiate(self) -> None:
        """Forward and backward."""
        self.optimizer.zero_grad()
        draw_dropout(self.model, self.recipe.batch, self._noise)
        with self._autocast():
            loss = self._made(_mean_loss)(self.model, self.data.train.take(self._rows))
        self._running += loss.detach()
        if self._decayed:
            squares = torch.stack([w.square().sum() for w in self._decayed]).sum()
            loss = loss + penalty(self.recipe.network) * squares
        loss.backward()

    def _capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._noise)
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph

    def _made(self, function: _Function) -> _Function:
        return compiled(function) if self._compiled else function

    # ------------------------------------------------------------ the end of an epoch

    @property
    def _looked_at(self) -> dict[str, Batches]:
        """What a network is evaluated on after each epoch."""
        kept = {} if self.data.held_out is None else {"held_out": self.data.held_out}
        return {"test": self.data.test, **kept}

    def _end_epoch(self) -> None:
        """Evaluate; numbers stay on the device until somebody asks for them."""
        with self.optimizer.shipped(self._refresh):
            self.model.eval()
            if self._captures and self.epoch > 1:
                if self._means_graph is None:
                    self._means_graph = self._capture(self._evaluate)
                self._means_graph.replay()
            else:
                self._evaluate()
            if self.finished:
                self.curves.final = self._mean(self.data.train)
        means = dict(zip(self._looked_at, self._means.clone(), strict=True))
        running = self._running / self.steps_an_epoch
        self.curves.add(running, means, time.perf_counter() - self._started)

    def _evaluate(self) -> None:
        for kept, data in zip(self._means, self._looked_at.values(), strict=True):
            kept.copy_(self._mean(data))

    @torch.no_grad()
    def _mean(self, data: Batches) -> Tensor:
        """Mean loss and share of right answers."""
        sums = torch.zeros(2, dtype=torch.float64, device=self._rows.device)
        for part in data.parts(_EVALUATED):
            with self._autocast():
                sums += self._made(_loss_and_hits)(self.model, part)
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
        batch = self.recipe.batch
        for part in self.data.train.parts(batch):
            if len(part) == batch:  # as in the training, where an epoch has whole batches
                draw_dropout(self.model, batch, self._noise)
                with self._autocast():
                    _scores(self.model, part)
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

    final: Tensor | None = None
    """Mean loss and accuracy of the final weights on what they were trained on."""
    _running: list[Tensor] = field(default_factory=list)
    _means: list[dict[str, Tensor]] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)

    def add(self, running: Tensor, means: dict[str, Tensor], seconds: float) -> None:
        """Add an epoch; tensors are copied to the host when the curves are asked for."""
        self._running.append(running)
        self._means.append(means)
        self._seconds.append(seconds)

    def plain(self) -> dict[str, Any]:
        """Lists, an entry for every epoch.

        ``train_loss`` is the mean over the steps of the epoch, with dropout, as Keras reports it
        and as the paper's figures show; the others are of the weights at its end.  ``final_loss``
        and ``final_accuracy`` have one entry: the final weights on the training set, no dropout.
        """
        curves: dict[str, Any] = {
            "train_loss": [float(x) for x in self._running],
            "seconds": self._seconds,
        }
        for name in self._means[0] if self._means else ():
            loss, accuracy = torch.stack([means[name] for means in self._means]).cpu().T.tolist()
            curves |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        if self.final is not None:
            loss, accuracy = self.final.tolist()
            curves |= {"final_loss": [loss], "final_accuracy": [accuracy]}
        return curves


_Function = Callable[[nn.Module, Batches], Tensor]


def _scores(model: nn.Module, data: Batches) -> Tensor:
    """What the network says of images, given as numbers from 0 to 1 less their mean if wanted."""
    scores: Tensor = model(data.x.float() / 255 - data.mean)
    return scores.float()


def _mean_loss(model: nn.Module, data: Batches) -> Tensor:
    return cross_entropy(_scores(model, data), data.y)


def _loss_and_hits(model: nn.Module, data: Batches) -> Tensor:
    """Sum of the losses and number of right answers."""
    scores = _scores(model, data)
    loss = cross_entropy(scores, data.y, reduction="sum")
    return torch.stack([loss, (scores.argmax(1) == data.y).sum()])


@lru_cache
def compiled(function: _Function) -> _Function:
    """Return the function fused by torch's compiler, once for each network, shape and mode."""
    from torch._dynamo import config

    config.recompile_limit = max(config.recompile_limit, _FORMS)
    made: _Function = torch.compile(function, dynamic=False)
    return made


def torch_environment(device: str) -> dict[str, str]:
    """What networks are trained with."""
    found = {**environment(), "torch": torch.__version__}
    if device != "cpu":
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    return found


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
