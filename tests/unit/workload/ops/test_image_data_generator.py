"""From the arguments of Keras's ImageDataGenerator to ops: in the ranges that Keras itself draws from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.workload.op import Op
from autopipe.workload.sample import Field, FieldKind, SampleSpec

ImageDataGenerator = tf.keras.preprocessing.image.ImageDataGenerator
SPEC = SampleSpec(Field(FieldKind.IMAGE, (8, 8, 3), np.dtype("uint8")), None)


def double(image: Any) -> Any:
    return image * 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [ap.Cast("float32")]),
        ({"rescale": 1 / 255}, [ap.Rescale(1 / 255)]),
        ({"horizontal_flip": True, "dtype": "float16"}, [ap.RandomFlip(), ap.Cast("float16")]),
        ({"vertical_flip": True, "rescale": 2}, [ap.RandomFlip(horizontal=False, vertical=True), ap.Rescale(2)]),
        ({"brightness_range": [0.5, 1.5]}, [ap.RandomBrightness(factor=(0.5, 1.5)), ap.Cast("float32")]),
        (
            {"rotation_range": 20, "width_shift_range": 0.1, "shear_range": 5, "zoom_range": 0.2, "rescale": 2.0},
            [ap.RandomAffine(20, (0, 0.1), 5, (0.8, 1.2), keep_aspect=False, fill="nearest"), ap.Rescale(2.0)],
        ),
        (
            {"zoom_range": [0.5, 1.5], "fill_mode": "constant", "cval": 7, "interpolation_order": 0, "rescale": 2.0},
            [
                ap.RandomAffine(zoom=(0.5, 1.5), keep_aspect=False, fill="constant", value=7, interpolation="nearest"),
                ap.Rescale(2.0),
            ],
        ),
        (
            {"preprocessing_function": double, "rescale": 0.5, "data_format": "channels_last"},
            [ap.Cast("float32"), ap.Map(double), ap.Rescale(0.5)],
        ),
    ],
)
def test_arguments_become_ops_in_the_order_of_the_generator(arguments: dict[str, Any], expected: list[Op]) -> None:
    assert expected == ap.from_image_data_generator(**arguments)
    ImageDataGenerator(**arguments)  # Keras takes them too


@pytest.mark.filterwarnings("ignore:Please import `affine_transform`:DeprecationWarning")  # Keras's own
@pytest.mark.parametrize("low", [True, False])
def test_the_extremes_of_every_range_are_those_of_keras(low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the ends of all its ranges, Keras's own transformation of a square image is that of the op."""
    arguments: dict[str, Any] = {
        "rotation_range": 30,
        "width_shift_range": 0.1,
        "height_shift_range": 0.1,
        "shear_range": 10.0,
        "zoom_range": (0.8, 1.1),
        "fill_mode": "nearest",
        "data_format": "channels_last",
    }

    def end(lower: float, upper: float, size: int | None = None) -> Any:
        value = lower if low else upper
        return value if size is None else np.full(size, value)

    monkeypatch.setattr(np.random, "uniform", end)
    image = np.add.outer(np.arange(24.0) ** 1.5, np.arange(24.0) * 3)[..., None].repeat(3, axis=-1).astype(np.float32)
    generator = ImageDataGenerator(**arguments)
    wanted = generator.apply_transform(image, generator.get_random_transform(image.shape))
    affine, _ = ap.from_image_data_generator(**arguments)
    found, _ = affine.apply((image, None), SPEC, np.full(6, 0.0 if low else 1 - 2**-53))
    np.testing.assert_allclose(found, wanted, atol=0.05)
