"""The record of a search: its Optuna study in memory, and its resumption after a crash; all studies of a storage.

With a storage, each trial is written there as it begins and as it ends, and trials of others are taken up before the
next one. Each trial has its configuration, its outcome (raw windows included) and its origin as user attributes. What
to try next, and the meaning of the figures, is decided elsewhere.

Several processes may share a study: each asks and tells the one in the storage. Optuna's heartbeats show which process
has died; its trial then waits in the storage for the next process that asks.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import json
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from autopipe.errors import TrialError, shortened
from autopipe.measure.facts import Ceiling, Facts
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import PipelineConfig, from_config
from autopipe.pipeline.space import MEASURED_BOUNDS, Space
from autopipe.search import storage, surrogate
from autopipe.search.storage import STORAGE_ERRORS, Patience, StoredStudy, open_storage, settle, unusable
from autopipe.search.trials import AskedBy, Asker, Row

SCHEMA_VERSION = 1
ENDED = "ended"
"""The attribute of a shared study that says when a search in it ended."""

_MOST_SAID = 4  # of the values in which a study is of something else
_MOST_RETRIES = 3  # of a trial whose process died


class Record:
    """A study, opened; its trials are read once and then kept up to date."""

    def __init__(self, study: optuna.Study, kept: StoredStudy | None = None, *, shared: bool = False) -> None:
        self.study = study  # in memory
        self._kept, self._shared = kept, shared
        self._rows: dict[int, Row] = {}
        self._taken: set[int] = set()  # numbers in the storage of trials that are in memory, too
        self._waiting: dict[int, int] = {}  # of trials that wait in the storage: number in memory, number there
        self._running: set[int] = set()  # numbers in the storage of those that this process has run

    @property
    def lost(self) -> str | None:
        """The reason why the study is not written down any more, or None."""
        return None if self._kept is None else self._kept.lost

    @property
    def whole(self) -> optuna.Study:
        """The study in the storage; the one in memory if there is no storage, or if it has failed."""
        return self.study if self._kept is None or self.lost is not None else self._kept.study

    def settle(self) -> None:
        if self._kept is not None:
            self._kept.settle()

    def rows(self) -> list[Row]:
        """Return all finished trials that ran a configuration, oldest first."""
        for trial in self.study.get_trials(deepcopy=False):
            ran = "config" in trial.user_attrs and "refused" not in trial.user_attrs
            if trial.number not in self._rows and trial.state.is_finished() and ran:
                self._rows[trial.number] = Row.of(trial)
        return [self._rows[number] for number in sorted(self._rows)]

    # ------------------------------------------------------------ attributes of the study

    def ceilings(self) -> list[Ceiling]:
        return [Ceiling.model_validate_json(text) for text in self._attribute("ceilings", [])]

    def keep_ceilings(self, ceilings: list[Ceiling]) -> None:
        """Keep the ceilings with the study, so that resuming does not measure them again."""
        self._keep("ceilings", [ceiling.model_dump_json() for ceiling in ceilings])

    def bounds(self, facts: Facts) -> dict[str, int]:
        """Return the measured bounds of the space: those that the study began with, or else those of the facts.

        When it is resumed, its parameters must have the same choices.
        """
        if self._attribute("bounds", None) is None:
            found = {name: getattr(facts, name) for name in MEASURED_BOUNDS}
            self._keep("bounds", {name: bound for name, bound in found.items() if bound is not None})
        return dict(self._attribute("bounds", {}))

    def block_ceilings(self) -> dict[int, Ceiling]:
        """Return the model alone as it was measured in each block of the confirmation run."""
        kept = self._attribute(self._block_ceilings, {})
        return {int(block): Ceiling.model_validate_json(text) for block, text in kept.items()}

    def keep_block_ceiling(self, block: int, ceiling: Ceiling) -> None:
        kept = self._attribute(self._block_ceilings, {})
        self._keep(self._block_ceilings, {**kept, str(block): ceiling.model_dump_json()})

    def keep_end(self) -> None:
        if self._shared:
            self._keep(ENDED, datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))

    @property
    def _block_ceilings(self) -> str:
        """The attribute's name: each machine that shares a study has a confirmation run of its own."""
        return f"block_ceilings:{socket.gethostname()}" if self._shared else "block_ceilings"

    def _attribute(self, key: str, default: Any) -> Any:
        kept = self._kept
        if self._shared and kept is not None and key not in self.study.user_attrs:
            there = kept.do(lambda: kept.study.user_attrs) or {}
            if key in there:
                self.study.set_user_attr(key, there[key])
        return self.study.user_attrs.get(key, default)

    def _keep(self, key: str, value: object) -> None:
        self.study.set_user_attr(key, value)
        if (kept := self._kept) is not None:
            kept.do(lambda: kept.study.set_user_attr(key, value))

    # ------------------------------------------------------------ trials of this search

    def enqueue(self, space: Space, config: PipelineConfig, *, origin: AskedBy, predicted: float | None) -> None:
        params = surrogate.fitting(space, from_config(config))
        self.study.enqueue_trial(params, user_attrs=_described(config, origin, predicted))

    def waiting(self) -> bool:
        """True if a trial is enqueued: by this search, for a process that died, or by the user's own code."""
        return bool(self.study.get_trials(deepcopy=False, states=[TrialState.WAITING]))

    def ask(self) -> optuna.Trial | None:
        """Return the trial to run next; None if another process has begun the one that waited."""
        self.take_up()
        trial, owner = self.study.ask(), {"host": socket.gethostname(), "id": uuid.uuid4().hex[:12]}
        trial.set_user_attr("owner", owner)
        waits = self._waiting.pop(trial.number, None)
        if waits is not None and self._kept is not None and not self._kept.claim(waits, owner):
            self._taken.discard(waits)  # its outcome is taken up later
            self._refuse(trial, "another process has begun it")
            return None
        return trial

    def describe(
        self, trial: optuna.Trial, config: PipelineConfig, *, origin: AskedBy, predicted: float | None
    ) -> None:
        for name, value in _described(config, origin, predicted).items():
            trial.set_user_attr(name, value)

    def begin(self, trial: optuna.Trial) -> bool:
        """Write down that a trial runs. False if another process runs the same: the trial is refused then."""
        number = self._write(trial)
        if number is None or not self._is_elsewhere(number):
            return True
        self.refuse(trial, "another process that shares the study measures it")
        return False

    def alive(self, trial: optuna.Trial) -> AbstractContextManager[None]:
        """Send heartbeats to others that share the study, while the block measures a trial."""
        number = self._write(trial) if self._shared else None
        return nullcontext() if number is None or self._kept is None else self._kept.beating(number)

    def tell(
        self,
        trial: optuna.Trial,
        outcome: Measurement | TrialFailure,
        *,
        value: float | None,
        constraints: Mapping[str, float],
        seconds: float,
    ) -> None:
        for name, excess in constraints.items():
            trial.set_constraint(name, excess)
        trial.set_user_attr("outcome", {"value": value, "seconds": seconds, "json": outcome.model_dump_json()})
        self.study.tell(trial, value, state=TrialState.FAIL if value is None else None)
        self._write(trial)

    def give_up(self, trial: optuna.Trial, *, again: bool = False) -> None:
        """Mark a trial that was interrupted, unless it had been told already.

        With `again`, another process that shares the study may run it, except for a block of the confirmation run.
        """
        was_over = self._frozen(trial).state.is_finished()
        if not was_over:
            self.study.tell(trial, state=TrialState.FAIL)
        number, kept = self._write(trial), self._kept
        if again and self._shared and kept is not None and number is not None and not was_over:
            kept.do(lambda: run_again(kept.study, kept.trials()[number]))

    def refuse(self, trial: optuna.Trial, reason: str) -> None:
        self._refuse(trial, reason)
        self._write(trial)

    def _refuse(self, trial: optuna.Trial, reason: str) -> None:
        trial.set_user_attr("refused", reason)
        trial.set_constraint("feasible", 1.0)
        self.study.tell(trial, state=TrialState.PRUNED)

    def _write(self, trial: optuna.Trial) -> int | None:
        """Write down a trial as it is now, and return its number in the storage."""
        number = None if self._kept is None else self._kept.write(self._frozen(trial))
        if number is not None:
            self._taken.add(number)
            self._running.add(number)
        return number

    def _frozen(self, trial: optuna.Trial) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[trial.number]

    # ------------------------------------------------------------ trials of others

    def take_up(self) -> None:
        """Copy new trials from the storage to memory: finished ones, and those that wait."""
        if self._kept is None:
            return
        if self._shared:
            self._kept.fail_stale()
        for trial in self._kept.trials():
            theirs = trial.user_attrs.get("owner", {}).get("host") != socket.gethostname()
            their_proof = self._shared and theirs and _asker(trial.user_attrs) is Asker.PROOF
            if trial.number in self._taken or trial.state is TrialState.RUNNING or their_proof:
                continue
            self._taken.add(trial.number)
            self.study.add_trial(trial)
            if trial.state is TrialState.WAITING:
                self._waiting[len(self.study.get_trials(deepcopy=False)) - 1] = trial.number

    def recover(self) -> int:
        """Finish the trials whose process died, with their outcome if it was written; count the others, which failed.

        Only for a study that is not shared: when it is opened, no process runs its running trials.
        """
        cut, kept = 0, self._kept
        if kept is None or self._shared:
            return 0
        for trial in kept.trials():
            if trial.state is TrialState.RUNNING:
                ended, outcome = copy.deepcopy(trial), trial.user_attrs.get("outcome")
                ended.values = None if outcome is None or outcome["value"] is None else [outcome["value"]]
                ended.state = TrialState.FAIL if ended.values is None else TrialState.COMPLETE
                kept.write(ended, trial.number)
                cut += outcome is None
        return cut

    def under_way(self) -> dict[str, str]:
        """Return the trials of other processes that share the study: keys of configurations, and hosts."""
        if self._kept is None or not self._shared:
            return {}
        self.take_up()
        theirs = [
            each.user_attrs
            for each in self._kept.trials()
            if each.state is TrialState.RUNNING and each.number not in self._running and _is_once(each.user_attrs)
        ]
        return {str(each["key"]): str(each.get("owner", {}).get("host", "")) for each in theirs if "key" in each}

    def _is_elsewhere(self, number: int) -> bool:
        """True if an earlier trial in the storage measures, or has measured, the same: the later one yields."""
        trials = self._kept.trials() if self._kept is not None and self._shared else []
        mine = trials[number].user_attrs if trials else {}
        return _is_once(mine) and any(
            each.user_attrs.get("key") == mine.get("key")
            and _is_once(each.user_attrs)
            and (not each.state.is_finished() or "outcome" in each.user_attrs)
            for each in trials[:number]
        )


def open_record(  # noqa: PLR0913  what a study is known by, and who is told of its storage
    storage_url: str | None,
    name: str,
    *,
    sampler: BaseSampler,
    digests: Mapping[str, str],
    fresh: bool,
    patience: Patience | None = None,
    on_lost: Callable[[str], None] = lambda reason: None,
    shared: Callable[[FrozenTrial], None] | None = None,
) -> tuple[Record, int]:
    """Open a study, or resume it.

    Args:
        storage_url: any Optuna storage; None keeps the study in memory.
        name: the study's.
        sampler: chooses its next trials.
        digests: must be the same as when the study began: texts, or JSON of named values.
        fresh: delete a study of that name first.
        patience: the wait for a locked storage.
        on_lost: gets the reason if the storage fails later on; the study then goes on in memory.
        shared: gets each trial whose process died, if other processes may work on the study at the same time.

    Returns:
        The record, and how many of its trials were interrupted by the death of their process.

    Raises:
        TrialError: the study is of another workload, machine or space; or the storage cannot be used.
    """
    wanted = {"schema_version": str(SCHEMA_VERSION), **digests}
    with quiet():
        study = optuna.create_study(study_name=name, sampler=sampler, direction="maximize")
    if storage_url is None:
        study.set_user_attr("digests", wanted)
        return Record(study), 0

    def stale(study: optuna.Study, trial: FrozenTrial) -> None:
        assert shared is not None
        run_again(study, trial)
        shared(trial)

    patience = patience or Patience()
    opened = storage.open_storage(storage_url, patience, None if shared is None else stale)
    try:
        with quiet():
            there = patience.ask(lambda: _opened(opened, name, fresh=fresh))
            patience.ask(lambda: _require_same(there, wanted))
            for key, value in patience.ask(lambda: there.user_attrs).items():
                study.set_user_attr(key, value)
            kept = StoredStudy(opened, name, patience, on_lost)
    except storage.STORAGE_ERRORS as error:
        raise storage.unusable(storage_url, error) from error
    record = Record(study, kept, shared=shared is not None)
    lost = record.recover()
    record.take_up()
    return record, lost


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> dict[str, str]:
    """Return the digests that differ between two studies, each with both sides in words."""
    names = [name for name in sorted(there.keys() | here.keys()) if there.get(name) != here.get(name)]
    return {
        name: _apart(there.get(name), here.get(name))
        or f"{_shown(there.get(name))} there, {_shown(here.get(name))} here"
        for name in names
    }


def run_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Let another process that shares the study run an interrupted trial, if a study needs it once."""
    if "config" in trial.user_attrs and "outcome" not in trial.user_attrs and _is_once(trial.user_attrs):
        with storage.experimental():
            RetryHeartbeatStaleTrialCallback(max_retry=_MOST_RETRIES)(study, trial)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's messages about new studies on stderr; the user's own setting stays."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _opened(kept: BaseStorage, name: str, *, fresh: bool) -> optuna.Study:
    if fresh and name in optuna.get_all_study_names(kept):
        optuna.delete_study(study_name=name, storage=kept)
    return optuna.create_study(storage=kept, study_name=name, direction="maximize", load_if_exists=True)


def _require_same(study: optuna.Study, wanted: dict[str, str]) -> None:
    """Store these digests in a new study, and refuse a study that has others."""
    known = study.user_attrs.get("digests")
    if known is None:
        study.set_user_attr("digests", wanted)
        return
    sides = differences(known, wanted)
    if sides:
        said = "; ".join(f"{name}: {each}" for name, each in sides.items())
        raise TrialError(
            f"The study `{study.study_name}` belongs to another {', '.join(sides)} ({said}).",
            hint="Use --fresh to start a new one, or another --out or --storage to keep both.",
        )


def _apart(there: str | None, here: str | None) -> str:
    """Name the fields that differ in two texts of JSON; empty if there are none."""
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


def _described(config: PipelineConfig, origin: AskedBy, predicted: float | None) -> dict[str, Any]:
    described = {"config": config.model_dump(mode="json"), "key": config.key()}
    return {**described, "origin": str(origin), "predicted": predicted}


def _asker(attributes: Mapping[str, Any]) -> Asker:
    return AskedBy.parse(str(attributes.get("origin", ""))).asker


def _is_once(attributes: Mapping[str, Any]) -> bool:
    """True if a study needs the trial once; False for a second look or a block."""
    return _asker(attributes) not in (Asker.AGAIN, Asker.PROOF)


# -------------------- studies of a storage: their results on other machines or earlier


def best_elsewhere(storage_url: str | None, workload: str) -> list[PipelineConfig]:
    """Return the best configuration of every study of a workload, on any machine; the latest study's first. Studies are
    opened with the digest of their `workload`; a storage in memory, None, holds nothing. Raises TrialError if the
    storage cannot be used, as the function below.
    """
    if storage_url is None:
        return []
    with _earlier_opened(storage_url) as storage:
        studies = [optuna.load_study(study_name=name, storage=storage) for name in optuna.get_all_study_names(storage)]
        best = [_best(study) for study in reversed(studies) if _is_of(study, workload)]
    return list({config.key(): config for config in best if config is not None}.values())


def attributes(storage_url: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of the studies with this name prefix, by name."""
    with _earlier_opened(storage_url) as storage:
        names = [name for name in optuna.get_all_study_names(storage) if name.startswith(prefix)]
        return {name: optuna.load_study(study_name=name, storage=storage).user_attrs for name in names}


@contextlib.contextmanager
def _earlier_opened(storage_url: str) -> Iterator[BaseStorage]:
    """Open a storage while the block runs; its errors become a TrialError."""
    storage = open_storage(storage_url)
    try:
        yield storage
    except STORAGE_ERRORS as error:
        raise unusable(storage_url, error) from error
    finally:
        settle(storage)


def _is_of(study: optuna.Study, workload: str) -> bool:
    digests = study.user_attrs.get("digests")  # a study that autopipe did not begin has none
    return isinstance(digests, dict) and digests.get("workload") == workload


def _best(study: optuna.Study) -> PipelineConfig | None:
    rows = [row for row in Record(study).rows() if row.value is not None and row.feasible]
    rows = [row for row in rows if not row.config.loader.is_foreign]
    best = max(rows, key=lambda row: row.value or 0.0, default=None)
    return None if best is None else best.config
