"""Parameters spread over ranks walk as in one process: see `sharded_checks` for what is checked."""

import pytest
import torch.distributed as dist
from optim.ranks import launch


@pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
def test_every_check_holds_on_every_rank(tmp_path):
    failures = {}
    for world in (4, 2):  # two ranks take up a checkpoint of four
        failures |= launch(world, tmp_path)
    texts = [f"{check} on rank {rank}: {text}" for (check, rank), text in failures.items()]
    assert not failures, "\n".join(texts)
