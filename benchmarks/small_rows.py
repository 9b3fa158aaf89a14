"""Rows for small samples, for large JPEG files and for what the machine itself can do; see `rows`.

Data that no row is given are made here: arrays of noise, JPEG files of 64x64 and of 12 megapixels. A row named after a
function of this file runs plain code, as a person writes it; all others run autopipe.

A JPEG that is decoded to an eighth is read to its last bit all the same. Of 4000x3000 pixels (1.9 MB, 4:2:0, quality
90) one core decodes the whole in 29.3 ms by simplejpeg and in 50.0 ms by OpenCV, an eighth of it in 16.1 ms by either,
and its grey alone in 15.6: what there is to be gained is 1.8 times the one and 3.1 times the other.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import peers

from autopipe.pipeline.assembly import build_loader, build_trainer
from autopipe.pipeline.config import LoaderConfig, ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.data.images import ImageFolder
from autopipe.workload.op import Op
from autopipe.workload.ops.decode import Decode
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.ops.sizes import Resize
from autopipe.workload.ops.values import Rescale
from autopipe.workload.workload import Workload

BATCH = 128
SAMPLES, DIGITS = 50_000, 60_000
LARGE = 24  # files of 12 megapixels
TOGETHER = 32  # steps that one call trains
EPOCHS = 3  # that one call of `fit` trains: it is begun and ended that seldom in a long training, too
Sizes = Iterator[int]


def images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (SAMPLES, 32, 32, 3), np.uint8), generator.integers(0, 10, SAMPLES)


def digits() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (DIGITS, 28, 28), np.uint8), generator.integers(0, 10, DIGITS)


def perceptron() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((28, 28)), layers.Flatten(), layers.Dense(64, "relu"), layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def written(folder: Path, count: int, height: int, width: int) -> Path:
    """Write JPEG files of structure and some noise, as photographs have."""
    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = generator.integers(0, 256, (max(2, height // 40), max(2, width // 40), 3), np.uint8)
        image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        image = cv2.add(image, generator.integers(0, 8, image.shape, np.uint8))
        path = folder / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, 90])
    return folder


def batches(workload: Workload, config: PipelineConfig) -> Sizes:
    with build_loader(workload, config) as loader:
        for epoch in itertools.count():
            for x, _ in loader.batches(epoch):
                yield len(x)


def epochs(folder: Path, finish: str) -> Sizes:
    """Read finished batches by `Loader.epoch`, as a loop of one's own does."""
    ops = [Decode(), Resize(peers.SIZE, peers.SIZE), RandomFlip(), Rescale(1 / 255)]
    workload = Workload(data=ImageFolder(folder), ops=ops, batch_size=peers.BATCH, drop_remainder=True)
    config = PipelineConfig.model_validate({"loader": Threads(workers=cores()), "finish": finish})
    with build_loader(workload, config) as loader:
        for epoch in itertools.count():
            for _ in loader.epoch(epoch):
                yield peers.BATCH  # to ask a tensor for its length takes longer than to place it


def arrays(folder: Path, ops: tuple[Op, ...]) -> Sizes:
    config = PipelineConfig(loader=Threads(workers=cores()))
    return batches(Workload(data=Arrays(*images()), ops=ops, batch_size=BATCH), config)


def tf_arrays(folder: Path, flip: bool) -> Sizes:
    """Indices are shuffled and batched, and each batch is gathered and flipped by one call."""
    import tensorflow as tf

    x, y = map(tf.constant, images())

    def gather(chosen: Any) -> Any:
        batch = tf.gather(x, chosen)
        return tf.image.random_flip_left_right(batch) if flip else batch, tf.gather(y, chosen)

    dataset = tf.data.Dataset.range(SAMPLES).shuffle(SAMPLES).repeat().batch(BATCH)
    for batch, _ in dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE):
        yield int(batch.shape[0])


def cached(folder: Path, loader: LoaderConfig) -> Sizes:
    with tempfile.TemporaryDirectory() as own:
        ops = [Decode(), RandomFlip()]
        workload = Workload(data=ImageFolder(written(Path(own), 2000, 64, 64)), ops=ops, batch_size=peers.BATCH)
        yield from batches(workload, PipelineConfig(loader=loader, keep="memory"))


def tf_cached_small(folder: Path) -> Sizes:
    """The same in tf.data: images are decoded once, kept by `cache`, and flipped batch by batch."""
    import tensorflow as tf

    def load(path: Any, label: Any) -> Any:
        return tf.ensure_shape(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (64, 64, 3)), label

    def flip(image: Any, label: Any) -> Any:
        return tf.image.random_flip_left_right(image), label

    with tempfile.TemporaryDirectory() as own:
        paths, labels = peers.files_and_labels(written(Path(own), 2000, 64, 64))
        dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).map(load, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.cache().shuffle(len(paths)).repeat().batch(peers.BATCH, drop_remainder=True)
        dataset = dataset.map(flip, num_parallel_calls=tf.data.AUTOTUNE)
        for x, _ in dataset.prefetch(tf.data.AUTOTUNE):
            yield int(x.shape[0])


def large(folder: Path, reduce: bool) -> Sizes:
    with tempfile.TemporaryDirectory() as own:
        ops = [Decode(reduce=reduce), Resize(peers.SIZE, peers.SIZE)]
        data = ImageFolder(written(Path(own), LARGE, 3000, 4000))
        yield from batches(Workload(data=data, ops=ops, batch_size=4), PipelineConfig(loader=Threads(workers=cores())))


def cv2_large(folder: Path) -> Sizes:
    """Decode images of 12 megapixels whole, by OpenCV's own copy of libjpeg-turbo."""
    with tempfile.TemporaryDirectory() as own:
        yield from cv2_loop(written(Path(own), LARGE, 3000, 4000))


def cv2_loop(folder: Path) -> Sizes:
    """Nothing but OpenCV's calls, in a process for each core."""
    context = multiprocessing.get_context("spawn")
    counts = [context.Value("q", 0) for _ in range(cores())]
    for count in counts:
        context.Process(target=_cv2_loop, args=(str(folder), count), daemon=True).start()
    seen = 0
    while True:
        time.sleep(0.02)
        now = sum(count.value for count in counts)
        if now > seen:
            yield now - seen
        seen = now


def _cv2_loop(folder: str, count: Any) -> None:
    cv2.setNumThreads(1)
    paths, _ = peers.files_and_labels(Path(folder))
    batch = np.empty((peers.BATCH, peers.SIZE, peers.SIZE, 3), np.uint8)
    generator = np.random.default_rng()
    for number in itertools.count():
        data = np.fromfile(paths[generator.integers(len(paths))], np.uint8)
        image = cv2.resize(cv2.imdecode(data, cv2.IMREAD_COLOR_RGB), (peers.SIZE, peers.SIZE))
        batch[number % peers.BATCH] = cv2.flip(image, 1) if generator.random() < 0.5 else image
        with count.get_lock():
            count.value += 1


def mlp_workload(_: Path | None = None) -> Workload:
    return Workload(
        data=Arrays(*digits()), ops=[Rescale(1 / 255)], batch_size=BATCH, model=perceptron, drop_remainder=True
    )


def mlp(folder: Path) -> Sizes:
    """Train by the configuration that a tune ends at."""
    config = PipelineConfig(loader=Threads(workers=1), steps_per_execution=TOGETHER)
    with build_trainer(mlp_workload(), config) as trainer:
        while True:
            trainer.fit(epochs=EPOCHS, verbose=0)
            yield EPOCHS * len(trainer.loader) * BATCH


def mlp_alone(folder: Path) -> Sizes:
    """Train by the same calls on one batch that is there already."""
    from autopipe.measure.bench import ResidentLoader
    from autopipe.pipeline.devices.trainer import Trainer

    with build_loader(mlp_workload(), PipelineConfig(loader=Threads(workers=1))) as loader:
        x, y = next(iter(loader.batches(0)))
        resident = ResidentLoader((x, y), loader.spec, loader.finish, BATCH, TOGETHER)
        steps = len(loader) // TOGETHER * TOGETHER
    trainer = Trainer(perceptron(), resident)
    trainer.setup = ModelSetup(steps_per_execution=TOGETHER)
    while True:
        trainer.fit(epochs=EPOCHS, steps_per_epoch=steps, verbose=0)
        yield EPOCHS * steps * BATCH


def mlp_loader(folder: Path) -> Sizes:
    return batches(mlp_workload(), PipelineConfig(loader=Threads(workers=1)))


def keras_fit(folder: Path) -> Sizes:
    """`fit(x, y)`."""
    x, y = digits()
    scaled, model = (x / 255).astype(np.float32), perceptron()
    while True:
        model.fit(scaled, y, batch_size=BATCH, epochs=EPOCHS, verbose=0)
        yield EPOCHS * DIGITS


def tf_fit(folder: Path) -> Sizes:
    """`fit` on a dataset of arrays, shuffled, batched, and scaled batch by batch."""
    import tensorflow as tf

    def scale(x: Any, y: Any) -> Any:
        return tf.cast(x, tf.float32) / 255.0, y

    model = perceptron()
    dataset = tf.data.Dataset.from_tensor_slices(digits()).shuffle(DIGITS).batch(BATCH)
    dataset = dataset.map(scale, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    while True:
        model.fit(dataset, epochs=EPOCHS, verbose=0)
        yield EPOCHS * DIGITS


def whose(run: Callable[[Path], Sizes]) -> str:
    """Return whose code a row runs, by the name of its function."""
    names = {"tf": "plain tf.data", "keras": "plain Keras", "cv2": "plain OpenCV"}
    return names.get(getattr(run, "func", run).__name__.partition("_")[0], "autopipe")


def cores() -> int:
    return len(os.sched_getaffinity(0))


# name: (what runs, what comes out, data it is given, images before the first block, calls that are not counted)
ROWS: dict[str, tuple[Callable[[Path], Sizes], str, str, int, int]] = {
    "arrays": (functools.partial(arrays, ops=()), "uint8", "", SAMPLES, 16),
    "arrays, flip": (functools.partial(arrays, ops=(RandomFlip(),)), "uint8", "", SAMPLES, 16),
    "tf.data arrays": (functools.partial(tf_arrays, flip=False), "uint8", "", SAMPLES, 16),
    "tf.data arrays, flip": (functools.partial(tf_arrays, flip=True), "uint8", "", SAMPLES, 16),
    "64x64 cached, flip": (functools.partial(cached, loader=Threads(workers=cores())), "uint8", "", 8000, 16),
    "tf.data 64x64 cached, flip": (tf_cached_small, "uint8", "", 8000, 16),
    "MLP": (mlp, "trained", "", DIGITS, 1),
    "MLP model alone": (mlp_alone, "trained", "", DIGITS, 1),
    "MLP loader alone": (mlp_loader, "uint8", "", DIGITS, 16),
    "MLP fit(x, y)": (keras_fit, "trained", "", DIGITS, 1),
    "MLP tf.data": (tf_fit, "trained", "", DIGITS, 1),
    "12 megapixels": (functools.partial(large, reduce=False), "uint8", "", 2 * LARGE, 4),
    "12 megapixels, reduced": (functools.partial(large, reduce=True), "uint8", "", 2 * LARGE, 4),
    "cv2 12 megapixels": (cv2_large, "uint8", "", 2 * LARGE, 1),
    "cv2 loop": (cv2_loop, "uint8", "photos", 500, 1),
    "epoch(), device": (functools.partial(epochs, finish="device"), "float32", "photos", 4000, 16),
    "epoch(), host": (functools.partial(epochs, finish="host"), "float32", "photos", 4000, 16),
}
