"""Segment images whose masks name each pixel's class by a colour: CamVid's layout, 32 classes.

    pip install '.[demo]'                                    # scikit-image, which the demo set is made of
    python examples/segmentation/make_demo.py                # a demo set; or CAMVID=/path/to/yours
    python examples/segmentation/train.py                    # trains with a configuration chosen by hand
    autopipe tune examples/segmentation/train.py:workload    # measures which configuration is fastest here

The folder holds images/, masks/ with a mask of the same name for each image, and palette.csv with the red,green,blue
of one class a line.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import autopipe as ap

CAMVID = Path(os.environ.get("CAMVID", "demo"))  # a relative path starts at this file, wherever it is run from
CLASSES = 32
SIZE = 512


def build_model() -> Any:
    """Return a small compiled U-Net."""
    import keras
    from keras import layers

    def block(x: Any, filters: int) -> Any:
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return layers.BatchNormalization()(x)

    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(16, 3, strides=4, padding="same", activation="relu")(inputs)
    skips = []
    for filters in (16, 32):
        x = block(x, filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, 64)
    for filters, skip in zip((32, 16), reversed(skips), strict=True):
        x = layers.Concatenate()([layers.UpSampling2D()(x), skip])
        x = block(x, filters)
    x = layers.Conv2D(CLASSES, 1)(x)
    model = keras.Model(inputs, layers.UpSampling2D(4)(x))
    # Softmax inside the loss, and no metric over 25 million values a batch: a third of the step's time on a CPU.
    model.compile(optimizer="adam", loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    return model


workload = ap.Workload(
    data=ap.ImagePairs(CAMVID / "images", CAMVID / "masks"),
    ops=[
        ap.Decode(),
        ap.MaskToClass(CAMVID / "palette.csv"),
        ap.RandomCrop(SIZE, SIZE),
        ap.RandomFlip(),
        ap.OneHot(CLASSES),
        ap.Rescale(1 / 255),
    ],
    batch_size=3,
    model=build_model,
    seed=0,
)

if __name__ == "__main__":
    config = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=4))
    ap.make_trainer(workload, config).fit(epochs=2)
