from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from autopipe.core.config import PipelineConfig
from autopipe.core.outcome import Phase
from autopipe.core.sample import Batch
from autopipe.core.value import Estimate
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.measure import ceilings, rounds
from autopipe.measure.pages import PageCache
from autopipe.ops.flip import RandomFlip
from autopipe.ops.planner import make_plan
from autopipe.ops.scale import Rescale


class Quiet:
    """A report that nobody reads."""

    def phase(self, phase: Phase) -> None:
        pass

    def progress(self, images: int, images_per_second: float) -> None:
        pass

    def log(self, message: str) -> None:
        pass


def test_from_its_cache_the_loader_alone_is_timed_once_it_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Slow:
        """Has no batch half: each sample is read by itself."""

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
        if config.cache == "memory":
            cached.append((len(read), len(workload.data) // 100 * 100))  # and what was read while it was filled
        return found

    usual, cached = ceilings._run, list[tuple[int, int]]()
    monkeypatch.setattr(ceilings, "_run", run)
    monkeypatch.setattr(rounds, "timed", timed)
    workload = Workload(data=Slow(), ops=[RandomFlip()], batch_size=100, drop_remainder=True)
    ceilings.loader_costs(workload, make_plan(workload), PageCache(workload.data, "warm"), Quiet())
    assert cached == [(200, 200)]


def test_the_loader_alone_makes_smaller_batches_where_the_wanted_ones_would_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches_of: list[int] = []

    def timed(batches: Iterator[Batch], workers: int, size: int, *rest: Any) -> tuple[Estimate, float]:
        batches_of.extend({len(next(batches)[0]), size})
        return Estimate(value=1e3, low=1e3, high=1e3), 0.001

    monkeypatch.setattr(rounds, "_ROUND_SECONDS", 1e-9)
    monkeypatch.setattr(rounds, "timed", timed)
    images = np.zeros((100, 8, 8, 3), np.uint8)
    workload = Workload(data=Arrays(images, np.arange(100)), ops=[Rescale(1 / 255)], batch_size=50, drop_remainder=True)
    plan = make_plan(workload)
    found = ceilings.loader_costs(workload, plan, PageCache(workload.data, "warm"), Quiet())
    assert batches_of == [1, 1]  # without and with a cache
    assert (found.compact_bytes, found.finished_bytes) == (plan.compact.bytes, plan.finished.bytes)
