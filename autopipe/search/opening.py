"""Opening a study, or going on with it: its storage, what it has to be of, and the trials of processes that died."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, get_storage

from autopipe.errors import TrialError, shortened
from autopipe.search import storage
from autopipe.search.mirror import Mirror
from autopipe.search.record import Record
from autopipe.search.storage import Patience

SCHEMA_VERSION = 1
_MOST_SAID = 4  # of the values in which a study is of something else


def open_record(  # noqa: PLR0913  what a study is known by, and who is told of its storage
    storage_url: str | None,
    name: str,
    *,
    sampler: BaseSampler,
    digests: Mapping[str, str],
    words: Mapping[str, str] | None = None,
    fresh: bool,
    patience: Patience | None = None,
    on_lost: Callable[[str], None] = lambda reason: None,
) -> tuple[Record, int]:
    """Open a study, or go on with it.

    Args:
        storage_url: any Optuna storage; None keeps the study in memory.
        name: the study's.
        sampler: what chooses its next trials.
        digests: what must be the same as when the study began.
        words: what some of them stand for, as JSON of named values, for the error that says what differs.
        fresh: delete a study of that name first.
        patience: how long a storage that is locked is waited for.
        on_lost: told the reason if the storage fails later on; the study then goes on in memory.

    Returns:
        The record, and how many of its trials were cut off by the death of their process.

    Raises:
        TrialError: the study is of another workload, machine or space; or the storage cannot be used.
    """
    patience = patience or Patience()
    kept = get_storage(storage.open_storage(storage_url, patience))
    try:
        with quiet():
            study = patience.ask(lambda: _opened(kept, name, sampler, fresh=fresh))
            mirror = None if storage_url is None else Mirror(kept, name, patience, on_lost)
    except storage.STORAGE_ERRORS as error:
        raise storage.unusable(storage_url, error) from error
    if mirror is not None:
        study = optuna.load_study(study_name=name, storage=mirror, sampler=sampler)
    _require_same(study, {"schema_version": str(SCHEMA_VERSION), **digests}, words or {})
    record = Record(study, mirror)
    return record, len(record.recover())


def _opened(kept: BaseStorage, name: str, sampler: BaseSampler, *, fresh: bool) -> optuna.Study:
    if fresh and name in optuna.get_all_study_names(kept):
        optuna.delete_study(study_name=name, storage=kept)
    return optuna.create_study(
        storage=kept, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
    )


def _require_same(study: optuna.Study, wanted: dict[str, str], words: Mapping[str, str]) -> None:
    """Note in a new study what it is of, by these digests, and refuse one that is of something else."""
    known = study.user_attrs.get("digests")
    if known is None:
        if words:
            study.set_user_attr("words", dict(words))
        study.set_user_attr("digests", wanted)
        study.set_user_attr("began", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
        return
    differing = [name for name in sorted(known.keys() | wanted.keys()) if known.get(name) != wanted.get(name)]
    if differing:
        begun = study.user_attrs.get("words", {})
        sides = {name: _sides(known.get(name), wanted.get(name)) for name in differing}
        for name in words.keys() & sides.keys():
            sides[name] = _apart(begun.get(name), words[name]) or "it has changed since the study began"
        said = "; ".join(f"{name}: {each}" for name, each in sides.items())
        raise TrialError(
            f"The study `{study.study_name}` cannot be gone on with, because it is of another {', '.join(differing)} "
            f"({said}).",
            hint="Use --fresh to begin anew, or another --out or --storage to keep both.",
        )


def _sides(there: str | None, here: str | None) -> str:
    """Return what a digest is in the study and here; of one with several fields, those that differ."""
    return _apart(there, here) or f"{_shown(there)} there, {_shown(here)} here"


def _apart(there: str | None, here: str | None) -> str:
    """Return the fields that differ in two texts of JSON; nothing where they are something else, or none does."""
    one, other = _fields(there), _fields(here)
    apart = [key for key in one | other if one.get(key) != other.get(key)] if one and other else []
    said = [f"{key} {_shown(one.get(key))} there, {_shown(other.get(key))} here" for key in apart[:_MOST_SAID]]
    more = [f"and {len(apart) - _MOST_SAID} more"] if len(apart) > _MOST_SAID else []
    return ", ".join(said + more)


def _fields(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(value: object) -> str:
    return "nothing" if value is None else shortened(value)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from announcing each study on stderr; whoever uses Optuna beside autopipe keeps their own setting."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
