"""The heavy balls as Keras 3 optimizers, on the torch and the JAX backend.

    model.compile(AdaHB(1e-2), loss="mse")
    model.fit(x, y, epochs=20, callbacks=[TickFromData()])

The numbers are those of `adahb.optim`.  What a weight is confined to may be said where Keras says
it, in the layer, ``Dense(1, kernel_constraint=Within(L1Ball(1.0)))``, or once for all weights by
the ``constraint`` of the optimizer.  Everything is saved with the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras

from adahb import _checks as check
from adahb.interop.update import (
    Form,
    Method,
    Numbers,
    Projection,
    Stored,
    change,
    float64_at_hand,
    numbers,
    placed,
)
from adahb.sets import ConvexSet, from_dict

_BACKENDS = ("torch", "jax")

register = keras.saving.register_keras_serializable(package="adahb")


@register
class Within(keras.constraints.Constraint):  # type: ignore[misc]
    """A set of `adahb.sets` as the constraint of a layer's weight.

    With `AdaHB` and `HB` the set takes part in the update, in the metric and form of the optimizer;
    any other optimizer's steps are projected.
    """

    def __init__(self, constraint: ConvexSet | Mapping[str, Any]) -> None:
        confined = _as_set(constraint)
        if not isinstance(confined, ConvexSet):
            raise TypeError(f"constraint must be a set of adahb.sets, got {constraint!r}")
        self.constraint = confined

    def __call__(self, w: Any) -> Any:
        """The point of the set nearest to a weight."""
        value = keras.ops.convert_to_tensor(w)
        return self.constraint.project(getattr(value, "data", value))

    def get_config(self) -> dict[str, Any]:
        """Plain data, of which `from_config` makes it again."""
        return {"constraint": self.constraint.to_dict()}


class _HeavyBall(keras.optimizers.Optimizer):  # type: ignore[misc]
    """What the two optimizers share: variables, the step, and how they are saved."""

    _adaptive: bool

    def __init__(
        self, learning_rate: Any, options: dict[str, Any], keras_options: dict[str, Any]
    ) -> None:
        check.choice("keras.backend.backend()", keras.backend.backend(), _BACKENDS)
        if isinstance(learning_rate, (int, float)):
            learning_rate = check.number("learning_rate", learning_rate, at_least=0)
        options["constraint"] = _as_set(options["constraint"])
        Method(adaptive=self._adaptive, **options)  # looks at the values
        super().__init__(
            learning_rate=learning_rate, weight_decay=options["weight_decay"], **keras_options
        )
        self._options = options
        self._numbers: Numbers | None = None

    @property
    def tick(self) -> int:
        """Steps that share one t; set it before training, or have `TickFromData` do so."""
        tick: int = self._options["tick"]
        return tick

    @tick.setter
    def tick(self, steps: int) -> None:
        self._options["tick"] = check.integer("tick", steps, at_least=1)

    # ---------------------------------------------------------------- variables

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state of the variables, and project those that start outside."""
        if self.built:
            return
        super().build(variables)
        self._methods = [self._method(variable) for variable in variables]
        self._buffers, self._squares, self._averages = [], [], []
        for variable, method in zip(variables, self._methods, strict=True):
            method.require_fit(
                tuple(variable.shape), variable.dtype, is_complex="complex" in variable.dtype
            )
            if method.constraint is not None:
                _start_inside(variable, method.constraint)
            self._buffers.append(self._beside(variable, "buffer", copied=method.averaging))
            if method.adaptive:
                self._squares.append(self._beside(variable, "second_moment"))
            if method.keeps_average:
                self._averages.append(self._beside(variable, "mean", copied=True))

    def _beside(self, variable: Any, name: str, *, copied: bool = False) -> Any:
        """A variable of the shape of another one, in float32 at least: zero, or its copy."""
        wide = keras.backend.result_type(variable.dtype, "float32")
        path = getattr(variable, "path", variable.name).replace("/", "_")
        state = self.add_variable(variable.shape, dtype=wide, name=f"{path}_{name}")
        if copied:
            state.assign(keras.ops.cast(keras.ops.copy(_array(variable)), wide))
        return state

    def _method(self, variable: Any) -> Method:
        """The method for a variable: its own constraint, and decay unless it is excluded."""
        options = dict(self._options)
        own = getattr(variable, "constraint", None)
        if isinstance(own, Within):
            options["constraint"] = own.constraint
        if not self._use_weight_decay(variable):
            options["weight_decay"] = 0.0
        return Method(adaptive=self._adaptive, **options)

    # ---------------------------------------------------------------- the step

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Make one step with these gradients."""
        try:
            super().apply(grads, trainable_variables)
        finally:
            self._numbers = None

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """The update of one variable."""
        index = self._get_variable_index(variable)
        kept = [states[index] if states else None for states in self._states()]
        method = self._methods[index]
        g, w = _array(gradient), _array(variable)
        stored = Stored(*(None if state is None else _array(state) for state in kept))
        with float64_at_hand(w):
            if self._numbers is None:
                self._numbers = self._coefficients(learning_rate)
            wide = keras.backend.result_type(variable.dtype, "float32")
            w = keras.ops.cast(w, wide)
            by, after = change(w, keras.ops.cast(g, wide), stored, self._numbers, method)
            by = keras.ops.cast(w + by, variable.dtype)
        self.assign(variable, by)
        for state, value in zip(kept, after, strict=True):
            if state is not None:
                self.assign(state, value)

    def _states(self) -> tuple[list[Any], list[Any], list[Any]]:
        return self._buffers, self._squares, self._averages

    def _coefficients(self, learning_rate: Any) -> Numbers:
        method = Method(adaptive=self._adaptive, **self._options)
        step = keras.ops.cast(_array(self.iterations), "float64") + 1.0
        return numbers(method, keras.ops.cast(_array(learning_rate), "float64"), step)

    def _apply_weight_decay(self, variables: Any) -> None:
        """Nothing: decay is a term of the update."""

    # ---------------------------------------------------------------- the guaranteed output

    @contextmanager
    def averaged_parameters(self) -> Iterator[None]:
        """Hold, inside the context, the output that the guarantee is about.

        With constant momentum that is the average; otherwise it is what the variables hold anyway.
        """
        averages = self._averages if self.built else []
        held = list(zip(self._trainable_variables, averages, strict=False))
        before = [keras.ops.copy(_array(variable)) for variable, _ in held]
        try:
            for variable, average in held:
                variable.assign(keras.ops.cast(average, variable.dtype))
            yield
        finally:
            for (variable, _), value in zip(held, before, strict=True):
                variable.assign(value)

    # ---------------------------------------------------------------- saving

    def get_config(self) -> dict[str, Any]:
        """Plain data, of which `from_config` makes the same optimizer."""
        constraint = self._options["constraint"]
        plain = None if constraint is None else constraint.to_dict()
        return {**super().get_config(), **self._options, "constraint": plain}


@register
class AdaHB(_HeavyBall):
    """The adaptive heavy ball, Algorithm 1 of the paper; `adahb.optim.AdaHB` for Keras.

    Args:
        learning_rate: α, the constant of the step size; a number or a Keras schedule.
        gamma: Weight of new squared gradients: β2_t = 1 - gamma/t.
        delta: V̂_t = √V_t + delta/√t.
        momentum: None is t/(t+2), whose last iterate is optimal.  A number is constant momentum,
            whose *average* is; see `averaged_parameters`.
        tick: Steps that share one t.  1 is the theory; in deep networks a slower clock is better.
        power: Averages with weights t^power; larger forgets the beginning faster.
        averaging_tick: Steps that share one t in the momentum; None is ``tick``, 1 averages by the
            step whatever clock the steps go by.
        weight_decay: λ; decoupled, λw joins the preconditioned gradient, else the gradient.  Where
            it does not apply is said by ``exclude_from_weight_decay``.
        decoupled_weight_decay: Which of the two.
        constraint: A set of `adahb.sets` for every variable that has no `Within` of its own.
        projection: "metric" projects in the norm of V̂, as the theory needs; "euclidean" is the
            paper to the letter.
        form: With a constraint, "averaging" projects z and "paper" projects w.
        clipnorm, global_clipnorm, clipvalue: As Keras has them, and so the next ones.
        use_ema, ema_momentum, ema_overwrite_frequency: A mean of the iterates beside them.
        loss_scale_factor, gradient_accumulation_steps, name: As Keras has them.
    """

    _adaptive = True

    def __init__(
        self,
        learning_rate: Any = 1e-2,
        *,
        gamma: float = 0.1,
        delta: float = 1e-8,
        momentum: float | None = None,
        tick: int = 100,
        power: float = 0.0,
        averaging_tick: int | None = None,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        constraint: ConvexSet | Mapping[str, Any] | None = None,
        projection: Projection = "metric",
        form: Form = "averaging",
        clipnorm: float | None = None,
        global_clipnorm: float | None = None,
        clipvalue: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str = "adahb",
    ) -> None:
        options = {
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
        }
        keras_options = {
            "clipnorm": clipnorm,
            "global_clipnorm": global_clipnorm,
            "clipvalue": clipvalue,
            "use_ema": use_ema,
            "ema_momentum": ema_momentum,
            "ema_overwrite_frequency": ema_overwrite_frequency,
            "loss_scale_factor": loss_scale_factor,
            "gradient_accumulation_steps": gradient_accumulation_steps,
            "name": name,
        }
        super().__init__(learning_rate, options, keras_options)


@register
class HB(_HeavyBall):
    """The heavy ball without adapting: `AdaHB` with V̂ = 1; options as there."""

    _adaptive = False

    def __init__(
        self,
        learning_rate: Any = 1e-2,
        *,
        momentum: float | None = None,
        tick: int = 100,
        power: float = 0.0,
        averaging_tick: int | None = None,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = True,
        constraint: ConvexSet | Mapping[str, Any] | None = None,
        form: Form = "averaging",
        clipnorm: float | None = None,
        global_clipnorm: float | None = None,
        clipvalue: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str = "hb",
    ) -> None:
        options = {
            "momentum": momentum,
            "tick": tick,
            "power": power,
            "averaging_tick": averaging_tick,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "constraint": constraint,
            "form": form,
        }
        keras_options = {
            "clipnorm": clipnorm,
            "global_clipnorm": global_clipnorm,
            "clipvalue": clipvalue,
            "use_ema": use_ema,
            "ema_momentum": ema_momentum,
            "ema_overwrite_frequency": ema_overwrite_frequency,
            "loss_scale_factor": loss_scale_factor,
            "gradient_accumulation_steps": gradient_accumulation_steps,
            "name": name,
        }
        super().__init__(learning_rate, options, keras_options)


class TickFromData(keras.callbacks.Callback):  # type: ignore[misc]
    """Set the optimizer's tick to the steps of an epoch, so that t counts epochs.

    That is the paper's setting for deep networks.  Where the data do not tell how many steps there
    are, the first epoch is counted, with the tick that the optimizer has.

    Args:
        epochs: How many epochs share one t.
    """

    def __init__(self, epochs: float = 1.0) -> None:
        super().__init__()
        self.epochs = check.number("epochs", epochs, above=0)
        self._seen = 0

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Ask the data for the number of steps."""
        self._seen = 0
        if self.params.get("steps"):
            self._set(self.params["steps"])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count, in case the data do not know."""
        self._seen = max(self._seen, batch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Take the count where the data did not know."""
        if not self.params.get("steps"):
            self._set(self._seen)

    def _set(self, steps: int) -> None:
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # under loss scaling
        if not isinstance(optimizer, _HeavyBall):
            raise TypeError(
                f"TickFromData needs a model that is compiled with AdaHB or HB, got {optimizer!r}"
            )
        accumulated = optimizer.gradient_accumulation_steps or 1
        tick = max(1, round(self.epochs * steps / accumulated))
        if tick != optimizer.tick:
            optimizer.tick = tick
            self.model.make_train_function(force=True)  # a compiled step has the old one in it


def _array(value: Any) -> Any:
    """The backend's own array behind a variable or a tensor, without a graph."""
    value = value.value if isinstance(value, keras.Variable) else value
    value = keras.ops.convert_to_tensor(value)
    return value.detach() if keras.backend.backend() == "torch" else value


def _as_set(constraint: Any) -> ConvexSet | None:
    """The set, or the one that plain data describe."""
    return from_dict(constraint) if isinstance(constraint, Mapping) else constraint


def _start_inside(variable: Any, constraint: ConvexSet) -> None:
    """Project a variable that starts outside; the guarantees are about points of the set.

    It is said only where the constraint is not the layer's own, whose initial weights know nothing
    of it as a rule.
    """
    inside, moved = placed(_array(variable), constraint)
    if not moved:
        return
    if not isinstance(variable.constraint, Within):
        warnings.warn(
            f"the variable {variable.path} of shape {tuple(variable.shape)} starts outside of "
            f"{constraint!r}: it is projected",
            stacklevel=4,
        )
    variable.assign(inside)
