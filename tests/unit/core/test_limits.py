from __future__ import annotations

import itertools
from typing import Any

import pytest

from autopipe.core.ceiling import Ceiling, OpCost, ReadCosts, ReadRung
from autopipe.core.config import PipelineConfig
from autopipe.core.limits import Kind, Limits, bottleneck, limits
from autopipe.core.value import Estimate
from autopipe.loaders.keras import Keras
from autopipe.loaders.processes import Processes
from autopipe.loaders.tfdata import TfData
from autopipe.loaders.threads import Threads

COSTS = (
    OpCost(name="read", part="fixed", seconds_per_image=0.04e-3),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.58e-3),
    OpCost(name="RandomFlip", part="fresh", seconds_per_image=0.02e-3),
    OpCost(name="batching", part="fresh", seconds_per_image=0.10e-3),
    OpCost(name="Rescale", part="finish", seconds_per_image=0.05e-3),
)
THREADS = PipelineConfig(loader=Threads(workers=2))


def ceiling(model: float = 8400.0, model_core_seconds: float = 0.0, **other: Any) -> Ceiling:
    values: dict[str, Any] = {"op_costs": COSTS, "cores": 2.0} | other
    return Ceiling(
        model_images_per_second=Estimate(value=model, low=model, high=model),
        model_core_seconds_per_image=model_core_seconds,
        **values,
    )


def rate_of(limit: Limits, kind: Kind) -> float:
    found = limit.of(kind)
    assert found is not None
    return found.images_per_second


def test_the_cores_are_shared_by_the_loader_and_the_model() -> None:
    limit = limits(ceiling(model_core_seconds=0.26e-3), THREADS)
    assert limit.loader_core_seconds == pytest.approx(0.74e-3)
    assert limit.images_per_second == rate_of(limit, Kind.OP) == pytest.approx(2 / 1e-3)


def test_no_configuration_exceeds_the_model_alone() -> None:
    limit = limits(ceiling(model=100.0, model_core_seconds=0.001), THREADS)
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
    assert limits(ceiling(), config).loader_core_seconds == pytest.approx(milliseconds / 1e3)


@pytest.mark.parametrize("loader", [Threads(workers=1), Processes(workers=1), Keras(workers=1)])
def test_one_worker_uses_one_core(loader: Any) -> None:
    limit = limits(ceiling(), PipelineConfig(loader=loader))
    assert limit.images_per_second == pytest.approx(1 / 0.74e-3)
    assert "this many workers" in bottleneck(limit).sentence


@pytest.mark.parametrize("loader", [Threads(workers=2), Threads(workers=16), TfData()])
def test_more_workers_than_cores_use_all_cores_and_no_more(loader: Any) -> None:
    limit = limits(ceiling(), PipelineConfig(loader=loader))
    assert not any(each.workers for each in limit.limits)
    assert limit.images_per_second == pytest.approx(2 / 0.74e-3)


def test_files_from_a_slow_disk_are_a_limit_until_they_are_cached() -> None:
    cold = ceiling(read_bytes_per_second=20e6, bytes_per_image=40_000.0)
    limit = limits(cold, THREADS)
    assert limit.images_per_second == rate_of(limit, Kind.STORAGE_BANDWIDTH) == 500.0
    assert bottleneck(limit).sentence.startswith(
        "the storage gives 20 MB/s, 500 images/s; 336 MB/s would feed the model"
    )
    half = PipelineConfig(loader=Threads(workers=2), cache="memory", cache_fraction=0.5)
    assert rate_of(limits(cold, half), Kind.STORAGE_BANDWIDTH) == 1000.0
    assert limits(cold, THREADS.model_copy(update={"cache": "memory"})).of(Kind.STORAGE_BANDWIDTH) is None


def test_without_op_costs_the_model_is_all_that_is_known() -> None:
    limit = limits(ceiling(op_costs=(), cores=None), THREADS)
    assert limit.images_per_second == 8400.0
    assert limit.of(Kind.OP) is None
    assert bottleneck(limit).sentence == (
        "on a batch that is already there the model takes 8,400 images/s; what making one costs is not known."
    )


def test_the_sentence_names_the_dearest_op_and_what_it_means() -> None:
    assert bottleneck(limits(ceiling(), THREADS)).sentence == (
        "Decode takes 0.58 ms of the loader's 0.74 ms for an image; 2 cores cannot feed more than 2,700 images/s; "
        "the model alone takes 8,400."
    )


def test_the_sentence_names_the_model_where_it_takes_the_cores() -> None:
    sentence = bottleneck(limits(ceiling(model=900.0, model_core_seconds=2.0e-3), THREADS)).sentence
    assert "Decode takes 0.58 ms" in sentence
    assert "the model takes 2 ms of the cores for an image" in sentence
    assert "cannot feed more than 730" in sentence


def test_the_sentence_names_the_model_where_it_is_the_limit() -> None:
    sentence = bottleneck(limits(ceiling(model=500.0), THREADS)).sentence
    assert sentence.startswith("the model is the limit")
    assert "500 images/s" in sentence


def test_every_limit_has_a_sentence() -> None:
    for model, work, disk, config in itertools.product(
        (100.0, 1e6), (0.0, 1e-3), (None, 1e6), (THREADS, PipelineConfig(loader=Threads(workers=1)))
    ):
        found = limits(ceiling(model, work, read_bytes_per_second=disk, bytes_per_image=4e4), config)
        sentence = bottleneck(found).sentence
        assert sentence.endswith(".")
        assert "any number" not in sentence


def test_work_that_costs_nothing_has_no_limit() -> None:
    free = (OpCost(name="read", part="fixed", seconds_per_image=0.0),)
    assert bottleneck(limits(ceiling(op_costs=free), THREADS)).kind is Kind.MODEL


# ---------------------------------------------------------------- the bottleneck

SLOW = ReadCosts(
    latency_seconds=0.02,
    cpu_seconds=0.00004,
    rungs=tuple(ReadRung(at_once=count, images_per_second=50.0 * count) for count in (1, 4, 16, 64)),
    bytes_per_image=38_000,
)
WAITING: dict[str, Any] = {
    "op_costs": (OpCost(name="read", part="fixed", seconds_per_image=0.04e-3, wait_seconds_per_image=0.02), *COSTS[1:]),
    "reads": SLOW,
}


def test_reads_that_wait_are_named_with_the_number_that_would_lift_them() -> None:
    found = bottleneck(limits(ceiling(model=1000.0, **WAITING), THREADS), rate=95.0)
    assert found.kind is Kind.STORAGE_LATENCY
    assert found.images_per_second == pytest.approx(2 / 20.74e-3)
    assert found.sentence == (
        "each read waits 20 ms: 2 at a time bring 96.4 images/s; 20 reads at a time would feed the model; "
        "the model alone takes 1,000."
    )


def test_what_waits_in_an_op_is_named_by_the_op() -> None:
    asks = OpCost(name="Map", part="fresh", seconds_per_image=0.1e-3, wait_seconds_per_image=0.03)
    found = bottleneck(limits(ceiling(model=1000.0, op_costs=(*COSTS, asks)), THREADS))
    assert (found.kind, found.op) == (Kind.OP, "Map")
    assert "of which it waits 30 ms" in found.sentence


def test_the_lock_is_named_where_threads_stand_in_line_for_it() -> None:
    locked = OpCost(name="Map", part="fresh", seconds_per_image=5e-3, lock_seconds_per_image=5e-3)
    made = ceiling(model=5000.0, op_costs=(*COSTS, locked))
    found = bottleneck(limits(made, PipelineConfig(loader=Threads(workers=4))), rate=180.0)
    assert (found.kind, found.op) == (Kind.PYTHON_LOCK, "Map")
    assert "Map holds Python's lock for 5 ms an image" in found.sentence
    assert bottleneck(limits(made, PipelineConfig(loader=Processes(workers=2)))).kind is Kind.OP


def test_a_storage_that_gives_no_more_is_a_bandwidth() -> None:
    rungs = tuple(ReadRung(at_once=count, images_per_second=rate) for count, rate in ((1, 50), (4, 190), (16, 200)))
    narrow = WAITING | {"reads": SLOW.model_copy(update={"rungs": rungs}), "bytes_per_image": 38_000.0}
    found = bottleneck(limits(ceiling(model=1000.0, **narrow), PipelineConfig(loader=Threads(workers=64))), rate=190.0)
    assert found.kind is Kind.STORAGE_BANDWIDTH
    assert found.sentence.startswith("the storage gives 7.6 MB/s, 200 images/s; 38 MB/s would feed the model")


def test_memory_that_holds_a_part_is_named() -> None:
    part = PipelineConfig(loader=Threads(workers=2), cache="memory", cache_fraction=0.5)
    assert bottleneck(limits(ceiling(model=9000.0), part)).kind is Kind.MEMORY


@pytest.mark.parametrize(("rate", "kind"), [(460.0, Kind.MODEL), (440.0, Kind.OP)])
def test_the_model_is_the_limit_from_nine_tenths_of_it_on(rate: float, kind: Kind) -> None:
    assert bottleneck(limits(ceiling(model=500.0), THREADS), rate).kind is kind


def test_the_share_that_was_read_side_by_side_decides() -> None:
    assert bottleneck(limits(ceiling(model=500.0), THREADS), 490.0, model_share=0.8).kind is Kind.OP
