"""The study of a search, in memory and in a storage, by one process and by several that share it.

That it outlives its process is tested in tests/integration/test_search_resume.py.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from autopipe.errors import TrialError
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, to_config
from autopipe.pipeline.space import Space
from autopipe.search import storage, study
from autopipe.search.record import Record, best_elsewhere, open_record
from autopipe.search.settings import Settings
from autopipe.search.trials import AskedBy, Asker
from tests.fakes.surface import Surface
from tests.unit.search.conftest import some

CONFIG = to_config({"loader": "threads", "threads.workers": 2, "threads.queue_size": 8, "cache": "memory"})
FAILURE = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")


def opened(
    url: str | None,
    *,
    digests: Mapping[str, str] | None = None,
    fresh: bool = False,
    stale: list[FrozenTrial] | None = None,
) -> Record:
    """Open a study; with `stale`, it is a shared one, and trials of processes that died are added there."""
    sampler = optuna.samplers.RandomSampler(seed=0)
    shared = None if stale is None else stale.append
    return open_record(url, "tune", sampler=sampler, digests=digests or {"workload": "w1"}, fresh=fresh, shared=shared)[
        0
    ]


def trials(url: str) -> list[FrozenTrial]:
    return optuna.load_study(study_name="tune", storage=url).trials


def asked(record: Record) -> optuna.Trial:
    trial = some(record.ask())
    return trial


def run_one(record: Record, space: Space) -> Measurement:
    record.enqueue(space, CONFIG, origin=AskedBy.parse("seed:rule"), predicted=123.0)
    outcome = Surface().measure(CONFIG)
    assert isinstance(outcome, Measurement)
    trial = asked(record)
    assert record.begin(trial)
    record.tell(trial, outcome, value=5.0, constraints={"memory_bytes": -1.0}, seconds=2.0)
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
    record.tell(asked(record), FAILURE, value=None, constraints={}, seconds=1.0)
    record.enqueue(space, CONFIG, origin=AskedBy.parse("proof:4"), predicted=None)
    record.give_up(asked(record))
    failed, cut_off = record.rows()
    assert (failed.outcome, failed.value, failed.block) == (FAILURE, None, 4)
    assert cut_off.outcome is None


def test_a_broken_limit_makes_a_trial_infeasible(space: Space) -> None:
    record = opened(None)
    record.enqueue(space, CONFIG, origin=AskedBy.parse("x"), predicted=None)
    record.tell(asked(record), Surface().measure(CONFIG), value=5.0, constraints={"memory_bytes": 7.0}, seconds=1.0)
    assert not record.rows()[0].feasible


def test_what_is_refused_is_no_trial_that_ran() -> None:
    record = opened(None)
    record.refuse(asked(record), "devices > 1: 0 GPUs")
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


def test_optunas_own_verbosity_is_left_as_it_was() -> None:
    before = optuna.logging.get_verbosity()
    opened(None)
    assert optuna.logging.get_verbosity() == before


def begun(record: Record, space: Space, origin: str) -> optuna.Trial:
    record.enqueue(space, CONFIG, origin=AskedBy.parse(origin), predicted=None)
    trial = asked(record)
    assert record.begin(trial)
    with record.alive(trial):
        return trial


def test_a_trial_whose_outcome_was_written_before_its_process_died_is_finished_with_it(
    space: Space, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"

    def dies(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(optuna.storages.RDBStorage, "set_trial_state_values", dies)
        with pytest.raises(KeyboardInterrupt):
            run_one(opened(url), space)
    assert [each.state for each in trials(url)] == [TrialState.RUNNING]
    assert [(row.value, row.seconds) for row in opened(url).rows()] == [(5.0, 2.0)]
    assert [each.state for each in trials(url)] == [TrialState.COMPLETE]


def test_a_trial_that_another_process_took_for_dead_keeps_its_outcome(space: Space, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    record = opened(url)
    trial = begun(record, space, "x")
    opened(url)  # as a container does that does not see the process of the first
    record.tell(trial, FAILURE, value=None, constraints={}, seconds=1.0)
    assert [row.outcome for row in opened(url).rows()] == [None, FAILURE]
    assert record.lost is None


def test_a_study_that_is_deleted_meanwhile_costs_no_result(space: Space, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    record = opened(url)
    optuna.delete_study(study_name="tune", storage=url)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost is not None


# ---------------------------------------------------------------- a journal


BROKEN = [b'{"op_code": 5, "wor{"op_code": 5}', b"\xff\xfe", b"17", b'{"note": "by hand"}', b"\0" * 8]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with a study in it."""
    path = tmp_path / "study.log"
    opened(f"journal:///{path}")
    return path


def break_off(journal: Path, line: bytes) -> int:
    """Write a line that is no record behind the others, as a write that was cut off and one after it leave one."""
    before = journal.read_bytes()
    journal.write_bytes(before + line + b"\n" + before.splitlines(keepends=True)[-1])
    return len(before.splitlines()) + 1


@pytest.mark.parametrize("line", BROKEN, ids=repr)
def test_a_journal_that_breaks_in_a_search_leaves_the_study_in_memory(journal: Path, space: Space, line: bytes) -> None:
    record = opened(f"journal:///{journal}")
    number = break_off(journal, line)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost == f"line {number} of the journal `{journal}` is no record of Optuna's"


@pytest.mark.parametrize("line", BROKEN[:2], ids=repr)
def test_a_broken_journal_cannot_be_opened_and_the_line_is_named(journal: Path, line: bytes) -> None:
    number = break_off(journal, line)
    with pytest.raises(TrialError, match=rf"cannot be used: line {number} of the journal `{journal}` is no record"):
        storage.open_storage(f"journal:///{journal}")


def test_a_last_line_that_is_still_being_written_breaks_nothing(journal: Path) -> None:
    record = opened(f"journal:///{journal}")
    with journal.open("ab") as file:
        file.write(b'{"op_code": 5, "wor')
    record.take_up()
    assert record.rows() == []
    assert record.lost is None


def test_a_lock_that_another_takes_away_leaves_the_study_in_memory(
    journal: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = opened(f"journal:///{journal}")
    monkeypatch.setattr(os, "fsync", lambda _: Path(f"{journal}.lock").unlink())
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost == f"another process took or removed the lock of the journal `{journal}`"


def test_a_journal_on_a_disk_that_is_full_leaves_the_study_in_memory(
    journal: Path, space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = opened(f"journal:///{journal}")

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JournalFileBackend, "append_logs", full)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert "No space left on device" in str(record.lost)


# ---------------------------------------------------------------- a study that several share


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a trial have one heartbeat, and be stale a second after it."""
    monkeypatch.setattr(storage, "HEARTBEAT_SECONDS", 3600)
    monkeypatch.setattr(storage, "GRACE_SECONDS", 1)


def test_of_two_that_begin_one_configuration_the_later_yields_and_has_the_outcome(space: Space, url: str) -> None:
    first, second = opened(url, stale=[]), opened(url, stale=[])
    trial = begun(first, space, "seed:guess")
    assert second.under_way() == {CONFIG.key(): socket.gethostname()}
    second.enqueue(space, CONFIG, origin=AskedBy.parse("seed:guess"), predicted=None)
    later = asked(second)
    assert not second.begin(later)
    assert begun(second, space, "again:ceiling").number == later.number + 1  # a second look is meant to be one
    first.tell(trial, FAILURE, value=None, constraints={}, seconds=1.0)
    assert second.under_way() == {}
    assert [row.outcome for row in second.rows()] == [FAILURE]


@pytest.mark.usefixtures("_silent")
@pytest.mark.parametrize("origin", ["baseline:fit", "proof:0"])
def test_what_a_dead_process_was_running_is_run_again_once_and_its_block_of_a_proof_is_not(
    space: Space, url: str, origin: str
) -> None:
    stale: list[FrozenTrial] = []
    dead, one, other = opened(url, stale=[]), opened(url, stale=stale), opened(url, stale=stale)
    lost = begun(dead, space, origin)
    while one.under_way() or not trials(url)[0].state.is_finished():
        time.sleep(0.1)
    other.take_up()
    assert [each.number for each in stale] == [0]
    assert one.waiting() is other.waiting() is (origin == "baseline:fit")
    if one.waiting():
        taken = asked(one)
        assert other.ask() is None
        assert taken.user_attrs["origin"] == origin
        assert one.begin(taken)
        one.tell(taken, FAILURE, value=None, constraints={}, seconds=1.0)
        other.take_up()
        assert [row.outcome for row in other.rows()] == [None, FAILURE]
        assert other.rows()[1].config == CONFIG
    dead.tell(lost, Surface().measure(CONFIG), value=5.0, constraints={}, seconds=1.0)  # it was only silent
    assert [each.value for each in trials(url) if each.value is not None] == [5.0]


@pytest.mark.usefixtures("_silent")
def test_a_trial_has_heartbeats_as_long_as_it_runs(space: Space, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "HEARTBEAT_SECONDS", 1)
    monkeypatch.setattr(storage, "GRACE_SECONDS", 3)
    stale: list[FrozenTrial] = []
    alive, other = opened(url, stale=[]), opened(url, stale=stale)
    trial = begun(alive, space, "seed:guess")
    began = time.monotonic()
    with alive.alive(trial):
        while time.monotonic() < began + 4.5:
            other.take_up()
            time.sleep(0.5)
    assert (stale, len(other.under_way())) == ([], 1)
    alive.give_up(trial)


def test_what_was_interrupted_in_a_shared_study_is_left_for_the_others(space: Space, url: str) -> None:
    first, second = opened(url, stale=[]), opened(url, stale=[])
    first.give_up(begun(first, space, "proof:0"), again=True)
    second.take_up()
    assert not second.waiting()
    first.give_up(begun(first, space, "baseline:fit"), again=True)
    trial = asked(second)
    assert trial.user_attrs["origin"] == "baseline:fit"
    assert second.begin(trial)
    second.tell(trial, FAILURE, value=None, constraints={}, seconds=1.0)
    second.give_up(trial, again=True)  # it was over
    second.take_up()
    assert not second.waiting()


def test_each_machine_has_a_proof_of_its_own(space: Space, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (ceiling,) = Surface().ceilings([ModelSetup()])
    for host in ("one", "another"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        record = opened(url, stale=[])
        assert (record.rows(), record.block_ceilings()) == ([], {})
        record.tell(begun(record, space, "proof:0"), FAILURE, value=None, constraints={}, seconds=1.0)
        record.keep_block_ceiling(0, ceiling)
    again = opened(url, stale=[])
    assert ([row.number for row in again.rows()], again.block_ceilings()) == ([0], {0: ceiling})
    assert len(trials(url)) == 2


def test_what_bounds_a_space_is_what_the_first_has_measured(url: str) -> None:
    first, second = opened(url, stale=[]), opened(url, stale=[])
    facts = Surface().facts()
    measured = first.bounds(dataclasses.replace(facts, reads_at_once=4))
    assert second.bounds(dataclasses.replace(facts, reads_at_once=8)) == measured


def test_the_best_of_each_study_of_the_workload_is_found_and_of_no_other(space: Space, tmp_path: Path) -> None:
    url = f"journal:///{tmp_path}/study.log"
    best = {}
    for name, workload, quirks in (("here", "w", 1), ("there", "w", 5), ("other", "v", 3)):
        surface = Surface(cores=4, model_rate=60_000.0, quirks=quirks, seed=1, noise=0.01)
        settings = Settings(
            trials=8,
            blocks=(0, 0),
            study_name=name,
            storage=url,
            digests={"workload": workload},
            clock=surface.clock,
        )
        ended = study.run(space, surface, surface.facts(), settings)
        values = {row.key: row.value for row in ended.rows if row.value is not None and row.feasible}
        best[name] = max(values, key=lambda key: values[key])
    assert [config.key() for config in best_elsewhere(url, "w")] == list(dict.fromkeys([best["there"], best["here"]]))
    assert [config.key() for config in best_elsewhere(url, "v")] == [best["other"]]


def test_no_storage_and_an_empty_one_hold_nothing(tmp_path: Path) -> None:
    assert best_elsewhere(None, "w") == []
    assert best_elsewhere(f"journal:///{tmp_path}/study.log", "w") == []
