from __future__ import annotations

import pytest

from autopipe.api.searching import held
from autopipe.core.space import Space
from autopipe.errors import SpaceError
from autopipe.search import library

SPACE = """
schema_version: 1
parameters:
  loader: [threads, keras, tfdata]
  threads.workers: {range: [1, 8], when: {loader: threads}}
  keras.workers: {choices: [1, 2], when: {loader: keras}}
  tfdata.num_parallel_calls: {choices: [auto], when: {loader: tfdata}}
  cache: [none, memory]
"""


@pytest.fixture
def space() -> Space:
    return library.parse(SPACE, {"cores": 2, "gpus": 0})


def test_a_parameter_by_its_name_stays_as_it_is(space: Space) -> None:
    assert held(space, {"cache": ("none",)}) == {"cache": ("none",)}


def test_a_knob_of_any_loader_becomes_that_of_each(space: Space) -> None:
    assert held(space, {"loader.workers": (2,)}) == {"threads.workers": (2,), "keras.workers": (2,)}


def test_a_loader_that_cannot_have_the_value_is_left_out_and_one_without_the_knob_is_not(space: Space) -> None:
    assert held(space, {"loader.workers": (5,)}) == {"threads.workers": (5,), "loader": ("threads", "tfdata")}


def test_it_goes_together_with_a_choice_of_loaders(space: Space) -> None:
    asked = {"loader": ("threads", "keras"), "loader.workers": (5,)}
    assert held(space, asked) == {"loader": ("threads",), "threads.workers": (5,)}


def test_a_knob_without_its_loader_is_guessed_as_that_of_any(space: Space) -> None:
    with pytest.raises(SpaceError, match=r"Did you mean `loader\.workers`"):
        space.only("workers", (2,))


def test_a_value_of_another_type_is_shown_as_one(space: Space) -> None:
    with pytest.raises(SpaceError, match=r"`loader\.workers` cannot be '2' in this space"):
        held(space, {"loader.workers": ("2",)})


def test_a_value_that_no_loader_can_have_is_refused_with_those_it_can(space: Space) -> None:
    with pytest.raises(SpaceError, match=r"`loader.workers` cannot be 9") as raised:
        held(space, {"loader.workers": (9,)})
    assert raised.value.hint is not None
    assert "keras.workers may be 1, 2" in raised.value.hint
