"""Rows for small arrays, and for what the machine itself can do; see `rows`.

Arrays of noise are made here. A row named after a function of this file runs plain code, as a person writes it; all
others run autopipe.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import peers

from autopipe.pipeline.assembly import make_loader
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.workload.data.arrays import Arrays
from autopipe.workload.op import Op
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.workload import Workload

BATCH = 128
SAMPLES = 50_000
Sizes = Iterator[int]


def images() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (SAMPLES, 32, 32, 3), np.uint8), generator.integers(0, 10, SAMPLES)


def batches(workload: Workload, config: PipelineConfig) -> Sizes:
    with make_loader(workload, config) as loader:
        for epoch in itertools.count():
            for x, _ in loader.batches(epoch):
                yield len(x)


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


def whose(run: Callable[[Path], Sizes]) -> str:
    """Return whose code a row runs, by the name of its function."""
    names = {"tf": "plain tf.data", "cv2": "plain OpenCV"}
    return names.get(getattr(run, "func", run).__name__.partition("_")[0], "autopipe")


def cores() -> int:
    return len(os.sched_getaffinity(0))


# name: (what runs, what comes out, data it is given, images before the first block, calls that are not counted)
ROWS: dict[str, tuple[Callable[[Path], Sizes], str, str, int, int]] = {
    "arrays": (functools.partial(arrays, ops=()), "uint8", "", SAMPLES, 16),
    "arrays, flip": (functools.partial(arrays, ops=(RandomFlip(),)), "uint8", "", SAMPLES, 16),
    "tf.data arrays": (functools.partial(tf_arrays, flip=False), "uint8", "", SAMPLES, 16),
    "tf.data arrays, flip": (functools.partial(tf_arrays, flip=True), "uint8", "", SAMPLES, 16),
    "cv2 loop": (cv2_loop, "uint8", "photos", 500, 1),
}
