"""The claims, judged over short horizons: the same code, the verdicts that must come out."""

import json

import numpy as np
import pytest
from rich.console import Console

from adahb import schedules
from adahb.experiments import claims, rates, synthetic, theorems
from adahb.experiments.claims import Rates
from adahb.experiments.rates import HardRate, HingeRate
from adahb.experiments.runs import Hard, Hinge, Method, Task
from adahb.experiments.store import Store

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def short(monkeypatch):
    """Horizons 2^5 to 2^9."""
    horizons = tuple(2**k for k in range(5, 10))
    monkeypatch.setattr(rates, "HORIZONS", horizons)
    monkeypatch.setattr(claims, "HORIZONS", horizons)


def judged(part, store):
    for job in part.tuning():
        store.result(job)
    for job in part.jobs(store):
        store.result(job)
    return part.judge(store)


def test_c8_comes_out_as_the_counterexamples_say(store):
    parts = theorems.parts()
    store.complete((job for p in parts for job in p.jobs(store)), workers=2, console=QUIET)
    verdicts = {part.id: part.judge(store).verdict for part in parts}
    failing = {"C8 Lemma 2", "C8 Theorem 5, printed"}
    assert {name for name, v in verdicts.items() if v == "not supported"} == failing
    assert {v for name, v in verdicts.items() if name not in failing} == {"supported"}
    (printed,) = (p.judge(store) for p in parts if p.id == "C8 Theorem 5, printed")
    stuck, metric = (finding.estimate.value for finding in printed.findings[1:])
    assert stuck == pytest.approx(0.241, abs=1e-3)
    assert metric < 1e-6


def test_c2_on_the_hard_function(store, short):
    hb = claims.all_parts()[1]
    claim = judged(Rates(hb.id, hb.statement, hb.hard, ()), store)
    assert claim.id == "C2 HB"
    assert claim.verdict == "supported"
    slow = judged(claims.SlowLast(), store)
    assert slow.verdict == "supported"
    fast = [finding.estimate.value for finding in claim.findings[::2]]
    assert max(fast) < slow.findings[0].estimate.value - 0.05


def test_a_slow_method_is_not_supported(store, short):
    """The same judgement of PSG's last iterate must come out the other way."""
    slow = HardRate("PSG", Method(schedules.PSG(alpha=2.0)))
    assert judged(Rates("C0", "", (slow,), ()), store).verdict == "not supported"


def test_c4_on_the_hard_function(store, short):
    part = next(p for p in claims.all_parts() if getattr(p, "id", "") == "C4 HB")
    half = Rates(part.id, part.statement, part.hard[:1], ())
    assert half.hard[0].output == "average"
    assert judged(half, store).verdict == "supported"


def test_hinge_rates_tune_on_a_seed_of_their_own(store, short):
    rate = claims._hinge_rates("HB", Method(claims.HB))[0]
    tuned = judged(Rates("C0", "", (), (rate,)), store)
    assert len(tuned.findings) == 1
    assert {task.seed for task in rate.tuning_tasks()} == {rates.TUNING_SEED}
    assert {task.seed for task in rate.tasks(store)} == set(rates.SEEDS)
    assert rates.TUNING_SEED not in rates.SEEDS
    assert rate.factor(store) in rates.GRID
    final = [task.gaps(store)[-1] for task in rate.tuning_tasks()]
    assert rates.GRID[int(np.argmin(final))] == rate.factor(store)


def test_constant_momentum_keeps_the_steps_of_z():
    for base in (claims.HB, claims.ADAHB):
        constant = claims._constant(base, 0.9)
        assert constant(5).eta == pytest.approx(base(5).eta, rel=1e-14)
        assert constant(5).beta2 == base(5).beta2


def test_every_claim_has_its_parts():
    ids = {part.id if hasattr(part, "id") else type(part).__name__ for part in claims.all_parts()}
    assert {"AgainstPSG", "SlowLast", "C2 HB", "C2 AdaHB", "C2 printed"} <= ids
    assert {"C4 HB", "C4 AdaHB", "C8 Lemma 2", "C8 Theorem 3", "C8 Theorem 6"} <= ids


def test_a_task_is_the_reference(store):
    task = Task(Hard(50), Method(claims.HB, "paper"), (10, 50))
    objective, ball = Hard(50).make()
    w = w_before = np.zeros(50)
    for t in range(1, 51):
        value, g = objective.value_and_subgradient(w)
        alpha, beta = 8.0 / ((t + 2) * np.sqrt(t)), t / (t + 2)
        w, w_before = ball.project(w - alpha * g + beta * (w - w_before)), w
    assert task.gaps(store)[-1] == pytest.approx(value, rel=1e-12)


def test_specs_are_plain_and_tell_runs_apart():
    tasks = [
        Task(Hard(50), Method(claims.HB), (50,)),
        Task(Hard(50), Method(claims.HB, "paper"), (50,)),
        Task(Hard(50, 3.0), Method(claims.HB), (50,)),
        Task(Hard(50, reading="paper"), Method(claims.HB), (50,)),
        Task(Hard(50), Method(schedules.PSG(alpha=8.0)), (50,)),
        Task(Hard(50), Method(schedules.NAG(alpha=8.0)), (50,)),
        Task(Hinge("digits", 5.0), Method(claims.HB), (50,)),
        Task(Hinge("digits", 5.0), Method(claims.HB), (50,), 0),
        Task(Hinge("digits", 5.0), Method(claims.HB), (50,), 1),
    ]
    assert len({json.dumps(task.spec(), sort_keys=True) for task in tasks}) == len(tasks)


def test_the_figures_curves():
    for c in (2.0, 4.0):
        curves = synthetic.curves(100, c)
        assert [curve.label for curve in curves if curve.published] == [
            "PSG, last",
            "HB",
            "AdaHB as printed",
        ]
        psg = curves[0].task
        assert psg.method.schedule == schedules.PSG(alpha=c)
        assert psg.problem == Hard(100, c)


def test_tuned_like_takes_anothers_choice(store, short):
    tuned = claims._hinge_rates("HB", Method(claims.HB))[0]
    for job in tuned.tuning_tasks():
        store.result(job)
    unit = Method(schedules.HBConstant(alpha=0.1, beta=0.9))
    rate = HingeRate("", tuned.problem, unit, "average", tuned)
    assert rate.factor(store) == tuned.factor(store)
    (first, *_) = rate.tasks(store)
    (reference, *_) = tuned.tasks(store)
    assert first.method.schedule(3).eta == pytest.approx(reference.method.schedule(3).eta)
