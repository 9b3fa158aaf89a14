"""The rows of measurement.py that look inside a trial; each runs in a process of its own."""

from __future__ import annotations

import os
import time
from statistics import median
from typing import Any

import numpy as np

from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.threads import Threads
from autopipe.workload.workload import Workload

BATCH = 4
READ_SECONDS = 0.005  # asleep: other loads of the machine change it little
QUEUE = 64
NAIVE_STEPS = 50


class Sleepy:
    """Samples that take a known time to read."""

    def __len__(self) -> int:
        return 4096

    def read(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        time.sleep(READ_SECONDS)
        return np.full((8, 8, 3), index % 256, np.uint8), index % 2


class Quiet:
    """A report that nobody reads."""

    def phase(self, phase: Any) -> None: ...

    def progress(self, images: int, images_per_second: float) -> None: ...

    def log(self, text: str) -> None: ...


def slower_loader(repeats: int) -> dict[str, float]:
    """Return by how much a trial, and 50 steps behind a full queue, are off the loader's own rate."""
    from autopipe.measure.session import Session
    from autopipe.pipeline.assembly import build_loader

    config = PipelineConfig(loader=Threads(workers=2, queue_size=QUEUE))
    workload = Workload(data=Sleepy(), ops=[], batch_size=BATCH, model=None, drop_remainder=True)
    own, trials, naive = [], [], []
    for _ in range(repeats):
        with build_loader(workload, config) as loader:
            own.append(_rate_of(loader, 3.0))
        model = SimulatedAccelerator(step_seconds=0.9 * BATCH / own[-1])
        session = Session(Workload(data=Sleepy(), ops=[], batch_size=BATCH, model=model))
        options = {"min_seconds": 0.8, "max_seconds": 2.0, "page_cache": "warm"}
        trials.append(session.measure(config, options, Quiet()).images_per_second.value / own[-1] - 1)
        naive.append(_naive(workload, config, model) / own[-1] - 1)
    return {"trial": median(trials), "naive": median(naive)}


def _rate_of(loader: Any, seconds: float) -> float:
    stream = loader.batches(0)
    for _ in range(4):
        next(stream)
    began, images = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        images += len(next(stream)[0])
    rate = images / (time.perf_counter() - began)
    stream.close()
    return rate


def _naive(workload: Workload, config: PipelineConfig, model: SimulatedAccelerator) -> float:
    """Time 50 steps as people do: the loader has been open for a while, and the first step is left out."""
    import keras

    from autopipe.pipeline.assembly import build_loader
    from autopipe.pipeline.devices.trainer import Trainer

    times: list[float] = []

    class Timer(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            times.append(time.perf_counter())

    loader = build_loader(workload, config)
    with Trainer(model(), loader) as trainer:
        trainer.fit(steps_per_epoch=1, verbose=0)
        while (loader.occupancy() or (QUEUE, QUEUE))[0] < QUEUE:
            time.sleep(0.01)
        trainer.fit(steps_per_epoch=NAIVE_STEPS + 1, verbose=0, callbacks=[Timer()])
    return BATCH * NAIVE_STEPS / (times[-1] - times[0])


def model_alone(reference: str, environment: dict[str, str]) -> float:
    """Return by how much the model's ceiling is off `fit` on a repeated tensor; interleaved, medians of five."""
    os.environ.update(environment)
    import keras
    import tensorflow as tf

    from autopipe.measure.bench import Bench, Probe, any_batch
    from autopipe.measure.meter import Meter
    from autopipe.measure.outcome import StopRule
    from autopipe.measure.trial.workload_import import load_workload
    from autopipe.workload.ops.planner import make_plan

    workload = load_workload(reference)
    plan = make_plan(workload)
    setup = ModelSetup(finish="host")
    bench = Bench(workload, plan, setup.devices, setup.channels)
    x, y = any_batch(plan.finished, workload.batch_size)
    dataset = tf.data.Dataset.from_tensors((x, y)).repeat()
    rule = StopRule(min_seconds=1.5, max_seconds=1.5)
    steps = max(4, int(1.5 * bench.alone(setup).model_images_per_second.value / workload.batch_size))
    times: list[float] = []

    class Timer(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            times.append(time.perf_counter())

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            times.append(time.perf_counter())

    ours, theirs = [], []
    for _ in range(5):
        probe = Probe(Meter(workload.batch_size, 1, rule), loader := bench.resident_loader(setup))
        bench.run(loader, probe, setup)
        assert probe.meter.reading is not None
        ours.append(probe.meter.reading.rate.value)
        times.clear()
        bench.model.fit(dataset, epochs=2, steps_per_epoch=steps, verbose=0, callbacks=[Timer()])
        theirs.append(steps * workload.batch_size / (times[3] - times[2]))
    return median(ours) / median(theirs) - 1
