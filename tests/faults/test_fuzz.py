"""Some inputs of each target in every run of the tests; `soak` tries 200 000 of each."""

import json
import os
import random

import pytest

from . import fuzz

INPUTS = 1500


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_no_input_ends_badly(name, tmp_path):
    found = fuzz.fuzz(name, INPUTS, tmp_path)
    assert found["tried"] == sum(found["outcomes"].values()) == INPUTS
    assert set(found["outcomes"]) == {"right answer", "clear error"}
    assert min(found["outcomes"].values()) > INPUTS / 50
    assert found["memory grew by, MiB"] < fuzz.GROWTH


def test_the_rows_of_a_soak(tmp_path, monkeypatch):
    """What a soak says of itself is what it has tried, and plain data."""
    monkeypatch.setattr(fuzz, "TARGETS", {"idx files": fuzz.TARGETS["idx files"]})
    found = fuzz.soak(0.01, tmp_path)
    (row,) = found["rows"]
    assert row["tried"] == sum(row["outcomes"].values()) == 2000
    assert json.loads(json.dumps(found)) == found


def test_inputs_come_from_the_seed():
    target = fuzz.Target(str, [b"abc", b"de"], [b"word"])
    one, again, other = (random.Random(seed) for seed in (1, 1, 2))
    inputs = [fuzz.made(target, one) for _ in range(50)]
    assert inputs == [fuzz.made(target, again) for _ in range(50)]
    assert inputs != [fuzz.made(target, other) for _ in range(50)]
    assert len(set(inputs)) > 25


HARM = {
    "raises": "raise KeyError(3)",
    "hangs": "while True: pass",
    "crashes": "os.kill(os.getpid(), 11)",
    "eats memory": "bytes(2**33)",
    "keeps memory": "kept[3:] = [b'x' * 2**29]; return 'right answer'",
}


@pytest.mark.parametrize("how", HARM)
def test_what_ends_badly_is_found_with_its_input(how, tmp_path, monkeypatch):
    """A target that goes wrong at its third input: no such end is taken for a good one."""
    (tmp_path / "bad.py").write_text(
        "import os\nfrom faults.fuzz import Target\nkept = []\n"
        "def attempt(data):\n"
        "    if len(kept) < 3:\n        kept.append(1)\n        return 'right answer'\n"
        f"    {HARM[how]}\n"
        "def make(folder):\n    return Target(attempt)\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr(fuzz, "TARGETS", {"bad": "bad:make"})
    monkeypatch.setattr(fuzz, "PATIENCE", 1)
    with pytest.raises(AssertionError, match=r"bad, seed 7, input \d+: the process ended with -?1"):
        fuzz.fuzz("bad", 20, tmp_path)
