"""What is made together, or interrupted, is what is made alone: see `together.py`."""

import random
import time

import pytest
from faults import together


def test_a_small_soak(tmp_path):
    result = together.soak(0.02, tmp_path)
    tried = {row["kind"]: row["tried"] for row in result["rows"]}
    for name, words in together.WORDS.items():
        assert name == "loky" or tried[words] > 0
    assert tried["processes that begin at once with one empty cache"] == 2
    assert tried["caches of which every file was damaged"] == 1
    assert all(sum(row["outcomes"].values()) == row["tried"] for row in result["rows"])


@pytest.mark.parametrize("seed", range(8))
def test_damage_changes_a_file(seed, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(2000))
    together.damage(file, random.Random(seed))
    assert file.read_bytes() != bytes(2000)


def test_a_scene_that_fails_is_an_error():
    with pytest.raises(AssertionError, match="nonsense"):
        together.scene({"nonsense": 1}, 0)


JUPYTER = """
import numpy as np
from adahb.linear import HeavyBallClassifier
X = np.random.default_rng(0).normal(size=(2000, 50))
y = np.where(X[:, 0] > 0, 1, -1)
HeavyBallClassifier(tol=None, max_iter=1, step_size=1.0).fit(X, y)  # compiles
model = HeavyBallClassifier(tol=None, max_iter=10**9, step_size=1.0)
print("begun")
model.fit(X, y)
"""


def test_a_notebook_can_be_interrupted():
    pytest.importorskip("ipykernel")
    manager = pytest.importorskip("jupyter_client.manager")
    kernel, client = manager.start_new_kernel()
    try:
        wanted = client.execute(JUPYTER)
        while client.get_iopub_msg(timeout=120)["msg_type"] != "stream":
            pass
        time.sleep(1)  # some epochs
        kernel.interrupt_kernel()
        reply = client.get_shell_msg(timeout=120)
        assert reply["parent_header"]["msg_id"] == wanted
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        client.execute("assert model.t_ % 2000 == 0 and model.predict(X).size == 2000")
        content = client.get_shell_msg(timeout=120)["content"]
        assert content["status"] == "ok", content
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
