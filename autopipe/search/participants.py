"""Those who share a study: who is there, who coordinates, and who has died.

Each keeps an attribute of its own in the study, in which it counts up every few seconds; who has not for so many looks
is lost. So no clocks are compared, and a storage that is away for a while makes nobody lost. Optuna's heartbeat is a
part of `study.optimize` and of its own databases, whereas a search asks and tells, and a study may be in a journal.
What participants share out is `autopipe.search.together`'s.
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, TypeVar

import pydantic

from autopipe.errors import TrialError
from autopipe.search import storage
from autopipe.search.storage import Patience

BEAT_SECONDS = 5.0
SILENT_LOOKS = 6
"""After so many looks in a row, one each beat, in which nothing was heard of a participant, it is lost."""

_HERE, _LOST = "participant:", "lost:"

_Answer = TypeVar("_Answer")


class State(enum.StrEnum):
    """What a participant does."""

    SEARCHES = "searches"
    WAITS = "waits"
    """For the others: it begins no trial any more."""
    LEFT = "left"


class Participant(pydantic.BaseModel):
    """One of those who share a study."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    id: str  # its own, whatever machine or container it runs in
    number: int  # in the order in which they came; of two with one number the lower `id` is the first
    host: str  # the machine's name, for people
    process: int  # its number there, for people
    beats: int = 0  # how often it has counted up
    state: State = State.SEARCHES  # what it does

    def __str__(self) -> str:
        return f"{self.host} (process {self.process})"


class Alone:
    """Nobody else: the study is this search's."""

    me: str | None = None

    def coordinates(self) -> bool:
        """Whether it falls to this one to do what is done once: measure the model alone, and confirm."""
        return True

    def others(self) -> list[Participant]:
        """Return the others that are there, in the order in which they came."""
        return []

    def require_here(self) -> None:
        """Raise a TrialError if the others took this one for dead, and have its trials."""


class Participants:
    """This search among those that share its study. What they see of each other is at most a beat old."""

    def __init__(self, url: str, study_name: str, patience: Patience) -> None:
        self._storage = storage.open_storage(url, patience)  # one of its own, so that two threads never share one
        self._patience = patience
        self._study = patience.ask(lambda: self._storage.get_study_id_from_name(study_name))
        self._heard: dict[str, tuple[int, int]] = {}  # beats, and in how many looks they have been the same
        self._lock, self._over = threading.RLock(), threading.Event()
        self._cut_off = self._taken_for_dead = False
        known, self._lost = self._read()
        number = 1 + max((each.number for each in known.values()), default=0)
        self._self = Participant(
            id=uuid.uuid4().hex[:12], number=number, host=socket.gethostname(), process=os.getpid()
        )
        self._patience.ask(self._write)
        self._known, self._lost = self._read()
        self._thread = threading.Thread(target=self._beat_on, name="autopipe-participant", daemon=True)
        self._thread.start()

    @property
    def me(self) -> str:
        """The id of this one."""
        return self._self.id

    @property
    def host(self) -> str:
        """The name of this machine, for people."""
        return self._self.host

    def coordinates(self) -> bool:
        """Whether it falls to this one: it is the first of those that are there."""
        self._look()
        others = [] if self._cut_off else self.others()
        return all((self._self.number, self._self.id) < (each.number, each.id) for each in others)

    def others(self) -> list[Participant]:
        """Return the others that are there, in the order in which they came."""
        here = [each for each in self._known.values() if each.state is not State.LEFT and each.id not in self._lost]
        return sorted((each for each in here if each.id != self.me), key=lambda each: (each.number, each.id))

    def lost(self) -> frozenset[str]:
        """Return the ids of those that have died, or left: it may be without the storage to give their trial back."""
        left = {each.id for each in self._known.values() if each.state is State.LEFT}
        return (self._lost | left) - {self.me}

    def rest(self) -> None:
        """Tell the others that this one begins no trial any more."""
        with self._lock:
            self._self = self._self.model_copy(update={"state": State.WAITS})
            self._unless_cut_off(self._write)

    def require_here(self) -> None:
        """Do nothing, unless the others took this one for dead.

        Raises:
            TrialError: they did, and have its trials.
        """
        if self._taken_for_dead:
            raise TrialError(
                f"Nothing was heard of this process for {BEAT_SECONDS * SILENT_LOOKS:.0f} s, so the other participants "
                "of the study have taken over its trials.",
                hint="The same command joins again, or fetches the result.",
            )

    def leave(self) -> None:
        """Tell the others that this one is gone."""
        self._over.set()
        self._thread.join()
        self._self = self._self.model_copy(update={"state": State.LEFT})
        with contextlib.suppress(*storage.STORAGE_ERRORS):  # they notice anyhow, a little later
            self._write()
        storage.settle(self._storage)

    # ------------------------------------------------------------ the attributes

    def _look(self) -> None:
        with self._lock:
            self._known, self._lost = self._unless_cut_off(self._read) or (self._known, self._lost)

    def _unless_cut_off(self, act: Callable[[], _Answer]) -> _Answer | None:
        """Do it unless the storage has failed for good: then this one goes on alone."""
        try:
            return None if self._cut_off else self._patience.ask(act)
        except storage.STORAGE_ERRORS:
            self._cut_off = True
            return None

    def _beat_on(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with contextlib.suppress(*storage.STORAGE_ERRORS), self._lock:
                self._beat()
        storage.settle(self._storage)  # the connection of this thread

    def _beat(self) -> None:
        self._known, self._lost = self._read()
        self._taken_for_dead = self.me in self._lost
        self._self = self._self.model_copy(update={"beats": self._self.beats + 1})
        self._write()
        for each in self.others():
            beats, looks = self._heard.get(each.id, (-1, 0))
            looks = looks + 1 if beats == each.beats else 0
            self._heard[each.id] = each.beats, looks
            if looks >= SILENT_LOOKS:
                self._storage.set_study_user_attr(self._study, _LOST + each.id, self.me)

    def _read(self) -> tuple[dict[str, Participant], frozenset[str]]:
        attributes = self._storage.get_study_user_attrs(self._study)
        known = [Participant.model_validate(value) for key, value in attributes.items() if key.startswith(_HERE)]
        lost = frozenset(key.removeprefix(_LOST) for key in attributes if key.startswith(_LOST))
        return {each.id: each for each in known}, lost

    def _write(self) -> None:
        self._storage.set_study_user_attr(self._study, _HERE + self.me, self._self.model_dump(mode="json"))


Others: TypeAlias = Alone | Participants
ALONE: Final = Alone()


@contextlib.contextmanager
def joined(url: str | None, study_name: str, patience: Patience) -> Iterator[Others]:
    """Take part in a study while the block runs; without a URL, alone."""
    if url is None:
        yield ALONE
        return
    participants = Participants(url, study_name, patience)
    try:
        yield participants
    finally:
        participants.leave()
