"""The linear benchmark runs whole on a small set, and its peers compute the same."""

import json
import sys

import numpy as np
import pytest

from adahb import cli, schedules
from adahb.experiments import bench_linear, bench_linear_cost, peers
from adahb.experiments.bench_linear_cost import generated
from adahb.experiments.convex import Problem
from adahb.experiments.hinge import hinge, optimum
from adahb.experiments.store import read_json, to_json
from adahb.experiments.tables import linear_tables
from adahb.linear.machine import Machine
from adahb.problems import LinearObjective
from adahb.sets import L1Ball

CANCER = Problem("breast_cancer", 1.0)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bench_linear_cost, "DIMENSIONS", (256, 512))
    monkeypatch.setattr(bench_linear_cost, "TEXT", 700)


@pytest.mark.parametrize("dual", [False, True])
def test_both_programs_find_the_optimum(dual):
    found = peers.highs(hinge("breast_cancer"), 1.0, dual=dual, limit=60.0)
    assert found["solved"]
    assert 0 < found["seconds"] < 60
    assert found["value"] == pytest.approx(optimum("breast_cancer", 1.0).value, abs=1e-9)


def test_a_stopped_program_counts_as_its_limit():
    found = peers.highs(hinge("digits"), 5.0, dual=False, limit=1e-6)
    assert found == {"seconds": 1e-6, "solved": False, "value": None}


def test_the_dense_loop_takes_the_machines_steps():
    rows = generated(300, 500, evenly=False)
    objective, schedule = LinearObjective(rows["X"], rows["y"], "hinge"), schedules.HB(alpha=3.0)
    order = np.random.default_rng(0).permutation(300)
    machine = Machine(objective.X, objective.y, "hinge", schedule, constraint=L1Ball(5.0))
    machine.run(order)
    w = peers.dense_loop(objective, 5.0, schedule, order)
    assert np.abs(w).sum() > 1
    np.testing.assert_allclose(w, machine.coef, atol=1e-12)


@pytest.mark.parametrize("evenly", [False, True])
def test_generated_rows(evenly):
    rows = generated(200, 1000, evenly=evenly)
    X, y = rows["X"], rows["y"]
    assert X.shape == (200, 1000)
    assert (np.diff(X.indptr) == 75).all()
    assert X.has_canonical_format
    np.testing.assert_allclose(np.sqrt(X.power(2).sum(axis=1)), 1)
    assert set(y) == {-1.0, 1.0}


def test_all_parts(small, tmp_path):
    out = tmp_path / "linear.json"
    found = bench_linear.run([CANCER], repeats=1, limit=30.0, scale=0.02, out=out)
    assert read_json(out) == json.loads(to_json(found))
    (steps,), (accuracy,), (auto,), (memory,) = (
        found[part] for part in ("steps", "accuracy", "auto", "memory")
    )
    seconds = steps["seconds a step"]
    sgd = seconds["SGDClassifier l1"]["median"]
    for name in ("adahb, averaging", "hb, averaging", "hb, steps alone", "LinearSVC"):
        ratio = seconds[name]["over SGDClassifier l1"]["median"]
        assert ratio == pytest.approx(seconds[name]["median"] / sgd)
    assert accuracy["programs"]["HiGHS"]["solved"]
    assert set(accuracy["ours"]) >= {"adahb, averaging", "hb, averaging"}
    assert auto["hb"]["alpha"] > 0
    assert memory["csr bytes"] > 569 * 30 * 12
    assert memory["peak bytes"] > 0
    contenders = found["growth"]["against the dense loop"]["contenders"]
    assert len(contenders) == 5
    for name, turn in contenders.items():
        ours = contenders[f"{name.split(',')[0]}, ours"]
        assert turn["over ours"] == pytest.approx(turn["median"] / ours["median"])
    for table in (linear_tables(found), linear_tables(read_json(out))):
        assert len(table) == 6
        for head, rows in table.values():
            assert rows
            assert {len(row) for row in rows} == {len(head)}


def test_parts_not_asked_for_stay(small, tmp_path):
    out = tmp_path / "linear.json"
    kept = [{"dataset": "digits", "csr bytes": 2**20, "peak bytes": 2**21, "ratio": 2.0}]
    out.write_text(json.dumps({"memory": kept}))
    found = bench_linear.run([CANCER], parts=["growth"], repeats=1, scale=0.01, out=out)
    assert found["memory"] == kept
    assert set(read_json(out)) == {"memory", "growth", "benchmark", "machine"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ["speed"]}, "parts must be one of 'steps'.*got 'speed'"),
        ({"repeats": 0}, "repeats must be an integer of at least 1"),
        ({"limit": 0.0}, "limit must be a number"),
        ({"scale": 2.0}, "scale must be a number"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bench_linear.run([CANCER], **options)


def test_the_command_prints_json_or_tables(monkeypatch, capfd):
    case = {"dataset": "digits", "csr bytes": 2**20, "peak bytes": 2**21, "ratio": 2.0}
    made = {"memory": [case]}
    monkeypatch.setattr(bench_linear, "run", lambda *_, **__: made)
    for options, expected in ((["--json"], '"csr bytes"'), ([], "Peak memory of a fit")):
        command = ["adahb", "bench", "linear", "--sets", "digits", *options]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit):
            cli.main()
        assert expected in capfd.readouterr().out
