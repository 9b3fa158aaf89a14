from __future__ import annotations

from autopipe.core.config import ModelSetup
from autopipe.core.facts import Ceiling, OpCost, ReadCosts, ReadRung
from autopipe.core.value import Estimate

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


def test_a_ceiling_survives_json() -> None:
    assert Ceiling.model_validate_json(CEILING.model_dump_json()) == CEILING


def test_what_is_known_of_the_loader_and_its_samples_holds_for_another_setup_of_the_model() -> None:
    known = CEILING.model_copy(update={"compact_bytes": 100, "finished_bytes": 400})
    other = Ceiling(model_images_per_second=RATE, model_core_seconds_per_image=0.002).with_loader_of(known)
    assert (other.setup, other.op_costs) == (ModelSetup(), CEILING.op_costs)
    assert (other.compact_bytes, other.finished_bytes) == (100, 400)


def test_a_ceiling_says_for_which_setup_it_holds() -> None:
    assert CEILING.setup == ModelSetup(devices=2, channels="last", finish="host")


def reads(*rates: float, latency: float = 0.02, cpu: float = 0.0001) -> ReadCosts:
    rungs = tuple(ReadRung(at_once=4**power, images_per_second=rate) for power, rate in enumerate(rates))
    return ReadCosts(latency_seconds=latency, cpu_seconds=cpu, rungs=rungs, bytes_per_image=1000.0)


def test_reads_that_go_on_gaining_have_a_latency_only() -> None:
    found = reads(50, 200, 790, 3000)
    assert found.waits
    assert not found.saturated
    assert found.images_per_second(20) == 1000.0
    assert found.at_once == 64


def test_reads_that_stop_gaining_have_a_bandwidth() -> None:
    found = reads(50, 190, 200)
    assert found.saturated
    assert found.images_per_second(2) == 100.0
    assert found.images_per_second(64) == 200.0
    assert found.at_once == 4


def test_more_reads_at_a_time_than_were_measured_promise_nothing() -> None:
    found = reads(50, 200, 790)
    assert found.most_at_once == 16
    assert found.images_per_second(128) == found.images_per_second(16) == 800.0
    assert found.bound_images_per_second(128) == 6400.0


def test_reads_that_stop_gaining_for_want_of_processors_have_none() -> None:
    assert not reads(50, 190, 200, cpu=0.005).saturated


def test_reads_from_memory_do_not_wait() -> None:
    assert not reads(20_000, latency=0.00005, cpu=0.00004).waits
