"""Checkpoints are whole or not there, and one that is not as it was written is never loaded."""

import os

import pytest
import torch

from adahb import AdaHB, checkpoints


def trained(steps, state=None):
    """Weights and optimizer after some steps, from the beginning or from a state."""
    model = torch.nn.Linear(5, 3)
    torch.nn.init.ones_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = AdaHB(model.parameters(), lr=0.1, tick=1)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(1, 5)).square().sum().backward()
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "deep" / "run.pt"
    checkpoints.save(trained(4), path)
    return path


def test_what_is_resumed_is_the_run_that_was_not_interrupted(saved):
    resumed = trained(3, checkpoints.load(saved))
    for name, weight in trained(7)["model"].items():
        assert torch.equal(resumed["model"][name], weight)
    assert list(saved.parent.iterdir()) == [saved]


def test_torch_reads_it_too(saved):
    plain, ours = torch.load(saved, weights_only=True), checkpoints.load(str(saved))
    assert torch.equal(plain["model"]["weight"], ours["model"]["weight"])


@pytest.mark.parametrize(
    "harm",
    [
        lambda b: b[:0],
        lambda b: b[:40],
        lambda b: b[:-1],
        lambda b: b + b"\n",
        lambda b: b[:2000] + bytes([b[2000] ^ 1]) + b[2001:],
        lambda b: b[:-1] + bytes([b[-1] ^ 1]),
    ],
)
def test_a_changed_file_is_named_and_not_loaded(saved, harm, monkeypatch):
    saved.write_bytes(harm(saved.read_bytes()))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(ValueError, match=r"run\.pt is not a checkpoint as it was .* delete it"):
        checkpoints.load(saved)


def test_a_file_that_torch_has_written_is_refused(tmp_path):
    torch.save({"x": 1}, tmp_path / "plain.pt")
    with pytest.raises(ValueError, match=r"or not from adahb\.checkpoints\.save"):
        checkpoints.load(tmp_path / "plain.pt")


def test_code_in_a_file_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    checkpoints.save({"x": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(Exception, match="weights_only"):
        checkpoints.load(tmp_path / "trap.pt")
    assert not (tmp_path / "sprung").exists()


def test_what_cannot_be_written_leaves_the_old_one(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"run\.pt cannot be written \(No space left on device\)"):
        checkpoints.save(trained(5), saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_what_is_not_there_is_said_to_be_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        checkpoints.load(tmp_path / "none.pt")
