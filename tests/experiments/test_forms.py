"""The forms experiment: weights stay in their sets; the summary is of what was run."""

import numpy as np
import pytest

from adahb.experiments import forms
from adahb.experiments.forms import FormTask, Setting


def test_a_run_keeps_the_dense_weights_in_their_sets_and_is_repeatable():
    task = FormTask(0, "l1", (30.0, 5.0), form="paper", epochs=1)
    result = task.compute()
    assert task.compute() == result
    assert result["train_loss"][0] < np.log(10)
    assert np.all(np.array(result["sizes"]["l1"]) <= np.array([30.0, 5.0]) * (1 + 1e-5))
    free = FormTask(0, epochs=1).compute()
    assert free["sizes"]["l1"][0] > 60.0
    assert free["zeros"] == 0.0


def test_the_settings():
    every = forms.settings()
    assert len(every) == len(set(every)) == 20
    assert {s.projection for s in every if s.kind == "box"} == {"metric"}


class Canned:
    """A store whose losses follow from the setting: ten times as large in the paper form."""

    def result(self, task):
        loss = 1e-3 * (task.seed + 1) * (10.0 if task.form == "paper" else 1.0)
        sizes = {kind: [200.0 + task.seed, 10.0] for kind in forms.KINDS}
        return {"train_loss": [9.0, loss], "test_accuracy": 0.9, "zeros": 0.25, "sizes": sizes}


def test_radii_are_shares_of_the_free_sizes_of_the_same_seed():
    tasks = list(forms.tasks(Canned(), Setting("l1", 0.1, "averaging", "metric")))
    assert [t.radii for t in tasks][:2] == [(20.0, 1.0), (20.1, 1.0)]
    assert len({str(t.spec()) for t in tasks}) == 5


def test_the_summary():
    found = forms.summary(Canned())
    assert len(found["settings"]) == 20
    first = found["settings"][0]
    assert first["train_loss"]["value"] == pytest.approx(3e-3)
    assert first["zeros"]["value"] == 0.25
    assert len(found["compared"]) == 10
    for row in found["compared"]:  # paired: the seed cancels
        difference = row["log10_loss_of_averaging_minus_paper"]
        assert difference["value"] == pytest.approx(-1)
        assert difference["low"] == pytest.approx(difference["high"])
