"""A bench: one model, built and compiled for a device count and a channel order, on which trial after trial runs.

Also the measurements of the model without a loader: its rate and its steps on a batch that is already on the device,
the transfer of a batch to the device, and the exchange of gradients between devices.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import keras
import numpy as np

from autopipe.measure.facts import Ceiling
from autopipe.measure.meter import Meter
from autopipe.measure.outcome import FEWEST_STEPS, EpochTime, Phase, Report, StopRule
from autopipe.measure.stats import median
from autopipe.pipeline import assembly
from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.devices.feed import TimedLoader
from autopipe.pipeline.devices.strategy import DeviceStrategy
from autopipe.pipeline.devices.trainer import FinishedSteps, Trainer
from autopipe.pipeline.loader import Finish, Loader
from autopipe.workload.mode import Mode
from autopipe.workload.op import Plan
from autopipe.workload.sample import Batch, Field, SampleSpec, Source
from autopipe.workload.workload import Workload


class Probe(keras.callbacks.Callback):
    """Times the steps of one `fit`, of one epoch or of more."""

    def __init__(
        self,
        meter: Meter,
        loader: Loader | None = None,
        *,
        report: Report | None = None,
        when_filled: Callable[[], object] | None = None,
    ) -> None:
        """Ask `loader` for its queue and its waiting; `when_filled` is called when its caches are full."""
        super().__init__()
        self._loader, self._report, self._when_filled = loader, report, when_filled
        self.meter = meter  # with the readings
        self.cpu_seconds = self._cpu_began = 0.0  # of this process over all windows; and as they began
        self._training = False
        self._earlier, self._steps = 0, 0  # in epochs before this one, and in this one
        self.over = False  # it has seen enough

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Tell the meter the length of an epoch, if there are several and Keras knows it by now."""
        known = self.params or {}
        if known.get("epochs", 1) > 1 and known.get("steps"):
            self.meter.epoch_steps = known["steps"]

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._steps:
            self.meter.epoch_steps = self._steps
        self._earlier, self._steps = self._earlier + self._steps, 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Look at the clock if it is time. With `steps_per_execution`, several batches have ended at once."""
        if not self._training:
            self._training = True
            self._tell(Phase.FILL)
        if self._report is not None and self.meter.began_at is None:
            self._report.progress(0, 0.0)  # a sign of life: filling a cache takes as long as it takes
        ended, known = batch + 1, self.meter.epoch_steps
        together = self.model.steps_per_execution  # of them, the last call of an epoch may train fewer
        self._steps = known if known is not None and known < ended < known + together else ended
        occupancy = None if self._loader is None else self._loader.occupancy()
        queued = None if occupancy is None else occupancy[0]
        if not self.meter.step(self._earlier + self._steps, queued, time.monotonic()):
            return
        wait_for_device(logs)
        measuring, filled = self.meter.began_at is not None, self.meter.filled_at is not None
        if not self.meter.look(time.monotonic(), self._waited()):
            self.over = True
            self.model.stop_training = self.model.stop_evaluating = self.model.stop_predicting = True
        if self._when_filled is not None and not filled:
            self._when_filled()
        cpu = time.process_time()
        if measuring:
            self.cpu_seconds = cpu - self._cpu_began
        elif self.meter.began_at is not None:
            self._cpu_began = cpu
            self._tell(Phase.MEASURE)
        if self._report is not None:
            self._report.progress(self.meter.images, self.meter.rate)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.meter.end(time.monotonic(), self._waited())

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._earlier, self._steps = self._earlier + self._steps, 0

    on_predict_begin = on_test_begin
    on_test_batch_end = on_predict_batch_end = on_train_batch_end

    def passes(self, call: Callable[..., object], most: int) -> None:
        """Call Keras's `evaluate` or `predict` until the probe has seen enough, but not more than `most` times."""
        for _ in range(most):
            call(callbacks=[self], verbose=0)
            if self.over:
                break
        self.on_train_end()

    def _tell(self, phase: Phase) -> None:
        if self._report is not None:
            self._report.phase(phase)

    def _waited(self) -> float:
        return self._loader.waited_seconds if isinstance(self._loader, TimedLoader) else 0.0


class EpochWatch(keras.callbacks.Callback):
    """Times the epochs of a `fit`, each from the end of the one before to its own; the last callback of all."""

    def __init__(self, seconds: float, report: Report, clock: Callable[[], float] = time.monotonic) -> None:
        """End the training about `seconds` after the first epoch, in which caches fill and functions compile."""
        super().__init__()
        self._seconds, self._report, self._clock = seconds, report, clock
        self._ends: list[float] = []
        self._marks: dict[str, list[tuple[int, float]]] = {}  # the first and last batch that ended, and when
        self._found: list[tuple[float, float, float]] = []  # seconds of an epoch, of a step, of one of the validation

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._mark("train", batch)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._mark("test", batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        now = self._clock()
        if self._ends:
            self._found.append((now - self._ends[-1], self._step("train"), self._step("test")))
        self._ends.append(now)
        self._marks.clear()
        if len(self._found) >= FEWEST_EPOCHS and now - self._ends[0] >= self._seconds:
            self.model.stop_training = True

    def epoch_time(self, steps: Sequence[int], whole: Sequence[int]) -> EpochTime:
        """Return the time of an epoch; `steps` were taken of the `whole` batches of training and validation."""
        seconds, step, test = sorted(self._found)[len(self._found) // 2]
        return EpochTime(
            training_seconds=whole[0] * step,
            validation_seconds=whole[1] * test,
            pause_seconds=max(0.0, seconds - steps[0] * step - steps[1] * test),
            share=min(1.0, sum(steps) / sum(whole)),
        )

    def _mark(self, kind: str, batch: int) -> None:
        marks = self._marks.setdefault(kind, [])
        marks[1:] = [(batch, self._clock())]
        self._report.progress(0, 0.0)  # a sign of life

    def _step(self, kind: str) -> float:
        marks = self._marks.get(kind, [])
        if len(marks) < 2:  # all batches ended at once: their time counts as a pause
            return 0.0
        (first, began), (last, ended) = marks
        return (ended - began) / max(1, last - first)


def wait_for_device(logs: Any) -> None:
    """Block until the step that made `logs` has ended. Any arrays in the logs are waited for."""
    for value in keras.tree.flatten({} if logs is None else logs):
        if hasattr(value, "__array__"):
            np.asarray(value)


# -------------------- the model without a loader


class ResidentLoader(Loader):
    """Repeats one batch without end, as one epoch."""

    buffered_batches = 0

    def __init__(self, batch: Batch, spec: SampleSpec, finish: Finish, batch_size: int, together: int = 1) -> None:
        """Repeat a batch that looks like `spec`, in arrays that hold `together` copies for calls of several."""
        self._batches, self.spec, self.finish, self.batch_size = [batch], spec, finish, batch_size
        if together > 1:
            stacks = [None if part is None else np.stack([np.asarray(part)] * together) for part in batch]
            self._batches = [tuple(None if one is None else one[place] for one in stacks) for place in range(together)]

    def __len__(self) -> int:
        return 1 << 40

    @property
    def identity(self) -> str:
        return "resident"

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Any]:
        return itertools.cycle(self._batches)

    def close(self) -> None: ...


def transfer_seconds(
    strategy: DeviceStrategy,
    arrays: tuple[Any, ...],
    arrived: Callable[[Any], object],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Return the median seconds an image to send batches to the device, as many at once as a training does; None on a
    CPU, which uses a batch in place. `arrays` is a batch in the host's memory; `arrived` blocks until one is sent.
    """
    if not strategy.looks_ahead:
        return None
    on_the_way = 3  # batches: the two that `device_prefetch=2` sends ahead, and the one that the next step takes

    def send() -> None:
        for sent in [strategy.place(array) for _ in range(on_the_way) for array in arrays]:
            arrived(sent)

    return _call_seconds(send, clock) / on_the_way / len(arrays[0])


def _call_seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the median of seven calls, after one that compiles, or makes room on the device."""
    call()
    times = [clock()]
    for _ in range(7):
        call()
        times.append(clock())
    return median([after - before for before, after in itertools.pairwise(times)])


def arrived(array: Any) -> None:
    """Block until an array that was sent to the device is there."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        jax.block_until_ready(array)
    elif backend == "tensorflow":
        import tensorflow as tf

        tf.test.experimental.sync_devices()
    else:  # pragma: no cover  # torch is no dependency; not run in the tests
        import torch

        torch.cuda.synchronize()


def gradient_exchange(strategy: DeviceStrategy, model: Any) -> dict[str, int | float | None]:
    """Measure the exchange of gradients: `gradient_bytes`, and `exchange_seconds` on several devices."""
    numbers = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    part = min(max(1, numbers), 2**24)  # 64 MiB load any connection fully, and fit beside a large model
    exchange = strategy.exchange(part)
    seconds = None if exchange is None else _call_seconds(exchange) * numbers / part
    return {"gradient_bytes": numbers * np.dtype(np.float32).itemsize, "exchange_seconds": seconds}


ENDLESS = 10**9  # steps or epochs of a training that a probe or a watch ends
FEWEST_EPOCHS = 2  # epochs that are timed, after the first
_ALONE = StopRule(min_seconds=0.5, max_seconds=2.0)
_AGAIN = StopRule(min_seconds=0.5, max_seconds=1.0)  # readings differ from each other more than within one


class Bench:
    """Trains on any loader, through the same code path as the user's training."""

    def __init__(
        self,
        workload: Workload,
        plan: Plan,
        devices: int,
        channels: Literal["last", "first"],
        *,
        mode: Mode = Mode.TRAIN,
    ) -> None:
        self._workload, self.plan, self._mode = workload, plan, mode
        self.strategy, self.model = assembly.build_model(workload, devices=devices, channels=channels)
        self._steps = FinishedSteps(self.model)
        self._alone: dict[tuple[ModelSetup, int], Ceiling] = {}

    def run(
        self,
        loader: Loader,
        probe: Probe,
        setup: ModelSetup,
        *,
        device_prefetch: int = 0,
        steps: int | None = None,
        epochs: int = 1,
    ) -> None:
        """Train, evaluate or predict until the probe stops it, for at most `epochs` epochs of `steps` steps."""
        trainer = self.trainer(loader, setup, device_prefetch)
        if self._mode is Mode.TRAIN:
            trainer.fit(epochs=epochs, steps_per_epoch=steps or ENDLESS, callbacks=[probe], verbose=0)
            return
        call: Callable[..., object] = trainer.evaluate if self._mode is Mode.EVALUATE else trainer.predict
        most = max(1, steps // len(loader)) if steps and epochs == 1 else ENDLESS
        probe.passes(functools.partial(call, loader), most)

    def trainer(
        self,
        loader: Loader,
        setup: ModelSetup,
        device_prefetch: int,
        evaluation_loader: Callable[[Source, int], Loader] | None = None,
    ) -> Trainer:
        trainer = Trainer(
            self.model,
            loader,
            strategy=self.strategy,
            device_prefetch=device_prefetch,
            steps=self._steps,
            evaluation_loader=evaluation_loader,
        )
        trainer.setup = setup
        return trainer

    def alone(
        self, setup: ModelSetup, report: Report | None = None, *, again: bool = False, samples: int | None = None
    ) -> Ceiling:
        """Return the ceiling of the model alone, in a setup and with a number of samples. The first call measures,
        which includes compilation; later ones return the fastest reading, or with `again` a new one.
        """
        rows, strategy = samples or self._workload.batch_size, self.strategy
        key = setup, rows
        if again or key not in self._alone:
            spec, left, together = self.plan.sent(setup.finish), Finish.left(self.plan, setup), 1
            batch = any_batch(spec, rows)
            on_host = getattr(self.model, "takes_arrays", False)
            if on_host or (setup.steps_per_execution > 1 and strategy.devices == 1 and not strategy.looks_ahead):
                together = setup.steps_per_execution  # it is copied on the host, for calls of several steps
            else:
                batch = tuple(None if part is None else strategy.place(part) for part in batch)
            loader = ResidentLoader(batch, spec, left, rows, together)
            first = None if report is None else FirstSteps(report, setup.steps_per_execution)
            probe = Probe(Meter(rows, 1, _AGAIN if key in self._alone else _ALONE), loader, report=first)
            self.run(loader, probe, setup)
            reading = probe.meter.reading
            assert reading is not None  # the batch has no end
            sent = tuple(array for array in any_batch(spec, self._workload.batch_size) if array is not None)
            found = Ceiling(
                model_images_per_second=reading.rate,
                model_core_seconds_per_image=probe.cpu_seconds / max(1, probe.meter.images),
                transfer_seconds_per_image=transfer_seconds(strategy, sent, arrived),
                warnings=reading.warnings,
                **setup._asdict(),
            )
            fastest = self._alone.setdefault(key, found).model_images_per_second
            if fastest.value < reading.rate.value:  # others on the machine can only slow it down
                self._alone[key] = found
            return found
        return self._alone[key]


def any_batch(spec: SampleSpec, rows: int) -> Batch:
    """Make a batch of small whole numbers, which are valid as image, mask and label."""
    generator = np.random.default_rng(0)

    def part(field: Field) -> Any:
        # By default they are drawn as 8 bytes each: eight times the batch.
        return generator.integers(0, 2, (rows, *(field.shape or ())), np.uint8).astype(field.dtype, copy=False)

    return tuple(None if field is None else part(field) for field in spec.columns)


class FirstSteps:
    """Forwards a report without its phases, and logs once if the first step takes 10 s, or two others 2 s each."""

    def __init__(self, report: Report, together: int = 1, clock: Callable[[], float] = time.monotonic) -> None:
        """Forward to `report`; the first step compiles, and of those that run `together` the second may."""
        self._report, self._together, self._clock = report, together, clock
        self._last = clock()
        self._steps_began = False
        self._long: list[float] = []  # seconds of the first two long ones

    def phase(self, phase: Phase) -> None: ...  # the measurement is in one of its own

    def progress(self, images: int, images_per_second: float) -> None:
        now = self._clock()
        took, self._last = now - self._last, now
        if not self._steps_began:
            self._steps_began = True
            if took >= 10.0:
                self.log(f"The model's first training step took {took:.0f} s, compiling included.")
        elif took >= 2.0 * self._together and len(self._long) < 2:
            self._long.append(took / self._together)
            if len(self._long) == 2:
                step = min(self._long)
                trial = f"each trial takes {FEWEST_STEPS * step:.0f} s or more."
                self.log(f"A training step takes {step:.0f} s without any loader, so {trial}")
        self._report.progress(images, images_per_second)

    def log(self, text: str) -> None:
        self._report.log(text)
