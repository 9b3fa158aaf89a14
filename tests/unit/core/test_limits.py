from __future__ import annotations

from typing import Any

import pytest

from autopipe.core.bottleneck import bottleneck
from autopipe.core.config import PipelineConfig
from autopipe.core.costs import Bounds, Kind, bounds
from autopipe.loaders.processes import Processes
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads
from tests.fakes.ceilings import THREADS, ceiling
from tests.fakes.facts import facts


def rate_of(limit: Bounds, kind: Kind) -> float | None:
    """Return the lowest limit of a kind, if there is one."""
    return next((each.images_per_second for each in limit.limits if each.kind is kind), None)


def test_the_cores_are_shared_by_the_loader_and_the_model() -> None:
    limit = bounds(ceiling(model_core_seconds=0.26e-3), THREADS)
    assert limit.work.core_seconds == pytest.approx(0.74e-3)
    assert limit.images_per_second == rate_of(limit, Kind.OP) == pytest.approx(2 / 1e-3)


def test_no_configuration_exceeds_the_model_alone() -> None:
    limit = bounds(ceiling(model=100.0, model_core_seconds=0.001), THREADS)
    assert limit.images_per_second == 100.0


@pytest.mark.parametrize(
    ("config", "milliseconds"),
    [
        (THREADS, 0.74),
        (THREADS.model_copy(update={"finish": "host"}), 0.79),
        (THREADS.model_copy(update={"cache": "memory"}), 0.12),
        (THREADS.model_copy(update={"storage": "array"}), 0.12),
        (THREADS.model_copy(update={"cache": "memory", "finish": "host"}), 0.17),
        (THREADS.model_copy(update={"storage": "tfrecord"}), 0.74),
        (THREADS.model_copy(update={"cache": "memory", "cache_fraction": 0.5}), 0.43),
        (THREADS.model_copy(update={"storage": "array", "cut": 1}), 0.12),
        (THREADS.model_copy(update={"storage": "array", "cut": 0}), 0.74),
    ],
)
def test_a_loader_pays_for_what_it_does_for_every_image(config: PipelineConfig, milliseconds: float) -> None:
    assert bounds(ceiling(), config).work.core_seconds == pytest.approx(milliseconds / 1e3)


@pytest.mark.parametrize("loader", [Threads(workers=1), Processes(workers=1)])
def test_one_worker_uses_one_core(loader: Any) -> None:
    limit = bounds(ceiling(), PipelineConfig(loader=loader))
    assert limit.images_per_second == pytest.approx(1 / 0.74e-3)
    assert "this many workers" in bottleneck(limit).sentence


def test_a_report_that_knows_the_ceiling_only_finds_the_bound_that_the_search_found() -> None:
    Ray = pytest.importorskip("autopipe.extensions.ray.loader").Ray
    elsewhere = PipelineConfig(loader=Ray(workers=64))
    searched = bounds(ceiling(model=1e6), elsewhere, facts(compact_bytes=400_000, finished_bytes=1_600_000))
    assert rate_of(searched, Kind.HAND_OVER) == pytest.approx(10_000)  # two cores copy each byte twice, at 4 GB/s
    kept = bounds(ceiling(model=1e6, compact_bytes=400_000, finished_bytes=1_600_000), elsewhere)
    assert kept.limits == searched.limits
    decoded = THREADS.model_copy(update={"storage": "tfrecord"})
    searched = bounds(ceiling(), decoded, facts(cuts={"tfrecord": {0: 1, 1: 1}}))
    assert searched.work.core_seconds == pytest.approx(0.12e-3)  # what comes after Decode
    assert bounds(ceiling(depths={"tfrecord": 1}), decoded).limits == searched.limits


@pytest.mark.parametrize("loader", [Threads(workers=2), Threads(workers=16), TfData()])
def test_more_workers_than_cores_use_all_cores_and_no_more(loader: Any) -> None:
    limit = bounds(ceiling(), PipelineConfig(loader=loader))
    assert not any(each.workers for each in limit.limits)
    assert limit.images_per_second == pytest.approx(2 / 0.74e-3)


def test_files_from_a_slow_disk_are_a_limit_until_they_are_cached() -> None:
    cold = ceiling(read_bytes_per_second=20e6, bytes_per_image=40_000.0)
    limit = bounds(cold, THREADS)
    assert limit.images_per_second == rate_of(limit, Kind.STORAGE_BANDWIDTH) == 500.0
    assert bottleneck(limit).sentence.startswith(
        "the storage gives 20 MB/s, 500 images/s; 336 MB/s would feed the model"
    )
    half = PipelineConfig(loader=Threads(workers=2), cache="memory", cache_fraction=0.5)
    assert rate_of(bounds(cold, half), Kind.STORAGE_BANDWIDTH) == 1000.0
    assert rate_of(bounds(cold, THREADS.model_copy(update={"cache": "memory"})), Kind.STORAGE_BANDWIDTH) is None
