"""The meaning of a space on a machine. Reading it from a file is tested in tests/unit/search/test_library.py."""

from __future__ import annotations

import random

import pytest

from autopipe.core.params import Value, from_config, to_config
from autopipe.core.space import Space, SpaceSpec, resolve
from autopipe.errors import ConfigError, SpaceError
from tests.fakes.spaces import holds

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
            "cache": ["none", "memory"],
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
    with pytest.raises(SpaceError, match="`storage` cannot be 'jpeg-array'"):
        space({"loader": ["threads"], "storage": ["jpeg-array"]})
    with pytest.raises(SpaceError, match="`core` is no number"):
        space({"loader": ["threads"], "device_prefetch": ["cores-core"]})


def test_true_is_not_one() -> None:
    parameter = space({"loader": ["keras"], "keras.use_multiprocessing": [True, False]})["keras.use_multiprocessing"]
    assert parameter.values == (True, False)
    with pytest.raises(SpaceError, match="may be"):
        space({"loader": ["keras"], "devices": [1]}).only("devices", [True])


def test_grid_holds_each_combination_once_and_only_knobs_that_count() -> None:
    grid = list(two_loaders().grid())
    assert len(grid) == (4 + 2) * 2
    assert len({tuple(sorted(params.items())) for params in grid}) == len(grid)
    assert all(("keras.workers" in params) == (params["loader"] == "keras") for params in grid)


def test_samples_lie_in_the_space() -> None:
    rng = random.Random(0)
    assert all(holds(two_loaders(), two_loaders().sample(rng)) for _ in range(50))


def test_only_limits() -> None:
    assert two_loaders().only("loader", ["keras"])["loader"].values == ("keras",)
    with pytest.raises(SpaceError, match="Did you mean `cache`"):
        two_loaders().only("cach", ["none"])


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"cache": ["none"]}, "`loader` is missing"),
        ({"loader": ["thread"]}, "Did you mean `threads`"),
        ({"loader": ["threads"], "threads.worker": [1]}, "Did you mean `threads.workers`"),
        ({"loader": ["threads"], "threads.workers": [0]}, "cannot be 0"),
        ({"loader": ["threads"], "cache": ["memroy"]}, "Did you mean `memory`"),
        ({"loader": ["threads"], "storage": ["tfrecords"]}, "Did you mean `tfrecord`"),
        ({"loader": ["threads"], "threads.workers": {"range": [1, "core"]}}, "Did you mean `cores`"),
        ({"loader": ["threads"], "threads.workers": {"range": [0, 4], "log": True}}, "starts at 0"),
        ({"loader": ["threads"], "threads.workers": {"range": [1, 999999]}}, "log: true"),
        ({"loader": ["threads"], "cache": {"choices": ["none"], "when": {"loder": "threads"}}}, "`loader`"),
        ({"loader": ["threads"], "cache": {"choices": ["none"], "when": {"loader": "keras"}}}, "never 'keras'"),
        ({"cache": {"choices": ["none"], "when": {"loader": "threads"}}, "loader": ["threads"]}, "no earlier"),
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
        to_config({"cache": "none"})
