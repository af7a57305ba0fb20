"""The data sets that are known by name: their files, where they come from, what must be in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

LIBSVM_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"


@dataclass(frozen=True)
class Source:
    """A published file and what is known of it."""

    file: str
    """Its name without the ending of its compression."""
    rows: int
    columns: int
    nonzeros: int
    """Entries that are written down; some of them may be zero."""
    positive: frozenset[float]
    """The labels that become +1."""
    negative: frozenset[float]
    """The labels that become -1."""
    url: str | None = None
    """Where it is published; None for what only a local folder can hold."""
    sha256: str | None = None
    """Of the uncompressed file, where its bytes are known for certain."""

    def signs(self, labels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the labels as -1 and +1; a label that does not belong is an error."""
        known = np.array(sorted(self.positive | self.negative))
        strange = np.unique(labels[~np.isin(labels, known)])
        if strange.size:
            raise ValueError(f"has the labels {strange[:5].tolist()}, expected {known.tolist()}")
        return np.where(np.isin(labels, sorted(self.positive)), 1.0, -1.0)


def _binary(
    file: str,
    shape: tuple[int, int, int],
    *,
    packed: str = "",
    sha256: str | None = None,
    labels: tuple[float, float] = (-1, 1),
) -> Source:
    """A two-class file of the LIBSVM collection; ``shape`` is rows, columns, nonzeros."""
    negative, positive = (frozenset({float(label)}) for label in labels)
    url = f"{LIBSVM_URL}/binary/{file}{packed}"
    return Source(file, *shape, positive, negative, url, sha256)


def _reuters(file: str, rows: int, nonzeros: int) -> Source:
    return Source(file, rows, 8_315, nonzeros, frozenset({1.0}), frozenset({-1.0}))


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "covtype": _binary(  # lodgepole pine against the other six covers
            "covtype.libsvm.binary.scale",
            (581_012, 54, 6_940_438),
            packed=".bz2",
            labels=(1, 2),
        ),
        "real-sim": _binary("real-sim", (72_309, 20_958, 3_709_083), packed=".bz2"),
        "a9a": _binary(
            "a9a",
            (32_561, 123, 451_592),
            sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        ),
        "a9a.t": _binary(
            "a9a.t",
            (16_281, 123, 225_731),
            sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
        ),
        "w8a": _binary(
            "w8a",
            (49_749, 300, 579_586),
            sha256="6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
        ),
        "w8a.t": _binary("w8a.t", (14_951, 300, 174_276)),
        "ijcnn1": _binary("ijcnn1", (49_990, 22, 649_870), packed=".bz2"),
        "ijcnn1.t": _binary("ijcnn1.t", (91_701, 22, 1_192_113), packed=".bz2"),
        "rcv1": _binary("rcv1_train.binary", (20_242, 47_236, 1_498_952), packed=".bz2"),
        "rcv1.t": _binary("rcv1_test.binary", (677_399, 47_236, 49_556_258), packed=".bz2"),
        "news20": Source(  # classes 1 to 10 against 11 to 20
            "news20",
            15_935,
            62_061,
            1_272_569,
            positive=frozenset(map(float, range(1, 11))),
            negative=frozenset(map(float, range(11, 21))),
            url=f"{LIBSVM_URL}/multiclass/news20.bz2",
        ),
        "reuters": _reuters("reuters.trn", 7_770, 339_837),  # money-fx against the rest
        "reuters.t": _reuters("reuters.tst", 3_299, 136_821),
    }
)


def names() -> tuple[str, ...]:
    """The names that :func:`adahb.data.load_libsvm` knows."""
    return tuple(SOURCES)
