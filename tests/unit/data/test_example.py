from __future__ import annotations

import pytest

from autopipe.data import example


def test_what_is_written_is_read() -> None:
    parsed = example.features(example.serialise({"a": b"\xff\x00", "b": -7, "c": 2**62}))
    assert sorted(parsed) == ["a", "b", "c"]
    assert example.bytes_feature(parsed, "a") == b"\xff\x00"
    assert [example.int_feature(parsed, key) for key in ("b", "c")] == [-7, 2**62]


def test_equal_values_give_equal_bytes_in_any_order() -> None:
    assert example.serialise({"a": b"1", "b": 2}) == example.serialise({"b": 2, "a": b"1"})


def test_a_missing_feature_names_those_there_are() -> None:
    parsed = example.features(example.serialise({"image/jpeg": b"1", "label": 2}))
    with pytest.raises(example.ExampleError, match="no feature `image/encoded`; it has `image/jpeg`, `label`"):
        example.bytes_feature(parsed, "image/encoded")
    assert sorted(parsed) == ["image/jpeg", "label"]


def test_a_feature_of_another_type_is_named() -> None:
    parsed = example.features(example.serialise({"label": b"cat"}))
    with pytest.raises(example.ExampleError, match=r"int64_list of `label`, but has 0 \(it holds bytes_list\)"):
        example.int_feature(parsed, "label")


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(example.ExampleError, match=r"is no tf\.train\.Example"):
        example.features(b"\xff\xd8\xff\xe0 this is a JPEG")
