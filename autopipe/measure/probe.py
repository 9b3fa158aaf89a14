"""The callbacks of a measured `fit`: the probe reads the clock when its meter says so, and stops the training.

Device work is waited for at the edges of windows only, so that steps overlap as they do in training. If a trace is
wanted, a training takes notes in a `TraceLog`: its steps, its waits for batches and the ends of epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

from autopipe.measure.meter import Meter
from autopipe.measure.outcome import Phase, Report
from autopipe.pipeline.batching.traced import Spans, TraceLog
from autopipe.pipeline.devices.monitor import TimedLoader
from autopipe.pipeline.loader import Loader


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
        """Ask `loader` for the level of its queue and, if known, its waiting; report to `report`.

        `when_filled` is called between the steps in which caches fill and the first window.
        """
        super().__init__()
        self._when_filled = when_filled
        self.meter = meter  # with the readings
        self.cpu_seconds = 0.0  # of this process over all windows
        self._loader = loader
        self._report = report
        self._training = False
        self._cpu_began = 0.0
        self._earlier, self._steps = 0, 0  # in epochs before this one, and in this one

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
        if not self.meter.step(self._earlier + self._steps, None if occupancy is None else occupancy[0]):
            return
        wait_for_device(logs)
        measuring, filled = self.meter.began_at is not None, self.meter.filled_at is not None
        if not self.meter.look(time.monotonic(), self._waited()):
            self.model.stop_training = True
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
        """Take the last reading; the data may have ended before the meter had enough."""
        self.meter.end(time.monotonic(), self._waited())

    def _tell(self, phase: Phase) -> None:
        if self._report is not None:
            self._report.phase(phase)

    def _waited(self) -> float:
        return self._loader.waited_seconds if isinstance(self._loader, TimedLoader) else 0.0


def wait_for_device(logs: Any) -> None:
    """Block until the step that made `logs` has ended. Any arrays in the logs are waited for."""
    for value in keras.tree.flatten({} if logs is None else logs):
        if hasattr(value, "__array__"):
            np.asarray(value)


class TracedLoader(TimedLoader):
    """Forwards the batches of another loader, and notes each wait for one."""

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
            del batch  # its consumer may be done with it before it takes the next


class StepNotes(keras.callbacks.Callback):
    """Notes each step of a `fit`, with the waiting for its batch."""

    def __init__(self, log: TraceLog) -> None:
        super().__init__()
        self._spans = Spans(log, "step")
        self._began: float | None = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._began = time.monotonic() if self._spans.due() else None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._began is not None:
            self._spans.note(self._began, time.monotonic())
