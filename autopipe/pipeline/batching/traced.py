"""A recipe and a stream of batches that take notes in a `TraceLog`, in the place of those that do not.

What is quick and frequent is noted now and then only: noting takes less than 0.5 % of the time of what is noted, in
each thread for itself, and as much again for batches in flight. `benchmarks/watching.py` adds it up.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from autopipe.pipeline.batching.stream import BatchStream, Task
from autopipe.pipeline.batching.trace_log import TraceLog
from autopipe.pipeline.job import Recipe
from autopipe.workload.data import source as data_source
from autopipe.workload.order import BatchOrder
from autopipe.workload.plan import Step
from autopipe.workload.sample import Source

T = TypeVar("T")

NOTE_SECONDS: Final = 4e-6
"""What a note takes, or less."""
_SHARE: Final = 0.005  # of the time of what is noted
_FLIGHT_SECONDS: Final = 5 * NOTE_SECONDS / _SHARE  # from one noted batch to the next: a flight is five notes


class Spans(threading.local):
    """Notes spans of one name: each if they take long, else now and then, in each thread for itself."""

    def __init__(self, log: TraceLog, name: str) -> None:
        self._log = log
        self._name = name
        self._left = 0

    def due(self) -> bool:
        """Tell whether the span that begins now is to be noted."""
        if self._left > 0:
            self._left -= 1
            return False
        return True

    def note(self, began: float, ended: float) -> None:
        """Note a span that was due."""
        self._log.span(self._name, began, ended)
        self._left = int(NOTE_SECONDS / (_SHARE * max(ended - began, 1e-7)))


def traced(recipe: Recipe) -> Recipe:
    """Return the recipe with its reads and ops noted, if that is asked for."""
    if recipe.trace is None:
        return recipe
    log = TraceLog(recipe.trace)
    steps = tuple(_traced_step(step, log) for step in recipe.steps)
    return dataclasses.replace(recipe, source=_TracedSource(recipe.source, log), steps=steps)


def _traced_step(step: Step, log: TraceLog) -> Step:
    op = copy.copy(step.op)
    name = op.name
    for half in ("apply", "apply_many"):
        object.__setattr__(op, half, noted(getattr(op, half), name, log))  # ops are frozen
    return dataclasses.replace(step, op=op)


class _TracedSource:
    """A source whose reads are noted. It looks like the source that it reads from."""

    def __init__(self, source: Source, log: TraceLog) -> None:
        self._source = source
        self.read = noted(source.read, "read", log)
        many = data_source.batch_half(source)
        self.read_many = None if many is None else noted(many, "read", log)

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def noted(
    function: Callable[..., Any], name: str, log: TraceLog, clock: Callable[[], float] = time.monotonic
) -> Callable[..., Any]:
    """Return the function with its calls noted."""
    spans = Spans(log, name)

    def timed(*arguments: Any) -> Any:
        if not spans.due():
            return function(*arguments)
        began = clock()
        try:
            return function(*arguments)
        finally:
            spans.note(began, clock())

    return timed


class TracedStream(BatchStream[T]):
    """Notes batches from when a worker begins one until the training takes it, and how many wait to be taken."""

    def __init__(self, order: BatchOrder, queue_size: int, workers: int, ahead: int, folder: str) -> None:
        super().__init__(order, queue_size, workers, ahead)
        self._log = TraceLog(folder)
        self._flying: set[tuple[int, int]] = set()
        self._next = 0.0

    def room_for(self, task: Task) -> bool:
        wanted = super().room_for(task)
        now = time.monotonic()
        if wanted and now >= self._next:
            self._next = now + _FLIGHT_SECONDS
            self._flying.add((task.epoch, task.batch))
            self._flight("b", (task.epoch, task.batch))
        else:
            self._flying.discard((task.epoch, task.batch))
        return wanted

    def deliver(self, task: Task, result: T) -> None:
        super().deliver(task, result)
        if (task.epoch, task.batch) in self._flying:
            self._flight("n", (task.epoch, task.batch))
            self._log.count("finished batches", self.waiting())

    def _take(self, reader: int, wanted: tuple[int, int]) -> tuple[int, T]:
        taken = super()._take(reader, wanted)
        if wanted in self._flying:
            self._flying.discard(wanted)
            self._flight("e", wanted)
            self._log.count("finished batches", self.waiting())
        return taken

    def close(self, *error: Any) -> None:
        super().close(*error)
        self._log.flush()

    def _flight(self, phase: str, batch: tuple[int, int]) -> None:
        self._log.flight(phase, "batch", f"{batch[0]}/{batch[1]}")
