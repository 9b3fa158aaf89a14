"""A model of two inputs, photographs and some numbers, fed by autopipe. `by_keras.py` is the same with plain Keras.

    python examples/two_inputs/make_demo.py
    python examples/two_inputs/train.py                  # or autopipe tune examples/two_inputs/train.py:workload

The model's inputs are called as the parts of x are: "image" and "features".
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import autopipe as ap

DATA = Path(os.environ.get("HOUSES", Path(__file__).resolve().parent / "demo"))
NUMBERS = ["rooms", "age"]

data = ap.Table(
    DATA / "houses.csv", path="photo", features=NUMBERS, label="price", label_mode="number", sample_weight="trust"
)


def build_model() -> Any:
    """Return a small compiled model that values a house by its photograph and two numbers."""
    import keras
    from keras import layers

    photo = keras.Input((64, 64, 3), name="image")
    features = keras.Input((len(NUMBERS),), name="features")
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(16, 3, strides=2, activation="relu")(photo))
    both = layers.Dense(16, activation="relu")(layers.concatenate([seen, features]))
    model = keras.Model([photo, features], layers.Dense(1)(both))
    model.compile(optimizer="adam", loss="mse")
    return model


ops = [ap.Decode(), ap.Resize(64, 64), ap.RandomFlip(), ap.Rescale(1 / 255)]  # on the photographs
workload = ap.Workload(data=data, ops=ops, batch_size=8, model=build_model)

if __name__ == "__main__":
    ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))).fit(epochs=2)
