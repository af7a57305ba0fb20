"""Tensors of every kind: complex, sparse, strided, empty, half, mixed."""

import pytest
import torch

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import L1Ball

EVERY = (AdaHB, HB, NAG, PSG)
every = pytest.mark.parametrize("kind", EVERY)
kernels = pytest.mark.parametrize(
    "kernel", [{"foreach": False}, {"foreach": True}, {"capturable": True}], ids=str
)


def gradients(shape, steps=5, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(steps)]


def run(kind, start, grads, **options):
    p = torch.nn.Parameter(start.clone())
    optimizer = kind([p], lr=0.1, tick=2, **options)
    for g in grads:
        p.grad = g.clone()
        optimizer.step()
    return p.detach(), optimizer.state[p]


@kernels
@every
def test_complex_parameters_have_squares_of_the_modulus(kind, kernel):
    """A step of g is a step of its real and imaginary parts, with V̂ from |g|²."""
    grads = gradients((3,), dtype=torch.complex128)
    start = torch.tensor([1 + 1j, 2.0, -1j], dtype=torch.complex128)
    found, state = run(kind, start, grads, weight_decay=0.1, **kernel)
    if kind is AdaHB:
        assert state["v"].dtype == torch.float64
        turned, _ = run(kind, start * 1j, [g * 1j for g in grads], weight_decay=0.1, **kernel)
        torch.testing.assert_close(turned, found * 1j)  # which holds for the modulus only
        real, _ = run(kind, start.real, [g.abs() for g in grads[:1]], **kernel)
        along = grads[:1][0] / grads[0].abs()
        first, _ = run(kind, along * start.real, grads[:1], **kernel)
        torch.testing.assert_close(first, along * real)
    else:
        parts, _ = run(
            kind, torch.view_as_real(start), list(map(torch.view_as_real, grads)), weight_decay=0.1
        )
        torch.testing.assert_close(torch.view_as_real(found), parts)


@kernels
@every
def test_sparse_gradients_are_dense_ones_with_zeros(kind, kernel):
    """Rows without gradient move by their momentum and forget their second moment."""
    table = torch.nn.Embedding(6, 3, sparse=True)
    start = table.weight.detach().clone()
    optimizer = kind(table.parameters(), lr=0.1, tick=2, **kernel)
    dense = []
    for k in range(4):
        optimizer.zero_grad()
        table(torch.tensor([k, k, 5])).square().sum().backward()  # one index twice: uncoalesced
        assert table.weight.grad.is_sparse
        dense.append(table.weight.grad.to_dense())
        optimizer.step()
    expected, _ = run(kind, start, dense, **kernel)
    assert torch.equal(table.weight.detach(), expected)


LAYOUTS = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 3).contiguous().transpose(0, 3),
    "sliced": lambda x: torch.stack([x, x], -1)[..., 0],
}


@pytest.mark.parametrize("of_gradient", ["contiguous", *LAYOUTS])
@pytest.mark.parametrize("layout", LAYOUTS)
@kernels
def test_memory_layouts(layout, of_gradient, kernel):
    start = gradients((2, 3, 4, 5))[0] * 0.01
    grads = gradients((2, 3, 4, 5))
    put = LAYOUTS.get(of_gradient, torch.clone)
    for kind, options in ((AdaHB, {}), (AdaHB, {"constraint": L1Ball(2.0)}), (NAG, {})):
        expected, _ = run(kind, start, grads, **options, **kernel)
        p = torch.nn.Parameter(LAYOUTS[layout](start))
        strides = p.stride()
        optimizer = kind([p], lr=0.1, tick=2, **options, **kernel)
        for g in grads:
            p.grad = put(g)
            optimizer.step()
        assert torch.equal(p.detach(), expected)
        assert p.stride() == strides
        if layout != "sliced":
            assert all(s.stride() == strides for s in optimizer.state[p].values() if s.ndim)


@kernels
@every
def test_empty_and_0d_parameters(kind, kernel):
    empty, none, point = (torch.nn.Parameter(torch.zeros(s)) for s in ((0,), (3, 0), ()))
    optimizer = kind([empty, none, point], lr=0.1, tick=1, constraint=L1Ball(0.05), **kernel)
    for _ in range(3):
        for p in (empty, none, point):
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert -0.0501 <= point.item() < 0.0 or kind is NAG
    assert [tuple(p.shape) for p in (empty, none)] == [(0,), (3, 0)]


@kernels
@every
def test_dtypes_in_one_optimizer_do_not_see_each_other(kind, kernel):
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64)
    starts = [torch.tensor([1.0, -0.5]).to(d) for d in dtypes]
    params = [torch.nn.Parameter(s.clone()) for s in starts]
    optimizer = kind(params, lr=0.1, tick=2, **kernel)
    grads = gradients((2,))
    for g in grads:
        for p in params:
            p.grad = g.to(p.dtype)
        optimizer.step()
    for p, start in zip(params, starts, strict=True):
        alone, _ = run(kind, start, [g.to(p.dtype) for g in grads], **kernel)
        assert torch.equal(p.detach(), alone)
    assert len({id(s["clock"]) for s in optimizer.state.values()}) == 1


@pytest.mark.parametrize("rounding", ["nearest", None])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@kernels
@every
def test_half_precision_is_float32_rounded(kind, kernel, dtype, rounding):
    """Once a step if to the nearest; at the end only, with the low digits kept."""
    grads = [g.to(dtype) for g in gradients((4,))]
    start = torch.tensor([1.0, 0.3, -2.0, 0.01]).to(dtype)
    options = {"weight_decay": 0.1, "momentum": 0.9} if kind is AdaHB else {"weight_decay": 0.1}
    found, state = run(kind, start, grads, rounding=rounding, **options, **kernel)
    wide = torch.nn.Parameter(start.float())
    optimizer = kind([wide], lr=0.1, tick=2, **options, **kernel)
    for g in grads:
        wide.grad = g.float()
        optimizer.step()
        if rounding == "nearest":
            with torch.no_grad():
                wide.copy_(wide.to(dtype))
    tolerance = {"rtol": 0, "atol": 0} if rounding else {"rtol": 1e-6, "atol": 1e-7}
    assert torch.equal(found, wide.detach().to(dtype))
    assert found.dtype == dtype
    assert ("low" in state) == (rounding is None)
    for key, value in state.items():
        if key != "low":
            assert value.dtype == (torch.int64 if key == "clock" else torch.float32)
            torch.testing.assert_close(value, optimizer.state[wide][key], **tolerance)


@every
def test_capturable_makes_the_same_numbers(kind):
    grads = gradients((3, 2), steps=50)
    start = torch.zeros(3, 2)
    plain, _ = run(kind, start, grads, weight_decay=0.1, foreach=False)
    captured, _ = run(kind, start, grads, weight_decay=0.1, capturable=True)
    torch.testing.assert_close(captured, plain, rtol=1e-6, atol=1e-7)


@every
def test_coefficients_near_one_are_not_rounded_in_float32(kind):
    """v keeps its value under one gradient, though 1 - β2 = 3e-5 is 1e-3 off if β2 is rounded."""
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = kind([p], lr=1e-3, tick=1)
    p.grad = torch.tensor([0.7, 1e-3])
    for _ in range(3000):
        optimizer.step()
    q = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    exact = kind([q], lr=1e-3, tick=1)
    q.grad = p.grad.double()
    for _ in range(3000):
        exact.step()
    for key, value in optimizer.state[p].items():
        torch.testing.assert_close(value.double(), exact.state[q][key].double(), rtol=3e-6, atol=0)
