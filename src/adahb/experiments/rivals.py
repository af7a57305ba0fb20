"""The optimizers of figures 1 to 4 and those of today, behind one face.

The paper's six: AdaHB and what it was compared with, each with the paper's constants.  The modern
ones: AdamW and Adam whose step size falls to zero like a cosine over a horizon they must know, and
Schedule-Free AdamW, which needs none.  AdaHB takes other clocks, powers and decays as options.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from adahb import _checks as check
from adahb.optim import AdaHB

PAPER = ("AdaHB", "Adam", "SGD", "SGD-momentum", "AdaGrad", "RMSprop")
MODERN = ("AdamW cosine", "Adam cosine", "Schedule-Free AdamW")


class Rival:
    """An optimizer with the few things that differ between them in a training loop."""

    capturable = True
    """Whether a step can be captured in a CUDA graph."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """Update the weights."""
        self.optimizer.step()

    def before(self, step: int) -> None:
        """What the host does before a step, counted from zero."""

    @contextmanager
    def shipped(self, refresh: Callable[[], None]) -> Iterator[None]:  # noqa: ARG002
        """Hold the weights that one would ship.

        ``refresh`` makes the statistics of batch normalisation anew, for weights at which no
        gradient was taken.
        """
        yield


class Cosine(Rival):
    """A step size that falls to zero over a horizon."""

    def __init__(self, optimizer: Optimizer, alpha: float, horizon: int) -> None:
        super().__init__(optimizer)
        self._alpha, self._horizon = alpha, horizon

    def before(self, step: int) -> None:
        """Set the step size, on the device where the step is captured."""
        value = self._alpha * (1 + math.cos(math.pi * step / self._horizon)) / 2
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value


class ScheduleFree(Rival):
    """Weights that train at one point and are shipped at another."""

    capturable = False

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        optimizer.train()

    @contextmanager
    def shipped(self, refresh: Callable[[], None]) -> Iterator[None]:
        """Swap the averaged weights in for as long as they are looked at."""
        optimizer: Any = self.optimizer
        optimizer.eval()
        try:
            refresh()
            yield
        finally:
            optimizer.train()


@dataclass(frozen=True)
class Wanted:
    """What an optimizer is made of."""

    params: list[Tensor]
    alpha: float
    options: dict[str, Any]
    """Beyond α; for AdaHB ``tick="epoch"`` is the paper's clock, and its default here."""
    steps_an_epoch: int
    epochs: int
    capturable: bool
    """Whether the step is to be captured in a CUDA graph."""


def made(name: str, wanted: Wanted) -> Rival:
    """An optimizer by its name, one of `PAPER` or `MODERN`."""
    check.number("alpha", wanted.alpha, above=0)
    return _MAKERS[check.choice("optimizer", name, _MAKERS)](wanted)


_Maker = Callable[[Wanted], Rival]


def _adahb(wanted: Wanted) -> Rival:
    options = {"gamma": 0.1, "delta": 1e-8, "tick": "epoch", **wanted.options}
    if options["tick"] == "epoch":
        options["tick"] = wanted.steps_an_epoch
    return Rival(AdaHB(wanted.params, lr=wanted.alpha, capturable=wanted.capturable, **options))


def _plain(cls: Any, **constants: Any) -> _Maker:
    def make(wanted: Wanted) -> Rival:
        return Rival(cls(wanted.params, lr=wanted.alpha, **constants, **wanted.options))

    return make


def _capturable(cls: Any, **constants: Any) -> _Maker:
    def make(wanted: Wanted) -> Rival:
        return _plain(cls, **constants, capturable=wanted.capturable)(wanted)

    return make


def _fused(maker: Callable[..., _Maker], cls: Any, **constants: Any) -> _Maker:
    """One kernel for all tensors, where the step is captured."""

    def make(wanted: Wanted) -> Rival:
        return maker(cls, **constants, fused=wanted.capturable or None)(wanted)

    return make


def _cosine(cls: Any, **constants: Any) -> _Maker:
    def make(wanted: Wanted) -> Rival:
        lr: float | Tensor = wanted.alpha
        if wanted.capturable:  # read by the graph at every step
            lr = torch.tensor(lr, device=wanted.params[0].device)
        options = {**constants, **wanted.options, "capturable": wanted.capturable}
        optimizer = cls(wanted.params, lr=lr, **options)
        return Cosine(optimizer, wanted.alpha, wanted.steps_an_epoch * wanted.epochs)

    return make


def _schedule_free(wanted: Wanted) -> Rival:
    try:
        from schedulefree import AdamWScheduleFree
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "optimizer='Schedule-Free AdamW' needs the package schedulefree: pip install "
            "schedulefree"
        ) from error
    return ScheduleFree(AdamWScheduleFree(wanted.params, lr=wanted.alpha, **wanted.options))


_MAKERS: Mapping[str, _Maker] = MappingProxyType(
    {
        "AdaHB": _adahb,
        "Adam": _fused(_capturable, torch.optim.Adam),
        "SGD": _fused(_plain, torch.optim.SGD),
        "SGD-momentum": _fused(_plain, torch.optim.SGD, momentum=0.9),
        "AdaGrad": _plain(torch.optim.Adagrad),
        "RMSprop": _capturable(torch.optim.RMSprop, alpha=0.9),
        "Adam cosine": _fused(_cosine, torch.optim.Adam),
        "AdamW cosine": _fused(_cosine, torch.optim.AdamW),
        "Schedule-Free AdamW": _schedule_free,
    }
)
