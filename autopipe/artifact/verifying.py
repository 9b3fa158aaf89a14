"""Verifies that every loader of a search space gives the same batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autopipe.hardware import machine
from autopipe.measure.facts import Limits, WrappedDataset
from autopipe.measure.outcome import Verification
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.search import library
from autopipe.search.feasible import trim
from autopipe.search.search_facts import facts_of
from autopipe.search.searching import bounds, description
from autopipe.search.trial_measurer import succeeded


def verify(runner: TrialRunner, *, space: str, samples: int) -> Verification:
    """Compare the batches of one configuration of each kind in a search space.

    A wrapped dataset makes its own batches in its own order, so they are not compared with a reference. Samples that
    come twice in an epoch are counted, and two epochs are compared, for each value of each parameter.

    Args:
        runner: of the workload.
        space: the name of a search space, or a file.
        samples: to compare.

    Raises:
        WorkloadError: the workload cannot be imported or run.
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
    """Return the configuration as it is, and with one parameter changed at a time."""
    as_it_is = wrapped.as_it_is
    loader = as_it_is.loader.model_dump()
    changed = [loader | {name: value} for name, values in wrapped.choices.items() for value in values]
    loaders = [type(as_it_is.loader).model_validate(each) for each in changed if each != loader]
    return [as_it_is, *[as_it_is.model_copy(update={"loader": each}) for each in loaders]]


def _one_of_each_kind(configs: list[PipelineConfig]) -> list[PipelineConfig]:
    """Return one configuration of each kind: the one with the most workers."""
    kinds: dict[tuple[str, ...], PipelineConfig] = {}
    for config in configs:
        kind = (config.loader.kind, config.cache, config.storage, config.finish, config.channels)
        known = kinds.get(kind)
        if config.devices == 1 and (
            known is None or (config.loader.worker_count() or 0) > (known.loader.worker_count() or 0)
        ):
            kinds[kind] = config
    return list(kinds.values())
