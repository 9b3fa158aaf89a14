"""An analytic model of a producer, a queue and a consumer: when each training step would end, on a clock of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from autopipe.measure.meter import Meter


def _steady(seconds: float) -> float:
    return 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Workers that make batches, a queue, and a model that takes them in order."""

    producer_seconds: float  # between two batches, when all workers work; each takes `workers` times as long for one
    consumer_seconds: float  # a step, once it has its batch
    workers: int = 2  # who begin together
    queue: int = 8  # finished batches that may wait
    filled: int = 0  # batches that wait already when the model begins
    slowness: Callable[[float], float] = _steady  # of the machine at a time, for what begins then
    consumer_slowness: Callable[[float], float] = _steady  # the same for the model alone

    @property
    def batches_per_second(self) -> float:
        """The true steady rate, on a quiet machine."""
        return 1 / max(self.producer_seconds, self.consumer_seconds)

    def steps(self) -> Iterator[tuple[float, float, int]]:
        """Yield, for each step, when it ended, how long the model had waited until then, and the queue's level."""
        done = [0.0] * self.filled
        taken: list[float] = []
        free = [0.0] * self.workers
        capacity = self.queue + self.workers
        now = waited = 0.0
        for number in range(10**9):
            while len(done) < number + capacity:
                worker = free.index(min(free))
                room = taken[len(done) - capacity] if len(done) >= capacity else 0.0
                start = max(free[worker], room)
                free[worker] = start + self.producer_seconds * self.workers * self.slowness(start)
                done.append(free[worker])
            began = max(now, done[number])
            waited += began - now
            taken.append(began)
            now = began + self.consumer_seconds * self.slowness(began) * self.consumer_slowness(began)
            yield now, waited, sum(end <= now for end in done[number + 1 :])


def run(meter: Meter, pipeline: Pipeline, *, at_once: int = 1, steps: int = 10**9, blind: bool = False) -> float:
    """Train until the meter has enough, or for `steps` steps, `at_once` in an execution; return when that was.

    Where `blind`, the loader cannot tell how full its queue is.
    """
    seconds = 0.0
    for number, (seconds, waited, level) in enumerate(pipeline.steps(), start=1):
        due = number % at_once == 0 and meter.step(number, None if blind else level, seconds)
        if (due and not meter.look(seconds, waited)) or number >= steps:
            meter.end(seconds, waited)
            break
    return seconds
