"""Whatever a trial's process does, its study gets a value in seconds, and no process is left.

Not tested here: a kill by the kernel for memory (it would take the machine along); its verdict is in tests/unit/trial.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure, Verification
from autopipe.measure.trial.child import Launch, members
from autopipe.measure.trial.failures import Deadlines
from autopipe.measure.trial.protocol import Event, Log
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.values import JsonObject

CONFIG = PipelineConfig(loader=Threads(workers=1))
IMPATIENT = Deadlines(measure_seconds=3.0, close_seconds=2.0, end_seconds=2.0)


@pytest.fixture
def runner(launch: Launch) -> Iterator[TrialRunner]:
    """A runner that must leave no process."""
    yield from started(launch, Deadlines())


@pytest.fixture
def impatient(launch: Launch) -> Iterator[TrialRunner]:
    """The same, for a trial that will be silent."""
    yield from started(launch, IMPATIENT)


def started(launch: Launch, deadlines: Deadlines) -> Iterator[TrialRunner]:
    with TrialRunner(launch, deadlines=deadlines) as runner:
        assert runner.start() is None
        pid = runner.pid
        assert pid is not None
        yield runner
    assert members(pid) == []
    assert psutil.Process().children(recursive=True) == []


def is_gone(path: Path) -> bool:
    """Whether the process whose id is in this file has ended; nobody may have collected its status yet."""
    try:
        return psutil.Process(int(path.read_text())).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def failed(outcome: object, kind: FailureKind, phase: Phase = Phase.MEASURE) -> TrialFailure:
    assert isinstance(outcome, TrialFailure), outcome
    assert (kind, phase) == (outcome.kind, outcome.phase), outcome
    return outcome


@pytest.mark.parametrize("fault", ["hang", "hang_and_ignore_sigterm"])
def test_silence_is_hung_and_shows_where(impatient: TrialRunner, fault: str) -> None:
    failure = failed(impatient.measure(CONFIG, {"fault": fault}), FailureKind.HUNG)
    assert "in for_ever" in failure.log_tail


def test_a_trial_that_lives_but_does_not_end_is_a_timeout(launch: Launch) -> None:
    with TrialRunner(launch, deadlines=Deadlines(request_seconds=3.0, end_seconds=1.0)) as runner:
        failed(runner.measure(CONFIG, {"fault": "creep"}), FailureKind.TIMEOUT)


def test_a_trial_that_runs_when_the_time_for_all_is_over_is_cut(launch: Launch) -> None:
    with TrialRunner(launch, deadlines=Deadlines(end_seconds=1.0)) as runner:
        assert isinstance(runner.measure(CONFIG), Measurement)
        runner.until = time.monotonic() + 0.5
        failed(runner.measure(CONFIG, {"fault": "creep"}), FailureKind.INTERRUPTED)
        assert runner.pid is None


def test_a_hung_trial_may_close_its_session(impatient: TrialRunner, tmp_path: Path) -> None:
    path, seen = tmp_path / "closed", list[Event]()
    impatient.on_event = seen.append
    failed(impatient.measure(CONFIG, {"fault": "mark_close_then_hang", "path": str(path)}), FailureKind.HUNG)
    assert path.read_text() == "closed"
    assert Log(text="hanging") in seen


@pytest.mark.parametrize("fault", ["hang_in_close", "thread_that_stays"])
def test_a_process_that_will_not_end_is_killed(impatient: TrialRunner, fault: str) -> None:
    assert isinstance(impatient.measure(CONFIG, {"fault": fault}), Measurement)


def test_what_a_killed_trial_leaves_in_its_temporary_folder_is_removed(runner: TrialRunner, tmp_path: Path) -> None:
    note = tmp_path / "left"
    failed(runner.measure(CONFIG, {"fault": "leave_a_file_and_die", "path": str(note)}), FailureKind.CRASHED)
    assert "autopipe-trial-" in note.read_text()
    assert not Path(note.read_text()).exists()


def test_converted_samples_of_a_trial_lie_on_the_disk_that_was_named_and_go_with_it(
    launch: Launch, tmp_path: Path
) -> None:
    note, out = tmp_path / "left", tmp_path / "out"
    out.mkdir()
    leaves: JsonObject = {"fault": "leave_a_file_and_die", "path": str(note)}
    converting = CONFIG.model_copy(update={"storage": "array"})
    with TrialRunner(dataclasses.replace(launch, folder=out)) as runner:
        failed(runner.measure(converting, leaves), FailureKind.CRASHED)
        assert Path(note.read_text()).is_relative_to(out)
        assert list(out.iterdir()) == []
        failed(runner.measure(CONFIG, leaves), FailureKind.CRASHED)
        assert not Path(note.read_text()).is_relative_to(out)
        out.rmdir()
        failure = failed(runner.measure(converting), FailureKind.UNSUPPORTED, Phase.OPEN)
        assert str(out) in failure.message
        assert isinstance(runner.measure(CONFIG), Measurement)


def test_sigterm_from_outside_is_an_interruption(runner: TrialRunner) -> None:
    failed(runner.measure(CONFIG, {"fault": "terminate"}), FailureKind.INTERRUPTED)


def test_an_exception_becomes_its_kind_with_message_hint_and_traceback(runner: TrialRunner) -> None:
    failure = failed(runner.measure(CONFIG, {"fault": "raise", "error": "OpError"}), FailureKind.BAD_DATA)
    assert (failure.message, failure.hint) == ("Rule broken.", "Do this.")
    assert "Traceback" in failure.log_tail


def test_too_much_memory_is_stopped_before_the_kernel_does(launch: Launch) -> None:
    with TrialRunner(launch, memory_limit_bytes=400 << 20) as runner:
        failure = failed(runner.measure(CONFIG, {"fault": "allocate"}), FailureKind.OUT_OF_MEMORY)
    assert "400 MiB" in failure.message


def test_an_answer_ends_although_grandchildren_hold_the_channel(runner: TrialRunner, tmp_path: Path) -> None:
    paths = [tmp_path / "of_the_group", tmp_path / "of_a_session_of_its_own"]
    for own, path in enumerate(paths):
        options: JsonObject = {"fault": "grandchild", "path": str(path), "own_session": bool(own)}
        assert isinstance(runner.measure(CONFIG, options), Measurement)
    runner.close()
    assert all(map(is_gone, paths))


@pytest.mark.parametrize(
    ("then", "own_session", "kind"),
    [
        ("kill", False, FailureKind.CRASHED),
        ("hang", True, FailureKind.HUNG),
        ("hang_and_ignore_sigterm", True, FailureKind.HUNG),
    ],
)
def test_a_grandchild_ends_with_the_trial_that_fails(
    impatient: TrialRunner, tmp_path: Path, then: str, own_session: bool, kind: FailureKind
) -> None:
    path = tmp_path / "pid"
    options: JsonObject = {"fault": "grandchild", "path": str(path), "own_session": own_session, "then": then}
    failed(impatient.measure(CONFIG, options), kind)
    assert is_gone(path)


def test_a_workload_that_fails_to_import_shows_its_line(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\n\nraise RuntimeError('no photos')\n")
    with TrialRunner(launch) as runner:
        failure = failed(runner.start(), FailureKind.IMPORT, Phase.IMPORT)
    assert "train.py, line 3" in failure.message
    assert "no photos" in failure.message


def test_a_session_that_cannot_be_made_is_a_build_failure(launch: Launch) -> None:
    with TrialRunner(dataclasses.replace(launch, session="trial_sessions:Refuses")) as runner:
        failure = failed(runner.measure(CONFIG), FailureKind.BUILD, Phase.BUILD)
    assert failure.hint == "Call compile()."


def test_a_child_that_cannot_start_is_a_failure(launch: Launch) -> None:
    broken = dataclasses.replace(launch, environment=(("PYTHONHOME", "/nowhere"),))
    with TrialRunner(broken) as runner:
        failed(runner.start(), FailureKind.CRASHED, Phase.START)


def test_a_good_trial_says_what_it_cost_whatever_it_prints(runner: TrialRunner) -> None:
    outcome = runner.measure(CONFIG, {"fault": "print_megabytes"})
    assert isinstance(outcome, Measurement)
    assert {Phase.BUILD, Phase.OPEN, Phase.MEASURE, Phase.CLOSE} == set(outcome.phase_seconds)
    assert outcome.overhead_seconds > 0
    assert isinstance(runner.ceiling(CONFIG.model_setup), Ceiling)
    assert isinstance(runner.verify([CONFIG]), Verification)


def test_a_process_that_ends_or_garbles_is_a_crash_and_the_next_trial_is_measured(runner: TrialRunner) -> None:
    for fault, said, logged in (
        ("exit", "exited with status 7", ""),
        ("abort", "SIGABRT", "in _abort"),
        ("kill", "SIGKILL", ""),  # without memory pressure
        ("sys_exit", "enough", ""),
        ("garbage", "this is not JSON", ""),
        ("close_all_files", "closed its channel", ""),
    ):
        failure = failed(runner.measure(CONFIG, {"fault": fault}), FailureKind.CRASHED)
        assert said in failure.message
        assert logged in failure.log_tail
        assert (failure.config is not None, failure.config_key) == (True, CONFIG.key())
        assert runner.pid is None
    assert isinstance(runner.measure(CONFIG), Measurement)
