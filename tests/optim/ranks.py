"""Runs the checks of `sharded_checks` in several processes that know each other by gloo.

Starting a process takes longer than most checks, so one group of processes makes all of them.
"""

import json
import os
import subprocess
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

HERE = Path(__file__).resolve()
PATIENCE = timedelta(seconds=120)
"""How long a rank waits for one that has failed."""


def launch(world, folder):
    """Make all checks for a number of ranks; return what failed, by check and rank."""
    paths = [str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "TRITON_INTERPRET": "1",
    }
    store = folder / f"store of {world}"
    command = [sys.executable, str(HERE), str(world), str(store), str(folder)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for rank in range(world)
    ]
    failures = {}
    for rank, process in enumerate(ranks):
        out, err = process.communicate()
        if process.returncode:
            failures["start", rank] = err.decode()
            continue
        for name, text in json.loads(out.decode().splitlines()[-1]).items():
            failures[name, rank] = text
    return failures


def main(world, store, folder, rank):
    """What one rank does: print as JSON what failed."""
    import torch
    import torch.distributed as dist
    from optim.sharded_checks import CHECKS

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module=r"torch\.")
    chosen = os.environ.get("CHECKS", "").split()
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, world),
        rank=rank,
        world_size=world,
        timeout=PATIENCE,
    )
    failures = {}
    for check in CHECKS:
        if world in check.worlds and (not chosen or check.__name__ in chosen):
            torch.manual_seed(0)
            try:
                check(Path(folder))
            except Exception:
                failures[check.__name__] = traceback.format_exc()
    dist.destroy_process_group()
    print(json.dumps(failures))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
