"""What the limits of a configuration are made of, and what is paid once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.measure import costs as cost_model
from autopipe.measure import description
from autopipe.measure.bottleneck import bottleneck
from autopipe.measure.costs import Bounds, Kind, bounds
from autopipe.measure.description import PageCache, cut_sizes
from autopipe.measure.facts import Ceiling, OpCost, ReadCosts
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.pipeline.loaders.threads import Threads
from autopipe.search.space import to_config
from autopipe.values import Estimate
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.values import Rescale
from autopipe.workload.sample import Batch
from autopipe.workload.workload import Workload
from tests.fakes.ceilings import OPS, SLOW_READS, THREADS, ceiling, config, reads
from tests.fakes.facts import facts
from tests.fakes.reports import Told
from tests.fakes.surface import Surface

RATE = Estimate(value=100.0, low=99.0, high=101.0)
CEILING = Ceiling(
    model_images_per_second=RATE,
    model_core_seconds_per_image=0.001,
    loader_images_per_second=RATE,
    op_costs=(OpCost(name="Decode", part="fixed", seconds_per_image=0.0005),),
    read_bytes_per_second=2e9,
    cores=2.0,
    bound_images_per_second=900.0,
    devices=2,
    finish="host",
)


def test_a_ceiling_survives_json_and_lends_what_it_knows_of_the_loader_to_another_setup() -> None:
    assert Ceiling.model_validate_json(CEILING.model_dump_json()) == CEILING
    assert CEILING.setup == ModelSetup(devices=2, channels="last", finish="host")
    known = CEILING.model_copy(update={"compact_bytes": 100, "finished_bytes": 400})
    other = Ceiling(model_images_per_second=RATE, model_core_seconds_per_image=0.002).with_loader_of(known)
    assert (other.setup, other.op_costs) == (ModelSetup(), CEILING.op_costs)
    assert (other.compact_bytes, other.finished_bytes) == (100, 400)


def test_reads_have_a_latency_and_those_that_stop_gaining_a_bandwidth() -> None:
    gaining, narrow = reads(50, 200, 790, 3000), reads(50, 190, 200)
    assert (gaining.waits, gaining.saturated, gaining.at_once, gaining.images_per_second(20)) == (True, False, 64, 1000)
    assert (narrow.saturated, narrow.at_once) == (True, 4)
    assert (narrow.images_per_second(2), narrow.images_per_second(64)) == (100.0, 200.0)
    assert not reads(50, 190, 200, cpu=0.005).saturated  # for want of processors
    assert not reads(20_000, cpu=0.00004).waits  # from memory
    few = reads(50, 200, 790)  # more at a time than were measured promise nothing
    assert few.most_at_once == 16
    assert few.images_per_second(128) == few.images_per_second(16) == 800.0
    assert few.bound_images_per_second(128) == 6400.0


COSTS = ceiling(
    op_costs=OPS,
    compact_bytes=150_528,
    finished_bytes=602_112,
    cores=2,
)
READ = OpCost(name="read", part="fixed", seconds_per_image=0.0001, wait_seconds_per_image=0.02)
WAITING = COSTS.model_copy(update={"op_costs": (READ, *OPS[1:]), "reads": SLOW_READS})


def test_costs_are_gathered_from_the_ceiling() -> None:
    surface = Surface(cores=3)
    costs = cost_model.known([surface.ceiling(ModelSetup())], surface.facts())
    seconds = [op.seconds_per_image for op in costs.op_costs]
    assert seconds == [surface.read_seconds, surface.decode_seconds, surface.augment_seconds, surface.cast_seconds]
    assert costs.cores == 3
    assert costs.compact_bytes == surface.compact_bytes


def test_a_samples_bytes_are_those_of_the_facts_or_else_of_the_ceiling() -> None:
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
    assert does.core_seconds == pytest.approx(0.00063)
    assert does.read_wait_seconds == 0.0
    fill = cost_model.one_time_seconds(config(keep="encoded"), WAITING, 1000)[1]
    assert fill == pytest.approx(1000 * 0.0201 / 2, rel=0.01)
    described = facts(mean_bytes=1000.0, samples=500, fixed_bytes=12).workload
    assert cost_model.cache_bytes(config(keep="encoded:50%"), described) == 250_000


def test_filling_a_cache_waits_for_every_sample() -> None:
    convert, fill = cost_model.one_time_seconds(config(workers=2, keep="memory"), WAITING, 1000)
    assert convert == 0
    assert fill == pytest.approx(1000 * 0.0207 / 2, rel=0.01)


def test_threads_that_take_turns_in_python_ops_end_the_sooner_the_more_they_are() -> None:
    def limits(native: bool) -> list[float | None]:
        ops = tuple(op.model_copy(update={"native": native}) for op in OPS)
        known = ceiling(op_costs=ops, cores=16.0)
        return [rate_of(bounds(known, config(workers=workers)), Kind.PYTHON_LOCK) for workers in (1, 2, 16, 64)]

    assert limits(native=True) == [None] * 4
    none, two, sixteen, more = limits(native=False)
    assert none is None  # no lock was seen to be held, and there is no other thread
    assert two == pytest.approx(1 / (4 * cost_model.TURN_SECONDS))
    assert sixteen == more == pytest.approx(1 / (15 * 4 * cost_model.TURN_SECONDS))  # no more than there are cores


def test_as_many_reads_at_a_time_as_the_model_or_the_cores_can_use() -> None:
    ops, narrow = WAITING.op_costs, reads(50, 190, 200, latency=0.0201)
    assert cost_model.reads_at_once(ops, SLOW_READS, 2, 1000.0) == 26  # 1,000 images/s x 20.1 ms, and a quarter more
    assert cost_model.reads_at_once(ops, SLOW_READS, 2) == 69  # two cores make 2,740 images/s
    assert cost_model.reads_at_once(ops, narrow, 2) == 6
    assert cost_model.reads_at_once(OPS, None, 2) == 1


def test_workers_are_of_use_beyond_the_cores_only_where_they_wait() -> None:
    assert cost_model.workers_at_once(OPS, 2) == 2
    assert cost_model.workers_at_once(WAITING.op_costs, 2) == 51
    assert cost_model.workers_at_once(WAITING.op_costs, 2, reading=False) == 2


def rate_of(limit: Bounds, kind: Kind) -> float | None:
    """Return the lowest limit of a kind, if there is one."""
    return next((each.images_per_second for each in limit.limits if each.kind is kind), None)


def test_the_cores_are_shared_by_the_loader_and_the_model() -> None:
    limit = bounds(ceiling(model_core_seconds=0.26e-3), THREADS)
    assert limit.work.core_seconds == pytest.approx(0.74e-3)
    assert limit.images_per_second == rate_of(limit, Kind.OP) == pytest.approx(2 / 1e-3)
    assert bounds(ceiling(model=100.0, model_core_seconds=0.001), THREADS).images_per_second == 100.0


@pytest.mark.parametrize(
    ("config", "milliseconds"),
    [
        (THREADS, 0.74),
        (THREADS.model_copy(update={"finish": "host"}), 0.79),
        (THREADS.model_copy(update={"keep": "memory"}), 0.12),
        (THREADS.model_copy(update={"keep": "array"}), 0.12),
        (THREADS.model_copy(update={"keep": "memory", "finish": "host"}), 0.17),
        (THREADS.model_copy(update={"keep": "tfrecord"}), 0.74),
        (THREADS.model_copy(update={"keep": "memory:50%"}), 0.43),
        (THREADS.model_copy(update={"keep": "array:1"}), 0.12),
        (THREADS.model_copy(update={"keep": "array:0"}), 0.74),
    ],
)
def test_a_loader_pays_for_what_it_does_for_every_image(config: PipelineConfig, milliseconds: float) -> None:
    assert bounds(ceiling(), config).work.core_seconds == pytest.approx(milliseconds / 1e3)


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
    [
        (Threads(workers=1), 1),
        (Processes(workers=1), 1),
        (Threads(workers=2), 2),
        (Threads(workers=16), 2),
        (TfData(), 2),
    ],
)
def test_workers_use_a_core_each_as_far_as_there_are_cores(loader: Any, cores: int) -> None:
    limit = bounds(ceiling(), PipelineConfig(loader=loader))
    assert any(each.workers for each in limit.limits) is (cores == 1)
    assert limit.images_per_second == pytest.approx(cores / 0.74e-3)


def test_files_from_a_slow_disk_are_a_limit_until_they_are_cached() -> None:
    cold = ceiling(read_bytes_per_second=20e6, bytes_per_image=40_000.0)
    limit = bounds(cold, THREADS)
    assert limit.images_per_second == rate_of(limit, Kind.STORAGE_BANDWIDTH) == 500.0
    assert bottleneck(limit).kind is Kind.STORAGE_BANDWIDTH
    half = PipelineConfig(loader=Threads(workers=2), keep="memory:50%")
    assert rate_of(bounds(cold, half), Kind.STORAGE_BANDWIDTH) == 1000.0
    assert rate_of(bounds(cold, THREADS.model_copy(update={"keep": "memory"})), Kind.STORAGE_BANDWIDTH) is None


def test_samples_on_the_device_cost_nothing_but_their_making_once() -> None:
    there, cached = to_config({"loader": "resident", "resident.workers": 2}), config(keep="memory")
    assert cost_model.one_time_seconds(there, COSTS, 10_000) == cost_model.one_time_seconds(cached, COSTS, 10_000)
    known = CEILING.model_copy(update={"op_costs": OPS, "devices": 1, "transfer_seconds_per_image": 0.1})
    assert {each.kind for each in bounds(known, there).limits if each.images_per_second < 2000} == {Kind.MODEL}


def test_each_form_and_cut_has_its_size(photos: Path) -> None:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()]
    made = ap.Workload(data=ap.Table(photos / "labels.csv"), ops=ops, batch_size=4)
    sizes = cut_sizes(made, make_plan(made))
    assert {name: list(cuts) for name, cuts in sizes.items()} == {"array": [1, 2], "tfrecord": [0]}
    assert sizes["array"][2] == 23 * (8 * 8 * 3 + 8)
    assert sizes["array"][1] > 23 * 40 * 60 * 3
    assert sizes["tfrecord"][0] > sum(path.stat().st_size for path in photos.glob("*.[jp][pn]g"))


# ---------------------------------------------------------------- ceilings


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
        found, core_seconds = description.timed(self.batches(), workers, self.size, 0.6, clock=self.clock)
        assert core_seconds == pytest.approx(2 / found.value)
        return found.value


def size(op_seconds: float, workers: int, found: ReadCosts | None = None, read_ahead: int = 0) -> int:
    waits = 0.0 if found is None else found.wait_seconds
    ops = (
        OpCost(name="read", part="fixed", seconds_per_image=0.0005, wait_seconds_per_image=waits),
        OpCost(name="Decode", part="fixed", seconds_per_image=op_seconds),
    )
    return description.batch_size(256, Threads(workers=workers, read_ahead=read_ahead), ops, found)


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

    usual, cached = description.run, list[tuple[int, int]]()
    monkeypatch.setattr(description, "run", run)
    monkeypatch.setattr(description, "timed", timed)
    workload = Workload(data=Slow(), ops=[RandomFlip()], batch_size=100, drop_remainder=True)
    description.loader_ceiling(workload, make_plan(workload), PageCache(workload.data, "warm"), Told())
    assert cached == [(200, 200)]


def test_the_loader_alone_makes_smaller_batches_where_the_wanted_ones_would_take_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches_of: list[int] = []

    def timed(batches: Iterator[Batch], workers: int, size: int, *rest: Any) -> tuple[Estimate, float]:
        batches_of.extend({len(next(batches)[0]), size})
        return Estimate(value=1e3, low=1e3, high=1e3), 0.001

    monkeypatch.setattr(description, "_ROUND_SECONDS", 1e-9)
    monkeypatch.setattr(description, "timed", timed)
    images = np.zeros((100, 8, 8, 3), np.uint8)
    workload = Workload(data=Arrays(images, np.arange(100)), ops=[Rescale(1 / 255)], batch_size=50, drop_remainder=True)
    plan = make_plan(workload)
    description.loader_ceiling(workload, plan, PageCache(workload.data, "warm"), Told())
    assert batches_of == [1, 1]  # without and with a cache
