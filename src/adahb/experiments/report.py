"""One page that shows the results: verdicts first, then the figure, the findings and the errata."""

from __future__ import annotations

import base64
from pathlib import Path

import adahb
from adahb.experiments.errata import ERRATA
from adahb.experiments.store import Json, read_json, write_whole

FIGURE = "figure5"
CONVEX = "convex"
CLAIMS = "claims.json"


def write_report(results: Path, out: Path) -> Path:
    """Write ``out``/index.html from the files in ``results`` and return its path."""
    for name in (f"{FIGURE}.svg", CLAIMS):
        if not (results / name).is_file():
            raise FileNotFoundError(
                f"{results / name} is missing; `adahb reproduce quick --out {results}` makes it"
            )
    claims = read_json(results / CLAIMS)
    convex = results / f"{CONVEX}.svg"
    figures = [(results / f"{FIGURE}.svg").read_bytes()]
    figures += [convex.read_bytes()] if convex.is_file() else []
    page = out / "index.html"
    write_whole(page, _render(claims, *figures))
    return page


def _render(claims: Json, figure5: bytes, figure6: bytes | None = None) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("adahb.experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["interval"] = interval
    return environment.get_template("report.html").render(
        version=adahb.__version__,
        claims=claims["claims"],
        environment=claims["environment"],
        figure5=base64.b64encode(figure5).decode(),
        figure6=figure6 and base64.b64encode(figure6).decode(),
        errata=ERRATA,
    )


def number(value: float | None) -> str:
    """Three significant digits; what is not finite was kept as null.

    >>> number(0.000123456), number(-0.5077), number(None)
    ('0.000123', '-0.508', '∞')
    """
    return "∞" if value is None else f"{value:.3g}"


def interval(estimate: Json) -> str:
    """A number and its interval, or the number alone where nothing is uncertain.

    >>> interval({"value": -0.5077, "low": -0.5149, "high": -0.5005})
    '-0.508 [-0.515, -0.5]'
    """
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    return number(value) if low == high else f"{number(value)} [{number(low)}, {number(high)}]"
