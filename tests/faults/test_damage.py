"""Every kind of file damaged in every way, a few times; more often in the soak."""

from dataclasses import replace

import pytest
from faults import damage


def test_damaged_files_are_read_right_or_named(tmp_path):
    found = damage.soak(0.0, tmp_path)
    tried = {row["kind"]: row for row in found["rows"]}
    assert len(tried) == len(found["rows"]) >= 17 * len(damage.DAMAGES)
    for kind, row in tried.items():
        assert sum(row["outcomes"].values()) == row["tried"] > 1
        unchecked = kind.startswith(("LIBSVM file by its path, plain", "unpacked CIFAR file"))
        assert unchecked or not any(end.startswith("other data") for end in row["outcomes"])


@pytest.mark.parametrize("harm", damage.DAMAGES)
def test_a_reader_that_believes_everything_is_found_out(tmp_path, harm):
    path = tmp_path / "numbers"
    content = b"0123456789" * 100
    path.write_bytes(content)
    victim = damage.Victim("believed", path, path.read_bytes)
    with pytest.raises(AssertionError, match=r"believed, .*, seed 3: other data were read"):
        damage.try_damage(victim, harm, 3, content, content)
    assert path.read_bytes() == content
    believing = replace(victim, checked=False)
    assert damage.try_damage(believing, harm, 3, content, content).startswith("other data")


def test_an_error_that_names_no_file_is_found_out(tmp_path):
    def read():
        raise ValueError("something is wrong; delete it")

    victim = damage.Victim("silent", tmp_path / "x", read)
    with pytest.raises(AssertionError, match="silent, cut short, seed 0: something is wrong"):
        damage.try_damage(victim, "cut short", 0, b"", b"content")
