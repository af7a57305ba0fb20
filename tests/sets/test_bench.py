"""The benchmark of the projections runs, and its peers compute the same points."""

import json

from adahb.experiments.bench_projection import run


def test_the_benchmark_reports_every_case_beside_its_peers():
    found = run(d=3000, repeats=1)
    assert json.loads(json.dumps(found)) == found
    names = [case["name"] for case in found["cases"]]
    assert {"l1, dense, radius 1", "metric l1, dense, radius 1"} <= set(names)
    for case in found["cases"]:
        assert case["d"] == 3000
        assert case["seconds"]["ours"]["best"] > 0
        for peer in ("numpy sort", "numpy sort without simd"):
            ratio = case["seconds"][peer]["best"] / case["seconds"]["ours"]["best"]
            assert case["times faster than"][peer] == ratio
