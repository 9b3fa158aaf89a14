"""Memory and disk space of a configuration, by the known properties of the samples. Time is not counted here."""

from __future__ import annotations

from autopipe.measure.facts import Description
from autopipe.pipeline import loader
from autopipe.pipeline.config import CACHE_SHARE as CACHE_SHARE
from autopipe.pipeline.config import STORAGES, PipelineConfig


def memory_bytes(config: PipelineConfig, workload: Description) -> int:
    """Return the bytes of the cache and of the queues ahead of the model, as far as they are known."""
    return (cache_bytes(config, workload) or 0) + _queue_bytes(config, workload)


def cache_bytes(config: PipelineConfig, workload: Description) -> int | None:
    """Return the bytes of the configuration's full cache; None if not known."""
    if config.cache == "none":
        return 0
    return None if workload.fixed_bytes is None else int(workload.fixed_bytes * config.cache_fraction)


def kept_bytes(config: PipelineConfig, workload: Description) -> int | None:
    """Return the bytes of the configuration's converted samples on disk; None if not known."""
    sizes = workload.cuts.get(config.storage, {})
    if not sizes:
        return workload.fixed_bytes if STORAGES[config.storage].holds_arrays else None
    return sizes.get(max(sizes) if config.cut == "deepest" else config.cut)


def _queue_bytes(config: PipelineConfig, workload: Description) -> int:
    """Return the most bytes of batches and read-ahead samples in queues; 0 if not known.

    If the source and the ops allow it, workers make and hold several small batches at a time, which all count.
    """
    buffered = config.loader.held_batches()
    if buffered is None:
        return 0
    sample_bytes = workload.finished_bytes if config.finish == "host" else workload.compact_bytes
    batch_bytes, together = workload.batch_size * sample_bytes, 1
    queue = getattr(config.loader, "queue_size", None)
    if queue is not None:
        waiting = config.model_setup.queue_size(queue)
        together = config.loader.batches_at_a_time(loader.at_a_time(batch_bytes, waiting, config.model_setup))
        buffered = waiting // together * together + (buffered - queue) * together
    ahead = config.loader.samples_ahead(workload.batch_size)
    return (buffered + together) * batch_bytes + int(ahead * workload.mean_bytes)
