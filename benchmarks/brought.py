"""What a tune brings: six trainings as people write them, each as it is and with the module that `autopipe tune` wrote.

    python benchmarks/brought.py [--only masks,reads] [--budget 60s] [--rounds 3] [--seconds 5]

As it is and tuned run by turns, each time in a new process, in Keras's `fit`; a stopwatch in a callback counts the
samples. Shown are medians, and the median of the ratios within a round. Data are drawn; models are small, so that the
data are the limit.
"""

from __future__ import annotations

import argparse
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
import tensorflow as tf

import autopipe as ap
from autopipe.artifact import artifact

FOLDER = Path(os.environ.get("AUTOPIPE_BROUGHT_DATA", "."))
BATCH, SIZE, FILES = 32, 96, 512
COLOURS = [(0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (0, 255, 255), (255, 0, 255), (9, 9, 9)]
AUTO = tf.data.AUTOTUNE
SETTLE_SECONDS = 1.0


def draw(folder: Path) -> None:
    """Write photographs in two classes, masks of colours, and arrays."""
    random = np.random.default_rng(0)
    for name in ("photos/0", "photos/1", "images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(FILES):
        pixels = cv2.resize(random.integers(0, 256, (24, 32, 3), np.uint8), (480, 360), interpolation=cv2.INTER_CUBIC)
        cv2.imwrite(str(folder / f"photos/{number % 2}/{number:04}.jpg"), pixels)
        mask = np.array(COLOURS, np.uint8)[random.integers(0, len(COLOURS), (6, 8))]
        cv2.imwrite(str(folder / f"images/{number:04}.png"), pixels[:240, :320])
        cv2.imwrite(
            str(folder / f"masks/{number:04}.png"), cv2.resize(mask, (320, 240), interpolation=cv2.INTER_NEAREST)
        )
    np.savez(folder / "arrays.npz", x=random.integers(0, 256, (40_000, 32, 32, 3), np.uint8), y=np.arange(40_000) % 2)


def model(shape: tuple[int, int, int] = (SIZE, SIZE, 3), planes: int = 0) -> Any:
    """Return a compiled model: of classes, or of so many planes of a mask."""
    inputs = keras.Input(shape)
    x = keras.layers.Conv2D(8, 8, strides=8, activation="relu")(inputs)
    if planes:
        outputs = keras.layers.UpSampling2D(8)(keras.layers.Conv2D(planes, 1)(x))
    else:
        outputs = keras.layers.Dense(2)(keras.layers.GlobalAveragePooling2D()(x))
    made = keras.Model(inputs, outputs)
    losses = keras.losses
    made.compile("sgd", (losses.CategoricalCrossentropy if planes else losses.SparseCategoricalCrossentropy)(True))
    return made


class Batches(keras.utils.PyDataset):
    """Whole batches, made by a function of a sample's number."""

    def __init__(self, load: Callable[[int], Any], count: int, **named: Any) -> None:
        super().__init__(**named)
        self.load, self.order = load, np.arange(count)

    def __len__(self) -> int:
        return len(self.order) // BATCH

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.order)

    def __getitem__(self, number: int) -> Any:
        x, y = zip(*map(self.load, self.order[number * BATCH : (number + 1) * BATCH]), strict=True)
        return np.stack(x), np.stack(y)


def _read(path: Path) -> Any:
    return cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)


def _pair(number: int) -> Any:
    image, mask = (_read(FOLDER / part / f"{number:04}.png") for part in ("images", "masks"))
    top, left = np.random.randint(240 - SIZE), np.random.randint(320 - SIZE)
    image, mask = (part[top : top + SIZE, left : left + SIZE] for part in (image, mask))
    return image.astype("float32") / 255, np.stack([(mask == c).all(-1) for c in COLOURS], -1).astype("float32")


def _photo(number: int) -> Any:
    image = cv2.resize(_read(FOLDER / f"photos/{number % 2}/{number:04}.jpg"), (SIZE, SIZE))
    return image.astype("float32") / 255, number % 2


def _waiting(number: int) -> Any:
    time.sleep(0.02)  # a disk of a network
    return _photo(number)


def _python(number: int) -> Any:
    image, label = _photo(number)
    seen = {row: sum(image[row, :, 0].tolist()) for row in range(SIZE)}  # an op that is Python and keeps its lock
    return image * np.float32(max(seen.values()) / SIZE), label


def crops() -> Any:
    """Return tf.data that decodes whole photographs and crops then."""

    def load(path: Any, label: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.resize(tf.image.random_crop(image, (180, 240, 3)), (SIZE, SIZE))
        return tf.image.random_flip_left_right(image) / 255.0, label

    paths = sorted(map(str, (FOLDER / "photos").glob("*/*.jpg")))
    data = tf.data.Dataset.from_tensor_slices((paths, [int(Path(each).parent.name) for each in paths]))
    return data.shuffle(FILES).map(load, AUTO).batch(BATCH, drop_remainder=True).prefetch(AUTO)


def arrays() -> Any:
    """Return tf.data that maps each of many small arrays."""
    with np.load(FOLDER / "arrays.npz") as found:
        data = tf.data.Dataset.from_tensor_slices((found["x"], found["y"])).shuffle(10_000)
    data = data.map(lambda x, y: (tf.image.random_flip_left_right(tf.cast(x, tf.float32) / 255.0), y), AUTO)
    return data.batch(BATCH, drop_remainder=True).prefetch(AUTO)


CASES: dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]] = {  # what it is, the data, its model
    "masks": (
        "`Sequence` of PNG pairs, masks in colours to one-hots",
        lambda: Batches(_pair, FILES, workers=2, use_multiprocessing=True),
        lambda: model(planes=len(COLOURS)),
    ),
    "crops": ("tf.data: random crops of JPEG files", crops, model),
    "reads": ("`PyDataset`, each read waits 20 ms", lambda: Batches(_waiting, FILES, workers=2), model),
    "python": ("`PyDataset` with an op in Python, 4 threads", lambda: Batches(_python, FILES, workers=4), model),
    "arrays": ("tf.data: 40,000 arrays of 32x32x3, flipped", arrays, lambda: model((32, 32, 3))),
    "photos": ("`PyDataset` of JPEG files by OpenCV", lambda: Batches(_photo, FILES), model),
}


def masks_workload() -> ap.Workload:
    """Return the same in ops of autopipe: the colours are looked up in C."""
    ops = [
        ap.Decode(),
        ap.RandomCrop(SIZE, SIZE),
        ap.MaskToClass(COLOURS),
        ap.OneHot(len(COLOURS)),
        ap.Rescale(1 / 255),
    ]
    data = ap.ImagePairs(FOLDER / "images", FOLDER / "masks")
    return ap.Workload(data=data, ops=ops, batch_size=BATCH, model=CASES["masks"][2])


def crops_workload() -> ap.Workload:
    """Return the same in ops: of each photograph only the crop is decoded."""
    ops = [ap.Decode(), ap.RandomCrop(180, 240), ap.Resize(SIZE, SIZE), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.ImageFolder(FOLDER / "photos"), ops=ops, batch_size=BATCH, model=model)


def arrays_workload() -> ap.Workload:
    """Return the same in ops on the arrays."""
    ops = [ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.NPZ(FOLDER / "arrays.npz"), ops=ops, batch_size=BATCH, model=CASES["arrays"][2])


def reads_workload() -> ap.Workload:
    """Return the dataset as it is."""
    return ap.wrap(CASES["reads"][1](), model=model)


def python_workload() -> ap.Workload:
    """Return the dataset as it is."""
    return ap.wrap(CASES["python"][1](), model=model)


def photos_workload() -> ap.Workload:
    """Return the dataset as it is."""
    return ap.wrap(CASES["photos"][1](), model=model)


class Stopwatch(keras.callbacks.Callback):
    """Ends a training that has run for `seconds` behind its first epoch, or for so long within that."""

    seconds = 0.0

    def on_train_begin(self, logs: Any = None) -> None:
        self.ends: list[float] = []  # when steps ended
        self.epochs: list[int] = []  # how many had, at the end of each epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.perf_counter())
        if not self.epochs and self.ends[-1] - self.ends[0] >= SETTLE_SECONDS + self.seconds:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(len(self.ends))
        if self.ends[-1] - self.ends[self.epochs[0] - 1] >= self.seconds:
            self.model.stop_training = True

    def steps_per_second(self) -> float:
        """Return the rate in whole epochs without the first; or of that one, what comes after a second."""
        begun = self.epochs[0] - 1
        if len(self.epochs) == 1:
            begun = next(step for step, end in enumerate(self.ends) if end - self.ends[0] >= SETTLE_SECONDS)
        return (len(self.ends) - 1 - begun) / (self.ends[-1] - self.ends[begun])


def train(name: str, tuned: str | None, seconds: float) -> float:
    """Train, as it is or tuned, and return the samples a second."""
    watch = Stopwatch()
    watch.seconds = seconds
    if tuned is None:
        CASES[name][2]().fit(CASES[name][1](), epochs=10_000, verbose=0, callbacks=[watch])
    else:
        sys.path.insert(0, tuned)
        import tuned_pipeline

        tuned_pipeline.make_trainer().fit(epochs=10_000, verbose=0, callbacks=[watch])
    return watch.steps_per_second() * BATCH


def row(name: str, budget: str, rounds: int, seconds: float) -> str:
    """Tune a training, run both by turns, and return a row of a table."""
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
        environment = {**os.environ, "AUTOPIPE_BROUGHT_DATA": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
        out = f"{folder}/tuned"
        tune = ["tune", f"{__file__}:{name}_workload", "--budget", budget, "--out", out]
        subprocess.run([sys.executable, "-m", "autopipe", *tune], env=environment, check=True, stdout=sys.stderr)
        rates: list[tuple[float, float]] = []
        for _ in range(rounds):
            pair = []
            for side in ([], ["--tuned", out]):
                command = [sys.executable, __file__, "--train", name, *side, "--seconds", str(seconds)]
                done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
                pair.append(float(done.stdout.split()[-1]))
            rates.append((pair[0], pair[1]))
        winner = ap.PipelineConfig.model_validate(artifact.read(Path(out, "autopipe.json")).profiles[0].winner.config)
    before, after = (float(np.median(side)) for side in zip(*rates, strict=True))
    ratio = float(np.median([tuned / as_it_is for as_it_is, tuned in rates]))
    return f"| {CASES[name][0]} | {before:,.0f} | {after:,.0f} | {ratio:.1f}x | `{winner.short()}` |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES), help="which trainings")
    parser.add_argument("--budget", default="60s", help="of each tune")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each training, behind its first epoch")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--tuned", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.train:
        print(train(asked.train, asked.tuned, asked.seconds), flush=True)
        os._exit(0)  # threads of TensorFlow that still read a PyDataset may abort the process at its end
    print(
        "| a training | as it is, images/s | tuned | ratio of rounds | the winner |\n|---|---|---|---|---|", flush=True
    )
    for name in asked.only.split(","):
        print(row(name, asked.budget, asked.rounds, asked.seconds), flush=True)


if __name__ == "__main__":
    main()
