"""Look for known vulnerabilities in everything installed beside this Python.

    python tools/audit.py PIP_AUDIT

runs pip-audit, the program at that path, on the versions installed here.  It asks the vulnerability
service of PyPI, which may not answer: then this says "not checked" and returns 0, for nothing was
found.  What it has no answer for is named, and never counted as sound.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

QUESTION = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--format=json", "--timeout=10")
OURS = "adahb"


def installed() -> list[str]:
    """What is installed, as requirements; builds such as 2.13.0+cpu are asked for as 2.13.0."""
    found = {(d.name, d.version.partition("+")[0]) for d in distributions() if d.name != OURS}
    return sorted(f"{name}=={version}" for name, version in found)


def answers(program: str, requirements: Sequence[str]) -> list[dict[str, Any]] | str:
    """What pip-audit says of each requirement, or why it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "requirements.txt")
        asked.write_text("\n".join(requirements), encoding="utf-8")
        try:
            done = subprocess.run(
                [program, *QUESTION, f"--requirement={asked}"],
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            return f"{program} does not run ({error.strerror})"
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        said = done.stderr.strip().splitlines() or ["pip-audit printed nothing"]
        return f"no answer from the vulnerability service: {said[-1]}"


def report(answered: list[dict[str, Any]] | str) -> tuple[list[str], int]:
    """What to print, and the exit status: 1 if anything is known to be vulnerable."""
    if isinstance(answered, str):
        return [f"not checked: {answered}"], 0
    lines = [
        f"vulnerable: {entry['name']} {entry['version']}: {found['id']}, fixed in "
        f"{', '.join(found['fix_versions']) or 'no version'}"
        for entry in answered
        for found in entry.get("vulns", ())
    ]
    status = 1 if lines else 0
    silent = [entry["name"] for entry in answered if "vulns" not in entry]
    checked = len(answered) - len(silent)
    if not checked:
        lines.append("not checked: no answer from the vulnerability service about any package")
    else:
        lines.append(f"{checked} packages checked for known vulnerabilities")
        lines += [f"not checked: no answer about {', '.join(silent)}"] if silent else []
    return lines, status


def main() -> int:
    """Print what is found; 1 if anything is vulnerable, 2 if the call is wrong."""
    if len(sys.argv) != 2:
        print("usage: python tools/audit.py PIP_AUDIT", file=sys.stderr)
        return 2
    lines, status = report(answers(sys.argv[1], installed()))
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
