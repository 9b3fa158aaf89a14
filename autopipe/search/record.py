"""The record of a search: its trials, its Optuna study in memory, and its resumption after a crash; between Optuna's
trials and flat parameters; all studies of a storage.

With a storage, each trial is added to the study there as it ends, with its configuration, its outcome (raw windows
included) and its origin as user attributes. After the first failure nothing more is written there, and the search goes
on in memory. What to try next, and which one wins, is decided elsewhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import optuna
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from autopipe.again import without_password
from autopipe.errors import AutopipeError, ConfigError, TrialError, shortened
from autopipe.measure import costs
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import Measurement, Phase, Resources, TrialFailure, parse_outcome
from autopipe.measure.stats import estimate, median
from autopipe.pipeline.config import Kept, PipelineConfig, SettingValue
from autopipe.search.result import AskedBy, Raced
from autopipe.search.space import Params, Space, among, from_config
from autopipe.values import Estimate

# -------------------- a trial, and all trials of a configuration, as a search reads them

_ONCE = (Phase.START, Phase.IMPORT, Phase.BUILD, Phase.WARM_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One finished trial."""

    number: int  # the trial's number in the study
    origin: AskedBy  # who asked for it
    config: PipelineConfig  # what ran
    key: str  # of the configuration
    outcome: Measurement | TrialFailure | None  # None if the trial was interrupted
    value: float | None  # the study's value
    feasible: bool  # within the user's limits at that time, as measured
    seconds: float  # in total

    @property
    def running_seconds(self) -> float:
        """Its duration without the first start of a process and compilation."""
        phases = self.outcome.phase_seconds if isinstance(self.outcome, Measurement) else {}
        return max(0.0, self.seconds - sum(phases.get(each, 0.0) for each in _ONCE))

    @property
    def block(self) -> int | None:
        return self.origin.block

    @classmethod
    def of(cls, trial: FrozenTrial) -> Self:
        attributes = trial.user_attrs
        outcome = attributes.get("outcome")
        return cls(
            number=trial.number,
            origin=AskedBy.parse(attributes.get("origin", "")),
            config=PipelineConfig.model_validate(attributes["config"]),
            key=attributes["key"],
            outcome=None if outcome is None else parse_outcome(outcome["json"]),
            value=trial.value,
            feasible=not any(excess > 0 for excess in trial.constraints.values()),
            seconds=0.0 if outcome is None else outcome["seconds"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """All measurements of one configuration."""

    config: PipelineConfig
    key: str
    measurements: tuple[Measurement, ...]  # oldest first, at least one
    estimate: Estimate  # images/s over all their windows
    value: float  # the objective
    feasible: bool  # within the limits, by settings and measurements; else it is only compared with
    # in a confirmation run
    cost: tuple[float, ...] = ()  # beside its rate; the lower wins a tie
    baseline: str | None = None  # its name if it is a baseline
    required: bool = False  # a baseline that the result needs, however slow it is


def merged(measurements: Sequence[Measurement]) -> Estimate:
    """Return images/s over all measurements of a configuration: the median of their rates, which count the pauses
    between epochs, with the interval of all windows.
    """
    if len(measurements) == 1:
        return measurements[0].images_per_second
    value = median([each.images_per_second.value for each in measurements])
    windows = estimate([window.images / window.seconds for each in measurements for window in each.windows])
    return windows.mapped(lambda rate: rate / windows.value * value)


def taken(measurement: Measurement, config: PipelineConfig, workload: Description) -> Resources:
    """Return the resources of a whole training by `config`, with its whole cache and validation's loader; a trial has
    no validation, and may be of a part of the data, whose cache holds no more than that.
    """
    took = measurement.resources
    if took.peak_rss_bytes is None:
        return took
    more = (1 - measurement.data_share) * (costs.cache_bytes(config, workload) or 0)
    more += costs.validation_bytes(config, workload, took.workers_bytes)
    return took.model_copy(update={"peak_rss_bytes": int(took.peak_rss_bytes + more)})


SCHEMA_VERSION = 1
_OF_FILES = {
    "files": "{} files there, {} here",
    "names": "files of other names",
    "sizes": "files of other sizes",
    "times": "files that have been written or copied since",
}
_OF_DIGESTS = {"ops": "list of ops", "model": "model"}


@dataclass(eq=False)
class Record:
    """A study, opened; its trials are read once and then kept up to date."""

    study: optuna.Study  # in memory
    lost: str | None = None  # why nothing is written to the storage any more
    _rows: dict[int, TrialRow] = field(default_factory=dict)
    _stored: optuna.Study | None = None
    _kept: RDBStorage | None = None  # which holds it
    _on_lost: Callable[[str], None] = lambda reason: None

    def keep_in(self, kept: RDBStorage, stored: optuna.Study, on_lost: Callable[[str], None]) -> None:
        """Take over the trials of a study in a storage, and write to it from now on."""
        ended = [each for each in stored.get_trials(deepcopy=False) if each.state.is_finished()]
        # What the user's own code has enqueued there waits until it has run once.
        waiting, wish = stored.get_trials(deepcopy=False, states=[TrialState.WAITING]), "fixed_params"
        ran = [each.system_attrs.get(wish) for each in ended]  # as Optuna keeps those of an enqueued trial
        self.study.add_trials([*ended, *(each for each in waiting if each.system_attrs.get(wish) not in ran)])
        for key, value in stored.user_attrs.items():
            self.study.set_user_attr(key, value)
        self._kept, self._stored, self._on_lost = kept, stored, on_lost

    @property
    def whole(self) -> optuna.Study:
        """The study in the storage; the one in memory if there is no storage, or if it has failed."""
        return self.study if self._stored is None or self.lost is not None else self._stored

    def close(self) -> None:
        if self._kept is not None:
            _close(self._kept)

    def rows(self) -> list[TrialRow]:
        """Return all finished trials that ran a configuration, oldest first."""
        for trial in self.study.get_trials(deepcopy=False):
            ran = "config" in trial.user_attrs and "refused" not in trial.user_attrs
            if trial.number not in self._rows and trial.state.is_finished() and ran:
                self._rows[trial.number] = TrialRow.of(trial)
        return [self._rows[number] for number in sorted(self._rows)]

    # ------------------------------------------------------------ attributes of the study

    def ceilings(self) -> list[Ceiling]:
        return [Ceiling.model_validate_json(text) for text in self.study.user_attrs.get("ceilings", [])]

    def keep_ceilings(self, ceilings: list[Ceiling]) -> None:
        self._keep("ceilings", [ceiling.model_dump_json() for ceiling in ceilings])

    def raced(self) -> list[Raced]:
        return [Raced.model_validate_json(text) for text in self.study.user_attrs.get("raced", [])]

    def keep_raced(self, raced: Iterable[Raced]) -> None:
        self._keep("raced", [each.model_dump_json() for each in raced])

    def block_ceilings(self) -> dict[int, Ceiling]:
        """Return the model alone as it was measured in each block of the confirmation run."""
        kept = self.study.user_attrs.get("block_ceilings", {})
        return {int(block): Ceiling.model_validate_json(text) for block, text in kept.items()}

    def keep_block_ceiling(self, block: int, ceiling: Ceiling) -> None:
        kept = self.study.user_attrs.get("block_ceilings", {})
        self._keep("block_ceilings", {**kept, str(block): ceiling.model_dump_json()})

    def _keep(self, key: str, value: object) -> None:
        self.study.set_user_attr(key, value)
        self._write(lambda stored: stored.set_user_attr(key, value))

    def _write(self, act: Callable[[optuna.Study], None]) -> None:
        if self._stored is None or self.lost is not None:
            return
        try:
            act(self._stored)
        except Exception as error:  # noqa: BLE001  each database has errors of its own
            self.lost = _reason(error)
            self._on_lost(self.lost)

    # ------------------------------------------------------------ trials of this search

    def enqueue(self, space: Space, config: PipelineConfig, *, origin: AskedBy) -> None:
        params = fitting(space, from_config(config))
        self.study.enqueue_trial(params, user_attrs=_described(config, origin))

    def waiting(self) -> bool:
        return bool(self.study.get_trials(deepcopy=False, states=[TrialState.WAITING]))

    def describe(self, trial: optuna.Trial, config: PipelineConfig, *, origin: AskedBy) -> None:
        for name, value in _described(config, origin).items():
            trial.set_user_attr(name, value)

    def tell(
        self,
        trial: optuna.Trial,
        outcome: Measurement | TrialFailure,
        *,
        value: float | None,
        excess_bytes: int | None,
        seconds: float,
    ) -> None:
        if excess_bytes is not None:
            trial.set_constraint("memory_bytes", excess_bytes)
        trial.set_user_attr("outcome", {"value": value, "seconds": seconds, "json": outcome.model_dump_json()})
        self._end(trial, value, TrialState.FAIL if value is None else TrialState.COMPLETE)

    def give_up(self, trial: optuna.Trial) -> None:
        """Mark a trial that was interrupted, unless it had been told already."""
        if not self._frozen(trial).state.is_finished():
            self._end(trial, None, TrialState.FAIL)

    def refuse(self, trial: optuna.Trial, reason: str) -> None:
        """Tell the sampler that a suggestion cannot run; that is not written down."""
        trial.set_user_attr("refused", reason)
        trial.set_constraint("feasible", 1.0)
        self.study.tell(trial, state=TrialState.PRUNED)

    def repeat(self, trial: optuna.Trial, value: float | None) -> None:
        """Tell the sampler what a suggestion that ran before is worth; that is not written down."""
        trial.set_user_attr("refused", "it has run")
        self.study.tell(trial, value, state=TrialState.PRUNED if value is None else TrialState.COMPLETE)

    def _end(self, trial: optuna.Trial, value: float | None, state: TrialState) -> None:
        self.study.tell(trial, value, state=state)
        self._write(lambda stored: stored.add_trial(self._frozen(trial)))

    def _frozen(self, trial: optuna.Trial) -> FrozenTrial:
        return self.study.get_trials(deepcopy=False)[trial.number]


def open_record(
    storage_url: str | None,
    name: str,
    *,
    digests: Mapping[str, str],
    fresh: bool,
    on_lost: Callable[[str], None] = lambda reason: None,
) -> Record:
    """Open a study in any Optuna storage, None: in memory, or resume it.

    `digests`, texts or JSON of named values, must be as they were when the study began. `fresh` deletes a study of that
    name first, as one of something else is that holds no trial. `on_lost` gets the reason if the storage fails later
    on; the study then goes on in memory. Raises TrialError if the study is of another workload, machine or space, or of
    a version that this one does not read; or if the storage cannot be used.
    """
    wanted = {"schema_version": str(SCHEMA_VERSION), **digests}
    with _quiet():
        record = Record(optuna.create_study(direction="maximize"))
    if storage_url is None:
        record.study.set_user_attr("digests", wanted)
        return record
    with opened(storage_url) as kept:
        there = optuna.create_study(storage=kept, study_name=name, direction="maximize", load_if_exists=True)
        is_other = there.user_attrs.get("digests", wanted) != wanted
        if fresh or (is_other and not there.get_trials(deepcopy=False)):
            optuna.delete_study(study_name=name, storage=kept)
            there = optuna.create_study(storage=kept, study_name=name, direction="maximize")
        known = there.user_attrs.get("digests")
        if known is None:
            there.set_user_attr("digests", wanted)
        elif known != wanted:
            names = (each for each in sorted(known.keys() | wanted.keys()) if known.get(each) != wanted.get(each))
            said = "; ".join(f"{each}: {_sides(known.get(each), wanted.get(each))}" for each in names)
            raise TrialError(f"The study `{name}` was recorded for something else: {said}.", hint=_ANOTHER)
        record.keep_in(kept, there, on_lost)
        try:
            _ = record.rows(), record.ceilings(), record.block_ceilings()
            _ = [PipelineConfig.model_validate(each.config) for each in record.raced()]
        except _UNREADABLE as error:
            said = f"The study `{name}` is of another version of autopipe, or of a loader that is not installed here"
            raise TrialError(f"{said}: {_reason(error)}.", hint=_ANOTHER) from error
    return record


_ANOTHER: Final = "`--fresh`, in Python fresh=True, begins a new one; another --out or --storage keeps both."
_UNREADABLE: Final = (ConfigError, ValueError)  # pydantic's is one, too


def _sides(there: str | None, here: str | None) -> str:
    """Show two texts that differ; of two texts of JSON, the fields that do."""
    one, other = _fields(there), _fields(here)
    apart = [key for key in one | other if one.get(key) != other.get(key)] if one and other else []
    if not apart:
        return f"{_shown(there)} there, {_shown(here)} here"
    if apart[0] in one.keys() & other.keys() & _OF_FILES.keys():  # the digests behind it say no more
        return _OF_FILES[apart[0]].format(one[apart[0]], other[apart[0]])
    said = [
        f"another {_OF_DIGESTS[key]}"
        if key in one.keys() & other.keys() & _OF_DIGESTS.keys()
        else f"{key} {_shown(one.get(key))} there, {_shown(other.get(key))} here"
        for key in apart[:4]
    ]
    more = [f"and {len(apart[4:])} more"] if apart[4:] else []
    return ", ".join(said + more)


def _fields(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "")
    except ValueError:  # a digest of files, `files=3 names=... sizes=... times=...`
        return dict(pair for word in (text or "").split() if len(pair := word.split("=")) == 2)
    return found if isinstance(found, dict) else {}


def _shown(value: object) -> str:
    return "nothing" if value is None else shortened(value)


def _described(config: PipelineConfig, origin: AskedBy) -> dict[str, Any]:
    return {"config": config.model_dump(mode="json"), "key": config.key(), "origin": str(origin)}


# -------------------- between Optuna's trials and flat parameters


def suggest(space: Space, trial: optuna.Trial) -> Params:
    """Ask a trial for each parameter that counts, in order."""
    params: Params = {}
    for parameter in space:
        if parameter.counts(params):
            value = trial.suggest_categorical(parameter.name, parameter.values)
            assert value is not None  # no parameter has None among its values
            params[parameter.name] = value
    return params


def note(space: Space, trial: optuna.Trial, params: Mapping[str, SettingValue]) -> None:
    """Give an enqueued trial its parameters, as far as they lie in the space."""
    for name in fitting(space, params):
        trial.suggest_categorical(name, space[name].values)


def fitting(space: Space, params: Mapping[str, SettingValue]) -> Params:
    """Return those of `params` that lie in the space; a baseline may lie outside in part."""
    fit: Params = {}
    for parameter in space:
        name = parameter.name
        if name in params and parameter.counts(fit):
            written = {str(Kept.of(str(each))): each for each in parameter.values} if name == "keep" else {}
            value = written.get(str(params[name]), params[name])
            if among(value, parameter.values):
                fit[name] = value
    return fit


# -------------------- studies of a storage: their results on other machines or earlier


def best_elsewhere(storage_url: str | None, workload: str) -> list[PipelineConfig]:
    """Return the best of every study of a workload, the latest first. Raises TrialError as `opened`."""
    if storage_url is None:
        return []
    with opened(storage_url) as kept:
        studies = [optuna.load_study(study_name=name, storage=kept) for name in optuna.get_all_study_names(kept)]
        found = dict[str, PipelineConfig]()
        for study in reversed(studies):
            digests, rows = study.user_attrs.get("digests"), list[TrialRow]()
            if isinstance(digests, dict) and digests.get("workload") == workload:  # one of others' has none
                with suppress(*_UNREADABLE):  # its machine may have other packages
                    rows = [row for row in Record(study).rows() if row.value is not None and row.feasible]
            rows = [row for row in rows if not row.config.loader.is_foreign]
            if rows:
                best = max(rows, key=lambda row: row.value or 0.0).config
                found.setdefault(best.key(), best)
    return list(found.values())


# -------------------- the storage of studies, as Optuna opens it by its URL: its errors in words, and URLs to be shown


@contextmanager
def opened(url: str) -> Iterator[RDBStorage]:
    """Open a storage; raises TrialError if it cannot be used, here or in the block."""
    try:
        with _quiet():
            storage = _database(url)
            try:
                yield storage
            finally:
                _close(storage)
    except AutopipeError:
        raise
    except Exception as error:
        raise TrialError(
            f"The storage {without_password(url)!r} cannot be used: {_reason(error)}.",
            hint="Give an Optuna storage URL with --storage, e.g. sqlite:///study.db, whose folder is there, has room "
            "and can be written to; or postgresql+psycopg://user@host/name.",
        ) from error


def _database(url: str) -> RDBStorage:
    """Open a database. Another machine may create one of Optuna's four tables at the same time; that is no error."""
    for _ in range(4):
        try:
            return RDBStorage(url)
        except Exception as error:
            if type(error).__name__ not in ("IntegrityError", "ProgrammingError"):  # as PEP 249 has each driver call it
                raise
    return RDBStorage(url)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's messages about new studies on stderr; the user's own setting stays."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _close(storage: RDBStorage) -> None:
    """Close the connections to a storage; it stays usable."""
    storage.remove_session()
    storage.engine.dispose()


def _reason(error: BaseException) -> str:
    """Return the first line of the driver's own error, which Optuna and SQLAlchemy each wrap once."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def url_of(file: Path) -> str:
    """Return the URL of a study in a file; a `?` or a `%` in its folder's name does not change the path."""
    return f"sqlite:///{quote(os.fsencode(file.absolute()), safe=' +/')}"


def is_shared(url: str | None) -> bool:
    """Return True if several machines can reach a storage; SQLite's and the one in memory are for one."""
    return url is not None and not url.startswith("sqlite:")
