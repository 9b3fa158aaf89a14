"""A study in memory that is written to a storage as it grows, and goes on in memory alone once the storage fails.

The disk may fill up, somebody may hold the database locked, a server may go away: what has been measured stays, and the
search goes on. Which errors mean that, and how long they are waited for, is `autopipe.search.storage`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, TypeVar

from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from autopipe.search import storage
from autopipe.search.storage import Patience

_Answer = TypeVar("_Answer")


def _both(write: str) -> Callable[..., None]:
    """Return a method that writes to the storage, and then to the copy."""

    def method(self: Mirror, *values: Any, **named: Any) -> None:
        self._there(lambda kept: getattr(kept, write)(*values, **named))
        getattr(InMemoryStorage, write)(self, *values, **named)

    return method


class Mirror(InMemoryStorage):
    """One study of another storage, and a copy of it in memory that outlives it.

    Every write goes to the storage first; every look at the study or all trials takes up what other processes have
    added there.

    Args:
        kept: the storage.
        name: the study's, which is there already.
        patience: how long a storage that is locked is waited for.
        on_lost: told the reason when the storage has failed for good.
    """

    def __init__(
        self, kept: BaseStorage, name: str, patience: Patience, on_lost: Callable[[str], None] = lambda reason: None
    ) -> None:
        super().__init__()
        self.lost: str | None = None  # why nothing is written to the storage any more; None as long as it is
        self._kept: BaseStorage | None = kept
        self._patience, self._on_lost = patience, on_lost
        self._file = storage.file_of(kept)
        self._number = self._file.stat().st_ino if self._file is not None else None
        study = patience.ask(lambda: kept.get_study_id_from_name(name))
        self._max_study_id = study - 1  # both sides then count alike
        super().create_new_study(patience.ask(lambda: kept.get_study_directions(study)), name)
        for key, value in patience.ask(lambda: kept.get_study_user_attrs(study)).items():
            super().set_study_user_attr(study, key, value)
        for key, value in patience.ask(lambda: kept.get_study_system_attrs(study)).items():
            super().set_study_system_attr(study, key, value)
        self._take(study, patience.ask(lambda: kept.get_all_trials(study, deepcopy=False)))

    @property
    def is_local(self) -> bool:
        """Whether the storage is a file for processes of one machine, which have one clock."""
        return self._file is not None

    def settle(self) -> None:
        """Put everything into the one file, so that it can be copied; the storage stays usable."""
        if self._kept is not None:
            storage.settle(self._kept)

    # ------------------------------------------------------------ writes: there first, then here

    set_study_user_attr = _both("set_study_user_attr")
    set_study_system_attr = _both("set_study_system_attr")
    set_trial_param = _both("set_trial_param")
    set_trial_intermediate_value = _both("set_trial_intermediate_value")
    set_trial_user_attr = _both("set_trial_user_attr")
    set_trial_system_attr = _both("set_trial_system_attr")

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        made = self._there(lambda kept: kept.create_new_trial(study_id, template_trial))
        if made is not None:
            self._pull(study_id)  # others may have made some since, and numbers must stay the same on both sides
            if made in self._trial_id_to_study_id_and_number:
                return made
        return super().create_new_trial(study_id, template_trial)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        done = self._there(lambda kept: kept.set_trial_state_values(trial_id, state, values))
        if done is False:  # another process has begun it
            return False
        return super().set_trial_state_values(trial_id, state, values)

    # ------------------------------------------------------------ reads

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        for key, value in (self._there(lambda kept: kept.get_study_user_attrs(study_id)) or {}).items():
            super().set_study_user_attr(study_id, key, value)
        return super().get_study_user_attrs(study_id)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        self._pull(study_id)
        return super().get_all_trials(study_id, deepcopy, states)

    def _pull(self, study_id: int) -> None:
        self._take(study_id, self._there(lambda kept: kept.get_all_trials(study_id, deepcopy=False)) or ())

    def _take(self, study_id: int, trials: Sequence[FrozenTrial]) -> None:
        """Take up what others have written."""
        here = self._studies[study_id].trials
        for trial in trials:
            if trial.number >= len(here):
                self._max_trial_id = trial._trial_id - 1  # as there
                super().create_new_trial(study_id, trial)
            elif not here[trial.number].state.is_finished():
                self._set_trial(trial._trial_id, trial)
                self._update_cache(trial._trial_id, study_id)

    def _there(self, act: Callable[[BaseStorage], _Answer]) -> _Answer | None:
        """Do it in the storage too; None once there is none any more."""
        kept = self._kept
        if kept is None:
            return None
        try:
            if self._file is not None and self._gone():
                self._lose(f"`{self._file}` is gone")
                return None
            return self._patience.ask(lambda: act(kept))
        except storage.STORAGE_ERRORS as error:
            self._lose(storage.reason(error))
            return None

    def _gone(self) -> bool:
        """Whether the file was removed or replaced: SQLite would go on to write into one that nobody can open."""
        try:
            return self._file is not None and self._file.stat().st_ino != self._number
        except OSError:
            return True

    def _lose(self, reason: str) -> None:
        kept, self._kept, self.lost = self._kept, None, reason
        if kept is not None:
            storage.settle(kept)
        self._on_lost(reason)
