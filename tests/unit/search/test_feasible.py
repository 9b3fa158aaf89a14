"""Each reason for leaving a configuration out; and that whatever can run is kept."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from autopipe.errors import SpaceError
from autopipe.measure.facts import Ceiling, Facts, Impossible, Limits
from autopipe.pipeline.config import ModelSetup, Params, PipelineConfig, Value, to_config
from autopipe.pipeline.space import Space
from autopipe.search import feasible, library
from autopipe.search.feasible import Trimmed, trim, why_not
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
RESIDENT: Params = {"loader": "resident", "resident.workers": 2}
TFDATA: Params = {"loader": "tfdata", "tfdata.num_parallel_calls": "auto", "tfdata.prefetch": "auto"}


CUT_SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: [1]
  keep: [none, memory, memory:75%, memory:50%, memory:25%, array, array:0, array:1, array:2, array:3]
"""


def facts(**known: Any) -> Facts:
    return made.facts(**{**USUAL, **known})


FACTS = facts()
WHOLE: Params = {"keep": "memory"}
ARRAY: Params = {"keep": "array"}
TFRECORD: Params = {"keep": "tfrecord"}
NO_TFDATA = Impossible(parameter="loader", value="tfdata", reason="no TensorFlow half")


@pytest.mark.parametrize(
    ("params", "known", "reason"),
    [
        ({}, {}, None),
        ({"devices": 2}, {}, "devices > 1: Keras can train on 1 here"),
        ({"devices": 3}, {"gpus": 4}, "devices 3: a batch of 32 cannot be shared out evenly"),
        (WHOLE, {"fixed_bytes": 12.3}, "keep memory: needs 12.3 GiB, 8 GiB free"),
        (WHOLE, {"fixed_bytes": 7.5}, "keep memory: needs 7.5 GiB, 8 GiB free, of which it may t"),
        (ARRAY, {"disk_bytes": 1}, "keep array: needs 3 GiB on disk, 1 GiB"),
        (TFRECORD, {"cuts": {"tfrecord": {0: 11 * GIB}}}, "keep tfrecord: needs 11 GiB on disk, 10 GiB"),
        ({"keep": "array:0"}, {"cuts": CUTS}, "keep array:0: samples can be kept so after 1, 2, 3 ops only"),
        ({"keep": "array:3"}, {"cuts": CUTS}, "keep array:3: is the deepest, which `array` tries"),
        ({"keep": "array:1"}, {"cuts": CUTS}, "keep array:1: takes 4 GiB, no less than after more ops"),
        ({"keep": "array:2"}, {"cuts": CUTS}, None),
        ({"keep": "array:2"}, {"cuts": {}}, "keep array:2: it is not known to take less"),
        ({"keep": "memory:50%"}, {}, "keep memory:50%: there is room for all samples"),
        ({"keep": "memory:50%"}, Limits(memory_bytes=4 * GIB), None),
        ({"keep": "encoded"}, {"fixed_bytes": 12}, None),
        ({"keep": "encoded"}, {"mean_bytes": 0.005}, "keep encoded: needs 10 GiB, 8 GiB free"),
        ({"keep": "array+encoded"}, {}, "keep array+encoded: samples are read from array"),
        ({"keep": "memory:75%"}, {"fixed_bytes": 12}, "keep memory:75%: needs 9 GiB, 8 Gi"),
        (
            WHOLE,
            {"fixed_bytes": 6, "validation": 1000},
            "keep memory: needs 6 GiB for training's and 3 GiB for validation's samples, 8 GiB free",
        ),
        (WHOLE, {"fixed_bytes": 6}, None),
        ({"keep": "memory:50%"}, {"fixed_bytes": 6, "validation": 1000}, None),
        ({"keep": "memory:50%"}, {"validation": 1000}, "keep memory:50%: there is room for all samples"),
        (TFRECORD, Limits(convert=False), "keep tfrecord: must be converted first, which needs `--convert`, or `-"),
        ({}, Limits(workers=1), "more than 1 workers: `--max-workers`"),
        (TFDATA, Limits(workers=1), "tfdata with auto workers: `--max-workers 1` cannot limit them"),
        (WHOLE, Limits(memory_bytes=2 * GIB), "cache and queue need more than `--max-memory` 2 GiB"),
        (TFDATA, {"impossible": (NO_TFDATA,)}, "loader tfdata: no TensorFlow"),
        (RESIDENT, {"device_bytes": 4}, None),
        (RESIDENT, {}, None),  # without an accelerator, as the user has asked for it
        (
            RESIDENT,
            {"device_bytes": 6, "model_device_bytes": 4},
            "loader resident: needs 3 GiB on the device, 2 GiB fr",
        ),
        (RESIDENT, {"memory_bytes": 3}, "loader resident: makes the samples in memory, which takes 3 GiB, 3 GiB free"),
        ({**RESIDENT, "devices": 2}, {"gpus": 2}, "loader resident: keeps samples on one device"),
    ],
)
def test_what_cannot_run_has_a_reason(params: Params, known: dict[str, Any] | Limits, reason: str | None) -> None:
    told: dict[str, Any] = {"limits": known} if isinstance(known, Limits) else known
    told = {name: int(value * GIB) if name.endswith("_bytes") else value for name, value in told.items()}
    found = why_not(to_config({**THREADS, **params} if "loader" not in params else params), facts(**told))
    assert found is None if reason is None else some(found).startswith(reason)


@pytest.mark.parametrize(
    ("known", "listed", "said"),
    [
        ({}, False, False),  # without an accelerator there is nothing to say
        ({"limits": Limits(only={"loader": ("threads", "resident")})}, True, False),
        ({"device_bytes": 4 * GIB}, True, False),
        ({"device_bytes": 2 * GIB}, False, True),
    ],
)
def test_samples_are_kept_on_an_accelerator_that_has_room_or_where_the_user_asks_for_it(
    known: dict[str, Any], listed: bool, said: bool
) -> None:
    space = library.load("exhaustive", {"cores": 4, "gpus": 1}).only("loader", ["threads", "resident"])
    trimmed = trim(space.only("steps_per_execution", [1]).only("channels", ["last"]), facts(**known))
    assert listed == any(each.loader.kind == "resident" for each in trimmed.candidates.values())
    assert said == any("resident" in reason for reason in trimmed.left_out)
    if listed:
        measured = feasible.narrowed(trimmed, facts(**known, model_device_bytes=2 * GIB))
        left = any(each.loader.kind == "resident" for each in measured.candidates.values())
        assert left == ("device_bytes" not in known)  # the model has taken its room


def test_what_is_not_known_leaves_nothing_out() -> None:
    for params in (THREADS, PROCESSES, TFDATA, {**THREADS, "keep": "array+memory"}):
        assert why_not(to_config(params), made.facts()) is None


def test_a_cut_that_saves_room_is_tried_and_a_part_is_cached_only_where_the_whole_does_not_fit() -> None:
    space = library.parse(CUT_SPACE, {"cores": 2, "gpus": 0})
    usual, cuts, tight = (trim(space, known) for known in (FACTS, facts(cuts=CUTS), facts(fixed_bytes=12 * GIB)))

    def fractions(trimmed: Trimmed) -> set[float]:
        return {each.kept.part for each in trimmed.candidates.values() if each.kept.in_memory}

    assert {each.kept.cut for each in usual.candidates.values()} == {"deepest"}
    assert {each.kept.cut for each in cuts.candidates.values() if each.kept.converts} == {"deepest", 2}
    assert (fractions(usual), fractions(tight)) == ({1.0}, {0.25, 0.5})
    assert cuts.space == space  # what a study goes on with does not depend on what is free today


def test_trim_counts_what_it_leaves_out_by_reason(space: Space) -> None:
    trimmed = trim(space, dataclasses.replace(FACTS, limits=Limits(only={"loader": ("threads", "tfdata")})))
    reasons = trimmed.left_out
    assert reasons["loader processes, keras: not in `--only`"] == 0  # they limit the space
    assert {each.loader.kind for each in trimmed.candidates.values()} == {"threads", "tfdata"}
    ours = space.only("loader", ["threads", "tfdata"])
    assert reasons["devices > 1: Keras can train on 1 here"] == sum(p["devices"] == 2 for p in ours.grid())


NO_GPU = {"gpus": 1, "gpus_reason": "no accelerator", "pointless": {("channels", "first"): "no accelerator"}}
BUILT = Impossible(parameter="devices", value=2, reason="the model is built already")
NO_IMAGE = Impossible(parameter="channels", value="first", reason="no image")
ODD = "devices 3: a batch of 32 cannot be shared out evenly"


@pytest.mark.parametrize(
    ("known", "devices", "channels", "reasons"),
    [
        (NO_GPU, {1}, {"last"}, ["devices > 1: no accelerator", "channels first: no accelerator"]),
        # What the user asks for is tried, whether it pays or not.
        ({**NO_GPU, "limits": Limits(only={"channels": ("first",)})}, {1}, {"first"}, ["devices > 1: no accelerator"]),
        # All counts that share a batch are tried, and both orders.
        ({"gpus": 1, "gpus_reason": "one"}, {1}, {"last", "first"}, ["devices > 1: one"]),
        ({"gpus": 3}, {1, 2}, {"last", "first"}, [ODD]),
        ({"gpus": 4}, {1, 2, 4}, {"last", "first"}, []),
        ({"gpus": 32}, {1, 2, 4, 8, 16, 32}, {"last", "first"}, []),
        (
            {"gpus": 2, "impossible": (BUILT, NO_IMAGE)},
            {1},
            {"last"},
            ["devices 2: the model is built already", "channels first: no image"],
        ),
    ],
)
def test_devices_and_channels_are_tried_where_they_can_be_and_else_it_is_said_why(
    known: dict[str, Any], devices: set[int], channels: set[str], reasons: list[str]
) -> None:
    space = library.load("default", {"cores": 2, "gpus": known["gpus"]}).only("loader", ["threads"])
    trimmed = trim(space.only("keep", ["none"]), facts(**known))
    tried = {(each.devices, each.channels) for each in trimmed.candidates.values()}
    assert tried == set(itertools.product(devices, channels))
    assert {reason for reason in trimmed.left_out if reason.startswith(("devices", "channels"))} >= {*reasons}


def test_nothing_left_is_an_error_with_the_reasons(space: Space) -> None:
    with pytest.raises(SpaceError, match="--max-workers"):
        trim(space, dataclasses.replace(FACTS, limits=Limits(workers=0)))


@pytest.mark.parametrize(
    ("cores", "gpus", "beyond"),
    [(2, 0, False), (2, 0, True), (16, 1, True), pytest.param(128, 8, True, marks=pytest.mark.slow)],
)
def test_of_every_machine_all_that_is_of_use_is_listed_in_the_end(cores: int, gpus: int, beyond: bool) -> None:
    known = facts(
        cores=cores,
        gpus=max(1, gpus),
        accelerator=gpus > 0,
        batch_size=128,
        fixed_bytes=(6 if beyond else 4) * GIB,
        memory_bytes=(4 if beyond else 64) * GIB,
        limits=Limits(convert=False),
    )
    space = library.load("default", {"cores": cores, "gpus": gpus})
    trimmed = trim(space, known)
    assert len(trimmed.candidates) <= feasible.MOST_CANDIDATES
    knobs: Params = {"threads.workers": cores, "threads.queue_size": 8, "threads.read_ahead": 0}
    there: Params = {**THREADS, **knobs, "devices": max(1, gpus)}
    caches: list[Params] = [{"keep": "none"}, {"keep": "memory:50%" if beyond else "memory"}]
    prefetch = (0, 2) if gpus else (0,)
    for cache, finish, ahead in itertools.product(caches, ("device", "host"), prefetch):
        wanted = to_config({**there, **cache, "finish": finish, "channels": "last", "device_prefetch": ahead})
        assert trimmed.whole > len(trimmed.candidates) or wanted.key() in trimmed.candidates
    # Once the model and the reads are measured, all of what is left is listed.
    usual: dict[tuple[str, Value], str] = {
        ("channels", "first"): "",
        ("steps_per_execution", 8): "",
        ("steps_per_execution", 32): "",
    }
    measured: dict[str, Any] = {"reads_at_once": 1, "workers_at_once": cores}
    left = feasible.narrowed(trimmed, dataclasses.replace(known, pointless=usual, **measured))
    assert left.whole == len(left.candidates)
    workers = {each.loader.worker_count() for each in left.candidates.values() if each.loader.kind == "threads"}
    assert workers == {count for count in space["threads.workers"].values if int(count) <= 2 * cores}


def test_of_a_space_too_large_to_list_some_are_listed_always_the_same(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trim(space, FACTS)
    monkeypatch.setattr(feasible, "MOST_CANDIDATES", 2 * len(whole.candidates) // 3)
    some = trim(space, FACTS)
    assert len(some.candidates) <= feasible.MOST_CANDIDATES
    assert some.whole == len(whole.candidates)
    assert some.candidates.keys() < whole.candidates.keys()
    assert trim(space, FACTS).candidates == some.candidates


def test_workers_elsewhere_are_tried_up_to_twice_as_many_as_are_of_use_there(
    elsewhere: Callable[[int], PipelineConfig],
) -> None:
    configs = {count: elsewhere(count) for count in (2, 4, 5, 16)}
    known = facts(workers_elsewhere=2)
    assert [count for count, config in configs.items() if why_not(config, known) is None] == [2, 4]
    assert why_not(configs[16], facts(workers_at_once=2)) is None
    assert why_not(configs[16], known.unmeasured) is None


def test_knobs_without_effect_here_make_one_candidate(space: Space) -> None:
    without = dataclasses.replace(FACTS, accelerator=False)
    merged = trim(space, without)
    assert {each.device_prefetch for each in trim(space, FACTS).candidates.values()} == {0, 2}
    assert {each.device_prefetch for each in merged.candidates.values()} == {0}
    assert any(reason.startswith("device_prefetch: makes no difference") for reason in merged.left_out)
    two = trim(space.only("device_prefetch", [2]), without)
    assert {each.device_prefetch for each in two.candidates.values()} == {2}


# ---------------------------------------------------------------- setups of the model


def test_setups_that_share_a_process_stay_together_the_usual_one_is_first_and_many_steps_are() -> None:
    found = feasible.ordered(itertools.starmap(ModelSetup, itertools.product((4, 1), ("first", "last"), ("host",))))
    assert [setup[:2] for setup in found] == [(1, "last"), (1, "first"), (4, "last"), (4, "first")]
    finishes = feasible.ordered(ModelSetup(count, "last", finish) for finish in ("host", "device") for count in (4, 1))
    assert finishes == [ModelSetup(count, "last", finish) for count in (1, 4) for finish in ("device", "host")]
    steps = feasible.ordered(ModelSetup(steps_per_execution=count) for count in (8, 32, 1))
    assert [setup.steps_per_execution for setup in steps] == [1, 32, 8]


def ceilings(setting: str, rates: dict[Any, float], **others: str) -> list[Ceiling]:
    """Return the model alone at these values of a setting."""
    return [
        Ceiling(
            model_images_per_second=Estimate(value=rate, low=rate, high=rate),
            model_core_seconds_per_image=0.0,
            **{**ModelSetup()._asdict(), **others, setting: value},
        )
        for value, rate in rates.items()
    ]


NO_FASTER = "the model alone is no faster with it: {} times the rate of {}"
NO_TIME = "there was no time to measure the model alone with it"
FROM_TWO = NO_FASTER.format("1.03", "devices 2")
FROM_ONE = NO_FASTER.format("1.01", "steps_per_execution 1")
FROM_USUAL = NO_FASTER.format("1.01", "channels last")


@pytest.mark.parametrize(
    ("setting", "values", "rates", "useless"),
    [
        # More devices stop where they no longer pay; none is tried on the assumption that it does.
        ("devices", [1, 2, 4, 8], {1: 1000, 2: 1800, 4: 1850}, {4: FROM_TWO, 8: FROM_TWO}),
        ("devices", [1, 2, 4, 8], {1: 1000, 8: 5000}, {2: NO_TIME, 4: NO_TIME}),
        ("channels", ["last", "first"], {"last": 1000, "first": 1010}, {"first": FROM_USUAL}),
        ("channels", ["last", "first"], {"last": 1000, "first": 1200}, {}),
        # Several steps by one call have to pay, and fewer are not tried if the most do not. On a machine that changes
        # its speed by a sixth, noise hides the gain of eight, and not that of 32. Without measuring none is tried.
        ("steps_per_execution", [1, 8, 32], {1: 1000, 32: 1010}, {8: FROM_ONE, 32: FROM_ONE}),
        ("steps_per_execution", [1, 8, 32], {1: 1000, 32: 1510}, {8: NO_TIME}),
        ("steps_per_execution", [1, 8, 32], {1: 1000, 8: 1010, 32: 1900}, {8: FROM_ONE}),
        ("steps_per_execution", [1, 8, 32], {1: 1000, 8: 1500}, {32: NO_TIME}),
        ("steps_per_execution", [1, 8, 32], {}, {}),
    ],
)
def test_a_setup_has_to_make_the_model_faster(
    setting: str, values: list[Value], rates: dict[Value, float], useless: dict[Value, str]
) -> None:
    wanted = [ModelSetup()._replace(**{setting: value}) for value in values]  # type: ignore[arg-type]  # any of them
    found = feasible.useless(ceilings(setting, rates), wanted)
    assert found == {(setting, value): reason for value, reason in useless.items()}
    assert [setup for setup in wanted if feasible.hopeless(setup, found)] == [
        setup for setup, value in zip(wanted, values, strict=True) if value in useless
    ]
    assert feasible.useless(ceilings(setting, rates), wanted, named=[setting]) == {}


@pytest.mark.parametrize(("batch_size", "left"), [(4, {1, 32}), (32, {1})])
def test_several_steps_a_call_are_for_short_steps(batch_size: int, left: set[int]) -> None:
    wanted = [ModelSetup(steps_per_execution=count) for count in (1, 32)]
    known = ceilings("steps_per_execution", {1: 1000, 32: 1900})
    found = feasible.useless(known, wanted, batch_size=batch_size)
    assert {each.steps_per_execution for each in wanted if not feasible.hopeless(each, found)} == left
    assert feasible.useless(known, wanted, ["steps_per_execution"], batch_size) == {}


def test_setups_are_compared_that_else_are_alike() -> None:
    measured = [*ceilings("devices", {1: 1000, 2: 1500}), *ceilings("devices", {1: 2000}, finish="host")]
    setups = [ModelSetup(1), ModelSetup(2)]
    assert feasible.useless(measured, setups, measuring=True) == {}  # 1.5 times the same finish on one device
