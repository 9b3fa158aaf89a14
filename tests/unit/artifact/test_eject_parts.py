"""Plain code of samples of several parts. Whole files of it are run in tests/integration/test_tuned_eject.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import cv2
import numpy as np
import pytest

from autopipe.errors import PlainCodeError
from autopipe.pipeline.eject.module import CACHED, DIRECTORY, FORMS, eject, module
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.op import Op, Step
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.on_parts import On
from autopipe.workload.ops.sizes import CenterCrop, RandomCrop
from autopipe.workload.ops.values import OneHot, Rescale
from autopipe.workload.plain_code import Library, Lines
from autopipe.workload.workload import Workload
from tests.fakes.sources import Made

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3), np.uint8)
SMALL = IMAGES[:, :4, :6]
NUMBERS = np.arange(12, dtype=np.float32).reshape(4, 3)
KIND, WEIGHT = np.arange(4) % 2, np.linspace(0, 1, 4, dtype=np.float32)


def workload(data: Any, *ops: Op, **more: Any) -> Workload:
    return Workload(data=data, ops=ops, batch_size=2, **more)


def functions(data: Any, *ops: Op) -> dict[str, Any]:
    """Return the functions of the file for Keras, which is not imported."""
    code = eject(workload(data, *ops), "keras").partition("class Batches")[0].replace("import keras\n", "")
    scope: dict[str, Any] = {"__name__": "plain"}
    exec(code, scope)
    return scope


@pytest.mark.parametrize(
    ("data", "arguments", "returned"),
    [
        (
            Arrays({"numbers": NUMBERS, "photo": IMAGES}, KIND, WEIGHT),
            "x_photo, x_numbers, y, sample_weight",
            '{"photo": x_photo, "numbers": x_numbers}, y, sample_weight',
        ),
        (Arrays((NUMBERS, IMAGES), {"kind": KIND}), "x_1, x_0, y_kind", '(x_0, x_1), {"kind": y_kind}'),
        (Arrays({"photo": IMAGES}, (KIND,)), "x_photo, y_0", '{"photo": x_photo}, (y_0,)'),
        (Arrays({"photo": IMAGES}), "x_photo", '({"photo": x_photo},)'),
        (Arrays({"a b": IMAGES, "a_b": NUMBERS, "A_b": NUMBERS}, KIND), "x_0, x_2, x_3, y", None),
    ],
    ids=["dictionary", "tuple", "of one", "inputs alone", "names that are alike"],
)
@pytest.mark.parametrize("form", sorted(set(FORMS) - {CACHED, DIRECTORY}))
def test_parts_go_where_the_model_takes_them(data: Arrays, arguments: str, returned: str | None, form: str) -> None:
    code = eject(workload(data), form)
    assert f"def finish({', '.join(f'{name}: Any' for name in arguments.split(', '))}) -> Any:" in code
    assert returned is None or f"    return {returned}\n" in code
    compile(code, form, "exec")


def test_weights_alone_are_the_third_and_need_no_function() -> None:
    code = eject(workload(Arrays(IMAGES, KIND, WEIGHT)), "tf.data")
    assert "from_tensor_slices((x, y, sample_weight))" in code
    assert "def " not in code.replace("def make_dataset(x: Any, y: Any, sample_weight: Any)", "")
    assert "model.fit(x, y, sample_weight=weight, batch_size" in eject(workload(Arrays(IMAGES, KIND, WEIGHT)), "fit")


def test_images_and_their_masks_get_the_same_random_numbers() -> None:
    data = Arrays({"left": IMAGES, "right": IMAGES}, {"mask": IMAGES[..., 0], "kind": KIND})
    augment = functions(data, RandomCrop(3, 5), RandomFlip(vertical=True))["augment"]
    seen = set()
    for seed in range(8):
        left, right, mask, kind = augment(IMAGES[1], IMAGES[1], IMAGES[1][..., 0], 1, np.random.default_rng(seed))
        np.testing.assert_array_equal(left, right)
        np.testing.assert_array_equal(left[..., 0], mask)
        assert (left.shape, kind) == ((3, 5, 3), 1)
        seen.add(left.tobytes())
    assert len(seen) > 4


def test_what_is_not_random_acts_on_each_image_by_its_own_size() -> None:
    load = functions(Arrays({"left": IMAGES, "right": SMALL}, KIND), CenterCrop(2, 2))["load"]
    left, right, _ = load(IMAGES[0], SMALL[0], 0)
    np.testing.assert_array_equal(left, IMAGES[0, 2:4, 3:5])
    np.testing.assert_array_equal(right, SMALL[0, 1:3, 2:4])


def halved(x: Any, y: Any) -> Any:
    return x // 2, y / 2


def shaken(x: Any, rng: Any) -> Any:
    return x + rng.integers(0, 200, x.shape, np.uint8)


def test_a_random_function_draws_the_same_for_each_image() -> None:
    augment = functions(Arrays((IMAGES, IMAGES), KIND), Map(shaken, random=True))["augment"]
    left, right, _ = augment(IMAGES[0], IMAGES[0], 1, np.random.default_rng(3))
    np.testing.assert_array_equal(left, right)
    assert not np.array_equal(left, IMAGES[0])


def test_a_function_of_both_gets_x_before_y() -> None:
    data = Arrays({"photo": IMAGES, "numbers": NUMBERS}, {"kind": KIND, "depth": WEIGHT})
    load = functions(data, On(("depth", "numbers"), Map(halved, on="both")))["load"]
    _, numbers, kind, depth = load(IMAGES[0], NUMBERS[1], 1, WEIGHT[3])
    assert (numbers.tolist(), kind, depth) == ([1, 2, 2], 1, 0.5)


def load(x: Any) -> Any:
    return x // 2


def augment(x: Any, rng: Any) -> Any:
    return x // 2 + rng.integers(1, 2, x.shape, np.uint8)


def scaled(by: int) -> Any:
    def times(x: Any) -> Any:
        return x * by

    return times


def test_functions_may_be_called_like_those_of_the_file_or_like_each_other() -> None:
    made = functions(Arrays(IMAGES, KIND), Map(load), Map(augment, random=True))
    np.testing.assert_array_equal(made["load"](IMAGES[0], 1)[0], IMAGES[0] // 2)
    np.testing.assert_array_equal(made["augment"](IMAGES[0], 1, np.random.default_rng(0))[0], IMAGES[0] // 2 + 1)
    alike = module(workload(Arrays(NUMBERS, KIND), Map(scaled(2)), Map(scaled(3))), "keras", own=False).functions
    assert [function(1) for function in alike.values()] == [2, 3]


@dataclasses.dataclass(frozen=True)
class Inverted(RandomFlip):
    def plain(self, step: Step, library: Library) -> Lines:
        return ["x = 255 - x"]


@pytest.mark.parametrize(
    ("right", "op", "reason"),
    [
        (
            SMALL,
            On(("left", "right"), RandomCrop(2, 2)),  # not on the masks, of which one would have another size
            "`RandomCrop` acts alike on images that differ in size; put ap.Resize before it",
        ),
        (
            IMAGES,
            On(("left", "y.0", "y.1"), Map(halved, on="both")),
            r"`Map` would get x and y of several parts at once \(x_left, y_0, y_1\)",
        ),
        (IMAGES, Inverted(), "`Inverted` writes plain code of `x`, but the parts are x_left, x_right, y_0, y_1"),
    ],
)
def test_what_cannot_be_written_of_parts_is_said(right: Any, op: Op, reason: str) -> None:
    data = Arrays({"left": IMAGES, "right": right}, (IMAGES[..., 0], IMAGES[..., 1]))
    with pytest.raises(PlainCodeError, match=reason):
        eject(workload(data, op), "keras")


@pytest.mark.parametrize(
    ("sample", "given"),
    [
        ({"a": 1, "b": 2}, ({"a": 1, "b": 2},)),
        (({"a": 1, "b": 2}, None), ({"a": 1, "b": 2},)),
        (((1, 2),), ((1, 2),)),
        (((1, 2), 3), ((1, 2), 3)),
        (((1, 2), (3, 4), 5), ((1, 2), (3, 4), 5)),
        (({"a": 1, "b": 2}, {"c": 3}), ({"a": 1, "b": 2}, {"c": 3})),
    ],
    ids=str,
)
def test_a_source_of_ones_own_is_read_however_its_samples_are_built(sample: Any, given: Any) -> None:
    source = Made(4, lambda index: sample)
    made = functions(source)
    assert made["finish"](*made["load"](source, 0)) == given


def test_one_image_with_two_masks_is_decoded_once() -> None:
    encoded = [bytes(cv2.imencode(".png", image)[1]) for image in (IMAGES[0], IMAGES[0, ..., 0], IMAGES[1, ..., 0])]
    source = Made(4, lambda index: (encoded[0], {"one": encoded[1], "other": encoded[2]}))
    x, one, other = functions(source, Decode(), Rescale(1.0))["load"](source, 0)
    np.testing.assert_array_equal(x, IMAGES[0][..., ::-1])
    np.testing.assert_array_equal(one, IMAGES[0, ..., 0])
    np.testing.assert_array_equal(other, IMAGES[1, ..., 0])


def test_a_one_hot_target_is_the_one_that_is_named() -> None:
    finish = functions(Arrays(IMAGES, {"kind": KIND, "depth": WEIGHT}), On("kind", OneHot(2)), Rescale(2.0))["finish"]
    _, y = finish(IMAGES[:2], KIND[:2], WEIGHT[:2])
    assert (y["kind"].tolist(), y["depth"].tolist()) == ([[1, 0], [0, 1]], WEIGHT[:2].tolist())
