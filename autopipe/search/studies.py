"""All studies of a storage: what each found, and the removal of old ones."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence

import optuna

from autopipe.core.config import PipelineConfig
from autopipe.search.record import Record
from autopipe.search.storage import STORAGE_ERRORS, open_storage, settle, unusable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A study in a storage.

    Attributes:
        name: its name.
        workload: the digest of its workload.
        hardware: its machine, as JSON; empty where nobody noted it.
        trials: how many were finished.
        best: the fastest that was measured, and how fast it was, in images/s; None where none was.
        last_at: when its last trial ended or began; None where it has none.
    """

    name: str
    workload: str
    hardware: str
    trials: int
    best: tuple[PipelineConfig, float] | None
    last_at: datetime.datetime | None


def every(storage_url: str) -> list[Kept]:
    """Return the studies of autopipe in a storage, by name.

    Raises:
        TrialError: the storage cannot be used.
    """
    storage = open_storage(storage_url)
    try:
        found = [
            _kept(optuna.load_study(study_name=name, storage=storage)) for name in optuna.get_all_study_names(storage)
        ]
    except STORAGE_ERRORS as error:
        raise unusable(storage_url, error) from error
    settle(storage)
    return sorted((each for each in found if each is not None), key=lambda each: each.name)


def remove(storage_url: str, names: Sequence[str]) -> None:
    """Delete studies of a storage.

    Raises:
        TrialError: the storage cannot be used.
    """
    storage = open_storage(storage_url)
    try:
        for name in names:
            optuna.delete_study(study_name=name, storage=storage)
    except STORAGE_ERRORS as error:
        raise unusable(storage_url, error) from error
    settle(storage)


def _kept(study: optuna.Study) -> Kept | None:
    digests = study.user_attrs.get("digests")
    if not isinstance(digests, dict) or "workload" not in digests:
        return None  # somebody else's
    rows = [row for row in Record(study).rows() if row.value is not None and row.feasible]
    rows = [row for row in rows if not row.config.loader.is_foreign]
    best = max(rows, key=lambda row: row.value or 0.0, default=None)
    times = [each.datetime_complete or each.datetime_start for each in study.get_trials(deepcopy=False)]
    last = max((each for each in times if each is not None), default=None)
    return Kept(
        name=study.study_name,
        workload=str(digests["workload"]),
        hardware=str(digests.get("hardware", "")),
        trials=sum(each.state.is_finished() for each in study.get_trials(deepcopy=False)),
        best=None if best is None else (best.config, best.value or 0.0),
        last_at=None if last is None else last.astimezone(),
    )
