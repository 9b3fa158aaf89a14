from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from autopipe.measure.bottleneck import bottleneck
from autopipe.measure.costs import Kind, bounds
from autopipe.measure.facts import OpCost, ReadCosts, ReadRung
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.processes import Processes
from autopipe.pipeline.loaders.threads import Threads
from tests.fakes.ceilings import COSTS, THREADS, ceiling
from tests.fakes.facts import facts

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


def test_without_op_costs_the_model_is_all_that_is_known() -> None:
    limit = bounds(ceiling(op_costs=(), cores=None), THREADS)
    assert limit.images_per_second == 8400.0
    assert {each.kind for each in limit.limits} == {Kind.MODEL}
    assert bottleneck(limit).sentence == (
        "on a batch that is already there the model takes 8,400 images/s; what making one costs is not known."
    )


@pytest.mark.parametrize(("rate", "kind"), [(1000.0, None), (8000.0, Kind.MODEL)])
def test_a_dataset_of_ones_own_is_held_up_by_the_model_only_at_its_rate(rate: float, kind: Kind | None) -> None:
    found = bottleneck(bounds(ceiling(op_costs=(), cores=None), THREADS), rate)
    assert found.kind is kind
    assert ("the model is the limit" in found.sentence) == (kind is Kind.MODEL)


def test_the_sentence_names_the_dearest_op_and_what_it_means() -> None:
    assert bottleneck(bounds(ceiling(), THREADS)).sentence == (
        "Decode takes 0.58 ms of the loader's 0.74 ms for an image; 2 cores cannot feed more than 2,700 images/s; "
        "5 more cores elsewhere would feed the model; the model alone takes 8,400."
    )


def test_a_limit_above_the_models_own_rate_is_not_said_to_be_in_the_way() -> None:
    """Nothing alone is too slow: what is missing is lost on busy cores, or, where they are idle, between the two."""
    busy = bottleneck(bounds(ceiling(model=2000.0), THREADS), rate=1700.0)
    assert (busy.kind, busy.op) == (Kind.OP, "Decode")
    assert busy.sentence == (
        "model and loader share 2 cores, of which an image takes 0 ms in the model and 0.74 ms in the loader, most of "
        "that in Decode: together they reach 1,700 images/s; the model alone takes 2,000."
    )
    idle = bottleneck(bounds(ceiling(model=1200.0), THREADS), rate=1000.0)
    assert (idle.kind, idle.op) == (Kind.HAND_OVER, None)
    assert idle.sentence == (
        "time is lost between loader and model, as in pauses between epochs: together they reach 1,000 images/s, "
        "where Decode allows 2,700; the model alone takes 1,200."
    )


def test_a_limit_far_above_what_is_reached_does_not_explain_it() -> None:
    """With one batch an epoch nearly all of the time goes into pauses."""
    assert bottleneck(bounds(ceiling(), THREADS), rate=1000.0).kind is Kind.OP  # the cores: 2,700
    found = bottleneck(bounds(ceiling(), THREADS), rate=200.0)
    assert found.limit is None
    assert "the next one, Decode, is 2,700 images/s" in found.sentence


def test_the_sentence_tells_what_the_network_to_other_cores_would_carry() -> None:
    sentence = bottleneck(bounds(ceiling(), THREADS, facts(compact_bytes=150_000))).sentence
    assert "5 more cores elsewhere would feed the model, 855 MB/s through the network;" in sentence


def test_workers_elsewhere_are_not_held_back_by_the_cores_here(elsewhere: Callable[[int], PipelineConfig]) -> None:
    few, many = elsewhere(2), elsewhere(32)
    assert bottleneck(bounds(ceiling(), few)).sentence == (
        "Decode takes 0.58 ms of the loader's 0.74 ms for an image; this many workers cannot feed more than "
        "2,700; 7 would feed the model; the model alone takes 8,400."
    )
    assert bottleneck(bounds(ceiling(), many)).kind is Kind.MODEL


def test_workers_elsewhere_share_the_cores_that_are_there(elsewhere: Callable[[int], PipelineConfig]) -> None:
    config = elsewhere(16)
    found = bottleneck(bounds(ceiling(cores_elsewhere=2.0), config))
    assert found.sentence == (
        "Decode takes 0.58 ms of the loader's 0.74 ms for an image; the 2 cores elsewhere cannot feed more than 2,700 "
        "images/s; 7 would feed the model; the model alone takes 8,400."
    )
    assert bottleneck(bounds(ceiling(cores_elsewhere=64.0), config)).kind is Kind.MODEL


def test_cores_that_only_receive_batches_are_the_limit_beside_a_model_that_needs_them(
    elsewhere: Callable[[int], PipelineConfig],
) -> None:
    found = bottleneck(bounds(ceiling(model_core_seconds=1e-3), elsewhere(32)))
    assert found.kind is Kind.HAND_OVER
    assert found.sentence.startswith("batches come from other machines")


def test_the_sentence_names_the_model_where_it_takes_the_cores() -> None:
    sentence = bottleneck(bounds(ceiling(model=900.0, model_core_seconds=2.0e-3), THREADS)).sentence
    assert "Decode takes 0.58 ms" in sentence
    assert "the model takes 2 ms of the cores for an image" in sentence
    assert "cannot feed more than 730" in sentence


def test_the_sentence_names_the_model_where_it_is_the_limit() -> None:
    sentence = bottleneck(bounds(ceiling(model=500.0), THREADS)).sentence
    assert sentence == (
        "the model is the limit: on a batch that is already there it takes 500 images/s; "
        "the loader alone could feed 2,700."
    )


def test_what_the_loader_could_feed_is_without_the_models_work_on_the_same_cores() -> None:
    sentence = bottleneck(bounds(ceiling(model=900.0, model_core_seconds=2.0e-3), THREADS), model_share=0.95).sentence
    assert sentence.endswith("takes 900 images/s; the loader alone could feed 2,700.")


def test_every_limit_has_a_sentence() -> None:
    for model, work, disk, config in itertools.product(
        (100.0, 1e6), (0.0, 1e-3), (None, 1e6), (THREADS, PipelineConfig(loader=Threads(workers=1)))
    ):
        found = bounds(ceiling(model, work, read_bytes_per_second=disk, bytes_per_image=4e4), config)
        sentence = bottleneck(found).sentence
        assert sentence.endswith(".")
        assert "any number" not in sentence


def test_work_that_costs_nothing_has_no_limit() -> None:
    free = (OpCost(name="read", part="fixed", seconds_per_image=0.0),)
    found = bottleneck(bounds(ceiling(op_costs=free), THREADS))
    assert found.kind is Kind.MODEL
    assert found.sentence.endswith("takes 8,400 images/s.")


def test_where_only_the_model_has_a_limit_nothing_else_is_named() -> None:
    free = ceiling(op_costs=(OpCost(name="Cast", part="fixed", seconds_per_image=0.0),), cores=None)
    found = bottleneck(bounds(free, THREADS), rate=1000.0)
    assert found.kind is None
    assert "not known" in found.sentence


def test_reads_that_wait_are_named_with_the_number_that_would_lift_them() -> None:
    found = bottleneck(bounds(ceiling(model=1000.0, **WAITING), THREADS), rate=95.0)
    assert found.kind is Kind.STORAGE_LATENCY
    assert found.limit is not None
    assert found.limit.images_per_second == pytest.approx(2 / 20.74e-3)
    assert found.sentence == (
        "each read waits 20 ms: 2 at a time bring at most 96.4 images/s; 20 reads at a time would feed the model; "
        "the model alone takes 1,000."
    )


def test_reads_that_others_do_ahead_are_not_what_keeps_the_cores_busy() -> None:
    ahead = PipelineConfig(loader=Threads(workers=2, read_ahead=64))
    fast = WAITING | {
        "reads": SLOW.model_copy(update={"rungs": (*SLOW.rungs, ReadRung(at_once=256, images_per_second=9e3))})
    }
    made = bounds(ceiling(**fast), PipelineConfig(loader=Threads(workers=2, read_ahead=256)))
    found = bottleneck(made, rate=2500.0)
    assert (found.kind, found.op) == (Kind.OP, "Decode")
    assert found.sentence.startswith(
        "Decode takes 0.58 ms of the loader's 0.74 ms for an image; 2 cores cannot feed more than 2,700 images/s"
    )
    few = bottleneck(bounds(ceiling(**WAITING), ahead.model_copy(update={"loader": Threads(workers=1, read_ahead=64)})))
    assert (few.kind, few.op) == (Kind.OP, "Decode")
    shared = bottleneck(bounds(ceiling(model=2000.0, **fast), ahead), rate=1700.0)
    assert "0.74 ms in the loader, most of that in Decode" in shared.sentence


def _rungs(*rates: tuple[int, float]) -> ReadCosts:
    rungs = tuple(ReadRung(at_once=count, images_per_second=rate) for count, rate in rates)
    return SLOW.model_copy(update={"latency_seconds": 1 / rates[0][1], "rungs": rungs})


def test_more_reads_at_a_time_are_not_advised_where_they_were_seen_to_bring_nothing() -> None:
    network = WAITING | {"reads": _rungs((1, 50.0), (4, 190.0), (16, 200.0))}
    found = bottleneck(bounds(ceiling(model=1000.0, **network), THREADS), rate=95.0)
    assert found.kind is Kind.STORAGE_LATENCY
    assert "; more of them bring no more than 200;" in found.sentence
    spinning = WAITING | {"reads": _rungs((1, 120.0), (4, 90.0))}
    found = bottleneck(bounds(ceiling(model=1000.0, **spinning), PipelineConfig(loader=Threads(workers=1))), rate=100.0)
    assert found.kind is Kind.STORAGE_BANDWIDTH
    assert "at a time" not in found.sentence


def test_no_more_reads_at_a_time_are_advised_than_were_measured() -> None:
    slow = WAITING | {"reads": _rungs((1, 5.0), (4, 20.0), (16, 79.0))}
    found = bottleneck(bounds(ceiling(model=1000.0, **slow), THREADS), rate=9.0)
    assert "more than 16 were not measured" in found.sentence
    assert "would feed" not in found.sentence


def test_a_storage_that_was_read_slower_than_what_trains_from_it_says_nothing_of_more_reads() -> None:
    """Once: "32 at a time bring 309 images/s; more of them bring no more than 62"."""
    read = WAITING["op_costs"][0].model_copy(update={"wait_seconds_per_image": 0.1})
    rungs = _rungs((1, 10.0), (4, 40.0), (16, 62.0), (64, 62.0))
    disturbed: dict[str, Any] = {"op_costs": (read, *COSTS[1:]), "reads": rungs}
    workers = PipelineConfig(loader=Threads(workers=32))
    found = bottleneck(bounds(ceiling(model=1000.0, **disturbed), workers), rate=300.0)
    assert found.kind is Kind.STORAGE_LATENCY
    assert "32 at a time" in found.sentence
    assert "no more than" not in found.sentence


def test_what_is_not_known_of_a_dataset_of_ones_own_is_not_laid_on_the_transfer() -> None:
    for transfer, rate in ((1800.0, 700.0), (20_000.0, 300.0), (800.0, 300.0)):
        sent = ceiling(model=1000.0, op_costs=(), cores=None, transfer_seconds_per_image=1 / transfer)
        found = bottleneck(bounds(sent, THREADS), rate)
        assert found.limit is None
        assert found.sentence.endswith("what making one costs is not known.")
    sent = ceiling(model=1000.0, op_costs=(), cores=None, transfer_seconds_per_image=1 / 800)
    assert bottleneck(bounds(sent, THREADS), 780.0).kind is Kind.TRANSFER


def test_what_waits_in_an_op_is_named_by_the_op() -> None:
    asks = OpCost(name="Map", part="fresh", seconds_per_image=0.1e-3, wait_seconds_per_image=0.03)
    found = bottleneck(bounds(ceiling(model=1000.0, op_costs=(*COSTS, asks)), THREADS))
    assert (found.kind, found.op) == (Kind.OP, "Map")
    assert "of which it waits 30 ms" in found.sentence


def test_workers_that_wait_in_part_are_too_few_and_their_waiting_counts_in_how_many_would_do() -> None:
    reads = OpCost(name="read", part="fixed", seconds_per_image=0.1e-3, wait_seconds_per_image=0.8e-3)
    decodes = OpCost(name="Decode", part="fixed", seconds_per_image=0.9e-3)
    few = PipelineConfig(loader=Threads(workers=2))
    found = bottleneck(bounds(ceiling(model=1900.0, op_costs=(reads, decodes)), few))
    assert found.limit is not None
    assert found.limit.images_per_second == pytest.approx(2 / 1.8e-3)
    assert "this many workers cannot feed more than 1,110; 4 would feed the model" in found.sentence
    faster = bottleneck(bounds(ceiling(model=3900.0, op_costs=(reads, decodes)), few))
    assert "; 8 on 4 cores would feed the model" in faster.sentence


def test_the_lock_is_named_where_threads_stand_in_line_for_it() -> None:
    locked = OpCost(name="Map", part="fresh", seconds_per_image=5e-3, lock_seconds_per_image=5e-3)
    made = ceiling(model=5000.0, op_costs=(*COSTS, locked))
    found = bottleneck(bounds(made, PipelineConfig(loader=Threads(workers=4))), rate=180.0)
    assert (found.kind, found.op) == (Kind.PYTHON_LOCK, "Map")
    assert "Map holds Python's lock for 5 ms an image" in found.sentence
    assert bottleneck(bounds(made, PipelineConfig(loader=Processes(workers=2)))).kind is Kind.OP


def test_a_storage_that_gives_no_more_is_a_bandwidth() -> None:
    rungs = tuple(ReadRung(at_once=count, images_per_second=rate) for count, rate in ((1, 50), (4, 190), (16, 200)))
    narrow = WAITING | {"reads": SLOW.model_copy(update={"rungs": rungs}), "bytes_per_image": 38_000.0}
    found = bottleneck(bounds(ceiling(model=1000.0, **narrow), PipelineConfig(loader=Threads(workers=64))), rate=190.0)
    assert found.kind is Kind.STORAGE_BANDWIDTH
    assert found.sentence.startswith("the storage gives 7.6 MB/s, 200 images/s; 38 MB/s would feed the model")


def test_a_limit_that_was_left_behind_is_not_the_one_if_another_may_be() -> None:
    disk = ceiling(read_bytes_per_second=40e6, bytes_per_image=40_000.0)  # read by fewer than the workers: 1,000
    assert bottleneck(bounds(disk, THREADS), rate=1050.0).kind is Kind.STORAGE_BANDWIDTH
    assert bottleneck(bounds(disk, THREADS), rate=2500.0).kind is Kind.OP  # the cores: 2,700
    assert bottleneck(bounds(disk, THREADS), rate=4000.0).kind is Kind.STORAGE_BANDWIDTH  # none is left


def test_memory_that_holds_a_part_is_named() -> None:
    part = PipelineConfig(loader=Threads(workers=2), cache="memory", cache_fraction=0.5)
    assert bottleneck(bounds(ceiling(model=9000.0), part)).kind is Kind.MEMORY


@pytest.mark.parametrize(("rate", "kind"), [(460.0, Kind.MODEL), (440.0, None)])
def test_the_model_is_the_limit_from_nine_tenths_of_it_on(rate: float, kind: Kind | None) -> None:
    assert bottleneck(bounds(ceiling(model=500.0), THREADS), rate).kind is kind


def test_the_share_that_was_read_side_by_side_decides() -> None:
    made = bounds(ceiling(model=500.0, read_bytes_per_second=1.0, bytes_per_image=1 / 400), THREADS)
    assert bottleneck(made, 490.0, model_share=0.8).kind is Kind.STORAGE_BANDWIDTH
    assert bottleneck(made, 490.0).kind is Kind.MODEL


def test_sending_batches_to_the_device_is_a_limit_that_the_device_finish_may_lift() -> None:
    known = facts(compact_bytes=100, finished_bytes=400)
    host = THREADS.model_copy(update={"finish": "host"})
    found = bottleneck(bounds(ceiling(transfer_seconds_per_image=2e-3), host, known))
    assert found.limit is not None
    assert (found.kind, found.limit.images_per_second) == (Kind.TRANSFER, 500.0)
    assert "no more than 500 images/s" in found.sentence
    assert "finish=device sends 4 times less" in found.sentence
    assert "finish=device" not in bottleneck(bounds(ceiling(transfer_seconds_per_image=2e-3), THREADS, known)).sentence
    kept = ceiling(transfer_seconds_per_image=2e-3, compact_bytes=100, finished_bytes=400)
    assert bottleneck(bounds(kept, host)).sentence == found.sentence  # as a report has it, which knows the ceiling only


def test_a_transfer_that_is_faster_than_the_rest_is_not_named() -> None:
    assert bottleneck(bounds(ceiling(transfer_seconds_per_image=1e-5), THREADS)).kind is Kind.OP
