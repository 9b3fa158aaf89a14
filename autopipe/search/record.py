"""The Optuna study as the record of a search: what was tried, what came of it, and how to go on after a crash.

Each trial carries its configuration, its outcome (raw windows included) and who asked for it as user attributes;
nothing that a search knows lives only in memory. What to try next, and what the figures mean, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, get_storage
from optuna.trial import FrozenTrial, TrialState

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Facts
from autopipe.core.outcome import Measurement, Phase, TrialFailure, parse_outcome
from autopipe.core.params import from_config
from autopipe.core.space import MEASURED_BOUNDS, Space
from autopipe.search import continuing, storage, suggest, trial_owner
from autopipe.search.mirror import Mirror
from autopipe.search.origin import AskedBy
from autopipe.search.storage import Patience

SCHEMA_VERSION = 1
_ONCE = (Phase.START, Phase.IMPORT, Phase.BUILD, Phase.WARM_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished trial.

    Attributes:
        number: the trial's number in the study.
        origin: who asked for it.
        config: what ran.
        key: of the configuration's canonical form.
        outcome: what came of it; None if the trial was cut off.
        value: what the study holds as its value.
        predicted: the cost model's images/s.
        feasible: whether it kept the user's limits, as measured.
        seconds: how long it took, all in all.
    """

    number: int
    origin: AskedBy
    config: PipelineConfig
    key: str
    outcome: Measurement | TrialFailure | None
    value: float | None
    predicted: float | None
    feasible: bool
    seconds: float

    @property
    def running_seconds(self) -> float:
        """How long it took without what comes before the first trial of a process: its start, and compiling."""
        phases = self.outcome.phase_seconds if isinstance(self.outcome, Measurement) else {}
        return max(0.0, self.seconds - sum(phases.get(each, 0.0) for each in _ONCE))

    @property
    def block(self) -> int | None:
        """The confirmation run's block it belongs to, or None."""
        return self.origin.block


class Record:
    """A study, opened; its trials are read once and then kept up to date."""

    def __init__(self, study: optuna.Study, mirror: Mirror | None = None) -> None:
        self.study = study
        self._mirror = mirror
        self._rows: dict[int, Row] = {}

    @property
    def lost(self) -> str | None:
        """Why the study is not written down any more; None as long as it is."""
        return None if self._mirror is None else self._mirror.lost

    def settle(self) -> None:
        """Put everything into the storage's one file, so that it can be copied."""
        if self._mirror is not None:
            self._mirror.settle()

    def rows(self) -> list[Row]:
        """Return all finished trials that ran a configuration, oldest first."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.number not in self._rows and trial.state.is_finished() and "config" in trial.user_attrs:
                self._rows[trial.number] = _row(trial)
        return [self._rows[number] for number in sorted(self._rows)]

    def ceilings(self) -> list[Ceiling]:
        """Return the ceilings that were measured in this study."""
        return [Ceiling.model_validate_json(text) for text in self.study.user_attrs.get("ceilings", [])]

    def keep_ceilings(self, ceilings: list[Ceiling]) -> None:
        """Keep them with the study, so that going on does not measure them again."""
        self.study.set_user_attr("ceilings", [ceiling.model_dump_json() for ceiling in ceilings])

    def bounds(self, facts: Facts) -> dict[str, int]:
        """Return the measured bounds of the space: those that the study began with, or else what the facts say.

        When it goes on, its parameters must have the same choices.
        """
        if "bounds" not in self.study.user_attrs:
            found = {name: getattr(facts, name) for name in MEASURED_BOUNDS}
            self.study.set_user_attr("bounds", {name: bound for name, bound in found.items() if bound is not None})
        return dict(self.study.user_attrs["bounds"])

    def block_ceilings(self) -> dict[int, Ceiling]:
        """Return the model alone as it was measured in each block of the confirmation run."""
        kept = self.study.user_attrs.get("block_ceilings", {})
        return {int(block): Ceiling.model_validate_json(text) for block, text in kept.items()}

    def keep_block_ceiling(self, block: int, ceiling: Ceiling) -> None:
        """Keep the model alone as it was measured in a block of the confirmation run."""
        kept = self.study.user_attrs.get("block_ceilings", {})
        self.study.set_user_attr("block_ceilings", {**kept, str(block): ceiling.model_dump_json()})

    def enqueue(self, space: Space, config: PipelineConfig, *, origin: AskedBy, predicted: float | None) -> None:
        """Let `config` be one of the next trials."""
        params = suggest.fitting(space, from_config(config))
        self.study.enqueue_trial(params, user_attrs=_described(config, origin, predicted))

    def ask(self) -> optuna.Trial:
        """Begin a trial, and note which process it belongs to."""
        trial = self.study.ask()
        trial.set_user_attr("owner", trial_owner.me())
        return trial

    def describe(
        self, trial: optuna.Trial, config: PipelineConfig, *, origin: AskedBy, predicted: float | None
    ) -> None:
        """Note what a trial runs, before it does."""
        for name, value in _described(config, origin, predicted).items():
            trial.set_user_attr(name, value)

    def tell(
        self,
        trial: optuna.Trial,
        outcome: Measurement | TrialFailure,
        *,
        value: float | None,
        constraints: Mapping[str, float],
        seconds: float,
    ) -> None:
        """Write down what came of a trial. The outcome goes first: if this process dies in between, nothing is lost."""
        for name, excess in constraints.items():
            trial.set_constraint(name, excess)
        trial.set_user_attr("outcome", {"value": value, "seconds": seconds, "json": outcome.model_dump_json()})
        _tell(self.study, trial.number, value)

    def waiting(self) -> bool:
        """Whether a trial is enqueued: by somebody who died before running it, or by the user's own code."""
        return bool(self.study.get_trials(deepcopy=False, states=[TrialState.WAITING]))

    def give_up(self, trial: optuna.Trial) -> None:
        """Mark a trial that was cut off, unless it had been told already."""
        self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)

    def refuse(self, trial: optuna.Trial, reason: str) -> None:
        """Mark a trial that asked for what cannot run."""
        trial.set_user_attr("refused", reason)
        trial.set_constraint("feasible", 1.0)
        self.study.tell(trial, state=TrialState.PRUNED)


# ---------------------------------------------------------------- opening


def open_record(  # noqa: PLR0913  what a study is known by, and who is told of its storage
    storage_url: str | None,
    name: str,
    *,
    sampler: BaseSampler,
    digests: Mapping[str, str],
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
        with _quiet():
            study = patience.ask(lambda: _opened(kept, name, sampler, fresh=fresh))
            mirror = None if storage_url is None else Mirror(kept, name, patience, on_lost)
    except (*storage.STORAGE_ERRORS, OSError) as error:
        raise storage.unusable(storage_url, error) from error
    if mirror is not None:
        study = optuna.load_study(study_name=name, storage=mirror, sampler=sampler)
    continuing.check(study, {"schema_version": str(SCHEMA_VERSION), **digests})
    return Record(study, mirror), _recover(study)


def _opened(kept: BaseStorage, name: str, sampler: BaseSampler, *, fresh: bool) -> optuna.Study:
    if fresh and name in optuna.get_all_study_names(kept):
        optuna.delete_study(study_name=name, storage=kept)
    return optuna.create_study(
        storage=kept, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
    )


def _recover(study: optuna.Study) -> int:
    """Finish the trials of processes that are dead: with their outcome if it was written, else as failed."""
    lost = 0
    for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        if not trial_owner.is_orphan(trial):
            continue
        outcome = trial.user_attrs.get("outcome")
        _tell(study, trial.number, outcome and outcome["value"])
        lost += outcome is None
    return lost


def _tell(study: optuna.Study, number: int, value: float | None) -> None:
    if value is None:
        study.tell(number, state=TrialState.FAIL)
    else:
        study.tell(number, value)


def _described(config: PipelineConfig, origin: AskedBy, predicted: float | None) -> dict[str, Any]:
    plain: dict[str, Any] = config.normalised().model_dump(mode="json")
    return {"config": plain, "key": config.key(), "origin": str(origin), "predicted": predicted}


def _row(trial: FrozenTrial) -> Row:
    attributes = trial.user_attrs
    outcome = attributes.get("outcome")
    return Row(
        number=trial.number,
        origin=AskedBy.parse(attributes.get("origin", "")),
        config=PipelineConfig.model_validate(attributes["config"]),
        key=attributes["key"],
        outcome=None if outcome is None else parse_outcome(outcome["json"]),
        value=trial.value,
        predicted=attributes.get("predicted"),
        feasible=not any(excess > 0 for excess in trial.constraints.values()),
        seconds=0.0 if outcome is None else outcome["seconds"],
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna from announcing each study on stderr; whoever uses Optuna beside autopipe keeps their own setting."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
