from __future__ import annotations

import pytest

from autopipe.core.outcome import ConversionCost
from autopipe.core.payback import CostProfile, conversion_bytes, conversion_seconds, epochs_to_pay, saved_seconds


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


def test_the_whole_takes_as_long_a_sample_as_the_part() -> None:
    estimate = conversion_seconds(cost(1.0, 1.0, 1.0, 1.0), samples=400)
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((20.0, 20.0, 20.0))


def test_shards_that_differ_widen_the_interval() -> None:
    estimate = conversion_seconds(cost(0.8, 1.2, 1.0, 1.0), samples=400)
    assert estimate.value == pytest.approx(20.0)
    # The shards' standard deviation is 0.1633 s; t(3) = 3.182; over the root of 4, of a mean of 1 s.
    assert estimate.high - estimate.value == pytest.approx(20.0 * 3.182 * 0.16330 / 2, rel=1e-3)
    assert estimate.value - estimate.low == pytest.approx(estimate.high - estimate.value)


def test_a_small_last_shard_counts_by_its_samples() -> None:
    uneven = cost(1.0, 0.5).model_copy(update={"samples": 15, "seconds": 0.75, "shard_samples": (10, 5)})
    assert conversion_seconds(uneven, samples=150).value == pytest.approx(150 * 0.1 / 2)


def test_more_workers_than_shards_do_not_help_the_part() -> None:
    assert conversion_seconds(cost(1.0, workers=8), samples=100).value == pytest.approx(10.0)


def test_what_is_paid_beside_the_shards_is_paid_once() -> None:
    estimate = conversion_seconds(cost(1.0, 1.0, wall=1.3), samples=200)
    assert (estimate.low, estimate.value) == pytest.approx((10.3, 10.3))


def test_bytes_grow_with_the_samples() -> None:
    assert conversion_bytes(cost(1.0, 1.0), samples=2000) == 200_000


def test_it_pays_when_what_was_saved_is_what_it_cost() -> None:
    kept, rival = CostProfile(images_per_second=200.0, once_seconds=30.0), CostProfile(images_per_second=100.0)
    assert saved_seconds(kept, rival, 1000) == pytest.approx(5.0)
    epochs = epochs_to_pay(kept, rival, 1000)
    assert epochs == pytest.approx(6.0)
    assert epochs is not None
    assert kept.seconds(epochs, 1000) == pytest.approx(rival.seconds(epochs, 1000))


def test_what_the_rival_pays_once_is_taken_off() -> None:
    kept, rival = (
        CostProfile(images_per_second=200.0, once_seconds=30.0),
        CostProfile(images_per_second=100.0, once_seconds=20.0),
    )
    assert epochs_to_pay(kept, rival, 1000) == pytest.approx(2.0)


@pytest.mark.parametrize("rate", [100.0, 90.0])
def test_what_is_no_faster_never_pays(rate: float) -> None:
    assert (
        epochs_to_pay(CostProfile(images_per_second=rate, once_seconds=1.0), CostProfile(images_per_second=100.0), 1000)
        is None
    )


def test_what_costs_no_more_pays_at_once() -> None:
    rival = CostProfile(images_per_second=100.0, once_seconds=5.0)
    assert epochs_to_pay(CostProfile(images_per_second=200.0, once_seconds=5.0), rival, 1000) == 0.0
