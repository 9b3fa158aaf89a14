"""A recipe and a stream of batches that take notes in a `TraceLog`, in the place of those that do not.

What is quick and frequent is noted now and then only, so that noting takes less than a hundredth of its time.
"""

from __future__ import annotations

import copy
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from autopipe.batching.stream import BatchStream, Task
from autopipe.batching.trace_log import TraceLog
from autopipe.core.job import Recipe
from autopipe.core.order import Order
from autopipe.core.plan import Step
from autopipe.core.sample import Source

T = TypeVar("T")

_NOTE_SECONDS = 4e-6  # what noting a span takes
_SHARE = 0.01  # of the time of what is noted


def traced(recipe: Recipe) -> Recipe:
    """Return the recipe with its reads and ops noted, if that is asked for."""
    if recipe.trace is None:
        return recipe
    log = TraceLog(recipe.trace)
    steps = tuple(_traced_step(step, log) for step in recipe.steps)
    return dataclasses.replace(recipe, source=_TracedSource(recipe.source, log), steps=steps)


def _traced_step(step: Step, log: TraceLog) -> Step:
    op = copy.copy(step.op)
    name = type(op).__name__
    for half in ("apply", "apply_many"):
        object.__setattr__(op, half, _noted(getattr(op, half), name, log))  # ops are frozen
    return dataclasses.replace(step, op=op)


class _TracedSource:
    """A source whose reads are noted. It looks like the source that it reads from."""

    def __init__(self, source: Source, log: TraceLog) -> None:
        self._source = source
        self.read = _noted(source.read, "read", log)
        many = getattr(source, "read_many", None)
        self.read_many = None if many is None else _noted(many, "read", log)

    def __len__(self) -> int:
        return len(self._source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def _noted(
    function: Callable[..., Any], name: str, log: TraceLog, clock: Callable[[], float] = time.monotonic
) -> Callable[..., Any]:
    """Return the function, noted each time if it takes long, and else now and then."""
    skipped = threading.local()

    def noted(*arguments: Any) -> Any:
        left = getattr(skipped, "left", 0)
        if left > 0:
            skipped.left = left - 1
            return function(*arguments)
        began = clock()
        try:
            return function(*arguments)
        finally:
            ended = clock()
            log.span(name, began, ended)
            skipped.left = int(_NOTE_SECONDS / (_SHARE * max(ended - began, 1e-7)))

    return noted


class TracedStream(BatchStream[T]):
    """Notes each batch from when a worker begins it until the training takes it, and how many wait to be taken."""

    def __init__(self, order: Order, capacity: int, ahead: int, folder: str) -> None:
        super().__init__(order, capacity, ahead)
        self._log = TraceLog(folder)

    def room_for(self, task: Task) -> bool:
        wanted = super().room_for(task)
        if wanted:
            self._log.flight("b", "batch", f"{task.epoch}/{task.batch}")
        return wanted

    def deliver(self, task: Task, result: T) -> None:
        super().deliver(task, result)
        self._log.flight("n", "batch", f"{task.epoch}/{task.batch}")
        self._log.count("finished batches", self.waiting())

    def _take(self, reader: int, wanted: tuple[int, int]) -> T:
        result = super()._take(reader, wanted)
        self._log.flight("e", "batch", f"{wanted[0]}/{wanted[1]}")
        self._log.count("finished batches", self.waiting())
        return result

    def close(self, *error: Any) -> None:
        super().close(*error)
        self._log.flush()
