"""The tuned factory's `fit` against the same pipelines written by hand, and what `ap.DriftMonitor` costs.

    python benchmarks/factory.py PHOTOS [--rows tfdata,threads,...] [--rounds N] [--epochs N] [--json]

PHOTOS has one folder of JPEG files for each class. Each row is a configuration that could win, tuned and by hand: read,
decode, resize to 160x160, flip half of the images, batch 32, scaled to 0..1, a small CNN, Keras on TensorFlow. By hand
is plain tf.data, or, beside threads, a `keras.utils.PyDataset` on OpenCV with as many workers. Rows with "device" send
uint8; by hand the model then begins with a Rescaling layer. Both models train in one process per row and take turns;
a block is one call of `fit` over whole epochs, from its beginning to its end. Shown are the medians of the blocks, and
the mean ratio of neighbouring blocks with its 95 % interval: of images/s, and of processor seconds, which other work on
the machine disturbs less. The target is a ratio of 0.98.

`monitor` trains a model that is next to nothing on small prepared batches, in many short blocks with `ap.DriftMonitor`
and without: processor time a step, and the difference as a part of a step of the rows above. Wall-clock differences of
some microseconds cannot be told from what else a machine does.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SIZE, BATCH, MONITOR_STEPS, MONITOR_ROUNDS, MONITOR_TARGET = 160, 32, 300, 40, 0.5
ROWS = ("tfdata", "tfdata device", "threads", "threads device")


def build(*, compact: bool) -> Any:
    """Return the CNN; with `compact` it takes uint8 and scales by itself, as one does by hand."""
    import keras
    from keras import layers

    scaled = [layers.Rescaling(1 / 255)] if compact else []
    model = keras.Sequential(
        [
            keras.Input((SIZE, SIZE, 3), dtype="uint8" if compact else "float32"),
            *scaled,
            layers.Conv2D(16, 3, strides=4, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def tfdata_by_hand(folder: Path, calls: int, prefetch: int, *, compact: bool) -> Any:
    """Return the pipeline as an engineer writes it with plain tf.data."""
    import peers
    import tensorflow as tf

    def load(path: Any, label: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, (SIZE, SIZE)))
        return (tf.cast(tf.round(image), tf.uint8) if compact else image / 255.0), label

    paths, labels = peers.files_and_labels(folder)
    dataset = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths))
    return dataset.map(load, num_parallel_calls=calls).batch(BATCH, drop_remainder=True).prefetch(prefetch)


def keras_by_hand(folder: Path, workers: int, queue: int, *, compact: bool) -> Any:
    """Return the pipeline as an engineer writes it with a PyDataset."""
    import cv2
    import keras
    import peers

    cv2.setNumThreads(0)
    paths, labels = peers.files_and_labels(folder)

    class Photos(keras.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__(workers=workers, max_queue_size=queue)
            self.random = np.random.default_rng(0)
            self.order = self.random.permutation(len(paths))

        def __len__(self) -> int:
            return len(paths) // BATCH

        def __getitem__(self, number: int) -> Any:
            chosen = self.order[number * BATCH :][:BATCH]
            x = np.stack([self.load(paths[index]) for index in chosen])
            return (x if compact else x.astype(np.float32) / 255), np.array([labels[index] for index in chosen])

        def load(self, path: str) -> Any:
            image = cv2.resize(cv2.imread(path, cv2.IMREAD_COLOR_RGB), (SIZE, SIZE))
            return image[:, ::-1] if self.random.random() < 0.5 else image

        def on_epoch_end(self) -> None:
            self.order = self.random.permutation(len(paths))

    return Photos()


def fits(row: str, folder: Path, cores: int) -> tuple[dict[str, Callable[[int], Any]], int]:
    """Return both ways to train for so many epochs, and the images of an epoch."""
    from autopipe.artifact import factory
    from autopipe.artifact.schema import Profile
    from autopipe.measure import fingerprint
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.pipeline.loaders.tfdata import TfData
    from autopipe.pipeline.loaders.threads import Threads
    from autopipe.search.result import Reason, Result, Stop, Winner
    from autopipe.search.settings import Request
    from autopipe.values import Estimate
    from autopipe.workload.data.images import ImageFolder
    from autopipe.workload.ops.decode import Decode
    from autopipe.workload.ops.geometry import RandomFlip
    from autopipe.workload.ops.sizes import Resize
    from autopipe.workload.ops.values import Rescale
    from autopipe.workload.workload import Workload

    loader, _, device = row.partition(" ")
    compact = device == "device"
    config = PipelineConfig(
        loader=TfData(num_parallel_calls=cores, prefetch=2) if loader == "tfdata" else Threads(workers=cores),
        finish="device" if compact else "host",
    )
    ops = [Decode(), Resize(SIZE, SIZE), RandomFlip(), Rescale(1 / 255)]
    model = functools.partial(build, compact=False)
    workload = Workload(data=ImageFolder(folder), ops=ops, batch_size=BATCH, drop_remainder=True, model=model)
    now = datetime.datetime.now(datetime.UTC)
    winner = Winner(
        config=config.model_dump(mode="json"),
        key=config.key(),
        images_per_second=Estimate.of_one(1.0),
        data_wait_share=0.0,
    )
    profile = Profile(
        hardware=fingerprint.detect(workload.data),
        workload=fingerprint.workload_digest(workload),
        measured_at=now,
        request=Request(),
        result=Result(winner=winner, stop=Stop(reason=Reason.TRIALS, message=""), ended_at=now),
    )
    trainer = factory.of_profile(profile, workload).make_trainer()
    by_hand = build(compact=compact)
    if loader == "tfdata":
        dataset = tfdata_by_hand(folder, cores, 2, compact=compact)
    else:
        dataset = keras_by_hand(folder, cores, 10, compact=compact)
    return {
        "tuned": lambda epochs: trainer.fit(epochs=epochs, verbose=0),
        "by hand": lambda epochs: by_hand.fit(dataset, epochs=epochs, verbose=0),
    }, len(trainer.loader) * BATCH


def compared(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds and processor seconds of each call, by round; who goes first changes from round to round."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls)[:: 1 if number % 2 else -1]:
            began, spent = time.perf_counter(), time.process_time()
            calls[name]()
            taken[name].append((time.perf_counter() - began, time.process_time() - spent))
    return taken


def run_row(row: str, arguments: argparse.Namespace) -> dict[str, Any]:
    from autopipe.hardware import machine
    from autopipe.measure import stats

    trained, images = fits(row, arguments.photos, machine.usable_cores())
    for fit in trained.values():
        fit(1)  # compiles, and reads the files into the page cache
    images *= arguments.epochs
    taken = compared(
        {name: functools.partial(fit, arguments.epochs) for name, fit in trained.items()}, arguments.rounds
    )
    rates = {name: [images / seconds for seconds, _ in series] for name, series in taken.items()}
    work = {name: [spent for _, spent in series] for name, series in taken.items()}
    ratio = stats.compare_pairs(rates["tuned"], rates["by hand"])
    cpu_ratio = stats.compare_pairs(work["by hand"], work["tuned"])
    return {
        "tuned": statistics.median(rates["tuned"]),
        "by hand": statistics.median(rates["by hand"]),
        "ratio": ratio.ratio,
        "interval": (ratio.low, ratio.high),
        "cpu_ratio": cpu_ratio.ratio,
        "cpu_interval": (cpu_ratio.low, cpu_ratio.high),
        "step_milliseconds": 1e3 * BATCH / statistics.median(rates["tuned"]),
    }


def run_monitor() -> dict[str, Any]:
    """Return the processor milliseconds of a step without the monitor, and how many more it takes."""
    import feed

    import autopipe as ap
    from autopipe.measure import stats
    from autopipe.pipeline.devices.trainer import Trainer

    feed.SIDE = 32
    trainer = Trainer(feed.build("uint8"), feed.Prepared("uint8", 10**6))

    def fit(*callbacks: Any) -> None:
        trainer.fit(epochs=1, steps_per_epoch=MONITOR_STEPS, verbose=0, callbacks=callbacks)

    calls: dict[str, Callable[[], Any]] = {"without": fit, "with": lambda: fit(ap.DriftMonitor())}
    for call in calls.values():
        call()
    taken = compared(calls, MONITOR_ROUNDS)
    spent = {name: [1e3 * cpu / MONITOR_STEPS for _, cpu in series] for name, series in taken.items()}
    more = [b - a for a, b in zip(spent["without"], spent["with"], strict=True)]
    low, high = stats.bootstrap_interval(more)
    return {
        "without": statistics.median(spent["without"]),
        "more": statistics.median(more),
        "low": low,
        "high": high,
    }


def show(results: dict[str, Any]) -> None:
    print(f"{'images/s of fit':16}{'tuned':>8}{'by hand':>10}{'ratio':>22}{'by processor time':>22}")
    for row in filter(results.__contains__, ROWS):
        each = results[row]
        ratios = (
            f"{each[kind + 'ratio']:.3f} ({low:.3f} to {high:.3f})"
            for kind in ("", "cpu_")
            for low, high in [each[kind + "interval"]]
        )
        print(f"{row:16}{each['tuned']:8.0f}{each['by hand']:10.0f}", *(f"{ratio:>24}" for ratio in ratios))
    if "monitor" in results:
        each = results["monitor"]
        more, low, high = (1e3 * each[name] for name in ("more", "low", "high"))
        print(f"\nDriftMonitor: {more:.1f} us of processor time a step ({low:.1f} to {high:.1f})", end="")
        for row in filter(results.__contains__, ROWS):
            percent = 100 * each["more"] / results[row]["step_milliseconds"]
            print(f"; {percent:.2f} % of a step of {row}", end="" if percent < MONITOR_TARGET else " (too much)")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--rows", default=",".join((*ROWS, "monitor")))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=1, help="epochs of a block")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        row = arguments.child
        print(json.dumps(run_monitor() if row == "monitor" else run_row(row, arguments)))
        return
    results = {}
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    for row in arguments.rows.split(","):
        command = [sys.executable, *sys.orig_argv[1:], "--child", row]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        results[row] = json.loads(done.stdout.splitlines()[-1])
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
