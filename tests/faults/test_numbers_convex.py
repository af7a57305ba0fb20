"""Numbers at the ends of the floats: a right answer or a clear error."""

from collections import Counter

import pytest
from faults.numbers_convex import soak


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What a small part of the soak came to."""
    return soak(0.02, tmp_path_factory.mktemp("numbers"))


def test_every_try_has_a_defined_outcome(outcomes):
    assert outcomes["defects"] == 0
    total = Counter()
    for row in outcomes["rows"]:
        assert row["tried"] == sum(row["outcomes"].values())
        assert set(row["outcomes"]) <= {"right answer", "clear error"}
        total.update(row["outcomes"])
    assert total["right answer"] > 900
    assert total["clear error"] > 400
