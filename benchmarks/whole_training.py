"""Seconds of a whole epoch, with its validation and a checkpoint: autopipe, tf.data and PyDataset by turns.

    python benchmarks/whole_training.py --photos FOLDER [--cached] [--model large] [--rounds 5] [--budget 60] [--json]

`FOLDER` has JPEG files in class folders: 1,000 of them are trained, and 200 others validated, at 224x224 in batches of
32. Each row is a training in a process of its own. An epoch counts from the end of the one before to its own, so that
validation, checkpoint and the start of the next batches are in it; the first one is left out. tf.data and PyDataset are
written as people write them, and read what they validate without shuffling and flipping. autopipe runs what
`autopipe tune` found, or Threads(2) with `--budget 0`. `--cached` lets all of them keep decoded images in memory. Shown
are the medians of the rounds, and of autopipe's seconds over theirs within a round.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from claims import Claim, at_most

SIZE, BATCH, TRAINED, VALIDATED, EPOCHS = 224, 32, 1000, 200, 6
DATA, CACHED, MODEL, CONFIG = (f"AUTOPIPE_WHOLE_{name}" for name in ("DATA", "CACHED", "MODEL", "CONFIG"))
TARGETS = {"small": 0.70, "large": 1.01}  # most of autopipe's seconds over the better of theirs, by model


def build_model() -> Any:
    """Return a CNN that takes a third of the time of decoding its images, or one that takes seven times as long."""
    import keras

    small = [keras.layers.Conv2D(8, 8, strides=8, activation="relu")]
    large = [keras.layers.Conv2D(count, 3, strides=2, padding="same", activation="relu") for count in (32, 64, 128)]
    layers = [*(small if os.environ[MODEL] == "small" else large), keras.layers.GlobalAveragePooling2D()]
    model = keras.Sequential([keras.Input((SIZE, SIZE, 3)), *layers, keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def make_workload() -> Any:
    import autopipe as ap

    return ap.Workload(
        data=ap.ImageFolder(Path(os.environ[DATA]) / "train"),
        ops=[ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip(), ap.Rescale(1 / 255)],
        batch_size=BATCH,
        model=build_model,
        validation=ap.ImageFolder(Path(os.environ[DATA]) / "val"),
    )


# -------------------- as people write it


def files(part: str) -> tuple[list[str], list[int]]:
    found = sorted((Path(os.environ[DATA]) / part).glob("*/*"))
    classes = sorted({path.parent.name for path in found})
    return [str(path) for path in found], [classes.index(path.parent.name) for path in found]


def tf_data(part: str) -> Any:
    import numpy as np
    import tensorflow as tf

    paths, labels = files(part)
    trains, auto = part == "train", tf.data.AUTOTUNE

    def load(path: Any, label: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIZE, SIZE)), label

    def finish(image: Any, label: Any) -> Any:
        image = tf.cast(image, tf.float32)
        return (tf.image.random_flip_left_right(image) if trains else image) / 255.0, label

    def both(path: Any, label: Any) -> Any:
        return finish(*load(path, label))

    def kept(path: Any, label: Any) -> Any:
        image, label = load(path, label)
        return tf.cast(image, tf.uint8), label

    if os.environ[CACHED]:
        order = np.random.default_rng(0).permutation(len(paths))
        data = tf.data.Dataset.from_tensor_slices(([paths[i] for i in order], [labels[i] for i in order]))
        data = data.map(kept, auto).cache()
        data = (data.shuffle(len(paths)) if trains else data).map(finish, auto)
    else:
        data = tf.data.Dataset.from_tensor_slices((paths, labels))
        data = (data.shuffle(len(paths)) if trains else data).map(both, auto)
    return data.batch(BATCH).prefetch(auto)


def py_dataset(workers: int, part: str) -> Any:
    import cv2
    import keras
    import numpy as np

    class Photos(keras.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__(workers=workers)
            self.paths, self.labels = (np.array(each) for each in files(part))
            self.kept: dict[int, Any] = {}
            self.order = np.arange(len(self.paths))
            self.on_epoch_end()

        def __len__(self) -> int:
            return math.ceil(len(self.paths) / BATCH)

        def on_epoch_end(self) -> None:
            if part == "train":
                self.order = np.random.permutation(len(self.paths))

        def __getitem__(self, number: int) -> Any:
            chosen = self.order[number * BATCH : (number + 1) * BATCH]
            images = [self.loaded(index) for index in chosen]
            if part == "train":
                images = [image[:, ::-1] if np.random.rand() < 0.5 else image for image in images]
            return np.array(images, np.float32) / 255.0, self.labels[chosen]

        def loaded(self, index: int) -> Any:
            image = self.kept.get(index)
            if image is None:
                image = cv2.resize(cv2.cvtColor(cv2.imread(self.paths[index]), cv2.COLOR_BGR2RGB), (SIZE, SIZE))
                if os.environ[CACHED]:
                    self.kept[index] = image
            return image

    return Photos()


# -------------------- rows, each in a process of its own

THEIRS: dict[str, Callable[[str], Any]] = {
    "tf.data": tf_data,
    "PyDataset, 2 threads": functools.partial(py_dataset, 2),
    "PyDataset, 4 threads": functools.partial(py_dataset, 4),
}
OURS = "autopipe"


def run(name: str, checkpoint: Path) -> dict[str, Any]:
    """Train by one row; return the seconds of each epoch but the first, and those of the cores in it."""
    import keras

    ends: list[tuple[float, float]] = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            mine = psutil.Process()
            used = [each.cpu_times() for each in (mine, *mine.children(recursive=True))]
            ends.append((time.perf_counter(), sum(each.user + each.system for each in used)))

    callbacks = [keras.callbacks.ModelCheckpoint(checkpoint / "model.keras"), Clock()]
    if name == OURS:
        import autopipe as ap

        config = ap.PipelineConfig.model_validate_json(os.environ[CONFIG])
        with ap.build_trainer(make_workload(), config) as trainer:
            trainer.fit(epochs=EPOCHS, callbacks=callbacks, verbose=0)
    else:
        data = {part: THEIRS[name](part) for part in ("train", "val")}
        build_model().fit(data["train"], validation_data=data["val"], epochs=EPOCHS, callbacks=callbacks, verbose=0)
    seconds, cores = zip(*((b - a, d - c) for (a, c), (b, d) in itertools.pairwise(ends)), strict=True)
    return {"seconds": seconds, "cores": cores}


def chosen(wanted: argparse.Namespace) -> str:
    """Return the configuration of a tune, as JSON."""
    import autopipe as ap

    keep = "memory" if wanted.cached else "none"
    if wanted.budget == 0:
        return ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=8), keep=keep).model_dump_json()
    named = f"{Path(__file__).absolute()}:make_workload"
    return ap.tune(named, budget=wanted.budget, only={"keep": keep}).config.model_dump_json()


def linked(photos: Path, folder: Path) -> None:
    """Link some photographs into folders to train and to validate on."""
    found = sorted(photos.absolute().glob("*/*"))
    every = len(found) / (TRAINED + VALIDATED)
    picked = [found[int(number * every)] for number in range(TRAINED + VALIDATED)]
    for number, path in enumerate(picked):
        place = folder / ("val" if number % 6 == 5 else "train") / path.parent.name
        place.mkdir(parents=True, exist_ok=True)
        (place / path.name).symlink_to(path)


def compare(wanted: argparse.Namespace) -> dict[str, Any]:
    from autopipe.measure.stats import median

    os.environ[CONFIG] = wanted.config or chosen(wanted)
    rows = [OURS, *THEIRS]
    took: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
    for number in range(wanted.rounds):
        turn = number % len(rows)
        for name in rows[turn:] + rows[:turn]:
            done = subprocess.run(
                [sys.executable, __file__, "--photos", str(wanted.photos), "--row", name],
                check=True, stdout=subprocess.PIPE, timeout=600,
            )  # fmt: skip
            took[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"  {name}: {median(took[name][-1]['seconds']):.3f} s", file=sys.stderr)
    seconds = {name: [median(each["seconds"]) for each in took[name]] for name in rows}
    better = min(THEIRS, key=lambda name: median(seconds[name]))
    ratios = {
        name: median([mine / its for mine, its in zip(seconds[OURS], seconds[name], strict=True)]) for name in THEIRS
    }
    return {
        "config": json.loads(os.environ[CONFIG]),
        "seconds": {name: median(each) for name, each in seconds.items()},
        "cores": {name: median([median(each["cores"]) for each in took[name]]) for name in rows},
        "ratios": ratios,
        "better": better,
        "raw": took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--cached", action="store_true", help="keep decoded images in memory")
    parser.add_argument("--model", choices=sorted(TARGETS), default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=60, help="seconds of the tune; 0 for none")
    parser.add_argument("--config", help="the configuration as JSON, in place of a tune's")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autopipe-whole-") as folder:
        if wanted.row:
            print(json.dumps(run(wanted.row, Path(folder))))
            return
        os.environ.update({DATA: folder, CACHED: "1" if wanted.cached else "", MODEL: wanted.model})
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        linked(wanted.photos, Path(folder))
        found = compare(wanted)
    if wanted.json:
        print(json.dumps(found, indent=1))
        return
    for name, seconds in found["seconds"].items():
        ratio = "" if name == OURS else f"  autopipe takes {found['ratios'][name]:.2f} of it"
        print(f"{name:24} {seconds:7.3f} s an epoch, {found['cores'][name]:7.3f} s of the cores{ratio}")
    what = f"{wanted.model} model{', cached' * wanted.cached}: an epoch of autopipe over {found['better']}"
    claim: Claim = at_most(what, TARGETS[wanted.model], found["ratios"][found["better"]])
    print(claim)


if __name__ == "__main__":
    main()
