"""What the package needs: declared, with a reason, used; under licences that go with its own."""

import ast
import importlib.util
import json
import re
import stat
import sys
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]
IMPORTED_AS = {"scikit-learn": "sklearn"}
WITHOUT_IMPORT = {"plotly": 'resources.files("plotly")'}
"""What of it is used where it is not imported."""
EXTRAS = ("data", "experiments", "cluster", "jax", "keras")


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


readme = loaded(ROOT / "benchmarks" / "readme.py")
licences = loaded(ROOT / "tools" / "licences.py")
audit = loaded(ROOT / "tools" / "audit.py")


def modules(requirements):
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def imported():
    """The first part of every import in the package, wherever it stands."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"adahb"}


def test_what_is_imported_is_declared_and_what_is_declared_is_used():
    optional = PROJECT["optional-dependencies"]
    declared = modules(PROJECT["dependencies"]).union(*(modules(optional[e]) for e in EXTRAS))
    used = imported()
    assert used <= declared | {"triton"}  # which torch for CUDA brings
    source = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py"))
    for module in declared - used:
        assert WITHOUT_IMPORT[module] in source


def test_a_dependency_without_a_reason_is_refused():
    assert "| 2.11 |  | what the optimizers" in readme._dependencies(PYPROJECT)
    for requirement in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]):
        line = next(
            line for line in PYPROJECT.splitlines() if line.startswith(f'    "{requirement}"')
        )
        unreasoned = PYPROJECT.replace(line, line.partition("#")[0])
        with pytest.raises(ValueError, match=re.escape(f"no reason for {requirement}")):
            readme._dependencies(unreasoned)


# ---------------------------------------------------------------- the oldest versions


def test_the_oldest_versions_are_the_lower_bounds(capsys, monkeypatch):
    pytest.importorskip("packaging")
    minimum = loaded(ROOT / "tools" / "minimum.py")
    monkeypatch.setattr(sys, "argv", ["minimum.py", "data"])
    minimum.main()
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["data"]]
    assert capsys.readouterr().out.split() == [entry.replace(">=", "==") for entry in wanted]
    for extra in EXTRAS:
        assert [minimum.oldest(r) for r in minimum.requirements(PROJECT, [extra])]


def test_bounds_that_name_no_oldest_version_are_refused():
    pytest.importorskip("packaging")
    minimum = loaded(ROOT / "tools" / "minimum.py")
    for bounds in ("", ">1", ">=1,<2", "==1"):
        with pytest.raises(ValueError, match="must have a lower bound"):
            minimum.oldest(minimum.Requirement(f"package{bounds}"))
    with pytest.raises(ValueError, match="'nothing', which is none of data, experiments"):
        minimum.requirements(PROJECT, ["nothing"])


# ---------------------------------------------------------------- licences


class Package(Distribution):
    """A package that is not installed, from the lines of its metadata and its licence's text."""

    def __init__(self, *lines, name="package", version="1", text=None):
        self.about = "\n".join((f"Name: {name}", f"Version: {version}", *lines))
        self.text = text

    def read_text(self, filename):
        if filename == "METADATA":
            return self.about
        return f"{self.text},,\n" if filename == "RECORD" and self.text else None

    def locate_file(self, path):
        return Path(path)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ("MIT", True),
        ("MIT AND BSD-3-Clause", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-or-later", False),
        ("AGPL-3.0-only OR SSPL-1.0", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("MIT AND (GPL-3.0-only OR MIT)", False),  # in doubt it is not
        ("unknown", False),
        ("", False),
    ],
)
def test_which_licences_go_with_ours(expression, fits):
    assert licences.allowed(expression) is fits
    assert licences.refused("package", expression) is not fits


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        (["License-Expression: MIT", "License: GPL"], "MIT"),
        (["License: Apache 2.0"], "Apache-2.0"),
        (["License: BSD", "Classifier: License :: OSI Approved :: BSD License"], "BSD"),
        (["License: Copyright X", "Classifier: License :: OSI Approved :: MIT License"], "MIT"),
        (["License: Own terms"], "Own terms"),
        (["Classifier: License :: A", "Classifier: License :: MIT License"], "A AND MIT"),
        ([], "unknown"),
    ],
)
def test_the_licence_is_told_from_the_metadata(metadata, told):
    package = Package(*metadata)
    assert licences.licence(package) == told
    assert licences.listed([package]) == {told: ["package 1"]}


def test_the_licence_is_told_from_its_text(tmp_path):
    file = tmp_path / "package.dist-info" / "LICENSE"
    file.parent.mkdir()
    for words, told in (("under the Apache License, Version 2.0", "Apache-2.0"), ("?", "unknown")):
        file.write_text(words, encoding="utf-8")
        assert licences.licence(Package(text=file)) == told


def test_a_package_that_does_not_fit_fails_the_list(monkeypatch, capsys):
    fitting, other = Package("License: MIT"), Package("License: GPL")
    monkeypatch.setattr(licences, "distributions", lambda: [fitting])
    assert licences.main() == 0
    monkeypatch.setattr(licences, "distributions", lambda: [fitting, other])
    assert licences.main() == 1
    assert "refused: package 1 (GPL)" in capsys.readouterr().err
    assert not licences.refused("nvidia-cublas", "LicenseRef-NVIDIA-Proprietary")


# ---------------------------------------------------------------- known vulnerabilities


def auditor(folder, said, status):
    """A program that says this of any question."""
    path = folder / "pip-audit"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {status}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


SOUND = {"name": "sound", "version": "1", "vulns": []}
SILENT = {"name": "silent", "skip_reason": "not found"}
VULNERABLE = {"name": "bad", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}


@pytest.mark.parametrize(
    ("found", "status", "lines"),
    [
        ([SOUND], 0, ["1 packages checked for known vulnerabilities"]),
        (
            [SOUND, SILENT],
            0,
            ["1 packages checked for known vulnerabilities", "not checked: no answer about silent"],
        ),
        ([SILENT], 0, ["not checked: no answer from the vulnerability service about any package"]),
        (
            [VULNERABLE, SOUND],
            1,
            [
                "vulnerable: bad 2: PYSEC-1, fixed in 3",
                "2 packages checked for known vulnerabilities",
            ],
        ),
    ],
)
def test_findings_fail_and_silence_is_told(tmp_path, found, status, lines):
    program = auditor(tmp_path, json.dumps({"dependencies": found, "fixes": []}), status)
    assert audit.report(audit.answers(program, ["sound==1"])) == (lines, status)


def test_without_a_service_nothing_is_claimed(tmp_path):
    for program in (auditor(tmp_path, "ConnectionError", 1), str(tmp_path / "nowhere")):
        (line,), status = audit.report(audit.answers(program, ["sound==1"]))
        assert line.startswith("not checked: ")
        assert status == 0


def test_what_is_asked_about(monkeypatch):
    monkeypatch.setattr(audit, "distributions", lambda: [Package(), Package()])
    assert audit.installed() == ["package==1"]
    torch, ours = Package(name="torch", version="2.13.0+cpu"), Package(name="adahb")
    monkeypatch.setattr(audit, "distributions", lambda: [torch, ours])
    assert audit.installed() == ["torch==2.13.0"]
