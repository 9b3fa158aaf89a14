"""A space on a machine and the bounds in it. Reading it from a file: tests/unit/search/test_library.py."""

from __future__ import annotations

import pytest

from autopipe.errors import ConfigError, SpaceError
from autopipe.pipeline.config import Value, from_config, to_config
from autopipe.pipeline.space import BoundError, Space, SpaceSpec, evaluate, resolve
from tests.fakes import surface  # noqa: F401  # the knobs of its loader

NAMES = {"cores": 4, "gpus": 0}


def space(parameters: dict[str, object], names: dict[str, int] = NAMES) -> Space:
    return resolve(SpaceSpec.model_validate({"schema_version": 1, "parameters": parameters}), names)


def two_loaders() -> Space:
    return space(
        {
            "loader": ["threads", "keras"],
            "threads.workers": {"range": [1, "cores"], "when": {"loader": "threads"}},
            "threads.queue_size": {"choices": [2], "when": {"loader": "threads"}},
            "keras.workers": {"choices": [1, "2*cores"], "when": {"loader": ["keras"]}},
            "keep": ["none", "memory"],
        }
    )


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ({"range": [1, "cores"]}, (1, 2, 3, 4)),
        ({"range": [0, 9], "step": 4}, (0, 4, 8)),
        ({"range": [1, 20], "log": True}, (1, 2, 3, 4, 6, 8, 12, 16, 20)),
        ({"range": [5, 7], "log": True}, (5, 6, 7)),
        ({"range": [1, "gpus"]}, (1,)),
        ([2, "cores", "2*cores", 4], (2, 4, 8)),
        ([1, "cores-1", "cores - 2"], (1, 3, 2)),
    ],
)
def test_values_of_a_parameter(written: object, values: tuple[Value, ...]) -> None:
    assert space({"loader": ["threads"], "device_prefetch": written})["device_prefetch"].values == values


def test_a_word_is_a_choice_and_a_name_is_a_bound() -> None:
    calls = space({"loader": ["tfdata"], "tfdata.num_parallel_calls": ["auto", "cores"]})["tfdata.num_parallel_calls"]
    assert calls.values == ("auto", 4)


def test_a_word_with_a_dash_is_a_word_unless_it_names_a_bound() -> None:
    with pytest.raises(SpaceError, match="`keep` cannot be 'jpeg-array'"):
        space({"loader": ["threads"], "keep": ["jpeg-array"]})
    with pytest.raises(SpaceError, match="`core` is no number"):
        space({"loader": ["threads"], "device_prefetch": ["cores-core"]})


def test_true_is_not_one() -> None:
    parameter = space({"loader": ["keras"], "keras.use_multiprocessing": [True, False]})["keras.use_multiprocessing"]
    assert parameter.values == (True, False)
    with pytest.raises(SpaceError, match="may be"):
        space({"loader": ["keras"], "devices": [1]}).only("devices", [True])


def test_grid_holds_each_combination_once_and_only_knobs_that_count() -> None:
    grid = list(two_loaders().grid())
    assert len(grid) == (4 + 2) * len(two_loaders()["keep"].values)
    assert len({tuple(sorted(params.items())) for params in grid}) == len(grid)
    assert all(("keras.workers" in params) == (params["loader"] == "keras") for params in grid)


def test_only_limits() -> None:
    assert two_loaders().only("loader", ["keras"])["loader"].values == ("keras",)
    with pytest.raises(SpaceError, match="Did you mean `keep`"):
        two_loaders().only("kepe", ["none"])


def test_a_place_in_a_condition_stands_for_its_parts() -> None:
    written = {"choices": [0, 8], "when": {"keep": ["none", "memory"]}}
    keep = ["none", "memory", "memory:50%", "memory:1", "encoded", "array", "array+memory"]
    ((_, where),) = space({"loader": ["threads"], "keep": keep, "threads.read_ahead": written})[
        "threads.read_ahead"
    ].when
    assert where == ("none", "memory", "memory:50%", "memory:1")


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"keep": ["none"]}, "`loader` is missing"),
        ({"loader": ["thread"]}, "Did you mean `threads`"),
        ({"loader": ["threads"], "threads.worker": [1]}, "Did you mean `threads.workers`"),
        ({"loader": ["threads"], "threads.workers": [0]}, "cannot be 0"),
        ({"loader": ["threads"], "keep": ["memroy"]}, "Did you mean `memory`"),
        ({"loader": ["threads"], "keep": ["tfrecords"]}, "Did you mean `tfrecord`"),
        ({"loader": ["threads"], "threads.workers": {"range": [1, "core"]}}, "Did you mean `cores`"),
        ({"loader": ["threads"], "threads.workers": {"range": [0, 4], "log": True}}, "starts at 0"),
        ({"loader": ["threads"], "threads.workers": {"range": [1, 999999]}}, "log: true"),
        ({"loader": ["threads"], "threads.workers": {"range": [8, 2]}}, r"from 8 down to 2; write \[2, 8\]"),
        ({"loader": ["threads"], "threads.workers": {"range": ["2*4", 2], "log": True}}, "from 8 down to 2"),
        ({"loader": ["threads"], "keep": {"choices": ["none"], "when": {"loder": "threads"}}}, "`loader`"),
        ({"loader": ["threads"], "keep": {"choices": ["none"], "when": {"loader": "keras"}}}, "never 'keras'"),
        ({"keep": {"choices": ["none"], "when": {"loader": "threads"}}, "loader": ["threads"]}, "no earlier"),
    ],
)
def test_a_mistake_is_named_with_its_parameter(parameters: dict[str, object], problem: str) -> None:
    with pytest.raises(SpaceError, match=problem):
        space(parameters)


def test_parameters_and_configuration_turn_into_each_other() -> None:
    for params in two_loaders().grid():
        config = to_config(params)
        assert params.items() <= from_config(config).items()
        assert to_config(from_config(config)) == config


def test_parameters_without_a_loader_are_no_configuration() -> None:
    with pytest.raises(ConfigError, match="`loader` is missing"):
        to_config({"keep": "none"})


AHEAD: dict[str, object] = {
    "loader": ["threads"],
    "threads.workers": {"range": [1, "workers_beside_reads"]},
    "threads.read_ahead": [0, "reads_at_once", "2*reads_at_once"],
    "threads.queue_size": {"choices": [2], "when": {"threads.read_ahead": [0]}},
}


def test_what_is_measured_may_bound_a_parameter() -> None:
    found = space(AHEAD, {"cores": 2})
    assert found["threads.workers"].values == (1, 2)  # as long as nothing is known to wait
    assert found["threads.read_ahead"].values == (0, 1, 2)
    measured = found.measured({"reads_at_once": 24, "workers_at_once": 9, "workers_beside_reads": 4})
    assert measured["threads.workers"].values == (1, 2, 3, 4)
    assert measured["threads.read_ahead"].values == (0, 24, 48)
    assert measured["threads.queue_size"] == found["threads.queue_size"]
    assert not measured.unmeasured


def test_a_value_that_may_turn_out_to_be_measured_can_be_asked_for() -> None:
    found = space(AHEAD, {"cores": 2}).only("threads.read_ahead", [24])
    assert found.measured({"reads_at_once": 24}).only("threads.read_ahead", [24])["threads.read_ahead"].values == (24,)


def test_a_measured_bound_that_its_parameter_cannot_take_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"threads.read_ahead: `threads.read_ahead` cannot be 1400"):
        space(AHEAD, {"cores": 2}).measured({"reads_at_once": 700})


@pytest.mark.parametrize("written", [[0, "read_at_once"], {"range": [0, "read_at_once"]}])
def test_a_bound_that_is_not_there_is_refused_with_the_near_one(written: object) -> None:
    with pytest.raises(SpaceError, match=r"read_at_once.*Did you mean `reads_at_once`\?"):
        space({"loader": ["threads"], "threads.read_ahead": written}, {"cores": 2})


SIX_CORES = {"cores": 6, "gpus": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("cores", 6),
        (" 2*cores ", 12),
        ("1 + 2*cores - 3", 10),
        ("(1 + 2)*cores", 18),
        ("cores//4", 1),
        ("2*cores//4*3", 9),
        ("max(1, gpus)", 1),
        ("min(16, max(cores, 2))", 6),
    ],
)
def test_a_bound_is_computed(text: str, expected: int) -> None:
    assert evaluate(text, SIX_CORES) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "but this one is ``"),
        ("2*core", "Did you mean `cores`"),
        ("2 cores", "but this one is `2 cores`"),
        ("cores/2", "`cores / 2` is none of them"),
        ("-cores", "`-cores` is none of them"),
        ("cores**9", "none of them"),
        ("2.5", "`2.5` is none of them"),
        ("True", "`True` is none of them"),
        ("cores//gpus", "divides by zero"),
        ("max(1)", r"`max\(1\)` is none of them"),
        ("max(*cores, 1)", "none of them"),
        ("(1", "but this one is"),
        ("__import__('os')", "none of them"),
        ("cores.real", "none of them"),
        ("cores\0", "but this one is"),
        ("1" * 81, "at most 80"),
    ],
)
def test_what_is_no_bound_is_named(text: str, problem: str) -> None:
    with pytest.raises(BoundError, match=problem):
        evaluate(text, SIX_CORES)
