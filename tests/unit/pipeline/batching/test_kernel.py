"""What a kernel writes to a batch, sample by sample and at once, what it refuses to cut to fit, and bad samples."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import DataError, DataWarning, WorkloadError
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import BadSample, BadSampleLedger, Kernel
from autopipe.pipeline.loader import Recipe
from autopipe.workload.op import Op
from autopipe.workload.ops.planner import make_plan
from tests.fakes.sources import Made

IMAGE = np.zeros((4, 4, 3), np.uint8)
MASK = np.zeros((4, 4), np.uint8)


def mixed(usual: Any, odd: Any) -> Made:
    """Samples that are alike where the planner looks, and one that is not."""
    return Made(9, lambda index: odd if index == 1 else usual)


def recipe(data: Any, ops: Sequence[Op], cached: float = 0.0) -> Recipe:
    workload = ap.Workload(data=data, ops=ops, batch_size=2, seed=3)
    return dataclasses.replace(Recipe.of(workload, make_plan(workload)), cached=cached)


def filled(data: Any, cached: float = 0.0, ops: tuple[Op, ...] = ()) -> Any:
    made = recipe(data, ops, cached=cached)
    batch = made.spec.empty(2)
    Kernel(made, MemoryCache.of(made)).fill(0, np.array([0, 1]), batch)
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
        filled(mixed(usual, odd))


@pytest.mark.parametrize("cached", [0.0, 1.0])
def test_a_sample_of_another_shape_is_named_where_samples_are_cached_too(cached: float) -> None:
    said = r"^sample 1 has x \(5, 4, 3\) uint8 and y \(\) int64, but a batch holds"
    with pytest.raises(WorkloadError, match=said):
        filled(mixed((IMAGE, 3), (np.zeros((5, 4, 3), np.uint8), 3)), cached)


def test_numbers_that_fit_are_taken() -> None:
    assert filled(mixed((IMAGE, 3), (IMAGE, np.uint8(200))))[1].tolist() == [3, 200]
    assert filled(mixed((IMAGE, np.float32(0.5)), (IMAGE, 1)))[1].tolist() == [0.5, 1]
    deep = filled(mixed((IMAGE, MASK.astype(np.uint16)), (IMAGE, MASK + 200)))
    assert deep[1].dtype == np.uint16
    assert deep[1][1].max() == 200


PIXELS = np.random.default_rng(0).integers(0, 256, (2, 6, 6, 3), np.uint8)
SMALLER = ap.Resize(4, 4)  # which OpenCV writes into the batch at once, so that later ops get the batch's own memory


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
def test_a_view_of_the_batchs_own_pixels_is_what_it_holds(function: Callable[[Any], Any], cached: float) -> None:
    x, _ = filled(ap.Arrays(PIXELS), cached, (SMALLER, ap.Map(function)))
    for number in range(2):
        np.testing.assert_array_equal(x[number], function(smaller(number)))


@pytest.mark.parametrize(("cached", "later"), [(0.0, ()), (1.0, ()), (0.0, (ap.RandomErasing(1.0),))])
def test_an_image_that_becomes_its_own_target_stays_what_it_was(cached: float, later: tuple[Op, ...]) -> None:
    inverted = ap.Map(lambda x, y: (255 - x, x), on="both")
    x, y = filled(ap.Arrays(PIXELS), cached, (SMALLER, inverted, *later))
    for number in range(2):
        np.testing.assert_array_equal(y[number], smaller(number))
        assert later or (x[number] == 255 - smaller(number)).all()


def test_bad_samples_are_counted_once_in_each_epoch_and_listed_once(tmp_path: Path) -> None:
    ledger = BadSampleLedger(str(tmp_path / "log"), 1000)
    for epoch, bad in ((0, [BadSample(3, 4, "broken")]), (1, [BadSample(3, 4, "broken")] * 2), (2, [])):
        ledger.record(epoch, bad)
    assert ledger.counts == {0: 1, 1: 1}
    assert json.loads((tmp_path / "log").read_text()) == {"index": 3, "replaced_by": 4, "message": "broken"}


def test_a_list_that_cannot_be_written_warns_once_and_stops_nothing(tmp_path: Path) -> None:
    ledger = BadSampleLedger(str(tmp_path / "gone" / "log"), 1000)
    with pytest.warns(DataWarning, match=r"cannot be listed in `.*/gone/log`: No such file"):
        ledger.record(0, [BadSample(3, 9, "broken")])
    ledger.record(0, [BadSample(4, 9, "broken")])  # another warning would be an error here
    assert ledger.counts == {0: 2}
    with pytest.raises(DataError, match=r"11 samples .* are bad.*`ap.verify_files"):
        ledger.record(0, [BadSample(number, 99, "broken") for number in range(11)])


@pytest.mark.parametrize(("samples", "tolerated"), [(10, 1), (100, 1), (1000, 10)])
def test_more_than_one_percent_is_too_many(tmp_path: Path, samples: int, tolerated: int) -> None:
    ledger = BadSampleLedger(str(tmp_path / "log"), samples)
    ledger.record(0, [BadSample(number, number + 1, "broken") for number in range(tolerated)])
    with pytest.raises(DataError, match=f"{tolerated + 1} samples"):
        ledger.record(0, [BadSample(99, 0, "broken")])
