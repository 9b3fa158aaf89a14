"""The Optuna study as the record of a search: what was tried, what came of it, and how to go on after a crash.

Each trial carries its configuration, its outcome (raw windows included) and who asked for it as user attributes;
nothing that a search knows lives only in memory. What to try next, and what the figures mean, is decided elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from autopipe.core.ceiling import Ceiling
from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Facts
from autopipe.core.outcome import Measurement, TrialFailure
from autopipe.core.params import from_config
from autopipe.core.space import MEASURED_BOUNDS, Space
from autopipe.search import suggest, trial_owner
from autopipe.search.mirror import Mirror
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.row import Row
from autopipe.search.stopping import Reason, Stop

CONCLUSION = "conclusion"
"""The attribute of a shared study that has ended."""

_DESCRIBED = ("config", "key", "origin", "predicted")


class Record:
    """A study, opened; its trials are read once and then kept up to date."""

    def __init__(self, study: optuna.Study, mirror: Mirror | None = None) -> None:
        self.study = study
        self._mirror = mirror
        self._rows: dict[int, Row] = {}
        self._ownerless: dict[int, float] = {}  # when trials without an owner were first seen, in monotonic seconds

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
            known = trial.number in self._rows or "config" not in trial.user_attrs or "refused" in trial.user_attrs
            if trial.state.is_finished() and not known:
                self._rows[trial.number] = Row.of(trial)
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

    def stop(self) -> Stop | None:
        """Return why the search is over for all who share the study; None as long as it goes on."""
        told = self.study.user_attrs.get("stop")
        return None if told is None else Stop(reason=Reason(told["reason"]), message=told["message"])

    def keep_stop(self, stop: Stop) -> None:
        """Tell those who share the study why the search is over."""
        self.study.set_user_attr("stop", {"reason": str(stop.reason), "message": stop.message})

    def conclusion(self) -> str | None:
        """Return how a shared study ended, as JSON; None as long as it has not."""
        kept: str | None = self.study.user_attrs.get(CONCLUSION)
        return kept

    def keep_conclusion(self, kept: str) -> None:
        """Keep how a shared study ended."""
        self.study.set_user_attr(CONCLUSION, kept)

    def enqueue(self, space: Space, config: PipelineConfig, *, origin: AskedBy, predicted: float | None) -> None:
        """Let `config` be one of the next trials."""
        params = suggest.fitting(space, from_config(config))
        self.study.enqueue_trial(params, user_attrs=_described(config, origin, predicted))

    def ask(self, participant: str | None = None) -> optuna.Trial:
        """Begin a trial, and note which process it belongs to, and which participant where others share the study."""
        while True:
            # A process that was held up before it noted itself has been taken for dead, and its trial finished.
            with suppress(UpdateFinishedTrialError):
                trial = self.study.ask()
                trial.set_user_attr("owner", trial_owner.me(participant))
                return trial

    def under_way(self) -> set[str]:
        """Return the keys of what is being measured, or about to be."""
        states = [TrialState.RUNNING, TrialState.WAITING]
        begun = self.study.get_trials(deepcopy=False, states=states)
        return {str(each.user_attrs["key"]) for each in begun if "key" in each.user_attrs}

    def is_elsewhere(self, trial: optuna.Trial) -> bool | None:
        """Whether another participant has begun, or ended, an earlier trial of the same configuration for as much.

        The later of the two yields. None as long as that cannot be told: as there is an earlier trial for which a
        configuration is being chosen.
        """
        if not _is_once(trial.user_attrs):
            return False
        trials = self.study.get_trials(deepcopy=False)
        earlier = [each for each in trials if each.number < trial.number and _is_once(each.user_attrs)]
        same = [each for each in earlier if each.user_attrs.get("key") == trial.user_attrs["key"]]
        if any(not each.state.is_finished() or "outcome" in each.user_attrs for each in same):
            return True
        undecided = any(each.state is TrialState.RUNNING and "key" not in each.user_attrs for each in earlier)
        return None if undecided else False

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
        """Write down what came of a trial. The outcome goes first: if this process dies in between, nothing is lost.

        Where the others took this process for dead meanwhile, the trial is not its own any more, and stays as it is.
        """
        with suppress(UpdateFinishedTrialError):
            for name, excess in constraints.items():
                trial.set_constraint(name, excess)
            trial.set_user_attr("outcome", {"value": value, "seconds": seconds, "json": outcome.model_dump_json()})
            _finished(self.study, trial.number, value)

    def recover(self, lost: Collection[str] = (), *, again: bool = False) -> list[FrozenTrial]:
        """Finish the trials of processes that are dead: with their outcome if it was written, else as failed.

        Args:
            lost: participants that are dead.
            again: let somebody run again what was cut off, except for a block of the confirmation run.

        Returns:
            The trials that were cut off.
        """
        cut = []
        for trial in self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
            if not trial_owner.is_orphan(trial, self._ownerless_seconds(trial), lost):
                continue
            outcome = trial.user_attrs.get("outcome")
            if not _finished(self.study, trial.number, outcome and outcome["value"]):
                continue  # another participant has just done this
            if outcome is None:
                cut.append(trial)
                if again:
                    self._run_again(trial)
        return cut

    def _run_again(self, trial: FrozenTrial) -> None:
        """Let somebody run what was cut off, if a study needs it once."""
        if "config" in trial.user_attrs and _is_once(trial.user_attrs):
            params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
            self.study.enqueue_trial(params, user_attrs={name: trial.user_attrs[name] for name in _DESCRIBED})

    def _ownerless_seconds(self, trial: FrozenTrial) -> float:
        """Return for how long a trial is known to have had no owner.

        In a shared study others wrote when it began, by clocks and in time zones of their own: there it counts from
        when it was first seen here.
        """
        if "owner" in trial.user_attrs:
            return 0.0
        if trial.datetime_start is None:
            return math.inf
        if self._mirror is None or self._mirror.is_local:
            return (datetime.now() - trial.datetime_start).total_seconds()
        now = time.monotonic()
        return now - self._ownerless.setdefault(trial.number, now)

    def waiting(self) -> bool:
        """Whether a trial is enqueued: by somebody who died before running it, or by the user's own code."""
        return bool(self.study.get_trials(deepcopy=False, states=[TrialState.WAITING]))

    def give_up(self, trial: optuna.Trial, *, again: bool = False) -> None:
        """Mark a trial that was cut off, unless it had been told already.

        Args:
            trial: this process's own.
            again: let somebody else run it, except for a block of the confirmation run.
        """
        known = self.study.get_trials(deepcopy=False)[trial.number]
        was_over = known.state.is_finished()
        with suppress(UpdateFinishedTrialError):
            self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            if again and not was_over:
                self._run_again(known)

    def refuse(self, trial: optuna.Trial, reason: str) -> None:
        """Mark a trial that asked for what cannot run."""
        trial.set_user_attr("refused", reason)
        trial.set_constraint("feasible", 1.0)
        self.study.tell(trial, state=TrialState.PRUNED)


def _finished(study: optuna.Study, number: int, value: float | None) -> bool:
    """Finish a trial, and return whether another process had not done so before."""
    try:
        study.tell(number, value, state=TrialState.FAIL if value is None else None)
    except (UpdateFinishedTrialError, ValueError):  # the latter where Optuna saw it before it wrote
        return False
    return True


def _described(config: PipelineConfig, origin: AskedBy, predicted: float | None) -> dict[str, Any]:
    values = (config.model_dump(mode="json"), config.key(), str(origin), predicted)
    return dict(zip(_DESCRIBED, values, strict=True))


def _is_once(attributes: Mapping[str, Any]) -> bool:
    """Whether a trial is one that a study needs once, and no second look or block."""
    return AskedBy.parse(str(attributes.get("origin", ""))).asker not in (Asker.AGAIN, Asker.PROOF)
