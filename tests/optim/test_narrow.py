"""Numbers in few bits: unbiased, fine enough, never zero where they are divided by."""

import numpy as np
import pytest
import torch

from adahb.optim import HB, NAG, PSG, AdaHB, narrow
from adahb.sets import Box, L1Ball, L2Ball

HALF = (torch.bfloat16, torch.float16)


def spread(count, seed=0):
    """Numbers of both signs over ten orders of magnitude."""
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=count) * 10.0 ** rng.uniform(-6, 4, count)).float()


@pytest.mark.parametrize("dtype", HALF)
def test_a_parameter_and_its_low_digits_are_a_float32(dtype):
    x = spread(4000).clamp(-3e4, 3e4)
    p, low = narrow.parted(x, dtype)
    assert torch.equal(p, x.to(dtype))
    unit = np.spacing(np.maximum(np.abs(x.numpy()), 2.0**-14 if dtype == torch.float16 else 0))
    assert np.all(np.abs((narrow.joined(p, low, torch.float32) - x).numpy()) <= unit)


def test_a_float32_and_its_low_digits_are_39_bits():
    x = spread(4000).double() * (1 + 1e-9)
    p, low = narrow.parted(x, torch.float32)
    back = narrow.joined(p, low, torch.float64)
    np.testing.assert_allclose(back.numpy(), x.numpy(), rtol=2.0**-39, atol=0)


@pytest.mark.parametrize("special", [torch.inf, -torch.inf, torch.nan, 0.0, -0.0])
def test_what_is_no_finite_number_stays_what_it_is(special):
    x = torch.full((3,), special)
    p, low = narrow.parted(x, torch.bfloat16)
    found = [narrow.joined(p, low, torch.float32)]
    found.append(narrow.stochastic(x, torch.bfloat16, narrow.noise(x, 1)).float())
    for y in found:
        torch.testing.assert_close(y, x, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALF)
def test_stochastic_rounding_goes_to_a_neighbour_and_is_right_in_the_mean(dtype):
    x = spread(300).clamp(-3e4, 3e4)
    rounds = 4000
    many = x.repeat(rounds, 1)
    found = narrow.stochastic(many, dtype, narrow.noise(many, 7)).double()
    ulp = narrow._unit(x, dtype, narrow.DIGITS[dtype]).double()
    assert torch.all((found - x).abs() < ulp)
    # the standard deviation of a rounding is at most ulp/2
    assert torch.all((found.mean(0) - x).abs() < 5 * 0.5 * ulp / rounds**0.5)
    kept = x.to(dtype).float()
    assert torch.equal(narrow.stochastic(kept, dtype, narrow.noise(x, 3)), kept.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_blocks_are_right_in_the_mean(dtype):
    x = spread(700)
    x = x.square() if dtype == torch.uint8 else x
    store = narrow.write_positive if dtype == torch.uint8 else narrow.write
    total, rounds = torch.zeros(700, dtype=torch.float64), 3000
    state, squares = torch.zeros(700, dtype=dtype), torch.zeros(700, dtype=torch.float64)
    scales = narrow.scales_of(state)
    assert scales.shape == (6,)
    for step in range(rounds):
        store(state, scales, x, narrow.noise(x, step))
        found = narrow.read(state, scales, torch.float32).double()
        total += found
        squares += (found - x) ** 2
    each = scales.repeat_interleave(narrow.BLOCK)[:700]
    deviation = (squares / rounds).sqrt()
    # smaller squares are raised, lest they become zero; smaller others are hit too seldom to tell
    big = x.abs() > (1e-9 if dtype == torch.uint8 else 1e-5) * each
    error = (total / rounds - x).abs()
    assert torch.all(error[big] <= 6 * deviation[big] / rounds**0.5 + 1e-6 * x.abs()[big])
    relative = deviation / x.abs()
    assert relative[x.abs() > 0.01 * each].max() < 0.15
    assert torch.all(found.sign() * x.sign() >= 0)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.uint8])
def test_a_positive_square_never_becomes_zero(kind):
    x = torch.tensor([1e-30, 1e-20, 1e-3, 0.0, 1e30]).repeat(60)
    state = torch.zeros(300, dtype=kind)
    scales = narrow.scales_of(state) if kind == torch.uint8 else None
    for step in range(5):
        narrow.write_positive(state, scales, x, narrow.noise(x, step))
        assert torch.equal(narrow.read(state, scales, torch.float32) > 0, x > 0)


def test_noise_is_uniform_and_changes_with_step_and_place():
    x = torch.zeros(100_000)
    words = [narrow.noise(x, step) for step in (1, 2, 2**40)]
    words.append(narrow.other_noise(words[0]))
    words += [words[0] >> 16]
    rows = np.array([(narrow._uniform(w, torch.float64)).numpy() for w in words])
    assert np.all(np.abs(rows.mean(1) - 0.5) < 0.005)
    assert np.all(np.abs(rows.var(1) - 1 / 12) < 0.002)
    assert np.all(np.abs(np.corrcoef(rows) - np.eye(len(rows))) < 0.015)
    assert abs(np.corrcoef(rows[0, 1:], rows[0, :-1])[0, 1]) < 0.015


def test_places_are_those_in_memory():
    """A transposed tensor is rounded as the one whose memory it shares."""
    x = spread(600).reshape(20, 30)
    turned = x.T.contiguous().T
    word, other = narrow.noise(x, 3), narrow.noise(turned, 3)
    assert torch.equal(word.reshape(-1), other.T.reshape(-1))
    states = [torch.zeros_like(t, dtype=torch.int8) for t in (x.T, turned.T)]
    for state, t in zip(states, (x.T, turned.T), strict=True):
        narrow.write(state, narrow.scales_of(state), t, narrow.noise(t, 1))
    assert not torch.equal(*states)


# ---------------------------------------------------------------- runs


def ill_conditioned(dim=40):
    rng = np.random.default_rng(0)
    a = 10.0 ** rng.uniform(-2, 1, dim)
    b = rng.normal(size=dim)
    return torch.tensor(a), torch.tensor(b)


def distance(kind, steps=2000, dtype=torch.float32, **options):
    """How far f is above its minimum, from a start on which all dtypes agree."""
    a, b = ill_conditioned()
    p = torch.nn.Parameter(torch.ones(40, dtype=dtype))
    optimizer = kind([p], lr=0.1, tick=20, **options)
    for _ in range(steps):
        p.grad = (a * (p.detach().double() - b)).to(dtype)
        optimizer.step()
    return float((a * (p.detach().double() - b) ** 2).sum()), optimizer.state[p]


@pytest.mark.parametrize("kind", [AdaHB, HB, NAG])
@pytest.mark.parametrize("state_dtype", ["bf16", "int8"])
def test_narrow_states_train_nearly_as_well(kind, state_dtype):
    start = float((ill_conditioned()[0] * (1 - ill_conditioned()[1]) ** 2).sum())
    full, _ = distance(kind)
    found, state = distance(kind, state_dtype=state_dtype)
    assert full < 0.01 * start
    assert found < full + 0.005 * start
    kinds = {"bf16": {torch.bfloat16}, "int8": {torch.int8, torch.uint8}}[state_dtype]
    assert {state[key].dtype for key in ("u", "v") if key in state} <= kinds


@pytest.mark.parametrize("dtype", HALF)
def test_small_updates_are_not_lost(dtype):
    """1000 updates of a tenth of what rounding to the nearest lets through."""
    ends = {}
    for rounding in ("nearest", "stochastic", "compensated", None):
        p = torch.nn.Parameter(torch.ones(2000, dtype=dtype))
        optimizer = PSG([p], lr=float(torch.finfo(dtype).eps) / 40, tick=10**9, rounding=rounding)
        p.grad = torch.ones_like(p)
        for _ in range(1000):
            optimizer.step()
        ends[rounding] = float(p.detach().double().mean())
    eps = torch.finfo(dtype).eps
    assert ends["nearest"] == 1.0
    assert ends["compensated"] == ends[None]
    assert abs(ends[None] - (1 - 25 * eps)) <= eps / 2
    assert abs(ends["stochastic"] - (1 - 25 * eps)) <= eps / 2


@pytest.mark.parametrize("constraint", [L1Ball(0.5), L2Ball(0.7), Box(-0.05, 0.1)])
@pytest.mark.parametrize("form", ["averaging", "paper"])
@pytest.mark.parametrize("state_dtype", ["bf16", "int8"])
def test_narrow_states_leave_every_step_feasible(constraint, form, state_dtype):
    p = torch.nn.Parameter(torch.zeros(300))
    optimizer = AdaHB(
        [p], lr=0.05, tick=3, constraint=constraint, form=form, state_dtype=state_dtype
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        p.grad = torch.randn(300, generator=generator)
        optimizer.step()
        assert constraint.contains(p)
    assert set(optimizer.state[p]) >= {"p" if form == "averaging" else "u", "v"}


@pytest.mark.parametrize("options", [{"state_dtype": "int8"}, {"rounding": "stochastic"}])
@pytest.mark.parametrize(
    ("kernel", "off"), [({"foreach": True}, 1e-3), ({"capturable": True}, 0.0)]
)
def test_kernels_round_alike(options, kernel, off):
    """The multi-tensor one orders additions differently, which tips a rounding now and then."""
    ends = []
    for chosen in ({"foreach": False}, kernel):
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(20, 30).to(torch.bfloat16))
        optimizer = AdaHB([p], tick=3, **options, **chosen)
        for _ in range(10):
            p.grad = torch.randn(20, 30).to(torch.bfloat16)
            optimizer.step()
        ends.append(p.detach().double())
    assert (ends[0] - ends[1]).abs().mean() <= off


def test_memory_is_what_the_documentation_says():
    p = torch.nn.Parameter(torch.zeros(1_000_000))
    optimizer = AdaHB([p], state_dtype="int8")
    p.grad = torch.ones_like(p)
    optimizer.step()
    held = [x for x in optimizer.state[p].values() if x.ndim]
    assert sum(x.numel() * x.element_size() for x in held) <= 2.07e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state_dtype": "int4"}, "state_dtype must be one of 'bf16', 'int8', got 'int4'"),
        ({"rounding": "up"}, "rounding must be one of 'compensated', .* got 'up'"),
        ({"state_dtype": "int8", "differentiable": True}, "differentiable=True must go without"),
        ({"rounding": "stochastic", "differentiable": True}, "differentiable=True must go"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AdaHB([torch.nn.Parameter(torch.zeros(2))], **options)


def test_complex_numbers_have_no_blocks():
    with pytest.raises(TypeError, match="state_dtype='int8' needs real parameters"):
        HB([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))], state_dtype="int8")
