"""What the limits of a configuration are made of, which one holds it back and how that is told, and what is paid once.

Of sentences the figures are tested, no wording.
"""

from collections.abc import Callable
from typing import Any

import pytest

from autopipe.measure import costs as cost_model
from autopipe.measure.bottleneck import Bottleneck, bottleneck, python_text
from autopipe.measure.costs import Bounds, CostProfile, Kind, bounds, conversion_seconds, epochs_to_pay, saved_seconds
from autopipe.measure.facts import Ceiling, OpCost, ReadCosts
from autopipe.measure.outcome import ConversionCost, Resources
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.workers import Processes, Threads
from autopipe.search.space import to_config
from autopipe.values import Estimate
from tests.fakes.ceilings import COSTS as PLAIN
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


def test_conversion_and_cache_are_charged_once() -> None:
    costs = COSTS.model_copy(update={"depths": {"tfrecord": 0}})
    for keep, convert, fill in (
        ("array+memory", 3.5, 10_000 * 150_528 / 4e9 / 2),  # it is filled from the array
        ("memory", 0.0, 3.5),
        ("memory:50%", 0.0, 1.75),
        ("array:1", 2.5, 0.0),
        ("tfrecord", 0.5, 0.0),  # encoded samples are copied and not decoded
    ):
        assert cost_model.one_time_seconds(config(keep=keep), costs, 10_000) == pytest.approx((convert, fill))


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


def test_workers_use_a_core_each_as_far_as_there_are_cores() -> None:
    threads = [(Threads(workers=count), min(count, 2)) for count in (1, 2, 16)]
    for loader, cores in (*threads, (Processes(workers=1), 1), (TfData(), 2)):
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


# ---------------------------------------------------------------- which limit it is, in words


def op(name: str, seconds: float, wait: float = 0.0, part: str = "fixed", lock: float = 0.0) -> OpCost:
    costs = {"seconds_per_image": seconds, "wait_seconds_per_image": wait, "lock_seconds_per_image": lock}
    return OpCost.model_validate({"name": name, "part": part, **costs})


def is_told(sentence: str, figures: list[str]) -> bool:
    """Tell whether a sentence has all figures but for those behind a "-"."""
    return all((figure.removeprefix("-") in sentence) is not figure.startswith("-") for figure in figures)


def kind_of(found: Bottleneck) -> Kind | None:
    return None if found.limit is None else found.limit.kind


def at_its_limit(found: Bounds) -> Bottleneck:
    return bottleneck(found, found.images_per_second)


def waits(found: ReadCosts, wait: float = 0.02) -> dict[str, Any]:
    return {"op_costs": (op("read", 0.04e-3, wait), *PLAIN[1:]), "reads": found}


def threads(workers: int, read_ahead: int = 0) -> PipelineConfig:
    return PipelineConfig(loader=Threads(workers=workers, read_ahead=read_ahead))


SLOW_DISK = reads(50.0, 200.0, 800.0, 3200.0, cpu=0.00004)
FAST = reads(50.0, 200.0, 800.0, 3200.0, 9e3, cpu=0.00004)
NETWORK = reads(50.0, 190.0, 200.0, cpu=0.00004)
UNKNOWN: dict[str, Any] = {"op_costs": (), "cores": None}
HALF = (op("read", 0.1e-3, 0.8e-3), op("Decode", 0.9e-3))  # workers wait for a part of their time
LOCKED = (*PLAIN, op("Map", 5e-3, part="fresh", lock=5e-3))
NATIVE = tuple(each.model_copy(update={"native": True}) for each in PLAIN)
DISK = {"read_bytes_per_second": 40e6, "bytes_per_image": 40_000.0}  # read by fewer than the workers
PART = THREADS.model_copy(update={"keep": "memory:50%"})


@pytest.mark.parametrize(
    ("known", "config", "rate", "kind", "name", "figures"),
    [
        # The model, and what is known of it alone.
        (UNKNOWN, THREADS, 1000.0, None, None, []),
        (UNKNOWN, THREADS, 8000.0, Kind.MODEL, None, []),
        ({"model": 500.0}, THREADS, None, Kind.MODEL, None, ["500", "2,700"]),
        ({"model": 500.0}, THREADS, 460.0, Kind.MODEL, None, []),
        ({"model": 500.0}, THREADS, 440.0, None, None, []),  # below nine tenths
        ({"op_costs": (op("read", 0.0),)}, THREADS, None, Kind.MODEL, None, ["8,400"]),  # work that costs nothing
        ({"op_costs": (op("Cast", 0.0),), "cores": None}, THREADS, 1000.0, None, None, ["making batches"]),
        # The cores, by the dearest op, and how many more would feed the model.
        ({}, THREADS, None, Kind.OP, "Decode", ["0.58 ms", "0.74 ms", "2 cores", "2,700", "5 more cores", "8,400"]),
        ({"model": 900.0, "model_core_seconds": 2.0e-3}, THREADS, None, Kind.OP, "Decode", ["0.58 ms", "2 ms", "730"]),
        # Nothing alone is too slow: what is missing is lost on busy cores, or, if they are idle, between the two.
        ({"model": 2000.0}, THREADS, 1700.0, Kind.OP, "Decode", ["2 cores", "0.74 ms", "1,700", "2,000"]),
        ({"model": 1200.0}, THREADS, 1000.0, Kind.HAND_OVER, None, ["Decode", "1,000", "2,700", "1,200"]),
        # Together they take less than each was seen to take alone.
        ({}, THREADS, 3200.0, Kind.OP, "Decode", ["2 cores", "0.74 ms", "3,200", "8,400"]),
        ({"model": 1000.0, **waits(NETWORK)}, threads(64), 600.0, None, None, ["Decode", "2,700"]),
        # A limit far above the rate does not explain it: with one batch an epoch nearly all time goes into pauses.
        ({}, THREADS, 1000.0, Kind.OP, "Decode", []),
        ({}, THREADS, 200.0, None, None, ["Decode", "2,700 images/s"]),
        # Workers that wait.
        ({"model": 1000.0, "op_costs": (*PLAIN, op("Map", 0.1e-3, 0.03, "fresh"))}, THREADS, None, Kind.OP, "Map",
         ["30 ms"]),
        ({"model": 1900.0, "op_costs": HALF}, threads(2), None, Kind.OP, "read", ["1,110", "4 would feed"]),
        ({"model": 3900.0, "op_costs": HALF}, threads(2), None, Kind.OP, "read", ["8 on 4 cores"]),
        ({"model": 5000.0, "op_costs": LOCKED}, threads(4), 180.0, Kind.PYTHON_LOCK, "Map", ["5,000 us"]),
        ({"model": 5000.0, "op_costs": LOCKED}, PipelineConfig(loader=Processes(workers=2)), None, Kind.OP, "Map", []),
        # Threads take turns in ops of Python, which many cores make a limit; not in native ones, nor in processes.
        ({"model": 9e4, "cores": 64.0}, threads(64), None, Kind.PYTHON_LOCK, "read",
         ["the read, Decode and RandomFlip are Python", "227 us", "4,410", "-native"]),
        ({"model": 2e5, "cores": 64.0, "op_costs": NATIVE}, threads(64), None, Kind.OP, "Decode", []),
        ({"model": 2e5, "cores": 64.0}, PipelineConfig(loader=Processes(workers=64)), None, Kind.OP, "Decode", []),
        # Reads that wait, and how many at a time would feed the model: no more than were seen to bring something.
        ({"model": 1000.0, **waits(SLOW_DISK)}, THREADS, 95.0, Kind.STORAGE_LATENCY, None,
         ["20 ms", "2 at a time", "96.4", "20 reads", "1,000"]),
        ({"model": 1000.0, **waits(NETWORK)}, THREADS, 95.0, Kind.STORAGE_LATENCY, None, ["no more than 200;"]),
        ({"model": 1000.0, **waits(reads(5.0, 20.0, 79.0, cpu=0.00004))}, THREADS, 9.0, Kind.STORAGE_LATENCY, None,
         ["more than 16 were not measured", "-would feed"]),
        ({"model": 1000.0, **waits(reads(120.0, 90.0, cpu=0.00004))}, threads(1), 100.0, Kind.STORAGE_BANDWIDTH, None,
         ["-at a time"]),
        # Read slower than what trains from it; once "32 bring 309 images/s; more of them bring no more than 62".
        ({"model": 1000.0, **waits(reads(10.0, 40.0, 62.0, 62.0, cpu=0.00004), 0.1)}, threads(32), 300.0,
         Kind.STORAGE_LATENCY, None, ["32 at a time", "-no more than"]),
        ({"model": 1000.0, "bytes_per_image": 38_000.0, **waits(NETWORK)}, threads(64), 190.0, Kind.STORAGE_BANDWIDTH,
         None, ["7.6 MB/s", "200 images/s", "38 MB/s"]),
        # Reads that others do ahead are not what keeps the cores busy.
        (waits(FAST), threads(2, 256), 2500.0, Kind.OP, "Decode", ["0.58 ms", "0.74 ms", "2,700 images/s"]),
        (waits(SLOW_DISK), threads(1, 64), None, Kind.OP, "Decode", []),
        ({"model": 2000.0, **waits(FAST)}, threads(2, 64), 1700.0, Kind.OP, "Decode", ["0.74 ms", "Decode"]),
        ({"model": 9000.0}, PART, None, Kind.MEMORY, "Decode", ["50%"]),
        ({"transfer_seconds_per_image": 1e-5}, THREADS, None, Kind.OP, "Decode", []),  # faster than the rest
        # The transfer is blamed only for what it explains.
        *(({"model": 1000.0, "transfer_seconds_per_image": 1 / sent, **UNKNOWN}, THREADS, rate, kind, None, [])
          for sent, rate, kind in ((1800.0, 700.0, None), (2e4, 300.0, None), (800.0, 300.0, None),
                                   (800.0, 780.0, Kind.TRANSFER))),
        ({"model": 4000.0, "transfer_seconds_per_image": 1 / 1500}, THREADS, 2500.0, Kind.OP, "Decode", []),
        # A limit that was left behind is not the one if another may be: the disk gives 1,000 images/s.
        (DISK, THREADS, 1050.0, Kind.STORAGE_BANDWIDTH, None, []),
        (DISK, THREADS, 2500.0, Kind.OP, "Decode", []),
        (DISK, THREADS, 4000.0, None, None, []),
    ],
)  # fmt: skip
def test_the_limit_that_holds_a_configuration_back_is_found_and_told_with_its_figures(
    known: dict[str, Any], config: PipelineConfig, rate: float | None, kind: Kind | None, name: str | None,
    figures: list[str],
) -> None:  # fmt: skip
    limits = bounds(ceiling(**known), config)
    found = bottleneck(limits, limits.images_per_second if rate is None else rate)
    assert (kind_of(found), found.limit and found.limit.op) == (kind, name)
    assert is_told(found.sentence, figures), found.sentence


def test_workers_elsewhere_are_held_back_by_the_cores_there(elsewhere: Callable[[int], PipelineConfig]) -> None:
    cases: list[tuple[int, dict[str, Any], Kind, list[str]]] = [
        (2, {}, Kind.OP, ["this many workers", "7 would feed the model"]),
        (32, {}, Kind.MODEL, []),
        (16, {"cores_elsewhere": 2.0}, Kind.OP, ["2 cores elsewhere cannot feed more than 2,700 images/s; 7"]),
        (16, {"cores_elsewhere": 64.0}, Kind.MODEL, []),
        (32, {"model_core_seconds": 1e-3}, Kind.HAND_OVER, []),  # cores that only receive batches
    ]
    for workers, known, kind, said in cases:
        found = at_its_limit(bounds(ceiling(**known), elsewhere(workers)))
        assert (kind_of(found), is_told(found.sentence, said)) == (kind, True)
        assert kind is not Kind.OP or (found.limit and found.limit.op) == "Decode"
    for size, text in (
        (150_000, "5 more cores elsewhere would feed the model, 855 MB/s through the network;"),
        (600_000, "5 more cores would feed the model;"),  # 3,420 MB/s
    ):
        assert text in at_its_limit(bounds(ceiling(), THREADS, facts(compact_bytes=size))).sentence


def test_what_the_loader_could_feed_is_without_the_models_work_on_the_same_cores() -> None:
    limits = bounds(ceiling(model=900.0, model_core_seconds=2.0e-3), THREADS)
    for alone, said in ((None, "900 images/s; the loader alone delivers 2,700"), (1800.0, "alone delivers 1,800")):
        assert said in bottleneck(limits, limits.images_per_second, model_share=0.95, loader_alone=alone).sentence


def test_the_share_that_was_read_side_by_side_decides() -> None:
    made = bounds(ceiling(model=500.0, read_bytes_per_second=1.0, bytes_per_image=1 / 400), THREADS)
    assert kind_of(bottleneck(made, 490.0, model_share=0.8)) is Kind.STORAGE_BANDWIDTH
    assert kind_of(bottleneck(made, 490.0)) is Kind.MODEL


def test_what_makes_batches_waits_if_the_cores_are_idle() -> None:
    for percent, others, said in (
        (20.0, 10.0, "it waits, with 0.2 of 2 cores in use"),
        (20.0, 170.0, "is the limit, with 0.2 of 2 cores in use, and 1.7 by other programs"),
        (190.0, None, "beside the model, with 1.9 of 2 cores in use"),
        (None, None, "-in use"),
    ):
        used = Resources(cpu_percent=percent, others_cpu_percent=others)
        assert is_told(bottleneck(bounds(ceiling(op_costs=()), THREADS), 1000.0, used=used).sentence, [said])


def test_what_no_limit_explains_may_be_what_other_programs_took() -> None:
    for others, said in ((170.0, "the 1.7 cores that other programs took"), (10.0, "pauses"), (None, "pauses")):
        found = bottleneck(bounds(ceiling(), THREADS), 200.0, used=Resources(others_cpu_percent=others))
        assert kind_of(found) is None
        assert said in found.sentence
        slow = bottleneck(bounds(ceiling(), THREADS), 200.0, None, 210.0, Resources(others_cpu_percent=others))
        assert kind_of(slow) is Kind.OP
        assert (said if others == 170.0 else "its workers hold each other up") in slow.sentence


def test_sending_batches_to_the_device_is_a_limit_that_the_device_finish_may_lift() -> None:
    known, slow = {"compact_bytes": 100, "finished_bytes": 400}, {"transfer_seconds_per_image": 2e-3}
    host = THREADS.model_copy(update={"finish": "host"})
    found = at_its_limit(bounds(ceiling(**slow), host, facts(**known)))
    assert (kind_of(found), found.limit and found.limit.images_per_second) == (Kind.TRANSFER, 500.0)
    assert "finish=device sends 4 times less" in found.sentence
    assert "finish=device" not in at_its_limit(bounds(ceiling(**slow), THREADS, facts(**known))).sentence
    assert at_its_limit(bounds(ceiling(**slow, **known), host)) == found  # as a report has it, of the ceiling only


AUGMENT = op("Map(augment)", 300e-6, part="fresh", lock=210e-6)


def test_python_ops_are_told_with_what_one_process_allows_so_that_the_figures_can_be_computed_again() -> None:
    cases: list[tuple[tuple[OpCost, ...], int, str | None, list[str]]] = [
        ((*NATIVE, AUGMENT), 1, None, ["Map(augment) is Python", "210 us", "4,760 images/s"]),
        ((*NATIVE, AUGMENT), 16, None, ["210 us", "16 threads", "18 us", "4,390 images/s"]),
        ((op("Map", 300e-6),), 1, None, ["Map", "-images/s"]),  # where no lock was seen
        (PLAIN, 2, "it is not there", ["it is not there"]),
        (NATIVE, 16, None, []),
        ((), 16, "it is not there", []),
    ]
    for costs, workers, reason, figures in cases:
        said = python_text(costs, threads=workers, reason=reason)
        assert (said is None, is_told(str(said), figures)) == (figures == [], True)
