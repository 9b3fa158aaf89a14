"""What functions look up beside them. Their own code and what they capture is in test_digests.py."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.core.lookups import looked_up
from autopipe.ops.custom import Map
from autopipe.ops.on_parts import On
from autopipe.ops.resize import Resize

WRITTEN = """
import cv2, numpy as np

MEAN, SIZES, UNUSED, CALLS = 0.5, (3, 4), 7, 0
BUFFER = np.zeros(3)

def lighter(image):
    return image + MEAN

def prepared(image):
    global CALLS
    CALLS += 1
    assert __name__ and CALLS
    BUFFER[:] = 1
    return np.stack([lighter(row) for row in cv2.resize(image, SIZES)])

def again(image):
    return again(image) if image.size else image

class Prepared:
    def __call__(self, image):
        return lighter(image)

    def method(self, image):
        return lighter(image)

def wrapped(function):
    return lambda image: function(image)

closed = wrapped(lighter)
"""


def module(text: str = WRITTEN) -> Any:
    """Return the module that a file of this text makes."""
    made = ModuleType("users")
    exec(compile(text, "users.py", "exec"), made.__dict__)  # as an import would
    return made


def names(function: Any) -> list[str]:
    return [name.removeprefix("users.") for name in looked_up([Resize(2, 2), Map(function)])]


def test_constants_and_functions_count_wherever_they_are_looked_up_from() -> None:
    users = module()
    assert names(users.prepared) == ["MEAN", "SIZES", "lighter"]
    assert looked_up([On("left", Map(users.prepared))]) == looked_up([Map(users.prepared)])


@pytest.mark.parametrize("name", ["closed", "of a class", "a method", "a part"])
def test_a_function_is_found_in_whatever_is_called(name: str) -> None:
    users = module()
    made = users.Prepared()
    forms = {"closed": users.closed, "of a class": made, "a method": made.method}
    assert "MEAN" in names(forms.get(name, functools.partial(users.lighter)))


def test_other_values_and_other_code_are_told_by_their_names() -> None:
    before, after = (looked_up([Map(module(text).prepared)]) for text in (WRITTEN, WRITTEN.replace("0.5", "0.4")))
    assert [name for name in before if before[name] != after[name]] == ["users.MEAN"]
    after = looked_up([Map(module(WRITTEN.replace("image + MEAN", "image - MEAN")).prepared)])
    assert [name for name in before if before[name] != after[name]] == ["users.lighter"]
    assert looked_up([Map(module().prepared)]) == before


def test_what_calls_itself_and_what_is_not_the_users_come_to_an_end() -> None:
    assert names(module().again) == ["again"]
    assert [names(function) for function in (np.negative, np.flipud, cv2.flip)] == [[], [], []]


def test_what_another_function_stores_does_not_count() -> None:
    text = """
LOADED, SIZE = None, 3

def load():
    global LOADED
    LOADED = LOADED or object()

def prepared(image):
    load()
    return image if LOADED else SIZE

def within(image):
    def store():
        global LOADED
        LOADED = object()
    store()
    return LOADED
"""
    users = module(text)
    before = names(users.prepared)
    assert before == ["SIZE", "load"]
    users.prepared(1)
    assert names(users.prepared) == before
    assert names(users.within) == []
