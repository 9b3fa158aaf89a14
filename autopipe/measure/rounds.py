"""How the loader alone is timed: in rounds, in each of which every worker makes a batch.

Workers that begin together end together, too, so that a rate holds over whole rounds only. Which loader is timed, and
on which samples, is said in `autopipe.measure.ceilings`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

from autopipe.core import costs as cost_model
from autopipe.core import stats
from autopipe.core.config import PipelineConfig
from autopipe.core.costs import Costs
from autopipe.core.sample import Batch
from autopipe.core.value import Estimate
from autopipe.measure.op_costs import Clock

_ROUND_SECONDS = 2.0  # as predicted; four of them or so are gone through
_EDGE_SECONDS = 0.05
_PATIENCE_SECONDS = 10.0  # with a round that takes far longer than was predicted: a part of it has to do


def batch_size(wanted: int, config: PipelineConfig, costs: Costs) -> int:
    """Return the batch size for timing: the wanted one, or less where a round of such batches would take long.

    An image costs the same in a smaller batch where it takes milliseconds, as it does wherever rounds are long.
    """
    workers = config.loader.worker_count() or 1
    return max(1, min(wanted, int(_ROUND_SECONDS * cost_model.predict(config, costs) / workers)))


def _process_clock() -> tuple[float, float]:
    """Return wall seconds and processor seconds of this process."""
    return time.monotonic(), time.process_time()


def timed(
    batches: Iterator[Batch],
    workers: int,
    size: int,
    seconds: float,
    alive: Callable[[], object] = lambda: None,
    clock: Clock = _process_clock,
) -> tuple[Estimate, float]:
    """Return images/s of batches that nobody waits for, and the core-seconds of an image.

    Args:
        batches: without end.
        workers: how many make them, each one at a time.
        size: images of a batch.
        seconds: how long to look, at least.
        alive: called at each batch, which may take seconds.
        clock: wall and processor seconds.
    """
    began = clock()[0]
    for _ in range(workers + 2):
        next(batches)
        alive()
        if clock()[0] - began >= _PATIENCE_SECONDS:
            break
    images = 0
    wall, busy_before = clock()
    times, counts = [wall], [0]
    while times[-1] - times[0] < seconds or len(times) < 3:
        images += len(next(batches)[0])
        alive()
        now = clock()[0]
        whole = images - counts[-1] >= workers * size
        if now - times[-1] >= (_EDGE_SECONDS if whole else _PATIENCE_SECONDS):
            times.append(now)
            counts.append(images)
    core_seconds = (clock()[1] - busy_before) / images
    spans, sums = itertools.pairwise(times), itertools.pairwise(counts)
    rates = [(after - before) / (end - begin) for (begin, end), (before, after) in zip(spans, sums, strict=True)]
    return stats.estimate(rates), core_seconds
