"""The rate that a configuration should make on a machine of these costs. A search measures, and does not use it.

It is wrong by factors that `prediction` takes from what a study has measured beside it.
"""

from __future__ import annotations

import math

from autopipe.measure.costs import (
    COPY_SECONDS,
    Work,
    cores_of_workers,
    depth,
    lock_seconds,
    reads_rate,
    received_core_seconds,
    turns,
    work,
    worker_read_seconds,
)
from autopipe.measure.facts import Ceiling
from autopipe.pipeline.config import PipelineConfig

_SHARPNESS = {True: 8.0, False: 3.0}  # closeness of the whole to the slowest part: with and without a queue


def predict(config: PipelineConfig, ceiling: Ceiling) -> float:
    """Predict the steady images/s from the slowest of model, workers, lock, reads and cores.

    The times of the parts are joined by a p-norm: a queue hides all but the slowest, without one they add up.
    """
    costs, loader = ceiling, config.loader
    does = work(config, costs)
    cores, count, reads = costs.cores or 1.0, loader.worker_count(), reads_rate(config, does, costs)
    busy = max(_loader_core_seconds(config, costs, does), 1e-9)
    here = max(received_core_seconds(does), 1e-9) if loader.works_elsewhere else busy
    each = busy + does.op_wait_seconds + worker_read_seconds(config, does)
    made = min((cores if count is None else max(1, count)) / each, cores_of_workers(config, costs) / busy)
    joined = [model_rate(config, ceiling), cores / (here + costs.model_core_seconds_per_image), made]
    if reads is not None and loader.reads_ahead():
        joined.append(reads)
    elif reads is not None:  # the workers' own reads are in their time already
        joined[-1] = min(made, reads)
    held = lock_seconds(does.paid, turns(loader, cores))
    joined += [1 / held] if held > 0 and loader.shares_lock() else []
    # With a queue, core time and model time are separate limits; without one, the two wait for each other.
    buffered = loader.buffered_batches()
    sharpness = _SHARPNESS[buffered is None or buffered - (count or 0) > 1]
    slowest = math.pow(sum(math.pow(rate, -sharpness) for rate in joined), -1 / sharpness)
    if config.device_prefetch == 0:  # the step waits for its batch to arrive
        slowest = 1 / (1 / slowest + transfer_seconds(config, ceiling))
    return slowest


def model_rate(config: PipelineConfig, ceiling: Ceiling) -> float:
    """Return images/s of the model alone, scaled linearly to the configuration's devices."""
    return ceiling.model_images_per_second.value / ceiling.devices * config.devices


def transfer_seconds(config: PipelineConfig, ceiling: Ceiling) -> float:
    """Return seconds to send an image to the device, in proportion to its bytes."""
    took = ceiling.transfer_seconds_per_image or 0.0
    if config.loader.keeps_on_device or config.finish == ceiling.finish:
        return 0.0 if config.loader.keeps_on_device else took
    return took / max(1, ceiling.sent_bytes(ceiling.finish)) * ceiling.sent_bytes(config.finish)


def _loader_core_seconds(config: PipelineConfig, costs: Ceiling, does: Work) -> float:
    if config.loader.keeps_on_device:
        return 0.0
    spared = depth(config, costs) > 0 and does.cached < 1
    copied = (does.cached + (1 - does.cached) * spared) * costs.sent_bytes("device")
    busy = does.core_seconds + copied * COPY_SECONDS
    return busy * config.loader.work_factor + does.sent_bytes * COPY_SECONDS
