"""Workload and configuration of validation and prediction: those of training, without chance.

Their loader is made by `autopipe.pipeline.assembly.evaluation_loader`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from autopipe.errors import DataError, WorkloadError
from autopipe.pipeline.config import PipelineConfig
from autopipe.workload.sample import Source
from autopipe.workload.workload import Workload


def workload_over(workload: Workload, data: Source) -> Workload:
    """Return the workload over other data, in order: random ops are left out, or replaced.

    Data that do not fill a batch are one smaller batch. Raise WorkloadError if there are no samples.
    """
    instead = (op.without_chance() for op in workload.ops)
    return dataclasses.replace(
        workload,
        data=data,
        ops=tuple(op for op in instead if op is not None),
        batch_size=min(workload.batch_size, max(1, len(data))),
        shuffle=False,
        drop_remainder=False,
    )


def config_over(config: PipelineConfig, passes: int | None) -> PipelineConfig:
    """Return the configuration for other samples: from their files, and without a cache if they are read once.

    Args:
        config: of the training.
        passes: how often the samples will be read, if known.
    """
    return config.model_copy(update={"storage": "files", **({"cache": "none"} if passes == 1 else {})})


@contextlib.contextmanager
def naming_what_is_left_out(workload: Workload) -> Iterator[None]:
    """Name the left-out ops in an error about the samples' size, which one of them may set in training."""
    try:
        yield
    except WorkloadError as error:
        names = ", ".join(f"`{op.name}`" for op in workload.ops if op.without_chance() is None)
        if not names or isinstance(error, DataError):
            raise
        raise type(error)(
            f"{error.message} Validation and prediction leave out what is random: {names}.",
            hint="If one of them sets the size, let its `without_chance` return an op that sets it, too; "
            "or pass a loader of these samples, made by ap.build_loader, in their place.",
        ) from error
