"""What a kernel writes to a batch sample by sample, and what it refuses to cut to fit. At once: test_vectorised.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import Kernel
from autopipe.core.job import Recipe
from autopipe.core.op import Op
from autopipe.core.workload import Workload
from autopipe.data.arrays import Arrays
from autopipe.errors import WorkloadError
from autopipe.ops.custom import Map
from autopipe.ops.geometry import RandomErasing
from autopipe.ops.planner import make_plan
from autopipe.ops.sizes import Resize

IMAGE = np.zeros((4, 4, 3), np.uint8)
MASK = np.zeros((4, 4), np.uint8)


class Mixed:
    """Samples that are alike where the planner looks, and one that is not."""

    def __init__(self, usual: Any, odd: Any) -> None:
        self._usual, self._odd = usual, odd

    def __len__(self) -> int:
        return 9

    def read(self, index: int) -> Any:
        return self._odd if index == 1 else self._usual


def filled(data: Any, cached: float = 0.0, ops: tuple[Op, ...] = ()) -> Any:
    plan = make_plan(Workload(data=data, ops=ops, batch_size=2))
    recipe = Recipe(
        source=data,
        steps=plan.prefix + plan.body,
        fixed_steps=len(plan.prefix),
        fixed_spec=plan.cut(len(plan.prefix)),
        spec=plan.compact,
        seed=0,
        on_bad_sample="error",
        cached=cached,
    )
    batch = plan.compact.empty(2)
    Kernel(recipe, MemoryCache.of(recipe)).fill(0, np.array([0, 1]), batch)
    return batch


@pytest.mark.parametrize(
    ("usual", "odd", "said"),
    [
        ((IMAGE, MASK), (IMAGE, MASK.astype(np.uint16) + 300), r"y \(4, 4\) uint16, but .* y \(4, 4\) uint8\."),
        ((IMAGE, 3), (IMAGE, 0.5), r"y \(\) float64, but .* y \(\) int64"),
        ((IMAGE, 3), (IMAGE, float("nan")), r"y \(\) float64, but .* y \(\) int64"),
        ((IMAGE, np.uint8(3)), (IMAGE, 300), r"y \(\) int64, but .* y \(\) uint8"),
        ((IMAGE, np.zeros(3)), (IMAGE, np.zeros(1)), r"y \(1,\) float64, but .* y \(3,\) float64"),
        ((IMAGE, 0.5), (IMAGE, None), r"x \(4, 4, 3\) uint8, but .* and y \(\) float64\."),
        (IMAGE, IMAGE.astype(np.float32) + 0.5, r"x \(4, 4, 3\) float32, but a batch holds x \(4, 4, 3\) uint8"),
    ],
    ids=["mask of 16 bits", "fraction", "nan", "large label", "one number for three", "none", "floating point"],
)
def test_numbers_for_which_a_batch_has_no_room_are_refused_and_not_cut(usual: Any, odd: Any, said: str) -> None:
    with pytest.raises(WorkloadError, match=rf"^sample 1 has .*{said}.*ap\.Cast"):
        filled(Mixed(usual, odd))


def test_a_sample_of_another_shape_is_named_where_samples_are_cached_too() -> None:
    for cached in (0.0, 1.0):
        with pytest.raises(
            WorkloadError, match=r"^sample 1 has x \(5, 4, 3\) uint8 and y \(\) int64, but a batch holds"
        ):
            filled(Mixed((IMAGE, 3), (np.zeros((5, 4, 3), np.uint8), 3)), cached)


def test_numbers_that_fit_are_taken() -> None:
    assert filled(Mixed((IMAGE, 3), (IMAGE, np.uint8(200))))[1].tolist() == [3, 200]
    assert filled(Mixed((IMAGE, np.float32(0.5)), (IMAGE, 1)))[1].tolist() == [0.5, 1]
    mixed = filled(Mixed((IMAGE, MASK.astype(np.uint16)), (IMAGE, MASK + 200)))
    assert mixed[1].dtype == np.uint16
    assert mixed[1][1].max() == 200


PIXELS = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), np.uint8)
SMALLER = Resize(4, 4)  # which OpenCV writes into the batch at once, so that later ops get the batch's own memory


def smaller(number: int) -> NDArray[np.uint8]:
    made: NDArray[Any] = cv2.resize(PIXELS[number], (4, 4))
    return made


@pytest.mark.parametrize("cached", [0.0, 1.0])
@pytest.mark.parametrize(
    "function",
    [
        lambda image: image.swapaxes(0, 1),
        lambda image: np.broadcast_to(image[..., :1], image.shape),
        lambda image: image[::-1],
        lambda image: image,
    ],
    ids=["turned", "repeated", "upside down", "as it is"],
)
def test_a_view_of_pixels_that_are_in_the_batch_already_is_what_the_batch_holds(
    function: Callable[[Any], Any], cached: float
) -> None:
    x, _ = filled(Arrays(PIXELS), cached, (SMALLER, Map(function)))
    for number in range(2):
        np.testing.assert_array_equal(x[number], function(smaller(number)))


@pytest.mark.parametrize("cached", [0.0, 1.0])
def test_an_image_that_becomes_its_own_target_stays_what_it_was(cached: float) -> None:
    x, y = filled(Arrays(PIXELS), cached, (SMALLER, Map(lambda x, y: (255 - x, x), on="both")))
    for number in range(2):
        np.testing.assert_array_equal(x[number], 255 - smaller(number))
        np.testing.assert_array_equal(y[number], smaller(number))


def test_a_target_made_of_the_image_is_not_written_over_by_a_later_op() -> None:
    _, y = filled(Arrays(PIXELS), ops=(SMALLER, Map(lambda x, y: (255 - x, x), on="both"), RandomErasing(1.0)))
    for number in range(2):
        np.testing.assert_array_equal(y[number], smaller(number))
