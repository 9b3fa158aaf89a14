"""What the limits of a configuration are made of, and what is paid once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autopipe.measure import costs as cost_model
from autopipe.measure.costs import Bounds, CostProfile, Kind, bounds, conversion_seconds, epochs_to_pay, saved_seconds
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.measure.outcome import ConversionCost
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.search.space import to_config
from autopipe.values import Estimate
from tests.fakes.ceilings import OPS, SLOW_READS, THREADS, ceiling, config, reads
from tests.fakes.facts import facts
from tests.fakes.surface import Surface

RATE = Estimate(value=100.0, low=99.0, high=101.0)
MODEL: dict[str, Any] = {"model_images_per_second": RATE, "model_core_seconds_per_image": 0.001}
LOADER: dict[str, Any] = {"loader_images_per_second": RATE, "read_bytes_per_second": 2e9, "op_costs": OPS, "cores": 2.0}
CEILING = Ceiling(bound_images_per_second=900.0, devices=2, finish="host", **MODEL, **LOADER)


def test_a_ceiling_survives_json_and_lends_what_it_knows_of_the_loader_to_another_setup() -> None:
    assert Ceiling.model_validate_json(CEILING.model_dump_json()) == CEILING
    assert CEILING.setup == ModelSetup(devices=2, channels="last", finish="host")
    known = CEILING.model_copy(update={"compact_bytes": 100, "finished_bytes": 400})
    other = Ceiling(**MODEL).with_loader_of(known)
    assert (other.setup, other.op_costs, other.compact_bytes, other.finished_bytes) == (ModelSetup(), OPS, 100, 400)


def test_reads_have_a_latency_and_those_that_stop_gaining_a_bandwidth() -> None:
    gaining, narrow = reads(50, 200, 790, 3000), reads(50, 190, 200)
    assert (gaining.waits, gaining.saturated, gaining.at_once, gaining.images_per_second(20)) == (True, False, 64, 1000)
    assert (narrow.saturated, narrow.at_once) == (True, 4)
    assert (narrow.images_per_second(2), narrow.images_per_second(64)) == (100.0, 200.0)
    assert not reads(50, 190, 200, cpu=0.005).saturated  # for want of processors
    assert not reads(20_000, cpu=0.00004).waits  # from memory
    few = reads(50, 200, 790)  # more at a time than were measured promise nothing
    assert (few.most_at_once, few.bound_images_per_second(128)) == (16, 6400.0)
    assert few.images_per_second(128) == few.images_per_second(16) == 800.0


COSTS = ceiling(op_costs=OPS, compact_bytes=150_528, finished_bytes=602_112, cores=2)
READ = OpCost(name="read", part="fixed", seconds_per_image=0.0001, wait_seconds_per_image=0.02)
WAITING = COSTS.model_copy(update={"op_costs": (READ, *OPS[1:]), "reads": SLOW_READS})


def test_costs_are_gathered_from_the_ceiling() -> None:
    surface = Surface(cores=3)
    costs = cost_model.known([surface.ceiling(ModelSetup())], surface.facts())
    seconds = [op.seconds_per_image for op in costs.op_costs]
    assert seconds == [surface.read_seconds, surface.decode_seconds, surface.augment_seconds, surface.cast_seconds]
    assert (costs.cores, costs.compact_bytes) == (3, surface.compact_bytes)
    # A sample's bytes are those of the facts, or else of the ceiling.
    known = ceiling(compact_bytes=100, finished_bytes=400)
    told = facts(compact_bytes=7, finished_bytes=28)
    found = [cost_model.known([known], told), cost_model.known([known]), cost_model.known([ceiling()])]
    assert [(each.compact_bytes, each.finished_bytes) for each in found] == [(7, 28), (100, 400), (None, None)]


@pytest.mark.parametrize(
    ("chosen", "convert", "fill"),
    [
        (config(keep="array+memory"), 3.5, 10_000 * 150_528 / 4e9 / 2),  # it is filled from the array
        (config(keep="memory"), 0.0, 3.5),
        (config(keep="memory:50%"), 0.0, 1.75),
        (config(keep="array:1"), 2.5, 0.0),
        (config(keep="tfrecord"), 0.5, 0.0),  # encoded samples are copied and not decoded
    ],
)
def test_conversion_and_cache_are_charged_once(chosen: PipelineConfig, convert: float, fill: float) -> None:
    costs = COSTS.model_copy(update={"depths": {"tfrecord": 0}})
    assert cost_model.one_time_seconds(chosen, costs, 10_000) == pytest.approx((convert, fill))


# ---------------------------------------------------------------- waiting and the lock


def test_encoded_samples_in_memory_end_the_waiting_and_are_decoded_still() -> None:
    does = cost_model.work(config(keep="encoded"), WAITING)
    assert (does.core_seconds, does.read_wait_seconds) == pytest.approx((0.00063, 0.0))
    described = facts(mean_bytes=1000.0, samples=500, fixed_bytes=12).workload
    assert cost_model.cache_bytes(config(keep="encoded:50%"), described) == 250_000
    for keep, seconds in (("encoded", 0.0201), ("memory", 0.0207)):  # to fill it waits for every sample
        once = cost_model.one_time_seconds(config(workers=2, keep=keep), WAITING, 1000)
        assert once == pytest.approx((0.0, 1000 * seconds / 2), rel=0.01)


def test_threads_that_take_turns_in_python_ops_end_the_sooner_the_more_they_are() -> None:
    def limits(native: bool) -> list[float | None]:
        known = ceiling(op_costs=tuple(op.model_copy(update={"native": native}) for op in OPS), cores=16.0)
        return [rate_of(bounds(known, config(workers=workers)), Kind.PYTHON_LOCK) for workers in (1, 2, 16, 64)]

    assert limits(native=True) == [None] * 4
    none, *others = limits(native=False)
    assert none is None  # no lock was seen to be held, and there is no other thread
    turn = 4 * cost_model.TURN_SECONDS
    assert others == pytest.approx([1 / turn, 1 / (15 * turn), 1 / (15 * turn)])  # no more than there are cores


def test_as_many_reads_and_workers_at_a_time_as_the_model_or_the_cores_can_use() -> None:
    ops, narrow = WAITING.op_costs, reads(50, 190, 200, latency=0.0201)
    assert cost_model.reads_at_once(ops, SLOW_READS, 2, 1000.0) == 26  # 1,000 images/s x 20.1 ms, and a quarter more
    assert cost_model.reads_at_once(ops, SLOW_READS, 2) == 69  # two cores make 2,740 images/s
    assert (cost_model.reads_at_once(ops, narrow, 2), cost_model.reads_at_once(OPS, None, 2)) == (6, 1)
    # Workers beyond the cores are of use only where they wait.
    assert (cost_model.workers_at_once(OPS, 2), cost_model.workers_at_once(ops, 2)) == (2, 51)
    assert cost_model.workers_at_once(ops, 2, reading=False) == 2


def rate_of(limit: Bounds, kind: Kind) -> float | None:
    return next((each.images_per_second for each in limit.limits if each.kind is kind), None)


def test_the_cores_are_shared_by_the_loader_and_the_model() -> None:
    limit = bounds(ceiling(model_core_seconds=0.26e-3), THREADS)
    assert limit.work.core_seconds == pytest.approx(0.74e-3)
    assert limit.images_per_second == rate_of(limit, Kind.OP) == pytest.approx(2 / 1e-3)
    assert bounds(ceiling(model=100.0, model_core_seconds=0.001), THREADS).images_per_second == 100.0


def test_a_loader_pays_for_what_it_does_for_every_image() -> None:
    keeps = {"memory": 0.12, "array": 0.12, "tfrecord": 0.74, "memory:50%": 0.43, "array:1": 0.12, "array:0": 0.74}
    cases: list[tuple[dict[str, str], float]] = [
        ({}, 0.74), ({"finish": "host"}, 0.79), ({"keep": "memory", "finish": "host"}, 0.17),
        *(({"keep": keep}, cost) for keep, cost in keeps.items()),
    ]  # fmt: skip
    for changes, milliseconds in cases:
        work = bounds(ceiling(), THREADS.model_copy(update=changes)).work
        assert work.core_seconds == pytest.approx(milliseconds / 1e3)


def test_a_report_that_knows_the_ceiling_only_finds_the_bound_that_the_search_found(
    elsewhere: Callable[[int], PipelineConfig],
) -> None:
    config = elsewhere(64)
    searched = bounds(ceiling(model=1e6), config, facts(compact_bytes=400_000, finished_bytes=1_600_000))
    assert rate_of(searched, Kind.HAND_OVER) == pytest.approx(10_000)  # two cores copy each byte twice, at 4 GB/s
    kept = bounds(ceiling(model=1e6, compact_bytes=400_000, finished_bytes=1_600_000), config)
    assert kept.limits == searched.limits
    decoded = THREADS.model_copy(update={"keep": "tfrecord"})
    searched = bounds(ceiling(), decoded, facts(cuts={"tfrecord": {0: 1, 1: 1}}))
    assert searched.work.core_seconds == pytest.approx(0.12e-3)  # what comes after Decode
    assert bounds(ceiling(depths={"tfrecord": 1}), decoded).limits == searched.limits


@pytest.mark.parametrize(
    ("loader", "cores"),
    [*((Threads(workers=count), min(count, 2)) for count in (1, 2, 16)), (Processes(workers=1), 1), (TfData(), 2)],
)
def test_workers_use_a_core_each_as_far_as_there_are_cores(loader: Any, cores: int) -> None:
    limit = bounds(ceiling(), PipelineConfig(loader=loader))
    assert any(each.workers for each in limit.limits) is (cores == 1)
    assert limit.images_per_second == pytest.approx(cores / 0.74e-3)


def test_files_from_a_slow_disk_are_a_limit_until_they_are_cached() -> None:
    cold = ceiling(read_bytes_per_second=20e6, bytes_per_image=40_000.0)
    limit = bounds(cold, THREADS)
    assert limit.images_per_second == rate_of(limit, Kind.STORAGE_BANDWIDTH) == 500.0
    for keep, rate in (("memory:50%", 1000.0), ("memory", None)):
        assert rate_of(bounds(cold, THREADS.model_copy(update={"keep": keep})), Kind.STORAGE_BANDWIDTH) == rate


def test_samples_on_the_device_cost_nothing_but_their_making_once() -> None:
    there, cached = to_config({"loader": "resident", "resident.workers": 2}), config(keep="memory")
    assert cost_model.one_time_seconds(there, COSTS, 10_000) == cost_model.one_time_seconds(cached, COSTS, 10_000)
    known = CEILING.model_copy(update={"op_costs": OPS, "devices": 1, "transfer_seconds_per_image": 0.1})
    assert {each.kind for each in bounds(known, there).limits if each.images_per_second < 2000} == {Kind.MODEL}


# ---------------------------------------------------------------- conversions that cost and pay


def estimated(*seconds: float, workers: int = 2, all_samples: int, **known: Any) -> Estimate:
    """Return what all samples take, after shards of ten that took so long."""
    shards = {"shard_samples": (10,) * len(seconds), "shard_seconds": seconds, **known}
    wall = {"seconds": sum(seconds) / min(workers, len(seconds)), **shards}
    cost = ConversionCost(cut=2, samples=sum(wall["shard_samples"]), bytes=1000, workers=workers, **wall)
    return conversion_seconds(cost, samples=all_samples)


def test_shards_that_differ_widen_the_interval() -> None:
    estimate = estimated(0.8, 1.2, 1.0, 1.0, all_samples=400)
    # The shards' standard deviation is 0.1633 s; t(3) = 3.182; over the root of 4, of a mean of 1 s.
    half = 20.0 * 3.182 * 0.16330 / 2
    assert (estimate.low, estimate.value, estimate.high) == pytest.approx((20.0 - half, 20.0, 20.0 + half), rel=1e-3)
    equal = estimated(1.0, 1.0, 1.0, 1.0, all_samples=400)
    assert (equal.low, equal.value, equal.high) == pytest.approx((20.0, 20.0, 20.0))


def test_a_small_shard_counts_by_its_samples_and_what_is_paid_beside_the_shards_is_paid_once() -> None:
    assert estimated(1.0, 0.5, all_samples=150, shard_samples=(10, 5)).value == pytest.approx(150 * 0.1 / 2)
    once = estimated(1.0, 1.0, all_samples=200, seconds=1.3)
    assert (once.low, once.value) == pytest.approx((10.3, 10.3))
    assert estimated(1.0, workers=8, all_samples=100).value == pytest.approx(10.0)  # more workers than shards


def test_it_pays_only_by_its_rate_and_at_once_if_it_costs_no_more() -> None:
    rival = CostProfile(images_per_second=100.0, once_seconds=5.0)
    for rate, once, epochs in ((100.0, 6.0, None), (90.0, 6.0, None), (200.0, 5.0, 0.0), (200.0, 25.0, 4.0)):
        kept = CostProfile(images_per_second=rate, once_seconds=once)
        assert (epochs_to_pay(kept, rival, 1000), saved_seconds(kept, rival, 1000)) == (epochs, 10.0 - 1000 / rate)
        if epochs:
            assert kept.seconds(epochs, 1000) == pytest.approx(rival.seconds(epochs, 1000))
