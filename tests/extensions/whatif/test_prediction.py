"""Predictions for another machine. What was measured is made up, so that relations between predictions are known."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from autopipe.extensions.whatif.prediction import Machine, Measured, WhatIf, correction, what_if
from autopipe.measure.costs import Costs, predict
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.values import Estimate
from tests.fakes.ceilings import reads

OPS = (
    OpCost(name="read", part="fixed", seconds_per_image=0.0001),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.0009),
)
READS = reads(*(count / 0.0101 for count in (1, 4, 16, 64)))
WAITING = (OPS[0].model_copy(update={"wait_seconds_per_image": 0.01}), OPS[1])
CONFIG = PipelineConfig(loader=Threads(workers=2))
GIB = 2**30


def ceiling(model: float = 10_000.0, **other: Any) -> Ceiling:
    figures: dict[str, Any] = {
        "model_images_per_second": Estimate(value=model, low=model, high=model),
        "model_core_seconds_per_image": 0.0,
        "op_costs": OPS,
        "cores": 2.0,
    }
    return Ceiling(**{**figures, **other})


def measured(of: Ceiling, *, wrong_by: float = 1.0, config: PipelineConfig = CONFIG, more: Any = ()) -> Measured:
    rate = wrong_by * predict(config, Costs.of([of]))
    return Measured(ceiling=of, batch_size=32, winner=config, pairs=[(config, rate), *more])


def asked(study: Measured, **machine: Any) -> WhatIf:
    return what_if(study, Machine(**machine))


def rate(study: Measured, **machine: Any) -> float:
    return asked(study, **machine).images_per_second.value


def test_the_same_machine_does_what_was_measured() -> None:
    study = measured(ceiling(), wrong_by=0.8)
    assert rate(study) == pytest.approx(study.pairs[0][1], rel=0.02)
    found = asked(study)
    assert found.notes == ()
    assert WhatIf.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("cores", [1.0, 2.0, 4.0])
def test_where_cores_are_the_limit_images_go_with_them_and_workers_follow(cores: float) -> None:
    study = measured(ceiling())
    there = asked(study, cores=cores)
    assert there.images_per_second.value == pytest.approx(rate(study) * cores / 2, rel=0.02)
    assert there.config.loader.worker_count() == cores
    assert there.limit_kind == "op"


def test_where_the_model_is_the_lowest_limit_it_is_named_though_the_cores_are_near() -> None:
    there = asked(measured(ceiling(model=1950.0)))  # the cores allow 2,000
    assert there.images_per_second.value < 0.9 * 1950
    assert (there.limit, there.limit_kind) == (1950.0, "model")
    assert there.sentence.startswith("the model is the limit")


def test_a_model_on_the_cores_grows_with_them_and_a_step_that_is_given_is_that_of_each_device() -> None:
    on_cores = measured(ceiling(model=100.0, model_core_seconds_per_image=0.019))
    beside = measured(ceiling(model=100.0, model_core_seconds_per_image=0.001))
    machines: list[tuple[Measured, dict[str, Any]]] = [
        (on_cores, {"cores": 4}),
        (beside, {"cores": 4}),
        (on_cores, {"step_seconds": 0.1}),
        (on_cores, {"step_seconds": 0.1, "devices": 4, "batch_size": 64}),
    ]
    found = [asked(study, **machine).model_images_per_second for study, machine in machines]
    assert found == pytest.approx([200, 100, 320, 2560])


def test_more_reads_at_a_time_make_up_for_a_longer_latency() -> None:
    read_ahead = PipelineConfig(loader=Threads(workers=2, read_ahead=20))
    study = measured(ceiling(model=1000.0, op_costs=WAITING, reads=READS), config=read_ahead)
    longer = asked(study, read_latency_seconds=0.02)
    loader = longer.config.loader
    assert (loader.reads_at_once() or 0) > 20
    assert longer.images_per_second.value == pytest.approx(rate(study), rel=0.1)
    assert rate(study, read_latency_seconds=2.0) < 0.5 * rate(study)


@pytest.mark.parametrize("wrong_by", [0.5, 1.0, 3.0])
def test_nothing_is_predicted_beyond_the_limit(wrong_by: float) -> None:
    study = measured(ceiling(), wrong_by=wrong_by)
    for cores in (1, 2, 16, 1000):
        there = asked(study, cores=float(cores))
        assert there.images_per_second.value <= there.limit <= there.model_images_per_second
        assert there.limit <= max(1.0, wrong_by) * cores * 1000 * 1.01  # an image takes 1 ms of a core
        assert there.images_per_second.low <= there.images_per_second.value <= there.images_per_second.high


def test_the_range_is_as_wide_as_predictions_were_wrong() -> None:
    of = ceiling()
    configs = [PipelineConfig(loader=Threads(workers=2, queue_size=size)) for size in (4, 6, 10, 12)]
    right = [(each, predict(each, Costs.of([of]))) for each in configs]
    wrong = [(each, guess * (1.5 if number % 2 else 0.7)) for number, (each, guess) in enumerate(right)]
    assert correction(measured(of, more=right)).error == 0.05
    assert correction(measured(of, more=wrong)).error > 0.25
    assert correction(measured(of, wrong_by=0.8)).error == 0.15  # nothing to tell it by


def test_each_way_of_feeding_is_corrected_by_what_was_measured_of_it() -> None:
    cached = CONFIG.model_copy(update={"keep": "memory"})
    found = correction(measured(ceiling(), wrong_by=0.8, more=[(cached, 500.0)]))
    assert found.of(CONFIG) == pytest.approx(0.8)
    assert found.of(cached) == pytest.approx(500.0 / predict(cached, Costs.of([ceiling()])))
    assert found.of(CONFIG.model_copy(update={"finish": "host"})) == pytest.approx(0.8)


def test_what_to_buy_comes_with_the_largest_gain_first() -> None:
    loader_bound = asked(measured(ceiling()))
    assert loader_bound.buys[0].what == "memory for all samples"
    assert loader_bound.buys[1].what == "4 cores instead of 2"
    assert [buy.gain for buy in loader_bound.buys] == sorted((buy.gain for buy in loader_bound.buys), reverse=True)
    model_bound = asked(measured(ceiling(model=300.0)))
    assert model_bound.buys[0].what == "2 devices instead of 1"
    assert all(math.isclose(buy.gain, 0, abs_tol=20) for buy in model_bound.buys[1:])


def with_sizes(cache_bytes: int | None, memory_bytes: int, *more: Any) -> Measured:
    study = measured(ceiling(), more=more)
    return dataclasses.replace(study, cache_bytes=cache_bytes, memory_bytes=memory_bytes)


def cache_there(study: Measured, **machine: Any) -> str:
    return asked(study, **machine).config.keep


def test_all_samples_are_held_in_a_memory_that_has_room_for_their_sizes() -> None:
    study = with_sizes(10 * GIB, 4 * GIB)
    caches = [cache_there(study, memory_bytes=gib * GIB) for gib in (8, 12, 13)]
    assert caches == ["none", "none", "memory"]


def test_a_cache_that_was_measured_is_left_out_where_there_is_no_room_for_it() -> None:
    cached = CONFIG.model_copy(update={"keep": "memory"})
    study = with_sizes(10 * GIB, 64 * GIB, (cached, predict(cached, Costs.of([ceiling()]))))
    assert cache_there(study) == "memory"
    assert cache_there(study, memory_bytes=8 * GIB) == "none"
    half = CONFIG.model_copy(update={"keep": "memory:50%"})
    part = with_sizes(10 * GIB, 64 * GIB, (half, predict(half, Costs.of([ceiling()]))))
    assert cache_there(part, memory_bytes=8 * GIB) == "memory:50%"


def test_where_nothing_but_caches_was_measured_and_none_has_room_samples_are_made_each_time() -> None:
    cached = CONFIG.model_copy(update={"keep": "memory"})
    study = dataclasses.replace(measured(ceiling(), config=cached), cache_bytes=8 * GIB, memory_bytes=16 * GIB)
    assert asked(study, memory_bytes=1 * GIB).config.keep == "none"
    without = asked(study, memory_bytes=0)
    assert without.config.keep == "none"
    assert "memory for all samples" in {buy.what for buy in without.buys}


def test_memory_is_offered_by_its_size_and_a_cache_where_there_is_room() -> None:
    bought, held = (asked(with_sizes(10 * GIB, gib * GIB)).buys[0] for gib in (4, 64))
    assert (bought.what, bought.cache_bytes) == ("memory for all samples", 10 * GIB)
    assert (held.what, held.gain) == ("a cache of all samples, for which there is room", bought.gain)
    assert (held.cache_bytes, asked(with_sizes(10 * GIB, 64 * GIB)).buys[1].cache_bytes) == (10 * GIB, None)


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"cores": 4.0}, None),
        ({"cores": 5.0}, "cores by a factor of 2.5"),
        ({"cores": 0.5}, "cores by a factor of 4"),
        ({"batch_size": 256}, "the batch by a factor of 8"),
        ({"step_seconds": 1e-4}, "the model's rate by a factor of 32"),
        ({"read_latency_seconds": 0.1}, "Reads were not measured"),
        ({"memory_bytes": 2.0**36}, "What all samples take in memory is not known"),
    ],
)
def test_beyond_twice_what_was_measured_it_says_so(machine: dict[str, Any], said: str | None) -> None:
    notes = asked(measured(ceiling()), **machine).notes
    assert (said is None) == (notes == ())
    assert said is None or any(said in note for note in notes)
