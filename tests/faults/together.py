"""Several threads, several processes, one cache, and Ctrl-C: results are those made alone.

What a process does is in `scenes.py`, what is interrupted in `interrupted.py`; here they are run,
and the folders of compiled code that they share are emptied, damaged and taken away meanwhile.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "src" / "adahb"
LIMIT = 900
"""Seconds after which a process is said to hang."""

GROUPS = (
    {"threads": 10, "predictions": 20, "forks": 6},
    {"loaders": 2, "loky": 2},
    {"fits": 40, "streams": 10, "many_models": 3},
    {"optimizers": 8, "averages": 60},
)
"""What processes do one after the other, and how many rounds of it make a whole soak."""

WORDS = {
    "threads": "all kinds of work in threads at once, compared with each done alone",
    "predictions": "predictions of one fitted estimator from eight threads",
    "forks": "work in forked and spawned processes, after threads were used and beside them",
    "loaders": "training on what DataLoader workers project",
    "loky": "fits in joblib's processes and threads",
    "fits": "Ctrl-C in a fit",
    "streams": "Ctrl-C in partial_fit",
    "many_models": "Ctrl-C in a fit of one against the rest in threads",
    "optimizers": "Ctrl-C in an optimizer's training loop",
    "averages": "Ctrl-C while parameters are exchanged for averages",
}


def soak(scale: float, folder: Path) -> Json:
    """Everything, ``scale=1`` being two minutes; ``folder`` is for caches."""
    seed, rows, slowest = random.randrange(1 << 30), [], 0.0
    brief = scale < 0.5
    for group in _merged(GROUPS) if brief else GROUPS:
        wanted = {name: max(1, round(scale * rounds)) for name, rounds in group.items()}
        for name, result in scene(wanted, seed).items():
            outcomes = result.get("outcomes")
            slowest = max(slowest, result.get("slowest", 0.0))
            if outcomes is None:
                outcomes = {"equal bit for bit": sum(result.values())}
            rows.append(_row(WORDS[name], outcomes))
    rows += caches(seed, folder, brief=brief)
    return {"rows": rows, "defects": 0, "seed": seed, "slowest_interruption_s": slowest}


def _merged(groups: tuple[Json, ...]) -> list[Json]:
    """The same in two processes, without those that begin many others."""
    first, second, *others = groups
    rest = {name: rounds for name, rounds in second.items() if name != "loky"}
    return [{**first, **rest}, {name: n for group in others for name, n in group.items()}]


def scene(wanted: Mapping[str, int], seed: int, env: Mapping[str, str] | None = None) -> Json:
    """What a process of its own finds in scenes and rounds; an error of it is one here."""
    process = begin(wanted, seed, env)
    try:
        return end(process)
    finally:
        process.kill()


def begin(
    wanted: Mapping[str, int], seed: int, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    asked = [f"{name}={rounds}" for name, rounds in wanted.items()]
    return subprocess.Popen(
        [sys.executable, str(HERE / "scenes.py"), *asked, "--seed", str(seed)],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> Json:
    try:
        out, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{process.args} hangs") from None
    assert process.returncode == 0, f"{process.args} ends with {process.returncode}:\n{errors}"
    result: Json = json.loads(out)
    return result


# ---------------------------------------------------------------- caches of compiled code


def caches(seed: int, folder: Path, *, brief: bool = False) -> list[Json]:
    """One folder of compiled code for several processes, and what may happen to it."""
    work, rows = {"compiling": 1}, []
    processes, damaged = (2, 1) if brief else (4, 3)
    expected = scene(work, seed)
    cache = folder / "cache"
    cache.mkdir()
    env = {"NUMBA_CACHE_DIR": str(cache)}
    at_once = [begin(work, seed, env) for _ in range(processes)]
    found = [end(process) for process in at_once]
    assert found == [expected] * processes, f"seed {seed}: {found}, not {expected}"
    rows.append(_row("processes that begin at once with one empty cache", {"equal": processes}))
    for i in range(damaged):
        chance = random.Random(f"{seed} {i}")
        kinds = [damage(file, chance) for file in sorted(cache.rglob("*.nbc"))]
        assert kinds, "nothing was cached"
        assert scene(work, seed, env) == expected, f"seed {seed}, {i}: a damaged cache was used"
    rows.append(_row("caches of which every file was damaged", {"equal": damaged}))
    if not brief:
        assert taken_away(seed, cache) == expected
        rows.append(_row("a cache removed again and again while it was filled", {"equal": 1}))
        assert read_only(seed) == expected
        rows.append(_row("package and home that cannot be written to", {"equal": 1}))
    return rows


def damage(file: Path, chance: random.Random) -> str:
    """Cut a file off, flip a bit of it, empty it, or put something else in its place."""
    kind = chance.choice(["cut", "flipped", "emptied", "replaced"])
    content = bytearray(file.read_bytes())
    if kind == "cut":
        content = content[: chance.randrange(len(content))]
    elif kind == "flipped":
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    else:
        content = bytearray() if kind == "emptied" else bytearray(chance.randbytes(1000))
    file.write_bytes(content)
    return kind


def taken_away(seed: int, cache: Path) -> Json:
    """What a process finds whose cache is removed all the time."""
    over = threading.Event()

    def remove() -> None:
        while not over.wait(0.02):
            shutil.rmtree(cache, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        return scene({"compiling": 1}, seed, {"NUMBA_CACHE_DIR": str(cache)})
    finally:
        over.set()
        remover.join()


def read_only(seed: int) -> Json:
    """What a process finds that can write compiled code nowhere: files lie where folders would."""
    with tempfile.TemporaryDirectory() as name:
        package = Path(name) / "adahb"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
            (folder / "__pycache__").touch()
        nowhere = {"NUMBA_CACHE_DIR": "", "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/none"}
        found = scene({"compiling": 1}, seed, {"PYTHONPATH": name, **nowhere})
        assert not [*Path(name).rglob("*.nbc")]
        return found


def _row(kind: str, outcomes: Mapping[str, int]) -> Json:
    return {"kind": kind, "tried": sum(outcomes.values()), "outcomes": dict(outcomes)}
