"""The oldest versions that pyproject.toml allows, as constraints for pip.

    python tools/minimum.py data experiments

prints `name==version` for what the package itself and the named extras depend on.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(project: dict[str, Any], extras: Sequence[str]) -> list[Requirement]:
    """What the package itself and some of its extras depend on."""
    known = project["optional-dependencies"]
    for extra in extras:
        if extra not in known:
            raise ValueError(f"extras has {extra!r}, which is none of {', '.join(known)}")
    found = [*project["dependencies"], *(entry for extra in extras for entry in known[extra])]
    return [Requirement(entry) for entry in found]


def oldest(requirement: Requirement) -> str:
    """The constraint to the lower bound of a requirement, which must have one and nothing else."""
    bounds = list(requirement.specifier)
    if len(bounds) != 1 or bounds[0].operator != ">=":
        raise ValueError(f"{requirement} must have a lower bound, >=, and nothing else")
    return f"{requirement.name}=={bounds[0].version}"


def main() -> None:
    """Print the constraints."""
    parser = argparse.ArgumentParser(description="The oldest versions that are allowed.")
    parser.add_argument("extras", nargs="*", help="extras of pyproject.toml to include")
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    try:
        for requirement in requirements(project, parser.parse_args().extras):
            print(oldest(requirement))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
