"""A whole training that tunes itself (`tune="live"`, from nothing) beside tuned ones, tf.data and PyDataset, by turns.

    python benchmarks/live.py --photos FOLDER [--only warm,latency-20ms] [--rounds 3] [--epochs 5] [--samples 8000]

`FOLDER` has JPEG files in class folders. Each row is a whole training: building the trainer, opening the loader, and
all epochs. "tuned" begins with the configuration that `autopipe tune` found before; "tune + train" is the same with
the seconds of that tune. tf.data and PyDataset are written as people write them. Shown are the medians of the rounds,
and of the live training's seconds over theirs within a round.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
from regime_workloads import Waiting, arrays_28, five_milliseconds, mlp
from rich.console import Console
from rich.table import Table

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.measure.stats import median
from autopipe.workload.data.source import Around
from autopipe.workload.data.source import files as files_of
from autopipe.workload.op import Op

SIZE, BATCH = 224, 32
ACCELERATOR = ap.SimulatedAccelerator(step_seconds=0.016)
PHOTOS, SAMPLES = "AUTOPIPE_PHOTOS", "AUTOPIPE_LIVE_SAMPLES"

# -------------------- what is trained


class Repeated(Around):
    """So many samples of a source, which come several times if it has fewer."""

    def __init__(self, source: Any, count: int) -> None:
        super().__init__(source)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        return self.source.read(index % len(self.source))

    def name(self, index: int) -> str:
        return f"sample {index % len(self.source)}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        chosen = range(self._count) if indices is None else indices
        return files_of(self.source, sorted({index % len(self.source) for index in chosen}))


def _folder() -> Path:
    return Path(os.environ[PHOTOS]).absolute()


def _workload(data: Any, *late: Op) -> ap.Workload:
    return ap.Workload(
        data=Repeated(data, int(os.environ[SAMPLES])),
        ops=[ap.Decode(), ap.Resize(SIZE, SIZE), ap.RandomFlip(), *late, ap.Rescale(1 / 255)],
        batch_size=BATCH,
        model=ACCELERATOR,
        drop_remainder=True,
    )


def warm() -> ap.Workload:
    return _workload(ap.ImageFolder(_folder()))


def latency_20ms() -> ap.Workload:
    return _workload(Waiting(0.020, _folder()))


def python_lock() -> ap.Workload:
    return _workload(ap.ImageFolder(_folder()), ap.Map(five_milliseconds))  # after what a cache can keep


def small_arrays() -> ap.Workload:
    return arrays_28()


# -------------------- as people write it


def _paths() -> tuple[list[str], list[int]]:
    found = sorted(_folder().glob("*/*"))
    classes = sorted({path.parent.name for path in found})
    count = int(os.environ[SAMPLES])
    listed = [found[number % len(found)] for number in range(count)]
    return [str(path) for path in listed], [classes.index(path.parent.name) for path in listed]


def tf_data(wait: float = 0.0, op: Callable[[Any], Any] | None = None) -> Any:
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
        image = tf.image.random_flip_left_right(image)
        if op is not None:
            image = tf.numpy_function(op, [image], tf.float32)
        image.set_shape((SIZE, SIZE, 3))
        return image / 255.0, label

    paths, labels = _paths()
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths)).map(load, tf.data.AUTOTUNE)
    return data.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def tf_data_of_arrays() -> Any:
    import tensorflow as tf

    def scaled(images: Any, labels: Any) -> Any:
        return tf.cast(images, tf.float32) / 255.0, labels

    images, labels = _arrays()
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images)).batch(128)
    return data.map(scaled, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


class Batches(keras.utils.PyDataset):
    """Keras's own example of one, with two workers."""

    def __init__(self, wait: float = 0.0, op: Callable[[Any], Any] = lambda image: image) -> None:
        super().__init__(workers=2, max_queue_size=10)
        self._wait, self._op = wait, op
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
        image = self._op(cv2.resize(image, (SIZE, SIZE))).astype(np.float32) / 255
        return image[:, ::-1] if np.random.default_rng().random() < 0.5 else image


class BatchesOfArrays(keras.utils.PyDataset):
    def __init__(self) -> None:
        super().__init__(workers=2, max_queue_size=10)
        self._images, self._labels = _arrays()

    def __len__(self) -> int:
        return -(-len(self._images) // 128)

    def __getitem__(self, number: int) -> Any:
        chosen = slice(number * 128, (number + 1) * 128)
        return self._images[chosen].astype(np.float32) / 255, self._labels[chosen]


@functools.cache
def _arrays() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (60_000, 28, 28, 1)).astype(np.uint8), generator.integers(0, 10, 60_000)


# -------------------- regimes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regime:
    """A training, and how long it is unless that is asked for."""

    work: Callable[[], ap.Workload]
    by_hand: Mapping[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)  # as people write it
    model: Callable[[], Any] = ACCELERATOR  # of what they write
    samples: int = 8000
    epochs: int = 5


def _by_hand(wait: float = 0.0, op: Callable[[Any], Any] | None = None) -> Mapping[str, Callable[[], Any]]:
    slow = functools.partial(Batches, wait) if op is None else functools.partial(Batches, wait, op)
    return {"tf.data": functools.partial(tf_data, wait, op), "PyDataset": slow}


REGIMES: Mapping[str, Regime] = {
    "warm": Regime(work=warm, by_hand=_by_hand()),
    "latency-20ms": Regime(work=latency_20ms, by_hand=_by_hand(0.020)),
    "python-lock": Regime(work=python_lock, by_hand=_by_hand(op=five_milliseconds), samples=2000, epochs=3),
    "small-arrays": Regime(
        work=small_arrays,
        by_hand={"tf.data": tf_data_of_arrays, "PyDataset": BatchesOfArrays},
        model=mlp,
        samples=60_000,
        epochs=30,
    ),
}


# -------------------- rows


def by_keras(make: Callable[[], Any], build: Callable[[], Any], epochs: int) -> float:
    model = build()
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


def trainer_of(work: ap.Workload, config: ap.PipelineConfig | None) -> ap.Trainer:
    """Return the trainer of a configuration; None: of a training that tunes itself."""
    return ap.make_trainer(work, config, tune="live" if config is None else None)


def tuned(regime: Regime, wanted: argparse.Namespace) -> tuple[ap.PipelineConfig, float]:
    """Return the configuration of a tune, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        named = f"{Path(__file__).absolute()}:{regime.work.__name__}"
        command = [sys.executable, "-m", "autopipe", "tune", named, "--budget", f"{wanted.budget}s", "--out", folder]
        command += ["--epochs", str(wanted.epochs or regime.epochs)]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - began
        (profile,) = files.read(Path(folder) / "autopipe.json").profiles  # `ap.load` would fit it to this machine
        return ap.PipelineConfig.model_validate(profile.winner.config), took


def changes_of(trainer: ap.Trainer) -> list[str]:
    """Return what a training that tunes itself has tried, in words."""
    watch = getattr(trainer.loader, "watch", None)
    if watch is None:
        return []
    found = []
    for each in watch.changes:
        took = "kept" if each.kept else each.failure or "taken back"
        found.append(f"{each.before} > {each.after}: {each.ratio or 0:.2f}, {took}")
    return [*found, f"ends with {watch.config.short()}"]


def by_turns(
    rows: Mapping[str, Callable[[], float]], rounds: int, say: Callable[[str], object]
) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(rounds):
        names = list(rows)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(rows[name]())
            say(f"  {name}: {found[name][-1]:.1f}")
    return found


def beside_live(found: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        name: {
            "seconds": median(each),
            "live over it": median([mine / its for mine, its in zip(found["live"], each, strict=True)]),
        }
        for name, each in found.items()
    }


def compare(name: str, wanted: argparse.Namespace, say: Callable[[str], object]) -> dict[str, Any]:
    """Compare whole trainings."""
    regime, notes = REGIMES[name], list[str]()
    epochs = wanted.epochs or regime.epochs
    config, tune_seconds = tuned(regime, wanted)
    say(f"{name}: a tune took {tune_seconds:.0f} s and found {config.short()}")

    def said(trainer: ap.Trainer) -> None:
        notes.extend(changes_of(trainer))

    work = regime.work()
    rows: dict[str, Callable[[], float]] = {
        "live": lambda: by_trainer(lambda: trainer_of(work, None), epochs, said),
        "tuned": lambda: by_trainer(lambda: trainer_of(work, config), epochs, said),
    }
    for by_hand, make in regime.by_hand.items():
        if wanted.slow or by_hand != "PyDataset":
            rows[by_hand] = functools.partial(by_keras, make, regime.model, epochs)
    took = by_turns(rows, wanted.rounds, say)
    took["tune + train"] = [tune_seconds + each for each in took["tuned"]]
    return {"regime": name, "tuned": config.short(), "rows": beside_live(took), "changes": notes}


class Clocked(keras.callbacks.Callback):
    """Notes when batches were trained, and since when each configuration has run."""

    def __init__(self, trainer: ap.Trainer) -> None:
        super().__init__()
        self._trainer = trainer
        self._times = list[float]()
        self._configs = list[tuple[float, ap.PipelineConfig]]()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._times.append(time.perf_counter())
        watch = getattr(self._trainer.loader, "watch", None)
        if watch is not None and (not self._configs or self._configs[-1][1] != watch.config):
            self._configs.append((self._times[-1], watch.config))

    def course(self, step: float = 0.5) -> dict[str, Any]:
        """Return the images/s of each step of so many seconds, and when each configuration began."""
        first = self._times[0]
        counts = np.histogram(np.array(self._times) - first, np.arange(0.0, self._times[-1] - first, step))[0]
        return {
            "step_seconds": step,
            "images_per_second": [round(count * BATCH / step) for count in counts],
            "configurations": [[round(at - first, 1), config.short()] for at, config in self._configs],
        }


def record(path: Path, epochs: int) -> None:
    """Write the course of a training whose reads wait 20 ms, from two threads on: docs/live.md shows it."""
    begins = ap.PipelineConfig(loader=ap.Threads(workers=2))
    with ap.make_trainer(latency_20ms(), begins, tune="live") as trainer:
        clock = Clocked(trainer)
        trainer.fit(epochs=epochs, callbacks=[clock], verbose=0)
    path.write_text(json.dumps(clock.course()) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--only", default=",".join(REGIMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="instead of the regime's own")
    parser.add_argument("--samples", type=int, help="instead of the regime's own")
    parser.add_argument("--budget", type=int, default=60, help="seconds of a tune")
    parser.add_argument("--no-slow", dest="slow", action="store_false", help="leave PyDataset out")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", type=Path, help="only record the run of docs/live.md to this file")
    wanted = parser.parse_args()
    names = wanted.only.split(",")
    if wrong := set(names) - set(REGIMES):
        parser.error(f"no regime is called {', '.join(sorted(wrong))}; there are {', '.join(REGIMES)}")
    console = Console(stderr=True, highlight=False)
    found = list[dict[str, Any]]()
    os.environ[PHOTOS] = str(wanted.photos.absolute())
    if wanted.record is not None:
        os.environ[SAMPLES] = str(wanted.samples or 4000)
        record(wanted.record, wanted.epochs or 5)
        return
    for name in names:
        os.environ[SAMPLES] = str(wanted.samples or REGIMES[name].samples)
        found.append(compare(name, wanted, console.print))
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
