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
    """Dropout whose noise comes from a generator of the run's own.

    Runs that share a device then do not draw from one another's noise, in whatever order they go.
    """

    def __init__(self, rate: float, generator: Generator) -> None:
        super().__init__()
        self.rate, self.generator = rate, generator

    def forward(self, x: Tensor) -> Tensor:
        """Zero a share ``rate`` of the entries, at random, and scale up the rest."""
        if not self.training:
            return x
        kept = torch.empty_like(x, dtype=torch.float32).bernoulli_(
            1.0 - self.rate, generator=self.generator
        )
        return x * kept.to(x.dtype) / (1.0 - self.rate)


def network(
    name: str, shape: Shape, classes: int, *, seed: int, generator: Generator | None = None
) -> nn.Module:
    """A freshly initialised network for images of ``shape`` (channels, height, width).

    The weights depend on ``seed`` alone, wherever they go afterwards; dropout draws from
    ``generator``, which belongs to the device of the training.
    """
    maker = NETWORKS[check.choice("name", name, NETWORKS)]
    made = maker(shape, classes, generator or Generator().manual_seed(seed))
    start = Generator().manual_seed(seed)
    for module in made.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            _STARTS[name](module.weight, start)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return made


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


def _cnn(shape: Shape, classes: int, generator: Generator) -> nn.Module:
    return nn.Sequential(
        *_convolution(shape[0]),
        *_convolution(32),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(32, **_KERAS),
        Dropout(0.25, generator),
        nn.Flatten(),
        nn.Linear(_flat(shape), 128),
        nn.ReLU(),
        nn.BatchNorm1d(128, **_KERAS),
        Dropout(0.5, generator),
        nn.Linear(128, classes),
    )


def _cnn_paper(shape: Shape, classes: int, generator: Generator) -> nn.Module:
    return nn.Sequential(
        *_convolution(shape[0]),
        *_convolution(32),
        nn.MaxPool2d(2),
        Dropout(0.25, generator),
        nn.Flatten(),
        nn.Linear(_flat(shape), 128),
        nn.ReLU(),
        Dropout(0.5, generator),
        nn.Linear(128, classes),
    )


def _convolution(channels: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, 32, 3, padding="same"), nn.ReLU(), nn.BatchNorm2d(32, **_KERAS)


def _flat(shape: Shape) -> int:
    """How many numbers are left of an image after pooling."""
    return 32 * (shape[1] // 2) * (shape[2] // 2)


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


def _resnet18(shape: Shape, classes: int, _: Generator) -> nn.Module:
    return _residual(shape, classes, (64, 128, 256, 512), 2, keras=False)


def _resnet20(shape: Shape, classes: int, _: Generator) -> nn.Module:
    return _residual(shape, classes, (16, 32, 64), 3, keras=True)


NETWORKS: Mapping[str, Callable[[Shape, int, Generator], nn.Module]] = MappingProxyType(
    {"cnn": _cnn, "cnn-paper": _cnn_paper, "resnet18": _resnet18, "resnet20": _resnet20}
)
_STARTS: Mapping[str, Callable[[Tensor, Generator], None]] = MappingProxyType(
    {"cnn": _glorot, "cnn-paper": _glorot, "resnet18": _he, "resnet20": _he_of_keras}
)
