"""What a configuration takes in memory and on disk, by what is known of the samples. Time is not counted here."""

from __future__ import annotations

from autopipe.core import job
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.facts import Facts


def memory_bytes(config: PipelineConfig, facts: Facts) -> int:
    """Return what the cache and what waits ahead of the model take, as far as it is known."""
    return (cache_bytes(config, facts) or 0) + (queue_bytes(config, facts) or 0)


def cache_bytes(config: PipelineConfig, facts: Facts) -> int | None:
    """Return what the configuration's cache takes once it is full; None if that is not known."""
    if config.cache == "none" or facts.prefix_bytes is None:
        return 0 if config.cache == "none" else None
    return int(facts.prefix_bytes * config.cache_fraction)


def kept_bytes(config: PipelineConfig, facts: Facts) -> int | None:
    """Return what the configuration's converted samples take on disk; None if that is not known."""
    sizes = facts.cuts.get(config.storage, {})
    if not sizes:
        return facts.prefix_bytes if STORAGES[config.storage].holds_arrays else None
    return sizes.get(max(sizes) if config.cut == "deepest" else config.cut)


def queue_bytes(config: PipelineConfig, facts: Facts) -> int | None:
    """Return what waits ahead of the model takes at most: batches, and samples read ahead; None if that is not known.

    Small batches count as made and held several at a time, as a worker does whose source and ops allow it.
    """
    sample_bytes = facts.finished_bytes if config.finish == "host" else facts.compact_bytes
    buffered = config.loader.buffered_batches()
    if sample_bytes is None or buffered is None:
        return None
    batch_bytes, together = facts.batch_size * sample_bytes, 1
    queue = getattr(config.loader, "queue_size", None)
    if queue is not None:
        waiting = config.model_setup.queue_size(queue)
        together = config.loader.batches_at_a_time(job.at_a_time(batch_bytes, waiting, config.model_setup))
        buffered = waiting // together * together + (buffered - queue) * together
    ahead = config.loader.samples_ahead(facts.batch_size)
    return (buffered + together) * batch_bytes + int(ahead * (facts.source_bytes or 0))
