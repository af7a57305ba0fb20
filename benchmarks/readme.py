"""Fill the marked places of the README from the files in results/.

    python benchmarks/readme.py

A place is `<!-- name -->...<!-- /name -->`; a test compares the README with what this makes.
"""

import math
import re
from pathlib import Path
from typing import Any

from adahb.experiments.report import interval
from adahb.experiments.store import read_json, write_whole

ROOT = Path(__file__).resolve().parent.parent


def filled(text: str, results: Path) -> str:
    """Return the README with every marked place made anew."""
    claims = read_json(results / "claims.json")["claims"]
    places = {
        "claims": _table(
            ("claim", "statement", "verdict", "decided by"),
            [(c["id"], c["statement"], _verdict(c), _decisive(c)) for c in claims],
        ),
        "stuck": _stuck(claims),
        "projection": _table(
            ("float64, d = 1 000 000", "ms", "× NumPy", "cold", "× NumPy without SIMD"),
            [
                _speed(case)
                for case in read_json(results / "projection.json")["cases"]
                if case["dtype"] == "float64"
            ],
        ),
    }
    for name, content in places.items():
        place = re.compile(rf"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
        if len(place.findall(text)) != 1:
            raise ValueError(f"README.md must have one place named {name}")
        text = place.sub(lambda match, content=content: match[1] + content + match[2], text)
    return text


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _verdict(claim: Any) -> str:
    return claim["verdict"] if claim["verdict"] == "supported" else f"**{claim['verdict']}**"


def _decisive(claim: Any) -> str:
    """The finding that fails worst, or holds by the least."""
    finding = min((f for f in claim["findings"] if f["verdict"]), key=_margin)
    return f"{finding['what']}: {interval(finding['estimate'])} (needs {finding['range']})"


def _margin(finding: Any) -> float:
    estimate, least, most = finding["estimate"], finding["at_least"], finding["at_most"]
    below = math.inf if least is None else estimate["low"] - least
    above = math.inf if most is None else most - estimate["high"]
    return min(below, above)


def _stuck(claims: Any) -> str:
    (claim,) = (c for c in claims if c["id"] == "C8 Theorem 5, printed")
    (finding,) = (
        f
        for f in claim["findings"]
        if f["what"].startswith("gap at the end") and "euclidean" in f["what"]
    )
    return f"{finding['estimate']['value']:.3f}"


def _speed(case: Any) -> tuple[str, ...]:
    ours, numpy = case["seconds"]["ours"], case["seconds"]["numpy sort"]
    faster = case["times faster than"]
    ratios = (faster["numpy sort"], numpy["cold"] / ours["cold"], faster["numpy sort without simd"])
    return case["name"], f"{1e3 * ours['best']:.2f}", *(f"{ratio:.0f}" for ratio in ratios)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    write_whole(readme, filled(readme.read_text(encoding="utf-8"), ROOT / "results"))
