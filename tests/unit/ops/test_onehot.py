from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.core.op import Op
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import DataWarning
from autopipe.ops.custom import Map
from autopipe.ops.on_parts import On
from autopipe.ops.planner import make_plan
from autopipe.ops.targets import OneHot

IMAGES = np.zeros((4, 6, 6, 3), np.uint8)


def mask(*levels: int) -> NDArray[np.int16]:
    return np.resize(np.array(levels, np.int16), IMAGES.shape[:3])


def plan(y: Any, *ops: Op) -> None:
    make_plan(Workload(data=Arrays(IMAGES, y), ops=ops, batch_size=2))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.array([1, 2, 3, 4]), "OneHot.4.` knows the classes 0 to 3 .* 1 of 4 samples .* such as 4"),
        (np.array([0, 1, -1, 3]), "1 of 4 samples .* such as -1"),
        (mask(0, 255), "4 of 4 samples .* such as 255"),
        (mask(0, 1, 255, 7), "4 of 4 samples"),
        (mask(255), "4 of 4 samples"),
    ],
)
def test_class_numbers_that_become_zeros_are_told(y: NDArray[Any], said: str) -> None:
    with pytest.warns(DataWarning, match=said):
        plan(y, OneHot(4))
    with pytest.warns(DataWarning, match=said):
        plan({"kind": y, "more": np.zeros(4)}, On("kind", OneHot(4)))


@pytest.mark.parametrize("y", [np.arange(4), mask(0, 1, 3), mask(0, 1, 255), mask(2, 3, -1)])
def test_pixels_of_no_class_and_numbers_of_classes_are_as_meant(y: NDArray[Any]) -> None:
    plan(y, OneHot(4))


def test_the_numbers_are_those_that_reach_the_op() -> None:
    plan(mask(0, 255), Map(lambda y: y // 255, on="mask"), OneHot(2))
