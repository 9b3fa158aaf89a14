"""Keras callbacks of a training: their list, their logs, what those of several processes may write, resuming, and the
monitor of each epoch.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any

import keras
import numpy as np

from autopipe import frameworks
from autopipe.errors import ModelError, shortened
from autopipe.hardware.processes import Neighbours
from autopipe.pipeline.devices.feed import TimedLoader


def listed(given: Any) -> tuple[Any, ...]:
    """Return the callbacks of any form that Keras takes: a list, a `CallbackList`, one, or None."""
    if isinstance(given, keras.callbacks.CallbackList):
        return tuple(given.callbacks)
    found = (given,) if isinstance(given, keras.callbacks.Callback) else tuple(given or ())
    for each in found:
        if each is None or isinstance(each, type):
            hint = "Leave it out." if each is None else f"Make one of it: {each.__name__}(...)."
            raise ModelError(f"`callbacks` must be Keras callbacks, but one is {shortened(each)}.", hint=hint)
    return found


# -------------------- ranks: of several processes, rank 0 writes checkpoints and logs, the others only read them
# All ranks hold the same weights, so one copy is enough, and several writers of one file would spoil it.


_WRITE = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)
_RESTORES = keras.callbacks.BackupAndRestore
_SAVING = ("on_train_batch_end", "on_epoch_end", "on_train_end")


def of_rank(rank: tuple[int, int], callbacks: Iterable[Any]) -> list[Any]:
    """Return the callbacks of a rank: without those that write, unless it is rank 0. `BackupAndRestore` restores in
    each rank, so all of them must see its folder.
    """
    number, ranks = rank
    kept = [each for each in callbacks if number == 0 or not isinstance(each, _WRITE)]
    for callback in kept if ranks > 1 else ():
        if isinstance(callback, (*_WRITE, _RESTORES)):
            callback.on_train_begin = _undistributed(callback.on_train_begin)
            for name in _SAVING:
                method = _undistributed(getattr(callback, name))
                setattr(callback, name, method if number == 0 else lambda *_, **__: None)
    return kept


def _undistributed(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that makes no variables over all processes: Keras makes some to save by, and would wait there."""

    @functools.wraps(method)
    def run(*values: Any, **named: Any) -> Any:
        shared = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            return method(*values, **named)
        finally:
            keras.distribution.set_distribution(shared)

    return run


# -------------------- logs: fetched from the device when they are read
# Keras converts the logs of each step to numbers before it calls callbacks, and so waits for the device after each
# step, even if nothing reads them. The host then prepares nothing while the device works.


class StepLogs(dict[str, Any]):
    """The `logs` of a Keras callback: a dict of numbers. `np.asarray(logs)` waits until all of them are known."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(sorted(values.items()))  # the order of Keras's own

    def __getitem__(self, name: str) -> Any:
        return _number(super().__getitem__(name))

    def __iter__(self) -> Iterator[str]:  # without it, dict(logs) and {**logs} would copy the stored values
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        return _number(super().get(name, default))

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # a view that reads, like the other
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # a view that reads, like the other
        return ValuesView(self)

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array([value for value in self.values() if isinstance(value, float)], dtype)


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return StepLogs(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return value  # several numbers, or none: Keras passes them on, too


# -------------------- resume: counts the trained batches, and reads the checkpoint of Keras's `BackupAndRestore`
# Keras resumes at whole epochs; here the rest of an interrupted epoch is trained. Such a training is two calls of
# Keras's `fit` under one list of callbacks, which see one, with each epoch's own batch numbers.


class TrainingCallbacks(keras.callbacks.CallbackList):
    """The callbacks of one training; the trainer, not each call of `fit`, tells them its beginning and end."""

    def __init__(
        self,
        callbacks: Iterable[Any],
        trainer: Any = None,
        *,
        model: keras.Model,
        epochs: int,
        steps: int,
        verbose: Any,
    ) -> None:
        self.trainer = trainer  # whose training it is, for callbacks that join later, too
        self.skipped = 0  # batches of the current epoch that an earlier run has trained
        self.trained = self._before_epoch = 0  # batches, since the list was made
        self._steps = steps
        self._ended: dict[str, Any] | None = None
        told = {"model": model, "verbose": verbose, "epochs": epochs, "steps": steps}
        super().__init__(list(callbacks), add_history=True, add_progbar=verbose != 0, **told)
        for callback in self.callbacks:
            if hasattr(callback, "set_trainer"):  # a callback of ours; Keras tells it of the model only
                callback.set_trainer(trainer)

    def begin(self) -> None:
        self.model.stop_training = False
        super().on_train_begin()
        self._told = list(self.callbacks)
        self._stop = self.model.stop_training

    def end(self) -> None:
        super().on_train_end(self._ended)

    def on_train_begin(self, logs: Any = None) -> None:
        """Keep a stop request of `begin()`, which each call of `fit` clears; call callbacks that joined since."""
        self.model.stop_training = self._stop
        joined = [callback for callback in self.callbacks if callback not in self._told]
        self._told += joined
        for callback in joined:
            callback.on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._ended = logs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._before_epoch = self.trained
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.skipped = 0
        super().on_epoch_end(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_begin(batch + self.skipped, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the batch; with `steps_per_execution` several at once, fewer at the end of an epoch."""
        last = min(batch + self.skipped, self._steps - 1)
        self.trained = self._before_epoch + last + 1 - self.skipped
        if frameworks.reads_logs_later(self):  # no callback wants to know at once
            super().on_train_batch_end(last, logs)
            return
        logs = StepLogs(logs or {})
        for callback in self.callbacks:
            callback.on_train_batch_end(last, logs=logs)


def restored(callbacks: TrainingCallbacks) -> tuple[int, int] | None:
    """Return (epoch, batches done in it) of the checkpoint that `begin()` restored, or None if there was none."""
    epoch, done = frameworks.take_restored_epoch(callbacks.model), 0
    if epoch is None:
        return None
    for callback in callbacks.callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore) and callback.save_freq != "epoch":
            done = frameworks.batches_backed_up(callback, epoch)
    return epoch, done


# -------------------- monitor: images per second and the share of time spent waiting for data, epoch by epoch
# It measures and logs; comparing and judging the figures is the caller's part. A trainer registers with the callback by
# `set_trainer`, because Keras tells a callback of the model only.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochFigures:
    """The figures of an epoch, from the end of its first batch to the end of its last, without validation."""

    images_per_second: float  # trained
    # the share of the time in which the training's thread waited for the loader, 0 to 1; if a framework queues steps,
    # the device may have been busy meanwhile
    data_wait_share: float
    cores_of_others: float = 0.0  # how many cores others on the machine kept busy
    lost_workers: int = 0  # workers of the loader that died since the epoch before, and were replaced
    loader_changes: int = 0  # other loaders that took over for good since then, in a training that tunes itself


class EpochMonitor(keras.callbacks.Callback):
    """Adds the fields of `EpochFigures` to the logs of each epoch.

    Callbacks that come later in the list see them, `TensorBoard` and `History` among them.
    """

    def __init__(
        self,
        judge: Callable[[Any, int, EpochFigures], None],
        clock: Callable[[], float] = time.perf_counter,
        neighbours: Callable[[], Neighbours] = Neighbours,
    ) -> None:
        """Call `judge(trainer, epoch, figures)` after each epoch of this training, counted from 0."""
        super().__init__()
        self._judge, self._clock, self._watch = judge, clock, neighbours
        self._trainer: Any = None  # of which a monitor needs the `loader`
        self._meter: TimedLoader | None = None
        self._epochs = self._lost = self._changes = 0
        self._first: tuple[int, float, float] | None = None
        self._last = (0, 0.0, 0.0)

    def set_trainer(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_train_begin(self, logs: Any = None) -> None:
        if self._trainer is None:
            raise ModelError(
                "A monitor watches the training of a trainer, but this is a plain `model.fit`.",
                hint="Pass it on: tuned.make_trainer().fit(epochs=3, callbacks=[ap.DriftMonitor()])",
            )
        loader = self._trainer.loader
        self._meter = loader if isinstance(loader, TimedLoader) else TimedLoader(loader, self._clock)
        self._trainer.loader = self._meter
        self._neighbours = self._watch()
        self._epochs, self._lost, self._changes = 0, self._meter.lost_workers(), self._meter.changes()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the time; the first batch is left out, because functions compile and pools start in it."""
        assert self._meter is not None
        self._last = (batch, self._clock(), self._meter.waited_seconds)
        self._first = self._first or self._last

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        assert self._meter is not None
        self._epochs += 1
        if self._first is None or self._last[0] <= self._first[0]:
            return  # a single batch
        batches, seconds, waited = (last - first for first, last in zip(self._first, self._last, strict=True))
        lost, self._lost = self._lost, self._meter.lost_workers()
        changes, self._changes = self._changes, self._meter.changes()
        figures = EpochFigures(
            images_per_second=batches * self._meter.batch_size / max(seconds, 1e-9),
            data_wait_share=min(1.0, waited / max(seconds, 1e-9)),
            cores_of_others=self._neighbours.cores(),
            lost_workers=self._lost - lost,
            loader_changes=self._changes - changes,
        )
        if logs is not None:
            logs |= dataclasses.asdict(figures)
        self._judge(self._trainer, self._epochs - 1, figures)

    def on_train_end(self, logs: Any = None) -> None:
        if self._trainer is not None and self._meter is not None:
            self._trainer.loader = self._meter.loader
        self._meter = None
