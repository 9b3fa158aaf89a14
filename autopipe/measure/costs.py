"""What one image costs on one core, op by op: where a loader's time goes, and how many images all cores could make."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from autopipe.core import randomness
from autopipe.core.ceiling import OpCost
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.errors import BadSampleError
from autopipe.hardware import allocator
from autopipe.ops import plan as planning

_BLOCKS = 5
_BATCHING = "batching"


def op_costs(
    workload: Workload, plan: Plan, indices: Sequence[int], clock: Callable[[], float] = time.thread_time
) -> tuple[OpCost, ...]:
    """Time reading and every op on some samples, one after the other, in this thread.

    Args:
        workload: what is trained.
        plan: its ops in their places.
        indices: samples to look at; their files should be in the page cache. Bad ones are passed over.
        clock: processor seconds of this thread.

    Returns:
        Each cost as the median over five blocks of samples of the block's mean.

    Raises:
        BadSampleError: no sample could be used.
    """
    cv2.setNumThreads(0)
    allocator.keep_freed_memory()
    rows = [row for index in indices if (row := _one(workload, plan, index, clock)) is not None]
    if not rows:
        raise BadSampleError(f"none of {len(indices)} samples could be used to measure what ops cost.")
    blocks = np.array_split(np.array(rows), min(_BLOCKS, len(rows)))
    seconds = np.median([block.mean(axis=0) for block in blocks], axis=0)
    costs = [OpCost(name="read", part="fixed", seconds_per_image=float(seconds[0]))]
    position = 0
    for part, steps in (("fixed", plan.prefix), ("fresh", plan.body), ("finish", plan.suffix)):
        for step in steps:
            position += 1
            cost = {"name": type(step.op).__name__, "part": part, "seconds_per_image": float(seconds[position])}
            costs.append(OpCost.model_validate(cost))
    return tuple(costs)


def fitted(single: Sequence[OpCost], whole: float, cached: float | None) -> tuple[OpCost, ...]:
    """Return the costs as they are when all cores work, so that they add up to what loaders were seen to take.

    Ops slow each other down where cores share caches and memory, and a loader does more than its ops: it draws numbers,
    copies and hands over batches.

    Args:
        single: the costs of ops on one core, with the others idle.
        whole: core-seconds that an image took a loader, finish on the device.
        cached: the same with the fixed part in a cache; None where there can be none.
    """
    fresh, fixed = _sum(single, "fresh"), _sum(single, "fixed")
    batching = max(0.0, (min(cached, whole) if cached is not None else 0.0) - fresh)
    left = whole - batching
    factor = {"finish": 1.0, "fresh": 1.0, "fixed": (left - fresh) / fixed if fixed > 0 else 1.0}
    if cached is None or cached < fresh or factor["fixed"] <= 0:
        factor["fresh"] = factor["fixed"] = left / (fresh + fixed) if fresh + fixed > 0 else 1.0
    costs = [
        cost.model_copy(update={"seconds_per_image": cost.seconds_per_image * factor[cost.part]}) for cost in single
    ]
    return (*costs, OpCost(name=_BATCHING, part="fresh", seconds_per_image=batching))


def _sum(costs: Sequence[OpCost], part: str) -> float:
    return sum(cost.seconds_per_image for cost in costs if cost.part == part)


def _one(workload: Workload, plan: Plan, index: int, clock: Callable[[], float]) -> list[float] | None:
    """Return the seconds of reading and of each op on one sample, or None if it is bad."""
    steps = plan.prefix + plan.body + plan.suffix
    place = np.array([index])
    numbers = [randomness.uniforms(workload.seed, 0, place, step.stream, step.op.draws)[0] for step in steps]
    times = [clock()]
    try:
        sample = planning.normalise(workload.data.read(index))
        times.append(clock())
        for step, random in zip(steps, numbers, strict=True):
            sample = step.op.apply(sample, step.before, random)
            times.append(clock())
    except BadSampleError:
        return None
    return np.diff(times).tolist()
