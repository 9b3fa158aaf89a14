"""A small cost model: what rate a configuration should reach, from op costs, cores and the model's own rate.

It orders candidates and serves the sampler as its first guess. It is never a result: every figure that is shown as a
rate has been measured, and predictions stand beside the measured rates so that they can be judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import ModelSetup, PipelineConfig
from autopipe.core.facts import Facts

# Seconds to move one byte, once: memory copy, and through a pipe with pickling on both ends.
_COPY = 1 / 4e9
_PIPE = 1 / 0.4e9
# The same kernels cost this much more in each loader. From runs on 2 cores (500x375 JPEG -> 224x224): threads 2,523,
# processes 2,739, tf.data 1,854, Keras threads 1,070 images/s against 2 x 1,273 for the bare kernels on one core.
_LOADER_FACTOR = {"threads": 1.0, "processes": 1.0, "tfdata": 1.35, "keras": 1.9}
_SHARPNESS = {True: 8.0, False: 3.0}  # how close to the slowest part the whole comes: with and without a queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one image costs. Seconds are core-seconds unless said otherwise.

    Attributes:
        fixed_seconds: reading, and then each of the deterministic first ops.
        depths: how many of these ops are done at most before a storage form keeps a sample.
        middle_seconds: the random ops.
        suffix_seconds: the cheap last ops, on the host.
        compact_bytes: handed over with `finish="device"`.
        finished_bytes: handed over with `finish="host"`.
        cores: usable ones.
        ceilings: the model alone, by its setup, in images/s.
        model_core_seconds: what an image costs the cores while the model trains.
    """

    fixed_seconds: tuple[float, ...]
    middle_seconds: float
    suffix_seconds: float
    compact_bytes: int
    finished_bytes: int
    cores: float
    ceilings: dict[ModelSetup, float]
    model_core_seconds: float
    depths: Mapping[str, int] = field(default_factory=dict)


def costs(ceilings: Sequence[Ceiling], facts: Facts) -> Costs | None:
    """Gather the costs, or return None where the op costs were not measured."""
    measured = next((ceiling for ceiling in ceilings if ceiling.op_costs), None)
    if measured is None:
        return None

    def total(part: str) -> float:
        return sum(op.seconds_per_image for op in measured.op_costs if op.part == part)

    return Costs(
        fixed_seconds=tuple(op.seconds_per_image for op in measured.op_costs if op.part == "fixed"),
        depths={storage: max(sizes) for storage, sizes in facts.cuts.items()},
        middle_seconds=total("fresh"),
        suffix_seconds=total("finish"),
        compact_bytes=facts.compact_bytes or 0,
        finished_bytes=facts.finished_bytes or facts.compact_bytes or 0,
        cores=measured.cores or facts.cores,
        ceilings={each.setup: each.model_images_per_second.value for each in ceilings},
        model_core_seconds=measured.model_core_seconds_per_image,
    )


def loader_core_seconds(config: PipelineConfig, costs: Costs) -> float:
    """Return what the loader's work on one image costs in its steady state."""
    cached = config.cache_fraction if config.cache != "none" else 0.0
    work = cached * costs.compact_bytes * _COPY + (1 - cached) * _prefix_seconds(config, costs)
    work += costs.middle_seconds
    sent = costs.compact_bytes
    if config.finish == "host":
        work += costs.suffix_seconds
        sent = costs.finished_bytes
    if getattr(config.loader, "use_multiprocessing", False):
        work += sent * _PIPE
    return work * _LOADER_FACTOR.get(config.loader.kind, 1.0) + sent * _COPY


def _prefix_seconds(config: PipelineConfig, costs: Costs) -> float:
    """Return what reading a sample and finishing its deterministic first ops costs."""
    if config.storage == "files":
        return sum(costs.fixed_seconds)
    depth = _depth(config, costs)
    read = costs.fixed_seconds[:1] if depth == 0 else (costs.compact_bytes * _COPY,)
    return sum((*read, *costs.fixed_seconds[1 + depth :]))


def _depth(config: PipelineConfig, costs: Costs) -> int:
    """Return how many ops are done before a sample is kept."""
    if config.cut != "deepest":
        return config.cut
    return costs.depths.get(config.storage, len(costs.fixed_seconds) if config.storage == "array" else 0)


def predict(config: PipelineConfig, costs: Costs) -> float:
    """Return the predicted steady images/s: what the slowest of model, loader and shared cores lets through."""
    work = max(loader_core_seconds(config, costs), 1e-9)
    known = costs.ceilings
    model_rate = known.get(config.model_setup) or max(known.values()) * config.devices
    workers = config.loader.worker_count()
    shared_rate = costs.cores / (work + costs.model_core_seconds)
    if config.loader.kind == "keras" and workers is not None and workers <= 1:
        return min(shared_rate, 1 / (work + 1 / model_rate))  # one after the other: no worker works ahead
    loader_rate = min(workers or costs.cores, costs.cores) / work
    # Core time and the model's time are limits that a queue reaches; without one the two wait for each other.
    buffered = config.loader.buffered_batches()
    sharpness = _SHARPNESS[buffered is None or buffered - (workers or 0) > 1]
    slowness = sum(math.pow(rate, -sharpness) for rate in (model_rate, loader_rate, shared_rate))
    slowest = math.pow(slowness, -1 / sharpness)
    if config.device_prefetch == 0:
        sent = costs.finished_bytes if config.finish == "host" else costs.compact_bytes
        slowest = 1 / (1 / slowest + sent * _COPY)
    return slowest


def one_time_seconds(config: PipelineConfig, costs: Costs, sample_count: int) -> tuple[float, float]:
    """Return the predicted seconds to convert the data set, and what filling the cache adds to the first epoch."""
    workers = min(config.loader.worker_count() or costs.cores, costs.cores)
    before = sum(costs.fixed_seconds[: 1 + _depth(config, costs)])
    convert = sample_count * before / costs.cores if config.storage != "files" else 0.0
    if config.cache == "none":
        return convert, 0.0
    return convert, sample_count * config.cache_fraction * _prefix_seconds(config, costs) / workers
