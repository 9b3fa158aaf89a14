"""Each reason for leaving a configuration out; that whatever can run is kept; and what a race measures and takes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from autopipe.errors import SpaceError
from autopipe.measure.facts import Facts, Impossible, Limits
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import space as spaces
from autopipe.search.feasible import candidates, trim, why_not
from autopipe.search.race import Race
from autopipe.search.space import Params, Space, from_config, to_config
from tests.fakes import facts as made
from tests.unit.search.conftest import some

GIB = 2**30
BYTES = {"memory_bytes": 8 * GIB, "disk_bytes": 10 * GIB, "fixed_bytes": 3 * GIB, "compact_bytes": 150_528}
USUAL = {"cores": 4, **BYTES, "finished_bytes": 602_112}
CUTS = {"array": {1: 4 * GIB, 2: 1 * GIB, 3: 3 * GIB}}
THREADS: Params = {"loader": "threads", "threads.workers": 2, "threads.queue_size": 4}
PROCESSES: Params = {"loader": "processes", "processes.workers": 2, "processes.queue_size": 4}
RESIDENT: Params = {"loader": "resident", "resident.workers": 2}
TFDATA: Params = {"loader": "tfdata", "tfdata.num_parallel_calls": "auto", "tfdata.prefetch": "auto"}


def facts(**known: Any) -> Facts:
    return made.facts(**{**USUAL, **known})


FACTS = facts()
NEEDS_BOTH = "keep memory: needs 6 GiB for training's and 3 GiB for validation's samples, 8 GiB free"
SHORT, ON_DEVICE = {"fixed_bytes": 6, "validation": 1000}, {"device_bytes": 6, "model_device_bytes": 4}
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
        (WHOLE, SHORT, NEEDS_BOTH),
        (WHOLE, {"fixed_bytes": 6}, None),
        ({"keep": "memory:50%"}, SHORT, None),
        ({"keep": "memory:50%"}, {"validation": 1000}, "keep memory:50%: there is room for all samples"),
        (TFRECORD, Limits(convert=False), "keep tfrecord: must be converted first, which needs `--convert`, or `-"),
        ({}, Limits(workers=1), "more than 1 workers: `--max-workers`"),
        (TFDATA, Limits(workers=1), "tfdata with auto workers: `--max-workers 1` cannot limit them"),
        (WHOLE, Limits(memory_bytes=2 * GIB), "cache and queue need more than `--max-memory` 2 GiB"),
        (TFDATA, {"impossible": (NO_TFDATA,)}, "loader tfdata: no TensorFlow"),
        (RESIDENT, {"device_bytes": 4}, None),
        (RESIDENT, {}, None),  # without an accelerator, as the user has asked for it
        (RESIDENT, ON_DEVICE, "loader resident: needs 3 GiB on the device, 2 GiB fr"),
        (RESIDENT, {"memory_bytes": 3}, "loader resident: makes the samples in memory, which takes 3 GiB, 3 GiB free"),
        ({**RESIDENT, "devices": 2}, {"gpus": 2}, "loader resident: keeps samples on one device"),
    ],
)
def test_what_cannot_run_has_a_reason(params: Params, known: dict[str, Any] | Limits, reason: str | None) -> None:
    told: dict[str, Any] = {"limits": known} if isinstance(known, Limits) else known
    told = {name: int(value * GIB) if name.endswith("_bytes") else value for name, value in told.items()}
    found = why_not(to_config({**THREADS, **params} if "loader" not in params else params), facts(**told))
    assert found is None if reason is None else some(found).startswith(reason)


def test_what_is_not_known_leaves_nothing_out() -> None:
    for params in (THREADS, PROCESSES, TFDATA, {**THREADS, "keep": "array+memory"}):
        assert why_not(to_config(params), made.facts()) is None


def test_samples_are_kept_on_an_accelerator_with_room_or_where_asked_for() -> None:
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"limits": Limits(only={"loader": ("threads", "resident")})}, True),
        ({"device_bytes": 4 * GIB}, True),
        ({"device_bytes": 4 * GIB, "model_device_bytes": 2 * GIB}, False),  # the model has taken its room
        ({"device_bytes": 2 * GIB}, False),
    ]
    for known, listed in cases:
        space = spaces.load("exhaustive", {"cores": 4, "gpus": 1}).only("loader", ["threads", "resident"])
        small = space.only("steps_per_execution", [1]).only("channels", ["last"]).only("device_prefetch", [2])
        small = small.only("threads.queue_size", [8]).only("threads.read_ahead", [0])
        kinds = {each.loader.kind for each in candidates(small, facts(**known)).values()}
        assert ("resident" in kinds) == listed


NO_GPU = {"gpus": 1, "gpus_reason": "no accelerator", "pointless": {("channels", "first"): "no accelerator"}}
BUILT = Impossible(parameter="devices", value=2, reason="the model is built already")
NO_IMAGE = Impossible(parameter="channels", value="first", reason="no image")
NEITHER = ["devices 2: the model is built already", "channels first: no image"]
ODD = "devices 3: a batch of 32 cannot be shared out evenly"


def test_devices_and_channels_are_tried_where_they_can_be_and_else_it_is_said_why() -> None:
    cases: list[tuple[dict[str, Any], set[int], set[str], list[str]]] = [
        (NO_GPU, {1}, {"last"}, ["devices > 1: no accelerator", "channels first: no accelerator"]),
        # What the user asks for is tried, whether it pays or not.
        ({**NO_GPU, "limits": Limits(only={"channels": ("first",)})}, {1}, {"first"}, ["devices > 1: no accelerator"]),
        # All counts that share a batch are tried, and both orders.
        ({"gpus": 1, "gpus_reason": "one"}, {1}, {"last", "first"}, ["devices > 1: one"]),
        ({"gpus": 3}, {1, 2}, {"last", "first"}, [ODD]),
        ({"gpus": 4}, {1, 2, 4}, {"last", "first"}, []),
        ({"gpus": 32}, {1, 2, 4, 8, 16, 32}, {"last", "first"}, []),
        ({"gpus": 2, "impossible": (BUILT, NO_IMAGE)}, {1}, {"last"}, NEITHER),
    ]
    for known, devices, channels, reasons in cases:
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


Rate = Callable[[PipelineConfig], float | None]


def workers(config: PipelineConfig) -> int:
    return config.loader.worker_count() or 16


def race(
    rate: Rate, space: Space | None = None, *, enough: float = math.inf, most: int = 999
) -> tuple[Race, list[PipelineConfig]]:
    """Return a race over a machine of 16 cores, and the configurations that it has measured, in order."""
    ran: list[PipelineConfig] = []

    def measure(config: PipelineConfig) -> float | None:
        ran.append(config)
        return rate(config)

    found = Race(
        space=space or spaces.load("default", {"cores": 16, "gpus": 1}).only("keep", ["none", "memory", "encoded"]),
        cores=16,
        allowed=lambda config: True,
        measure=measure,
        cost=lambda config: (float(workers(config)), float(config.kept.in_memory)),
        over=lambda: len(ran) >= most,
        enough=enough,
    )
    return found, ran


def locked(config: PipelineConfig) -> float:
    """A Python op in the way: threads take turns, and processes do not."""
    free = config.loader.kind == "processes"
    return 100.0 * min(workers(config), 16) / (1.0 if free else 1 + 0.5 * (workers(config) - 1))


def cached(config: PipelineConfig) -> float:
    """Decoding takes ten times what all else takes."""
    return 100.0 * min(workers(config), 16) * (10.0 if config.keep == "memory" else 1.0)


def waiting(config: PipelineConfig) -> float:
    """Reads of 20 ms, and nothing else that matters."""
    return 50.0 * (config.loader.reads_at_once() or 16) if config.keep == "none" else 1.0


def locked_until_cached(config: PipelineConfig) -> float:
    """A Python op in the way as long as samples are made; threads hand over most cheaply what is kept."""
    makes = config.keep == "none"
    return locked(config) if makes else {"threads": 90_000.0, "processes": 60_000.0}.get(config.loader.kind, 9_000.0)


def test_loaders_are_told_apart_by_what_was_measured() -> None:
    cases: list[tuple[Rate, Params]] = [
        (locked_until_cached, {"loader": "threads", "keep": "memory"}),
        (locked, {"loader": "processes", "processes.workers": 16}),
        (cached, {"keep": "memory"}),
        (waiting, {"threads.read_ahead": 512}),
    ]
    for rate, wanted in cases:
        found, _ = race(rate)
        found.of_loaders()
        best, top = some(found.best())
        assert from_config(best).items() >= wanted.items()
        assert top == rate(best)
        by_trials, _ = race(rate)
        by_trials.of_trainings()
        assert from_config(some(by_trials.best())[0]).items() >= wanted.items()


def test_what_makes_enough_ends_the_race_and_fewer_workers_are_taken_as_long_as_they_do() -> None:
    found, ran = race(cached, enough=5_000.0)
    found.of_loaders()
    assert len(ran) < 12
    found.fewer()
    best, rate = some(found.best())
    assert (best.keep, workers(best)) == ("memory", 8)
    assert rate >= 5_000.0


def test_nothing_runs_twice_what_fails_is_left_alone_and_among_equals_the_cheapest_is_the_best() -> None:
    found, ran = race(lambda config: None if config.loader.kind == "threads" else locked(config))
    found.of_loaders()
    assert len({each.key() for each in ran}) == len(ran)
    assert some(found.best())[0].loader.kind == "processes"
    assert [each.loader.kind for each in ran].count("threads") == 1
    nothing, ran = race(lambda config: None)
    nothing.of_trainings()
    assert (nothing.best(), nothing.ranked(), len(ran) > 0) == (None, [], True)
    equal, _ = race(lambda config: 1000.0)
    equal.of_loaders()
    assert workers(some(equal.best())[0]) == 4  # a quarter of the cores, the fewest that are compared


def test_one_is_measured_though_the_time_is_over_and_the_race_knows_that_it_was_cut() -> None:
    cut, ran = race(cached, most=0)
    races = cut, race(cached)[0], race(cached, enough=5_000.0)[0]
    for each in races:
        each.of_loaders()
    assert ([each.is_cut for each in races], len(ran)) == ([True, False, False], 1)


@pytest.mark.parametrize(
    ("reads", "workers", "room", "wanted"),
    [
        (59, None, math.inf, {"threads.read_ahead": 128, "threads.workers": 16}),
        (59, 150, math.inf, {"threads.read_ahead": 128, "threads.workers": 16}),  # they wait for reads
        (1, 150, math.inf, {"threads.read_ahead": 0, "threads.workers": 128}),
        (1, 150, 99, {"threads.workers": 16}),
        (1, 40, math.inf, {"threads.workers": 16}),  # they wait a little
    ],
)
def test_a_race_begins_with_what_is_of_use(reads: int, workers: int | None, room: float, wanted: Params) -> None:
    found, ran = race(waiting)
    found.reads, found.workers = reads, workers
    found.allowed = lambda config: (config.loader.worker_count() or 0) <= room
    found.of_trainings()
    assert from_config(ran[0]).items() >= wanted.items()
    assert [from_config(each)["processes.workers"] for each in found.usuals()[1:2]] == [16]
