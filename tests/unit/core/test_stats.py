"""Statistics on short, noisy series. Coverage of the intervals is tested, not only their arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autopipe.core.stats import bootstrap_interval, compare_pairs, log_variance, median, student_t
from autopipe.core.value import Estimate


def test_median_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        median([])


def test_bootstrap_interval_holds_the_median_and_is_repeatable() -> None:
    rates = [95.0, 100.0, 101.0, 99.0, 103.0, 98.0, 100.5]
    interval = bootstrap_interval(rates)
    assert interval.low <= median(rates) <= interval.high
    assert interval == bootstrap_interval(rates)


def test_one_value_has_an_endless_interval() -> None:
    assert bootstrap_interval([100.0]) == (-math.inf, math.inf)


def test_bootstrap_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        low, high = bootstrap_interval(rng.normal(100.0, 5.0, 15), resamples=300)
        hits += low <= 100.0 <= high
    assert hits / 300 == pytest.approx(0.95, abs=0.05)


@pytest.mark.parametrize("pairs", [3, 4, 6])
def test_paired_interval_covers_no_difference_in_95_percent_even_with_few_pairs(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    hits = 0
    for _ in range(1000):
        drift = rng.normal(100.0, 10.0, pairs)  # shared by the pair: what pairing removes
        first, second = drift * rng.normal(1.0, 0.02, pairs), drift * rng.normal(1.0, 0.02, pairs)
        comparison = compare_pairs(first.tolist(), second.tolist())
        hits += comparison.interval.low <= 1.0 <= comparison.interval.high
    assert hits / 1000 == pytest.approx(0.95, abs=0.025)


def test_a_clear_gain_is_seen_through_a_drift_common_to_the_pair() -> None:
    old = [100.0, 80.0, 60.0, 90.0, 70.0]
    new = [rate * gain for rate, gain in zip(old, (1.09, 1.11, 1.10, 1.10, 1.10), strict=True)]
    comparison = compare_pairs(new, old)
    assert comparison.faster
    assert not comparison.slower
    assert comparison.ratio == pytest.approx(1.10, abs=0.001)


def test_one_pair_decides_nothing() -> None:
    comparison = compare_pairs([200.0], [100.0])
    assert not comparison.faster
    assert comparison.ratio == pytest.approx(2.0)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_pairs_that_are_no_pairs_of_rates_are_an_error(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="compare_pairs"):
        compare_pairs(first, second)


@pytest.mark.parametrize(
    ("freedom", "alpha", "point"),
    [
        (1, 0.05, 12.7062),
        (2, 0.05, 4.3027),
        (3, 0.01, 5.8409),
        (4, 0.05, 2.7764),
        (9, 0.002, 4.2968),
        (30, 0.05, 2.0423),
    ],
)
def test_students_t_is_that_of_the_tables(freedom: int, alpha: float, point: float) -> None:
    assert student_t(freedom, alpha) == pytest.approx(point, abs=1e-4)


def test_the_variance_of_a_logarithm_follows_from_the_interval() -> None:
    spread = 0.03
    rate = Estimate(value=100.0, low=100.0 * math.exp(-1.96 * spread), high=100.0 * math.exp(1.96 * spread))
    assert log_variance(rate) == pytest.approx(spread**2, rel=1e-3)
    assert log_variance(Estimate(value=100.0, low=0.0, high=200.0)) > 0.3**2
