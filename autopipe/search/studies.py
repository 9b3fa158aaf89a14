"""All studies of a storage: what each found, on other machines that share it or here before; and their removal."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import optuna
from optuna.storages import BaseStorage

from autopipe.measure.outcome import Measurement
from autopipe.pipeline.config import PipelineConfig
from autopipe.search.record import Record
from autopipe.search.row import Row
from autopipe.search.storage import STORAGE_ERRORS, open_storage, settle, unusable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A study in a storage."""

    name: str
    workload: str  # the digest of its workload
    data: str  # the digest of its data; empty where nobody noted it
    hardware: str  # its machine, as JSON; empty where nobody noted it
    trials: int  # how many were finished
    best: tuple[PipelineConfig, float] | None  # the fastest that was measured, and its images/s; None where none was
    last_at: datetime.datetime | None  # when its last trial ended or began; None where it has none
    began_at: datetime.datetime | None  # when it was opened first; None if that was not noted


def every(storage_url: str, workload: str | None = None) -> list[Kept]:
    """Return the studies of autopipe in a storage, the oldest first; of one workload, if its digest is given.

    Raises:
        TrialError: the storage cannot be used.
    """
    with _opened(storage_url) as storage:
        studies = [optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)]
        found = [_kept(study, workload) for study in studies]
    return [each for each in found if each is not None]


def best_elsewhere(storage_url: str | None, workload: str) -> list[PipelineConfig]:
    """Return the best configuration of every study of a workload, on whichever machine; the latest study's first.

    Studies are opened with the digest of their `workload`; a storage in memory, None, holds nothing.

    Raises:
        TrialError: the storage cannot be used.
    """
    found = [] if storage_url is None else every(storage_url, workload)
    best = [each.best[0] for each in reversed(found) if each.best is not None]
    return list({config.key(): config for config in best}.values())


def attributes(storage_url: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of the studies whose name begins so, by name.

    Raises:
        TrialError: the storage cannot be used.
    """
    with _opened(storage_url) as storage:
        names = [name for name in optuna.get_all_study_names(storage) if name.startswith(prefix)]
        return {name: optuna.load_study(study_name=name, storage=storage).user_attrs for name in names}


@contextlib.contextmanager
def opened(storage_url: str, name: str) -> Iterator[optuna.Study]:
    """Open a study while the block runs.

    Raises:
        TrialError: the storage cannot be used.
    """
    with _opened(storage_url) as storage:
        yield optuna.load_study(study_name=name, storage=storage)


def remove(storage_url: str, names: Sequence[str]) -> None:
    """Delete studies of a storage.

    Raises:
        TrialError: the storage cannot be used.
    """
    with _opened(storage_url) as storage:
        for name in names:
            optuna.delete_study(study_name=name, storage=storage)


@contextlib.contextmanager
def _opened(storage_url: str) -> Iterator[BaseStorage]:
    """Open a storage while the block runs; what fails in it raises a TrialError."""
    storage = open_storage(storage_url)
    try:
        yield storage
    except STORAGE_ERRORS as error:
        raise unusable(storage_url, error) from error
    finally:
        settle(storage)


def _kept(study: optuna.Study, workload: str | None) -> Kept | None:
    digests, began = study.user_attrs.get("digests"), study.user_attrs.get("began")
    if not isinstance(digests, dict) or "workload" not in digests:
        return None  # not a study of autopipe
    if workload not in (None, digests["workload"]):
        return None
    rows = [row for row in Record(study).rows() if row.value is not None and row.feasible]
    rows = [row for row in rows if not row.config.loader.is_foreign]
    best = max(rows, key=lambda row: row.value or 0.0, default=None)
    times = [each.datetime_complete or each.datetime_start for each in study.get_trials(deepcopy=False)]
    last = max((each for each in times if each is not None), default=None)
    return Kept(
        name=study.study_name,
        workload=str(digests["workload"]),
        data=str(digests.get("data", "")),
        hardware=str(digests.get("hardware", "")),
        trials=sum(each.state.is_finished() for each in study.get_trials(deepcopy=False)),
        best=None if best is None else (best.config, _rate(best)),
        last_at=None if last is None else last.astimezone(),
        began_at=None if began is None else datetime.datetime.fromisoformat(began),
    )


def _rate(row: Row) -> float:
    """Return the images/s of a trial; its value is less where one-time costs were charged."""
    return row.outcome.images_per_second.value if isinstance(row.outcome, Measurement) else row.value or 0.0
