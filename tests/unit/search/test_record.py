"""The study of a search, in memory and in a storage, by one process and by several that share it.

That it outlives its process is tested in tests/integration/test_search_resume.py.
"""

from __future__ import annotations

import dataclasses
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import optuna
import pytest
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autopipe.errors import TrialError
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, to_config
from autopipe.pipeline.space import Space
from autopipe.search import storage
from autopipe.search.record import Record, best_elsewhere, open_record
from autopipe.search.trials import AskedBy, Asker
from tests.fakes.surface import Surface
from tests.unit.search.conftest import loader_bound, run, some

CONFIG = to_config({"loader": "threads", "threads.workers": 2, "threads.queue_size": 8, "keep": "memory"})
FAILURE = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")


def opened(url: str | None, *, fresh: bool = False, stale: list[FrozenTrial] | None = None, **digests: str) -> Record:
    """Open a study; with `stale`, it is a shared one, and trials of processes that died are added there."""
    sampler, digests = optuna.samplers.RandomSampler(seed=0), digests or {"workload": "w1"}
    shared = None if stale is None else stale.append
    return open_record(url, "tune", sampler=sampler, digests=digests, fresh=fresh, shared=shared)[0]


def trials(url: str) -> list[FrozenTrial]:
    return optuna.load_study(study_name="tune", storage=url).trials


def begun(record: Record, space: Space, origin: str, predicted: float | None = None) -> optuna.Trial:
    record.enqueue(space, CONFIG, origin=AskedBy.parse(origin), predicted=predicted)
    trial = some(record.ask())
    assert record.begin(trial)
    with record.alive(trial):
        return trial


def raises(error: BaseException) -> Callable[..., NoReturn]:
    def act(*_: object) -> NoReturn:
        raise error

    return act


def fail(record: Record, trial: optuna.Trial) -> None:
    record.tell(trial, FAILURE, value=None, constraints={}, seconds=1.0)


def run_one(record: Record, space: Space, excess: float = -1.0) -> Measurement:
    outcome = Surface().measure(CONFIG)
    assert isinstance(outcome, Measurement)
    trial = begun(record, space, "seed:rule", predicted=123.0)
    record.tell(trial, outcome, value=5.0, constraints={"memory_bytes": excess}, seconds=2.0)
    return outcome


def test_a_trial_and_the_ceilings_are_read_back_as_they_were_written(space: Space, url: str) -> None:
    record, ceilings = opened(url), list(Surface().ceilings([ModelSetup()]))
    record.keep_ceilings(ceilings)
    outcome = run_one(record, space)
    (row,) = opened(url).rows()
    assert (row.origin, row.predicted, row.value) == (AskedBy(Asker.SEED, "rule"), 123.0, 5.0)
    assert (row.seconds, row.feasible, row.block) == (2.0, True, None)
    assert (row.config, row.key, row.outcome) == (CONFIG, CONFIG.key(), outcome)
    assert opened(url).ceilings() == ceilings


def test_trials_that_failed_were_cut_off_broke_a_limit_or_were_refused_are_told_apart(space: Space) -> None:
    record = opened(None)
    fail(record, begun(record, space, "proof:4"))
    record.give_up(begun(record, space, "proof:4"))
    run_one(record, space, excess=7.0)
    record.refuse(some(record.ask()), "devices > 1: 0 GPUs")  # it never ran
    failed, cut_off, infeasible = record.rows()
    assert (failed.outcome, failed.value, failed.block) == (FAILURE, None, 4)
    assert cut_off.outcome is None
    assert [row.feasible for row in (failed, infeasible)] == [True, False]
    assert record.study.trials[3].user_attrs["refused"] == "devices > 1: 0 GPUs"


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"workload": "w1"}, "another workload (workload: 'w1' there, 'w2' here)"),
        ({"hardware": '{"cores": 2, "storage": "ext4"}'}, "another hardware (hardware: storage 'ext4' there, 'nfs'"),
        ({"schema_version": "0"}, "another schema_version (schema_version: '0' there, '1' here)"),
    ],
)
def test_a_study_of_something_else_is_refused_with_both_sides_unless_it_begins_anew(
    space: Space, url: str, there: dict[str, str], said: str
) -> None:
    here: dict[str, Any] = {"workload": "w2", "hardware": '{"cores": 2, "storage": "nfs"}'}
    first = opened(url, **here)
    run_one(first, space)
    first.whole.set_user_attr("digests", {**first.whole.user_attrs["digests"], **there})
    with pytest.raises(TrialError, match=re.escape(said)) as refused:
        opened(url, **here)
    assert refused.value.hint == "Use --fresh to start a new one, or another --out or --storage to keep both."
    assert opened(url, fresh=True, **here).rows() == []


def test_optunas_own_verbosity_is_left_as_it_was() -> None:
    before = optuna.logging.get_verbosity()
    opened(None)
    assert optuna.logging.get_verbosity() == before


def test_a_trial_whose_outcome_was_written_before_its_process_died_is_finished_with_it(
    space: Space, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(optuna.storages.RDBStorage, "set_trial_state_values", raises(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            run_one(opened(url), space)
    assert [each.state for each in trials(url)] == [TrialState.RUNNING]
    assert [(row.value, row.seconds) for row in opened(url).rows()] == [(5.0, 2.0)]
    assert [each.state for each in trials(url)] == [TrialState.COMPLETE]


def test_a_trial_that_another_process_took_for_dead_keeps_its_outcome(space: Space, url: str) -> None:
    record = opened(url)
    trial = begun(record, space, "x")
    opened(url)  # as a container does that does not see the process of the first
    fail(record, trial)
    assert [row.outcome for row in opened(url).rows()] == [None, FAILURE]
    assert record.lost is None


# ---------------------------------------------------------------- storages, and their faults


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("postgresql+psycopg://me@host/name", "postgresql+psycopg://me@host/name"),
        ("postgresql+psycopg://me:secret@host:5432/name?a=b", "postgresql+psycopg://me@host:5432/name?a=b"),
        ("mysql://:secret@host/name", "mysql://@host/name"),
        *[(f"postgresql://me:{word}@host/db", "postgresql://me@host/db") for word in ("a#b", "a/b", "a?b", "a@b", ":")],
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert storage.without_password(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////no/such/folder/study.db", "sqlite:////no/such/folder/study.db"),
        ("nosuchdatabase://me:secret@host/name", "nosuchdatabase://me@host/name"),
        ("what", "what"),
        ("grpc://host:port", "grpc://host:port"),
        ("grpc://127.0.0.1:9", "grpc://127.0.0.1:9"),  # does not answer
    ],
)
def test_a_storage_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, url: str, shown: str) -> None:
    monkeypatch.setattr(storage, "_READY_SECONDS", 0.01)
    with pytest.raises(TrialError, match=f"{re.escape(shown)}.* cannot be used") as caught:
        opened(url)
    assert "secret" not in str(caught.value)


def test_a_study_lies_in_its_file_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "was? 50% #1 %20"
    folder.mkdir()
    storage.open_storage(storage.url_of(folder / "study.db")).create_new_study([StudyDirection.MAXIMIZE])
    assert (folder / "study.db").stat().st_size > 0
    assert [each.name for each in tmp_path.iterdir()] == [folder.name]


def test_only_a_file_of_ones_own_holds_one_study() -> None:
    urls = (None, "sqlite:///a.db", "grpc://h", "postgresql://h/n")
    assert [url for url in urls if storage.is_shared(url)] == ["grpc://h", "postgresql://h/n"]
    assert [url for url in urls if storage.can_be_joined(url)] == ["postgresql://h/n"]


def test_a_study_that_is_deleted_in_a_search_stays_in_memory(space: Space, url: str) -> None:
    record = opened(url)
    optuna.delete_study(study_name="tune", storage=url)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost is not None


# ---------------------------------------------------------------- a study that several share


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
    later = some(second.ask())
    assert not second.begin(later)
    assert begun(second, space, "again:ceiling").number == later.number + 1  # a second look is meant to be one
    fail(first, trial)
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
        taken = some(one.ask())
        assert other.ask() is None
        assert taken.user_attrs["origin"] == origin
        assert one.begin(taken)
        fail(one, taken)
        other.take_up()
        assert [row.outcome for row in other.rows()] == [None, FAILURE]
        assert other.rows()[1].config == CONFIG
    dead.tell(lost, Surface().measure(CONFIG), value=5.0, constraints={}, seconds=1.0)  # it was only silent
    assert [each.value for each in trials(url) if each.value is not None] == [5.0]


def test_a_trial_has_heartbeats_as_long_as_it_runs(space: Space, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, beats = opened(url, stale=[]), threading.Semaphore(0)
    trial = begun(alive, space, "seed:guess")
    monkeypatch.setattr(storage, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(optuna.storages.RDBStorage, "record_heartbeat", lambda *_: beats.release())
    with alive.alive(trial):
        assert all(beats.acquire(timeout=60) for _ in range(3))
    assert "autopipe-heartbeat" not in {each.name for each in threading.enumerate()}
    alive.give_up(trial)


def test_what_was_interrupted_in_a_shared_study_is_left_for_the_others(space: Space, url: str) -> None:
    first, second = opened(url, stale=[]), opened(url, stale=[])
    first.give_up(begun(first, space, "proof:0"), again=True)
    second.take_up()
    assert not second.waiting()
    first.give_up(begun(first, space, "baseline:fit"), again=True)
    trial = some(second.ask())
    assert trial.user_attrs["origin"] == "baseline:fit"
    assert second.begin(trial)
    fail(second, trial)
    second.give_up(trial, again=True)  # it was over
    second.take_up()
    assert not second.waiting()


def test_each_machine_has_a_proof_of_its_own(space: Space, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (ceiling,) = Surface().ceilings([ModelSetup()])
    for host in ("one", "another"):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        record = opened(url, stale=[])
        assert (record.rows(), record.block_ceilings()) == ([], {})
        fail(record, begun(record, space, "proof:0"))
        record.keep_block_ceiling(0, ceiling)
    again = opened(url, stale=[])
    assert ([row.number for row in again.rows()], again.block_ceilings()) == ([0], {0: ceiling})
    assert len(trials(url)) == 2


def test_what_bounds_a_space_is_what_the_first_has_measured(url: str) -> None:
    first, second = opened(url, stale=[]), opened(url, stale=[])
    facts = Surface().facts()
    measured = first.bounds(dataclasses.replace(facts, workers_beside_reads=4))
    assert second.bounds(dataclasses.replace(facts, workers_beside_reads=8)) == measured


def test_the_best_of_each_study_of_the_workload_is_found_and_of_no_other(space: Space, url: str) -> None:
    assert best_elsewhere(None, "w") == best_elsewhere(url, "w") == []
    best = {}
    for name, workload, quirks in (("here", "w", 1), ("there", "w", 5), ("other", "v", 3)):
        surface = loader_bound(quirks=quirks, seed=1, noise=0.01)
        asked: dict[str, Any] = {"study_name": name, "digests": {"workload": workload}}
        ended = run(space, surface, url, trials=8, blocks=(0, 0), **asked)
        values = {row.key: row.value for row in ended.rows if row.value is not None and row.feasible}
        best[name] = max(values, key=lambda key: values[key])
    latest_first = list(dict.fromkeys([best["there"], best["here"]]))
    assert [config.key() for config in best_elsewhere(url, "w")] == latest_first
    assert [config.key() for config in best_elsewhere(url, "v")] == [best["other"]]
