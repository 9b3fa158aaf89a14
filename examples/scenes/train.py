"""Segment scenes of 6 bands, such as those of a satellite, by windows of 256 pixels.

    pip install '.[demo,raster]'                        # scikit-image, for the demo set; TIFF files
    python examples/scenes/make_demo.py                 # a demo set; or SCENES=/path/to/yours
    python examples/scenes/train.py                     # trains with a configuration chosen by hand
    autopipe tune examples/scenes/train.py:workload     # measures which configuration is fastest here

The folder holds scenes/NAME.tif and classes/NAME_classes.tif, whose pixels are numbers of classes. Each epoch trains on
windows at new random positions, and validates on the grid of all windows of other scenes. Slices of volumes, such as
scans/NAME.nii.gz, are `ap.Windows(..., size=(1, None, None))`; with `ap.Workload(..., shuffle=ap.Blocks())` each volume
is unpacked once an epoch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import autopipe as ap

SCENES = Path(os.environ.get("SCENES", "demo"))  # a relative path starts at this file, wherever it is run from
CLASSES = 5
SIZE = 256


def build_model() -> Any:
    """Return a small compiled U-Net."""
    import keras
    from keras import layers

    inputs = keras.Input((SIZE, SIZE, 6))
    x = layers.Conv2D(16, 3, strides=4, padding="same", activation="relu")(inputs)
    skip = x
    x = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Concatenate()([layers.UpSampling2D()(x), skip])
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    x = layers.Conv2D(CLASSES, 1)(x)
    model = keras.Model(inputs, layers.UpSampling2D(4)(x))
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def windows(subset: Any, random: int | None = None) -> ap.Windows:
    """Return the windows of three quarters of the scenes, for training, or of the others."""
    return ap.Windows(
        SCENES / "scenes" / "*.tif",
        SCENES / "classes" / "*_classes.tif",
        size=SIZE,
        random=random,
        validation_split=0.25,
        subset=subset,
        seed=0,
    )


workload = ap.Workload(
    data=windows("training", random=16),
    validation=windows("validation"),
    ops=[ap.RandomFlip(), ap.Normalize(2300.0, 1000.0)],
    batch_size=8,
    model=build_model,
    seed=0,
)

if __name__ == "__main__":
    config = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=4))
    ap.make_trainer(workload, config).fit(epochs=2)
