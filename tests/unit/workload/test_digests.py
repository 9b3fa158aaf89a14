"""What makes two workloads the same: ops, functions, and what functions look up beside them."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autopipe.workload.data.arrays import Arrays
from autopipe.workload.digests import digest, op_settings, ops_digest
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.on_parts import On
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.ops.sizes import RandomCrop
from autopipe.workload.workload import Workload


def double(x: Any) -> Any:
    return x * 2


def test_parts_settings_and_order_of_ops_count() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest(1, None) == digest(1, None)
    base = ops_digest([Decode(), RandomCrop(4, 4)])
    assert base == ops_digest([Decode(), RandomCrop(4, 4)])
    others = [Decode(), RandomCrop(4, 5)], [RandomCrop(4, 4), Decode()], [Decode(strict=False), RandomCrop(4, 4)]
    assert len({base, *map(ops_digest, others)}) == 4


def test_an_op_that_gives_other_pixels_than_before_counts_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [RandomFlip()], [On("left", RandomFlip())]
    before = [ops_digest(ops) for ops in lists]
    monkeypatch.setattr(RandomFlip, "revision", 2)
    assert not {ops_digest(ops) for ops in lists} & {*before}


def test_a_function_is_its_code() -> None:
    def made(number: int) -> Callable[[Any], Any]:
        return (lambda x: x + 1) if number == 1 else (lambda x: x + 2)

    def countdown(number: Any) -> Any:
        return countdown(number - 1) if number else 0

    for function in (made(1), double, countdown):  # the last has captured itself
        assert ops_digest([Map(function)]) == ops_digest([Map(function)])
    assert ops_digest([Map(made(1))]) == ops_digest([Map(made(1))]) != ops_digest([Map(made(2))])


def test_a_function_of_a_script_is_the_same_if_that_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest_in(name: str) -> str:
        module = types.ModuleType(name)
        module.__file__ = "/project/train.py"
        exec("def half(x):\n    return x // 2\nclass Half:\n    __call__ = half\n", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        return ops_digest([Map(module.half), Map(module.Half())])

    assert digest_in("__main__") == digest_in("train")
    assert digest_in("train") != digest_in("other")


class Gain:
    def __init__(self, gain: float) -> None:
        self.gain = gain

    def __call__(self, image: object) -> object:
        return image

    def apply(self, image: object) -> object:
        return image


def captured(value: object) -> Callable[[Any], Any]:
    return lambda image: (image, value)


def by_default(value: object) -> Callable[[Any], Any]:
    def function(image: Any, gain: object = value) -> Any:
        return image, gain

    return function


@pytest.mark.parametrize(
    "made",
    [
        captured,
        by_default,
        Gain,
        lambda value: Gain(value).apply,
        lambda value: functools.partial(captured, np.array([value])),
        lambda value: captured([np.full(9, value), captured(value)]),
        lambda value: captured({"gain": Gain(value)}),
    ],
    ids=["closure", "default", "object", "method", "array in a partial", "array in a list", "object in a dict"],
)
def test_what_a_function_has_captured_counts(made: Callable[[float], Callable[..., Any]]) -> None:
    assert ops_digest([Map(made(0.5))]) == ops_digest([Map(made(0.5))])
    assert ops_digest([Map(made(0.5))]) != ops_digest([Map(made(0.9))])


def test_an_op_within_another_is_the_same_after_its_check_as_before() -> None:
    ops = [On("left", Map(double))]
    images = Arrays({name: np.zeros((2, 2, 2, 3), np.uint8) for name in ("left", "right")})
    before = ops_digest(ops), op_settings(ops[0])
    plan = make_plan(Workload(data=images, ops=ops, batch_size=2))
    assert (ops_digest(ops), op_settings(ops[0])) == before
    assert ops_digest(ops) != ops_digest([On("left", Map(np.negative))])
    assert ops_digest(ops) != ops_digest([On("left", Map(double, on="both"))])
    again = make_plan(Workload(data=images, ops=[On("left", Map(double))], batch_size=2))
    assert ops_digest([step.op for step in plan.prefix]) == ops_digest([step.op for step in again.prefix])
