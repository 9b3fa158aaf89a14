"""Verifies that every loader of a search space gives the same batches, and that every sample of a workload can be read.

Reading samples imports the workload in this process; its model is not built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from autopipe.artifact.converting import imported
from autopipe.errors import ConfigError
from autopipe.hardware import machine
from autopipe.measure.facts import Limits, WrappedDataset
from autopipe.measure.outcome import Verification
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.storage.stored import FileVerification, inspect
from autopipe.pipeline.wrap import WrappedData
from autopipe.search import library
from autopipe.search.feasible import trim
from autopipe.search.searching import bounds, description, facts_of
from autopipe.search.trial_measurer import succeeded
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload


def verify(runner: TrialRunner, *, space: str, samples: int) -> Verification:
    """Compare the batches of one configuration of each kind in a search space, a name or a file.

    A wrapped dataset makes its own batches in its own order, so they are not compared with a reference. Repeated
    samples of an epoch are counted, and two epochs are compared, for each value of each parameter. Raises WorkloadError
    if the workload cannot be imported or run.
    """
    described = description(runner)
    if described.wrapped is not None:
        configs = _of_a_wrapped_dataset(described.wrapped)
    else:
        facts = facts_of(machine.detect(), described, Path.cwd())
        facts = dataclasses.replace(facts, limits=Limits(convert=False))
        candidates = trim(library.load(space, bounds(facts)), facts).candidates
        configs = _one_of_each_kind([each.config for each in candidates])
    return succeeded(runner.verify(configs, {"samples": samples}))


def _of_a_wrapped_dataset(wrapped: WrappedDataset) -> list[PipelineConfig]:
    """Return the unchanged configuration, and those with one parameter changed."""
    as_it_is = wrapped.as_it_is
    loader = as_it_is.loader.model_dump()
    changed = [loader | {name: value} for name, values in wrapped.choices.items() for value in values]
    loaders = [type(as_it_is.loader).model_validate(each) for each in changed if each != loader]
    return [as_it_is, *[as_it_is.model_copy(update={"loader": each}) for each in loaders]]


def _one_of_each_kind(configs: list[PipelineConfig]) -> list[PipelineConfig]:
    kinds: dict[tuple[str, ...], PipelineConfig] = {}
    for config in configs:
        kind = (config.loader.kind, config.cache, config.storage, config.finish, config.channels)
        known = kinds.get(kind)
        if config.devices == 1 and (
            known is None or (config.loader.worker_count() or 0) > (known.loader.worker_count() or 0)
        ):
            kinds[kind] = config
    return list(kinds.values())


# -------------------- inspecting


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
    return inspect(conversion, workers=workers or machine.usable_cores(), on_progress=on_progress)
