from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from autopipe.core.ceiling import ReadCosts, ReadRung, SampleTail
from autopipe.core.config import PipelineConfig
from autopipe.core.value import Estimate
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.loaders.threads import Threads
from autopipe.measure.ceilings import LoaderCosts
from autopipe.measure.feed import Parts
from autopipe.measure.subset import Subset
from autopipe.ops.flip import RandomFlip
from autopipe.ops.planner import make_plan

THREADS = Threads(workers=1)


def test_the_files_of_the_whole_are_looked_at_once_however_many_trials_use_a_part() -> None:
    class Files(Arrays):
        looked = 0

        def digest(self) -> str:
            self.looked += 1
            return "files"

    data = Files(np.zeros((10, 2), np.float32), np.arange(10))
    assert [Subset(data, 5).digest() for _ in range(3)] == ["files subset=5"] * 3
    assert data.looked == 1


@pytest.fixture
def parts() -> Iterator[Parts]:
    data = Arrays(np.zeros((1000, 4, 4, 3), np.uint8), np.arange(1000))
    workload = Workload(data=data, ops=[RandomFlip()], batch_size=10)
    made = Parts(workload, make_plan(workload))
    yield made
    made.close()


def test_what_needs_nothing_made_uses_all_of_the_data(parts: Parts) -> None:
    part = parts.part_for(PipelineConfig(loader=THREADS), makes=lambda: 1.0, trains=1.0)
    assert (len(part.workload.data), part.share, part.conversion) == (1000, 1.0, None)


def test_a_cache_is_given_what_is_filled_in_time_while_the_model_takes_its_own(parts: Parts) -> None:
    part = parts.part_for(PipelineConfig(loader=THREADS, cache="memory"), makes=lambda: 600.0, trains=300.0)
    assert (len(part.workload.data), part.share) == (300, 0.3)


def test_a_slow_pipeline_still_fills_some_batches(parts: Parts) -> None:
    part = parts.part_for(PipelineConfig(loader=THREADS, cache="memory"), makes=lambda: 1.0, trains=1.0)
    assert len(part.workload.data) == 40


@pytest.mark.parametrize(("count", "expected"), [(1000, 256), (300, 256), (64, 64)])
def test_a_part_holds_whole_batches_as_what_is_left_over_would_be_read_beside_the_cache(
    count: int, expected: int
) -> None:
    data = Arrays(np.zeros((count, 4, 4, 3), np.uint8), np.arange(count))
    workload = Workload(data=data, ops=[RandomFlip()], batch_size=64, drop_remainder=True)
    with contextlib.closing(Parts(workload, make_plan(workload))) as parts:
        config = PipelineConfig(loader=THREADS, cache="memory")
        part = parts.part_for(config, makes=lambda: 600.0, trains=300.0)
    assert (len(part.workload.data), part.share) == (expected, expected / count)


def test_a_form_is_written_once_and_removed_at_the_end(parts: Parts) -> None:
    config = PipelineConfig(loader=THREADS, storage="array")
    first, second = (parts.part_for(config, makes=lambda: 100.0, trains=1e6) for _ in range(2))
    assert first == second
    assert first.conversion is not None
    assert (first.conversion.samples, first.share) == (150, 0.15)
    folder = Path(first.workload.converted)
    assert folder.is_dir()
    parts.close()
    assert not folder.exists()


def test_a_form_is_written_to_the_folder_that_is_named(parts: Parts, tmp_path: Path) -> None:
    config = PipelineConfig(loader=THREADS, storage="array")
    part = parts.part_for(config, makes=lambda: 100.0, trains=1e6, folder=str(tmp_path))
    assert Path(part.workload.converted).is_relative_to(tmp_path)
    parts.close()
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_made_in_time_depends_on_how_many_samples_are_read_at_a_time() -> None:
    """64 reads of 100 ms at a time feed what two of them cannot: the part for a cache would take half a minute."""
    reads = ReadCosts(
        latency_seconds=0.1,
        cpu_seconds=0.0001,
        rungs=tuple(ReadRung(at_once=count, images_per_second=10.0 * count) for count in (1, 4, 16, 64)),
        bytes_per_image=1e5,
    )
    tail = SampleTail(samples=1, p50_seconds=0.1, p95_seconds=0.1, p99_seconds=0.1, slowest_share=1.0)
    made = LoaderCosts(
        images_per_second=Estimate(value=600.0, low=590.0, high=610.0),
        op_costs=(),
        reads=reads,
        tail=tail,
        compact_bytes=1,
        finished_bytes=4,
    )
    assert [made.rate(count) for count in (2, 16, 64)] == [20.0, 160.0, 600.0]
    assert dataclasses.replace(made, reads=None).rate(1) == 600.0
