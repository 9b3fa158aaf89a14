"""The cost model's shape: what it must get right is the order, not the figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autopipe.extensions.whatif.prediction import model_rate, predict, transfer_seconds
from autopipe.measure.facts import Ceiling, OpCost
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.space import to_config
from tests.fakes.ceilings import OPS, SLOW_READS, ceiling, config, reads

WAITS = (OPS[0].model_copy(update={"native": False, "wait_seconds_per_image": 0.02}), *OPS[1:])


def known(**other: Any) -> Ceiling:
    usual = {"op_costs": OPS, "compact_bytes": 150_528, "finished_bytes": 602_112, "model": 4000.0}
    return ceiling(**{"transfer_seconds_per_image": 0.00003, **usual, **other})


def waiting(**other: Any) -> Ceiling:
    return known(**{"op_costs": WAITS, "reads": SLOW_READS, "model": 1000.0, **other})


def test_devices_that_were_not_measured_are_taken_to_scale() -> None:
    assert model_rate(config(devices=4), known()) == 16_000.0
    assert model_rate(config(channels="first"), known()) == 4000.0
    many = known(cores=64.0)
    assert predict(config(workers=64, devices=2), many) > 1.9 * predict(config(workers=64), many)


def test_no_prediction_exceeds_the_model_or_the_cores() -> None:
    assert predict(config(keep="memory"), known()) <= 4000.0
    assert predict(config(workers=8), known()) <= 2 / 0.00073
    assert predict(config(), known(model_core_seconds=0.002)) < 0.5 * predict(config(), known())


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (config(workers=2), config(workers=1)),
        (config(keep="memory"), config(keep="memory:50%")),
        (config(keep="memory:50%"), config()),
        (config(keep="array"), config(keep="array:1")),
        (config(keep="array:1"), config()),
        (config(finish="device"), config(finish="host")),
        (config(queue_size=8), config(queue_size=1)),
        (config(device_prefetch=2), config(device_prefetch=0)),
        (to_config({"loader": "resident", "resident.workers": 2}), config(keep="memory")),
    ],
)
def test_the_order_is_right(better: PipelineConfig, worse: PipelineConfig) -> None:
    assert predict(better, known()) > predict(worse, known())


def test_a_step_waits_for_the_transfer_unless_batches_are_sent_ahead() -> None:
    slow = known(transfer_seconds_per_image=0.0001)
    sent, ahead = (predict(config(device_prefetch=count), slow) for count in (0, 2))
    assert 1 / sent == pytest.approx(1 / ahead + 0.0001)
    in_place = known(transfer_seconds_per_image=None)
    assert predict(config(device_prefetch=0), in_place) == predict(config(device_prefetch=2), in_place)
    assert transfer_seconds(config(finish="host"), known()) == pytest.approx(0.00012)  # four times the bytes


def test_workers_that_wait_for_reads_bring_what_their_number_allows_and_a_cache_ends_the_waiting() -> None:
    assert predict(config(workers=2), waiting()) == pytest.approx(2 / 0.02083, rel=0.01)
    assert predict(config(workers=16), waiting()) == pytest.approx(16 / 0.02083, rel=0.05)
    for keep in ("memory", "array", "tfrecord"):
        assert predict(config(keep=keep), waiting(depths={"tfrecord": 0})) > 900
    assert predict(config(keep="encoded"), waiting()) == pytest.approx(predict(config(), known(model=1000.0)), rel=0.1)


def test_reads_bring_no_more_than_was_measured() -> None:
    narrow = waiting(reads=reads(50, 190, 200, latency=0.0201))
    assert predict(config(workers=64), narrow) == pytest.approx(200, rel=0.01)
    few = waiting(reads=SLOW_READS.model_copy(update={"rungs": SLOW_READS.rungs[:3]}))
    of = {ahead: predict(config(**{"threads.read_ahead": ahead}), few) for ahead in (4, 16, 128)}
    assert of[4] < of[16] == of[128]


def test_the_lock_is_shared_by_threads_and_not_by_processes() -> None:
    locked = OpCost(name="Map", part="fresh", seconds_per_image=0.005, lock_seconds_per_image=0.005)
    held = known(op_costs=(*OPS, locked))
    processes = to_config({"loader": "processes", "processes.workers": 2, "processes.queue_size": 8})
    assert predict(config(workers=2), held) <= 200
    assert 1.5 * predict(config(workers=2), held) < predict(processes, held)


def test_workers_elsewhere_are_promised_what_the_cores_there_can(elsewhere: Callable[[int], PipelineConfig]) -> None:
    two, sixteen = elsewhere(2), elsewhere(16)
    some = known(model=1e6, cores_elsewhere=2.0)
    assert predict(sixteen, some) < 1.2 * predict(two, some)
    unknown = known(model=1e6)
    assert predict(sixteen, unknown) > 4 * predict(two, unknown)
