"""A small share of the kills; the others are in the soak."""

import sys

import pytest
from faults import kills

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@linux
def test_killed_and_begun_again_everything_ends_as_undisturbed(tmp_path):
    found = kills.soak(0.05, tmp_path)
    assert found["sweeps"] == 2 + 1
    assert found["trainings"] == 2
    assert found["bitwise equal in the end"] == 5
    assert found["kills"] == sum(row["tried"] for row in found["rows"]) >= 5
    assert found["looks"] > 0
    assert all(sum(row["outcomes"].values()) == row["tried"] for row in found["rows"])


def test_a_watch_sees_what_is_lost_made_twice_and_cut(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.json").write_text('{"result": 1}')
    watch = kills.Watch(tmp_path)
    watch.look()
    watch.look()
    (runs / "b.json").write_text('{"result": 1}')
    (runs / "b.json").replace(runs / "a.json")
    with pytest.raises(AssertionError, match=r"a\.json was made twice"):
        watch.look()
    (runs / "a.json").unlink()
    with pytest.raises(AssertionError, match=r"a\.json was lost"):
        watch.look()
    (runs / "c.json").write_text('{"result": ')
    with pytest.raises(ValueError, match="not a whole JSON file"):
        watch.look()
