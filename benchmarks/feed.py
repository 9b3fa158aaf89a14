"""What the way from a loader's batch to the step costs in `fit`: milliseconds a step over a batch that never changes.

    python benchmarks/feed.py [--backend tensorflow,jax] [--rounds N] [--steps N] [--photos DIR] [--json]

Rows: `resident` is the same device batch again and again (on TensorFlow Dataset.from_tensors(batch).repeat());
`generator` is `fit` on a Python generator of NumPy batches; `numpy_function` is tf.data with one; `autopipe` is
Trainer.fit. The generators and autopipe's loader hand over eight prepared batches in turn, so that only the way to the
step is timed. The model is next to nothing (a mean and a small Dense); batches are 32 x 224 x 224 x 3. Rows take turns
in one process per backend; the medians of all rounds but the first are shown, of the wall clock and of the processor
time of all threads, which says more on a machine that is busy with other things.

With --photos (one folder a class), the share of time that `fit` waits for data is shown too: Threads in front of a
simulated accelerator that is 1.3 times slower than the loader alone. Waiting is the time in the loader's iterator.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autopipe.pipeline.loader import Finish, Loader
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec

BATCH, SIDE, PREPARED, WARM = 32, 224, 8, 10


class Prepared(Loader):
    """Hands over prepared batches in aligned memory, as autopipe's loaders do."""

    def __init__(self, dtype: str, batches: int) -> None:
        self.batch_size, self.buffered_batches, self.finish, self._count = BATCH, 0, Finish(), batches
        image = Field(FieldKind.IMAGE, (SIDE, SIDE, 3), np.dtype(dtype))
        self.spec = SampleSpec(image, Field(FieldKind.LABEL, (), np.dtype(np.int64)))
        self.memory = [mmap.mmap(-1, BATCH * image.bytes) for _ in range(PREPARED)]

    def __len__(self) -> int:
        return self._count

    @property
    def identity(self) -> str:
        return "prepared"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for memory in itertools.islice(itertools.cycle(self.memory), self._count - start):
            x = np.ndarray((BATCH, SIDE, SIDE, 3), self.spec.x.dtype, buffer=memory)
            yield x, np.zeros(BATCH, np.int64)

    def close(self) -> None:
        pass


def build(dtype: str) -> Any:
    import keras

    image = keras.Input((SIDE, SIDE, 3), dtype=dtype)
    scaled = keras.layers.Rescaling(1 / 255)(image) if dtype == "uint8" else image
    output = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(scaled))
    model = keras.Model(image, output)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def stamps(fit: Callable[..., Any], steps: int) -> tuple[float, float]:
    """Return the milliseconds and processor milliseconds a step of one call of `fit`, without its first steps."""
    import keras

    seen: list[tuple[float, float]] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch in (WARM - 1, steps + WARM - 1):  # reading the loss waits for the device
                assert logs["loss"] >= 0
                seen.append((time.perf_counter(), time.process_time()))

    fit(epochs=1, steps_per_epoch=steps + WARM, verbose=0, callbacks=[Clock()])
    wall, cpu = ((end - begin) / steps * 1e3 for begin, end in zip(*seen, strict=True))
    return wall, cpu


def rows(dtype: str, steps: int) -> dict[str, Callable[..., Any]]:
    import keras

    from autopipe.pipeline.devices.trainer import Trainer

    model, loader = build(dtype), Prepared(dtype, 10**6)
    trainer = Trainer(model, loader)
    x, y = next(loader.batches(0))

    def endless() -> Iterator[Batch]:
        return loader.batches(0)

    def keras_fit(data: Callable[[], Any]) -> Callable[..., Any]:
        return lambda **arguments: model.fit(data(), **arguments)

    if keras.backend.backend() != "tensorflow":
        import jax

        fixed = jax.device_put((x, y))
        return {
            "resident": keras_fit(lambda: (fixed for _ in range(steps + WARM))),
            "generator": keras_fit(endless),
            "autopipe": trainer.fit,
        }
    import tensorflow as tf

    def numpy_function() -> Any:
        batches = endless()

        def take(number: Any) -> Any:
            taken = tf.numpy_function(lambda _: next(batches), [number], [dtype, tf.int64])
            return tf.ensure_shape(taken[0], (None, SIDE, SIDE, 3)), tf.ensure_shape(taken[1], (None,))

        return tf.data.Dataset.range(10**6).map(take).prefetch(2)

    return {
        "resident": keras_fit(lambda: tf.data.Dataset.from_tensors((x, y)).repeat()),
        "generator": keras_fit(endless),
        "numpy_function": keras_fit(numpy_function),
        "autopipe": trainer.fit,
    }


def waiting(photos: Path) -> dict[str, float]:
    """Return how long training waits for a loader that is 1.3 times as fast as the (simulated) model."""
    import peers  # the size and batch of the other benchmarks

    from autopipe.pipeline.assembly import build_loader
    from autopipe.pipeline.config import PipelineConfig
    from autopipe.pipeline.devices import model as models
    from autopipe.pipeline.devices.feed import TimedLoader
    from autopipe.pipeline.devices.simulated import SimulatedAccelerator
    from autopipe.pipeline.devices.trainer import Trainer
    from autopipe.pipeline.loaders.threads import Threads
    from autopipe.workload.data.images import ImageFolder
    from autopipe.workload.ops.decode import Decode
    from autopipe.workload.ops.geometry import RandomFlip
    from autopipe.workload.ops.sizes import Resize
    from autopipe.workload.ops.values import Rescale
    from autopipe.workload.workload import Workload

    ops = [Decode(), Resize(peers.SIZE, peers.SIZE), RandomFlip(), Rescale(1 / 255)]
    workload = Workload(data=ImageFolder(photos), ops=ops, batch_size=BATCH, drop_remainder=True)
    config = PipelineConfig(loader=Threads(workers=len(os.sched_getaffinity(0)), queue_size=8))
    with build_loader(workload, config) as loader:
        for _ in loader.batches(0):
            pass  # the page cache
        began = time.perf_counter()
        alone = sum(1 for _ in loader.batches(1)) / (time.perf_counter() - began)
    step_seconds = 1.3 / alone
    timed = TimedLoader(build_loader(workload, config))
    with Trainer(models.build(SimulatedAccelerator(step_seconds)), timed) as trainer:
        began = time.perf_counter()
        trainer.fit(epochs=4, verbose=0)
        seconds = time.perf_counter() - began
    return {
        "loader_images_per_second": alone * BATCH,
        "step_milliseconds": step_seconds * 1e3,
        "fit_images_per_second": timed.taken * BATCH / seconds,
        "waiting_percent": 100 * timed.waited_seconds / seconds,
    }


def run_backend(arguments: argparse.Namespace) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for dtype in ("uint8", "float32"):
        fits = rows(dtype, arguments.steps)
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in fits}
        for number in range(arguments.rounds + 1):
            for name in sorted(fits, key=lambda name: (list(fits).index(name) + number) % len(fits)):
                value = stamps(fits[name], arguments.steps)
                if number:
                    seen[name].append(value)
        medians = {name: [statistics.median(series) for series in zip(*seen[name], strict=True)] for name in seen}
        wall, cpu = medians["resident"]
        out[dtype] = {
            name: {"ms": own[0], "over_ms": own[0] - wall, "cpu_ms": own[1], "cpu_over_ms": own[1] - cpu}
            for name, own in medians.items()
        }
    if arguments.photos:
        out["waiting"] = waiting(arguments.photos)
    return out


def show(results: dict[str, Any]) -> None:
    print(f"{'':36}{'ms a step':>10}{'over resident':>15}{'CPU ms':>10}{'over resident':>15}")
    for backend, result in results.items():
        for dtype in ("uint8", "float32"):
            for name, row in result[dtype].items():
                wall, cpu = (
                    f"{row['ms']:10.2f}{row['over_ms']:+15.2f}",
                    f"{row['cpu_ms']:10.2f}{row['cpu_over_ms']:+15.2f}",
                )
                print(f"{backend:12}{dtype:9}{name:15}{wall}{cpu}")
        for name, value in result.get("waiting", {}).items():
            print(f"{backend:12}{name:24}{value:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="tensorflow,jax")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(run_backend(arguments)))
        return
    results = {}
    for backend in arguments.backend.split(","):
        environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, *sys.orig_argv[1:], "--child"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        results[backend] = json.loads(done.stdout.splitlines()[-1])
    if arguments.json:
        print(json.dumps(results))
    else:
        show(results)


if __name__ == "__main__":
    main()
