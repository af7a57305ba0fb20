"""What the four optimizers share: groups, the clock, the step, and the output it is all about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import repeat
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from adahb._whole import Whole
from adahb.optim import dispatch, narrow, nonfinite, scaling, sharding
from adahb.optim import options as allowed
from adahb.optim import state as kept
from adahb.optim.kernels import graphs
from adahb.optim.numbers import largest_rate, learning_rate, numbers
from adahb.optim.options import Group
from adahb.optim.plan import Plan, parted
from adahb.optim.update import STATES, Batch, Numbers, Recipe
from adahb.schedules import PSG, Adaptive, HBConstant, Schedule

if TYPE_CHECKING:
    from adahb.sets.sharded import ShardedSet

Form = Literal["averaging", "paper"]
Projection = Literal["metric", "euclidean"]


class HeavyBall(Optimizer):
    """Base of the optimizers; a subclass says which schedule a group's options make.

    Parameters that have made all their steps together share one clock, a tensor, and are updated in
    one call of a kernel.  A parameter without a gradient stands still, and its clock with it.
    """

    _step_supports_amp_scaling = True
    """Tells GradScaler that the step divides by its scale, and skips itself on overflow."""

    _partings = 0
    """How often parameters that shared a clock have parted; a compiled step is valid for one."""

    _plans: Mapping[int, Plan] = MappingProxyType({})
    """By the identity of its group, the plan of a group whose parameters all had gradients."""

    _on_mesh = False
    """Whether any parameter is a DTensor."""

    _unsound: Tensor | None = None
    """During a step, not zero if it must be left out; None if nobody has looked at gradients."""

    @staticmethod
    def _schedule(group: Group) -> Schedule:  # noqa: ARG004
        """The schedule of a group's options with α = 1; the learning rate multiplies it later."""
        raise TypeError("HeavyBall is the base of AdaHB, HB, NAG and PSG; use one of them")

    # ---------------------------------------------------------------- groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with options of their own where they are given."""
        if isinstance(param_group, dict):  # what is not, torch refuses
            allowed.check_names(type(self).__name__, param_group, self.defaults)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            self._check_options(group)
        except BaseException:
            self.param_groups.pop()
            raise
        nonfinite.prepare(group)
        self._on_mesh = self._on_mesh or any(map(sharding.is_dtensor, group["params"]))
        if group["constraint"] is not None:
            for p in group["params"]:
                allowed.start_inside(p, group["constraint"])

    def _check_options(self, group: Group) -> None:
        """Refuse options that mean nothing, or not for these parameters."""
        allowed.check_values(group)
        self._schedule(group)
        allowed.check_constraint(group)

    # ---------------------------------------------------------------- the step

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step; return the closure's loss if there is one.

        A step with a learning rate of zero creates the state and changes nothing else: neither the
        clock nor what has been learned moves.  An interruption (Ctrl-C) comes before or after what
        the step does to parameters and state, never in between.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with nullcontext() if torch.compiler.is_compiling() else Whole():
            self._unsound = nonfinite.look(self, scaling.found_by_scaler(self))
            try:
                for group in self.param_groups:
                    with torch.set_grad_enabled(group["differentiable"]):
                        self._step(group)
            finally:
                self._unsound = None
        return loss

    @property
    def skipped_steps(self) -> int:
        """How many steps ``nonfinite="skip"`` has left out; asking waits for the device."""
        counts = [group[nonfinite.COUNT] for group in self.param_groups if nonfinite.COUNT in group]
        return max(map(int, counts), default=0)

    def _step(self, group: Group) -> None:
        if scaling.is_refused(self, group):
            return
        plan = self._same_plan(group) or self._new_plan(group)
        if self._partings < 0 or not plan.clocks:  # read, so that a compiled step depends on it
            return
        on_device = plan.clocks[0].is_cuda or group["capturable"] or torch.compiler.is_compiling()
        lr = learning_rate(group, on_device, plan.largest_rate)
        if (on_device and isinstance(lr, Tensor)) or lr > 0:
            tick = self._tick_on_device if on_device else self._tick
            ready = [tick(plan, place, lr) for place in range(len(plan.clocks))]
            for batch, recipe, which in plan.batches:
                at = ready[which].within(recipe.largest(batch.params[0].dtype))
                dispatch.kernel(group, batch, at)(batch, at, recipe)
        plan.drop_gradients()

    def _tick(self, plan: Plan, place: int, lr: float | Tensor) -> Numbers:
        """Let a clock go on, and say what the step is made of."""
        step = int(plan.clocks[place].add_(1))
        if isinstance(lr, Tensor):  # it has a graph
            at = numbers(plan.schedule, lr, step)
        else:
            at = plan.numbers(place, lr, step)
        scale = scaling.grad_scale(self)
        return at if scale is None else at._replace(grad_scale=scale)

    def _tick_on_device(self, plan: Plan, place: int, lr: float | Tensor) -> Numbers:
        """The same where nothing is known on the host, not even whether the step counts."""
        clock, found = plan.clocks[place], self._unsound
        live = None
        if isinstance(lr, Tensor):
            live = (lr > 0).to(clock.device)
        if found is not None:
            sound = (found.reshape(()) == 0).to(clock.device)
            live = sound if live is None else live & sound
        clock.add_(1 if live is None else live)
        at = numbers(plan.schedule, lr, clock)
        return at._replace(live=live, grad_scale=scaling.grad_scale(self))

    def _same_plan(self, group: Group) -> Plan | None:
        """The plan of the step before, if all it rests on is still so: then only gradients are new.

        With many small tensors it is the search for parameters and states that takes the time.
        """
        if torch.compiler.is_compiling():
            return None
        plan = self._plans.get(id(group))
        if plan is None or not plan.holds(group, self):
            return None
        grads = [p.grad for p in plan.params]
        if any(map(is_, grads, repeat(None))):
            return None
        plan.take(list(map(sharding.gradient, plan.params)) if plan.on_mesh else grads)
        return plan

    def _new_plan(self, group: Group) -> Plan:
        if self._on_mesh and torch.compiler.is_compiling():
            raise RuntimeError(
                "torch.compile must be given the step of plain parameters, got DTensors: compile "
                "the model and leave the step out"
            )
        every = Batch()
        clocks: list[Tensor] = []
        clock_of: list[int] = []
        batch_of: list[int] = []
        states = [getattr(every, name) for name in STATES]
        sets: list[ShardedSet | None] = []
        self._init_group(
            group, every.params, every.grads, clocks, clock_of, batch_of, sets, *states
        )
        recipe = self._recipe(group)
        batches, members = parted(every, recipe, clock_of, batch_of, sets)
        schedule = self._schedule(group)
        most = largest_rate(schedule, recipe, [batch.params[0].dtype for batch, *_ in batches])
        plan = Plan(schedule, recipe, clocks, batches, members, most)
        if not torch.compiler.is_compiling():
            others = {key: other for key, other in self._plans.items() if key != id(group)}
            self._plans = others
            if not group["differentiable"] and len(every.params) == len(group["params"]):
                plan.remember(group, self)
                self._plans = {**others, id(group): plan}
        return plan

    def _recipe(self, group: Group) -> Recipe:
        schedule = self._schedule(group)
        return Recipe(
            adaptive=isinstance(schedule, Adaptive),
            averaging=(group.get("form") == "averaging" and group["constraint"] is not None),
            extrapolates=schedule.extrapolates,
            keeps_average=isinstance(schedule, PSG | HBConstant),
            maximize=group["maximize"],
            weight_decay=group["weight_decay"],
            decoupled=group["decoupled_weight_decay"],
            constraint=group["constraint"],
            metric=group.get("projection") == "metric",
            rounding="nearest" if group["differentiable"] else group["rounding"],
            state_dtype=group["state_dtype"],
        )

    def _init_group(
        self,
        group: Group,
        params: list[Tensor],
        grads: list[Tensor],
        clocks: list[Tensor],
        clock_of: list[int],
        batch_of: list[int],
        sets: list[ShardedSet | None],
        *states: list[Tensor | None],
    ) -> None:
        """Fill the lists with what has a gradient, creating states; clocks without repetition.

        ``states`` are the columns of `update.STATES`, with None for what is not kept.  ``clock_of``
        and ``batch_of`` number each parameter's clock and batch; ``sets`` hold the constraint where
        a parameter is sharded, and all tensors are what this rank holds of them.  torch.compile
        runs a method of this name while it traces, and can follow flat lists only: that is how a
        compiled step finds its state in place, however often it is called.
        """
        allowed.check_cycled_momentum(group, self.defaults.get("momentum"))
        recipe, constraint = self._recipe(group), group["constraint"]
        if constraint is not None:
            plain = [p for p in group["params"] if not sharding.is_dtensor(p)]
            graphs.prepare(constraint, plain)
        alike = sharding.projects_alone(constraint)
        over_mesh: dict[Any, ShardedSet | None] = {None: None}
        fresh: dict[torch.device, Tensor] = {}
        waiting: set[int] = set()
        places: dict[int, int] = {}
        batches: dict[tuple[int, torch.device, torch.dtype, Any], int] = {}
        for p in group["params"]:
            if p.grad is None:
                if p in self.state:
                    waiting.add(id(self.state[p].get(kept.CLOCK)))
                continue
            state = self.state[p]
            if not state:
                if constraint is not None and not recipe.extrapolates:
                    allowed.start_inside(p, constraint)
                device = scaling.clock_device(self, p, group)
                if device not in fresh:
                    fresh[device] = torch.zeros((), dtype=torch.int64, device=device)
                state.update(kept.start(p, fresh[device], group, recipe))
            names = kept.names(recipe, p.dtype)
            try:
                clock = state[kept.CLOCK]
                found = [None if name is None else state[name] for name in names]
            except KeyError as missing:
                raise ValueError(
                    "form, constraint (None or a set), momentum (None or a number), rounding and "
                    "state_dtype must stay what they were when the state was created: it has no "
                    f"{missing}"
                ) from None
            place = places.setdefault(id(clock), len(places))
            if place == len(clocks):
                clocks.append(clock)
            clock_of.append(place)
            layout = None if alike else sharding.layout(p)
            if layout not in over_mesh:
                over_mesh[layout] = sharding.set_over_mesh(constraint, p)
            batch_of.append(batches.setdefault((place, p.device, p.dtype, layout), len(batches)))
            sets.append(over_mesh[layout])
            params.append(sharding.here(p))
            grads.append(sharding.gradient(p))
            for column, tensor in zip(states, found, strict=True):
                column.append(None if tensor is None else sharding.here(tensor))
        for place, clock in enumerate(clocks):
            if id(clock) in waiting:
                clocks[place] = clock.clone()
                self._partings += 1
        if waiting:
            stepping = [p for p in group["params"] if p.grad is not None]
            for p, place in zip(stepping, clock_of, strict=True):
                self.state[p][kept.CLOCK] = clocks[place]

    # ---------------------------------------------------------------- the guaranteed output

    @contextmanager
    def averaged_parameters(self) -> Iterator[None]:
        """Hold, inside the context, the output that the guarantee is about.

        With constant momentum and for PSG that is the average; for NAG it is w, where training
        holds the point at which gradients are taken.  Otherwise it is what the parameters hold
        anyway.  Training goes on afterwards from what they held before, whatever happens inside.
        """
        held: list[tuple[Tensor, Tensor]] = []
        try:
            with Whole(), torch.no_grad():
                for group in self.param_groups:
                    for p, output in self._outputs(group):
                        held.append((p, p.detach().clone()))
                        p.copy_(output)
            yield
        finally:
            with Whole(), torch.no_grad():
                for p, before in held:
                    p.copy_(before)

    def _outputs(self, group: Group) -> Iterator[tuple[Tensor, Tensor]]:
        schedule = self._schedule(group)
        for p in group["params"]:
            state = self.state.get(p, {})
            if kept.AVERAGE in state:
                yield p, state[kept.AVERAGE]
            elif schedule.extrapolates and state:
                u = narrow.read(state[kept.U], state.get(kept.U + kept.SCALE), p.dtype)
                yield p, p - schedule(int(state[kept.CLOCK]) + 1).beta1 * u

    # ---------------------------------------------------------------- saving and loading

    def state_dict(self) -> Group:
        """The state as plain data: numbers, tensors, lists; sets as what they are made of."""
        return kept.encode(super().state_dict())

    def load_state_dict(self, state_dict: Group) -> None:
        """Take up a saved state, every tensor in the dtype it was saved in.

        Both hooks stand between those of the user: what is checked and restored is what a user's
        pre-hooks have made of the given state, and a user's post-hooks see the restored one.
        """
        if not isinstance(state_dict, dict):
            raise TypeError(f"state_dict must be a dict, got {type(state_dict).__name__}")
        saved: Group = {}

        def take(_: Optimizer, given: Group) -> Group:
            allowed_elsewhere = ("gamma", "delta", "momentum", "power", "projection", "form")
            method = type(self).__name__
            kept.check_saved(method, given, self.param_groups)
            given = kept.up_to_date(given, self.param_groups)
            kept.check_groups(method, given, self.defaults, allowed_elsewhere)
            saved.update(kept.decode(given))
            for own, group in zip(self.param_groups, saved["param_groups"], strict=True):
                self._check_options({**group, "params": own["params"]})
            for p, state, group in self._entries(saved):
                kept.check_entry(method, p, state, self._recipe(group))
            return saved

        def restore(_: Optimizer) -> None:
            clocks: dict[Any, Tensor] = {}
            for p, state, group in self._entries(saved):
                self.state[p] = kept.restored(p, state, group, self._recipe(group), clocks)
            for group in self.param_groups:
                nonfinite.prepare(group)
            self._partings += 1

        before = self.register_load_state_dict_pre_hook(take)
        after = self.register_load_state_dict_post_hook(restore, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _entries(self, saved: Group) -> Iterator[tuple[Tensor, Group, Group]]:
        """The saved states, each with its parameter and its saved group."""
        for own, group in zip(self.param_groups, saved["param_groups"], strict=False):
            for p, name in zip(own["params"], group["params"], strict=False):
                if saved["state"].get(name):
                    yield p, saved["state"][name], group
