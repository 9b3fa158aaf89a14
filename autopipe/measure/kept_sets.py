"""The place of converted samples: beside the artefact of a pipeline, or in the workload's own folders."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from autopipe.errors import StorageError
from autopipe.measure.facts import Description
from autopipe.pipeline import assembly
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.form import Storage
from autopipe.pipeline.storage.shard import place, subfolders
from autopipe.workload import digests
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

_BESIDE = "converted"  # in an artefact's folder


def looked_up(workload: Workload, config: PipelineConfig, folder: Path | None) -> Workload:
    """Return the workload with the folder of its converted samples: `converted` beside the artefact, or its own.

    The artefact's is used first; also if neither has the right set but the artefact has any, so that the error is about
    that one.
    """
    storage: Storage = STORAGES[config.storage]
    beside = None if folder is None else folder / _BESIDE
    if beside is None or not storage.converts or not beside.is_dir():
        return workload
    conversion = assembly.conversion_of(workload, make_plan(workload), storage, config.cut)
    try:
        layout.find(beside, conversion, storage)
    except StorageError:
        if place(workload.converted).exists():
            return workload
    return dataclasses.replace(workload, converted=str(beside))


def is_beside(folder: Path, described: Description, config: PipelineConfig) -> bool:
    """Return True if the set that `config` reads lies beside an artefact, complete, of this data and these ops.

    The check uses the description of a workload, which need not be imported.
    """
    cut = described.depths.get(config.storage, 0) if config.cut == "deepest" else config.cut
    wanted = (config.storage, described.samples, described.data_digest, *described.first_ops[cut : cut + 1])
    for each in subfolders(folder / _BESIDE):
        with contextlib.suppress(StorageError):
            found = layout.whole_manifest(each).header
            its = (found.storage, found.samples, found.source_digest, _told(found.ops_digest, found.looked_up))
            if its == wanted:
                return True
    return False


def first_ops(plan: Plan) -> tuple[str, ...]:
    """Return digests of the deterministic first ops of a plan: of none, the first, the first two and so on."""
    ops = [step.op for step in plan.prefix]
    return tuple(_told(digests.ops_digest(ops[:cut]), digests.looked_up(ops[:cut])) for cut in range(len(ops) + 1))


def _told(ops: str, looked_up: Mapping[str, str]) -> str:
    return digests.digest(ops, sorted(looked_up.items()))
