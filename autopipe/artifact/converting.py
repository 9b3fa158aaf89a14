"""Writes the samples of a workload once, in a form that is faster to read, and finds them. `autopipe convert` calls it.

Converting reads and decodes, so the workload is imported here; its model is not built.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from autopipe.errors import ConfigError, StorageError, WorkloadError, near, shortened
from autopipe.hardware import machine
from autopipe.measure.facts import Description
from autopipe.measure.trial import workload_import
from autopipe.pipeline import assembly
from autopipe.pipeline.config import STORAGES, PipelineConfig
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import Converted, Progress, convert, estimate_bytes
from autopipe.pipeline.storage.convert import finish as finish
from autopipe.pipeline.storage.form import Conversion, Folder, Storage
from autopipe.workload.data import source as data_source
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

_REMOTE_WORKERS = 32  # threads that mostly wait

Writer: TypeAlias = Callable[..., Converted]
"""Writes a set elsewhere: `writer(conversion, storage, folder, parts=None, on_progress=None)`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A conversion: the samples and the folder."""

    conversion: Conversion  # the samples and the ops that are done to them
    storage: Storage
    folder: Folder  # of the set
    sizes: Mapping[int, float]  # the bytes that the whole set takes, by the number of ops that are done before

    def run(
        self,
        *,
        workers: int | None = None,
        part: tuple[int, int] = (0, 1),
        by: Writer | None = None,
        on_progress: Progress | None = None,
    ) -> Converted:
        """Write the set, or the i-th of n parts of it; see `storage.convert.convert` for the errors. `workers` are
        threads, one on each core by default, or tasks of the writer `by`, which writes all parts elsewhere.
        """
        if by is not None:
            return by(self.conversion, self.storage, self.folder, parts=workers, on_progress=on_progress)
        if not workers:
            waits = data_source.remote(self.conversion.source) is not None or self.folder.remote is not None
            workers = max(machine.usable_cores(), _REMOTE_WORKERS if waits else 1)
        return convert(self.conversion, self.storage, self.folder, workers=workers, part=part, on_progress=on_progress)

    def verify(self) -> int:
        """Check the set's files, compare some samples with the source, and return their number; see `layout.verify`."""
        return layout.verify(layout.open_set(self.folder, self.conversion, self.storage), self.conversion)


def job(
    workload: Workload | workload_import.WorkloadName | str,
    to: str | None = None,
    folder: Path | str | None = None,
    *,
    cut: int | Literal["deepest"] = "deepest",
) -> Job:
    """Make the conversion of a workload to a storage form, by default one that holds the results of any op, in a
    folder (a path or URL), by default one in which the workload's loaders look for it. `cut` deterministic first ops
    are done before, or as many as the form can hold. Raise WorkloadError if the workload cannot be imported or read,
    and ConfigError for a form that does not exist, or cannot hold these samples, or not after this many ops.
    """
    to = next(name for name in STORAGES if STORAGES[name].holds_arrays) if to is None else to
    if to not in STORAGES:
        said = f"`to` must be a form that is written, one of {', '.join(STORAGES)}, but got {to!r}."
        raise ConfigError(f"{said}{near(to, STORAGES)}")
    storage, workload = STORAGES[to], imported(workload)
    workload, plan = assembly.in_pieces(workload, make_plan(workload))
    conversion = assembly.conversion_of(workload, plan, storage, cut)
    sizes = {depth: estimate_bytes(Conversion.of(workload, plan, depth), storage) for depth in storage.cuts(plan)}
    where = Folder.of(workload.converted) / assembly.set_name(to, cut) if folder is None else folder
    return Job(conversion=conversion, storage=storage, folder=storage.at(where), sizes=sizes)


def imported(named: Workload | workload_import.WorkloadName | str) -> Workload:
    """Return a workload, or import it by its name; modules of the working directory count, as for `python -m`."""
    if isinstance(named, Workload):
        return named
    if not isinstance(named, str | workload_import.WorkloadName):
        raise WorkloadError(f"`workload` must be an ap.Workload or its name, but got {shortened(named)}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return workload_import.load_workload(named)


_BESIDE = "converted"  # in an artifact's folder


def looked_up(workload: Workload, config: PipelineConfig, folder: Path | None) -> Workload:
    """Return the workload with its converted samples: beside the artifact, unless only its own folder has them."""
    beside = None if folder is None else folder / _BESIDE
    if beside is None or not config.kept.converts or not beside.is_dir():
        return workload
    storage = STORAGES[config.kept.form]
    conversion = assembly.conversion_of(workload, make_plan(workload), storage, config.kept.cut)
    try:
        layout.find(beside, conversion, storage)
    except StorageError:
        if Folder.of(workload.converted).sizes():
            return workload
    return dataclasses.replace(workload, converted=str(beside))


def is_beside(folder: Path, described: Description, config: PipelineConfig) -> bool:
    """Return True if the set that `config` reads lies beside an artifact, complete, of this data and these ops."""
    form, cut = config.kept.form, config.kept.cut
    cut = 0 if described.pieces else cut if isinstance(cut, int) else described.depths.get(form, 0)
    whole = described.pieces or (described.samples, described.data_digest)
    wanted = (form, *whole, *described.first_ops[cut : cut + 1])
    for each in layout.with_subfolders(Folder.of(folder / _BESIDE)):
        with contextlib.suppress(StorageError):
            found = layout.whole_record(each)
            if (found.storage, found.samples, found.source_digest, found.ops_digest) == wanted:
                return True
    return False
