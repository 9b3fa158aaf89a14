from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage

from autopipe.errors import TrialError
from autopipe.search import participants
from autopipe.search.participants import ALONE, SILENT_LOOKS, Participants, State, joined
from autopipe.search.storage import Patience, open_storage

PATIENCE = Patience(seconds=0.0)


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody beat by itself: how long something takes must not count here."""
    monkeypatch.setattr(participants, "BEAT_SECONDS", 3600.0)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"journal:///{tmp_path}/study.log"
    optuna.create_study(storage=open_storage(url), study_name="s")
    return url


@pytest.fixture
def comes(url: str) -> Iterator[Callable[[], Participants]]:
    came: list[Participants] = []

    def come() -> Participants:
        came.append(Participants(url, "s", PATIENCE))
        return came[-1]

    yield come
    for each in came:
        each.leave()


def beat(*those: Participants, times: int = SILENT_LOOKS + 1) -> None:
    """Let time go by, in which those beat, and who is not among them does not."""
    for _ in range(times):
        for each in those:
            each._beat()


def test_the_first_coordinates_until_it_leaves(comes: Callable[[], Participants]) -> None:
    first, second = comes(), comes()
    assert (first.coordinates(), second.coordinates()) == (True, False)
    assert [each.id for each in first.others()] == [second.me]
    first.leave()
    assert second.coordinates()
    assert second.others() == []


def test_who_has_left_may_not_have_been_able_to_give_its_trial_back(comes: Callable[[], Participants]) -> None:
    first, second = comes(), comes()
    first.leave()
    second.coordinates()
    assert second.lost() == {first.me}
    second.leave()
    first.coordinates()
    assert first.lost() == {second.me}  # and never itself


def test_who_rests_is_there_still(comes: Callable[[], Participants]) -> None:
    first, second = comes(), comes()
    second.rest()
    first.coordinates()
    assert [each.state for each in first.others()] == [State.WAITS]


def test_who_is_silent_is_lost_and_learns_of_it_when_it_comes_back(comes: Callable[[], Participants]) -> None:
    first, second = comes(), comes()
    beat(second, times=SILENT_LOOKS)
    assert not second.coordinates()
    beat(second)
    assert second.lost() == {first.me}
    assert second.coordinates()
    assert second.others() == []
    second.require_here()
    first._beat()
    with pytest.raises(TrialError, match="the other participants of the study have taken over its trials"):
        first.require_here()


def test_who_beats_is_not_lost(comes: Callable[[], Participants]) -> None:
    first, second = comes(), comes()
    beat(first, second, times=3 * SILENT_LOOKS)
    assert (first.lost(), second.lost()) == (frozenset(), frozenset())


def test_a_storage_that_is_away_makes_nobody_lost(
    comes: Callable[[], Participants], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = comes(), comes()
    beat(first, second, times=2)
    with monkeypatch.context() as away:
        away.setattr(JournalStorage, "get_study_user_attrs", lambda *_: fail())
        for each in (first, second) * SILENT_LOOKS:
            with pytest.raises(StorageInternalError):  # which the thread that beats takes for a pause
                each._beat()
    beat(first, second, times=2)
    assert (first.lost(), second.lost()) == (frozenset(), frozenset())


def test_they_beat_by_themselves(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participants, "BEAT_SECONDS", 0.01)
    with joined(url, "s", PATIENCE) as first:
        assert isinstance(first, Participants)
        with joined(url, "s", PATIENCE) as second:
            while not (second.coordinates() or second.others()[0].beats > 1):
                time.sleep(0.01)


@pytest.mark.parametrize("error", [StorageInternalError("no connection"), OSError(errno.ESTALE, "Stale file handle")])
def test_whose_storage_is_gone_for_good_goes_on_alone(
    comes: Callable[[], Participants], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    _, second = comes(), comes()
    with monkeypatch.context() as gone:
        gone.setattr(JournalStorage, "get_study_user_attrs", lambda *_: fail(error))
        assert second.coordinates()
    assert second.coordinates()


def fail(error: Exception | None = None) -> None:
    raise error or StorageInternalError("no connection")


def test_without_a_storage_nobody_else_is_there() -> None:
    with joined(None, "s", PATIENCE) as others:
        assert others is ALONE
        assert others.coordinates()
