"""The soak writes every part as soon as it is there, and goes on where it was stopped."""

import re
import sys
import types

import pytest
from faults import soak
from rich.console import Console

from adahb.experiments.store import read_json

QUIET = Console(quiet=True)


@pytest.fixture
def part(monkeypatch):
    """Put a part in the place of another; what it did is counted."""

    def put(name, result):
        calls = []

        def run(scale, folder):
            assert not list(folder.iterdir())
            calls.append(scale)
            if isinstance(result, BaseException):
                raise result
            return {"rows": [{"kind": "x", "tried": 2, "outcomes": {"y": 2}}], "defects": 0}

        module = types.ModuleType(f"faults.{name}")
        module.__spec__ = types.SimpleNamespace(name=module.__name__)
        module.soak = run
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return calls

    return put


def test_a_soak_that_was_stopped_goes_on(tmp_path, part):
    out, first = tmp_path / "soak.json", part("kills", None)
    part("disks", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        soak.soak(out, 10.0, ("kills", "disks"), QUIET)
    assert list(read_json(out)["parts"]) == ["kills"]
    second = part("disks", None)
    found = soak.soak(out, 10.0, ("kills", "disks"), QUIET)
    assert (first, second) == ([0.5], [0.5])
    assert list(found["parts"]) == ["kills", "disks"]
    assert read_json(out)["parts"] == found["parts"]
    assert found["machine"]["torch"]
    soak.soak(out, 5.0, ("kills",), QUIET)
    assert first == [0.5, 0.25]  # of another length it is another soak


def test_a_defect_is_kept_and_tried_again(tmp_path, part):
    out = tmp_path / "soak.json"
    part("kills", AssertionError("lost, seed 7"))
    found = soak.soak(out, 20.0, ("kills",), QUIET)
    assert found["parts"]["kills"]["defects"] == 1
    assert "lost, seed 7" in read_json(out)["parts"]["kills"]["defect"]
    calls = part("kills", None)
    assert soak.soak(out, 20.0, ("kills",), QUIET)["parts"]["kills"]["defects"] == 0
    assert calls == [1.0]


def test_a_part_that_is_not_there_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(soak.util, "find_spec", lambda _: None)
    found = soak.soak(tmp_path / "soak.json", 20.0, ("long",), QUIET)
    assert found["not there"] == ["long"]
    assert found["parts"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--minutes", "0"), "--minutes must be above 0, got 0.0"),
        (("--parts", "kills,rain"), "--parts takes kills, disks, .* got rain"),
    ],
)
def test_bad_arguments(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["soak", *arguments])
    with pytest.raises(SystemExit) as end:
        soak.main()
    assert end.value.code == 2
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
