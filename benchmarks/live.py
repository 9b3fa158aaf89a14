"""A whole training that tunes itself (`tune="live"`, from nothing) beside tuned ones, tf.data and PyDataset, by turns.

    python benchmarks/live.py --photos FOLDER [--only warm,latency-20ms] [--rounds 3] [--epochs 5] [--samples 8000]

`FOLDER` has JPEG files in class folders. Each row is a whole training of a simulated accelerator, which a fast loader
can feed: building the trainer, opening the loader, and all epochs. "tuned" begins with the configuration that
`autopipe tune` found before, with its defaults; "tune + train" is the same with the seconds of that tune. tf.data and
PyDataset are written as people write them. Shown are the medians of the rounds, and of the live training's seconds over
theirs within a round.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
from regime_workloads import Waiting
from rich.console import Console
from rich.table import Table

import autopipe as ap
from autopipe.measure.stats import median
from autopipe.pipeline.batching.rehearsed import Repeated

SIZE, BATCH, STEP_SECONDS = 224, 32, 0.016
PHOTOS, SAMPLES = "AUTOPIPE_PHOTOS", "AUTOPIPE_LIVE_SAMPLES"
REGIMES = {"warm": 0.0, "latency-20ms": 0.020}
"""The seconds that each read waits."""


def workload(wait: float) -> ap.Workload:
    photos = Path(os.environ[PHOTOS]).absolute()
    data = Waiting(wait, photos) if wait else ap.ImageFolder(photos)
    return ap.Workload(
        data=Repeated(data, int(os.environ[SAMPLES])),
        ops=[ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip(), ap.Rescale(1 / 255)],
        batch_size=BATCH,
        model=ap.SimulatedAccelerator(STEP_SECONDS),
        drop_remainder=True,
    )


def warm() -> ap.Workload:
    return workload(REGIMES["warm"])


def latency_20ms() -> ap.Workload:
    return workload(REGIMES["latency-20ms"])


# -------------------- as people write it


def _paths() -> tuple[list[str], list[int]]:
    found = sorted(Path(os.environ[PHOTOS]).absolute().glob("*/*"))
    classes = sorted({path.parent.name for path in found})
    count = int(os.environ[SAMPLES])
    listed = [found[number % len(found)] for number in range(count)]
    return [str(path) for path in listed], [classes.index(path.parent.name) for path in listed]


def tf_data(wait: float) -> Any:
    import tensorflow as tf

    def read_late(name: bytes) -> bytes:
        time.sleep(wait)
        return Path(name.decode()).read_bytes()

    def read(path: Any) -> Any:
        if not wait:
            return tf.io.read_file(path)
        return tf.numpy_function(read_late, [path], tf.string)

    def load(path: Any, label: Any) -> Any:
        image = tf.image.resize(tf.io.decode_jpeg(read(path), channels=3), (SIZE, SIZE))
        image.set_shape((SIZE, SIZE, 3))
        return tf.image.random_flip_left_right(image) / 255.0, label

    paths, labels = _paths()
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).map(load, tf.data.AUTOTUNE)
    return data.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


class Batches(keras.utils.PyDataset):
    """Keras's own example of one, with two workers."""

    def __init__(self, wait: float) -> None:
        super().__init__(workers=2, max_queue_size=10)
        self._wait = wait
        self._paths, self._labels = _paths()

    def __len__(self) -> int:
        return len(self._paths) // BATCH

    def __getitem__(self, number: int) -> Any:
        chosen = slice(number * BATCH, (number + 1) * BATCH)
        images = [self._load(path) for path in self._paths[chosen]]
        return np.stack(images), np.array(self._labels[chosen])

    def _load(self, path: str) -> Any:
        if self._wait:
            time.sleep(self._wait)
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        image = cv2.resize(image, (SIZE, SIZE)).astype(np.float32) / 255
        return image[:, ::-1] if np.random.default_rng().random() < 0.5 else image


# -------------------- rows


def by_keras(make: Callable[[], Any], epochs: int) -> float:
    model = ap.SimulatedAccelerator(STEP_SECONDS)()
    began = time.perf_counter()
    model.fit(make(), epochs=epochs, verbose=0)
    return time.perf_counter() - began


def by_trainer(make: Callable[[], ap.Trainer], epochs: int, said: Callable[[ap.Trainer], object]) -> float:
    began = time.perf_counter()
    with make() as trainer:
        trainer.fit(epochs=epochs, verbose=0)
        took = time.perf_counter() - began
        said(trainer)
    return took


def tuned(regime: str, budget: int) -> tuple[ap.PipelineConfig, float]:
    """Return the configuration of a tune, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        named = f"{Path(__file__).absolute()}:{regime.replace('-', '_')}"
        command = [sys.executable, "-m", "autopipe", "tune", named, "--budget", f"{budget}s", "--out", folder]
        began = time.perf_counter()
        subprocess.run([*command, "--epochs", "5"], check=True, stdout=subprocess.DEVNULL)
        return ap.load(Path(folder) / "autopipe.json").config, time.perf_counter() - began


def compare(regime: str, wanted: argparse.Namespace, console: Console) -> dict[str, Any]:
    wait, notes = REGIMES[regime], list[str]()
    config, tune_seconds = tuned(regime, wanted.budget)
    console.print(f"{regime}: a tune took {tune_seconds:.0f} s and found {config.short()}")

    def said(trainer: ap.Trainer) -> None:
        watch = getattr(trainer.loader, "watch", None)
        for each in () if watch is None else watch.changes:
            took = "kept" if each.kept else each.failure or "taken back"
            notes.append(f"{each.before.short()} > {each.after.short()}: {each.ratio or 0:.2f}, {took}")
        if watch is not None:
            notes.append(f"ends with {watch.config.short()}")

    work = workload(wait)
    rows: dict[str, Callable[[], float]] = {
        "live": lambda: by_trainer(lambda: ap.build_trainer(work, tune="live"), wanted.epochs, said),
        "tuned": lambda: by_trainer(lambda: ap.build_trainer(work, config), wanted.epochs, said),
        "tf.data": lambda: by_keras(functools.partial(tf_data, wait), wanted.epochs),
        "PyDataset": lambda: by_keras(functools.partial(Batches, wait), wanted.epochs),
    }
    if wanted.slow is False:
        rows.pop("PyDataset")
    took: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(wanted.rounds):
        names = list(rows)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            took[name].append(rows[name]())
            console.print(f"  {name}: {took[name][-1]:.1f} s")
    took["tune + train"] = [tune_seconds + each for each in took["tuned"]]
    found = {
        name: {
            "seconds": median(each),
            "live over it": median([mine / its for mine, its in zip(took["live"], each, strict=True)]),
        }
        for name, each in took.items()
    }
    return {"regime": regime, "tuned": config.short(), "rows": found, "changes": notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--only", default=",".join(REGIMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--budget", type=int, default=120)
    parser.add_argument("--no-slow", dest="slow", action="store_false", help="leave PyDataset out")
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    os.environ[PHOTOS], os.environ[SAMPLES] = str(wanted.photos.absolute()), str(wanted.samples)
    console = Console(stderr=True, highlight=False)
    found = [compare(regime, wanted, console) for regime in wanted.only.split(",")]
    if wanted.json:
        print(json.dumps(found, indent=1))
        return
    for each in found:
        table = Table("", "seconds", "live over it", title=each["regime"])
        for name, row in each["rows"].items():
            table.add_row(name, f"{row['seconds']:.1f}", f"{row['live over it']:.2f}")
        Console().print(table, *each["changes"], sep="\n")


if __name__ == "__main__":
    main()
