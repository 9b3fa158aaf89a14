"""Where a tuned pipeline finds its converted samples: beside its artefact, or where its workload looks itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from autopipe import assembly
from autopipe.core.config import STORAGES, PipelineConfig
from autopipe.core.workload import Workload
from autopipe.errors import StorageError
from autopipe.ops.planner import make_plan
from autopipe.storage import stored
from autopipe.storage.form import Storage
from autopipe.storage.place import place


def looked_up(workload: Workload, config: PipelineConfig, folder: Path | None) -> Workload:
    """Return the workload as it finds what `config` reads: in `converted` of an artefact's folder, or in its own.

    The artefact's goes first. It is taken, too, where there is neither, if it has any set: an error then says of it why
    that does not fit.
    """
    storage: Storage = STORAGES[config.storage]
    beside = None if folder is None else folder / "converted"
    if beside is None or not storage.converts or not beside.is_dir():
        return workload
    conversion = assembly.conversion_of(workload, make_plan(workload), storage, config.cut)
    try:
        stored.find(beside, conversion, storage)
    except StorageError:
        if place(workload.converted).exists():
            return workload
    return dataclasses.replace(workload, converted=str(beside))
