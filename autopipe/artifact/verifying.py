"""Verifies that every loader of a search space gives the same batches, and that every sample of a workload can be read.

Reading samples imports the workload in this process; its model is not built.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import pydantic

from autopipe.artifact.converting import imported
from autopipe.errors import AutopipeError, BadSampleError, ConfigError, DataError, DataWarning
from autopipe.hardware import machine, processes
from autopipe.measure.facts import Description, Limits, WrappedDataset
from autopipe.measure.outcome import Verification
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.measure.trial.workload_import import WorkloadName
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads
from autopipe.pipeline.storage.form import Conversion
from autopipe.search import space as spaces
from autopipe.search.space import of_wrapped
from autopipe.values import Value
from autopipe.workload.data.paths import cache_folder
from autopipe.workload.digests import digest
from autopipe.workload.ops.planner import make_plan, sample_name
from autopipe.workload.workload import Workload


def verify(runner: TrialRunner, *, space: str, samples: int | None) -> Verification:
    """Compare the batches of one configuration of each kind in a search space; of a wrapped dataset, whose batches have
    an order of their own, look for repeated samples, epochs and random numbers. Without `samples`, 256 are compared, of
    a wrapped dataset all that come in 10 s. Raises WorkloadError if the workload cannot be imported or run.
    """
    from autopipe.search import searching  # imports Optuna, which looking at files does not need
    from autopipe.search.feasible import candidates
    from autopipe.search.measurer import succeeded

    described = searching.description(runner)
    facts = searching.facts_of(machine.detect(), described, Path.cwd())
    most = max(4, facts.cores) if described.wrapped is None else 2  # workers, each with a dataset of the user's
    facts = dataclasses.replace(facts, limits=Limits(convert=False, workers=most))
    if (wrapped := described.wrapped) is None:
        found = candidates(spaces.load(space, searching.bounds(facts)), facts)
        configs = _one_of_each_kind(list(found.values()))
    else:
        kinds = [kind for kind in wrap.kinds_of_workers() if described.against("loader", kind) is None]
        ours = of_wrapped({}, searching.bounds(facts)).only("loader", kinds) if wrapped.with_workers and kinds else None
        found = {} if ours is None else candidates(ours, facts)
        configs = [*_of_a_wrapped_dataset(described, wrapped), *_one_of_each_kind(list(found.values()))]
    return succeeded(runner.verify(configs, {"samples": samples, "random": True}))


def _of_a_wrapped_dataset(described: Description, wrapped: WrappedDataset) -> list[PipelineConfig]:
    as_it_is = wrapped.as_it_is
    loader, kind, around = as_it_is.loader.model_dump(), as_it_is.loader.kind, type(as_it_is.loader).model_fields
    names = [name for name in wrapped.choices if name not in around]
    pairs = ((name, value) for name in names for value in wrapped.choices[name])
    changed = [loader | {name: value} for name, value in pairs if described.against(f"{kind}.{name}", value) is None]
    if described.against("loader", Threads(workers=1).kind) is not None:
        changed = [each for each in changed if each.get("use_multiprocessing") or each.get("workers", 0) <= 1]
    loaders = [type(as_it_is.loader).model_validate(each) for each in changed if each != loader]
    return [as_it_is, *[as_it_is.model_copy(update={"loader": each}) for each in loaders]]


def _one_of_each_kind(configs: list[PipelineConfig]) -> list[PipelineConfig]:
    kinds: dict[tuple[str, ...], PipelineConfig] = {}
    for config in configs:
        kind = (config.loader.kind, config.keep, config.finish, config.channels)
        known = kinds.get(kind)
        if config.devices == 1 and (
            known is None or (config.loader.worker_count() or 0) > (known.loader.worker_count() or 0)
        ):
            kinds[kind] = config
    return list(kinds.values())


# -------------------- inspection: every sample is read, and taken through the deterministic ops, as by a loader

_GROUP: Final = 64  # samples that each worker of a killed inspection repeats
_log = logging.getLogger(__name__)


class BadFile(Value):
    """A sample that would stop a training."""

    index: int = pydantic.Field(ge=0)  # those of a workload's validation follow
    name: str  # the path of its file, or another name for people
    reason: str  # its fault


class FileVerification(Value):
    """The result of an inspection of a workload's samples."""

    status: Literal["inspected"] = "inspected"
    schema_version: Literal[1] = 1
    samples: int = pydantic.Field(ge=0)  # how many there are, those of the validation too
    resumed: int = pydantic.Field(default=0, ge=0)  # that an earlier look, which was stopped, had found good
    bad: tuple[BadFile, ...]  # those that cannot be used, in order
    lost: dict[str, int] = pydantic.Field(default_factory=dict)  # of how many images what gets lost, in this run


def verify_files(
    workload: Workload | WorkloadName | str,
    *,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> FileVerification:
    """Read and decode every sample, those of the validation too, and apply the ops that are the same in every epoch.

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
        DataError: samples cannot be read for another reason: too many open files, or a lost connection.

    Examples:
        >>> for bad in ap.verify_files(workload).bad:    # doctest: +SKIP
        ...     print(bad.name, bad.reason)
    """
    workload = imported(workload)
    if isinstance(workload.data, wrap.WrappedData):
        raise ConfigError(
            "A wrapped dataset reads its own files, so autopipe cannot look at them.",
            hint="Make a workload of the files, with ap.ImageFolder say, and verify that.",
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\d+ of \d+ images that were looked at", DataWarning)  # all will be
        # A bad one among the probes is not the end.
        plan = make_plan(dataclasses.replace(workload, on_bad_sample="skip"))
    conversion = Conversion.of(workload, plan, len(plan.prefix))
    name = digest("1", len(conversion), conversion.source_digest, conversion.ops_digest)
    journal = cache_folder().parent / "files" / f"{name}.txt"
    found = inspect(conversion, journal, workers=workers or machine.usable_cores(), on_progress=on_progress)
    if workload.validation is None:
        return found
    over = assembly.for_evaluation(workload, workload.validation)
    more = verify_files(over, workers=workers, on_progress=on_progress)
    return FileVerification(
        samples=found.samples + more.samples,
        resumed=found.resumed + more.resumed,
        bad=(*found.bad, *(each.model_copy(update={"index": found.samples + each.index}) for each in more.bad)),
        lost=dict(Counter(found.lost) + Counter(more.lost)),
    )


@processes.library_threads()
def inspect(
    conversion: Conversion, journal: Path, *, workers: int, on_progress: Callable[[int, int], None] | None = None
) -> FileVerification:
    """Inspect every sample; see `verify_files`. The `journal` keeps the progress; bad samples are inspected again."""
    processes.keep_freed_memory()
    count = len(conversion)
    done = _kept(journal)
    groups = [range(first, min(first + _GROUP, count)) for first in range(0, count, _GROUP) if first not in done]
    looked = resumed = count - sum(map(len, groups))
    bad, lost = list[BadFile](), Counter[str]()
    pool = concurrent.futures.ThreadPoolExecutor(workers, "autopipe-look")
    with _noting(journal) as note:
        try:
            futures = {pool.submit(_look, conversion, group): group for group in groups}
            for future, group in futures.items():  # in order: what was good before a failure is noted
                found, told = future.result()
                bad += found
                lost += told
                if not found:
                    note(group.start)
                looked += len(group)
                if on_progress is not None:
                    on_progress(looked, count)
        finally:  # after Ctrl-C: running reads end, waiting ones never begin
            pool.shutdown(cancel_futures=True)
    with contextlib.suppress(OSError):
        journal.unlink()
    in_order = tuple(sorted(bad, key=lambda each: each.index))
    return FileVerification(samples=count, resumed=resumed, bad=in_order, lost=dict(lost))


def _look(conversion: Conversion, group: range) -> tuple[list[BadFile], Counter[str]]:
    bad, lost = list[BadFile](), Counter[str]()
    for index in group:
        try:
            conversion.sample(index, lost)
        except AutopipeError as error:
            if isinstance(error, DataError) and not isinstance(error, BadSampleError):
                raise
            cause = error.__cause__  # without the sample's name, which `name` has
            reason = cause.message if isinstance(cause, AutopipeError) else error.message
            bad.append(BadFile(index=index, name=sample_name(conversion.source, index), reason=reason))
    return bad, lost


def _kept(journal: Path) -> set[int]:
    text = machine.text_of(journal)  # empty if there is none
    return {int(first) for first in re.findall(r"^([0-9]{1,18});$", text, re.MULTILINE)}


@contextlib.contextmanager
def _noting(journal: Path) -> Iterator[Callable[[int], None]]:
    """Give a function that notes a good group. If the journal cannot be written, this inspection cannot be resumed."""
    with contextlib.ExitStack() as opened:
        try:
            journal.parent.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context(journal.open("ab", buffering=0))
            file.write(b"\n")  # after half a line of a run that was killed
        except OSError as error:
            _log.warning("The progress of the inspection cannot be kept in %s: %s", journal, error.strerror)
            yield lambda first: None
            return

        def note(first: int) -> None:
            with contextlib.suppress(OSError):  # the disk is full: the look itself goes on
                file.write(b"%d;\n" % first)

        yield note
