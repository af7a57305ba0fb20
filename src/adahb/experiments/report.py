"""One page that shows the results: verdicts first, then figures, tables, errata and how to redo it.

The page holds all it needs, and its policy forbids it to fetch anything.  Figures are drawn in the
browser by plotly, if that is installed here; the pictures that lie beside the data stand in for
them where there is no script.  The same files give the same page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import adahb
from adahb.experiments import result_files, result_tables
from adahb.experiments.errata import ERRATA
from adahb.experiments.report_claims import claims
from adahb.experiments.report_figures import FIGURES, coverage, figure
from adahb.experiments.report_tables import sections
from adahb.experiments.result_files import ResultFile, of_kind, read_results
from adahb.experiments.store import Json, write_whole

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["CLAIMS", "CONVEX", "FIGURE", "write_report"]

FIGURE = "figure5"
CONVEX = "convex"
CLAIMS = result_files.CLAIMS.pattern
MARKS = {
    "supported": "✓",
    "not supported": "✗",
    "in part": "◐",
    "undecided": "?",
    "not measured": "–",
}


def write_report(results: Path, out: Path) -> Path:
    """Write ``out``/index.html from the files in ``results`` and return its path."""
    files = read_results(results)
    page = out / "index.html"
    write_whole(page, _render(results, files))
    return page


def _render(folder: Path, files: Sequence[ResultFile]) -> str:
    from markupsafe import Markup

    environment = _templates()
    style, script = (
        environment.get_template(name).render() for name in ("report.css", "report.js")
    )
    plotly = _plotly()
    scripts = [] if plotly is None else [plotly, script]
    return environment.get_template("report.html").render(
        version=adahb.__version__,
        style=Markup(style),
        scripts=[Markup(text) for text in scripts],
        policy=" ".join(f"'sha256-{_digest(text)}'" for text in scripts) or "'none'",
        interactive=plotly is not None,
        claims=claims(files),
        marks=MARKS,
        figures=[figure(n, folder, files) for n in FIGURES],
        coverage=coverage(files),
        tables=sections(files),
        errata=ERRATA,
        files=[{"name": f.name, "command": f.command, "made_with": _made_with(f)} for f in files],
        missing=[kind for kind in result_files.KINDS if not of_kind(files, kind)],
    )


def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("adahb.experiments"),
        autoescape=lambda name: name is not None and name.endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["in_script"] = _in_script
    return environment


def _plotly() -> str | None:
    """The script of the installed plotly."""
    try:
        script = resources.files("plotly") / "package_data" / "plotly.min.js"
        return script.read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        return None


def _digest(script: str) -> str:
    """How the page's policy names a script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _in_script(value: Json) -> str:
    r"""JSON that cannot end the script element in which it stands.

    >>> _in_script("</script>")
    Markup('"\\u003c/script\\u003e"')
    """
    from jinja2.utils import htmlsafe_json_dumps

    return htmlsafe_json_dumps(value, separators=(",", ":"), dumps=json.dumps)


def _made_with(file: ResultFile) -> list[tuple[str, ...]]:
    """The environments a file names, each as phrases."""
    with file.understood() as content:
        named = content.get("environment", content.get("machine", []))
        several = named if isinstance(named, list) else [named]
        return [result_tables.facts(environment) for environment in several]
