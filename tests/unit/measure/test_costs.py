from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from autopipe.core.ceiling import OpCost
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import BadSampleError
from autopipe.measure.costs import fitted, op_costs
from autopipe.ops.flip import RandomFlip
from autopipe.ops.plan import make_plan
from autopipe.ops.resize import Resize
from autopipe.ops.scale import Rescale

SINGLE = (
    OpCost(name="read", part="fixed", seconds_per_image=0.1),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.5),
    OpCost(name="RandomFlip", part="fresh", seconds_per_image=0.2),
    OpCost(name="Rescale", part="finish", seconds_per_image=0.3),
)


def costs(found: tuple[OpCost, ...]) -> dict[str, Any]:
    return {cost.name: pytest.approx(cost.seconds_per_image) for cost in found}


def total(found: tuple[OpCost, ...]) -> float:
    return sum(cost.seconds_per_image for cost in found if cost.part != "finish")


def test_each_op_is_timed_and_told_by_where_it_may_run() -> None:
    images = np.zeros((10, 40, 40, 3), np.uint8)
    workload = Workload(
        data=Arrays(images, np.arange(10)), ops=[Resize(8, 8), RandomFlip(), Rescale(1 / 255)], batch_size=2
    )
    ticks = itertools.count()
    found = op_costs(workload, make_plan(workload), range(10), clock=lambda: float(next(ticks)))
    assert [(cost.name, cost.part) for cost in found] == [
        ("read", "fixed"),
        ("Resize", "fixed"),
        ("RandomFlip", "fresh"),
        ("Rescale", "finish"),
    ]
    assert {cost.seconds_per_image for cost in found} == {1.0}


class _Broken:
    def __len__(self) -> int:
        return 3

    def read(self, index: int) -> np.ndarray:
        if index:
            raise BadSampleError(f"sample {index} is bad")
        return np.zeros((4, 4, 3), np.uint8)


def test_bad_samples_are_passed_over() -> None:
    workload = Workload(data=_Broken(), ops=[], batch_size=1, on_bad_sample="skip")
    assert op_costs(workload, make_plan(workload), [1, 0, 2])[0].name == "read"
    with pytest.raises(BadSampleError, match="none of 2 samples"):
        op_costs(workload, make_plan(workload), [1, 2])


def test_costs_add_up_to_what_the_loader_took_with_all_cores_busy() -> None:
    found = fitted(SINGLE, whole=1.0, cached=0.3)
    assert total(found) == pytest.approx(1.0)
    assert costs(found) == {
        "read": 0.7 / 6,
        "Decode": 0.7 * 5 / 6,
        "RandomFlip": 0.2,
        "Rescale": 0.3,
        "batching": 0.1,
    }


def test_from_the_cache_they_add_up_to_what_it_took_from_there() -> None:
    found = fitted(SINGLE, whole=1.0, cached=0.3)
    assert sum(cost.seconds_per_image for cost in found if cost.part == "fresh") == pytest.approx(0.3)


@pytest.mark.parametrize(("whole", "cached"), [(0.6, None), (1.2, None), (0.6, 0.1), (0.15, 0.1), (0.5, 0.7)])
def test_odd_figures_still_add_up_and_none_is_negative(whole: float, cached: float | None) -> None:
    found = fitted(SINGLE, whole=whole, cached=cached)
    assert total(found) == pytest.approx(whole)
    assert min(cost.seconds_per_image for cost in found) >= 0
