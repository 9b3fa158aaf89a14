"""The outside clock of baselines.py: a callback that times a training as its user would, by whole epochs."""

from __future__ import annotations

import time
from typing import Any

import keras

SETTLE_SECONDS = 1.0


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
