"""The files of a folder of results: what each holds, what makes it, and reading it with care."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from adahb._files import read_whole
from adahb.experiments.store import Json, read_json


@dataclass(frozen=True)
class Kind:
    """Files whose names fit a pattern; DIR stands for the folder, DATA for that of the data."""

    pattern: str
    holds: str
    command: str


CLAIMS = Kind("claims.json", "verdicts of the claims", "adahb claims --data DATA --out DIR")
DEEP = Kind(
    "deep-*.json",
    "figures 1 to 4, their tables, claims C5 to C7",
    "adahb reproduce deep --preset paper --data DATA --device cuda --out DIR",
)
FIGURE5 = Kind("figure5.json", "figure 5", "adahb reproduce synthetic --out DIR")
FIGURE6 = Kind("convex.json", "figure 6", "adahb reproduce convex --data DATA --out DIR")
DIGITS = Kind(
    "digits.json",
    "AdaHB's defaults beside tuned rivals on scikit-learn's digits",
    "adahb reproduce digits --grid --out DIR",
)
FORMS = Kind(
    "forms.json",
    "both forms and projections under constraints",
    "adahb reproduce digits --forms --out DIR",
)
PRECISION = Kind(
    "precision.json",
    "narrow states and bfloat16 weights",
    "adahb reproduce digits --precision --out DIR",
)
STEP = Kind(
    "step*.json",
    "time of an optimizer's step",
    "adahb bench step --device cuda --json > DIR/step-cuda.json",
)
LINEAR = Kind(
    "linear.json",
    "time of the linear estimators",
    "adahb bench linear --data DATA --json > DIR/linear.json",
)
PROJECTION = Kind(
    "projection.json",
    "time of the projections",
    "adahb bench projection --json > DIR/projection.json",
)
KINDS = (CLAIMS, DEEP, FIGURE5, FIGURE6, DIGITS, FORMS, PRECISION, STEP, LINEAR, PROJECTION)


_MISUNDERSTOOD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What happens to whoever takes one shape of data for another."""


@dataclass(frozen=True)
class ResultFile:
    """One file, read; what is in it is not trusted to have the right shape."""

    path: Path
    kind: Kind
    content: Json

    @property
    def name(self) -> str:
        """The file's name without its folder, which a page that travels must not show."""
        return os.fsencode(self.path.name).decode(errors="backslashreplace")

    @property
    def stem(self) -> str:
        """The same without its ending."""
        return self.name.removesuffix(".json")

    @property
    def preset(self) -> str:
        """Of a file of deep results: the preset in its name."""
        return self.stem.removeprefix("deep-")

    @property
    def command(self) -> str:
        """What makes just this file, as words that a shell takes for no more than that."""
        if self.kind is DEEP:
            needs = "" if self.preset == "quick" else " --data DATA --device cuda"
            return f"adahb reproduce deep --preset {shlex.quote(self.preset)}{needs} --out DIR"
        if self.kind is STEP:
            known = self.content if isinstance(self.content, dict) else {}
            device = "cpu" if known.get("device") == "cpu" else "cuda"
            return f"adahb bench step --device {device} --json > DIR/{shlex.quote(self.name)}"
        return self.kind.command

    @contextmanager
    def understood(self) -> Iterator[Json]:
        """The content; where it is not what it should be, an error that names the file."""
        try:
            yield self.content
        except _MISUNDERSTOOD as error:
            raise ValueError(
                f"{self.path} does not hold what its name says ({type(error).__name__}: {error}); "
                f"delete it, and make it anew with: {self.command}"
            ) from error


def read_results(folder: Path) -> list[ResultFile]:
    """All files of results in a folder, in the order of :data:`KINDS`."""
    found = []
    for kind in KINDS:
        for path in sorted(folder.glob(kind.pattern), key=_order):
            file = ResultFile(path, kind, read_json(path))
            with file.understood():
                if not isinstance(file.content, dict):
                    raise TypeError(f"the file must be an object, not {type(file.content)}")
            found.append(file)
    if not found:
        raise FileNotFoundError(
            f"{folder} has no results; `adahb reproduce quick --out {folder}` makes some"
        )
    return found


def of_kind(files: Sequence[ResultFile], kind: Kind) -> list[ResultFile]:
    """Those of a kind."""
    return [file for file in files if file.kind is kind]


def _order(path: Path) -> tuple[bool, str]:
    """The paper's own preset before the others."""
    return path.name != "deep-paper.json", path.name


_LARGEST_PICTURE = 2**26
_PNG, _PNG_END = b"\x89PNG\r\n\x1a\n", re.compile(rb"IEND.{4}\Z", re.DOTALL)
_ACTIVE = {"script", "foreignobject", "iframe", "object", "embed", "a", "set", "animate", "handler"}


def picture(folder: Path, stem: str) -> tuple[str, bytes] | None:
    """The media type and bytes of a figure that is beside its data; SVG rather than PNG."""
    for suffix, media, is_one in (
        ("svg", "image/svg+xml", _is_drawing),
        ("png", "image/png", lambda data: data.startswith(_PNG) and _PNG_END.search(data[-8:])),
    ):
        path = folder / f"{stem}.{suffix}"
        if path.is_file():
            data = read_whole(path, _LARGEST_PICTURE)
            if not is_one(data):
                raise ValueError(
                    f"{path} is not a whole picture, or more than a picture; delete it and run the "
                    "command that made it"
                )
            return media, data
    return None


def _is_drawing(data: bytes) -> bool:
    """Whether it is SVG that does nothing: no scripts, no handlers, no links, no entities."""
    if b"<!ENTITY" in data:
        return False
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, LookupError, ValueError):
        return False
    return _local(root.tag) == "svg" and all(map(_is_still, root.iter()))


def _is_still(element: ElementTree.Element) -> bool:
    if _local(element.tag) in _ACTIVE:
        return False
    named = ((_local(name), value.strip()) for name, value in element.items())
    return all(
        not name.startswith("on") and (name != "href" or value.startswith(("#", "data:image/png")))
        for name, value in named
    )


def _local(name: str) -> str:
    """The name of an element or attribute without its namespace."""
    return name.rpartition("}")[2].lower()
