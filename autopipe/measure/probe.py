"""The probe: a Keras callback that times the steps of a `fit`, groups them in windows and stops when it has seen enough.

Device work is waited for at the edges of windows only, so that steps overlap as they do in training.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import keras

from autopipe.core.loader import Loader
from autopipe.core.outcome import Phase
from autopipe.measure import windows
from autopipe.measure.windows import Edge, Reading, StopRule

_SETTLED_STEPS = 3  # steps that tell how long a step takes, to choose the length of windows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Where a probe reads time from. Tests give their own.

    Attributes:
        wall: seconds; `time.monotonic`, which samplers use, too.
        cpu: processor seconds of this process, all threads.
    """

    wall: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.process_time


class Probe(keras.callbacks.Callback):
    """Times the steps of one `fit`.

    Attributes:
        reading: what the windows say; None while there are too few.
        began: when the first window began, in seconds of the wall clock; None before.
        images: images trained on since then.
    """

    def __init__(
        self,
        loader: Loader,
        *,
        rule: StopRule,
        workers: int,
        skip: int,
        on_window: Callable[[int, float], None] | None = None,
        on_phase: Callable[[Phase], None] | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Leave out the first `skip` steps, then measure.

        Args:
            loader: what feeds the training; it is asked for its queue's level and how long it was waited for.
            rule: when to stop.
            workers: how many batches may arrive together.
            skip: steps before the first window.
            on_window: told (images so far, images/s) at the end of each window.
            on_phase: told when the first batch is through, and when the windows begin.
            clocks: where time is read.
        """
        super().__init__()
        self.reading: Reading | None = None
        self.began: float | None = None
        self.images = 0
        self._loader = loader
        self._rule = rule
        self._workers = workers
        self._skip = max(skip, _SETTLED_STEPS + 1)
        self._on_window = on_window
        self._on_phase = on_phase
        self._clocks = clocks or Clocks()
        self._steps = 0
        self._settling = 0.0
        self._edges: list[Edge] = []
        self._in_window = 0
        self._window_steps = 1
        self._waited_before = 0.0
        self._cpu_began = 0.0
        self._cpu_ended = 0.0

    @property
    def discarded(self) -> int:
        """Steps before the first window that counts."""
        left_out = 0 if self.reading is None else self.reading.left_out
        return self._skip + left_out * self._window_steps

    @property
    def cpu_seconds_per_image(self) -> float:
        """Processor seconds of this process for an image, over all windows."""
        return (self._cpu_ended - self._cpu_began) / max(1, self.images)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Count a step; at the edge of a window, read the clocks and decide."""
        self._steps += 1
        if self._steps == 1 and self._on_phase is not None:
            self._on_phase(Phase.FILL)
        if self._steps < self._skip:
            if self._steps == self._skip - _SETTLED_STEPS:
                _wait_for_device(logs)
                self._settling = self._clocks.wall()
        elif self._steps == self._skip:
            self._begin(logs)
        else:
            self._in_window += 1
            if self._in_window == self._window_steps:
                self._edge(logs)

    def _begin(self, logs: dict[str, Any] | None) -> None:
        _wait_for_device(logs)
        if self._on_phase is not None:
            self._on_phase(Phase.MEASURE)
        self.began = self._clocks.wall()
        self._window_steps = windows.window_steps((self.began - self._settling) / _SETTLED_STEPS, self._workers)
        self._waited_before = self._loader_waited()
        self._cpu_began = self._clocks.cpu()

    def _edge(self, logs: dict[str, Any] | None) -> None:
        _wait_for_device(logs)
        now, waited = self._clocks.wall(), self._loader_waited()
        images = self._in_window * self._loader.batch_size
        level = self._loader.occupancy()
        self._edges.append(
            Edge(
                seconds=now,
                images=images,
                waiting_seconds=waited - self._waited_before,
                level=None if level is None else level[0],
            )
        )
        self.images += images
        self._in_window, self._waited_before, self._cpu_ended = 0, waited, self._clocks.cpu()
        began = self.began or 0.0
        self.reading = windows.read(began, self._edges, self._rule)
        if self._on_window is not None:
            self._on_window(self.images, self.images / max(now - began, 1e-9))
        if self.reading is not None and self.reading.done:
            self.model.stop_training = True

    def _loader_waited(self) -> float:
        return float(getattr(self._loader, "waited_seconds", 0.0))


def _wait_for_device(logs: dict[str, Any] | None) -> None:
    """Return when the step that made `logs` has really ended."""
    for value in (logs or {}).values():
        float(value)
