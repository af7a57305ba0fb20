"""Inside a graph no number is looked at, and the projection is the same."""

import numpy as np
import pytest
import torch
from array_api_compat import torch as xp
from sets.samples import NAMES, every_set
from sets.waiting import WithoutWaiting, as_if_captured

from adahb import sets


@pytest.fixture
def in_a_graph(monkeypatch):
    as_if_captured(monkeypatch)


def test_waiting_is_noticed():
    x = torch.ones(3)
    for wait in (lambda: bool(x.any()), lambda: x[x > 0], lambda: torch.linalg.solve(x.diag(), x)):
        with pytest.raises(AssertionError, match="waits"), WithoutWaiting():
            wait()


def without_waiting(q, x, h):
    q._prepare(x.device)
    with WithoutWaiting():
        return q._project(x, h, xp).reshape(x.shape)


@pytest.mark.parametrize("metric", [False, True], ids=["plain", "metric"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nuclear"])
def test_the_projection_is_the_same_and_nothing_is_waited_for(name, metric, in_a_graph):
    for seed, scale in ((0, 1.0), (1, 0.05), (2, 1e8), (3, 1e-8)):
        q, rng = every_set(seed=seed)[name], np.random.default_rng(seed)
        x, h = scale * rng.standard_normal((3, 4)), 10.0 ** rng.uniform(-4, 4, (3, 4))
        h = h if metric else None
        found = without_waiting(q, torch.tensor(x), None if h is None else torch.tensor(h))
        expected = q.project(x, h)
        size = max(np.abs(x).max(), np.abs(expected).max())
        np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("spread", [1, 8, 16])
@pytest.mark.parametrize("share", [1e-9, 1e-3, 0.5, 0.999999])
def test_metrics_over_many_powers_of_ten(share, spread, in_a_graph):
    """Where Newton's method alone is slow: the fixed number of steps is enough."""
    rng = np.random.default_rng(spread)
    x, h = rng.standard_normal(60), 10.0 ** np.linspace(-spread, spread, 60)
    labels = np.arange(60) % 7
    for q in (
        sets.L2Ball(share * np.linalg.norm(x)),
        sets.L1Ball(share * np.abs(x).sum()),
        sets.GroupL1Ball(
            share * sum(np.linalg.norm(x[labels == g]) for g in range(7)), groups=labels
        ),
    ):
        found = without_waiting(q, torch.tensor(x), torch.tensor(h))
        np.testing.assert_allclose(found.numpy(), q.project(x, h), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "nuclear"])
def test_nan_comes_to_an_end(name, in_a_graph):
    q, x = every_set()[name], torch.randn(3, 4, dtype=torch.float64)
    x[1, 2] = torch.nan
    assert without_waiting(q, x, torch.rand(3, 4, dtype=torch.float64) + 0.1).shape == x.shape


def test_a_set_used_in_inference_keeps_its_derivatives():
    q, x = sets.HalfSpace([1.0, 1.0], 0.0), torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        q.project(x.detach())
    q.project(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
