"""The data of `baselines.py` fed as people write it by hand: nothing here is generated, and nothing knows autopipe.

Each function takes the folder of the data and returns what Keras's `fit` takes, in whole batches.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import tensorflow as tf

SIZE, BATCH, ROWS_BATCH = 96, 32, 128
COLOURS = ((0, 0, 0), (255, 0, 0), (0, 255, 0), (10, 20, 30))
AUTO = tf.data.AUTOTUNE


def _folder(folder: Path) -> tuple[list[str], list[int]]:
    classes = sorted(entry.name for entry in (folder / "photos").iterdir())
    found = [(str(path), n) for n, name in enumerate(classes) for path in sorted((folder / "photos" / name).iterdir())]
    return [path for path, _ in found], [label for _, label in found]


def _table(folder: Path) -> tuple[list[str], list[int]]:
    with (folder / "photos.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [str(folder / row["path"]) for row in rows], [int(row["label"]) for row in rows]


def _pairs(folder: Path) -> tuple[list[str], list[str]]:
    images, masks = (sorted(map(str, (folder / part).iterdir())) for part in ("images", "masks"))
    return images, masks


def _resized(data: Any) -> Any:
    return tf.image.resize(tf.io.decode_jpeg(data, channels=3), (SIZE, SIZE))


def _photos(listed: Callable[[Path], Any], folder: Path) -> Any:
    def load(path: Any, label: Any) -> Any:
        return tf.image.random_flip_left_right(_resized(tf.io.read_file(path))) / 255.0, label

    paths, labels = listed(folder)
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).map(load, AUTO)
    return data.batch(BATCH, drop_remainder=True).prefetch(AUTO)


def _cached(listed: Callable[[Path], Any], folder: Path) -> Any:
    def load(path: Any, label: Any) -> Any:
        return tf.cast(_resized(tf.io.read_file(path)), tf.uint8), label

    def augment(image: Any, label: Any) -> Any:
        return tf.cast(tf.image.random_flip_left_right(image), tf.float32) / 255.0, label

    paths, labels = listed(folder)
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).map(load, AUTO).cache().shuffle(len(paths))
    return data.map(augment, AUTO).batch(BATCH, drop_remainder=True).prefetch(AUTO)


def directory(folder: Path) -> Any:
    named: Any = {"image_size": (SIZE, SIZE), "batch_size": BATCH, "verbose": False}
    data = keras.utils.image_dataset_from_directory(folder / "photos", **named)
    flip = keras.layers.RandomFlip("horizontal")
    return data.map(lambda x, y: (flip(x, training=True) / 255.0, y), AUTO).prefetch(AUTO)


def records(folder: Path) -> Any:
    features = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    }

    def load(record: Any) -> Any:
        parsed = tf.io.parse_single_example(record, features)
        image = tf.image.random_flip_left_right(_resized(parsed["image/encoded"]))
        return image / 255.0, parsed["image/class/label"]

    data = tf.data.TFRecordDataset(str(folder / "photos.tfrecord")).shuffle(2_000).map(load, AUTO)
    return data.batch(BATCH, drop_remainder=True).prefetch(AUTO)


def pairs(folder: Path) -> Any:
    """Crop image and mask as one, then compare with each colour: the one-hot that most segmentation code has."""

    def load(image_path: Any, mask_path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(image_path), channels=3)
        mask = tf.io.decode_png(tf.io.read_file(mask_path), channels=3)
        both = tf.image.random_crop(tf.concat([image, mask], axis=-1), (SIZE, SIZE, 6))
        planes = [tf.reduce_all(tf.equal(both[..., 3:], colour), axis=-1) for colour in COLOURS]
        return tf.cast(both[..., :3], tf.float32) / 255.0, tf.cast(tf.stack(planes, axis=-1), tf.float32)

    paths = _pairs(folder)
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths[0])).map(load, AUTO)
    return data.batch(BATCH, drop_remainder=True).prefetch(AUTO)


def _rows(folder: Path) -> tuple[Any, Any]:
    return np.load(folder / "x.npy"), np.load(folder / "y.npy")


def arrays(folder: Path) -> Any:
    data = tf.data.Dataset.from_tensor_slices(_rows(folder)).shuffle(10_000).batch(ROWS_BATCH, drop_remainder=True)
    return data.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y), AUTO).prefetch(AUTO)


def fit(folder: Path) -> Any:
    x, y = _rows(folder)
    return x.astype("float32") / 255, y


class Batches(keras.utils.PyDataset):
    """Whole batches, made by a function of a sample's number."""

    def __init__(self, load: Callable[[int], Any], count: int, batch: int, workers: int) -> None:
        super().__init__(workers=workers)
        self.load, self.count, self.batch = load, count, batch
        self.on_epoch_end()

    def __len__(self) -> int:
        return self.count // self.batch

    def on_epoch_end(self) -> None:
        self.order = np.random.permutation(self.count)

    def __getitem__(self, number: int) -> Any:
        x, y = zip(*map(self.load, self.order[number * self.batch : (number + 1) * self.batch]), strict=True)
        return np.stack(x), np.stack(y)


def _batches(kind: str, folder: Path, workers: int) -> Batches:
    def photo(index: int) -> Any:
        image = cv2.resize(cv2.cvtColor(cv2.imread(paths[index]), cv2.COLOR_BGR2RGB), (SIZE, SIZE))
        return (image[:, ::-1] if np.random.rand() < 0.5 else image).astype("float32") / 255, labels[index]

    def pair(index: int) -> Any:
        image, mask = (cv2.cvtColor(cv2.imread(part[index]), cv2.COLOR_BGR2RGB) for part in (paths, labels))
        top, left = (np.random.randint(side - SIZE + 1) for side in image.shape[:2])
        image, mask = (part[top : top + SIZE, left : left + SIZE] for part in (image, mask))
        planes = [(mask == colour).all(axis=-1) for colour in COLOURS]
        return image.astype("float32") / 255, np.stack(planes, axis=-1).astype("float32")

    def row(index: int) -> Any:
        return paths[index].astype("float32") / 255, labels[index]

    listed: Any = {"folder": _folder, "table": _table, "pairs": _pairs, "arrays": _rows}[kind]
    paths, labels = listed(folder)
    load = {"pairs": pair, "arrays": row}.get(kind, photo)
    return Batches(load, len(labels), ROWS_BATCH if kind == "arrays" else BATCH, workers)


def made(kind: str, form: str, folder: Path) -> Any:
    """Return one kind of data in one form, by the names that `baselines.py` has for both."""
    if form.startswith("keras"):
        return _batches(kind, folder, 1 if form == "keras" else max(2, len(os.sched_getaffinity(0))))
    if kind in ("folder", "table") and form != "directory":
        listed = _folder if kind == "folder" else _table
        return (_cached if form == "tf.data-cache" else _photos)(listed, folder)
    if form in ("directory", "fit"):
        return (directory if form == "directory" else fit)(folder)
    return {"records": records, "pairs": pairs, "arrays": arrays}[kind](folder)
