"""How long a trial's process lives: when it is kept, when it is replaced, and that it never outlives its study."""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autopipe.hardware import machine
from autopipe.hardware.machine import Memory
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.measure.trial import child
from autopipe.measure.trial.child import Launch
from autopipe.measure.trial.failures import Deadlines
from autopipe.measure.trial.protocol import Event, Log, PhaseBegan
from autopipe.measure.trial.supervise import Recycling, TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.search import searching
from autopipe.workload.workload import Workload
from tests.fakes.commands import environment

CONFIG = PipelineConfig(loader=Threads(workers=1))
GONE_SECONDS = 20


def pids(runner: TrialRunner, *configs: PipelineConfig, **options: str | int) -> list[int]:
    """Return the process that measured each of these."""
    outcomes = [runner.measure(config, options) for config in configs]
    return [outcome.ran.processes for outcome in outcomes if isinstance(outcome, Measurement)]


def test_a_child_whose_memory_grows_is_replaced(launch: Launch) -> None:
    with TrialRunner(launch, recycling=Recycling(growth_bytes=60 << 20)) as runner:
        assert pids(runner, CONFIG, CONFIG, fault="grow", bytes=40 << 20)[0] == runner.pid
        first = runner.pid
        [second] = pids(runner, CONFIG, fault="grow", bytes=40 << 20)
        [third] = pids(runner, CONFIG)
    assert first == second != third


def test_an_idle_child_that_was_killed_is_replaced(launch: Launch) -> None:
    with TrialRunner(launch) as runner:
        [first] = pids(runner, CONFIG)
        os.kill(first, signal.SIGKILL)
        psutil.Process(first).wait(GONE_SECONDS)
        [second] = pids(runner, CONFIG)
    assert first != second


def test_a_workload_without_a_name_reaches_every_child(launch: Launch) -> None:
    class Numbers:
        def __len__(self) -> int:
            return 8

        def read(self, index: int) -> int:
            return index

    nameless = dataclasses.replace(launch, workload=Workload(data=Numbers(), ops=[], batch_size=2))
    with TrialRunner(nameless, recycling=Recycling(isolation="process")) as runner:
        assert len(pids(runner, CONFIG, CONFIG)) == 2


def test_a_child_may_hold_what_is_free_when_it_is_asked_and_not_when_it_started(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [1 << 34]
    monkeypatch.setattr(machine, "detect_memory", lambda: Memory(usable_bytes=1 << 34, available_bytes=free[0]))
    with TrialRunner(launch) as runner:
        [first] = pids(runner, CONFIG, fault="grow", bytes=100 << 20)
        free[0] = 50 << 20  # another tune, which had to be waited for, has left no more
        assert pids(runner, CONFIG) == [first]  # what it holds already is not counted against it
        outcome = runner.measure(CONFIG, {"fault": "allocate"})
    assert isinstance(outcome, TrialFailure)
    assert outcome.kind is FailureKind.OUT_OF_MEMORY
    assert runner.pid is None


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler of SIGINT, which a process that a shell put into the background starts without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_ops_warn_of_when_they_see_the_first_samples_is_told(launch: Launch) -> None:
    told: list[Event] = []
    warns = dataclasses.replace(launch, session="trial_sessions:WarningSession")
    with TrialRunner(warns, on_event=told.append) as runner:
        runner.start()
        runner.measure(CONFIG, {})
    said = Log(text="4 of 4 images lie on their side.", of_data=True)
    assert [event for event in told if isinstance(event, Log)] == [said]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_goes_through_and_leaves_no_process(launch: Launch) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, PhaseBegan) and event.phase is Phase.MEASURE:
            signal.raise_signal(signal.SIGINT)

    with TrialRunner(launch, on_event=interrupt) as runner:
        runner.start()
        pid = runner.pid
        assert pid is not None
        with pytest.raises(KeyboardInterrupt):
            runner.measure(CONFIG, {"fault": "hang"})
        assert runner.pid is None
        assert child.members(pid) == []


class Interrupting:
    """Data whose pickling is interrupted: when the child has its folder, and is about to start."""

    def __len__(self) -> int:
        return 8

    def read(self, index: int) -> tuple[int, int]:
        return index, index

    def __reduce__(self) -> tuple[type, tuple[()]]:
        signal.raise_signal(signal.SIGINT)
        return Interrupting, ()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_child_starts_leaves_neither_a_process_nor_its_folder(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pickled = Workload(data=Interrupting(), ops=[], batch_size=2)
    with TrialRunner(dataclasses.replace(launch, workload=pickled)) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.begin()
        assert runner.pid is not None
        assert len(list(tmp_path.glob(f"{child.PREFIX}*"))) == 1
    assert psutil.Process().children(recursive=True) == []
    assert list(tmp_path.glob(f"{child.PREFIX}*")) == []


def test_a_child_that_still_loads_is_ended_and_not_waited_for(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(3600)\n")
    with TrialRunner(launch, deadlines=Deadlines(close_seconds=3600)) as runner:
        runner.begin()
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.parametrize("fault", ["hang", "hang_and_ignore_sigterm", "grandchild"])
def test_when_the_study_is_killed_its_trial_goes_too(launch: Launch, tmp_path: Path, fault: str) -> None:
    study = tmp_path / "study.py"
    study.write_text(f"""
import pathlib
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.threads import Threads
from autopipe.measure.trial.child import Launch
from autopipe.measure.trial.failures import Deadlines
from autopipe.measure.trial.supervise import TrialRunner

def show(event):
    if event.event == "{"log" if fault == "grandchild" else "phase"}":
        print(event, runner.pid, flush=True)

launch = Launch(workload="train.py:workload", session="trial_sessions:FakeSession", sys_path={launch.sys_path!r})
options = {{"fault": "{fault}", "path": "grandchild", "then": "hang"}}
with TrialRunner(launch, on_event=show) as runner:
    runner.measure(PipelineConfig(loader=Threads(workers=1)), options)
""")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, str(study)],
        cwd=tmp_path,
        env=environment(TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        last = "grandchild started" if fault == "grandchild" else "MEASURE"
        line = next(line for line in process.stdout if last in line)
        leader = int(line.split()[-1])
        family = child.members(leader)
        assert len(family) == (2 if fault == "grandchild" else 1)
        child.collect(temporary)
        assert len(list(temporary.glob(f"{child.PREFIX}*"))) == 1  # as long as it lives
        process.kill()
    _, left = psutil.wait_procs(family, timeout=GONE_SECONDS)
    assert left == []
    child.collect(temporary)  # as the next start does
    assert list(temporary.glob(f"{child.PREFIX}*")) == []


def test_a_child_that_was_begun_beforehand_answers_like_any_other(launch: Launch) -> None:
    with TrialRunner(launch) as runner:
        runner.begin()
        begun = runner.pid
        runner.begin()
        assert runner.start() is None
        assert pids(runner, CONFIG, CONFIG) == [begun, begun]


def test_a_workload_that_is_passed_as_an_object_finds_what_lies_beside_its_script(
    tmp_path: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_script.py").write_text((tmp_path / "train.py").read_text())
    monkeypatch.syspath_prepend(tmp_path)  # as `python elsewhere/train.py` does
    workload = importlib.import_module("beside_the_script").workload
    found = searching.runner_for(workload).launch
    made = dataclasses.replace(found, session=launch.session, sys_path=(*found.sys_path, *launch.sys_path))
    with TrialRunner(made) as runner:
        assert runner.start() is None


@pytest.mark.parametrize(
    ("recycling", "configs", "processes"),
    [
        (Recycling(), [CONFIG, PipelineConfig(loader=Threads(workers=2)), CONFIG], [0, 0, 0]),
        (Recycling(isolation="process"), [CONFIG, CONFIG], [0, 1]),
        (Recycling(trials=2), [CONFIG] * 3, [0, 0, 1]),
        (Recycling(), [CONFIG, *[CONFIG.model_copy(update={"channels": "first"})] * 2], [0, 1, 1]),  # for all of it
    ],
    ids=["warm", "each its own", "so many", "another setting of the process"],
)
def test_a_child_serves_trials_until_it_is_to_be_replaced(
    launch: Launch, recycling: Recycling, configs: list[PipelineConfig], processes: list[int]
) -> None:
    with TrialRunner(launch, recycling=recycling) as runner:
        found = pids(runner, *configs)
        runner.close()
    assert [list(dict.fromkeys(found)).index(pid) for pid in found] == processes
    assert psutil.Process().children(recursive=True) == []
