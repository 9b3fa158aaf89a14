"""Statistics on short, noisy series, and what a conversion costs and pays."""

from __future__ import annotations

import math

import numpy as np
import pydantic
import pytest

from autopipe.measure.costs import CostProfile, conversion_seconds, epochs_to_pay, saved_seconds
from autopipe.measure.outcome import ConversionCost
from autopipe.measure.stats import bootstrap_interval, compare_pairs, log_variance, median, student_t
from autopipe.values import Estimate


def test_bootstrap_interval_holds_the_median_and_is_repeatable() -> None:
    rates = [95.0, 100.0, 101.0, 99.0, 103.0, 98.0, 100.5]
    low, high = bootstrap_interval(rates)
    assert low <= median(rates) <= high
    assert (low, high) == bootstrap_interval(rates)
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
        comparison = compare_pairs((first / second).tolist())
        hits += not comparison.decided
    assert hits / 1000 == pytest.approx(0.95, abs=0.025)


def test_a_clear_gain_is_seen_through_a_drift_common_to_the_pair() -> None:
    comparison = compare_pairs([1.09, 1.11, 1.10, 1.10, 1.10])
    assert comparison.faster
    assert not comparison.slower
    assert comparison.ratio == pytest.approx(1.10, abs=0.001)
    one = compare_pairs([2.0])  # one pair decides nothing
    assert one.ratio == pytest.approx(2.0)
    assert not one.decided


@pytest.mark.parametrize("ratios", [[], [0.0], [1.0, -1.0]])
def test_ratios_that_are_not_of_rates_are_an_error(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="compare_pairs"):
        compare_pairs(ratios)


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


def cost(*seconds: float, workers: int = 2, samples: int = 10, wall: float | None = None) -> ConversionCost:
    return ConversionCost(
        cut=2,
        samples=samples * len(seconds),
        bytes=1000 * len(seconds),
        workers=workers,
        seconds=sum(seconds) / min(workers, len(seconds)) if wall is None else wall,
        shard_samples=(samples,) * len(seconds),
        shard_seconds=seconds,
    )


def test_shards_that_differ_widen_the_interval() -> None:
    estimate = conversion_seconds(cost(0.8, 1.2, 1.0, 1.0), samples=400)
    assert estimate.value == pytest.approx(20.0)
    # The shards' standard deviation is 0.1633 s; t(3) = 3.182; over the root of 4, of a mean of 1 s.
    assert estimate.high - estimate.value == pytest.approx(20.0 * 3.182 * 0.16330 / 2, rel=1e-3)
    assert estimate.value - estimate.low == pytest.approx(estimate.high - estimate.value)


def test_a_small_last_shard_counts_by_its_samples() -> None:
    uneven = cost(1.0, 0.5).model_copy(update={"samples": 15, "seconds": 0.75, "shard_samples": (10, 5)})
    assert conversion_seconds(uneven, samples=150).value == pytest.approx(150 * 0.1 / 2)


def test_what_is_paid_beside_the_shards_is_paid_once() -> None:
    estimate = conversion_seconds(cost(1.0, 1.0, wall=1.3), samples=200)
    assert (estimate.low, estimate.value) == pytest.approx((10.3, 10.3))


def test_an_estimate_is_finite_frozen_and_not_upside_down() -> None:
    for value, low, said in ((math.nan, 0.0, "finite"), (math.inf, 0.0, "finite"), (1.0, 2.0, "must not exceed")):
        with pytest.raises(pydantic.ValidationError, match=said):
            Estimate(value=value, low=low, high=1.0)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Estimate(value=2.0, low=1.0, high=3.0).value = 1.0  # type: ignore[misc]  # what the test is about


def test_the_whole_takes_as_long_a_sample_as_the_part() -> None:
    estimate = conversion_seconds(cost(1.0, 1.0, 1.0, 1.0), samples=400)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((20.0, 20.0, 20.0))
    assert conversion_seconds(cost(1.0, workers=8), samples=100).value == pytest.approx(10.0)  # more than shards


@pytest.mark.parametrize(
    ("rate", "once", "epochs"), [(100.0, 6.0, None), (90.0, 6.0, None), (200.0, 5.0, 0.0), (200.0, 25.0, 4.0)]
)
def test_it_pays_only_by_its_rate_and_at_once_if_it_costs_no_more(
    rate: float, once: float, epochs: float | None
) -> None:
    kept, rival = (
        CostProfile(images_per_second=rate, once_seconds=once),
        CostProfile(images_per_second=100.0, once_seconds=5.0),
    )
    assert epochs_to_pay(kept, rival, 1000) == epochs
    assert saved_seconds(kept, rival, 1000) == pytest.approx(10.0 - 1000 / rate)
    if epochs:
        assert kept.seconds(epochs, 1000) == pytest.approx(rival.seconds(epochs, 1000))
