"""The pages and parts of pages that are made from the package and from results/."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import docstrings

from adahb import schedules
from adahb.experiments.errata import ERRATA, Erratum
from adahb.experiments.store import read_json

SHOWN = (".json", ".png", ".svg")
"""What of results/ is in the site."""
DEFINITION = re.compile(r"^(\w+)  +\S", re.MULTILINE)
"""A line of a docstring that names something and, two or more spaces on, says what it is."""
INHERITING = ("adahb.optim", "adahb.linear")
"""Rooms whose classes take what a reader needs from a base class that is not public."""
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples": "examples/index.md",
}


def generated(root: Path) -> dict[str, str]:
    """All pages that are not written by hand, by their names."""
    return {
        **_api(root),
        **_examples(root),
        "command-line.md": _command_line(),
        "changelog.md": (root / "CHANGELOG.md").read_text(encoding="utf-8"),
        "contributing.md": (root / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        "security.md": (root / "SECURITY.md").read_text(encoding="utf-8"),
    }


def results(root: Path) -> list[Path]:
    """The files of results/ that are part of the site."""
    return sorted(p for p in (root / "results").iterdir() if p.suffix in SHOWN)


def place(target: str) -> str:
    """Where in the site a file of the repository is; as it was, for what is not there."""
    if target.startswith("examples/"):
        return target.removesuffix(".py") + ".md"
    return OUTSIDE.get(target, target)


def index_first(name: str) -> tuple[str, bool, str]:
    """Sort key that puts the index of a folder before its pages."""
    folder, _, file = name.rpartition("/")
    return folder, file != "index.md", file


def filled(name: str, root: Path) -> str:
    """The content of a place that a page leaves empty."""
    kind, _, rest = name.partition(" ")
    if kind == "figures":
        return _figures(rest, root)
    if kind == "erratum":
        return _erratum(rest, root)
    if kind == "guarantees":
        return guarantees()
    return _measured(name, root)


def _measured(name: str, root: Path) -> str:
    """A table of benchmarks/readme.py, by the name of its place."""
    tool = _readme(root)
    if name in tool.PAGES["docs/gallery.md"]:  # programs, which are not run to build pages
        return ""
    tool.PAGES["a place"] = (name,)
    try:
        table = tool.filled("a place", f"<!-- {name} --><!-- /{name} -->", root / "results")
    except FileNotFoundError as error:
        return f"*Not measured yet: {Path(error.filename).name} is not among the results.*\n"
    has_rows = table.count("\n") > 3
    return table if has_rows else "*Not measured yet.*\n"


@cache
def _readme(root: Path) -> Any:
    """benchmarks/readme.py, which makes the tables of the README and the docs."""
    spec = importlib.util.spec_from_file_location("readme", root / "benchmarks" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _figures(pattern: str, root: Path) -> str:
    """The figures in results/ whose name matches."""
    found = [path.name for path in results(root) if fnmatch(path.name, pattern)]
    if not found:
        return "*Not drawn yet.*\n"
    return "\n".join(f"![{name}](results/{name})\n" for name in found)


# ---------------------------------------------------------------- the guarantees


def all_schedules() -> list[type[schedules.Schedule]]:
    """Every schedule that can be made, in the order in which the module has them."""
    classes = [c for _, c in inspect.getmembers(schedules, inspect.isclass)]
    made = [c for c in classes if issubclass(c, schedules.Schedule) and not _is_part(c)]
    return sorted(made, key=lambda c: inspect.getsourcelines(c)[1])


def _is_part(schedule: type[schedules.Schedule]) -> bool:
    """Whether it is abstract, or one half of a schedule that has two bases."""
    return inspect.isabstract(schedule) or schedule is schedules.Adaptive


def guarantees() -> str:
    """A row for each guarantee of each schedule; one for a schedule that has none."""
    rows = []
    for kind in all_schedules():
        required = [f.name for f in fields(kind) if f.default is MISSING]
        proved = kind(**dict.fromkeys(required, 1)).guarantees
        name = f"[`{kind.__name__}`][adahb.schedules.{kind.__name__}]"
        rows += [
            (
                name,
                "last iterate" if g.output == "last" else "average",
                f"O({g.rate.replace('sqrt(t)', '√t')})",
                "at every t" if g.horizon == "anytime" else "at the horizon",
                "Euclidean" if g.projection == "euclidean" else "in the metric",
                g.source,
            )
            for g in proved
        ] or [(name, "nothing proved", *4 * ("",))]
    return _table(("schedule", "of which output", "rate", "when", "projection", "source"), rows)


# ---------------------------------------------------------------- the errata


def _erratum(title: str, root: Path) -> str:
    """A section of the errata page: what is wrong, what is done, and what was measured."""
    (erratum,) = (e for e in ERRATA if e.title == title)
    told = f"## {erratum.title}\n\n{erratum.problem}\n\n**Here:** {erratum.remedy}\n"
    return docstrings.escaped(told) + _shown_by(erratum, root)


def _shown_by(erratum: Erratum, root: Path) -> str:
    if not erratum.shown_by:
        return ""
    measured = {c["id"]: c for c in read_json(root / "results" / "claims.json")["claims"]}
    missing = {"statement": "", "verdict": "not measured"}
    claims = [(name, measured.get(name, missing)) for name in erratum.shown_by]
    rows = [(name, claim["statement"], claim["verdict"]) for name, claim in claims]
    return "\n" + _table(("measured as", "statement", "verdict"), rows)


# ---------------------------------------------------------------- the API


def public_modules(root: Path) -> dict[str, Path]:
    """Every public room of the package; for a room that exports nothing, the modules it names."""
    package = root / "src" / "adahb"
    found = {}
    for path in sorted(package.iterdir()):
        if path.name.startswith("_") or path.name == "cli.py":
            continue
        if path.suffix == ".py":
            found[f"adahb.{path.stem}"] = path
        elif (path / "__init__.py").is_file():
            name, init = f"adahb.{path.name}", path / "__init__.py"
            found |= _inner(name, path) if not _exported(init) else {name: init}
    return found


def _inner(name: str, folder: Path) -> dict[str, Path]:
    """The modules that the docstring of a package names, in a list or by their whole names."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    named = {*DEFINITION.findall(text), *re.findall(rf"{re.escape(name)}\.(\w+)", text)}
    return {f"{name}.{p.stem}": p for p in sorted(folder.glob("*.py")) if p.stem in named}


def _api(root: Path) -> dict[str, str]:
    modules = public_modules(root)
    rows = [(f"[`{name}`]({_page_of(name)})", _summary(path)) for name, path in modules.items()]
    index = "# The API\n\nEvery public module, from its docstrings.\n\n"
    pages = {"api/index.md": index + _table(("module", "what it is"), rows)}
    for name, path in modules.items():
        options: dict[str, Any] = {"inherited_members": True} if name in INHERITING else {}
        if exported := _exported(path):
            options["members"] = exported
        pages[f"api/{_page_of(name)}"] = _module_page(name, options)
    return pages


def _page_of(module: str) -> str:
    return module.removeprefix("adahb.") + ".md"


def _module_page(module: str, options: dict[str, Any]) -> str:
    title = module.removeprefix("adahb.")
    lines = [f"---\ntitle: {title}\n---\n\n# `{module}`\n", f"::: {module}"]
    if options:
        lines.append("    options:")
        lines += [f"      {key}: {json.dumps(value)}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


def _exported(path: Path) -> list[str]:
    """The names in a module's __all__."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n\n")[0].replace("\n", " ").replace("``", "`")


# ---------------------------------------------------------------- examples and commands


def _examples(root: Path) -> dict[str, str]:
    """A page for each example: its docstring, and the program."""
    pages = {}
    for path in sorted((root / "examples").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = path.relative_to(root).with_suffix(".md").as_posix()
        title = path.stem.replace("_", " ").capitalize()
        pages[name] = (
            f"---\nsearch:\n  boost: 0.3\n---\n\n# {title}\n\n{_summary(path)}\n\n"
            f'```python title="{path.relative_to(root).as_posix()}"\n{source}```\n'
        )
    if pages:
        rows = [
            (f"[{Path(name).stem}]({name.removeprefix('examples/')})", _summary(root / source))
            for name in pages
            if (source := name.removesuffix(".md") + ".py")
        ]
        index = "# Examples\n\nPrograms that run as they stand, each run by the test suite.\n\n"
        pages["examples/index.md"] = index + _table(("program", "what it shows"), rows)
    return pages


def _command_line() -> str:
    """Every command with its options, from the command line's own definition."""
    from typer.main import get_command

    from adahb.cli import app

    parts = ["# The command line\n\nWhat `adahb --help` says, on one page.\n"]
    for path, command in _commands("adahb", get_command(app)):
        parts.append(f"## {path}\n\n{_paragraphs(command.help)}\n")
        rows = [
            (f"`{', '.join(p.opts)}`", (p.help or "").replace("|", "\\|"), _default(p))
            for p in command.params
        ]
        if rows:
            parts.append(_table(("option", "what it is", "default"), rows))
    return "\n".join(parts)


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from _commands(f"{path} {name}", child)


def _paragraphs(text: str) -> str:
    """Help text as Markdown: the examples in it, which are dim on a terminal, as code."""
    return inspect.cleandoc(text or "").replace("[dim]", "    ").replace("[/dim]", "")


def _default(parameter: Any) -> str:
    """The default of an option, the same on every machine."""
    from adahb.cli import CPUS

    if parameter.required:
        return "required"
    default = parameter.default
    if parameter.name == "jobs" and default == CPUS:
        return "the number of cores"
    return "" if default is None or default is False else f"`{default}`"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"
