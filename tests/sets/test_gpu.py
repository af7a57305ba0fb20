"""Projections on a GPU are those on the CPU."""

import numpy as np
import pytest
from sets.samples import NAMES, every_set

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def to_gpu(x, dtype):
    return torch.tensor(x, dtype=dtype, device="cuda")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [0.05, 1.0, 1e6])
@pytest.mark.parametrize("with_metric", [False, True])
def test_the_device_does_not_matter(name, dtype, scale, with_metric):
    if name == "nuclear" and with_metric:
        pytest.skip("has no metric projection")
    q, rng = every_set()[name], np.random.default_rng(0)
    x, h = scale * rng.standard_normal((3, 4)), 0.1 + rng.random((3, 4))
    metric = None if not with_metric else to_gpu(h, dtype)
    found = q.project(to_gpu(x, dtype), metric)
    assert found.device.type == "cuda"
    assert found.dtype == dtype
    rounded = to_gpu(x, dtype).cpu().numpy()
    expected = q.project(rounded, None if not with_metric else metric.cpu().numpy())
    tolerance = 1e-11 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(
        found.cpu().numpy(), expected, atol=tolerance * scale, rtol=tolerance
    )
    assert q.contains(found)
    np.testing.assert_allclose(
        float(q.support(found)), float(q.support(expected)), rtol=1e-4, atol=1e-4 * scale
    )


@pytest.mark.parametrize("d", [1, 1000, 1_000_003])
def test_many_entries(d):
    x = torch.randn(d, device="cuda", dtype=torch.float64)
    for name, q in every_set().items():
        if name in ("l2", "l1", "simplex", "linf"):
            expected = q.project(x.cpu())
            torch.testing.assert_close(q.project(x).cpu(), expected, atol=1e-11, rtol=1e-9)
