"""Random resized crops of photographs of varied sizes, and changes of colour, beside tf.data as people write it.

    python benchmarks/crops.py --photos PHOTOS [--rounds 3]

PHOTOS is a folder of class folders. Loaders alone, batches of 32 at 224x224; rows take turns, each alone on the
machine; medians are shown. The tf.data code is plain: the crop is drawn by `sample_distorted_bounding_box` and decoded
by `decode_and_crop_jpeg`, as in TensorFlow's ResNet examples, or cut from decoded photographs that `cache` keeps.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from rich.console import Console
from rich.table import Table

import autopipe as ap

SIZE, BATCH, WARM, STEPS = 224, 32, 60, 160
AUTO = tf.data.AUTOTUNE


def _listed(folder: Path) -> tuple[list[str], list[int]]:
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    found = [(str(path), label) for label, each in enumerate(classes) for path in sorted(each.iterdir())]
    return [path for path, _ in found], [label for _, label in found]


def _box(shape: Any) -> Any:
    begin, extent, _ = tf.image.sample_distorted_bounding_box(
        shape,
        [[[0.0, 0.0, 1.0, 1.0]]],
        min_object_covered=0.0,
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
    )
    return begin[0], begin[1], extent[0], extent[1]


def _flipped(image: Any) -> Any:
    return tf.image.random_flip_left_right(tf.image.resize(image, (SIZE, SIZE))) / 255.0


def tf_crops(folder: Path) -> Any:
    def load(path: Any, label: Any) -> Any:
        data = tf.io.read_file(path)
        window = tf.stack(_box(tf.io.extract_jpeg_shape(data)))
        return _flipped(tf.image.decode_and_crop_jpeg(data, window, channels=3)), label

    paths, labels = _listed(folder)
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).map(load, AUTO)
    return data.batch(BATCH).prefetch(AUTO).repeat()


def tf_cached_crops(folder: Path) -> Any:
    def decode(path: Any, label: Any) -> Any:
        return tf.io.decode_jpeg(tf.io.read_file(path), channels=3), label

    def crop(image: Any, label: Any) -> Any:
        top, left, height, width = _box(tf.shape(image))
        return _flipped(image[top : top + height, left : left + width]), label

    data = tf.data.Dataset.from_tensor_slices(_listed(folder)).map(decode, AUTO).cache()
    return data.shuffle(256).map(crop, AUTO).batch(BATCH).prefetch(AUTO).repeat()


def tf_colours(folder: Path) -> Any:
    def load(path: Any, label: Any) -> Any:
        image = _flipped(tf.io.decode_jpeg(tf.io.read_file(path), channels=3))
        image = tf.image.random_contrast(tf.image.random_brightness(image, 0.2), 0.8, 1.2)
        image = tf.image.random_hue(tf.image.random_saturation(image, 0.8, 1.2), 0.05)
        return tf.clip_by_value(image, 0.0, 1.0), label

    paths, labels = _listed(folder)
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).map(load, AUTO)
    return data.batch(BATCH).prefetch(AUTO).repeat()


CROPS = (ap.Decode(), ap.RandomResizedCrop(SIZE, SIZE), ap.RandomFlip())
COLOURS = (
    ap.Decode(),
    ap.Resize(SIZE, SIZE),
    ap.RandomFlip(),
    ap.RandomBrightness(0.2),
    ap.RandomContrast(0.8, 1.2),
    ap.RandomSaturation(0.8, 1.2),
    ap.RandomHue(0.05),
)


def rate(batches: Iterable[Any]) -> float:
    """Return images/s of endless batches."""
    iterator = iter(batches)
    for _ in range(WARM):
        next(iterator)
    began = time.perf_counter()
    for _ in range(STEPS):
        next(iterator)
    return STEPS * BATCH / (time.perf_counter() - began)


def theirs(make: Callable[[Path], Any], folder: Path) -> float:
    return rate(make(folder))


def ours(ops: tuple[Any, ...], config: ap.PipelineConfig, folder: Path) -> float:
    workload = ap.Workload(data=ap.ImageFolder(folder.absolute()), ops=ops, batch_size=BATCH)
    with ap.build_loader(workload, config) as loader:
        for _ in loader.batches(0) if config.kept.in_memory else ():
            pass
        return rate(_endless(loader))


def _endless(loader: Any) -> Iterator[Any]:
    return itertools.chain.from_iterable(loader.batches(epoch) for epoch in itertools.count(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    photos = Path(chosen.photos)
    os.environ["AUTOPIPE_PHOTOS"] = str(photos)
    import regime_workloads  # which reads it

    varied = regime_workloads.varied()
    rows: dict[str, Callable[[], float]] = {
        "crops: tf.data, decoding the crop": lambda: theirs(tf_crops, varied),
        "crops: tf.data, decoded photographs cached": lambda: theirs(tf_cached_crops, varied),
        "colours: tf.data": lambda: theirs(tf_colours, photos),
    }
    for name, ops, folder in (("crops", CROPS, varied), ("colours", COLOURS, photos)):
        for loader in (ap.Threads(workers=2), ap.Processes(workers=2)):
            for keep in ("none", "encoded", "memory"):
                config = ap.PipelineConfig(loader=loader, keep=keep)
                rows[f"{name}: {config.short()}"] = lambda ops=ops, config=config, folder=folder: ours(
                    ops, config, folder
                )
    found: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(chosen.rounds):
        for name, run in rows.items():
            found[name].append(run())
    table = Table("loader alone", "images/s", "in each round", box=None, pad_edge=False, header_style="bold")
    for name, rates in sorted(found.items()):
        table.add_row(name, f"{statistics.median(rates):,.0f}", ", ".join(f"{each:,.0f}" for each in rates))
    Console().print(table)


if __name__ == "__main__":
    main()
