"""Each reason for leaving a configuration out; and that whatever can run is kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autopipe.errors import SpaceError
from autopipe.measure.facts import Facts, Impossible, Limits
from autopipe.search import space as spaces
from autopipe.search.feasible import candidates, trim, why_not
from autopipe.search.space import Params, Space, to_config
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
MANY: Params = {"threads.workers": 512, "finish": "device"}
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
        (MANY, {"compact_bytes": 0.0006}, "queue: its batches take more than the 8 GiB of memory that are free"),
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
    ("known", "listed"),
    [
        ({}, False),
        ({"limits": Limits(only={"loader": ("threads", "resident")})}, True),
        ({"device_bytes": 4 * GIB}, True),
        ({"device_bytes": 2 * GIB}, False),
    ],
)
def test_samples_are_kept_on_an_accelerator_with_room_or_where_asked_for(known: dict[str, Any], listed: bool) -> None:
    space = spaces.load("exhaustive", {"cores": 4, "gpus": 1}).only("loader", ["threads", "resident"])
    small = space.only("steps_per_execution", [1]).only("channels", ["last"]).only("device_prefetch", [2])
    small = small.only("threads.queue_size", [8]).only("threads.read_ahead", [0])

    def is_tried(**more: int) -> bool:
        return any(each.loader.kind == "resident" for each in candidates(small, facts(**known, **more)).values())

    assert is_tried() == listed
    if listed:
        assert is_tried(model_device_bytes=2 * GIB) == ("device_bytes" not in known)  # the model has taken its room


def test_what_is_not_known_leaves_nothing_out() -> None:
    for params in (THREADS, PROCESSES, TFDATA, {**THREADS, "keep": "array+memory"}):
        assert why_not(to_config(params), made.facts()) is None


def test_a_cut_that_saves_room_is_tried_and_a_part_is_cached_only_where_the_whole_does_not_fit() -> None:
    space = spaces.parse(CUT_SPACE)({"cores": 2, "gpus": 0})
    usual, cuts, tight = (
        [each.kept for each in candidates(space, known).values()]
        for known in (FACTS, facts(cuts=CUTS), facts(fixed_bytes=12 * GIB))
    )
    assert {each.cut for each in usual} == {"deepest"}
    assert {each.cut for each in cuts if each.converts} == {"deepest", 2}
    assert [{each.part for each in kept if each.in_memory} for kept in (usual, tight)] == [{1.0}, {0.25, 0.5}]
    assert trim(space, facts(cuts=CUTS)).asked == space


def test_trim_counts_what_it_leaves_out_by_reason(space: Space) -> None:
    trimmed = trim(space, dataclasses.replace(FACTS, limits=Limits(only={"loader": ("threads", "tfdata")})))
    reasons = trimmed.left_out
    assert reasons["loader processes, keras: not in `--only`"] == 0  # they limit the space
    assert trimmed.space["loader"].values == ("threads", "tfdata")
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
    space = spaces.load("default", {"cores": 2, "gpus": known["gpus"]}).only("loader", ["threads"])
    trimmed = trim(space.only("keep", ["none"]), facts(**known))
    assert (set(trimmed.space["devices"].values), set(trimmed.space["channels"].values)) == (devices, channels)
    assert {reason for reason in trimmed.left_out if reason.startswith(("devices", "channels"))} >= {*reasons}


def test_nothing_left_is_an_error_with_the_reasons(space: Space) -> None:
    said = r"can run here: more than 0 workers: `--max-workers`; tfdata with auto workers: [^;]*\.$"
    with pytest.raises(SpaceError, match=said):
        trim(space, dataclasses.replace(FACTS, limits=Limits(workers=0)))


def test_knobs_without_effect_here_have_one_value(space: Space) -> None:
    without = dataclasses.replace(FACTS, accelerator=False)
    merged = trim(space, without)
    assert trim(space, FACTS).space["device_prefetch"].values == (0, 2)
    assert merged.space["device_prefetch"].values == (0,)
    assert any(reason.startswith("device_prefetch: makes no difference") for reason in merged.left_out)
    assert trim(space.only("device_prefetch", [2]), without).space["device_prefetch"].values == (2,)
