"""The claims of the paper, each with the parts that the files of a folder judge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from adahb.experiments.findings import STAND_IN, check_plain
from adahb.experiments.result_files import CLAIMS, DEEP, ResultFile
from adahb.experiments.result_tables import interval
from adahb.experiments.store import Json

THE_CLAIMS = (
    ("C1", "HB's last iterate beats PSG's on the hard function", CLAIMS),
    (
        "C2",
        "HB's and AdaHB's last iterates converge like 1/√t, PSG's like log t/√t",
        CLAIMS,
    ),
    (
        "C3",
        "On l1-ball hinge the last iterates of AdaHB, HB and NAG behave like PSG's average",
        CLAIMS,
    ),
    ("C4", "With constant β the average converges at the optimal rate", CLAIMS),
    (
        "C5",
        "AdaHB reaches a lower training loss than the five baselines (CNN)",
        DEEP,
    ),
    ("C6", "AdaHB reaches a lower training loss than the five baselines (ResNet)", DEEP),
    ("C7", "AdaHB reaches good test accuracy, beside the best of the five baselines", DEEP),
    ("C8", "Lemma 2 and Theorems 3 to 6 hold as stated", CLAIMS),
)
"""What the paper claims, and what measures it."""
VERDICTS = ("supported", "not supported", "undecided")


def claims(files: Sequence[ResultFile]) -> list[Json]:
    """Every claim of the paper with the parts that were judged, and parts of no known claim."""
    parts = list(_parts(files))
    found = []
    for name, statement, kind in THE_CLAIMS:
        ours = [part for part in parts if part["of"] == name]
        found.append(_claim(name, statement, kind.command, ours))
    known = {name for name, *_ in THE_CLAIMS}
    others = [part for part in parts if part["of"] not in known]
    if others:
        found.append(_claim("Others", "added to those of the paper", "", others))
    return found


def _claim(name: str, statement: str, command: str, parts: list[Json]) -> Json:
    on_data = [part for part in parts if not part["stand_in"]]
    verdicts = [part["verdict"] for part in on_data or parts]
    counted = (
        f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts
    )
    return {
        "id": name,
        "statement": statement,
        "verdict": _together(set(verdicts)),
        "tally": ", ".join(counted) if len(set(verdicts)) > 1 else _all(on_data or parts),
        "stand_in": bool(parts) and not on_data,
        "command": command,
        "parts": parts,
    }


def _all(parts: list[Json]) -> str:
    """How many parts fared alike."""
    return f"all {len(parts)} parts" if len(parts) > 1 else ""


def _together(verdicts: set[str]) -> str:
    """The verdict of a claim whose parts have these: the worse of two that are not support."""
    if not verdicts:
        return "not measured"
    if len(verdicts) == 1:
        return verdicts.pop()
    return "in part" if "supported" in verdicts else "not supported"


def _parts(files: Sequence[ResultFile]) -> Iterator[Json]:
    """The judged parts of all files, each once."""
    seen: list[Json] = []
    for file in files:
        if file.kind not in (CLAIMS, DEEP):
            continue
        with file.understood() as content:
            for claim in content["claims"]:
                if claim not in seen:
                    seen.append(claim)
                    yield _part(claim, file)


def _part(claim: Json, file: ResultFile) -> Json:
    check_plain(claim)
    if claim["verdict"] not in VERDICTS:
        raise ValueError(f"a verdict must be one of {VERDICTS}, got {claim['verdict']!r}")
    findings = [
        {
            "what": finding["what"],
            "measured": interval(finding["estimate"]),
            "range": finding["range"],
            "verdict": finding["verdict"],
        }
        for finding in claim["findings"]
    ]
    number_of = re.match(r"C\d+(?!\d)", claim["id"])
    return {
        "of": number_of[0] if number_of else "",
        "id": claim["id"],
        "statement": claim["statement"],
        "verdict": claim["verdict"],
        "remark": claim["remark"],
        "stand_in": STAND_IN in claim["remark"],
        "findings": findings,
        "file": file.name,
    }
