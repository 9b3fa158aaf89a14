"""Whether memory has room for a cache of other samples than those that are trained on.

A search leaves out a cache of the training's samples that is too large. Nobody has looked at those of validation then,
which come beside them.
"""

from __future__ import annotations

import warnings

from autopipe.batching.cache import MemoryCache
from autopipe.core import evaluation, footprint
from autopipe.core.config import PipelineConfig
from autopipe.core.plan import Plan
from autopipe.core.sample import Source
from autopipe.core.workload import Workload
from autopipe.hardware import memory
from autopipe.hardware.memory import size_text
from autopipe.ops.planner import make_plan


class CacheWarning(UserWarning):
    """Samples are read each time, because there is no room to keep them in memory."""


def for_evaluation(
    workload: Workload, config: PipelineConfig, data: Source, passes: int | None
) -> tuple[Workload, PipelineConfig, Plan | None]:
    """Return what reads other data for validation or prediction, without a cache where there is no room for one.

    What the caches of this process have yet to take counts as taken.

    Args:
        workload: of the training.
        config: of the training.
        data: the other samples.
        passes: how often they will be read, if that is known.

    Returns:
        The workload over these data, how it is fed, and its plan if that was made.

    Raises:
        WorkloadError: there are no samples, or not of one size.
        DataError: samples cannot be read.
    """
    over, config = evaluation.workload_over(workload, data), evaluation.config_over(config, passes)
    if config.cache == "none" or config.loader.works_elsewhere:  # there, the loader looks for room itself
        return over, config, None
    plan = make_plan(over)
    needed = MemoryCache.bytes_of(plan.cut(len(plan.prefix)), len(data), config.cache_fraction)
    free = max(0, memory.detect().available_bytes - MemoryCache.unfilled_bytes())
    if needed > footprint.CACHE_SHARE * free:
        config = config.model_copy(update={"cache": "none"})
        warnings.warn(
            f"The {len(data)} samples for validation or prediction are read anew each time: a cache of them takes "
            f"{size_text(needed)}, but {size_text(free)} are free beside what other caches will take, of which it may "
            f"have {footprint.CACHE_SHARE:.0%}. Smaller images, or a smaller cache_fraction, leave more room.",
            CacheWarning,
            stacklevel=4,
        )
    return over, config, plan
