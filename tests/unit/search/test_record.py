"""The study as the record. That it outlives its process is tested in tests/integration/test_search_resume.py."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import optuna
import psutil
import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autopipe.core.config import ModelSetup
from autopipe.core.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.core.params import to_config
from autopipe.core.space import Space
from autopipe.errors import TrialError
from autopipe.search import record as record_module
from autopipe.search import trial_owner
from autopipe.search.opening import open_record
from autopipe.search.origin import AskedBy, Asker
from autopipe.search.record import Record
from tests.fakes.surface import Surface

CONFIG = to_config({"loader": "threads", "threads.workers": 2, "threads.queue_size": 8, "cache": "memory"})
FAILURE = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")


def opened(url: str | None, *, digests: Mapping[str, str] | None = None, fresh: bool = False) -> Record:
    sampler = optuna.samplers.RandomSampler(seed=0)
    return open_record(url, "tune", sampler=sampler, digests=digests or {"workload": "w1"}, fresh=fresh)[0]


def run_one(record: Record, space: Space) -> Measurement:
    record.enqueue(space, CONFIG, origin=AskedBy.parse("seed:rule"), predicted=123.0)
    outcome = Surface().measure(CONFIG)
    assert isinstance(outcome, Measurement)
    record.tell(record.ask(), outcome, value=5.0, constraints={"memory_bytes": -1.0}, seconds=2.0)
    return outcome


def test_a_trial_is_read_back_as_it_was_written(space: Space, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    outcome = run_one(opened(url), space)
    (row,) = opened(url).rows()
    assert (row.origin, row.predicted, row.value, row.seconds, row.feasible) == (
        AskedBy(Asker.SEED, "rule"),
        123.0,
        5.0,
        2.0,
        True,
    )
    assert row.config == CONFIG
    assert row.key == CONFIG.key()
    assert row.outcome == outcome
    assert row.block is None


def test_a_failure_and_a_trial_that_was_cut_off_are_told_apart(space: Space) -> None:
    record = opened(None)
    record.enqueue(space, CONFIG, origin=AskedBy.parse("proof:4"), predicted=None)
    record.tell(record.ask(), FAILURE, value=None, constraints={}, seconds=1.0)
    record.enqueue(space, CONFIG, origin=AskedBy.parse("proof:4"), predicted=None)
    record.give_up(record.ask())
    failed, cut_off = record.rows()
    assert (failed.outcome, failed.value, failed.block) == (FAILURE, None, 4)
    assert cut_off.outcome is None


def test_a_broken_limit_makes_a_trial_infeasible(space: Space) -> None:
    record = opened(None)
    record.enqueue(space, CONFIG, origin=AskedBy.parse("x"), predicted=None)
    record.tell(record.ask(), Surface().measure(CONFIG), value=5.0, constraints={"memory_bytes": 7.0}, seconds=1.0)
    assert not record.rows()[0].feasible


def test_what_is_refused_is_no_trial_that_ran() -> None:
    record = opened(None)
    record.refuse(record.ask(), "devices > 1: 0 GPUs")
    assert record.rows() == []
    assert record.study.trials[0].user_attrs["refused"] == "devices > 1: 0 GPUs"


def test_ceilings_are_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    ceilings = list(Surface().ceilings([ModelSetup()]))
    opened(url).keep_ceilings(ceilings)
    assert opened(url).ceilings() == ceilings


def test_a_study_of_another_workload_is_refused_with_both_sides(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    opened(url, digests={"workload": "w1", "hardware": "h"})
    with pytest.raises(TrialError, match=r"another workload \(workload: 'w1' there, 'w2' here\)") as caught:
        opened(url, digests={"workload": "w2", "hardware": "h"})
    assert caught.value.hint is not None
    assert "--fresh" in caught.value.hint


def test_a_study_of_another_machine_is_refused_with_what_differs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    opened(url, digests={"hardware": '{"cores": 2, "storage": "ext4"}'})
    with pytest.raises(TrialError, match=r"\(hardware: storage 'ext4' there, 'nfs' here\)"):
        opened(url, digests={"hardware": '{"cores": 2, "storage": "nfs"}'})


def test_fresh_begins_anew(space: Space, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    run_one(opened(url, digests={"workload": "w1"}), space)
    assert opened(url, digests={"workload": "w2"}, fresh=True).rows() == []


@pytest.mark.parametrize("url", ["sqlite:////no/such/folder/study.db", "nosuchbase://x", "what"])
def test_a_storage_that_cannot_be_used_is_named(url: str) -> None:
    with pytest.raises(TrialError, match="cannot be used") as caught:
        opened(url)
    assert url in caught.value.message


def test_the_trial_of_a_live_process_is_left_alone(space: Space, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    record = opened(url)
    record.enqueue(space, CONFIG, origin=AskedBy.parse("x"), predicted=None)
    record.ask()
    _, lost = open_record(url, "tune", sampler=record.study.sampler, digests={"workload": "w1"}, fresh=False)
    assert lost == 0


def test_optunas_own_verbosity_is_left_as_it_was() -> None:
    before = optuna.logging.get_verbosity()
    opened(None)
    assert optuna.logging.get_verbosity() == before


def begun(record: Record, space: Space, origin: str, participant: str) -> optuna.Trial:
    record.enqueue(space, CONFIG, origin=AskedBy.parse(origin), predicted=None)
    return record.ask(participant)


def test_of_two_participants_with_one_configuration_the_later_yields(space: Space) -> None:
    record = opened(None)
    first, second = (begun(record, space, "seed:guess", each) for each in ("one", "two"))
    assert (record.is_elsewhere(first), record.is_elsewhere(second)) == (False, True)
    record.refuse(second, "another participant of the study measures it")
    again = begun(record, space, "again:ceiling", "two")  # a second look is meant to be one
    assert not record.is_elsewhere(again)


def test_an_earlier_trial_for_which_something_is_being_chosen_has_to_be_waited_for(space: Space) -> None:
    record = opened(None)
    choosing = record.ask("one")
    trial = begun(record, space, "surrogate", "two")
    assert record.is_elsewhere(trial) is None
    record.describe(choosing, CONFIG, origin=AskedBy.parse("surrogate"), predicted=None)
    assert record.is_elsewhere(trial) is True
    assert record.is_elsewhere(choosing) is False
    record.give_up(choosing)
    assert record.is_elsewhere(trial) is False


def test_what_was_interrupted_in_a_shared_study_is_left_for_the_others(space: Space) -> None:
    record = opened(None)
    record.give_up(begun(record, space, "proof:0", "a"), again=True)
    assert not record.waiting()
    record.give_up(begun(record, space, "baseline:fit", "a"), again=True)
    trial = record.ask("b")
    assert trial.user_attrs["origin"] == "baseline:fit"
    record.tell(trial, FAILURE, value=None, constraints={}, seconds=1.0)
    record.give_up(trial, again=True)  # it was over
    assert not record.waiting()


def test_what_a_dead_participant_was_running_is_run_again_and_its_block_of_a_confirmation_is_not(space: Space) -> None:
    record = opened(None)
    lost, block, other = (
        begun(record, space, origin, who) for origin, who in (("baseline:fit", "a"), ("proof:0", "a"), ("x", "b"))
    )
    assert record.recover() == []  # their process, this one, is alive
    cut = record.recover({"a"}, again=True)
    assert [each.number for each in cut] == [lost.number, block.number]
    assert record.under_way() == {CONFIG.key()}
    trial = record.ask("b")
    assert (trial.number, trial.user_attrs["origin"]) == (other.number + 1, "baseline:fit")
    assert not record.waiting()


def test_a_clock_that_is_set_meanwhile_makes_no_process_dead(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    record = opened(None)
    begun(record, space, "x", "a")
    later = psutil.Process().create_time() + 3600.0
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: later)
    assert record.recover() == []


def test_an_outcome_comes_too_late_for_a_trial_that_was_given_back(space: Space) -> None:
    record = opened(None)
    trial = begun(record, space, "x", "a")
    record.recover({"a"})
    record.tell(trial, FAILURE, value=None, constraints={}, seconds=1.0)
    assert [row.outcome for row in record.rows()] == [None]
    record.give_up(trial)


@pytest.mark.parametrize("year", [2000, 2100])  # by the clock of whoever began it, in whichever time zone
def test_in_a_shared_study_ones_own_clock_says_how_long_a_trial_has_had_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, year: int
) -> None:
    now = 100.0
    monkeypatch.setattr(record_module, "time", SimpleNamespace(monotonic=lambda: now))
    record = opened(f"journal:///{tmp_path}/study.log")
    record.study.add_trial(ownerless(year))
    assert record.recover() == []
    now += trial_owner.GRACE_SECONDS
    assert record.recover() == []
    now += 1.0
    assert [each.number for each in record.recover()] == [0]


def test_in_a_study_of_ones_own_a_trial_without_an_owner_is_old_when_it_is_opened(tmp_path: Path) -> None:
    record = opened(f"sqlite:///{tmp_path}/study.db")
    record.study.add_trial(ownerless(2000))
    assert [each.number for each in record.recover()] == [0]


def ownerless(year: int) -> optuna.trial.FrozenTrial:
    trial = optuna.trial.create_trial(state=TrialState.RUNNING)
    trial.datetime_start = datetime(year, 1, 1)
    return trial


def test_who_is_given_up_before_it_owned_its_trial_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record = opened(None)
    ask, finished = record.study.ask, list[int]()

    def slow() -> optuna.Trial:
        trial = ask()
        if not finished:
            finished.append(trial.number)
            record.study.tell(trial, state=TrialState.FAIL)
        return trial

    monkeypatch.setattr(record.study, "ask", slow)
    trial = record.ask("one")
    assert (finished, trial.number) == ([0], 1)
    assert trial.user_attrs["owner"]["participant"] == "one"


def test_of_two_survivors_the_second_leaves_a_trial_to_the_first(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    record = opened(None)
    lost = begun(record, space, "seed:guess", "a")

    def overtaken(*_: object) -> bool:
        record.study.tell(lost, state=TrialState.FAIL)
        return True

    monkeypatch.setattr(trial_owner, "is_orphan", overtaken)
    assert record.recover({"a"}, again=True) == []
    assert not record.waiting()


def test_a_journal_on_a_disk_that_is_full_leaves_the_study_in_memory(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = opened(f"journal:///{tmp_path}/study.log")

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalFileBackend, "append_logs", full)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert "No space left on device" in str(record.lost)
