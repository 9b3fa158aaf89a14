"""The race, on machines that are a function of a configuration: what it measures, and what it takes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from autopipe.pipeline.config import PipelineConfig
from autopipe.search import space as spaces
from autopipe.search.race import Race, usual
from autopipe.search.space import Params, Space, from_config
from tests.unit.search.conftest import some, space_of

Rate = Callable[[PipelineConfig], float | None]


def workers(config: PipelineConfig) -> int:
    return config.loader.worker_count() or 16


def race(
    rate: Rate, space: Space | None = None, *, enough: float = math.inf, most: int = 999, cores: int = 16
) -> tuple[Race, list[PipelineConfig]]:
    """Return a race over a machine of 16 cores, and the configurations that it has measured, in order."""
    ran: list[PipelineConfig] = []

    def measure(config: PipelineConfig) -> float | None:
        ran.append(config)
        return rate(config)

    def over() -> bool:
        return len(ran) >= most

    asked = space or spaces.load("default", {"cores": cores, "gpus": 1}).only("keep", ["none", "memory", "encoded"])
    found = Race(
        space=asked,
        cores=cores,
        allowed=lambda config: True,
        measure=measure,
        cost=lambda config: (float(workers(config)), float(config.kept.in_memory)),
        over=over,
        enough=enough,
    )
    return found, ran


def locked(config: PipelineConfig) -> float:
    """A Python op in the way: threads take turns, and processes do not."""
    free = config.loader.kind == "processes"
    return 100.0 * min(workers(config), 16) / (1.0 if free else 1 + 0.5 * (workers(config) - 1))


def cached(config: PipelineConfig) -> float:
    """Decoding takes ten times what all else takes."""
    return 100.0 * min(workers(config), 16) * (10.0 if config.keep == "memory" else 1.0)


def waiting(config: PipelineConfig) -> float:
    """Reads of 20 ms, and nothing else that matters."""
    return 50.0 * (config.loader.reads_at_once() or 16) if config.keep == "none" else 1.0


def locked_until_cached(config: PipelineConfig) -> float:
    """A Python op in the way as long as samples are made; threads hand over most cheaply what is kept."""
    makes = config.keep == "none"
    return locked(config) if makes else {"threads": 90_000.0, "processes": 60_000.0}.get(config.loader.kind, 9_000.0)


@pytest.mark.parametrize(
    ("rate", "wanted"),
    [
        (locked_until_cached, {"loader": "threads", "keep": "memory"}),
        (locked, {"loader": "processes", "processes.workers": 16}),
        (cached, {"keep": "memory"}),
        (waiting, {"threads.read_ahead": 512}),
    ],
)
def test_loaders_are_told_apart_by_what_was_measured(rate: Rate, wanted: Params) -> None:
    found, _ = race(rate)
    found.of_loaders()
    best, top = some(found.best())
    assert from_config(best).items() >= wanted.items()
    assert top == rate(best)
    by_trials, _ = race(rate)
    by_trials.of_trainings()
    assert from_config(some(by_trials.best())[0]).items() >= wanted.items()


def test_what_makes_enough_ends_the_race_and_fewer_workers_are_taken_as_long_as_they_do() -> None:
    found, ran = race(cached, enough=5_000.0)
    found.of_loaders()
    assert len(ran) < 12
    found.fewer()
    best, rate = some(found.best())
    assert (best.keep, workers(best)) == ("memory", 8)
    assert rate >= 5_000.0


def test_nothing_runs_twice_and_what_fails_is_left_alone() -> None:
    found, ran = race(lambda config: None if config.loader.kind == "threads" else locked(config))
    found.of_loaders()
    assert len({each.key() for each in ran}) == len(ran)
    assert some(found.best())[0].loader.kind == "processes"
    assert [each.loader.kind for each in ran].count("threads") == 1


def test_where_nothing_runs_there_is_no_best() -> None:
    found, ran = race(lambda config: None)
    found.of_trainings()
    assert (found.best(), found.ranked()) == (None, [])
    assert ran


def test_one_is_measured_though_the_time_is_over_and_the_race_knows_that_it_was_cut() -> None:
    found, ran = race(cached, most=0)
    found.of_loaders()
    assert len(ran) == 1
    assert found.is_cut
    whole, _ = race(cached)
    whole.of_loaders()
    assert not whole.is_cut
    enough, _ = race(cached, enough=5_000.0)
    enough.of_loaders()
    assert not enough.is_cut


@pytest.mark.parametrize(
    ("reads", "workers", "room", "wanted"),
    [
        (59, None, math.inf, {"threads.read_ahead": 128, "threads.workers": 16}),
        (59, 150, math.inf, {"threads.read_ahead": 128, "threads.workers": 16}),  # they wait for reads
        (1, 150, math.inf, {"threads.read_ahead": 0, "threads.workers": 128}),
        (1, 150, 99, {"threads.workers": 16}),
        (1, 40, math.inf, {"threads.workers": 16}),  # they wait a little
    ],
)
def test_where_samples_wait_the_race_begins_with_as_many_as_were_measured_to_be_of_use(
    reads: int, workers: int | None, room: float, wanted: Params
) -> None:
    found, ran = race(waiting)
    found.reads, found.workers = reads, workers
    found.allowed = lambda config: (config.loader.worker_count() or 0) <= room
    found.of_trainings()
    assert from_config(ran[0]).items() >= wanted.items()
    assert [from_config(each)["processes.workers"] for each in found.usuals()[1:2]] == [16]


def test_many_workers_that_were_thought_to_wait_are_compared_with_a_worker_a_core() -> None:
    found, ran = race(lambda config: 40.0 * min(workers(config), 16))
    found.reads, found.workers = 1, 150
    found.of_trainings()
    assert workers(ran[0]) == 128
    assert workers(some(found.best())[0]) == 16


def test_what_waits_once_as_it_is_kept_needs_a_worker_a_core_afterwards() -> None:
    def waits_once(config: PipelineConfig) -> float:
        return 10.0 * workers(config) if config.keep == "none" else 5_000.0 - 20.0 * workers(config)

    found, ran = race(waits_once)
    found.reads, found.workers = 1, 150
    found.of_trainings()
    assert [workers(each) for each in ran if each.keep == "memory"][:2] == [128, 16]


def test_where_nobody_knows_whether_reads_wait_more_workers_come_before_fewer() -> None:
    def slow_reads(config: PipelineConfig) -> float:
        return 40.0 * workers(config)

    only = spaces.load("default", {"cores": 16, "gpus": 1}).only("loader", ["threads"])
    found, ran = race(slow_reads, only)
    found.of_workers()
    assert sorted(map(workers, ran)) == list(map(workers, ran))
    assert workers(ran[0]) == 16
    assert workers(ran[-1]) >= 64
    found, ran = race(lambda config: 40.0 * min(workers(config), 16), only)
    found.of_workers()
    assert [workers(each) for each in ran[:2]] == [16, 32]  # no gain: fewer may do
    assert {4, 8} <= set(map(workers, ran[2:]))


def test_among_equals_the_cheapest_is_the_best() -> None:
    found, _ = race(lambda config: 1000.0)
    found.of_loaders()
    assert workers(some(found.best())[0]) == 4  # a quarter of the cores, the fewest that are compared


def test_the_usual_values_are_the_defaults_or_what_is_nearest_to_them() -> None:
    space = space_of(
        {"loader": ["threads"], "threads.workers": [1, 3, 9], "threads.queue_size": [2, 16], "keep": ["none"]}
    )
    assert usual(space, 4, {}) == {"loader": "threads", "threads.workers": 3, "threads.queue_size": 16, "keep": "none"}
    assert usual(space, 4, {"threads.workers": 9, "keep": "memory"})["threads.workers"] == 9
