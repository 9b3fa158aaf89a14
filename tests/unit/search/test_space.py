"""A space on a machine and its bounds. As files: what comes along is sound, and a mistake is found in its line."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from autopipe.errors import ConfigError, SpaceError
from autopipe.pipeline.config import LOADERS, SettingValue
from autopipe.search import space as spaces
from autopipe.search.space import Space, SpaceSpec, from_config, resolve, to_config
from tests.fakes import surface  # noqa: F401  # the knobs of its loader
from tests.fakes.reports import Approved, refusal

NAMES = {"cores": 4, "gpus": 0}


def space(parameters: dict[str, object], names: dict[str, int] = NAMES) -> Space:
    return resolve(SpaceSpec.model_validate({"schema_version": 1, "parameters": parameters}), names)


def two_loaders() -> Space:
    return space(
        {
            "loader": ["threads", "keras"],
            "threads.workers": {"range": [1, "cores"], "when": {"loader": "threads"}},
            "threads.queue_size": {"choices": [2], "when": {"loader": "threads"}},
            "keras.workers": {"choices": [1, "cores*2"], "when": {"loader": ["keras"]}},
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
        ({"range": [2, "gpus"]}, (2,)),
        ({"range": [1, 2, "cores+1"]}, (1, 2, 3, 4, 5)),
        ([2, "cores", "cores*2", 4], (2, 4, 8)),
        ([1, "cores-1", "cores/2", "cores/4"], (1, 3, 2)),
    ],
)
def test_values_of_a_parameter(written: object, values: tuple[SettingValue, ...]) -> None:
    assert space({"loader": ["threads"], "device_prefetch": written})["device_prefetch"].values == values


def test_a_word_is_a_choice_and_a_name_is_a_bound() -> None:
    calls = space({"loader": ["tfdata"], "tfdata.num_parallel_calls": ["auto", "cores"]})["tfdata.num_parallel_calls"]
    assert calls.values == ("auto", 4)


def test_a_word_with_a_dash_is_a_word_unless_it_names_a_bound() -> None:
    with pytest.raises(SpaceError, match="`keep` cannot be 'jpeg-array'"):
        space({"loader": ["threads"], "keep": ["jpeg-array"]})
    with pytest.raises(SpaceError, match="this one is 'cores-core'"):
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
    keep = ["none", "memory", "memory:50%", "encoded", "array", "array+memory"]
    ((_, where),) = space({"loader": ["threads"], "keep": keep, "threads.read_ahead": written})[
        "threads.read_ahead"
    ].when
    assert where == ("none", "memory", "memory:50%")


MISTAKES: tuple[dict[str, object], ...] = (
    {"keep": ["none"]},
    {"loader": ["threads"], "threads.workers": [0]},
    {"loader": ["threads"], "keep": ["memroy"]},
    {"loader": ["threads"], "keep": ["tfrecords"]},
    {"loader": ["threads"], "threads.workers": {"range": [1, "core"]}},
    {"loader": ["threads"], "threads.workers": {"range": [1, "cores2"]}},
    {"loader": ["threads"], "threads.workers": {"range": [0, 4], "log": True}},
    {"loader": ["threads"], "threads.workers": {"range": [1, 999999]}},
    {"loader": ["threads"], "threads.workers": {"range": [8, 2]}},
    {"loader": ["threads"], "threads.workers": {"range": [8, 2], "log": True}},
    {"loader": ["threads"], "keep": {"choices": ["none"], "when": {"loder": "threads"}}},
    {"loader": ["threads"], "keep": {"choices": ["none"], "when": {"loader": "keras"}}},
    {"keep": {"choices": ["none"], "when": {"loader": "threads"}}, "loader": ["threads"]},
)


def test_mistakes(approved: Approved) -> None:
    approved({str(parameters): refusal(functools.partial(space, parameters)) for parameters in MISTAKES})


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    misspelt: tuple[dict[str, object], ...] = ({"loader": ["thread"]}, {"loader": ["threads"], "thraeds.workers": [1]})
    for parameters, nearest in zip(misspelt, ("threads", r"threads\.workers"), strict=True):
        with pytest.raises(SpaceError, match=f"Did you mean `{nearest}`"):  # and lists of what plugins have, too
            space(parameters)


def test_parameters_and_configuration_turn_into_each_other() -> None:
    for params in two_loaders().grid():
        config = to_config(params)
        assert params.items() <= from_config(config).items()
        assert to_config(from_config(config)) == config


def test_parameters_without_a_loader_are_no_configuration() -> None:
    with pytest.raises(ConfigError, match="`loader` is missing"):
        to_config({"keep": "none"})


@pytest.mark.parametrize("number", ["core", "2*cores", "cores*3", "cores - 1", "max(1, gpus)", "1+1", "", "cores.real"])
@pytest.mark.parametrize("key", ["range", "choices"])
def test_nothing_is_computed_from_names(key: str, number: str) -> None:
    with pytest.raises(SpaceError, match=r"threads\.workers.*(cores, cores\*2, |cannot be)"):
        space({"loader": ["threads"], "threads.workers": {key: [1, number]}})


def test_names_stand_for_at_least_one_and_no_more_than_a_loader_takes() -> None:
    written: dict[str, object] = {"loader": ["threads"], "threads.workers": ["cores/2", "cores*8", "gpus"]}
    assert space(written, {"cores": 1, "gpus": 0})["threads.workers"].values == (1, 8)
    assert space(written, {"cores": 600, "gpus": 2})["threads.workers"].values == (300, 1024, 2)


# ---------------------------------------------------------------- as files

HEAD = "schema_version: 1\nparameters:\n  loader: [threads]\n"
BOUNDS = {"cores": 2, "gpus": 0}


@pytest.mark.parametrize("name", sorted({"default", "exhaustive", "quick", *spaces.names()}))
@pytest.mark.parametrize("bounds", [{"cores": 1, "gpus": 0}, {"cores": 768, "gpus": 8}])
def test_each_shipped_space_makes_configurations_on_small_and_large_machines(name: str, bounds: dict[str, int]) -> None:
    space = spaces.load(name, bounds).only("devices", [1]).only("channels", ["last"])  # the others have to pay first
    grid = list(space.grid())
    assert 10 < len(grid) < 200_000
    for params in grid[:: len(grid) // 40 + 1]:
        to_config(params)


@functools.cache
def shipped() -> dict[str, Space]:
    return {name: spaces.load(name, BOUNDS) for name in spaces.names()}


@pytest.mark.parametrize("loader", [*LOADERS])
def test_a_loader_that_a_space_lacks_is_named_with_a_space_that_has_it(loader: str) -> None:
    named = shipped()
    having = [name for name, space in named.items() if loader in space["loader"].values]
    for name in having:
        spaces.require(named[name], "loader", [loader], BOUNDS)
    for space in [space for name, space in named.items() if name not in having][:1]:
        with pytest.raises(SpaceError, match=f"only .'{loader}'. was asked for") as caught:
            spaces.require(space, "loader", [loader], BOUNDS)
        assert (caught.value.hint is None) == (not having)
        assert not having or f"--space {having[0]}," in str(caught.value.hint)


def test_a_knob_of_a_loader_that_a_space_lacks_is_named_with_a_space_that_has_it() -> None:
    with pytest.raises(SpaceError, match=r"`processes\.read_ahead` is no parameter of this space") as caught:
        spaces.require(spaces.parse(HEAD)(BOUNDS), "processes.read_ahead", [0], BOUNDS)
    assert "--space default," in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parameters: [", r"line 1: this is no YAML"),
        ("- a", r"line 1: a search space is a mapping"),
        ("", r"a search space is a mapping"),
        (
            "schema_version: 1\nparamters: {}\n",
            r"line 2, `paramters`: there is no such key.* Did you mean `parameters`",
        ),
        ("schema_version: 1\n", r"`parameters` is missing"),
        ("schema_version: 2\nparameters: {loader: [threads]}", r"line 1, `schema_version`: should be 1"),
        (HEAD + "  keep:\n    chioces: [none]\n", r"line 5, `parameters.keep.chioces`.* Did you mean `choices`"),
        (HEAD + "  keep: none\n", r"line 4, `parameters.keep`: should be a list"),
        (
            HEAD + "  devices:\n    range: [1, 2.5]\n",
            r"line 5, `parameters.devices.range.1`: should be a valid integer",
        ),
        (HEAD + "  devices:\n    range: [8, 2]\n", r"line 4, `parameters.devices`: a `range` goes up, but .* from 8 "),
        (HEAD + "  devices:\n    log: true\n", r"line 4, `parameters.devices`: needs either"),
        (HEAD + "  keep: [none]\n  keep: [memory]\n", r"line 5: `parameters.keep` is there twice"),
        (HEAD + "  keep:\n    choices: [none]\n    when: {loader: thread}\n", r"line 6, .*Did you mean `threads`"),
        ("a: &x [1]\nb: *x\n", r"line 2: `\*x`.* no aliases"),
        ("a: !!python/object/apply:os.system [ls]", r"no YAML"),
        ("[" * 5000, r"no YAML|too deeply"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(text: str, problem: str) -> None:
    with pytest.raises(SpaceError, match=problem) as caught:
        spaces.parse(text, "mine.yaml")(BOUNDS)
    assert caught.value.message.startswith("mine.yaml")


def test_a_name_that_is_not_there_gets_the_near_one() -> None:
    with pytest.raises(SpaceError, match="Did you mean `default`"):
        spaces.load("defualt", BOUNDS)


def test_a_file_of_the_users_is_read_and_one_that_is_no_text_or_endless_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + "  keep: [none, memory]\n")
    assert len(list(spaces.load(str(file), BOUNDS).grid())) == 2
    for written, said in ((b"\xff\xfe\x00", r"mine\.yaml"), (b"#" * (1 << 19), "at most")):
        file.write_bytes(written)
        with pytest.raises(SpaceError, match=said):
            spaces.load(str(file), BOUNDS)
