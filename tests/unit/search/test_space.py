"""A space on a machine, its bounds and its file; and what a search is asked for, as it is written and asked again."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import pytest

from autopipe.artifact import artifact as files
from autopipe.errors import ConfigError, SpaceError
from autopipe.measure.facts import Limits
from autopipe.pipeline.config import LOADERS, SettingValue
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.search import space as spaces
from autopipe.search.searching import held
from autopipe.search.settings import Settings, as_options, request_of, retune_settings, simulation
from autopipe.search.space import Space, SpaceSpec, from_config, resolve, to_config
from tests.fakes import surface  # noqa: F401  # the knobs of its loader
from tests.fakes.profiles import artifact, profile
from tests.fakes.reports import Approved, refusal

NAMES = {"cores": 4, "gpus": 0}


def space(parameters: dict[str, object], names: dict[str, int] = NAMES) -> Space:
    return resolve(SpaceSpec.model_validate({"schema_version": 1, "parameters": parameters}), names)


def loaders() -> Space:
    return space(
        {
            "loader": ["threads", "keras", "tfdata"],
            "threads.workers": {"range": [1, "cores*2"], "when": {"loader": "threads"}},
            "threads.queue_size": {"choices": [2], "when": {"loader": "threads"}},
            "keras.workers": {"choices": [1, "cores/2"], "when": {"loader": ["keras"]}},
            "tfdata.num_parallel_calls": {"choices": ["auto"], "when": {"loader": "tfdata"}},
            "keep": ["none", "memory"],
        }
    )


def test_values_of_a_parameter() -> None:
    cases: list[tuple[object, tuple[SettingValue, ...]]] = [
        ({"range": [1, "cores"]}, (1, 2, 3, 4)),
        ({"range": [0, 9], "step": 4}, (0, 4, 8)),
        ({"range": [1, 20], "log": True}, (1, 2, 3, 4, 6, 8, 12, 16, 20)),
        ({"range": [5, 7], "log": True}, (5, 6, 7)),
        ({"range": [1, "gpus"]}, (1,)),
        ({"range": [2, "gpus"]}, (2,)),
        ({"range": [1, 2, "cores+1"]}, (1, 2, 3, 4, 5)),
        ([2, "cores", "cores*2", 4], (2, 4, 8)),
        ([1, "cores-1", "cores/2", "cores/4"], (1, 3, 2)),
    ]
    for written, values in cases:
        assert space({"loader": ["threads"], "device_prefetch": written})["device_prefetch"].values == values
    # Names stand for at least one, and for no more than a loader takes.
    bounds: dict[str, object] = {"loader": ["threads"], "threads.workers": ["cores/2", "cores*8", "gpus"]}
    assert space(bounds, {"cores": 1, "gpus": 0})["threads.workers"].values == (1, 8)
    assert space(bounds, {"cores": 600, "gpus": 2})["threads.workers"].values == (300, 1024, 2)


def test_a_word_is_a_choice_unless_it_names_a_bound_and_true_is_not_one() -> None:
    calls = space({"loader": ["tfdata"], "tfdata.num_parallel_calls": ["auto", "cores"]})["tfdata.num_parallel_calls"]
    assert calls.values == ("auto", 4)
    with pytest.raises(SpaceError, match="`keep` cannot be 'jpeg-array'"):
        space({"loader": ["threads"], "keep": ["jpeg-array"]})
    with pytest.raises(SpaceError, match="this one is 'cores-core'"):
        space({"loader": ["threads"], "device_prefetch": ["cores-core"]})
    parameter = space({"loader": ["keras"], "keras.use_multiprocessing": [True, False]})["keras.use_multiprocessing"]
    assert parameter.values == (True, False)
    with pytest.raises(SpaceError, match="may be"):
        space({"loader": ["keras"], "devices": [1]}).only("devices", [True])


def test_grid_holds_each_combination_once_and_only_knobs_that_count_and_turns_into_configurations() -> None:
    grid = list(loaders().grid())
    assert len(grid) == (8 + 2 + 1) * len(loaders()["keep"].values)
    assert len({tuple(sorted(params.items())) for params in grid}) == len(grid)
    for params in grid:
        assert ("keras.workers" in params) == (params["loader"] == "keras")
        config = to_config(params)
        assert params.items() <= from_config(config).items()
        assert to_config(from_config(config)) == config
    assert loaders().only("loader", ["keras"])["loader"].values == ("keras",)


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
    with pytest.raises(ConfigError, match="`loader` is missing"):
        to_config({"keep": "none"})
    near: list[tuple[dict[str, object], str]] = [
        ({"loader": ["thread"]}, "threads"),
        ({"loader": ["threads"], "thraeds.workers": [1]}, r"threads\.workers"),
    ]
    for parameters, nearest in near:  # which lists of what plugins have, too
        with pytest.raises(SpaceError, match=f"Did you mean `{nearest}`"):
            space(parameters)
    with pytest.raises(SpaceError, match="Did you mean `keep`"):
        loaders().only("kepe", ["none"])


@pytest.mark.parametrize("number", ["2*cores", "cores*3", "cores - 1", "max(1, gpus)", "1+1", "", "cores.real"])
@pytest.mark.parametrize("key", ["range", "choices"])
def test_nothing_is_computed_from_names(key: str, number: str) -> None:
    with pytest.raises(SpaceError, match=r"threads\.workers.*(cores, cores\*2, |cannot be)"):
        space({"loader": ["threads"], "threads.workers": {key: [1, number]}})


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


@pytest.mark.parametrize("loader", [*LOADERS])
def test_a_loader_or_a_knob_that_a_space_lacks_is_named_with_a_space_that_has_it(loader: str) -> None:
    named = {name: spaces.load(name, BOUNDS) for name in spaces.names()}
    having = [name for name, space in named.items() if loader in space["loader"].values]
    for name in having:
        spaces.require(named[name], "loader", [loader], BOUNDS)
    for space in [space for name, space in named.items() if name not in having][:1]:
        with pytest.raises(SpaceError, match=f"only .'{loader}'. was asked for") as caught:
            spaces.require(space, "loader", [loader], BOUNDS)
        assert (caught.value.hint is None) == (not having)
        assert not having or f"--space {having[0]}," in str(caught.value.hint)
    with pytest.raises(SpaceError, match=r"`processes\.read_ahead` is no parameter of this space") as caught:
        spaces.require(spaces.parse(HEAD)(BOUNDS), "processes.read_ahead", [0], BOUNDS)
    assert "--space default," in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parameters: [", r"line 1: this is no YAML"),
        ("- a", r"line 1: a search space is a mapping"),
        ("", r"a search space is a mapping"),
        ("schema_version: 1\nparamters: {}\n", r"line 2, `paramters`: there is no such key.* mean `parameters`"),
        ("schema_version: 1\n", r"`parameters` is missing"),
        ("schema_version: 2\nparameters: {loader: [threads]}", r"line 1, `schema_version`: should be 1"),
        (HEAD + "  keep:\n    chioces: [none]\n", r"line 5, `parameters.keep.chioces`.* Did you mean `choices`"),
        (HEAD + "  keep: none\n", r"line 4, `parameters.keep`: should be a list"),
        (HEAD + "  devices:\n    range: [1, 2.5]\n", r"line 5, `parameters.devices.range.1`: should be a valid int"),
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


def test_a_file_of_the_users_is_read_and_one_that_is_no_text_or_endless_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + "  keep: [none, memory]\n")
    assert len(list(spaces.load(str(file), BOUNDS).grid())) == 2
    for written, said in ((b"\xff\xfe\x00", r"mine\.yaml"), (b"#" * (1 << 19), "at most")):
        file.write_bytes(written)
        with pytest.raises(SpaceError, match=said):
            spaces.load(str(file), BOUNDS)
    with pytest.raises(SpaceError, match="Did you mean `default`"):
        spaces.load("defualt", BOUNDS)


ASKED = Settings(
    space="quick", trials=40, budget_seconds=600.0, seed=3, convert=False, epochs=30, page_cache="cold",
    limits=Limits(memory_bytes=2**33, workers=8, only={"loader": ("threads",), "keep": ("none", "memory")}),
    simulate=SimulatedAccelerator(0.224, 400), virtual_devices=2,
)  # fmt: skip
RETUNE = Settings(trials=15, budget_seconds=90.0, virtual_devices=0)


def again(
    asked: Settings = ASKED, told: Settings = RETUNE, given: Sequence[str] = (), folder: Path | None = None
) -> Settings:
    """Return what a retune asks for after a tune."""
    return retune_settings(request_of(asked), told, given, folder or Path())


def test_a_retune_asks_for_what_the_tune_asked_for_in_part_of_its_trials_and_time(tmp_path: Path) -> None:
    once = again()
    assert dataclasses.replace(once, clock=ASKED.clock) == dataclasses.replace(ASKED, trials=20, budget_seconds=450.0)
    assert request_of(once, retune=True) == request_of(ASKED)  # and a retune of it asks for as much
    assert again(dataclasses.replace(ASKED, budget_seconds=None)).budget_seconds is None
    for request in (request_of(ASKED), request_of(Settings(budget_seconds=None, virtual_devices=0))):
        path = files.write(artifact(profile(request=request)), tmp_path / "a.json")
        assert files.read(path).profiles[0].request == request
    check = simulation(request_of(ASKED))
    assert (check.simulate, check.virtual_devices, check.epochs, check.limits) == (ASKED.simulate, 2, None, Limits())


def test_what_is_given_comes_first_and_only_is_united(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(workers=4, only={"keep": ("memory",)})
    told = dataclasses.replace(RETUNE, epochs=2, limits=limits, virtual_devices=4)
    found = again(told=told, given=("epochs", "workers", "trials"))
    assert (found.epochs, found.trials, found.budget_seconds) == (2, 15, 450.0)
    assert (found.limits.workers, found.limits.memory_bytes) == (4, 2**33)
    assert found.limits.only == {"loader": ("threads",), "keep": ("memory",)}
    whole = dataclasses.replace(ASKED, virtual_devices=0)
    monkeypatch.setenv("AUTOPIPE_VIRTUAL_DEVICES", "3")
    assert again(whole).virtual_devices == 3  # as the training that asks for a retune
    assert again(whole, told, ("virtual_devices",)).virtual_devices == 4


def test_it_is_told_as_a_command_line_says_it() -> None:
    assert as_options(Settings(virtual_devices=0)) == ""
    assert as_options(ASKED) == (
        "--space quick --max-memory 8589934592B --max-workers 8 --epochs 30 --simulate-step 224ms/400 "
        "--virtual-devices 2 --page-cache cold --seed 3 --no-convert --only loader=threads --only keep=none,memory"
    )
    quoted = Settings(virtual_devices=0, space="/my spaces/a.yaml", limits=Limits(only={"wrapped.a": ("b c",)}))
    assert as_options(quoted) == "--space '/my spaces/a.yaml' --only 'wrapped.a=b c'"


def test_a_space_of_ones_own_is_found_where_it_was_or_beside_the_artifact(tmp_path: Path) -> None:
    file, moved = tmp_path / "space.yaml", tmp_path / "moved"
    file.touch()
    moved.mkdir()
    asked = dataclasses.replace(ASKED, space=str(file))
    assert again(asked).space == str(file)
    file.rename(moved / "space.yaml")
    assert again(asked, folder=moved).space == str(moved / "space.yaml")
    with pytest.raises(SpaceError, match="not there any more") as error:
        again(asked, folder=tmp_path)
    assert "--space" in str(error.value.hint)
    assert again(asked, given=("space",), folder=tmp_path).space == "default"


def test_a_knob_of_any_loader_is_held_for_each() -> None:
    cases: list[tuple[dict[str, tuple[SettingValue, ...]], dict[str, tuple[SettingValue, ...]]]] = [
        ({"keep": ("none",)}, {"keep": ("none",)}),
        # A knob of any loader becomes that of each that has it,
        ({"loader.workers": (2,)}, {"threads.workers": (2,), "keras.workers": (2,)}),
        # and a loader that cannot have the value is left out.
        ({"loader.workers": (5,)}, {"threads.workers": (5,), "loader": ("threads", "tfdata")}),
        ({"loader": ("threads", "keras"), "loader.workers": (5,)}, {"loader": ("threads",), "threads.workers": (5,)}),
    ]
    for only, found in cases:
        assert held(loaders(), only) == found


def test_a_value_that_no_loader_can_have_is_refused_with_those_it_can() -> None:
    for value, shown in (("2", "'2'"), (9, "9")):
        with pytest.raises(SpaceError, match=rf"`loader\.workers` cannot be {shown} in this space") as raised:
            held(loaders(), {"loader.workers": (value,)})
        assert "keras.workers may be 1, 2" in str(raised.value.hint)
    with pytest.raises(SpaceError, match=r"Did you mean `loader\.workers`"):
        loaders().only("workers", (2,))
