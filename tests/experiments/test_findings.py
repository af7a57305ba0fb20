"""Verdicts follow from intervals, and intervals from the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from adahb.experiments.findings import (
    Claim,
    Estimate,
    Finding,
    exact,
    geometric_mean,
    mean,
    slope,
    slope_at_end,
)

HORIZONS = 2.0 ** np.arange(7, 15)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.6, -0.5, "supported"), (-0.5, -0.4, "undecided"), (-0.4, -0.3, "not supported")],
)
def test_a_finding_is_judged_by_its_whole_interval(low, high, verdict):
    assert Finding("x", Estimate(low, low, high), at_most=-0.45).verdict == verdict
    mirrored = Finding("x", Estimate(-low, -high, -low), at_least=0.45)
    assert mirrored.verdict == verdict


def test_a_range_has_two_ends():
    for value, verdict in ((0.9, "not supported"), (1.5, "supported"), (2.1, "not supported")):
        finding = Finding("x", exact(value), at_least=1.0, at_most=2.0)
        assert finding.verdict == verdict
        assert finding.range == "1 to 2"
    assert Finding("x", exact(1.0)).verdict is None


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("++", "supported"),
        ("+0", "supported"),
        ("+?", "undecided"),
        ("?-", "not supported"),
        ("+-", "not supported"),
        ("0", "undecided"),
        ("", "not measured"),
    ],
)
def test_a_claim_is_as_good_as_its_worst_finding(verdicts, expected):
    found = {
        "+": Finding("x", exact(0.0), at_most=1.0),
        "?": Finding("x", Estimate(1.0, 0.0, 2.0), at_most=1.0),
        "-": Finding("x", exact(2.0), at_most=1.0),
        "0": Finding("x", exact(2.0)),
    }
    assert Claim("C0", "", [found[v] for v in verdicts]).verdict == expected


@given(st.floats(-3, 1), st.floats(1e-6, 1e3))
def test_the_slope_of_a_power_is_its_exponent(exponent, factor):
    y = factor * HORIZONS**exponent
    for estimate in (slope(HORIZONS, y), slope_at_end(HORIZONS, y)):
        assert estimate.value == pytest.approx(exponent, abs=1e-9)
        assert estimate.high - estimate.low < 1e-6


def test_the_interval_of_a_slope_is_the_textbooks():
    rng = np.random.default_rng(0)
    y = HORIZONS**-0.5 * np.exp(0.1 * rng.normal(size=HORIZONS.size))
    fit = stats.linregress(np.log(HORIZONS), np.log(y))
    half = stats.t.ppf(0.975, HORIZONS.size - 2) * fit.stderr
    estimate = slope(HORIZONS, y)
    assert estimate.value == pytest.approx(fit.slope, rel=1e-12)
    assert estimate.high - estimate.value == pytest.approx(half, rel=1e-9)


@pytest.mark.parametrize("fit", [slope, slope_at_end])
def test_intervals_cover_the_truth_as_often_as_they_say(fit):
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        y = HORIZONS**-0.5 * np.exp(0.1 * rng.normal(size=HORIZONS.size))
        estimate = fit(HORIZONS, y)
        covered += estimate.low <= -0.5 <= estimate.high
    assert 925 <= covered <= 975


def test_the_end_of_a_bend_is_its_local_exponent():
    x = np.log(HORIZONS)
    y = np.exp(-0.1 * x - 0.02 * x**2)
    assert slope_at_end(HORIZONS, y).value == pytest.approx(-0.1 - 0.04 * x[-1], rel=1e-9)


def test_no_logarithm_of_nothing():
    with pytest.raises(ValueError, match="y must be positive"):
        slope([1, 2, 3], [1.0, 0.0, 1.0])


def test_means():
    x = [1.0, 2.0, 4.0, 8.0]
    expected = stats.t.interval(0.95, 3, np.mean(x), stats.sem(x))
    assert (mean(x).low, mean(x).high) == pytest.approx(expected)
    assert geometric_mean(x).value == pytest.approx(stats.gmean(x))
    assert geometric_mean(x).low == pytest.approx(np.exp(mean(np.log(x)).low))


def test_plain_data_says_what_follows():
    plain = Claim("C5", "", [Finding("x", exact(0.5), at_most=1.0), Finding("y", exact(2))]).plain()
    assert plain["verdict"] == "supported"
    assert [finding["verdict"] for finding in plain["findings"]] == ["supported", None]
    assert plain["findings"][0]["range"] == "at most 1"
