"""The optax transformations make the steps of the reference, under every transformation of JAX."""

import subprocess
import sys

import numpy as np
import pytest
from interop.pages import example, run_page
from optim.paths import CONSTRAINTS, SHAPES, Case, by_optimizer, by_reference, problem

from adahb.sets import Box, L1Ball, L2Ball, NuclearBall, Simplex, from_dict

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from jax import numpy as jnp  # noqa: E402

from adahb.interop import optax as ours  # noqa: E402

METHODS = {"AdaHB": ours.adahb, "HB": ours.hb}
CASES = [
    Case("AdaHB"),
    Case("AdaHB", tick=7, options={"power": 2.0}),
    Case("AdaHB", "l1", 7, {"averaging_tick": 1, "power": 3.0}),
    Case("AdaHB", "l1"),
    Case("AdaHB", "l1", 7, {"form": "paper"}),
    Case("AdaHB", "l2", options={"form": "paper"}),
    Case("AdaHB", "l2", 7, {"projection": "euclidean", "form": "averaging"}),
    Case("AdaHB", "box", options={"momentum": 0.9}),
    Case("HB", "l2 rows", options={"power": 2.0}),
    Case("HB", "simplex", 7, {"form": "paper"}),
]


def start(case, dtype):
    constraint = CONSTRAINTS[case.constraint]
    problems = [problem(SHAPES[0], constraint)]
    a, b, w = ([jnp.asarray(x, dtype=dtype) for x in each] for each in zip(*problems, strict=True))
    return a, b, w


def optimizer(case, learning_rate=None, **more):
    return METHODS[case.method](
        case.lr if learning_rate is None else learning_rate,
        tick=case.tick,
        constraint=CONSTRAINTS[case.constraint],
        **case.options,
        **more,
    )


def walk(transformation, case, steps, dtype, decay=0.0):
    """Parameters and averages after the steps, all of them in one compiled loop."""
    a, b, w = start(case, dtype)

    @jax.jit
    def run(w):
        def step(_, carry):
            w, state = carry
            g = [a * (w - b) + decay * w for a, b, w in zip(a, b, w, strict=True)]
            updates, state = transformation.update(g, state, w)
            return optax.apply_updates(w, updates), state

        return jax.lax.fori_loop(0, steps, step, (w, transformation.init(w)))

    w, state = run(w)
    return w, ours.averaged_parameters(state, w)


def compare(found, expected, rel):
    for x, y in zip(found, expected[:1], strict=True):
        np.testing.assert_allclose(x, y, rtol=rel, atol=rel * np.abs(y).max())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float64_is_the_reference(case):
    with jax.enable_x64(True):
        last, average = walk(optimizer(case), case, 100, jnp.float64)
    expected = by_reference(case, 100)
    compare(last, [w for w, _ in expected], 1e-12)
    if "momentum" in case.options:
        compare(average, [mean for _, mean in expected], 1e-12)
    else:
        compare(average, [w for w, _ in expected], 1e-12)


@pytest.mark.parametrize("case", [CASES[k] for k in (0, 2, 4, 8)], ids=str)
def test_float32_is_the_torch_optimizer(case):
    import torch

    last, average = walk(optimizer(case), case, 500, jnp.float32)
    expected = by_optimizer(case, 500, torch.float32)
    compare(last, expected[0], 1e-6)
    compare(average, expected[1], 1e-6)


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize("constraint", ["none", "box"])
def test_weight_decay(constraint, decoupled):
    import torch

    case = Case("AdaHB", constraint, 7)
    options = {"weight_decay": 0.3, "decoupled_weight_decay": decoupled}
    with jax.enable_x64(True):
        last, _ = walk(optimizer(case, **options), case, 60, jnp.float64)
    expected, _ = by_optimizer(case, 60, torch.float64, **options)
    compare(last, expected, 1e-12)


def by_torch(rates, grads, w, **options):
    """What torch makes of these learning rates and gradients."""
    import torch

    from adahb.optim import AdaHB

    p = torch.nn.Parameter(torch.tensor(np.asarray(w)))
    theirs = AdaHB([p], **options)
    for rate, g in zip(rates, grads, strict=True):
        theirs.param_groups[0]["lr"] = float(rate)
        p.grad = torch.tensor(np.asarray(g))
        theirs.step()
    return p.detach().numpy()


def by_optax(transformation, grads, w, state=None):
    state = transformation.init(w) if state is None else state
    update = jax.jit(transformation.update)
    for g in grads:
        updates, state = update(g, state, w)
        w = optax.apply_updates(w, updates)
    return np.asarray(w), state


@pytest.fixture
def grads():
    return jnp.asarray(np.random.default_rng(0).normal(size=(30, 4)), dtype=jnp.float32)


W = jnp.asarray([0.1, -0.2, 0.3, 0.0])


def test_a_warm_up_from_zero_loses_no_step(grads):
    """A call with learning rate zero moves neither the clock nor what has been learned."""
    schedule = optax.linear_schedule(0.0, 0.1, 10)
    found, state = by_optax(ours.adahb(schedule, tick=3), grads, W)
    rates = [schedule(k) for k in range(30)]
    assert (int(state.count), int(state.clock)) == (30, 29)
    np.testing.assert_allclose(found, by_torch(rates, grads, W, tick=3), rtol=2e-6)
    still, state = by_optax(ours.adahb(0.0), grads, W)
    assert int(state.clock) == 0
    np.testing.assert_array_equal(still, W)


def test_injected_learning_rates(grads):
    inject = optax.inject_hyperparams(ours.adahb, static_args=ours.STATIC)
    transformation = inject(learning_rate=0.1, tick=3)
    expected, _ = by_optax(ours.adahb(0.05, tick=3), grads[:5], W)
    state = transformation.init(W)
    state.hyperparams["learning_rate"] *= 0.5
    found, _ = by_optax(transformation, grads[:5], W, state)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_scaling_alone_is_the_rest_of_a_chain(grads):
    chain = optax.chain(ours.scale_by_adahb(tick=3), optax.scale_by_learning_rate(0.1))
    expected, _ = by_optax(ours.adahb(0.1, tick=3), grads, W)
    np.testing.assert_allclose(by_optax(chain, grads, W)[0], expected, rtol=1e-6)


def test_one_trace_however_far_t_advances(grads):
    transformation = ours.adahb(optax.exponential_decay(0.1, 10, 0.9), tick=2, constraint=L1Ball(1))
    traces = 0

    @jax.jit
    def step(g, state, w):
        nonlocal traces
        traces += 1
        updates, state = transformation.update(g, state, w)
        return optax.apply_updates(w, updates), state

    w, state = W, transformation.init(W)
    for g in grads:
        w, state = step(g, state, w)
    assert traces == 1
    assert int(state.clock) == 30


def test_parameters_and_state_may_be_donated(grads):
    transformation = ours.hb(0.1, tick=2, momentum=0.9, constraint=Box(-1, 1))
    expected, _ = by_optax(transformation, grads[:3], W)

    def step(w, state, g):
        updates, state = transformation.update(g, state, w)
        return optax.apply_updates(w, updates), state

    donating = jax.jit(step, donate_argnums=(0, 1))
    w = jnp.array(W, copy=True)
    state = transformation.init(w)
    for g in grads[:3]:
        w, state = donating(w, state, g)
    np.testing.assert_allclose(w, expected, rtol=1e-6)


def test_vmap_is_many_optimizers(grads):
    transformation = ours.adahb(0.1, tick=1, constraint=L2Ball(0.2))
    starts, many = jnp.stack([W, -W, 0.5 * W]) / 5, grads.reshape(10, 3, 4)

    def step(carry, g):
        updates, state = jax.vmap(transformation.update)(g, carry[1], carry[0])
        return (optax.apply_updates(carry[0], updates), state), None

    first = (starts, jax.vmap(transformation.init)(starts))
    together = jax.jit(lambda first: jax.lax.scan(step, first, many)[0][0])(first)
    for k in range(3):
        alone, _ = by_optax(transformation, many[:, k], starts[k])
        np.testing.assert_allclose(together[k], alone, rtol=1e-6, atol=1e-7)


SHARDED = """
import jax, numpy as np, optax
jax.config.update("jax_num_cpu_devices", 2)
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
from adahb.interop.optax import adahb
from adahb.sets import L1Ball

rng = np.random.default_rng(0)
w, g = (jnp.asarray(rng.normal(size=(2, 8)), dtype=jnp.float32) for _ in range(2))
mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

def step(constraint, w, g):
    transformation = adahb(0.1, tick=1, constraint=constraint)
    updates, state = transformation.update(g, transformation.init(w), w)
    return optax.apply_updates(w, updates)

rows = lambda w, g: step(L1Ball(1.0, dim=-1), w, g)
whole = lambda w, g: step(L1Ball(1.0), w, g)
expected = jax.jit(rows)(w, g)
mapped = jax.shard_map(rows, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
np.testing.assert_allclose(jax.jit(mapped)(w, g), expected, rtol=1e-6)
np.testing.assert_allclose(jax.pmap(rows)(w, g), expected, rtol=1e-6)
on = NamedSharding(mesh, P(None, "d"))
split = jax.jit(whole)(jax.device_put(w, on), jax.device_put(g, on))
assert len(split.sharding.device_set) == 2
np.testing.assert_allclose(split, jax.jit(whole)(w, g), rtol=1e-6)
assert np.abs(split).sum() < 1.001 < np.abs(w).sum()
"""


def test_two_devices():
    """Mapped by hand, each on its own; sharded by the compiler, norms are those of the whole."""
    ignored = "-Wignore:a parameter of shape"
    command = [sys.executable, ignored, "-c", SHARDED]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_masks_and_partitions(grads):
    params = {"head": W, "body": W}
    both = {"head": grads[0], "body": grads[0]}
    label = {"head": "ball", "body": "free"}
    constrained = ours.adahb(0.5, tick=1, constraint=L1Ball(0.7))
    parts = optax.partition({"ball": constrained, "free": ours.hb(0.1, momentum=0.9)}, label)
    state = parts.init(params)
    update = jax.jit(parts.update)
    updates, state = update(both, state, params)
    alone, _ = jax.jit(constrained.update)(grads[0], constrained.init(W), W)
    np.testing.assert_allclose(updates["head"], alone)
    moved = optax.apply_updates(params, updates)
    updates, state = update(both, state, moved)
    average = ours.averaged_parameters(state, moved)
    np.testing.assert_array_equal(average["head"], moved["head"])
    np.testing.assert_allclose(average["body"], (W + moved["body"]) / 2, rtol=1e-6)

    masked = optax.masked(ours.hb(0.1, momentum=0.9), {"head": True, "body": False})
    updates, state = jax.jit(masked.update)(both, masked.init(params), params)
    np.testing.assert_array_equal(updates["body"], grads[0])
    assert ours.averaged_parameters(state, moved)["body"] is moved["body"]


def test_gradient_accumulation(grads):
    every = optax.MultiSteps(ours.adahb(0.1, tick=2), every_k_schedule=2)
    found, _ = by_optax(every.gradient_transformation(), grads, W)
    means = grads.reshape(15, 2, 4).mean(axis=1)
    np.testing.assert_allclose(found, by_optax(ours.adahb(0.1, tick=2), means, W)[0], rtol=1e-5)


@pytest.mark.parametrize("form", ["averaging", "paper"])
def test_starting_outside(form, grads):
    options = {"tick": 1, "constraint": L1Ball(0.5), "form": form}
    outside = jnp.asarray([3.0, -1.0, 0.5, 0.0])
    with pytest.warns(UserWarning, match="starts outside of L1Ball"):
        found, _ = by_optax(ours.adahb(0.01, **options), grads, outside)
    inside = options["constraint"].project(np.asarray(outside))
    expected = by_torch([0.01] * 30, grads, inside, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_half_precision_is_computed_in_float32(grads):
    w = {"w": W.astype(jnp.bfloat16)}
    transformation = ours.adahb(0.1, momentum=0.9, constraint=Box(-1, 1))
    state = transformation.init(w)
    updates, state = transformation.update({"w": grads[0].astype(jnp.bfloat16)}, state, w)
    assert updates["w"].dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(state[2:])} == {jnp.dtype("float32")}
    assert ours.averaged_parameters(state, w)["w"].dtype == jnp.bfloat16


def test_complex_parameters_do_not_know_where_the_real_axis_is():
    w, g = jnp.asarray([1.0 + 1.0j, 0.5j]), jnp.asarray([1.0 - 2.0j, 3.0 + 0.0j])
    transformation, turn = ours.adahb(0.1, tick=1), 1j
    updates, state = transformation.update(g, transformation.init(w), w)
    turned, _ = transformation.update(turn * g, transformation.init(turn * w), turn * w)
    np.testing.assert_allclose(turned, turn * updates, rtol=1e-6)
    assert state.v.dtype == jnp.float32


def test_staying_in_a_set_behind_another_optimizer(grads):
    chain = optax.chain(optax.sgd(0.5), ours.keep_in(Simplex()))
    w = jnp.full(4, 0.25)
    updates, _ = jax.jit(chain.update)(grads[0], chain.init(w), w)
    expected = Simplex().project(np.asarray(w - 0.5 * grads[0]))
    np.testing.assert_allclose(w + updates, expected, atol=1e-7)


SETS = (
    {"kind": "L1Ball", "radius": 1.0, "dim": 1},
    {"kind": "WeightedL1Ball", "weights": [1.0, 2.0, 4.0], "radius": 1.0, "dim": 1},
    {"kind": "L2Ball", "radius": 0.5, "dim": 0},
    {"kind": "Simplex", "total": 2.0},
    {"kind": "LinfBall", "radius": 0.2},
    {"kind": "Box", "lower": [-0.1, -0.2, -0.3], "upper": 0.5},
    {"kind": "NonNegative"},
    {"kind": "GroupL1Ball", "radius": 0.5, "dim": 1},
    {"kind": "HalfSpace", "normal": [[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]], "offset": -1.0},
    {"kind": "Affine", "matrix": [[1.0] * 6, [2.0] * 6], "rhs": [1.0, 2.0]},
    {"kind": "NuclearBall", "radius": 0.5},
)


@pytest.mark.parametrize("data", SETS, ids=lambda data: data["kind"])
def test_traced_projections_are_those_of_arrays(data):
    rng = np.random.default_rng(1)
    x, h = rng.normal(size=(2, 2, 3)).astype(np.float32)
    h = np.exp(h)
    constraint = from_dict(data)
    for metric in (None,) if isinstance(constraint, NuclearBall) else (None, h):
        found = jax.jit(constraint.project)(x, metric)
        expected = constraint.project(x, metric)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_derivatives_of_projections():
    import torch

    x, h, across = [0.9, -0.4, 0.3], [1.0, 2.0, 3.0], [1.0, -2.0, 0.5]
    point = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    theirs = L2Ball(0.5).project(point, torch.tensor(h)) @ torch.tensor(across, dtype=torch.float64)
    theirs.backward()
    with jax.enable_x64(True):
        value = jax.jit(jax.grad(lambda x: L2Ball(0.5).project(x, h) @ jnp.asarray(across)))
        np.testing.assert_allclose(value(jnp.asarray(x)), point.grad, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_torch_compiles_projections_where_jax_is_loaded():
    import torch

    from adahb.optim import AdaHB

    torch.compiler.reset()
    p = torch.nn.Parameter(torch.zeros(4))
    theirs = AdaHB([p], constraint=L1Ball(0.5), lr=1.0, tick=1)
    p.grad = torch.ones(4)
    torch.compile(theirs.step, fullgraph=True, backend="eager")()
    assert 0 < p.abs().sum() <= 0.5


def test_the_page_of_the_documentation():
    found = run_page("optax")
    assert found["params"]["w"].shape == found["average"]["w"].shape == (3,)


def test_the_example(capsys):
    module = example("optax_training")
    module.EPOCHS = 5
    module.main()
    free, confined = (line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert min(float(free[-2]), float(confined[-2])) > 0.8
    assert float(confined[-1]) <= 1.5 < float(free[-1])


def test_errors():
    with pytest.raises(ValueError, match="learning_rate must be a number in"):
        ours.adahb(-1.0)
    with pytest.raises(ValueError, match="form must be one of 'averaging', 'paper', got 'mean'"):
        ours.hb(form="mean")
    with pytest.raises(TypeError, match="constraint must be a set of"):
        ours.adahb(constraint=1.0)
    with pytest.raises(ValueError, match="power must be 0 with constant momentum"):
        ours.hb(momentum=0.9, power=1.0)
    with pytest.raises(ValueError, match="projection must be 'euclidean'"):
        ours.adahb(constraint=NuclearBall(1.0))
    with pytest.raises(ValueError, match="gamma must be a number in"):
        ours.scale_by_adahb(gamma=2.0)
    with pytest.raises(ValueError, match=r"must fit every parameter, .* \(4,\)"):
        ours.adahb(constraint=L1Ball(1.0, dim=1)).init(W)
    with pytest.raises(TypeError, match="needs real parameters, got complex64"):
        ours.adahb(constraint=L1Ball(1.0)).init(W + 0j)
    transformation = ours.adahb()
    with pytest.raises(ValueError, match="params must be given to update"):
        transformation.update(W, transformation.init(W))
    with pytest.raises(ValueError, match="metric must be finite and > 0"):
        L1Ball(1.0).project(W, -jnp.ones(4))
    with pytest.raises(ValueError, match="metric must broadcast"):
        L1Ball(1.0).project(W, jnp.ones(3))
    with pytest.raises(ValueError, match="x must be finite"):
        L1Ball(1.0).project(W / 0)


def test_apply_if_finite_leaves_steps_out():
    """optax's own answer to gradients that are not finite: state and clock stay what they were."""
    plain = ours.adahb(0.1, tick=1)
    careful = optax.apply_if_finite(ours.adahb(0.1, tick=1), max_consecutive_errors=3)
    params = jnp.ones(3)
    one, other = plain.init(params), careful.init(params)
    w = x = params
    for k, bad in enumerate((None, jnp.nan, jnp.inf, None, -jnp.inf, None)):
        g = jnp.asarray([1.0, -2.0, 0.5]) * (k + 1)
        if bad is None:
            by, one = plain.update(g, one, w)
            w = optax.apply_updates(w, by)
        by, other = careful.update(g if bad is None else g.at[1].set(bad), other, x)
        x = optax.apply_updates(x, by)
    np.testing.assert_allclose(x, w, rtol=1e-6)
    assert int(other.total_notfinite) == 3
    assert int(other.inner_state.clock) == int(one.clock) == 3


@pytest.mark.parametrize("delta", [1e-8, 1e-300])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e19, 3e38])
def test_numbers_at_the_ends_of_float32(size, delta):
    transformation = ours.adahb(0.1, tick=1, delta=delta)
    w, signs = jnp.zeros(3), jnp.asarray([1.0, -1.0, 0.0])
    state = transformation.init(w)
    for _ in range(3):
        by, state = transformation.update(signs * size, state, w)
        w = optax.apply_updates(w, by)
    assert jnp.isfinite(w).all()
    assert float(w[2]) == 0
    if size > 1:
        wanted = by_unit_gradients(delta, signs)
        np.testing.assert_allclose(w, wanted, rtol=1e-6)


def by_unit_gradients(delta, signs):
    transformation = ours.adahb(0.1, tick=1, delta=delta)
    w = jnp.zeros(3)
    state = transformation.init(w)
    for _ in range(3):
        by, state = transformation.update(signs, state, w)
        w = optax.apply_updates(w, by)
    return w


def test_the_clock_counts_beyond_what_float32_can():
    """2^24 + 1 is the first whole number that float32 has not."""
    method, w = ours.adahb(0.1), jnp.ones(2)
    state = method.init(w)._replace(clock=jnp.asarray(2**24, dtype=jnp.int32))
    _, state = method.update(w, state, w)
    assert int(state.clock) == 2**24 + 1
