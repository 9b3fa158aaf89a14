"""A loader that notes how long each of its batches was waited for, whatever kind of loader it is.

The training thread takes batches itself, one by one (`autopipe.pipeline.devices.feed`), so the time it spends in here
is exactly the time in which the model had nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from autopipe.pipeline.loader import Loader, end
from autopipe.workload.sample import Batch

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
