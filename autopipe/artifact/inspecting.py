"""Reads every sample of a workload before it is trained. `autopipe verify --files` calls it.

Samples are read and decoded here, so the workload is imported; its model is not built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from autopipe.artifact.converting import imported
from autopipe.errors import ConfigError
from autopipe.hardware import cpu
from autopipe.pipeline.batching.wrapped_data import WrappedData
from autopipe.pipeline.storage.conversion import Conversion
from autopipe.pipeline.storage.inspection import FileVerification, inspect
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload


def verify_files(
    workload: Workload | str,
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> FileVerification:
    """Read and decode every sample, and apply the ops that give the same result in every epoch.

    A run that was stopped continues at its next call, if data and ops are still the same.

    Args:
        workload: a workload, or "train.py:workload".
        workers: threads; None for one on each core.
        on_progress: is called with the number of samples done and the total.

    Returns:
        The bad samples, each with its file and the reason.

    Raises:
        WorkloadError: the workload cannot be imported, or not one sample can be read.
        ConfigError: the data are a wrapped dataset.

    Example:
        >>> for bad in ap.verify_files(workload).bad:    # doctest: +SKIP
        ...     print(bad.name, bad.reason)
    """
    if isinstance(workload, str):
        workload = imported(workload)
    if isinstance(workload.data, WrappedData):
        raise ConfigError(
            "A wrapped dataset reads its own files, so autopipe cannot look at them.",
            hint="Make a workload of the files, with ap.ImageFolder say, and verify that.",
        )
    plan = make_plan(dataclasses.replace(workload, on_bad_sample="skip"))  # a bad one among the probes is not the end
    conversion = Conversion.of(workload, plan, len(plan.prefix))
    return inspect(conversion, workers=workers or cpu.usable_cores(), on_progress=on_progress)
