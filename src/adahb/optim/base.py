"""What the four optimizers share: groups, state, the clock, and the choice of a kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _use_grad_for_differentiable

from adahb import _checks as check
from adahb.optim import dispatch
from adahb.optim.update import Batch, Numbers, Recipe
from adahb.schedules import PSG, Adaptive, HBConstant, Schedule
from adahb.sets import ConvexSet, from_dict

Form = Literal["averaging", "paper"]
Projection = Literal["metric", "euclidean"]
Group = dict[str, Any]

CLOCK, BUFFER, SQUARE, AVERAGE = "step", "buffer", "square", "average"


@dataclass
class Bucket:
    """Parameters that share a clock, and so take the same numbers."""

    clock: Tensor
    members: list[Tensor] = field(default_factory=list)
    batch: Batch = field(default_factory=Batch)


class HeavyBall(Optimizer):
    """Base of the optimizers; a subclass says which schedule a group's options make."""

    @staticmethod
    def _schedule(group: Group) -> Schedule:  # noqa: ARG004
        """The schedule of a group's options with α = 1; the learning rate multiplies it later."""
        raise TypeError("HeavyBall is the base of AdaHB, HB, NAG and PSG; use one of them")

    # ---------------------------------------------------------------- groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with options of their own where they are given."""
        known = {"params", "param_names", *self.defaults}
        for name in set(param_group) - known:
            raise ValueError(
                f"{type(self).__name__} has no option {name!r}; it has {', '.join(self.defaults)}"
            )
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except BaseException:
            self.param_groups.pop()
            raise

    def _check(self, group: Group) -> None:
        """Refuse options outside the theory, by name, and start inside the constraint."""
        if isinstance(group["lr"], Tensor):
            if group["lr"].numel() != 1:
                raise ValueError(f"lr must be a number or one element, got {group['lr']!r}")
        else:
            check.number("lr", group["lr"], at_least=0)
        check.number("weight_decay", group["weight_decay"], at_least=0)
        check.choice("form", group["form"], ("averaging", "paper"))
        check.choice("projection", group["projection"], ("metric", "euclidean"))
        if group["foreach"] and group["fused"]:
            raise ValueError("foreach and fused must not both be True")
        if group["differentiable"] and (group["foreach"] or group["fused"]):
            raise ValueError("differentiable=True must go without foreach=True and fused=True")
        if group.get("momentum") is not None:
            check.number("momentum", group["momentum"], at_least=0, below=1)
            if group["power"]:
                raise ValueError(f"power must be 0 with constant momentum, got {group['power']!r}")
        self._schedule(group)
        constraint = group["constraint"]
        if constraint is None:
            return
        if not isinstance(constraint, ConvexSet):
            raise TypeError(f"constraint must be a set of adahb.sets or None, got {constraint!r}")
        for p in group["params"]:
            _start_inside(p, constraint)

    # ---------------------------------------------------------------- the step

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step; return the closure's loss if there is one.

        A step with a learning rate of zero creates the state and leaves the clock where it is.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            schedule, recipe = self._schedule(group), self._recipe(group)
            on_device = group["capturable"] or torch.compiler.is_compiling()
            lr = group["lr"] if on_device else float(group["lr"])
            for bucket in self._buckets(group, recipe):
                if on_device:
                    bucket.clock += lr != 0
                elif lr != 0:
                    bucket.clock += 1
                else:
                    continue
                at = _numbers(schedule, lr, bucket.clock if on_device else int(bucket.clock))
                dispatch.kernel(group, bucket.batch, at)(bucket.batch, at, recipe)
        return loss

    def _recipe(self, group: Group) -> Recipe:
        schedule = self._schedule(group)
        return Recipe(
            adaptive=isinstance(schedule, Adaptive),
            averaging=(
                group["form"] == "averaging"
                and group["constraint"] is not None
                and not schedule.extrapolates
            ),
            extrapolates=schedule.extrapolates,
            keeps_average=isinstance(schedule, PSG | HBConstant),
            maximize=group["maximize"],
            weight_decay=group["weight_decay"],
            decoupled=group["decoupled_weight_decay"],
            constraint=group["constraint"],
            metric=group["projection"] == "metric",
        )

    def _buckets(self, group: Group, recipe: Recipe) -> list[Bucket]:
        """The parameters with a gradient, by clock; a clock is not shared with those without."""
        buckets: list[Bucket] = []
        waiting: list[Tensor] = []
        fresh: Tensor | None = None
        for p in group["params"]:
            if p.grad is None:
                if p in self.state:
                    waiting.append(self.state[p][CLOCK])
                continue
            state = self.state[p]
            if not state:
                if fresh is None or fresh.device != _clock_device(p, group):
                    fresh = torch.zeros((), dtype=torch.int64, device=_clock_device(p, group))
                self._start(p, state, fresh, recipe)
            bucket = next((b for b in buckets if b.clock is state[CLOCK]), None)
            if bucket is None:
                bucket = Bucket(state[CLOCK])
                buckets.append(bucket)
            bucket.members.append(p)
            _put(bucket.batch, p, p.grad, state)
        for bucket in buckets:
            if any(clock is bucket.clock for clock in waiting):
                bucket.clock = bucket.clock.clone()
                for p in bucket.members:
                    self.state[p][CLOCK] = bucket.clock
        return buckets

    @staticmethod
    def _start(p: Tensor, state: Group, clock: Tensor, recipe: Recipe) -> None:
        """Create the state of a parameter, in its layout and on its device."""
        at = p.detach()
        state[CLOCK] = clock
        state[BUFFER] = at.clone() if recipe.averaging else torch.zeros_like(at)
        if recipe.adaptive:
            state[SQUARE] = torch.zeros_like(at.real if torch.is_complex(at) else at)
        if recipe.keeps_average:
            state[AVERAGE] = at.clone()

    # ---------------------------------------------------------------- the guaranteed output

    @contextmanager
    def averaged_parameters(self) -> Iterator[None]:
        """Hold, inside the context, the output that the guarantee is about.

        With constant momentum and for PSG that is the average; for NAG it is w, where training
        holds the point at which gradients are taken.  Otherwise it is what the parameters hold
        anyway.  Training goes on afterwards from what they held before, whatever happens inside.
        """
        held: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for group in self.param_groups:
                for p, output in self._outputs(group):
                    held.append((p, p.detach().clone()))
                    p.copy_(output)
        try:
            yield
        finally:
            with torch.no_grad():
                for p, before in held:
                    p.copy_(before)

    def _outputs(self, group: Group) -> Iterator[tuple[Tensor, Tensor]]:
        schedule = self._schedule(group)
        for p in group["params"]:
            state = self.state.get(p, {})
            if AVERAGE in state:
                yield p, state[AVERAGE]
            elif schedule.extrapolates and state:
                yield p, p - schedule(int(state[CLOCK]) + 1).beta1 * state[BUFFER]

    # ---------------------------------------------------------------- saving and loading

    def state_dict(self) -> Group:
        """The state as plain data: numbers, tensors, lists; sets as what they are made of."""
        saved = super().state_dict()
        for group in saved["param_groups"]:
            if isinstance(group["constraint"], ConvexSet):
                group["constraint"] = group["constraint"].to_dict()
        return saved

    def load_state_dict(self, state_dict: Group) -> None:
        """Take up a saved state, every tensor in the dtype it was saved in."""
        self._check_saved(state_dict)
        groups = [dict(group) for group in state_dict["param_groups"]]
        for group in groups:
            if isinstance(group["constraint"], dict):
                group["constraint"] = from_dict(group["constraint"])
        super().load_state_dict({**state_dict, "param_groups": groups})
        names = [name for group in groups for name in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        clocks: dict[tuple[torch.device, int], Tensor] = {}
        for name, p in zip(names, params, strict=True):
            for key, value in state_dict["state"].get(name, {}).items():
                if key == CLOCK:
                    device = self.state[p][key].device
                    clock = value.to(device, torch.int64, copy=True)
                    self.state[p][key] = clocks.setdefault((device, int(clock)), clock)
                elif isinstance(value, Tensor):  # torch has cast it to the parameter's dtype
                    self.state[p][key] = value.to(p.device, copy=True)

    def _check_saved(self, state_dict: Group) -> None:
        for group in state_dict["param_groups"]:
            if set(self.defaults) - set(group):
                raise ValueError(
                    f"the state is not one of {type(self).__name__}: its groups have no "
                    f"{sorted(set(self.defaults) - set(group))[0]!r}"
                )
        for state in state_dict["state"].values():
            if state and not {CLOCK, BUFFER} <= set(state):
                raise ValueError(
                    f"the state is not one of {type(self).__name__}: it holds {sorted(state)}"
                )


def _start_inside(p: Tensor, constraint: ConvexSet) -> None:
    if torch.is_complex(p):
        raise TypeError(f"constraint={constraint!r} needs real parameters, got {p.dtype}")
    with torch.no_grad():
        if not constraint.contains(p):
            warnings.warn(
                f"a parameter of shape {tuple(p.shape)} starts outside of {constraint!r}: it is "
                "projected",
                stacklevel=5,
            )
            p.copy_(constraint.project(p))


def _clock_device(p: Tensor, group: Group) -> torch.device:
    """Host, unless the step is captured or compiled: then the clock is data on the device."""
    return p.device if group["capturable"] else torch.device("cpu")


def _numbers(schedule: Schedule, lr: float | Tensor, step: int | Tensor) -> Numbers:
    """The schedule's coefficients at a step, times the learning rate where it belongs."""
    at = schedule(step)
    return Numbers(
        alpha=lr * at.alpha,
        beta1=at.beta1,
        eta=lr * at.eta,
        c=at.c,
        beta2=at.beta2,
        delta=at.delta,
        beta1_next=schedule(step + 1).beta1 if schedule.extrapolates else at.beta1,
        share=1.0 / step,
    )


def _put(batch: Batch, p: Tensor, grad: Tensor, state: Group) -> None:
    batch.params.append(p)
    batch.grads.append(grad.to_dense() if grad.is_sparse else grad)
    batch.buffers.append(state[BUFFER])
    if SQUARE in state:
        batch.squares.append(state[SQUARE])
    if AVERAGE in state:
        batch.averages.append(state[AVERAGE])
