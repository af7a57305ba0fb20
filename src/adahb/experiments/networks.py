"""The networks of figures 1 to 4, initialised as the paper's authors did in Keras.

``cnn`` is the published code: two convolutions, pooling and a dense layer, each followed by batch
normalisation.  ``cnn-paper`` is the sentence of the paper: normalisation after the convolutions
only; the weight decay that it mentions without a number is left out.  ``resnet18`` has a 3 × 3 stem
and no first pooling, for small images; ``resnet20`` is the narrow residual network that the
published code runs under the other's name, down to Keras' biases and truncated normals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from adahb import _checks as check

_KERAS: dict[str, Any] = {"momentum": 0.01, "eps": 1e-3}
"""Keras keeps 0.99 of the old statistics, torch says how much of the new enters."""
_TRUNCATED = 0.87962566103423978
"""The standard deviation of a standard normal cut off at twice its own."""

Shape = tuple[int, int, int]


class Dropout(nn.Module):
    """Dropout whose noise is drawn before the forward pass, from a generator of the run's own.

    Runs that share a device then do not draw from one another's noise, in whatever order they go,
    and the network itself is free of chance: it can be compiled.
    """

    kept: Tensor

    def __init__(self, rate: float, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.rate, self.shape = rate, shape
        self.register_buffer("kept", torch.empty(0, *shape, dtype=torch.bool), persistent=False)

    def draw(self, batch: int, generator: Generator) -> None:
        """Choose at random which entries of the next batch are kept."""
        if len(self.kept) != batch:
            self.kept = self.kept.new_empty(batch, *self.shape)
            if len(self.shape) == 3 and self.kept.is_cuda:
                self.kept = self.kept.contiguous(memory_format=torch.channels_last)
        self.kept.bernoulli_(1.0 - self.rate, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Zero the entries that are not kept, a share ``rate`` of all, and scale up the rest."""
        return x * self.kept.to(x.dtype) / (1.0 - self.rate) if self.training else x


def network(name: str, shape: Shape, classes: int, *, seed: int) -> nn.Module:
    """A freshly initialised network for images of ``shape`` (channels, height, width).

    The weights depend on ``seed`` alone, wherever they go afterwards.  What is dropped out is
    drawn by `draw_dropout`, before each forward pass of the training.
    """
    made = NETWORKS[check.choice("name", name, NETWORKS)](shape, classes)
    start = Generator().manual_seed(seed)
    for module in made.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            _STARTS[name](module.weight, start)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return made


def draw_dropout(model: nn.Module, batch: int, generator: Generator) -> None:
    """Draw what every dropout layer keeps of the next batch."""
    for module in model.modules():
        if isinstance(module, Dropout):
            module.draw(batch, generator)


def penalty(name: str) -> float:
    """The coefficient of Σ w² over the convolutions' weights that the network's loss contains."""
    return 1e-4 if name == "resnet20" else 0.0


def _glorot(weight: Tensor, generator: Generator) -> None:
    nn.init.xavier_uniform_(weight, generator=generator)


def _he(weight: Tensor, generator: Generator) -> None:
    nn.init.kaiming_normal_(weight, nonlinearity="relu", generator=generator)


def _he_of_keras(weight: Tensor, generator: Generator) -> None:
    """The same spread, from a normal that is cut off."""
    std = math.sqrt(2 / weight[0].numel()) / _TRUNCATED
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)


def _cnn(shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(
        *_convolution(shape[0]),
        *_convolution(32),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(32, **_KERAS),
        Dropout(0.25, _pooled(shape)),
        nn.Flatten(),
        nn.Linear(math.prod(_pooled(shape)), 128),
        nn.ReLU(),
        nn.BatchNorm1d(128, **_KERAS),
        Dropout(0.5, (128,)),
        nn.Linear(128, classes),
    )


def _cnn_paper(shape: Shape, classes: int) -> nn.Module:
    return nn.Sequential(
        *_convolution(shape[0]),
        *_convolution(32),
        nn.MaxPool2d(2),
        Dropout(0.25, _pooled(shape)),
        nn.Flatten(),
        nn.Linear(math.prod(_pooled(shape)), 128),
        nn.ReLU(),
        Dropout(0.5, (128,)),
        nn.Linear(128, classes),
    )


def _convolution(channels: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, 32, 3, padding="same"), nn.ReLU(), nn.BatchNorm2d(32, **_KERAS)


def _pooled(shape: Shape) -> Shape:
    """What is left of an image after pooling."""
    return 32, shape[1] // 2, shape[2] // 2


class Block(nn.Module):
    """Two normalised convolutions beside a shortcut; Keras' has biases and a bare shortcut."""

    def __init__(self, before: int, channels: int, stride: int, *, keras: bool) -> None:
        super().__init__()
        norm = _KERAS if keras else {}
        self.first = nn.Conv2d(before, channels, 3, stride, padding=1, bias=keras)
        self.first_norm = nn.BatchNorm2d(channels, **norm)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=keras)
        self.second_norm = nn.BatchNorm2d(channels, **norm)
        self.shortcut = nn.Sequential()
        if stride > 1 or before != channels:
            self.shortcut.append(nn.Conv2d(before, channels, 1, stride, bias=keras))
            if not keras:
                self.shortcut.append(nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the sum of both ways."""
        y = relu(self.first_norm(self.first(x)))
        passed: Tensor = self.shortcut(x)
        return relu(self.second_norm(self.second(y)) + passed)


def _residual(
    shape: Shape, classes: int, widths: tuple[int, ...], blocks: int, *, keras: bool
) -> nn.Module:
    """A 3 × 3 stem and stages of blocks, each after the first at half the resolution."""
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], widths[0], 3, padding=1, bias=keras),
        nn.BatchNorm2d(widths[0], **(_KERAS if keras else {})),
        nn.ReLU(),
    ]
    before = widths[0]
    for stage, channels in enumerate(widths):
        for k in range(blocks):
            stride = 2 if stage and not k else 1
            layers.append(Block(before, channels, stride, keras=keras))
            before = channels
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)
    return nn.Sequential(*layers, *head)


def _resnet18(shape: Shape, classes: int) -> nn.Module:
    return _residual(shape, classes, (64, 128, 256, 512), 2, keras=False)


def _resnet20(shape: Shape, classes: int) -> nn.Module:
    return _residual(shape, classes, (16, 32, 64), 3, keras=True)


NETWORKS: Mapping[str, Callable[[Shape, int], nn.Module]] = MappingProxyType(
    {"cnn": _cnn, "cnn-paper": _cnn_paper, "resnet18": _resnet18, "resnet20": _resnet20}
)
_STARTS: Mapping[str, Callable[[Tensor, Generator], None]] = MappingProxyType(
    {"cnn": _glorot, "cnn-paper": _glorot, "resnet18": _he, "resnet20": _he_of_keras}
)
