"""The precision experiment: runs are in the dtypes they name; the summary is of what was run."""

import numpy as np
import pytest

from adahb.experiments import precision
from adahb.experiments.precision import PrecisionTask


@pytest.mark.parametrize("setting", [("float32", None, "int8"), ("bfloat16", "stochastic", None)])
def test_a_run_is_repeatable_and_learns(setting, monkeypatch):
    seen = {}
    real = PrecisionTask._optimizer

    def watched(self, model):
        seen.update(dtype=str(next(model.parameters()).dtype), optimizer=real(self, model))
        return seen["optimizer"]

    monkeypatch.setattr(PrecisionTask, "_optimizer", watched)
    task = PrecisionTask(*setting, seed=0, epochs=1)
    result = task.compute()
    assert task.compute() == result
    assert result["train_loss"][0] < np.log(10)
    assert seen["dtype"] == f"torch.{setting[0]}"
    group = seen["optimizer"].param_groups[0]
    assert (group["rounding"], group["state_dtype"]) == setting[1:]


class Canned:
    """A store whose losses are ten times as large with weights in bfloat16."""

    def result(self, task):
        loss = 1e-3 * (task.seed + 1) * (10.0 if task.weights == "bfloat16" else 1.0)
        return {"train_loss": [9.0, loss], "test_accuracy": 0.9}


def test_the_summary():
    found = precision.summary(Canned())
    assert len(found["settings"]) == len(precision.SETTINGS) == len(precision.tasks()) // 5
    for row in found["settings"]:  # paired: the seed cancels
        difference = row["log10_loss_minus_that_of_float32"]
        assert difference["value"] == pytest.approx(float(row["weights"] == "bfloat16"))
        assert difference["low"] == pytest.approx(difference["high"])
