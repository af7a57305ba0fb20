"""The benchmark of an epoch, on the CPU with a handful of images."""

import json

import pytest

pytest.importorskip("torch")

from adahb.experiments import bench_training, result_tables


def test_what_is_measured(tmp_path, one_thread):
    kept = tmp_path / "training.json"
    found = bench_training.run(
        ("cnn",),
        device="cpu",
        batches=(8,),
        in_flight=(1, 2),
        modes=("eager",),
        images=16,
        repeats=1,
        out=kept,
    )
    assert json.loads(kept.read_text()) == found
    (epoch,), (alone, both) = found["epochs"], found["in flight"]
    assert (epoch["network"], epoch["batch"], epoch["mode"]) == ("cnn", 8, "eager")
    assert 0 < epoch["min"] <= epoch["median"]
    assert [alone["in flight"], both["in flight"]] == [1, 2]
    tables = result_tables.training(found)
    (row,) = tables["Seconds an epoch"][1]
    assert row[-1] == "1.0"
    assert tables["Runs in flight"][1][0][-1] == "1.00"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"networks": ("vgg",)}, "networks must be one of"),
        ({"modes": ("fast",)}, "modes must be one of"),
        ({"device": "tpu"}, "device must be one of"),
        ({"device": "cpu", "images": 8}, "images must be"),
    ],
)
def test_what_cannot_be_measured(options, message):
    with pytest.raises(ValueError, match=message):
        bench_training.run(**options)
