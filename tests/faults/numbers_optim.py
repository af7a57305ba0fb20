"""Numbers at the ends of their formats, given to the torch optimizers on every path.

A trial draws a method, a path, a format, a clock and gradients from zero to the largest number, and
holds the weights against the reference in float64; or it gives NaN or infinity and looks at what
``nonfinite`` makes of them; or hyperparameters at the ends of theirs.  The Triton kernel takes part
in Triton's interpreter, in a process of its own.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adahb import reference
from adahb.optim import HB, NAG, PSG, AdaHB, dispatch, narrow
from adahb.optim.kernels import triton
from adahb.sets import Box

Rows = dict[str, Counter[str]]

METHODS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "AdaHB": (AdaHB, {}),
    "AdaHB constant": (AdaHB, {"momentum": 0.9}),
    "HB": (HB, {}),
    "HB constant": (HB, {"momentum": 0.9}),
    "NAG": (NAG, {}),
    "PSG": (PSG, {}),
}
PATHS: dict[str, dict[str, Any]] = {
    "eager": {"foreach": False},
    "foreach": {"foreach": True},
    "compiled": {"fused": True},
    "on the device": {"capturable": True},
    "compensated": {"rounding": "compensated"},
}
NARROW: dict[str, dict[str, Any]] = {
    "bf16": {"state_dtype": "bf16"},
    "int8": {"state_dtype": "int8"},
}
BOUNDS: dict[str, dict[str, Any]] = {
    "free": {},
    "box": {"constraint": Box(-1.0, 1.0)},
    "box, paper": {"constraint": Box(-1.0, 1.0), "form": "paper"},
}
CLOCKS = (0, 2**24 - 1, 10**9, 2**31 - 2)
TICKS = (1, 3, 10**9)
SHAPES = ((), (0,), (5,), (3, 2), (130,))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ATOL = {torch.float32: 1e-43, torch.float64: 1e-320, torch.bfloat16: 1e-35, torch.float16: 4e-12}
"""What the smallest numbers of a format, and of the digits beside it, leave of a few steps."""
RTOL = {torch.float32: 2e-6, torch.float64: 1e-13, torch.bfloat16: 2e-6, torch.float16: 2e-6}
STEPS = 4


@dataclass(frozen=True)
class Trial:
    """Everything that a trial is made of: to be repeated, it is enough to have this."""

    seed: int
    method: str
    path: str
    dtype: torch.dtype
    bounds: str
    clock: int
    tick: int
    shape: tuple[int, ...]
    sizes: tuple[float, ...]
    """Of the gradients, one a step."""
    lr: float
    delta: float = 1e-8

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in asdict(self).items())


def extremes(dtype: torch.dtype) -> list[float]:
    """Sizes of gradients: the ends of a format, of the squares that it holds, and between."""
    f = torch.finfo(dtype)
    sizes = [0.0, f.smallest_normal * f.eps, f.smallest_normal, f.max, f.max / 2, 1.0, 1e-3]
    sizes += [1e-45, 1e-25, 1e-19, 1e-12, 1e12, 9e18, 1e19, 1e38, f.smallest_normal**0.5]
    return [size for size in sizes if size <= f.max]


def drawn(rng: np.random.Generator, seed: int, paths: list[str]) -> Trial:
    dtype = DTYPES[rng.integers(len(DTYPES))]
    sizes = rng.choice(extremes(dtype), STEPS)
    if rng.random() < 0.5:
        sizes[:] = sizes[0]
    method = str(rng.choice([*METHODS]))
    bounds = [*BOUNDS] if "HB" in method else ["free", "box"]
    return Trial(
        seed=seed,
        method=method,
        path=str(rng.choice(paths)),
        dtype=dtype,
        bounds=str(rng.choice(bounds)),
        clock=int(rng.choice(CLOCKS)),
        tick=int(rng.choice(TICKS)),
        shape=SHAPES[rng.integers(len(SHAPES))],
        sizes=tuple(map(float, sizes)),
        lr=float(10.0 ** rng.uniform(-12, 2)),
        delta=float(rng.choice([1e-8, 1e-3])),
    )


# ---------------------------------------------------------------- a trial


def made(trial: Trial, **more: Any) -> tuple[torch.nn.Parameter, Any]:
    """A parameter and its optimizer, on the clock of the trial, with nothing learned yet."""
    kind, options = METHODS[trial.method]
    rng = np.random.default_rng(trial.seed)
    start = torch.tensor(rng.uniform(-0.9, 0.9, trial.shape)).to(trial.dtype)
    if len(trial.shape) == 2:
        start = start.t().contiguous().t()
    p = torch.nn.Parameter(start)
    by_path = PATHS.get(trial.path) or NARROW.get(trial.path) or {}
    adaptive = {"delta": trial.delta} if kind is AdaHB else {}
    chosen = {**options, **by_path, **BOUNDS[trial.bounds], **adaptive, **more}
    optimizer = kind([p], **{"lr": trial.lr, "tick": trial.tick, **chosen})
    if trial.clock:
        lr, optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"], 0.0
        p.grad = torch.zeros_like(p)
        optimizer.step()  # makes the state
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][0]["clock"] += trial.clock
        saved["param_groups"][0]["lr"] = lr
        optimizer.load_state_dict(saved)
    return p, optimizer


def gradients(trial: Trial) -> list[torch.Tensor]:
    rng = np.random.default_rng(trial.seed + 1)
    found = []
    for size in trial.sizes:
        signs = rng.choice([-1.0, 1.0], trial.shape)
        found.append(torch.tensor(signs * rng.uniform(0.5, 1, trial.shape) * size).to(trial.dtype))
    return found


def weights(p: torch.nn.Parameter, optimizer: Any) -> np.ndarray:
    """What the parameter stands for, with the digits that are kept beside it."""
    low = optimizer.state[p].get("low")
    w = p.detach().double()
    return (w if low is None else narrow.joined(p.detach(), low, torch.float64)).numpy()


def expected(trial: Trial, optimizer: Any, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights after the steps by the reference, and the largest of all that went into them.

    The gradients are as the documentation has them: in the adaptive methods at most the root of
    half of the largest number or so.
    """
    group = optimizer.param_groups[0]
    schedule = type(optimizer)._schedule(group | {"lr": 1.0})
    settings = reference.Settings(
        group["constraint"],
        group.get("form", "averaging"),
        "metric",
        None,
        "independent",
        0,
    )
    most = optimizer._recipe(group).largest(trial.dtype)
    w = start.reshape(-1)
    point = reference.Point(w, 0 * w, w, 0 * w)
    held, reach = w, np.abs(w)
    for k, gradient in enumerate(gradients(trial), start=1):
        g = gradient.double().numpy().reshape(-1)
        if isinstance(optimizer, AdaHB):
            g = g.clip(-most, most)
        t = trial.clock + k
        at = schedule(t)
        scaled = at._replace(alpha=trial.lr * at.alpha, eta=trial.lr * at.eta)
        point = _step(t, point, g, schedule, scaled, settings)
        held = point.w
        if schedule.extrapolates:
            held = point.w + schedule(t + 1).beta1 * point.u
        size = np.abs(g) if not isinstance(optimizer, AdaHB) else 1 / np.sqrt(1 - at.beta2)
        if settings.constraint is None:
            reach = np.maximum(reach, np.abs(held) + np.abs(point.u))
        else:
            reach = np.maximum(reach, np.abs(held) + scaled.eta * size)
    return held.reshape(trial.shape), reach.reshape(trial.shape)


def _step(t: int, point: Any, g: np.ndarray, schedule: Any, at: Any, settings: Any) -> Any:
    """A step of the reference with the learning rate in its coefficients."""

    class Scaled:
        extrapolates = schedule.extrapolates

        def __call__(self, _: int) -> Any:
            return at

    return reference.take_step(t, point, lambda *_: (0.0, g), Scaled(), settings)[1]


def finite(trial: Trial) -> str:
    """Finite gradients: the weights are the reference's, or beyond what the format holds."""
    p, optimizer = made(trial)
    start = weights(p, optimizer) if trial.clock else p.detach().double().numpy()
    with np.errstate(all="ignore"):
        try:
            wanted, reach = expected(trial, optimizer, start.copy())
        except ValueError:  # of the set, which is given infinity
            return "beyond the format, as the reference is"
    for g in gradients(trial):
        p.grad = g
        optimizer.step()
    found = weights(p, optimizer)
    if p.numel() and int(optimizer.state[p]["clock"]) != trial.clock + STEPS:
        raise AssertionError(f"the clock is {optimizer.state[p]['clock']}: {trial}")
    beyond = ~(reach < 0.4 * float(torch.finfo(trial.dtype).max))
    with np.errstate(all="ignore"):
        error = np.abs(found - wanted)
        right = error <= RTOL[trial.dtype] * STEPS * reach + ATOL[trial.dtype]
    if not np.all(right | beyond):
        raise AssertionError(f"{found} should be {wanted}, of {reach}: {trial}")
    return "beyond the format, as the reference is" if beyond.any() else "right answer"


def bounded(trial: Trial) -> str:
    """States in few bits, or δ that no format holds: no NaN, and no step beyond the method's."""
    p, optimizer = made(trial)
    schedule = optimizer._schedule(optimizer.param_groups[0])
    before = weights(p, optimizer) if trial.clock else p.detach().double().numpy()
    most = 0.0
    for k, g in enumerate(gradients(trial), start=1):
        p.grad = g
        optimizer.step()
        at = schedule(trial.clock + k)
        adaptive = at.beta2 is not None
        size = 1 / (1 - at.beta2) ** 0.5 if adaptive else float(g.abs().max()) if g.numel() else 0.0
        most += trial.lr * size * max(at.alpha, at.eta)
    if most > 0.1 * min(float(torch.finfo(trial.dtype).max), 3e38):
        return "beyond the format, as the reference is"
    most *= STEPS + schedule.extrapolates  # the parameters of NAG are a step ahead
    limit = 1.1 * most + 1e-2 * np.abs(before) + ATOL[trial.dtype]
    moved = np.abs(weights(p, optimizer) - before)
    if not (moved <= limit).all():
        raise AssertionError(f"moved by {moved}, more than {limit}: {trial}")
    return "finite, and within the method's steps"


# ---------------------------------------------------------------- what is not finite


def not_finite(trial: Trial) -> str:
    """A NaN or an infinity somewhere, in some steps."""
    rng = np.random.default_rng(trial.seed + 2)
    how = ("skip", "raise", "propagate")[trial.seed % 3]
    if how == "raise" and trial.path == "on the device":
        how = "skip"
    given = gradients(trial)
    bad = {int(k) for k in rng.choice(STEPS, rng.integers(1, STEPS), replace=False)}
    spoilt = set()
    for k in sorted(bad):
        if given[k].numel():
            place = int(rng.integers(given[k].numel()))
            spoilt.add(place)
            given[k].view(-1)[place] = float(rng.choice([np.nan, np.inf, -np.inf]))
    bad = bad if spoilt else set()
    p, optimizer = made(trial, nonfinite=how)
    q, twin = made(trial)
    for k, g in enumerate(given):
        p.grad, q.grad = g, g.clone()
        if k in bad and how == "propagate":
            q.grad[~g.isfinite()] = 0.0
        if k in bad and how == "raise":
            _must_raise(optimizer, p, trial)
        else:
            optimizer.step()
        if k not in bad or how == "propagate":
            twin.step()
    if how == "propagate":
        found, wanted = p.detach().reshape(-1), q.detach().reshape(-1)
        clean = [i for i in range(p.numel()) if i not in spoilt]
        if trial.path != "int8" and not torch.equal(found[clean], wanted[clean]):
            raise AssertionError(f"{found} beside {wanted}: {trial}")
        if spoilt and BOUNDS[trial.bounds] == {} and found[[*spoilt]].isfinite().any():
            raise AssertionError(f"{found} hides what was not finite: {trial}")
        return "passed through, to its own weights"
    if not (torch.equal(p, q) and _same(optimizer.state[p], twin.state[q])):
        raise AssertionError(f"{p} is not {q}: {trial}")
    if optimizer.skipped_steps != (len(bad) if how == "skip" else 0):
        raise AssertionError(f"{optimizer.skipped_steps} skipped, should be {len(bad)}: {trial}")
    return {"skip": "left out and counted", "raise": "clear error, nothing changed"}[how]


def _must_raise(optimizer: Any, p: torch.nn.Parameter, trial: Trial) -> None:
    try:
        optimizer.step()
    except FloatingPointError as error:
        if f"shape {tuple(p.shape)}" not in str(error):
            raise AssertionError(f"{error} does not name the parameter: {trial}") from error
    else:
        raise AssertionError(f"no error: {trial}")


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


# ---------------------------------------------------------------- hyperparameters

HUGE, TINY, INF, NAN = 1e300, 1e-300, float("inf"), float("nan")
VALUES: dict[str, tuple[Any, ...]] = {
    "lr": (0.0, 5e-324, TINY, 1e30, HUGE, INF, NAN, -1.0, 10**400, torch.tensor(NAN)),
    "gamma": (1.0, TINY, 5e-324, 1 + 1e-15, 0.0, NAN, INF, -TINY),
    "delta": (5e-324, TINY, 1e-30, 1e30, HUGE, 0.0, NAN, INF, -1.0),
    "momentum": (0.0, TINY, 1 - 2**-53, 1.0, NAN, -TINY),
    "power": (0.0, TINY, 1e30, HUGE, NAN, INF, -1.0),
    "weight_decay": (0.0, TINY, 1e3, HUGE, NAN, INF, -TINY),
    "tick": (1, 10**9, 2**53, 2**53 + 1, 10**400, 0, -1, 1.5, NAN),
}


def hyperparameter(trial: Trial) -> str:
    """Each is refused by its name, or makes finite weights of zero and of moderate gradients."""
    rng = np.random.default_rng(trial.seed + 3)
    name = str(rng.choice([*VALUES]))
    value = VALUES[name][rng.integers(len(VALUES[name]))]
    dtype = DTYPES[rng.integers(len(DTYPES))]
    p = torch.nn.Parameter(torch.tensor([0.5, 0.0, -0.25], dtype=dtype))
    try:
        optimizer = AdaHB(
            [p], **{"lr": 1e-3, **PATHS[trial.path], **BOUNDS[trial.bounds], name: value}
        )
        for size in (0.0, 1.0, 0.0, -1.0):
            p.grad = size * torch.tensor([1.0, 0.0, -0.1], dtype=dtype)
            optimizer.step()
    except (ValueError, TypeError) as error:
        if not str(error).startswith(f"{name} must be"):
            raise AssertionError(f"{name}={value!r} gives {error}: {trial}") from error
        return "clear error"
    largest = 60000.0 if dtype is torch.float16 else 1e37
    diverges = name in ("lr", "weight_decay") and value * 100 > largest
    if not (diverges or p.isfinite().all()):
        raise AssertionError(f"{name}={value!r} makes {p}: {trial}")
    return "finite weights" if p.isfinite().all() else "beyond the format, as the reference is"


def start(trial: Trial) -> str:
    """Initial weights, or losses of closures, that are not finite."""
    p, optimizer = made(trial)
    q, twin = made(trial)
    bad = (np.nan, np.inf, -np.inf)[trial.seed % 3]
    if not p.numel():
        return "nothing to spoil"
    with torch.no_grad():
        p[(0,) * p.ndim] = bad
    for g in gradients(trial):
        p.grad, q.grad = g, g
        try:
            loss = optimizer.step(lambda: torch.tensor(bad))
        except ValueError as error:
            if f"a parameter of shape {tuple(p.shape)} must be finite" not in str(error):
                raise
            return "clear error"
        twin.step()
        if loss.isfinite():
            raise AssertionError(f"the loss {loss} is not the closure's: {trial}")
    found, wanted = p.detach().reshape(-1), q.detach().reshape(-1)
    if not torch.equal(found[1:], wanted[1:]):
        raise AssertionError(f"{p} beside {q}: {trial}")
    if trial.bounds == "free" and found[0].isfinite():
        raise AssertionError(f"{p} hides a weight that was not finite: {trial}")
    return "stays with its own weight"


# ---------------------------------------------------------------- all of them


KINDS: dict[str, tuple[int, Callable[[Trial], str]]] = {
    "finite gradients at the ends of a format": (40_000, finite),
    "NaN and infinite gradients under nonfinite": (20_000, not_finite),
    "initial weights and losses that are not finite": (6_000, start),
    "hyperparameters at the ends of their ranges": (12_000, hyperparameter),
    "gradients at the ends of a format, states in few bits": (10_000, bounded),
    "delta that no format holds": (10_000, bounded),
}
"""What is tried, and how often at scale 1."""


def adapted(kind: str, trial: Trial) -> Trial:
    """The trial in the form in which a kind takes it."""
    changes: dict[str, Any] = {}
    if kind.endswith("few bits"):
        changes = {"path": [*NARROW][trial.seed % 2]}
    elif kind.startswith("delta"):
        changes = {"delta": (1e-300, 1e-155, 1e-60, 1e-30)[trial.seed % 4], "method": "AdaHB"}
    elif kind.startswith(("NaN", "initial")):
        moderate = (1.0, 1e-3, 0.0, 1e3, 1e-12)
        sizes = tuple(moderate[(trial.seed + k) % 5] for k in range(STEPS))
        changes = {"sizes": sizes, "lr": min(trial.lr, 1.0), "shape": trial.shape or (2,)}
    return Trial(**{**vars(trial), **changes})


def tried(scale: float, seed: int, paths: list[str]) -> Rows:
    """Make the trials, which differ in their seed."""
    rows: Rows = defaultdict(Counter)
    for number, (kind, (count, judge)) in enumerate(KINDS.items()):
        for k in range(max(1, round(scale * count))):
            own = seed + 10**9 * number + k
            trial = adapted(kind, drawn(np.random.default_rng(own), own, paths))
            try:
                rows[kind][judge(trial)] += 1
            except AssertionError:
                raise
            except Exception as error:
                raise AssertionError(f"{type(error).__name__}: {error}: {trial}") from error
    return rows


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warning that a kernel which was asked for cannot make some step."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fused=True falls back")
        yield


@contextmanager
def through_triton() -> Iterator[None]:
    """Every step that the Triton kernel can make, made by it in its interpreter."""

    def choose(group: Any, batch: Any, on_device: bool) -> Any:
        recipe = batch_recipe(group, batch)
        objection = triton.supports(batch, recipe)
        if objection is not None:
            raise AssertionError(f"the Triton kernel leaves a step to others: {objection}")
        return dispatch._compiled(group, triton, on_device)

    def batch_recipe(group: Any, batch: Any) -> Any:
        kind = AdaHB if batch.squares else HB if "momentum" in group else PSG
        return kind([torch.zeros(1)])._recipe(group)

    original, dispatch._choose = dispatch._choose, choose
    try:
        yield
    finally:
        dispatch._choose = original


def by_triton(scale: float, seed: int) -> Rows:
    """The same trials in another process, where the Triton kernel is interpreted."""
    command = [sys.executable, str(Path(__file__).resolve()), str(scale), str(seed)]
    done = subprocess.run(
        command,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return {
        f"{kind} (Triton)": Counter(outcomes)
        for kind, outcomes in json.loads(done.stdout.splitlines()[-1]).items()
    }


def soak(scale: float, folder: Path) -> dict[str, Any]:
    """All kinds of trials; a wrong outcome raises AssertionError with the trial that had it."""
    seed, begun = 20210, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with quietly():
            rows = tried(scale, seed, [*PATHS])
        if find_spec("triton") is not None:
            rows |= by_triton(scale / 20, seed)
    finally:
        torch.set_num_threads(begun)
    return {
        "rows": [
            {"kind": kind, "tried": sum(outcomes.values()), "outcomes": dict(outcomes)}
            for kind, outcomes in rows.items()
        ],
        "defects": 0,
        "seed": seed,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    with quietly(), through_triton():
        print(json.dumps(tried(float(sys.argv[1]), int(sys.argv[2]), ["eager", "on the device"])))  # noqa: T201
