"""A training that takes notes in a `TraceLog`: its steps, its waits for batches and the ends of epochs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from autopipe.batching.trace_log import TraceLog
from autopipe.batching.traced import Spans
from autopipe.core.loader import Loader
from autopipe.devices.timed import TimedLoader


class TracedLoader(TimedLoader):
    """Hands on the batches of another loader, and notes each time the training waited for one."""

    def __init__(self, loader: Loader, log: TraceLog) -> None:
        super().__init__(loader)
        self._log = log
        self._spans = Spans(log, "hand-over")

    def _timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        source = super()._timed(batches)
        while True:
            began = time.monotonic() if self._spans.due() else None
            try:
                batch = next(source)
            except StopIteration:
                return
            if began is not None:
                self._spans.note(began, time.monotonic())
            if self.taken % len(self) == 0:
                self._log.instant("epoch end")
            yield batch
            del batch  # whoever took it may be done with it before the next is asked for


class StepNotes(keras.callbacks.Callback):
    """Notes each step of a `fit`, the waiting for its batch included."""

    def __init__(self, log: TraceLog) -> None:
        super().__init__()
        self._spans = Spans(log, "step")
        self._began: float | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Look at the clock."""
        self._began = time.monotonic() if self._spans.due() else None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the step."""
        if self._began is not None:
            self._spans.note(self._began, time.monotonic())
