"""The optimizers: what a user imports."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from adahb import schedules
from adahb.optim.base import Form, HeavyBall, Projection
from adahb.optim.nonfinite import NonFinite
from adahb.optim.options import Group
from adahb.optim.update import Rounding, StateDtype
from adahb.schedules import Schedule
from adahb.sets import ConvexSet


class AdaHB(HeavyBall):
    """The adaptive heavy ball, Algorithm 1 of the paper.

    One line changes in a script that uses Adam; there is no train/eval switch, for the weights in
    place are the averaged ones.

    A parameter without a gradient stands still and keeps its own count of steps.  A sparse gradient
    is a dense one with zeros: every row moves by its momentum and forgets its second moment, and
    memory is taken for the dense gradient.  Inside torch.compile the step is one graph for all t,
    projection included.  Give ``lr`` as a tensor there if it is to change: a float is part of the
    graph.

    >>> import torch
    >>> model = torch.nn.Linear(3, 1)
    >>> optimizer = AdaHB(model.parameters(), lr=1e-2)
    >>> model(torch.ones(3)).sum().backward()
    >>> optimizer.step()

    Args:
        params: Parameters, named parameters or groups; every option below can be a group's own.
        lr: α, the constant of the step size.
        gamma: Weight of new squared gradients: β2_t = 1 - gamma/t.
        delta: V̂_t = √V_t + delta/√t.
        momentum: None is t/(t+2), whose last iterate is optimal. A number is constant momentum,
            whose *average* is; see `averaged_parameters`.
        tick: Steps that share one t. 1 is the theory; in deep networks a slower clock is better.
        power: Averages with weights t^power; larger forgets the beginning faster.
        averaging_tick: Steps that share one t in the momentum; None is ``tick``, 1 averages by the
            step whatever clock the steps go by.
        weight_decay: λ; decoupled, λw joins the preconditioned gradient, else the gradient.
        decoupled_weight_decay: Which of the two.
        constraint: A set of `adahb.sets` for every parameter of the group. A parameter that starts
            outside is projected, with a warning.
        projection: "metric" projects in the norm of V̂, as the theory needs; "euclidean" is the
            paper to the letter.
        form: With a constraint, "averaging" projects z and "paper" projects w.
        maximize: Ascend.
        foreach: Multi-tensor operations; None decides by device.
        fused: A compiled kernel; None decides by device.
        capturable: Keep the clock on the device, for CUDA graphs.
        differentiable: Let autograd run through the step.
        rounding: How parameters are rounded: "compensated" keeps the digits that they have no room
            for, 2 bytes each; "stochastic" rounds half precision at random, right in the mean;
            "nearest" loses small updates. None compensates half precision, and nothing else.
        state_dtype: "bf16" or "int8" (in blocks of 128, about 1 byte a number) for the buffer and
            the second moment; None is float32, or float64 for float64.
        nonfinite: What becomes of a step with a gradient that holds NaN or infinity. "propagate"
            does not look; "skip" leaves the whole step out and counts it in `skipped_steps`;
            "raise" raises FloatingPointError before anything has changed, and waits for the device.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        gamma: float = 0.1,
        delta: float = 1e-8,
        momentum: float | None = None,
        tick: int = 100,
        power: float = 0.0,
        averaging_tick: int | None = None,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        constraint: ConvexSet | None = None,
        projection: Projection = "metric",
        form: Form = "averaging",
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        rounding: Rounding | None = None,
        state_dtype: StateDtype | None = None,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        defaults = {
            "lr": lr,
            "gamma": gamma,
            "delta": delta,
            "momentum": momentum,
            "tick": tick,
            "power": power,
            "averaging_tick": averaging_tick,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "constraint": constraint,
            "projection": projection,
            "form": form,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
            "differentiable": differentiable,
            "rounding": rounding,
            "state_dtype": state_dtype,
            "nonfinite": nonfinite,
        }
        super().__init__(params, defaults)

    @staticmethod
    def _schedule(group: Group) -> Schedule:
        gamma, delta, tick = group["gamma"], group["delta"], group["tick"]
        if group["momentum"] is None:
            return schedules.AdaHB(
                alpha=1.0,
                gamma=gamma,
                delta=delta,
                power=group["power"],
                tick=tick,
                averaging_tick=group["averaging_tick"],
            )
        return schedules.AdaHBConstant(
            alpha=1.0, gamma=gamma, delta=delta, beta=group["momentum"], tick=tick
        )


class HB(HeavyBall):
    """The heavy ball without adapting: `AdaHB` with V̂ = 1; options as there.

    >>> import torch
    >>> w = torch.zeros(2, requires_grad=True)
    >>> optimizer = HB([w], lr=0.1, tick=1)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        momentum: float | None = None,
        tick: int = 100,
        power: float = 0.0,
        averaging_tick: int | None = None,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        constraint: ConvexSet | None = None,
        form: Form = "averaging",
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        rounding: Rounding | None = None,
        state_dtype: StateDtype | None = None,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "tick": tick,
            "power": power,
            "averaging_tick": averaging_tick,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "constraint": constraint,
            "form": form,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
            "differentiable": differentiable,
            "rounding": rounding,
            "state_dtype": state_dtype,
            "nonfinite": nonfinite,
        }
        super().__init__(params, defaults)

    @staticmethod
    def _schedule(group: Group) -> Schedule:
        if group["momentum"] is None:
            return schedules.HB(
                alpha=1.0,
                power=group["power"],
                tick=group["tick"],
                averaging_tick=group["averaging_tick"],
            )
        return schedules.HBConstant(alpha=1.0, beta=group["momentum"], tick=group["tick"])


class _Memoryless(HeavyBall):
    """What NAG and PSG take: a learning rate and a clock, and the options all share."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        tick: int = 100,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        constraint: ConvexSet | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        rounding: Rounding | None = None,
        state_dtype: StateDtype | None = None,
        nonfinite: NonFinite = "propagate",
    ) -> None:
        defaults = {
            "lr": lr,
            "tick": tick,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "constraint": constraint,
            "maximize": maximize,
            "foreach": foreach,
            "fused": fused,
            "capturable": capturable,
            "differentiable": differentiable,
            "rounding": rounding,
            "state_dtype": state_dtype,
            "nonfinite": nonfinite,
        }
        super().__init__(params, defaults)


class NAG(_Memoryless):
    """Nesterov's extrapolation with steps α/((t + 1)√t); options as for `AdaHB`.

    The parameters hold the point y at which gradients are taken; `averaged_parameters` holds w,
    the iterate that the guarantee is about.
    """

    @staticmethod
    def _schedule(group: Group) -> Schedule:
        return schedules.NAG(alpha=1.0, tick=group["tick"])


class PSG(_Memoryless):
    """Projected subgradient with steps α/√t; options as for `AdaHB`.

    Its average is what converges optimally; `averaged_parameters` holds it.
    """

    @staticmethod
    def _schedule(group: Group) -> Schedule:
        return schedules.PSG(alpha=1.0, tick=group["tick"])
