"""The cost model's shape: what it must get right is the order, not the figure."""

from __future__ import annotations

import dataclasses

import pytest

from autopipe.core.config import ModelSetup, PipelineConfig
from autopipe.core.params import Params, to_config
from autopipe.search import predict
from autopipe.search.predict import Costs
from tests.fakes.surface import Surface

COSTS = Costs(
    fixed_seconds=(0.0001, 0.0004, 0.0002),
    middle_seconds=0.00003,
    suffix_seconds=0.0001,
    compact_bytes=150_528,
    finished_bytes=602_112,
    cores=2,
    ceilings={ModelSetup(): 4000.0},
    model_core_seconds=0.0,
)


def config(workers: int = 2, queue_size: int = 8, **rest: str | float) -> PipelineConfig:
    params: Params = {"loader": "threads", "threads.workers": workers, "threads.queue_size": queue_size, **rest}
    return to_config(params)


def rate(chosen: PipelineConfig, costs: Costs = COSTS) -> float:
    return predict.predict(chosen, costs)


def test_costs_are_gathered_from_the_ceiling() -> None:
    surface = Surface(cores=3)
    costs = predict.costs(list(surface.ceilings([ModelSetup()])), surface.facts())
    assert costs is not None
    assert costs.fixed_seconds == (surface.read_seconds, surface.decode_seconds)
    assert (costs.middle_seconds, costs.suffix_seconds) == (surface.augment_seconds, surface.cast_seconds)
    assert costs.cores == 3


def test_without_op_costs_nothing_is_predicted() -> None:
    surface = Surface()
    bare = [ceiling.model_copy(update={"op_costs": ()}) for ceiling in surface.ceilings([ModelSetup()])]
    assert predict.costs(bare, surface.facts()) is None
    assert predict.costs([], surface.facts()) is None


def test_no_prediction_exceeds_the_model_or_the_cores() -> None:
    assert rate(config(cache="memory")) <= 4000.0
    assert rate(config(workers=8)) <= 2 / 0.00073


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (config(workers=2), config(workers=1)),
        (config(cache="memory"), config()),
        (config(storage="array"), config()),
        (config(finish="device"), config(finish="host")),
        (config(queue_size=8), config(queue_size=1)),
        (config(device_prefetch=2), config(device_prefetch=0)),
    ],
)
def test_the_order_is_right(better: PipelineConfig, worse: PipelineConfig) -> None:
    assert rate(better) > rate(worse)


def test_keras_without_workers_ahead_runs_one_after_the_other() -> None:
    inline = to_config({"loader": "keras", "keras.workers": 1, "keras.max_queue_size": 10})
    work = predict.loader_core_seconds(inline, COSTS)
    assert rate(inline) == pytest.approx(1 / (work + 1 / 4000.0))


def test_a_model_on_the_cores_leaves_less_for_the_loader() -> None:
    assert rate(config(), dataclasses.replace(COSTS, model_core_seconds=0.002)) < 0.5 * rate(config())


def test_devices_that_were_not_measured_are_taken_to_scale() -> None:
    costs = dataclasses.replace(COSTS, cores=64)
    assert rate(config(workers=64, devices=2), costs) > 1.9 * rate(config(workers=64), costs)


def test_conversion_and_cache_are_charged_once() -> None:
    both = predict.one_time_seconds(config(storage="array", cache="memory"), COSTS, 10_000)
    assert both == pytest.approx((3.5, 10_000 * 150_528 / 4e9 / 2))  # the cache is filled from the array
    assert predict.one_time_seconds(config(cache="memory"), COSTS, 10_000) == pytest.approx((0.0, 3.5))


def test_a_shallower_cut_costs_less_once_and_more_each_time() -> None:
    shallow, deep = config(storage="array", cut=1), config(storage="array")
    assert predict.one_time_seconds(shallow, COSTS, 10_000) == pytest.approx((2.5, 0.0))
    assert rate(config()) < rate(shallow) < rate(deep)


def test_encoded_samples_are_copied_and_not_decoded() -> None:
    costs = dataclasses.replace(COSTS, depths={"tfrecord": 0})
    assert predict.one_time_seconds(config(storage="tfrecord"), costs, 10_000) == pytest.approx((0.5, 0.0))
    assert rate(config(storage="tfrecord"), costs) == rate(config(), costs)


def test_a_part_in_the_cache_is_between_none_and_all() -> None:
    half = config(cache="memory", cache_fraction=0.5)
    assert rate(config()) < rate(half) < rate(config(cache="memory"))
    assert predict.one_time_seconds(half, COSTS, 10_000) == pytest.approx((0.0, 1.75))
