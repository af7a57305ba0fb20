"""Nothing is run, unpickled or unpacked that comes from a file: the source is searched for it."""

import ast
import io
from functools import partial
from pathlib import Path

import pytest
import torch
from sets.samples import every_set

from adahb import HB, NAG, PSG, AdaHB
from adahb.logging import quantities, record

ROOT = Path(__file__).parents[1]
FILES = sorted(
    p for room in ("src", "tools", "examples", "benchmarks") for p in ROOT.glob(f"{room}/**/*.py")
)
MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"),
    *("tarfile", "zipfile", "code", "codeop", "imp", "runpy"),
}
"""Not to be imported at all: what is read is data."""
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "mktemp",
    "extractall",
    "unpack_archive",
    "system",
    "popen",
}
OF_OBJECTS = {"eval", "compile"}
"""Names that are harmless as methods: `model.eval()`, `re.compile`, `torch.compile`."""
ALLOWED: set[tuple[str, str]] = set()
"""Exceptions, each a file and what it may do; a comment says why."""


def offences(source):
    """What a source does that it must not, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        for name in names:
            if name.split(".")[0] in MODULES:
                yield f"import {name}", node.lineno
        if isinstance(node, ast.Call):
            yield from ((what, node.lineno) for what in _of_a_call(node))


def _of_a_call(node):
    """The same of one call."""
    options = {option.arg: option.value for option in node.keywords}
    given = {name: getattr(value, "value", value) for name, value in options.items()}
    is_method = isinstance(node.func, ast.Attribute)
    name = node.func.attr if is_method else getattr(node.func, "id", "")
    of = getattr(node.func.value, "id", "") if is_method else ""
    if name in CALLS and not (is_method and name in OF_OBJECTS):
        yield name
    if name == "run" and "shell" in given and given["shell"] is not False:
        yield "shell=True"
    if name != "run" and given.get("shell", False) is not False:
        yield "shell=True"
    if name == "load" and of in ("np", "numpy") and given.get("allow_pickle", False) is not False:
        yield "np.load(allow_pickle=True)"
    if name == "load" and of == "torch" and given.get("weights_only") is not True:
        yield "torch.load without weights_only=True"


def test_the_source_does_none_of_it():
    found = {
        (str(path.relative_to(ROOT)), what, line)
        for path in FILES
        for what, line in offences(path.read_text(encoding="utf-8"))
    }
    assert {entry for entry in found if entry[:2] not in ALLOWED} == set()
    assert len(FILES) > 100


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "import pickle"),
        ("from joblib import load", "import joblib"),
        ("from tarfile import open", "import tarfile"),
        ("import yaml as y", "import yaml"),
        ("eval(text)", "eval"),
        ("builtins.exec(text)", "exec"),
        ("os.system(text)", "system"),
        ("tempfile.mktemp()", "mktemp"),
        ("shutil.unpack_archive(p)", "unpack_archive"),
        ("subprocess.run(c, shell=True)", "shell=True"),
        ("Popen(c, shell=wanted)", "shell=True"),
        ("np.load(p, allow_pickle=True)", "np.load(allow_pickle=True)"),
        ("torch.load(p)", "torch.load without weights_only=True"),
        ("torch.load(p, weights_only=False)", "torch.load without weights_only=True"),
    ],
)
def test_the_search_finds_what_it_looks_for(source, what):
    assert [found for found, _ in offences(source)] == [what]


@pytest.mark.parametrize(
    "source",
    ["model.eval()", "re.compile(p)", "torch.load(p, weights_only=True)", "np.load(p)", "run(c)"],
)
def test_the_search_leaves_alone_what_is_harmless(source):
    assert list(offences(source)) == []


# ---------------------------------------------------------------- checkpoints

SETS = {"none": None, **every_set()}
OPTIONS = ({}, {"momentum": 0.9}, {"state_dtype": "bf16"}, {"state_dtype": "int8"})
MAKERS = [
    *(partial(AdaHB, **options) for options in (*OPTIONS, {"rounding": "compensated"})),
    *(HB, NAG, PSG),
]


@pytest.mark.filterwarnings("ignore:a parameter of shape")
@pytest.mark.parametrize("name", SETS)
def test_checkpoints_load_with_weights_only(name):
    """Of every optimizer with every set, beside what is recorded of the run."""
    for make in MAKERS:
        adapts = isinstance(make, partial)
        plain = {"projection": "euclidean"} if name == "nuclear" and adapts else {}
        p = torch.nn.Parameter(torch.full((3, 4), 0.1))
        optimizer, rows = make([p], constraint=SETS[name], **plain), []
        with record(optimizer, every=1, to=rows.append):
            for _ in range(2):
                p.grad = torch.ones_like(p)
                optimizer.step()
        file = io.BytesIO()
        torch.save({"optimizer": optimizer.state_dict(), "weights": p, "rows": rows}, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        other = make([saved["weights"]], **plain)
        other.load_state_dict(saved["optimizer"])
        assert other.param_groups[0]["constraint"] == SETS[name]
        assert quantities(other) == quantities(optimizer)
        assert saved["rows"] == rows
