"""The digits experiment: a run is repeatable and learns; the summary is of what was run."""

import numpy as np
import pytest

from adahb.experiments import digits
from adahb.experiments.digits import DigitsTask

RUNS = [("AdaHB", None, None), ("AdaHB", 0.01, 10), ("Adam", 0.001, None), ("SGD", 0.01, None)]


@pytest.mark.parametrize("setting", RUNS)
def test_a_run_learns_and_is_repeatable(setting):
    task = DigitsTask(*setting, seed=0, epochs=2)
    result = task.compute()
    assert len(result["train_loss"]) == 2
    assert result["train_loss"][-1] < np.log(10) / 2
    assert result["test_accuracy"] > 0.6
    assert task.compute() == result


def test_a_rival_needs_a_learning_rate():
    with pytest.raises(ValueError, match="lr must be given for Adam"):
        DigitsTask("Adam", None, None, 0, epochs=1).compute()


class Canned:
    """A store whose losses follow from the setting: AdaHB 1, Adam lr, SGD 2 lr, plus the seed."""

    def result(self, task):
        level = {"AdaHB": 1.0, "Adam": task.lr, "SGD": 2 * (task.lr or 0)}[task.optimizer]
        return {"train_loss": [9.0, level + task.seed], "test_accuracy": 0.5 + 0.01 * task.seed}


@pytest.mark.parametrize("grid", [False, True])
def test_the_summary(grid):
    found = digits.summary(Canned(), grid=grid)
    assert len(found["settings"]) == 9 + 35 * grid
    assert found["best_rival"] == {"optimizer": "Adam", "lr": 0.0001}
    difference = found["loss_of_AdaHB_minus_best_rival"]
    assert difference["value"] == pytest.approx(1 - 0.0001)
    assert difference["low"] == pytest.approx(difference["high"])  # paired: the seed cancels
    first = found["settings"][0]
    assert (first["optimizer"], first["lr"], first["tick"]) == ("AdaHB", None, None)
    assert first["train_loss"]["value"] == pytest.approx(3.0)
    assert first["test_accuracy"]["value"] == pytest.approx(0.52)


def test_the_parts_of_a_split_are_apart():
    (x, y), (x_test, y_test) = digits._split(1)
    assert len(x) + len(x_test) == 1797
    assert len(y_test) == digits.HELD_OUT == len(x_test)
    assert x.shape[1:] == (1, 8, 8)
    assert float(x.max()) == 1.0
    assert not np.array_equal(digits._split(2)[0][1], y)
