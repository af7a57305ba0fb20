"""List the licence of everything installed beside this Python; refuse what does not go with ours.

    python tools/licences.py

adahb is under Apache-2.0.  What it is used with must permit that: permissive licences, and MPL-2.0,
which binds its own files alone.  A licence that is not listed here, or that cannot be told, is
refused, so that somebody reads it before it is.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

ALLOWED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0"),
        *("CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"),
    }
)
"""SPDX names, and BSD for packages that do not say which of its forms."""
EXCEPTIONS = frozenset({"GCC-exception-3.1", "LLVM-exception"})
"""What, after WITH, lets a library be used by programs under any licence."""
SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0 License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Names of licences before packages gave SPDX names."""
TEXTS = {"Apache License, Version 2.0": "Apache-2.0", "Apache License\n": "Apache-2.0"}
"""How licences begin that are in a package whose metadata name none."""
NVIDIA = re.compile(r"(nvidia|cuda)-[\w-]+")
"""What torch for CUDA needs, under terms of NVIDIA's own: used as it comes, and not passed on."""
UNKNOWN = "unknown"


def licence(package: Distribution) -> str:
    """The licence of a package, as an SPDX expression where that can be told."""
    about = package.metadata
    if expression := about.get("License-Expression"):
        return expression
    field = (about.get("License") or "").strip()
    named = SPELLINGS.get(field, field)
    if allowed(named):
        return named
    classifiers = [entry.split(" :: ") for entry in about.get_all("Classifier") or ()]
    found = [entry[-1] for entry in classifiers if entry[0] == "License"]
    if found:
        return " AND ".join(SPELLINGS.get(name, name) for name in found)
    return field.partition("\n")[0] or _of_text(package)


def allowed(expression: str) -> bool:
    """Tell whether a licence goes with Apache-2.0; in doubt, as about parentheses, it does not."""
    return any(
        all(_term_allowed(term.strip()) for term in option.split(" AND "))
        for option in expression.split(" OR ")
    )


def _term_allowed(term: str) -> bool:
    name, _, exception = term.partition(" WITH ")
    return exception in EXCEPTIONS if exception else name in ALLOWED


def _of_text(package: Distribution) -> str:
    """The licence by how its text begins."""
    for path in package.files or ():
        if path.name.upper().startswith("LICENSE") and ".dist-info" in str(path):
            beginning = path.read_text(encoding="utf-8")[:1000]
            for words, name in TEXTS.items():
                if words in beginning:
                    return name
    return UNKNOWN


def refused(package: str, expression: str) -> bool:
    """Tell whether a package must not be depended on."""
    return not allowed(expression) and not NVIDIA.fullmatch(package.lower().replace("_", "-"))


def listed(packages: Iterable[Distribution]) -> dict[str, list[str]]:
    """The packages under each licence, both sorted."""
    found = defaultdict(set)
    for package in packages:
        found[licence(package)].add(f"{package.name} {package.version}")
    return {name: sorted(found[name], key=str.lower) for name in sorted(found)}


def main() -> int:
    """Print the list; name what is refused and return 1 if anything is."""
    found = listed(distributions())
    for name, packages in found.items():
        print(f"{name}: {', '.join(packages)}")
    wrong = [
        f"{package} ({name})"
        for name, packages in found.items()
        for package in packages
        if refused(package.split()[0], name)
    ]
    for package in wrong:
        print(f"refused: {package}; see tools/licences.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
