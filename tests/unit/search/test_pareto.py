from __future__ import annotations

from autopipe.core.outcome import Resources
from autopipe.core.params import to_config
from autopipe.search.pareto import pareto_rows
from autopipe.search.record import Row
from autopipe.search.synthetic import measurement


def row(workers: int, rate: float, memory: int | None, cpu: float | None = None) -> Row:
    config = to_config({"loader": "threads", "threads.workers": workers})
    took = Resources(peak_rss_bytes=memory, cpu_percent=cpu)
    return Row(
        number=workers,
        origin="x",
        config=config,
        key=config.key(),
        outcome=measurement(config, [rate] * 4, batch_size=32, resources=took),
        value=rate,
        predicted=None,
        feasible=True,
        seconds=1.0,
    )


def workers(rows: list[Row]) -> list[int | None]:
    return [each.config.loader.worker_count() for each in pareto_rows(rows)]


def test_who_is_beaten_in_everything_is_left_out() -> None:
    rows = [row(1, 100.0, 10), row(2, 200.0, 20), row(3, 150.0, 30), row(4, 50.0, 10)]
    assert workers(rows) == [2, 1]


def test_processor_time_counts_as_well() -> None:
    assert workers([row(1, 100.0, 10, cpu=50.0), row(2, 200.0, 10, cpu=150.0)]) == [2, 1]


def test_equals_both_stay_and_repeats_are_one() -> None:
    assert workers([row(1, 100.0, 10), row(2, 100.0, 10)]) == [1, 2]
    assert workers([row(1, 100.0, 10), row(1, 120.0, 10)]) == [1]


def test_without_resources_speed_alone_counts() -> None:
    assert workers([row(1, 100.0, None), row(2, 200.0, None)]) == [2]
