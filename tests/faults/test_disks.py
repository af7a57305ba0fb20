"""Each trouble with a disk once; more of them are in the soak."""

import sys

import pytest
from faults import disks


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_disks_that_fail(tmp_path):
    found = disks.soak(0.0, tmp_path)
    assert sum(row["tried"] for row in found["rows"]) == len(disks.SORTS) == len(disks.TRIALS)
    ends = [end for row in found["rows"] for end in row["outcomes"]]
    assert sum(end.startswith(disks.REFUSED) for end in ends) >= 3
