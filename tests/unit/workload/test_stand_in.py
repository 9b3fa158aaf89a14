from __future__ import annotations

import contextlib

import pytest

from autopipe.workload.workload import standing_in


class Thing:
    def word(self) -> str:
        return "its class's"


def test_what_stood_in_leaves_no_trace_in_the_object() -> None:
    thing = Thing()
    with contextlib.suppress(KeyError), standing_in(thing, "word", lambda: "another"):
        assert thing.word() == "another"
        raise KeyError
    assert not vars(thing)


@pytest.mark.parametrize("own", [lambda: "its owner's", None])
def test_what_the_owner_had_set_is_put_back(own: object) -> None:
    thing = Thing()
    vars(thing)["word"] = own
    with standing_in(thing, "word", 1), standing_in(thing, "word", 2):
        assert vars(thing)["word"] == 2
    assert vars(thing)["word"] is own
