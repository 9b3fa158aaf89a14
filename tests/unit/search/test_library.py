"""Search spaces as files: what comes along is sound, and a mistake is found in its line."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from autopipe.errors import SpaceError
from autopipe.pipeline.config import LOADERS
from autopipe.search import library
from autopipe.search.space import Space, to_config

HEAD = "schema_version: 1\nparameters:\n  loader: [threads]\n"
BOUNDS = {"cores": 2, "gpus": 0}


@pytest.mark.parametrize("name", sorted({"default", "exhaustive", "quick", *library.names()}))
@pytest.mark.parametrize("bounds", [{"cores": 1, "gpus": 0}, {"cores": 768, "gpus": 8}])
def test_each_shipped_space_makes_configurations_on_small_and_large_machines(name: str, bounds: dict[str, int]) -> None:
    space = library.load(name, bounds).only("devices", [1]).only("channels", ["last"])  # the others have to pay first
    grid = list(space.grid())
    assert 10 < len(grid) < 200_000
    for params in grid[:: len(grid) // 40 + 1]:
        to_config(params)


@functools.cache
def shipped() -> dict[str, Space]:
    return {name: library.load(name, BOUNDS) for name in library.names()}


@pytest.mark.parametrize("loader", [*LOADERS])
def test_a_loader_that_a_space_lacks_is_named_with_a_space_that_has_it(loader: str) -> None:
    spaces = shipped()
    having = [name for name, space in spaces.items() if loader in space["loader"].values]
    for name in having:
        library.require(spaces[name], "loader", [loader], BOUNDS)
    for space in [space for name, space in spaces.items() if name not in having][:1]:
        with pytest.raises(SpaceError, match=f"only .'{loader}'. was asked for") as caught:
            library.require(space, "loader", [loader], BOUNDS)
        assert (caught.value.hint is None) == (not having)
        assert not having or f"--space {having[0]}," in str(caught.value.hint)


def test_a_knob_of_a_loader_that_a_space_lacks_is_named_with_a_space_that_has_it() -> None:
    with pytest.raises(SpaceError, match=r"`processes\.read_ahead` is no parameter of this space") as caught:
        library.require(library.parse(HEAD, BOUNDS), "processes.read_ahead", [0], BOUNDS)
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
        library.parse(text, BOUNDS, file="mine.yaml")
    assert caught.value.message.startswith("mine.yaml")


def test_a_name_that_is_not_there_gets_the_near_one() -> None:
    with pytest.raises(SpaceError, match="Did you mean `default`"):
        library.load("defualt", BOUNDS)


def test_a_file_of_the_users_is_read_and_one_that_is_no_text_or_endless_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + "  keep: [none, memory]\n")
    assert len(list(library.load(str(file), BOUNDS).grid())) == 2
    for written, said in ((b"\xff\xfe\x00", r"mine\.yaml"), (b"#" * (1 << 19), "at most")):
        file.write_bytes(written)
        with pytest.raises(SpaceError, match=said):
            library.load(str(file), BOUNDS)
