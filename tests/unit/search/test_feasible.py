"""Each reason for leaving a configuration out; and that whatever can run is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from autopipe.errors import SpaceError
from autopipe.measure.facts import Ceiling, Facts, Impossible, Limits
from autopipe.pipeline.config import ModelSetup, Params, PipelineConfig, to_config
from autopipe.pipeline.space import Space
from autopipe.search import feasible, library
from autopipe.search.feasible import trim, why_not
from autopipe.values import Estimate
from tests.fakes import facts as made
from tests.unit.search.conftest import some

GIB = 2**30
USUAL = {
    "cores": 4,
    "memory_bytes": 8 * GIB,
    "disk_bytes": 10 * GIB,
    "fixed_bytes": 3 * GIB,
    "compact_bytes": 150_528,
    "finished_bytes": 602_112,
}
CUTS = {"array": {1: 4 * GIB, 2: 1 * GIB, 3: 3 * GIB}}
THREADS: Params = {"loader": "threads", "threads.workers": 2, "threads.queue_size": 4}
PROCESSES: Params = {"loader": "processes", "processes.workers": 2, "processes.queue_size": 4}
TFDATA: Params = {"loader": "tfdata", "tfdata.num_parallel_calls": "auto", "tfdata.prefetch": "auto"}


CUT_SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: [1]
  cache: [none, memory]
  cache_fraction: {choices: [1.0, 0.75, 0.5, 0.25], when: {cache: memory}}
  storage: [files, array]
  cut: {choices: [deepest, 0, 1, 2, 3], when: {storage: array}}
"""


def facts(**known: Any) -> Facts:
    return made.facts(**{**USUAL, **known})


FACTS = facts()


def test_what_can_run_is_kept() -> None:
    assert why_not(to_config(THREADS), FACTS) is None


@pytest.mark.parametrize(
    ("params", "known", "limits", "reason"),
    [
        ({**THREADS, "devices": 2}, FACTS, Limits(), "devices > 1: Keras can train on 1 here"),
        ({**THREADS, "devices": 3}, facts(gpus=1), Limits(), "devices > 1: Keras can train on 1 here"),
        ({**THREADS, "devices": 3}, facts(gpus=4), Limits(), "devices 3: a batch of 32 cannot be shared out evenly"),
        (
            {**THREADS, "cache": "memory"},
            facts(fixed_bytes=int(12.3 * GIB)),
            Limits(),
            "cache memory: needs 12.3 GiB for the whole set, 8 GiB free",
        ),
        (
            {**THREADS, "cache": "memory"},
            facts(fixed_bytes=int(7.5 * GIB)),
            Limits(),
            "cache memory: needs 7.5 GiB for the whole set, 8 GiB free, of which it may take 90%",
        ),
        (
            {**THREADS, "storage": "array"},
            facts(disk_bytes=GIB),
            Limits(),
            "storage array: needs 3 GiB on disk, 1 GiB",
        ),
        (
            {**THREADS, "storage": "tfrecord"},
            facts(cuts={"tfrecord": {0: 11 * GIB}}),
            Limits(),
            "storage tfrecord: needs 11 GiB on disk, 10 GiB",
        ),
        (
            {**THREADS, "storage": "array", "cut": 0},
            facts(cuts=CUTS),
            Limits(),
            "cut 0: array keeps these samples after 1, 2, 3 ops only",
        ),
        ({**THREADS, "storage": "array", "cut": 3}, facts(cuts=CUTS), Limits(), "cut 3: is the deepest for array"),
        (
            {**THREADS, "storage": "array", "cut": 1},
            facts(cuts=CUTS),
            Limits(),
            "cut 1: takes 4 GiB as array, no less than deeper ones",
        ),
        (
            {**THREADS, "cache": "memory", "cache_fraction": 0.5},
            FACTS,
            Limits(),
            "cache_fraction 0.5: there is room for all samples",
        ),
        (
            {**THREADS, "cache": "memory", "cache_fraction": 0.75},
            facts(fixed_bytes=12 * GIB),
            Limits(),
            "cache memory: needs 9 GiB for 75% of the set, 8 GiB free",
        ),
        (
            {**THREADS, "storage": "tfrecord"},
            FACTS,
            Limits(convert=False),
            "storage tfrecord: must be converted first, which needs `--convert`, or `--epochs N` to weigh it",
        ),
        (THREADS, FACTS, Limits(workers=1), "more than 1 workers: `--max-workers`"),
        (TFDATA, FACTS, Limits(workers=1), "tfdata with auto workers: `--max-workers 1` cannot limit them"),
        ({**THREADS, "cache": "memory"}, FACTS, Limits(memory_bytes=2 * GIB), "cache and queue need more than"),
        (THREADS, FACTS, Limits(memory_bytes=1 << 10), "cache and queue need more than `--max-memory` 1 KiB"),
        (
            TFDATA,
            facts(impossible=(Impossible(parameter="loader", value="tfdata", reason="no TensorFlow half"),)),
            Limits(),
            "loader tfdata: no TensorFlow",
        ),
    ],
)
def test_what_cannot_run_has_a_reason(params: Params, known: Facts, limits: Limits, reason: str) -> None:
    found = some(why_not(to_config(params), dataclasses.replace(known, limits=limits)))
    assert found.startswith(reason)


def test_what_is_not_known_leaves_nothing_out() -> None:
    unknown = made.facts()
    for params in (THREADS, PROCESSES, TFDATA, {**THREADS, "cache": "memory", "storage": "array"}):
        assert why_not(to_config(params), unknown) is None


def test_a_cut_that_saves_room_is_tried_and_no_other() -> None:
    space = library.parse(CUT_SPACE, {"cores": 2, "gpus": 0})
    trimmed = trim(space, facts(cuts=CUTS))
    assert {each.config.cut for each in trimmed.candidates if each.config.storage == "array"} == {"deepest", 2}
    assert {each.config.cut for each in trim(space, FACTS).candidates} == {"deepest"}
    assert trimmed.space == space  # what a study goes on with does not depend on what is free today


def test_a_part_is_cached_only_where_the_whole_does_not_fit() -> None:
    space = library.parse(CUT_SPACE, {"cores": 2, "gpus": 0})

    def fractions(known: Facts) -> set[float]:
        found = trim(space, known).candidates
        return {each.config.cache_fraction for each in found if each.config.cache == "memory"}

    assert fractions(FACTS) == {1.0}
    assert fractions(facts(fixed_bytes=12 * GIB)) == {0.25, 0.5}


def test_trim_counts_what_it_leaves_out_by_reason(space: Space) -> None:
    trimmed = trim(space, FACTS)
    reasons = {drop.reason: drop.configs for drop in trimmed.left_out}
    assert reasons["devices > 1: Keras can train on 1 here"] == sum(p["devices"] == 2 for p in space.grid())
    assert len({candidate.key for candidate in trimmed.candidates}) == len(trimmed.candidates)


def _setups(known: Facts) -> tuple[set[tuple[int, Any]], list[str]]:
    """Return the devices and channels that a default search tries, and why it leaves others out."""
    space = library.load("default", {"cores": 2, "gpus": known.gpus}).only("loader", ["threads"])
    trimmed = trim(space.only("cache", ["none"]).only("storage", ["files"]), known)
    tried = {(each.config.devices, each.config.channels) for each in trimmed.candidates}
    return tried, [drop.reason for drop in trimmed.left_out if drop.reason.startswith(("devices", "channels"))]


def test_without_an_accelerator_devices_and_channels_are_one_value_and_it_is_said_why() -> None:
    no_gpu = {("channels", "first"): "there is no accelerator"}
    known = facts(gpus=1, gpus_reason="there is no accelerator", pointless=no_gpu)
    tried, reasons = _setups(known)
    assert tried == {(1, "last")}
    assert sorted(reasons) == ["channels first: there is no accelerator", "devices > 1: there is no accelerator"]
    named, _ = _setups(dataclasses.replace(known, limits=Limits(only={"channels": ("first",)})))
    assert named == {(1, "first")}  # what the user asks for is tried, whether it pays or not


@pytest.mark.parametrize(
    ("gpus", "counts"), [(1, {1}), (3, {1, 2}), (4, {1, 2, 4}), (8, {1, 2, 4, 8}), (32, {1, 2, 4, 8, 16, 32})]
)
def test_beside_accelerators_all_counts_that_share_a_batch_and_both_orders_are_tried(
    gpus: int, counts: set[int]
) -> None:
    tried, reasons = _setups(facts(gpus=gpus, gpus_reason=f"NVML sees {gpus}"))
    assert tried == {(count, channels) for count in counts for channels in ("last", "first")}
    assert ("devices 3: a batch of 32 cannot be shared out evenly" in reasons) == (gpus == 3)


def test_what_a_workload_rules_out_takes_no_trial() -> None:
    built = Impossible(parameter="devices", value=2, reason="the model is built already")
    no_image = Impossible(parameter="channels", value="first", reason="no image")
    tried, reasons = _setups(facts(gpus=2, impossible=(built, no_image)))
    assert tried == {(1, "last")}
    assert {"devices 2: the model is built already", "channels first: no image"} <= set(reasons)


def test_only_limits_the_space_and_says_so(space: Space) -> None:
    trimmed = trim(space, dataclasses.replace(FACTS, limits=Limits(only={"loader": ("threads", "tfdata")})))
    assert {candidate.config.loader.kind for candidate in trimmed.candidates} == {"threads", "tfdata"}
    assert "loader processes, keras: not in `--only`" in [drop.reason for drop in trimmed.left_out]


def test_nothing_left_is_an_error_with_the_reasons(space: Space) -> None:
    with pytest.raises(SpaceError, match="--max-workers"):
        trim(space, dataclasses.replace(FACTS, limits=Limits(workers=0)))


def test_a_space_too_large_to_list_is_sampled_evenly_and_repeatably(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feasible, "MOST_CANDIDATES", 30)
    first, second = trim(space, FACTS), trim(space, FACTS)
    assert 0 < len(first.candidates) <= 30
    assert [candidate.key for candidate in first.candidates] == [candidate.key for candidate in second.candidates]


def test_workers_elsewhere_are_tried_up_to_twice_as_many_as_are_of_use_there(
    elsewhere: Callable[[int], PipelineConfig],
) -> None:
    configs = {count: elsewhere(count) for count in (2, 4, 5, 16)}
    known = facts(workers_elsewhere=2)
    assert [count for count, config in configs.items() if why_not(config, known) is None] == [2, 4]
    assert why_not(configs[16], facts(workers_at_once=2)) is None
    assert why_not(configs[16], known.unmeasured) is None


COUNTS = [ModelSetup(devices) for devices in (1, 2, 4, 8)]


def ceiling(setup: ModelSetup, rate: float) -> Ceiling:
    return Ceiling(
        model_images_per_second=Estimate(value=rate, low=rate, high=rate),
        model_core_seconds_per_image=0.0,
        **setup._asdict(),
    )


def test_more_devices_stop_where_they_no_longer_pay() -> None:
    measured = [ceiling(ModelSetup(1), 1000), ceiling(ModelSetup(2), 1800), ceiling(ModelSetup(4), 1850)]
    found = feasible.pointless(measured, COUNTS)
    assert set(found) == {("devices", 4), ("devices", 8)}
    assert found["devices", 8] == "the model alone is no faster with it: 1.03 times the rate of devices 2"
    assert feasible.hopeless(ModelSetup(8, "last", "host"), found)
    assert not feasible.hopeless(ModelSetup(2), found)


def test_what_was_not_measured_is_not_judged() -> None:
    assert feasible.pointless([ceiling(ModelSetup(1), 1000)], COUNTS) == {}


def test_counts_are_compared_in_setups_that_else_are_alike() -> None:
    on_host = ModelSetup(1, "last", "host")
    measured = [ceiling(ModelSetup(1), 1000), ceiling(on_host, 2000), ceiling(ModelSetup(2), 1500)]
    assert feasible.pointless(measured, COUNTS) == {}  # 1.5 times the same finish on one device


def test_another_channel_order_has_to_be_faster() -> None:
    first = ModelSetup(channels="first")
    slower = feasible.pointless([ceiling(ModelSetup(), 1000), ceiling(first, 1010)], [ModelSetup(), first])
    assert slower["channels", "first"] == "the model alone is no faster with it: 1.01 times the rate of channels last"
    assert feasible.pointless([ceiling(ModelSetup(), 1000), ceiling(first, 1200)], [ModelSetup(), first]) == {}


def test_setups_that_share_a_process_stay_together_and_the_usual_one_is_first() -> None:
    every = [
        ModelSetup(devices, channels, finish)
        for devices in (4, 1)
        for channels in ("first", "last")
        for finish in ("host", "device")
    ]
    found = feasible.ordered(every)
    assert found[0] == ModelSetup()
    assert [(each.devices, each.channels) for each in found[::2]] == [
        (each.devices, each.channels) for each in found[1::2]
    ]
    assert [each.devices for each in found] == [1] * 4 + [4] * 4


def test_several_steps_by_one_call_have_to_pay_and_fewer_are_not_tried_where_the_most_do_not() -> None:
    usual, eight, many = (ModelSetup(steps_per_execution=count) for count in (1, 8, 32))
    assert feasible.ordered([eight, many, usual]) == [usual, many, eight]
    long = feasible.pointless([ceiling(usual, 1000), ceiling(many, 1010)], [usual, eight, many])
    assert set(long) == {("steps_per_execution", 8), ("steps_per_execution", 32)}
    assert feasible.hopeless(eight, long)
    short = [ceiling(usual, 1000), ceiling(many, 1510)]
    assert feasible.pointless(short, [usual, eight, many]) == {}


def test_a_few_steps_by_one_call_that_seem_to_bring_nothing_do_not_rule_out_many() -> None:
    """On a machine that changes its speed by a sixth, noise hides the gain of eight, and not that of 32."""
    usual, eight, many = (ModelSetup(steps_per_execution=count) for count in (1, 8, 32))
    measured = [ceiling(usual, 1000), ceiling(eight, 1010), ceiling(many, 1900)]
    assert set(feasible.pointless(measured, [usual, eight, many])) == {("steps_per_execution", 8)}


def test_so_many_steps_by_one_call_are_not_tried_where_the_model_was_never_run_so() -> None:
    usual, eight, many = (ModelSetup(steps_per_execution=count) for count in (1, 8, 32))
    measured = [ceiling(usual, 1000), ceiling(eight._replace(finish="host"), 1500)]
    assert set(feasible.useless(measured, [usual, eight, many])) == {("steps_per_execution", 32)}
    assert feasible.useless([], [usual, eight, many]) == {}
