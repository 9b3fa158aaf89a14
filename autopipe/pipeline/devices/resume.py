"""Where a training goes on: counts the batches trained, and reads where Keras's `BackupAndRestore` broke off.

Keras resumes at whole epochs; here an epoch that was cut is finished with just the batches that are left of it. Such a
training is two calls of Keras's `fit` under one list of callbacks, which see one, with each epoch's own batch numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from autopipe import frameworks
from autopipe.pipeline.devices.logs import StepLogs


class TrainingCallbacks(keras.callbacks.CallbackList):
    """The callbacks of one training, whose beginning and end are told by the trainer, not by each call of `fit`."""

    def __init__(self, callbacks: Iterable[Any], *, model: keras.Model, epochs: int, steps: int, verbose: Any) -> None:
        self.skipped = 0  # batches of the current epoch that an earlier run has trained
        self.trained = 0  # batches, since the list was made
        self._steps = steps
        self._before_epoch = 0
        self._ended: dict[str, Any] | None = None
        super().__init__(
            list(callbacks),
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            verbose=verbose,
            epochs=epochs,
            steps=steps,
        )

    def begin(self) -> None:
        """Tell the callbacks that training begins; a checkpoint is restored in here."""
        self.model.stop_training = False
        super().on_train_begin()
        self._told = list(self.callbacks)
        self._stop = self.model.stop_training

    def end(self) -> None:
        """Tell the callbacks that training is over."""
        super().on_train_end(self._ended)

    def on_train_begin(self, logs: Any = None) -> None:
        """Each call of `fit` clears the flag; a callback may have set it in `begin()`. Who joined since is told."""
        self.model.stop_training = self._stop
        joined = [callback for callback in self.callbacks if callback not in self._told]
        self._told += joined
        for callback in joined:
            callback.on_train_begin(logs)

    def on_train_end(self, logs: Any = None) -> None:
        """Keep the last logs for `end()`."""
        self._ended = logs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count from here."""
        self._before_epoch = self.trained
        super().on_epoch_begin(epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Only the first epoch can have a part behind it."""
        self.skipped = 0
        super().on_epoch_end(epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Number the batch within its whole epoch."""
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
    """Return (epoch, batches done of it) of the checkpoint that `begin()` restored, or None if there was none."""
    epoch, done = frameworks.take_restored_epoch(callbacks.model), 0
    if epoch is None:
        return None
    for callback in callbacks.callbacks:
        if isinstance(callback, keras.callbacks.BackupAndRestore) and callback.save_freq != "epoch":
            done = frameworks.batches_backed_up(callback, epoch)
    return epoch, done
