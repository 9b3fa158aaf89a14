from __future__ import annotations

import pytest
from replaying.synthetic import measurement

from autopipe.core.facts import Limits
from autopipe.core.outcome import ConversionCost, Measurement, Resources
from autopipe.core.params import to_config
from autopipe.search import objective

CONFIG = to_config({"loader": "threads", "threads.workers": 2})


def measured(*rates: float, resources: Resources | None = None) -> Measurement:
    return measurement(CONFIG, rates, batch_size=32, first_batch_seconds=2.0, resources=resources)


def test_one_measurement_speaks_for_itself() -> None:
    one = measured(100.0, 101.0, 102.0)
    assert objective.merged([one]) == one.images_per_second


def test_several_measurements_of_a_point_are_one_with_more_windows() -> None:
    both = objective.merged([measured(100.0, 110.0, 120.0), measured(80.0, 90.0)])
    assert both.value == pytest.approx(100.0)
    assert both.low <= 100.0 <= both.high


def test_over_a_training_one_time_costs_count() -> None:
    assert objective.score(500.0, one_time_seconds=10.0, images=5000) == pytest.approx(250.0)


def test_a_conversion_pays_over_many_epochs_and_not_over_few() -> None:
    def converted(epochs: int) -> float:
        return objective.score(1000.0, one_time_seconds=30.0, images=epochs * 10_000)

    assert converted(1) < 500.0 < converted(20)


def test_one_time_costs_are_conversion_fill_and_start() -> None:
    assert objective.one_time_seconds([measured(1.0, 1.0)], (5.0, 3.0), 100) == 10.0


def test_what_was_measured_once_counts_before_what_was_predicted() -> None:
    cost = ConversionCost(
        cut=1, samples=10, bytes=100, workers=1, seconds=1.0, shard_samples=(5, 5), shard_seconds=(0.5, 0.5)
    )
    known = measured(1.0, 1.0).model_copy(update={"conversion": cost, "cache_fill_seconds": 7.0})
    assert objective.one_time_seconds([known], (5.0, 3.0), 100) == pytest.approx(10.0 + 7.0 + 2.0)


def test_what_breaks_a_limit_is_above_zero() -> None:
    took = Resources(cpu_percent=150.0, peak_rss_bytes=1000)
    limits = Limits(memory_bytes=800, cpu_percent=200.0)
    assert objective.excesses(measured(1.0, resources=took), limits) == {"memory_bytes": 200.0, "cpu_percent": -50.0}


def test_what_was_not_measured_breaks_no_limit() -> None:
    assert objective.excesses(measured(1.0), Limits(memory_bytes=800, cpu_percent=200.0)) == {}
