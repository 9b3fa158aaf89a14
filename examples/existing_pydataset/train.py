"""Segment images by a `keras.utils.PyDataset` as people write it: PNG pairs by OpenCV, masks in colours to one-hots.

    pip install '.[demo]'                                    # scikit-image, which the demo set is made of
    python examples/existing_pydataset/make_demo.py          # a demo set; or CAMVID=/path/to/yours
    python examples/existing_pydataset/train.py              # trains as it is
    autopipe tune examples/existing_pydataset/train_tuned.py:workload --out tuned-pydataset
    python examples/existing_pydataset/train_tuned.py        # trains with the result

`train_tuned.py` is this script with four lines changed. The folder is laid out as in examples/segmentation.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import cv2
import keras  # noqa: TID253  # the dataset is a class of Keras
import numpy as np
from keras import layers  # noqa: TID253

CAMVID = Path(os.environ.get("CAMVID", Path(__file__).resolve().parent / "demo"))
SIZE = 512


class Pairs(keras.utils.PyDataset):
    """Batches of images and one-hots of their masks."""

    def __init__(self, folder: Path, batch_size: int = 3, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.images = sorted((folder / "images").glob("*.png"))
        self.masks = sorted((folder / "masks").glob("*.png"))
        self.colours = np.loadtxt(folder / "palette.csv", dtype=np.uint8, delimiter=",")
        self.order = np.arange(len(self.images))
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.images) // self.batch_size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        images, masks = [], []
        for number in self.order[index * self.batch_size : (index + 1) * self.batch_size]:
            image, mask = read(self.images[number]), read(self.masks[number])
            top = np.random.randint(image.shape[0] - SIZE + 1)
            left = np.random.randint(image.shape[1] - SIZE + 1)
            images.append(image[top : top + SIZE, left : left + SIZE])
            mask = mask[top : top + SIZE, left : left + SIZE]
            masks.append(np.stack([(mask == colour).all(-1) for colour in self.colours], axis=-1))
        return np.array(images, np.float32) / 255, np.array(masks, np.float32)

    def on_epoch_end(self) -> None:
        """Draw a new order."""
        np.random.shuffle(self.order)


def read(path: Path) -> Any:
    """Return a picture as RGB."""
    picture: Any = cv2.imread(str(path))
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


def build_model() -> Any:
    """Return a small compiled network from an image to the classes of its pixels."""
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3)),
            layers.Conv2D(16, 3, strides=4, padding="same", activation="relu"),
            layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(32, 1),
            layers.UpSampling2D(8),
        ]
    )
    model.compile(optimizer="adam", loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    return model


dataset = Pairs(CAMVID, workers=8, use_multiprocessing=True)

if __name__ == "__main__":
    build_model().fit(dataset, epochs=2)
