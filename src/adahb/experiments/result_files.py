"""The files of a folder of results: what each holds, what makes it, and reading it with care."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class ResultFile:
    """One file, read; what is in it is not trusted to have the right shape."""

    path: Path
    kind: Kind
    content: Json

    @property
    def name(self) -> str:
        """The file's name without its folder, which a page that travels must not show."""
        return self.path.name

    @property
    def preset(self) -> str:
        """Of a file of deep results: the preset in its name."""
        return self.path.stem.removeprefix("deep-")

    @property
    def command(self) -> str:
        """What makes just this file."""
        if self.kind is DEEP:
            needs = "" if self.preset == "quick" else " --data DATA --device cuda"
            return f"adahb reproduce deep --preset {self.preset}{needs} --out DIR"
        if self.kind is STEP:
            device = "cpu" if self.content.get("device") == "cpu" else "cuda"
            return f"adahb bench step --device {device} --json > DIR/{self.name}"
        return self.kind.command

    @contextmanager
    def understood(self) -> Iterator[Json]:
        """The content; where it is not what it should be, an error that names the file."""
        try:
            yield self.content
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
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


def picture(folder: Path, stem: str) -> tuple[str, bytes] | None:
    """The media type and bytes of a figure that is beside its data; SVG rather than PNG."""
    for suffix, media, end in (
        ("svg", "image/svg+xml", rb"</svg>\s*"),
        ("png", "image/png", rb"IEND.{4}"),
    ):
        path = folder / f"{stem}.{suffix}"
        if path.is_file():
            data = path.read_bytes()
            if not re.search(end + rb"\Z", data[-64:], re.DOTALL):
                raise ValueError(
                    f"{path} is not a whole picture; delete it and run the command that made it"
                )
            return media, data
    return None
