"""How long an optimizer's step takes, beside those that one would use otherwise.

All contenders of a case step the same parameters with the same gradients, in turn, so that what the
machine does meanwhile meets all alike.  A turn is a burst of steps, timed from an idle device until
it is idle again: ``seconds`` is a step's share of that, with the host's work, as a training loop
waits for it.  ``host`` is the share of the time until the last call has returned, which a loop that
keeps the device busy with other things can hide.

A copy of a large array takes its turns too.  ``copy bandwidth`` is how much of what it moves in a
second the step moves, counting what a step must read and write at least: for AdaHB and Adam in
float32 w, g and two states read and all but g written, 28 bytes a parameter.

``peak bytes`` is the most that making the state and two steps took beyond parameters and gradients,
on a GPU; ``state bytes`` what of it stays.  Both are per parameter.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from adahb import HB, AdaHB
from adahb import _checks as check

Json: TypeAlias = dict[str, Any]
Shapes: TypeAlias = list[tuple[int, ...]]
Maker: TypeAlias = Callable[[list[Tensor]], Any]

_YARDSTICK = "torch Adam fused"
_PEERS: tuple[tuple[str, str, Json], ...] = (
    ("schedulefree", "AdamWScheduleFree", {}),
    ("heavyball", "AdamW", {"consume_grad": False}),
    ("pytorch_optimizer", "AdaBelief", {}),
)
"""Measured where they are installed."""
_COMPILES, _MOST_COMPILED = "heavyball", 1000
"""The peer that compiles its step, and the most tensors for which that is waited for."""
_BURST = 0.02
"""Seconds that a burst shall take."""
_MOST = 1.5
"""Seconds that all bursts of one contender may take."""


@dataclass
class Contender:
    """What takes turns: a call, and what is known of it beforehand and measured."""

    step: Callable[[], Any]
    moved: int | None
    """Bytes that a call must move; None where nobody counts."""
    burst: int = 1
    turns: int = 1
    seconds: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)
    facts: Json = field(default_factory=dict)


def run(
    device: str = "cpu", repeats: int = 15, *, scale: float = 1.0, out: Path | None = None
) -> Json:
    """Time every contender on every case and return plain data, seconds throughout.

    Args:
        device: "cpu" or "cuda".
        repeats: How many turns each contender gets, if they do not take too long.
        scale: Multiplies the sizes of all tensors and, for many, their number.
        out: A file that holds what has been measured so far, rewritten after every case.
    """
    check.choice("device", device, ("cpu", "cuda"))
    repeats = check.integer("repeats", repeats, at_least=1)
    scale = check.number("scale", scale, above=0, at_most=1)
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device='cuda' needs a CUDA device, and torch sees none")
    found: Json = {
        "benchmark": "step",
        "device": device,
        "dtype": "float32",
        "repeats": repeats,
        "scale": scale,
        "machine": _machine(device),
        "cases": [],
    }
    for name, shapes in cases(device, scale):
        found["cases"].append(_case(name, shapes, device, repeats, scale))
        if out is not None:
            out.write_text(json.dumps(found, indent=1) + "\n")
    return found


# -------------------------------------------------------------------- cases and contenders


def cases(device: str, scale: float = 1.0) -> Iterator[tuple[str, Shapes]]:
    """The names and shapes of the parameters."""
    single = {"cuda": (256,), "cpu": (64, 11.7)}[device]
    for millions in single:
        yield f"one tensor of {millions:g} M", [(max(1, int(millions * 1e6 * scale)),)]
    for name, shapes in (("GPT-2 124 M", gpt2()), ("ResNet-18", resnet18())):
        yield name, [(max(1, int(shape[0] * scale)), *shape[1:]) for shape in shapes]
    yield "many tensors of 100", [(100,)] * max(1, int(10_000 * scale))


def gpt2() -> Shapes:
    """The parameters of the 124 M GPT-2: 148 tensors."""
    d = 768
    norm: Shapes = [(d,), (d,)]
    maps: list[Shapes] = [[(n, m), (m,)] for n, m in ((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))]
    layer = [*norm, *maps[0], *maps[1], *norm, *maps[2], *maps[3]]
    return [(50257, d), (1024, d), *layer * 12, *norm]


def resnet18() -> Shapes:
    """The parameters of ResNet-18 for 1000 classes: 62 tensors."""

    def normed(to: int, of: int, width: int) -> Shapes:
        return [(to, of, width, width), (to,), (to,)]

    shapes = normed(64, 3, 7)
    before = 64
    for channels in (64, 128, 256, 512):
        for of in (before, channels):
            shapes += normed(channels, of, 3) + normed(channels, channels, 3)
            if of != channels:
                shapes += normed(channels, of, 1)
        before = channels
    return [*shapes, (1000, 512), (1000,)]


def contenders(device: str) -> dict[str, tuple[Maker, int | None]]:
    """Makers of the optimizers, each with the bytes a step must move for a float32 parameter."""
    kernels: dict[str, Json] = {
        "": {},
        " fused": {"fused": True},
        " foreach": {"foreach": True},
        " eager": {"foreach": False, "fused": False},
    }
    made: dict[str, tuple[Maker, int | None]] = {}
    for name, options in kernels.items():
        made[f"AdaHB{name}"] = _maker(AdaHB, options), 28
        made[f"HB{name}"] = _maker(HB, options), 20
    if device == "cuda":  # on a CPU what is narrow is for small memory, not for speed
        made["AdaHB bf16"] = _maker(AdaHB, {"state_dtype": "bf16"}), 20
        made["AdaHB int8"] = _maker(AdaHB, {"state_dtype": "int8"}), 16
        made["AdaHB compensated"] = _maker(AdaHB, {"rounding": "compensated"}), 32
    made[_YARDSTICK] = _maker(torch.optim.Adam, {"fused": True}), 28
    made["torch Adam foreach"] = _maker(torch.optim.Adam, {"foreach": True}), 28
    momentum = {"momentum": 0.9, "fused": True}
    made["torch SGD momentum fused"] = _maker(torch.optim.SGD, momentum), 20
    for module, cls, options in _PEERS:
        try:
            made[f"{module} {cls}"] = _maker(getattr(import_module(module), cls), options), None
        except (ImportError, AttributeError):
            continue
    return made


def _maker(cls: Any, options: Json) -> Maker:
    def make(params: list[Tensor]) -> Any:
        optimizer = cls(params, lr=1e-3, **options)
        if cls.__module__.startswith("schedulefree"):
            optimizer.train()
        return optimizer

    return make


# -------------------------------------------------------------------- measuring


def _case(name: str, shapes: Shapes, device: str, repeats: int, scale: float) -> Json:
    generator = torch.Generator(device).manual_seed(0)
    params = []
    for shape in shapes:
        w, g = (torch.randn(shape, generator=generator, device=device) for _ in range(2))
        w.requires_grad_()
        w.grad = g.mul_(1e-2)
        params.append(w)
    count = sum(p.numel() for p in params)
    ready = {"copy": _copy(device, scale)}
    failed = {}
    for title, (make, moved) in contenders(device).items():
        if title.startswith(_COMPILES) and len(params) > _MOST_COMPILED:
            failed[title] = f"left out: it compiles its step, for {len(params)} tensors too long"
            continue
        try:
            ready[title] = _started(make, params, device, None if moved is None else moved * count)
        except Exception as error:  # a peer that cannot run here is no reason to stop
            failed[title] = f"{type(error).__name__}: {error}"[:300]
    for contender in ready.values():
        _paced(contender, device, repeats)
    for turn in range(repeats):
        for contender in ready.values():
            if turn < contender.turns:
                _take_turn(contender, device)
    return {
        "name": name,
        "tensors": len(params),
        "parameters": count,
        "contenders": {title: _facts(c, ready) for title, c in ready.items()},
        "failed": failed,
    }


def _started(make: Maker, params: list[Tensor], device: str, moved: int | None) -> Contender:
    """An optimizer that has made its first steps, with what it took of memory."""
    on_gpu = device == "cuda"
    before = 0
    if on_gpu:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    grads = [p.grad for p in params]
    optimizer = make(params)
    for _ in range(2):
        optimizer.step()
    _wait(device)
    if any(p.grad is not g for p, g in zip(params, grads, strict=True)):
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        raise RuntimeError("it takes the gradients away, and others need them")
    peak = torch.cuda.max_memory_allocated() - before if on_gpu else None
    count = sum(p.numel() for p in params)
    facts = {
        "state bytes": _state_bytes(optimizer) / count,
        "peak bytes": None if peak is None else peak / count,
    }
    return Contender(optimizer.step, moved, facts=facts)


def _copy(device: str, scale: float) -> Contender:
    n = int({"cuda": 256e6, "cpu": 64e6}[device] * scale) + 1
    source = torch.ones(n, device=device)
    target = torch.zeros(n, device=device)
    return Contender(lambda: target.copy_(source), 8 * n)


def _paced(contender: Contender, device: str, repeats: int) -> None:
    """Warm up, and choose as many steps a burst and turns as time allows."""
    seconds = min(_burst(contender.step, 2, device)[0] for _ in range(2))
    contender.burst = min(100, max(1, round(_BURST / seconds)))
    contender.turns = min(repeats, max(2, round(_MOST / (seconds * contender.burst))))


def _take_turn(contender: Contender, device: str) -> None:
    contender.step()  # what it needs is in the caches again, and its memory taken
    whole, host = _burst(contender.step, contender.burst, device)
    contender.seconds.append(whole)
    contender.host.append(host)


def _burst(step: Callable[[], Any], steps: int, device: str) -> tuple[float, float]:
    """Seconds a step, until the device is done and until the calls are."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(steps):
        step()
    returned = time.perf_counter()
    _wait(device)
    return (time.perf_counter() - start) / steps, (returned - start) / steps


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _facts(contender: Contender, ready: dict[str, Contender]) -> Json:
    median = statistics.median(contender.seconds)
    facts: Json = {
        "seconds": {"median": median, "min": min(contender.seconds)},
        "host": {"median": statistics.median(contender.host)},
        "burst": contender.burst,
        "turns": len(contender.seconds),
        **contender.facts,
    }
    if _YARDSTICK in ready:
        yardstick = ready[_YARDSTICK].seconds
        facts[f"time over {_YARDSTICK}"] = {
            "median": median / statistics.median(yardstick),
            "min": min(contender.seconds) / min(yardstick),
        }
    if contender.moved is not None:
        copy = ready["copy"]
        assert copy.moved is not None
        facts["bytes a second"] = contender.moved / median
        full = copy.moved / statistics.median(copy.seconds)
        facts["copy bandwidth"] = contender.moved / median / full
    return facts


def _state_bytes(optimizer: Any) -> int:
    """Bytes of all distinct tensors in an optimizer's state, however deep they lie."""
    seen: dict[int, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Tensor):
            seen[id(value)] = value.numel() * value.element_size()
        elif isinstance(value, dict):
            for item in value.values():
                visit(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)

    visit(dict(optimizer.state))
    return sum(seen.values())


def _machine(device: str) -> Json:
    versions: dict[str, str | None] = {}
    for name in ("adahb", "torch", "triton", "numpy", "numba", *(peer for peer, *_ in _PEERS)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    facts: Json = {
        "python": platform.python_version(),
        "versions": versions,
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
    }
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = torch.version.cuda
    return facts
