"""A claim, the findings it rests on, and the verdict that follows from their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from adahb import _checks as check

Vector = NDArray[np.float64]
Verdict = Literal["supported", "not supported", "undecided", "not measured"]
STAND_IN = "scikit-learn's digits stand in for the paper's data."
"""The remark of a claim that was judged without the paper's data."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    """One measured quantity, and the range in which it must lie for the claim to hold.

    ``at_least=None`` and ``at_most=None`` make it a remark, which decides nothing.
    """

    what: str
    estimate: Estimate
    at_least: float | None = None
    at_most: float | None = None

    @property
    def verdict(self) -> Verdict | None:
        """Supported if the whole interval is in the range, not supported if none of it is."""
        if self.at_least is None and self.at_most is None:
            return None
        least = -math.inf if self.at_least is None else self.at_least
        most = math.inf if self.at_most is None else self.at_most
        low, high = self.estimate.low, self.estimate.high
        if least <= low and high <= most:
            return "supported"
        return "not supported" if high < least or low > most else "undecided"

    @property
    def range(self) -> str:
        """The range, in words."""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:.3g} to {self.at_most:.3g}"
        if self.at_most is not None:
            return f"at most {self.at_most:.3g}"
        return "" if self.at_least is None else f"at least {self.at_least:.3g}"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what was found."""

    id: str
    statement: str
    findings: Sequence[Finding]
    remark: str = ""

    @property
    def verdict(self) -> Verdict:
        """Supported if every finding is, not supported if any is not."""
        if not self.findings:
            return "not measured"
        verdicts = {finding.verdict for finding in self.findings} - {None}
        if "not supported" in verdicts:
            return "not supported"
        return "supported" if verdicts == {"supported"} else "undecided"

    def plain(self) -> dict[str, Any]:
        """The claim as plain data, with what follows from its numbers."""
        findings = [
            {**asdict(finding), "range": finding.range, "verdict": finding.verdict}
            for finding in self.findings
        ]
        return {**asdict(self), "verdict": self.verdict, "findings": findings}


def check_plain(claim: Any) -> None:
    """Refuse what has not the shape that :meth:`Claim.plain` gives, before it is shown."""
    verdicts = get_args(Verdict)
    for name in ("id", "statement", "remark"):
        _check_is(claim[name], str, name)
    check.choice("verdict", claim["verdict"], verdicts)
    for finding in claim["findings"]:
        _check_is(finding["what"], str, "what")
        _check_is(finding["range"], str, "range")
        if finding["verdict"] is not None:
            check.choice("verdict", finding["verdict"], verdicts)
        for name in ("value", "low", "high"):
            _check_is(finding["estimate"][name], int | float | None, name)


def _check_is(value: object, kind: Any, name: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {getattr(kind, '__name__', kind)}, got {value!r}")


def exact(value: float) -> Estimate:
    """A number without uncertainty: a deterministic run, computed to rounding."""
    return Estimate(value, value, value)


def mean(values: ArrayLike) -> Estimate:
    """Mean of independent repeats with Student's 95 % interval."""
    x = np.asarray(values, dtype=np.float64)
    half = float(stats.t.ppf(0.975, x.size - 1) * x.std(ddof=1) / math.sqrt(x.size))
    return Estimate(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half)


def geometric_mean(values: ArrayLike) -> Estimate:
    """Geometric mean of positive repeats, with the interval of the mean of their logarithms."""
    of_logs = mean(np.log(np.asarray(values, dtype=np.float64)))
    return Estimate(math.exp(of_logs.value), math.exp(of_logs.low), math.exp(of_logs.high))


def slope(x: ArrayLike, y: ArrayLike) -> Estimate:
    """Slope of log y over log x, by least squares, with its 95 % interval."""
    return _coefficient(np.asarray(x, float), np.asarray(y, float), degree=1)


def slope_at_end(x: ArrayLike, y: ArrayLike) -> Estimate:
    """Slope, at the last x, of a parabola through log y over log x, with its 95 % interval."""
    return _coefficient(np.asarray(x, float), np.asarray(y, float), degree=2)


def _coefficient(x: Vector, y: Vector, degree: int) -> Estimate:
    """The linear coefficient of a polynomial in log(x / x_last), fitted to log y."""
    if not (y > 0).all():
        raise ValueError(f"y must be positive to have a logarithm, got {y.min():g}")
    powers = np.vander(np.log(x / x[-1]), degree + 1)
    coefficients, *_ = np.linalg.lstsq(powers, np.log(y))
    residual = np.log(y) - powers @ coefficients
    freedom = x.size - degree - 1
    covariance = residual @ residual / freedom * np.linalg.inv(powers.T @ powers)
    half = float(stats.t.ppf(0.975, freedom) * math.sqrt(covariance[-2, -2]))
    value = float(coefficients[-2])
    return Estimate(value, value - half, value + half)
