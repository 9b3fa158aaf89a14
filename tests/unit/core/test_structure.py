from __future__ import annotations

from typing import Any

import pytest

from autopipe.core.structure import Structure
from autopipe.errors import DataError


def structure(value: Any, image: Any = None) -> Structure | None:
    return Structure.of(value, lambda path, part: part is image)


@pytest.mark.parametrize("value", [1, [1, 2], (1, 2), (1, None)])
def test_one_part_each_needs_no_structure(value: Any) -> None:
    assert structure(value) is None


@pytest.mark.parametrize(
    ("value", "flat", "labels"),
    [
        (((1, 2), 3), (1, 3, 2), ("x.0", "y", "x.1")),
        (({"a": 1, "b": 2}, {"c": 3, "d": 4}), (1, 3, 2, 4), ("x.a", "y.c", "x.b", "y.d")),
        ((1, 2, 3), (1, 2, 3), ("x", "y", "sample_weight")),
        ((1, (2, 3), (4, 5)), (1, 2, 3, 4, 5), ("x", "y.0", "y.1", "sample_weight.0", "sample_weight.1")),
        ({"a": 1, "b": 2}, (1, None, 2), ("x.a", "y", "x.b")),
    ],
)
def test_samples_are_taken_apart_and_put_together_again(value: Any, flat: Any, labels: Any) -> None:
    found = structure(value)
    assert found is not None
    assert flat == found.flat(value)
    assert labels == found.labels
    assert found.packed(flat) == (value if isinstance(value, tuple) else (value,))


def test_an_image_comes_first_wherever_it_stands() -> None:
    found = structure((("numbers", "image"), 3), image="image")
    assert found is not None
    assert found.flat((("numbers", "image"), 3)) == ("image", 3, "numbers")
    assert found.packed(("image", 3, "numbers")) == (("numbers", "image"), 3)


@pytest.mark.parametrize("other", [(1, 2), ({"a": 1}, 2), ({"a": 1, "c": 2}, 2), ((1, 2), 2), ({}, 1, 2)])
def test_a_sample_that_is_built_otherwise_is_refused(other: Any) -> None:
    found = structure(({"a": 1, "b": 2}, 3))
    assert found is not None
    with pytest.raises(DataError, match=r"All samples must be built alike, but `(x|y|sample_weight)` is"):
        found.flat(other)


def test_a_part_is_named_by_its_key_or_in_full() -> None:
    found = structure(({"a": 1, "b": 2}, {"b": 3, "d": 4}))
    assert found is not None
    assert [found.named(name) for name in ("a", "d", "x.b", "y.b", "b", "z")] == [0, 3, 2, 1, None, None]


@pytest.mark.parametrize("x", [1, (1, 2), {"a": 1}])
def test_weights_without_targets_are_refused(x: Any) -> None:
    with pytest.raises(DataError, match=r"needs `y`, but got \(x, None, 0\.5\)"):
        structure((x, None, 0.5))
