from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from autopipe.core.fingerprint import digest, ops_digest
from autopipe.ops.crop import RandomCrop
from autopipe.ops.custom import Map
from autopipe.ops.decode import Decode
from autopipe.ops.flip import RandomFlip


def double(x: Any) -> Any:
    return x * 2


def test_parts_are_kept_apart() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(1, None) == digest(1, None)


def test_settings_and_order_of_ops_count() -> None:
    base = ops_digest([Decode(), RandomCrop(4, 4)])
    assert base == ops_digest([Decode(), RandomCrop(4, 4)])
    assert base != ops_digest([Decode(), RandomCrop(4, 5)])
    assert base != ops_digest([RandomCrop(4, 4), Decode()])
    assert ops_digest([RandomFlip()]) != ops_digest([RandomFlip(vertical=True)])


def test_a_function_is_its_code() -> None:
    def made(number: int) -> Callable[[Any], Any]:
        return (lambda x: x + 1) if number == 1 else (lambda x: x + 2)

    assert ops_digest([Map(made(1))]) == ops_digest([Map(made(1))])
    assert ops_digest([Map(made(1))]) != ops_digest([Map(made(2))])
    assert ops_digest([Map(double)]) == ops_digest([Map(double)])


def test_what_a_partial_binds_counts() -> None:
    one, other = (Map(functools.partial(pow, exp=exponent)) for exponent in (2, 3))
    assert ops_digest([one]) != ops_digest([other])
