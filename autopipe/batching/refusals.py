"""What a configuration cannot feed, and several processes cannot share."""

from __future__ import annotations

from autopipe.batching.wrapped_data import WrappedData
from autopipe.core.config import PipelineConfig
from autopipe.core.workload import Workload
from autopipe.errors import ConfigError


def require_feedable(workload: Workload, config: PipelineConfig, rank: tuple[int, int]) -> None:
    """Refuse a workload that a configuration cannot feed, or that this process, `(i, n)` of n, cannot feed its part of.

    Raises:
        ConfigError: why.
    """
    if isinstance(workload.data, WrappedData) and config.loader.kind != "wrapped":
        raise ConfigError(
            f"A wrapped dataset makes its own batches: `{config.loader.kind}` cannot feed it.",
            hint="Use the `wrapped` loader with the parameters of its function.",
        )
    if isinstance(workload.data, WrappedData) and rank != (0, 1):
        raise ConfigError(
            f"A wrapped dataset makes its own batches: {rank[1]} processes cannot share them.",
            hint="Make a workload of the files, with ap.ImageFolder say.",
        )
    mixing = next((type(op).__name__ for op in workload.ops if op.mixes), None)
    if rank[1] > 1 and mixing is not None:
        raise ConfigError(
            f"`{mixing}` mixes the samples of a whole batch, of which each of {rank[1]} processes makes a part only.",
            hint="Leave it out, or mix inside the model.",
        )
