"""Tune a `keras.utils.PyDataset` that exists already, as it is: `ap.wrap` around a function that makes it.

    pip install '.[demo]'                                    # scikit-image, which the demo set is made of
    python examples/existing_pydataset/make_demo.py          # a demo set; or PHOTOS=/path/to/yours
    python examples/existing_pydataset/train.py              # trains as it is
    autopipe tune examples/existing_pydataset/train.py:workload --out tuned-pydataset

The function takes what tuning may change as parameters; their defaults are how the dataset was used before.
`train.py:one_hots` and `train.py:masks` are the same with targets that are arrays.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import keras  # noqa: TID253  # the dataset is a class of Keras
import numpy as np
from keras import layers  # noqa: TID253

import autopipe as ap

PHOTOS = Path(os.environ.get("PHOTOS", Path(__file__).resolve().parent / "demo"))
BATCH_SIZE = 32
SIZE = 160


class Photos(keras.utils.PyDataset):
    """Batches of photos with labels, one-hots of them or masks, as anybody would write it."""

    def __init__(self, target: str = "label", **knobs: Any) -> None:
        super().__init__(**knobs)
        self.target = target
        self.classes = sorted(entry.name for entry in PHOTOS.iterdir() if entry.is_dir())
        self.samples = [
            (path, label) for label, name in enumerate(self.classes) for path in sorted((PHOTOS / name).glob("*.jpg"))
        ]
        self.random = np.random.default_rng(0)
        self.on_epoch_end()

    def __len__(self) -> int:
        return len(self.samples) // BATCH_SIZE

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        chosen = [self.samples[number] for number in self.order[index * BATCH_SIZE :][:BATCH_SIZE]]
        images = np.stack([_read(path) for path, _ in chosen]).astype("float32") / 255
        labels = np.array([label for _, label in chosen])
        if self.target == "mask":  # of what is bright: (32, 160, 160, 1)
            return images, (images.mean(axis=-1, keepdims=True) > 0.5).astype("float32")
        return images, np.eye(len(self.classes))[labels] if self.target == "one-hot" else labels

    def on_epoch_end(self) -> None:
        """Draw a new order."""
        self.order = self.random.permutation(len(self.samples))


def _read(path: Path) -> Any:
    image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
    if image is None:
        raise ValueError(f"{path} is no image")
    return cv2.resize(image, (SIZE, SIZE))


def make_dataset(workers: int = 1, max_queue_size: int = 10) -> Photos:
    """Return the dataset with Keras's own knobs."""
    return Photos(workers=workers, max_queue_size=max_queue_size)


def make_one_hots(workers: int = 1, max_queue_size: int = 10) -> Photos:
    """Return the same with one-hots, each a vector."""
    return Photos("one-hot", workers=workers, max_queue_size=max_queue_size)


def make_masks(workers: int = 1, max_queue_size: int = 10) -> Photos:
    """Return the same with masks, each as large as its photo."""
    return Photos("mask", workers=workers, max_queue_size=max_queue_size)


def build_model(loss: str = "sparse_categorical_crossentropy") -> Any:
    """Return a small compiled CNN."""
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(sum(entry.is_dir() for entry in PHOTOS.iterdir()), activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def build_classifier() -> Any:
    """Return the CNN for one-hots."""
    return build_model("categorical_crossentropy")


def build_segmenter() -> Any:
    """Return a small compiled network from a photo to its mask."""
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, padding="same", activation="relu"),
            layers.Conv2D(1, 1, activation="sigmoid"),
            layers.UpSampling2D(4),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy")
    return model


PARAMETERS = {"workers": [1, 2, 4], "max_queue_size": [4, 10]}
workload = ap.wrap(make_dataset, model=build_model, parameters=PARAMETERS)
one_hots = ap.wrap(make_one_hots, model=build_classifier, parameters=PARAMETERS)
masks = ap.wrap(make_masks, model=build_segmenter, parameters=PARAMETERS)

if __name__ == "__main__":
    build_model().fit(make_dataset(), epochs=2)
