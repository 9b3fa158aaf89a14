"""The tuned pipeline for scripts that call Keras's `fit` themselves, without the trainer."""

from __future__ import annotations

from typing import Any

from autopipe import assembly
from autopipe.core.config import PipelineConfig
from autopipe.core.sample import Source
from autopipe.core.workload import Workload


def dataset(
    workload: Workload, config: PipelineConfig, data: Source | None, *, shard: tuple[int, int], initial_epoch: int
) -> Any:
    """Return what `autopipe.tuned.factory.Tuned.make_dataset` does."""
    from autopipe.devices import fit_dataset

    config = config.model_copy(update={"finish": "host", "channels": fit_dataset.channels()})
    if data is None:
        loader = assembly.build_loader(workload, config, shard=shard)
    else:
        loader = assembly.evaluation_loader(workload, config, data)
    return fit_dataset.dataset(loader, initial_epoch)
