"""What is recorded is what the reference does, when it was asked for and not before."""

import csv
import json
import math
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from adahb import problems, reference, schedules
from adahb.certificates import Certificate
from adahb.logging import COLUMNS, CSVWriter, TensorBoardWriter, quantities, record
from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import L1Ball


def quadratic(kind=AdaHB, **options):
    w = torch.nn.Parameter(torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64))
    return w, kind([w], **{"lr": 0.1, "tick": 1, **options})


def train(w, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (w - 1).square().sum().backward()
        optimizer.step()


CASES = {
    "free": {},
    "averaging": {"constraint": L1Ball(0.8)},
    "paper": {"constraint": L1Ball(0.8), "form": "paper"},
    "constant": {"momentum": 0.9},
    "offset": {"constraint": L1Ball(0.8), "rounding": "compensated"},
}


class TestQuantities:
    @pytest.mark.parametrize("name", CASES)
    def test_they_are_those_of_the_reference(self, name):
        options = dict(CASES[name])
        dtype = torch.float32 if name == "offset" else torch.float64
        X, y = np.random.default_rng(0).normal(size=(20, 3)), np.ones(20)
        objective = problems.LinearObjective(X, y, "hinge")
        seen = []
        reference.adahb(
            objective,
            7,
            alpha=0.3,
            gamma=0.1,
            callback=seen.append,
            constraint=options.get("constraint"),
            form=options.get("form", "averaging"),
            **({"momentum": 0.9} if "momentum" in options else {}),
        )
        w = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
        optimizer = AdaHB([w], lr=0.3, tick=1, **options)
        for expected in seen:
            w.grad = torch.tensor(expected.g).to(dtype)
            optimizer.step()
            (row,) = quantities(optimizer)
            at = expected.coefficients
            assert (row["group"], row["step"], row["t"]) == (0, expected.step, expected.step)
            assert (row["beta1"], row["beta2"]) == (at.beta1, at.beta2)
            assert row["alpha"] == pytest.approx(at.alpha, rel=1e-12)
            tolerance = 1e-5 if name == "offset" else 1e-9
            step = at.alpha / np.mean(expected.v_hat)
            assert row["effective_step"] == pytest.approx(step, rel=tolerance)
            behind = np.linalg.norm(expected.w_next - expected.z_next)
            assert row["distance"] == pytest.approx(behind, rel=tolerance, abs=1e-7)

    @pytest.mark.parametrize("state_dtype", ["bf16", "int8"])
    def test_narrow_states_are_read_as_what_they_stand_for(self, state_dtype):
        rows = []
        for dtype in (None, state_dtype):
            w = torch.nn.Parameter(torch.linspace(0.1, 1, 300))
            optimizer = AdaHB([w], lr=0.1, tick=1, state_dtype=dtype)
            train(w, optimizer, 5)
            rows += quantities(optimizer)
        assert rows[0].keys() == rows[1].keys()
        assert rows[1] == pytest.approx(rows[0], rel=0.02)

    def test_what_a_method_does_not_have_is_left_out(self):
        for kind, absent in ((HB, {"beta2"}), (NAG, {"beta2", "distance"})):
            w, optimizer = quadratic(kind)
            train(w, optimizer, 2)
            (row,) = quantities(optimizer)
            assert {*COLUMNS[:9]} - row.keys() == absent
            assert row["effective_step"] == row["alpha"]
        w, optimizer = quadratic(PSG)
        assert quantities(optimizer) == []

    def test_every_group_has_a_row_of_its_own(self):
        w, late = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        groups = [{"params": [w], "name": "body"}, {"params": [late], "lr": torch.tensor(0.5)}]
        optimizer = AdaHB(groups, lr=0.1, tick=2)
        for k in range(5):
            w.grad = torch.ones(2)
            late.grad = torch.ones(2) if k > 2 else None
            optimizer.step()
        body, other = quantities(optimizer)
        assert (body["group"], body["step"], body["t"], body["lr"]) == ("body", 5, 3, 0.1)
        assert (other["group"], other["step"], other["t"], other["lr"]) == (1, 2, 1, 0.5)
        assert other["beta1"] == schedules.AdaHB(alpha=1, tick=2)(2).beta1

    def test_of_a_group_those_that_have_gone_furthest(self):
        w, late = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        optimizer = AdaHB([late, w], lr=0.1, tick=1)
        for k in range(3):
            w.grad, late.grad = torch.ones(2), torch.full((2,), 100.0) if k == 2 else None
            optimizer.step()
        (row,) = quantities(optimizer)
        assert row["step"] == 3
        at = schedules.AdaHB(alpha=0.1)(3)
        mean_root = math.sqrt(float(optimizer.state[w]["v"][0])) + at.delta
        assert row["effective_step"] == pytest.approx(at.alpha / mean_root, rel=1e-6)

    def test_complex_and_compensated_parameters(self):
        w = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
        half = torch.nn.Parameter(torch.full((2,), 0.1, dtype=torch.bfloat16))
        optimizer = AdaHB([{"params": [w]}, {"params": [half], "constraint": L1Ball(1.0)}], tick=1)
        for _ in range(3):
            w.grad, half.grad = torch.full_like(w, 1j), torch.ones_like(half)
            optimizer.step()
        first, second = quantities(optimizer)
        assert math.isfinite(first["distance"])
        assert 0 < second["distance"] < 1


class TestRecord:
    def test_rows_come_at_multiples_and_until_removed(self):
        w, optimizer = quadratic()
        rows = []
        recording = record(optimizer, every=3, to=rows.append)
        train(w, optimizer, 7)
        recording.remove()
        train(w, optimizer, 7)
        assert [row["step"] for row in rows] == [3, 6]

    def test_a_resumed_run_has_the_rows_of_one_that_was_not_stopped(self):
        w, optimizer = quadratic()
        straight, parts = [], []
        with record(optimizer, every=3, to=straight.append):
            train(w, optimizer, 10)
        w, optimizer = quadratic()
        with record(optimizer, every=3, to=parts.append):
            train(w, optimizer, 5)
        twin, other = quadratic()
        with record(other, every=3, to=parts.append), torch.no_grad():
            other.load_state_dict(optimizer.state_dict())  # after the recording has begun
            twin.copy_(w)
            with torch.enable_grad():
                train(twin, other, 5)
        assert parts == straight

    def test_between_readings_the_host_waits_for_nothing_more(self, monkeypatch):
        """Counted: every way in which a number leaves a tensor."""
        count = 0

        def counted(method):
            def call(self, *args):
                nonlocal count
                count += 1
                return method(self, *args)

            return call

        ways = ("item", "tolist", "__int__", "__float__", "__bool__", "__index__", "cpu", "numpy")
        for name in ways:
            monkeypatch.setattr(torch.Tensor, name, counted(getattr(torch.Tensor, name)))

        def reads(steps, **options):
            nonlocal count
            w, optimizer = quadratic(capturable=True)  # whose steps read nothing themselves
            if options:
                record(optimizer, to=(lambda _: None), **options)
            count = 0
            train(w, optimizer, steps)
            return count

        assert reads(9) == 0
        assert reads(9, every=10) == 0
        assert reads(10, every=10) == 1
        assert reads(19, every=10) == 1
        assert reads(20, every=10) == 2

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    @pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
    def test_a_gpu_is_not_waited_for_either(self):
        w = torch.nn.Parameter(torch.ones(3, device="cuda"))
        optimizer = AdaHB([w], capturable=True)
        rows = []
        with record(optimizer, every=5, to=rows.append):
            train(w, optimizer, 1)
            torch.cuda.set_sync_debug_mode("error")
            try:
                train(w, optimizer, 3)
                with pytest.raises(RuntimeError, match="synchroniz"):
                    train(w, optimizer, 1)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        train(w, optimizer, 1)
        assert quantities(optimizer)[0]["step"] == 6
        assert rows == []

    def test_a_step_that_overflowed_shifts_one_row_only(self):
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = AdaHB([w])
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        rows = []
        with record(optimizer, every=4, to=rows.append):
            for k in range(9):
                optimizer.zero_grad()
                scaler.scale((w * (math.inf if k == 1 else 1.0)).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        assert [row["step"] for row in rows] == [3, 4, 8]

    def test_it_goes_on_after_a_failure(self):
        w, optimizer = quadratic()
        rows = []

        def to(row):
            if row["step"] == 2:
                raise OSError("no space left")
            rows.append(row)

        record(optimizer, every=2, to=to)
        with pytest.raises(OSError, match="no space"):
            train(w, optimizer, 4)
        train(w, optimizer, 3)
        assert [row["step"] for row in rows] == [4]

    def test_wrapped_optimizers_are_taken(self):
        class Wrapped:
            def __init__(self, optimizer):
                self.optimizer = optimizer

        w, optimizer = quadratic()
        rows = []
        with record(Wrapped(Wrapped(optimizer)), every=1, to=rows.append):
            train(w, optimizer, 2)
        assert len(rows) == 2

    def test_a_certificate_is_asked_for_at_those_steps(self):
        w, optimizer = quadratic()
        asked, rows = [], []

        def certificate():
            asked.append(1)
            return Certificate(value=3.0, lower_bound=2.5)

        with record(optimizer, every=2, to=rows.append, certificate=certificate):
            train(w, optimizer, 5)
        assert len(asked) == len(rows) == 2
        assert [rows[0][name] for name in ("value", "lower_bound", "gap")] == [3.0, 2.5, 0.5]

    @pytest.mark.parametrize("every", [0, 1.5, "often"])
    def test_refusals(self, every):
        _, optimizer = quadratic()
        with pytest.raises((TypeError, ValueError), match="every"):
            record(optimizer, every=every, to=print)
        with pytest.raises(TypeError, match=r"optimizer must be one of adahb\.optim, got SGD"):
            record(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), to=print)


class TestCSV:
    def rows(self, path):
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    def test_a_file_is_continued(self, tmp_path):
        w, optimizer = quadratic(HB)
        path = tmp_path / "run.csv"
        seen = []
        for _ in range(2):
            writer = CSVWriter(path)
            with record(optimizer, every=2, to=writer), record(optimizer, every=2, to=seen.append):
                train(w, optimizer, 4)
        rows = self.rows(path)
        assert [row["step"] for row in rows] == ["2", "4", "6", "8"]
        assert list(rows[0]) == list(COLUMNS)
        for row, expected in zip(rows, seen, strict=True):
            for name in COLUMNS:
                assert row[name] == str(expected.get(name, ""))

    @pytest.mark.parametrize("cut", [1, 5, 30])
    def test_a_line_that_was_cut_off_is_removed(self, tmp_path, cut):
        path = tmp_path / "run.csv"
        CSVWriter(path)({"group": 'a, "quoted" name', "step": 1})
        whole = path.read_bytes()
        CSVWriter(path)({"group": 0, "step": 2, "lr": 0.123456789, "alpha": 0.987654321})
        path.write_bytes(path.read_bytes()[: len(whole) + cut])
        CSVWriter(path)({"group": 0, "step": 3})
        assert [row["step"] for row in self.rows(path)] == ["1", "3"]
        assert self.rows(path)[0]["group"] == 'a, "quoted" name'

    def test_a_line_for_which_there_is_no_room_is_not_begun(self, tmp_path):
        """The row after it, once there is room again, has a line of its own."""
        path = tmp_path / "run.csv"
        writer = CSVWriter(path)
        writer({"group": 0, "step": 1})
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, before[1]))
        try:
            with pytest.raises(OSError, match=r"run\.csv cannot be written .*make room"):
                writer({"group": 0, "step": 2})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        writer({"group": 0, "step": 3})
        assert [row["step"] for row in self.rows(path)] == ["1", "3"]

    def test_so_is_a_header_that_was(self, tmp_path):
        path = tmp_path / "run.csv"
        path.write_text("group,st")
        CSVWriter(path)({"group": 0, "step": 1})
        assert [row["step"] for row in self.rows(path)] == ["1"]

    def test_the_files_of_others_are_left_alone(self, tmp_path):
        path = tmp_path / "diary.csv"
        path.write_text("dear,diary\n1,2")
        with pytest.raises(ValueError, match="path must be new or a file of a CSVWriter"):
            CSVWriter(path)
        assert path.read_text() == "dear,diary\n1,2"


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    w, optimizer = quadratic()
    seen = []
    shared = SummaryWriter(str(tmp_path / "shared"))
    writers = TensorBoardWriter(tmp_path / "own"), TensorBoardWriter(shared, prefix="run")
    for writer in (*writers, seen.append):
        record(optimizer, every=2, to=writer)
    train(w, optimizer, 4)
    for writer, folder, prefix in zip(writers, ("own", "shared"), ("adahb", "run"), strict=True):
        writer.close()
        events = EventAccumulator(str(tmp_path / folder)).Reload()
        for name in ("t", "beta1", "effective_step", "distance"):
            found = [(e.step, e.value) for e in events.Scalars(f"{prefix}/{name}/0")]
            assert found == [(row["step"], pytest.approx(row[name])) for row in seen]


SHARDED = """
import json, sys
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from adahb.logging import quantities
from adahb.optim import AdaHB

rank, place = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
optimizer = AdaHB(model.parameters(), lr=0.1, tick=1)
for k in range(3):
    optimizer.zero_grad()
    model(torch.full((2, 4), k + 1.0)).square().sum().backward()
    optimizer.step()
print(json.dumps(quantities(optimizer)))
distributed.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_shards_are_summed_over_all_processes(tmp_path, one_thread):
    """Three rows of weights on two processes have the quantities that they have on one."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = AdaHB(model.parameters(), lr=0.1, tick=1)
    for k in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 4), k + 1.0)).square().sum().backward()
        optimizer.step()
    place = (tmp_path / "meeting").as_uri()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHARDED, str(rank), place], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    (whole,) = quantities(optimizer)
    for process in processes:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(said.splitlines()[-1]) == [pytest.approx(whole, rel=1e-6)]
