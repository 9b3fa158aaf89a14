from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping

from autopipe.cli.commands.retune import retune
from autopipe.cli.commands.tune import tune
from autopipe.cli.option_groups import Command, ungrouped
from autopipe.cli.search_options import SearchOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    height: int = 1
    width: int = 2


TALL = Size(height=5)
called: list[object] = []


def draw(name: str, size: Size = TALL, *, fill: bool = False) -> None:
    called[:] = [name, size, fill]


def parameters(command: Command) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(ungrouped(command)).parameters


def test_a_group_is_an_option_for_each_field_in_its_place_with_the_commands_defaults() -> None:
    found = parameters(draw)
    assert list(found) == ["name", "height", "width", "fill"]
    assert [found[name].default for name in ("height", "width")] == [5, 2]
    assert found["height"].annotation is int


def test_the_command_gets_its_group_made_of_what_is_given() -> None:
    ungrouped(draw)(name="box", height=3, width=4, fill=True)
    assert called == ["box", Size(height=3, width=4), True]


def test_tune_and_retune_search_by_the_same_options() -> None:
    shared = {field.name for field in dataclasses.fields(SearchOptions)}
    tuned, retuned = (
        {name: parameters(one)[name].annotation.__metadata__[0].help for name in shared} for one in (tune, retune)
    )
    assert tuned == retuned
    assert (parameters(tune)["trials"].default, parameters(retune)["trials"].default) == (30, 15)
