"""A model of two inputs, photographs and some numbers, fed by plain Keras. `train.py` is the same with autopipe.

    python examples/two_inputs/make_demo.py
    python examples/two_inputs/by_keras.py

The model's inputs are called as the parts of x are: "image" and "features".
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(os.environ.get("HOUSES", Path(__file__).resolve().parent / "demo"))
NUMBERS = ["rooms", "age"]


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


if __name__ == "__main__":
    from keras.utils import img_to_array, load_img

    rows = list(csv.DictReader((DATA / "houses.csv").open()))
    photos = [load_img(DATA / row["photo"], target_size=(64, 64)) for row in rows]
    image = np.stack([img_to_array(photo) for photo in photos]) / 255
    numbers = np.array([[float(row[name]) for name in NUMBERS] for row in rows], "float32")
    price = np.array([float(row["price"]) for row in rows], "float32")
    trust = np.array([float(row["trust"]) for row in rows], "float32")
    build_model().fit({"image": image, "features": numbers}, price, sample_weight=trust, batch_size=8, epochs=2)
