"""Which limit holds a configuration back, and which figures its sentence has. Wording is not tested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autopipe.measure.bottleneck import Bottleneck, bottleneck, python_text
from autopipe.measure.costs import Bounds, Kind, bounds
from autopipe.measure.facts import OpCost, ReadCosts
from autopipe.measure.outcome import Resources
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Processes, Threads
from tests.fakes.ceilings import COSTS, THREADS, ceiling, reads
from tests.fakes.facts import facts


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


def waiting(found: ReadCosts, wait: float = 0.02) -> dict[str, Any]:
    return {"op_costs": (op("read", 0.04e-3, wait), *COSTS[1:]), "reads": found}


def threads(workers: int, read_ahead: int = 0) -> PipelineConfig:
    return PipelineConfig(loader=Threads(workers=workers, read_ahead=read_ahead))


SLOW = reads(50.0, 200.0, 800.0, 3200.0, cpu=0.00004)
FAST = reads(50.0, 200.0, 800.0, 3200.0, 9e3, cpu=0.00004)
NETWORK = reads(50.0, 190.0, 200.0, cpu=0.00004)
UNKNOWN: dict[str, Any] = {"op_costs": (), "cores": None}
HALF = (op("read", 0.1e-3, 0.8e-3), op("Decode", 0.9e-3))  # workers wait for a part of their time
LOCKED = (*COSTS, op("Map", 5e-3, part="fresh", lock=5e-3))
NATIVE = tuple(each.model_copy(update={"native": True}) for each in COSTS)
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
        ({"model": 1000.0, **waiting(NETWORK)}, threads(64), 600.0, None, None, ["Decode", "2,700"]),
        # A limit far above the rate does not explain it: with one batch an epoch nearly all time goes into pauses.
        ({}, THREADS, 1000.0, Kind.OP, "Decode", []),
        ({}, THREADS, 200.0, None, None, ["Decode", "2,700 images/s"]),
        # Workers that wait.
        ({"model": 1000.0, "op_costs": (*COSTS, op("Map", 0.1e-3, 0.03, "fresh"))}, THREADS, None, Kind.OP, "Map",
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
        ({"model": 1000.0, **waiting(SLOW)}, THREADS, 95.0, Kind.STORAGE_LATENCY, None,
         ["20 ms", "2 at a time", "96.4", "20 reads", "1,000"]),
        ({"model": 1000.0, **waiting(NETWORK)}, THREADS, 95.0, Kind.STORAGE_LATENCY, None, ["no more than 200;"]),
        ({"model": 1000.0, **waiting(reads(5.0, 20.0, 79.0, cpu=0.00004))}, THREADS, 9.0, Kind.STORAGE_LATENCY, None,
         ["more than 16 were not measured", "-would feed"]),
        ({"model": 1000.0, **waiting(reads(120.0, 90.0, cpu=0.00004))}, threads(1), 100.0, Kind.STORAGE_BANDWIDTH, None,
         ["-at a time"]),
        # Read slower than what trains from it; once "32 bring 309 images/s; more of them bring no more than 62".
        ({"model": 1000.0, **waiting(reads(10.0, 40.0, 62.0, 62.0, cpu=0.00004), 0.1)}, threads(32), 300.0,
         Kind.STORAGE_LATENCY, None, ["32 at a time", "-no more than"]),
        ({"model": 1000.0, "bytes_per_image": 38_000.0, **waiting(NETWORK)}, threads(64), 190.0, Kind.STORAGE_BANDWIDTH,
         None, ["7.6 MB/s", "200 images/s", "38 MB/s"]),
        # Reads that others do ahead are not what keeps the cores busy.
        (waiting(FAST), threads(2, 256), 2500.0, Kind.OP, "Decode", ["0.58 ms", "0.74 ms", "2,700 images/s"]),
        (waiting(SLOW), threads(1, 64), None, Kind.OP, "Decode", []),
        ({"model": 2000.0, **waiting(FAST)}, threads(2, 64), 1700.0, Kind.OP, "Decode", ["0.74 ms", "Decode"]),
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
        (
            16,
            {"cores_elsewhere": 2.0},
            Kind.OP,
            ["2 cores elsewhere cannot feed more than 2,700 images/s; 7 would"],
        ),
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


@pytest.mark.parametrize(
    ("costs", "threads", "reason", "figures"),
    [
        ((*NATIVE, AUGMENT), 1, None, ["Map(augment) is Python", "210 us", "4,760 images/s"]),
        ((*NATIVE, AUGMENT), 16, None, ["210 us", "16 threads", "18 us", "4,390 images/s"]),
        ((op("Map", 300e-6),), 1, None, ["Map", "-images/s"]),  # where no lock was seen
        (COSTS, 2, "it is not there", ["it is not there"]),
        (NATIVE, 16, None, []),
        ((), 16, "it is not there", []),
    ],
)
def test_python_ops_are_told_with_what_one_process_allows_so_that_the_figures_can_be_computed_again(
    costs: tuple[OpCost, ...], threads: int, reason: str | None, figures: list[str]
) -> None:
    said = python_text(costs, threads=threads, reason=reason)
    assert (said is None) == (figures == [])
    assert is_told(str(said), figures)
