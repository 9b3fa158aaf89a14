"""Watches a training: images per second and the share of time spent waiting for data, epoch by epoch.

Measures and logs; what the figures are compared with, and what is said about it, is the caller's. A trainer makes
itself known to the callback by `set_trainer`, because Keras tells a callback of the model only.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import keras

from autopipe.core.loader import Loader, end
from autopipe.core.sample import Batch
from autopipe.errors import AutopipeError, ModelError
from autopipe.hardware.neighbours import Neighbours


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EpochFigures:
    """How an epoch went, from the end of its first batch to the end of its last, without validation.

    Attributes:
        images_per_second: trained.
        data_wait_share: the part of the time in which the training's thread waited for the loader, 0 to 1. Where a
            framework queues steps, the device may have been busy meanwhile.
        cores_of_others: how many cores others on the machine kept busy.
    """

    images_per_second: float
    data_wait_share: float
    cores_of_others: float = 0.0


class Trains(Protocol):
    """What a monitor needs of a trainer."""

    loader: Loader


class EpochMonitor(keras.callbacks.Callback):
    """Adds `images_per_second`, `data_wait_share` and `cores_of_others` to the logs of each epoch.

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
        self._trainer: Trains | None = None
        self._meter: _Meter | None = None
        self._epochs = 0
        self._first: tuple[int, float, float] | None = None
        self._last = (0, 0.0, 0.0)

    def set_trainer(self, trainer: Trains) -> None:
        """Be told whose training it is."""
        self._trainer = trainer

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to time the loader."""
        if self._trainer is None:
            raise ModelError(
                "A monitor watches the training of a trainer, but this is a plain `model.fit`.",
                hint="Pass it on: tuned.make_trainer().fit(epochs=3, callbacks=[ap.DriftMonitor()])",
            )
        loader = self._trainer.loader
        self._meter = loader if isinstance(loader, _Meter) else _Meter(loader, self._clock)
        self._trainer.loader = self._meter
        self._epochs = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forget the epoch before."""
        self._first = None
        self._neighbours = self._watch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note the time; the first batch is left out, because functions compile and pools start in it."""
        assert self._meter is not None
        self._last = (batch, self._clock(), self._meter.waited_seconds)
        if self._first is None:
            self._first = self._last

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the epoch."""
        assert self._meter is not None
        self._epochs += 1
        if self._first is None or self._last[0] <= self._first[0]:
            return  # a single batch
        batches, seconds, waited = (last - first for first, last in zip(self._first, self._last, strict=True))
        figures = EpochFigures(
            images_per_second=batches * self._meter.batch_size / max(seconds, 1e-9),
            data_wait_share=min(1.0, waited / max(seconds, 1e-9)),
            cores_of_others=self._neighbours.cores(),
        )
        if logs is not None:
            logs |= dataclasses.asdict(figures)
        self._judge(self._trainer, self._epochs - 1, figures)

    def on_train_end(self, logs: Any = None) -> None:
        """Hand the loader back as it was."""
        if self._trainer is not None and self._meter is not None:
            self._trainer.loader = self._meter.loader
        self._meter = None


class _Meter(Loader):
    """Hands on the batches of another loader, and sums up the time that it was waited for.

    Attributes:
        loader: the other loader, which owns everything.
        waited_seconds: spent in waiting for a batch, so far.
    """

    def __init__(self, loader: Loader, clock: Callable[[], float]) -> None:
        self.loader = loader
        self.waited_seconds = 0.0
        self.spec = loader.spec
        self.finish = loader.finish
        self.batch_size = loader.batch_size
        self.last_batch_samples = loader.last_batch_samples
        self.has_dataset = loader.has_dataset
        self.buffered_batches = loader.buffered_batches
        self._clock = clock

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def identity(self) -> str:
        return self.loader.identity

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        return self.timed(self.loader.batches(epoch, start, last=last))

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        dataset = self.loader.native_dataset(epoch, epochs, start)
        return None if dataset is None else _Timed(dataset, self)

    def diagnose(self, error: Exception) -> AutopipeError | None:
        return self.loader.diagnose(error)

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield what the iterator yields."""
        try:
            while True:
                asked = self._clock()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                self.waited_seconds += self._clock() - asked
                yield batch
                del batch  # its memory goes back to the loader before the next one is asked for
        finally:
            end(batches)

    def occupancy(self) -> tuple[int, int] | None:
        return self.loader.occupancy()

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state)

    def close(self) -> None:
        self.loader.close()


class _Timed:
    """A framework's own dataset, timed as it is iterated over."""

    def __init__(self, dataset: Iterable[Any], meter: _Meter) -> None:
        self._dataset = dataset
        self._meter = meter

    def __iter__(self) -> Iterator[Any]:
        return self._meter.timed(iter(self._dataset))
