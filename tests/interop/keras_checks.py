"""What holds on every backend of Keras; `test_keras` runs it in a process for each."""

import keras
import numpy as np
import pytest
import torch
from interop.pages import example, run_page
from keras import layers
from optim.paths import CONSTRAINTS, SHAPES, Case, by_optimizer, problem

from adahb.interop import keras as ours
from adahb.sets import Box, L1Ball, L2Ball, NuclearBall, Simplex

JAX = keras.backend.backend() == "jax"
METHODS = {"AdaHB": ours.AdaHB, "HB": ours.HB}

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"  # keras on torch
)

CASES = [
    (Case("AdaHB", tick=7), {}),
    (Case("AdaHB", "l1", options={"averaging_tick": 3}), {}),
    (Case("AdaHB", "l2", options={"form": "paper"}), {}),
    (Case("AdaHB", "box", options={"momentum": 0.9}), {"weight_decay": 0.3}),
    (Case("HB", options={"power": 2.0}), {"weight_decay": 0.3, "decoupled_weight_decay": False}),
    (Case("HB", "simplex", options={"form": "paper", "momentum": 0.9}), {}),
]


def walk(optimizer, variables, gradients, steps):
    """Step with gradients that are functions of the variables' values; on JAX, compiled."""
    optimizer.build(variables)
    if not JAX:
        for _ in range(steps):
            optimizer.apply(gradients([v.value.detach() for v in variables]), variables)
        return
    import jax

    def step(_, state):
        values, own = state
        return optimizer.stateless_apply(own, gradients(values), values)

    start = [v.value for v in variables], [v.value for v in optimizer.variables]
    values, own = jax.jit(lambda state: jax.lax.fori_loop(0, steps, step, tuple(state)))(start)
    for variable, value in zip([*variables, *optimizer.variables], [*values, *own], strict=True):
        variable.assign(value)


def numpy(variable):
    return np.array(keras.ops.convert_to_numpy(variable))


@pytest.mark.parametrize(("case", "more"), CASES, ids=str)
def test_it_is_the_torch_optimizer(case, more):
    constraint = CONSTRAINTS[case.constraint]
    goals = [problem(shape, constraint) for shape in SHAPES[:1]]
    a, b = (
        [keras.ops.convert_to_tensor(x, "float32") for x in side]
        for side in list(zip(*goals, strict=True))[:2]
    )
    variables = [keras.Variable(start.astype(np.float32)) for _, _, start in goals]
    optimizer = METHODS[case.method](
        case.lr, tick=case.tick, constraint=constraint, **case.options, **more
    )
    walk(
        optimizer,
        variables,
        lambda values: [a * (w - b) for a, b, w in zip(a, b, values, strict=True)],
        500,
    )
    last, outputs = by_optimizer(case, 500, torch.float32, **more)
    for variable, expected in zip(variables, last, strict=False):
        np.testing.assert_allclose(numpy(variable), expected, rtol=1e-6, atol=1e-6)
    with optimizer.averaged_parameters():
        for variable, expected in zip(variables, outputs, strict=False):
            np.testing.assert_allclose(numpy(variable), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(numpy(variables[0]), last[0], rtol=1e-6, atol=1e-6)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 4)).astype(np.float32)
    return x, (x @ np.array([1.0, -2.0, 0.0, 3.0], dtype=np.float32))[:, None]


def linear(optimizer, **options):
    """A linear model that starts from zero, compiled."""
    dense = layers.Dense(1, use_bias=False, kernel_initializer="zeros", **options)
    model = keras.Sequential([keras.Input((4,)), dense])
    model.compile(optimizer, loss="mse")
    return model


def fit(model, data, epochs=2, **options):
    model.fit(*data, epochs=epochs, batch_size=8, shuffle=False, verbose=0, **options)
    return numpy(model.weights[0])[:, 0]


def test_fit_with_a_layer_s_own_constraint(data):
    """The optimizer projects in its metric: that of Keras alone would stop elsewhere."""
    confined = fit(
        linear(ours.AdaHB(0.5, tick=1), kernel_constraint=ours.Within(L1Ball(2.0))), data, 60
    )
    everywhere = fit(linear(ours.AdaHB(0.5, tick=1, constraint=L1Ball(2.0))), data, 60)
    np.testing.assert_allclose(confined, everywhere, atol=1e-6)
    assert 1.9 < np.abs(confined).sum() <= 2.0 + 1e-5
    x, y = (part.astype(np.float64) for part in data)
    w = np.zeros(4)
    for _ in range(500):
        w = L1Ball(2.0).project(w - 0.1 * (x.T @ (x @ w - y[:, 0])) / len(x))
    np.testing.assert_allclose(confined, w, atol=0.05)


def test_other_optimizers_take_a_layer_s_constraint(data):
    model = linear(keras.optimizers.SGD(0.1), kernel_constraint=ours.Within(Simplex()))
    assert fit(model, data).sum() == pytest.approx(1.0)


def test_a_saved_model_goes_on_as_if_nothing_had_been(data, tmp_path):
    optimizer = ours.AdaHB(0.1, momentum=0.9, tick=3, constraint=Box(-1.0, [[2.0]]))
    model = linear(optimizer, kernel_constraint=ours.Within(L2Ball(2.0, dim=0)))
    fit(model, data)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].kernel_constraint.constraint == L2Ball(2.0, dim=0)
    np.testing.assert_array_equal(fit(loaded, data), fit(model, data))
    with model.optimizer.averaged_parameters(), loaded.optimizer.averaged_parameters():
        np.testing.assert_array_equal(numpy(loaded.weights[0]), numpy(model.weights[0]))


def test_configurations():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    constraint = Box([-1.0, -np.inf], 2.0)
    options = {
        "tick": 3,
        "power": 1.0,
        "weight_decay": 0.1,
        "decoupled_weight_decay": False,
        "form": "paper",
        "clipnorm": 1.0,
        "name": "mine",
    }
    for optimizer in (
        ours.AdaHB(schedule, gamma=0.5, projection="euclidean", constraint=constraint, **options),
        ours.HB(0.5, constraint=constraint, **options),
    ):
        again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert type(again) is type(optimizer)
        assert again.get_config() == optimizer.get_config()
        assert again.get_config()["constraint"] == constraint.to_dict()
        assert {**again.get_config(), **options} == again.get_config()


def test_decay_can_spare_variables():
    kept, shrunk = (
        keras.Variable(np.ones(2, dtype=np.float32), name=n) for n in ("bias", "kernel")
    )
    optimizer = ours.HB(0.5, tick=1, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    walk(optimizer, [kept, shrunk], lambda values: [0.0 * w for w in values], 1)
    np.testing.assert_array_equal(numpy(kept), 1.0)
    np.testing.assert_allclose(numpy(shrunk), 1.0 - 0.1 * 0.5 / 3, rtol=1e-6)


def test_tick_from_data(data):
    """Also where a step with another tick has been compiled before."""
    told = linear(ours.AdaHB(0.1, tick=6))
    expected = fit(told, data, 3)
    model = linear(ours.AdaHB(0.1))
    np.testing.assert_allclose(fit(model, data, 3, callbacks=[ours.TickFromData()]), expected)
    assert model.optimizer.tick == 6

    once = linear(ours.AdaHB(0.1, tick=1))
    start = [numpy(v) for v in once.variables]
    fit(once, data, 1)
    for variable, value in zip(once.variables, start, strict=True):
        variable.assign(value)
    for variable in once.optimizer.variables:
        if "learning_rate" not in variable.path:
            variable.assign(np.zeros(variable.shape, dtype=variable.dtype))
    np.testing.assert_allclose(fit(once, data, 3, callbacks=[ours.TickFromData()]), expected)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_tick_from_data_that_do_not_know(data):
    def batches():
        for k in range(0, 48, 8):
            yield data[0][k : k + 8], data[1][k : k + 8]

    model = linear(ours.HB(0.01))
    callback = ours.TickFromData(epochs=2)
    model.fit(batches(), epochs=1, shuffle=False, verbose=0, callbacks=[callback])
    assert model.optimizer.tick == 12
    with pytest.raises(TypeError, match="needs a model that is compiled with AdaHB or HB"):
        fit(linear(keras.optimizers.SGD(0.1)), data, callbacks=[ours.TickFromData()])


def test_gradient_accumulation(data):
    accumulated = fit(linear(ours.AdaHB(0.1, tick=2, gradient_accumulation_steps=2)), data)
    model = linear(ours.AdaHB(0.1, tick=2))
    model.fit(*data, epochs=2, batch_size=16, shuffle=False, verbose=0)
    np.testing.assert_allclose(accumulated, numpy(model.weights[0])[:, 0], rtol=1e-4)


def test_loss_scaling(data):
    scaled = keras.optimizers.LossScaleOptimizer(ours.AdaHB(0.1, constraint=Box(-1.0, 1.0)))
    expected = fit(linear(ours.AdaHB(0.1, constraint=Box(-1.0, 1.0), tick=6)), data)
    found = fit(linear(scaled), data, callbacks=[ours.TickFromData()])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_starting_outside(data):
    outside = keras.Variable(np.array([3.0, 1.0], dtype=np.float32))
    with pytest.warns(UserWarning, match="starts outside of L1Ball"):
        ours.AdaHB(constraint=L1Ball(1.0)).build([outside])
    np.testing.assert_allclose(numpy(outside), [1.0, 0.0])
    model = linear(ours.AdaHB(), kernel_constraint=ours.Within(Simplex()))
    assert fit(model, data).sum() == pytest.approx(1.0)  # as layers do, without a word


def test_the_page_of_the_documentation(tmp_path):
    assert run_page("Keras", path=tmp_path / "model.keras")["loaded"].built


@pytest.mark.skipif(JAX, reason="it compiles for long what the other checks compile too")
def test_the_example(capsys):
    example("keras_training").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"on {keras.backend.backend()}, tick = 22 steps of an epoch"
    before, after = (float(line.split("loss ")[1].split(",")[0]) for line in lines[1:3])
    assert after < before < 0.2
    assert float(lines[3].split()[-1]) <= 1.5


def test_other_backends_are_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    with pytest.raises(ValueError, match="must be one of 'torch', 'jax', got 'numpy'"):
        ours.AdaHB()


def test_errors():
    with pytest.raises(ValueError, match="learning_rate must be a number in"):
        ours.AdaHB(-1.0)
    with pytest.raises(ValueError, match="form must be one of"):
        ours.HB(form="mean")
    with pytest.raises(ValueError, match="tick must be an integer of at least 1"):
        ours.HB(tick=0)
    with pytest.raises(ValueError, match="projection must be 'euclidean'"):
        ours.AdaHB(constraint=NuclearBall(1.0))
    with pytest.raises(TypeError, match="constraint must be a set of"):
        ours.Within(None)
    with pytest.raises(ValueError, match=r"must fit every parameter, .* \(2,\)"):
        ours.AdaHB(constraint=L1Ball(1.0, dim=1)).build([keras.Variable(np.zeros(2))])
    with pytest.raises(ValueError, match="epochs must be a number in"):
        ours.TickFromData(epochs=0)
