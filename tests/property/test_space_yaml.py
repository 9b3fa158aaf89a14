"""Whatever is in a space file, it is either a sound space or a SpaceError; never another exception."""

from __future__ import annotations

import string
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from autopipe.errors import SpaceError
from autopipe.search import space as spaces
from autopipe.search.space import Space, among

BOUNDS = {"cores": 3, "gpus": 1}
SHIPPED = [path.read_text() for path in sorted((Path(__file__).parents[2] / "search_spaces").glob("*.yaml"))]

scalars = st.none() | st.booleans() | st.integers(-10, 10**6) | st.floats() | st.text(max_size=12)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
bounds = st.sampled_from([0, 1, 4, "cores", "cores*2", "gpus", "core", "1+"])
CHOICES = [1, 2, "auto", "none", "memory", "threads", "cores", True]
when = st.dictionaries(st.sampled_from(["loader", "keep"]), st.sampled_from(["threads", "memory"]), max_size=2)
numbers = {"range": st.tuples(bounds, bounds).map(list), "log": st.booleans(), "step": st.integers(-1, 3)}
choices = st.lists(st.sampled_from(CHOICES), max_size=4)
parameter = st.fixed_dictionaries({}, optional={"choices": choices, "when": when, **numbers})
names = st.sampled_from(["loader", "keep", "devices", "device_prefetch", "threads.workers", "tfdata.prefetch", "what"])
files = st.dictionaries(names, parameter, max_size=5).map(
    lambda some: {"schema_version": 1, "parameters": {"loader": ["threads", "tfdata"], **some}}
)


def read(text: str) -> Space | None:
    try:
        return spaces.parse(text)(BOUNDS)
    except SpaceError:
        return None


@given(st.text(max_size=200) | trees.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)))
def test_any_text_and_any_tree(text: str) -> None:
    read(text)


@given(st.sampled_from(SHIPPED), st.integers(0, 10**6), st.text(string.printable, max_size=5), st.integers(0, 5))
def test_a_shipped_space_with_a_place_overwritten(text: str, place: int, put: str, cut: int) -> None:
    at = place % len(text)
    read(text[:at] + put + text[at + cut :])


@given(files)
def test_whatever_is_read_enumerates_inside_itself_and_counts_what_it_enumerates(tree: dict[str, object]) -> None:
    space = read(yaml.safe_dump(tree, sort_keys=False))
    if space is None:
        return
    for params, _ in zip(space.grid(), range(50), strict=False):
        assert {parameter.name for parameter in space.parameters if parameter.counts(params)} == set(params)
        assert all(among(value, space[name].values) for name, value in params.items())
    if space.count() <= 1000:
        assert space.count() == sum(1 for _ in space.grid())
