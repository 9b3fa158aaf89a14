from __future__ import annotations

import itertools
from typing import Any

import pytest

from autopipe.core.bound import bound
from autopipe.core.ceiling import Ceiling, OpCost
from autopipe.core.config import PipelineConfig
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


def test_the_cores_are_shared_by_the_loader_and_the_model() -> None:
    limit = bound(ceiling(model_core_seconds=0.26e-3), THREADS)
    assert limit.loader_core_seconds == pytest.approx(0.74e-3)
    assert limit.images_per_second == limit.cores_images_per_second == pytest.approx(2 / 1e-3)


def test_no_configuration_exceeds_the_model_alone() -> None:
    limit = bound(ceiling(model=100.0, model_core_seconds=0.001), THREADS)
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
    assert bound(ceiling(), config).loader_core_seconds == pytest.approx(milliseconds / 1e3)


@pytest.mark.parametrize("loader", [Threads(workers=1), Processes(workers=1), Keras(workers=1)])
def test_one_worker_uses_one_core(loader: Any) -> None:
    limit = bound(ceiling(), PipelineConfig(loader=loader))
    assert limit.images_per_second == limit.workers_images_per_second == pytest.approx(1 / 0.74e-3)
    assert "this many workers" in limit.sentence


@pytest.mark.parametrize("loader", [Threads(workers=2), Threads(workers=16), TfData()])
def test_more_workers_than_cores_use_all_cores_and_no_more(loader: Any) -> None:
    limit = bound(ceiling(), PipelineConfig(loader=loader))
    assert limit.workers_images_per_second is None
    assert limit.images_per_second == pytest.approx(2 / 0.74e-3)


def test_files_from_a_slow_disk_are_a_limit_until_they_are_cached() -> None:
    cold = ceiling(read_bytes_per_second=20e6, bytes_per_image=40_000.0)
    limit = bound(cold, THREADS)
    assert limit.images_per_second == limit.disk_images_per_second == 500.0
    assert "the disk gives 20 MB/s" in limit.sentence
    half = PipelineConfig(loader=Threads(workers=2), cache="memory", cache_fraction=0.5)
    assert bound(cold, half).disk_images_per_second == 1000.0
    assert bound(cold, THREADS.model_copy(update={"cache": "memory"})).disk_images_per_second is None


def test_without_op_costs_the_model_is_all_that_is_known() -> None:
    limit = bound(ceiling(op_costs=(), cores=None), THREADS)
    assert limit.images_per_second == 8400.0
    assert limit.cores_images_per_second is None
    assert limit.sentence == (
        "on a batch that is already there the model takes 8,400 images/s; what making one costs is not known."
    )


def test_the_sentence_names_the_dearest_op_and_what_it_means() -> None:
    assert bound(ceiling(), THREADS).sentence == (
        "Decode takes 0.58 ms of the loader's 0.74 ms for an image; 2 cores cannot feed more than 2,700 images/s; "
        "the model alone takes 8,400."
    )


def test_the_sentence_names_the_model_where_it_takes_the_cores() -> None:
    sentence = bound(ceiling(model=900.0, model_core_seconds=2.0e-3), THREADS).sentence
    assert "Decode takes 0.58 ms" in sentence
    assert "the model takes 2 ms of the cores for an image" in sentence
    assert "cannot feed more than 730" in sentence


def test_the_sentence_names_the_model_where_it_is_the_limit() -> None:
    sentence = bound(ceiling(model=500.0), THREADS).sentence
    assert sentence.startswith("the model is the limit")
    assert "500 images/s" in sentence


def test_every_limit_has_a_sentence() -> None:
    for model, work, disk, config in itertools.product(
        (100.0, 1e6), (0.0, 1e-3), (None, 1e6), (THREADS, PipelineConfig(loader=Threads(workers=1)))
    ):
        found = bound(ceiling(model, work, read_bytes_per_second=disk, bytes_per_image=4e4), config)
        assert found.sentence.endswith(".")
        assert "any number" not in found.sentence


def test_work_that_costs_nothing_has_no_limit() -> None:
    assert bound(ceiling(op_costs=(OpCost(name="read", part="fixed", seconds_per_image=0.0),)), THREADS).sentence
