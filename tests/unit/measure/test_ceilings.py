from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from autopipe.measure import ceilings
from autopipe.measure.facts import OpCost, ReadCosts
from autopipe.measure.feed import PageCache
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.values import Estimate
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.values import Rescale
from autopipe.workload.sample import Batch
from autopipe.workload.workload import Workload
from tests.fakes.ceilings import reads
from tests.fakes.reports import Told

S3 = reads(10.0, 40.0, 160.0, 640.0, cpu=0.0005)


class Loader:
    """Batches of `size` that come after so many seconds each, by its own clock; on two cores, which work throughout."""

    def __init__(self, size: int, seconds: Iterable[float]) -> None:
        self.now, self.taken, self.size = 0.0, 0, size
        self._seconds = iter(seconds)

    def clock(self) -> tuple[float, float]:
        return self.now, 2 * self.now

    def batches(self) -> Iterator[Batch]:
        for seconds in self._seconds:
            self.now += seconds
            self.taken += 1
            yield np.zeros((self.size, 1)), None

    def rate(self, workers: int) -> float:
        found, core_seconds = ceilings.timed(self.batches(), workers, self.size, 0.6, clock=self.clock)
        assert core_seconds == pytest.approx(2 / found.value)
        return found.value


def size(op_seconds: float, workers: int, found: ReadCosts | None = None, read_ahead: int = 0) -> int:
    waits = 0.0 if found is None else found.wait_seconds
    ops = (
        OpCost(name="read", part="fixed", seconds_per_image=0.0005, wait_seconds_per_image=waits),
        OpCost(name="Decode", part="fixed", seconds_per_image=op_seconds),
    )
    return ceilings.batch_size(256, Threads(workers=workers, read_ahead=read_ahead), ops, found)


def test_a_storage_that_waits_is_timed_in_seconds_on_many_cores() -> None:
    """In batches of 256 it would be 78 s: 66 of them at first, and then 64 twice, of 640 images a second."""
    few = size(0.002, 64, S3, read_ahead=64)
    loader = Loader(few, itertools.repeat(few / 640))
    assert loader.rate(64) == pytest.approx(640)
    assert 3 < loader.now < 8


def test_slow_ops_are_timed_in_smaller_batches_too() -> None:
    assert 15 < size(0.1, 64) < 21
    assert (size(0.001, 2), size(60.0, 2)) == (256, 1)


def test_a_loader_that_is_fast_goes_through_the_same_batches_as_ever() -> None:
    loader = Loader(32, itertools.repeat(1 / 128))
    assert loader.rate(2) == pytest.approx(4096)
    assert loader.taken == 4 + 11 * 7  # windows of 0.05 s and a little, until 0.6 s are over
    slower = Loader(32, itertools.repeat(0.5))
    assert slower.rate(2) == pytest.approx(64)
    assert slower.taken == 4 + 2 * 2  # whole rounds


def test_workers_that_end_together_are_timed_over_whole_rounds() -> None:
    loader = Loader(20, itertools.cycle([4.0, *[0.0] * 63]))
    assert loader.rate(64) == pytest.approx(20 * 64 / 4.0)


def test_what_is_far_slower_than_was_predicted_is_left_at_parts_of_a_round() -> None:
    loader = Loader(20, itertools.repeat(2.0))
    assert loader.rate(64) == pytest.approx(10)
    assert loader.now == pytest.approx(30.0)  # three times the patience in place of 388 s


def test_from_its_cache_the_loader_alone_is_timed_once_it_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Slow:
        """Names no spans: each sample is read by itself."""

        def __len__(self) -> int:
            return 250

        def read(self, index: int) -> tuple[Any, int]:
            read.append(index)
            return np.full((8, 8, 3), index, np.uint8), index

    def timed(batches: Iterator[Batch], *rest: Any) -> tuple[Estimate, float]:
        for _ in range(12):
            next(batches)
        return Estimate(value=1e6, low=1e6, high=1e6), 0.001

    def run(workload: Workload, plan: Any, config: PipelineConfig, *rest: Any) -> tuple[Estimate, float]:
        read.clear()
        found = usual(workload, plan, config, *rest)
        if config.keep == "memory":
            cached.append((len(set(read)), len(workload.data) // 100 * 100))  # and what was read while it was filled
            assert len(read) < 2 * len(set(read))  # a sample may be read by two workers at once, but not in each epoch
        return found

    usual, cached = ceilings.run, list[tuple[int, int]]()
    monkeypatch.setattr(ceilings, "run", run)
    monkeypatch.setattr(ceilings, "timed", timed)
    workload = Workload(data=Slow(), ops=[RandomFlip()], batch_size=100, drop_remainder=True)
    ceilings.loader_ceiling(workload, make_plan(workload), PageCache(workload.data, "warm"), Told())
    assert cached == [(200, 200)]


def test_the_loader_alone_makes_smaller_batches_where_the_wanted_ones_would_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches_of: list[int] = []

    def timed(batches: Iterator[Batch], workers: int, size: int, *rest: Any) -> tuple[Estimate, float]:
        batches_of.extend({len(next(batches)[0]), size})
        return Estimate(value=1e3, low=1e3, high=1e3), 0.001

    monkeypatch.setattr(ceilings, "_ROUND_SECONDS", 1e-9)
    monkeypatch.setattr(ceilings, "timed", timed)
    images = np.zeros((100, 8, 8, 3), np.uint8)
    workload = Workload(data=Arrays(images, np.arange(100)), ops=[Rescale(1 / 255)], batch_size=50, drop_remainder=True)
    plan = make_plan(workload)
    ceilings.loader_ceiling(workload, plan, PageCache(workload.data, "warm"), Told())
    assert batches_of == [1, 1]  # without and with a cache
