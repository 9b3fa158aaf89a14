"""Watches a training: images per second and the share of time spent waiting for data, epoch by epoch.

It measures and logs; comparing and judging the figures is the caller's part. A trainer registers with the callback by
`set_trainer`, because Keras tells a callback of the model only.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

from autopipe.errors import ModelError
from autopipe.hardware.processes import Neighbours
from autopipe.pipeline.loader import Loader, end
from autopipe.workload.sample import Batch

# -------------------- timed: notes how long the training waited for each batch, with any loader
# The training thread takes batches itself, one by one (`autopipe.pipeline.devices.feed`), so the time in here is
# exactly the time in which the model had nothing to do.


_ITS_OWN = ("diagnose", "state_dict", "load_state_dict", "loaded_state", "trained", "occupancy", "lost_workers")
"""What the other loader is asked, and tells, of itself."""


class TimedLoader(Loader):
    """Hands on the batches of another loader."""

    def __init__(self, loader: Loader, clock: Callable[[], float] = time.monotonic) -> None:
        self.loader = loader  # the other one, which owns everything
        self._clock = clock
        for name in (*Loader.__annotations__, *_ITS_OWN):
            if not name.startswith("_"):
                setattr(self, name, getattr(loader, name))
        self.waited_seconds = 0.0  # time spent in waiting for batches so far
        self.taken = 0  # batches so far
        self.first_taken: float | None = None  # when the first batch was handed over, on `clock`; None before
        self.restarts: list[float] = []  # how long the first batch of each later epoch was waited for, in seconds

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def identity(self) -> str:
        return self.loader.identity

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        return self._timed(self.loader.batches(epoch, start, last=last))

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        dataset = self.loader.native_dataset(epoch, epochs, start)
        return self._timed(dataset) if isinstance(dataset, Iterable) else dataset

    def close(self) -> None:
        self.loader.close()

    def _timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        source = iter(batches)
        try:
            while True:
                began = self._clock()
                try:
                    batch = next(source)
                except StopIteration:
                    return
                now = self._clock()
                self.waited_seconds += now - began
                self.taken += 1
                if self.first_taken is None:
                    self.first_taken = now
                elif (self.taken - 1) % len(self) == 0:
                    self.restarts.append(now - began)
                yield batch
                del batch  # its memory goes back to the loader before the next one is asked for
        finally:
            end(source)


# -------------------- monitor


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochFigures:
    """The figures of an epoch, from the end of its first batch to the end of its last, without validation."""

    images_per_second: float  # trained
    # the share of the time in which the training's thread waited for the loader, 0 to 1; if a framework queues steps,
    # the device may have been busy meanwhile
    data_wait_share: float
    cores_of_others: float = 0.0  # how many cores others on the machine kept busy
    lost_workers: int = 0  # workers of the loader that died since the epoch before, and were replaced


class EpochMonitor(keras.callbacks.Callback):
    """Adds `images_per_second`, `data_wait_share`, `cores_of_others` and `lost_workers` to the logs of each epoch.

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
        self._judge = judge
        self._clock = clock
        self._watch = neighbours
        self._trainer: Any = None  # of which a monitor needs the `loader`
        self._meter: TimedLoader | None = None
        self._epochs = self._lost = 0
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
        self._epochs, self._lost = 0, self._meter.lost_workers()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._first = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the time; the first batch is left out, because functions compile and pools start in it."""
        assert self._meter is not None
        self._last = (batch, self._clock(), self._meter.waited_seconds)
        if self._first is None:
            self._first = self._last

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        assert self._meter is not None
        self._epochs += 1
        if self._first is None or self._last[0] <= self._first[0]:
            return  # a single batch
        batches, seconds, waited = (last - first for first, last in zip(self._first, self._last, strict=True))
        lost, self._lost = self._lost, self._meter.lost_workers()
        figures = EpochFigures(
            images_per_second=batches * self._meter.batch_size / max(seconds, 1e-9),
            data_wait_share=min(1.0, waited / max(seconds, 1e-9)),
            cores_of_others=self._neighbours.cores(),
            lost_workers=self._lost - lost,
        )
        if logs is not None:
            logs |= dataclasses.asdict(figures)
        self._judge(self._trainer, self._epochs - 1, figures)

    def on_train_end(self, logs: Any = None) -> None:
        if self._trainer is not None and self._meter is not None:
            self._trainer.loader = self._meter.loader
        self._meter = None
