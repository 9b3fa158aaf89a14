"""Classify photos in one folder per class.

    pip install '.[demo]'                                    # scikit-image, which the demo set is made of
    python examples/photos/make_demo.py                      # a demo set; or PHOTOS=/path/to/yours
    python examples/photos/train.py                          # trains with a configuration chosen by hand
    autopipe tune examples/photos/train.py:workload          # measures which configuration is fastest here

Keras is imported in `build_model` only, so that a process which loads the data, but not the model, starts at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import autopipe as ap

PHOTOS = Path(os.environ.get("PHOTOS", "demo"))  # a relative path starts at this file, wherever it is run from
SIZE = 160

data = ap.ImageFolder(PHOTOS)


def build_model() -> Any:
    """Return a small compiled CNN."""
    import keras
    from keras import layers

    classes = len(data.classes)
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Conv2D(64, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


workload = ap.Workload(
    data=data,
    ops=[ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip(), ap.Rescale(1 / 255)],
    batch_size=32,
    model=build_model,
    seed=0,
)

if __name__ == "__main__":
    config = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=8))
    ap.make_trainer(workload, config).fit(epochs=2)
