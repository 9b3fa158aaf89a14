"""Whatever a trial's process does, its study gets a value in seconds; and how long such a process is kept.

Not tested here: a kill by the kernel for memory (it would take the machine along); its verdict is in
tests/unit/measure/trial.
"""

import contextlib
import dataclasses
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import autopipe as ap
from autopipe.api.measuring import by_batch_size
from autopipe.hardware import machine
from autopipe.hardware.processes import ProcessTree
from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure, Verification
from autopipe.measure.trial import child
from autopipe.measure.trial.child import Event, Launch, Log, PhaseBegan
from autopipe.measure.trial.forkserver import ForkServer
from autopipe.measure.trial.supervise import Deadlines, TrialRunner
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search import searching
from autopipe.search.settings import Settings
from autopipe.values import Estimate, JsonObject
from tests.fakes.commands import environment
from tests.fakes.sources import Made

pytestmark = pytest.mark.usefixtures("no_process_left")

CONFIG = ap.PipelineConfig(loader=ap.Threads(workers=1))
AS_IT_IS = ap.PipelineConfig(loader=Wrapped())
IMPATIENT = Deadlines(measure_seconds=3.0, close_seconds=2.0, end_seconds=2.0)
GONE_SECONDS = 20
TRAIN = """
from autopipe.workload.workload import Workload
from tests.fakes.sources import Made

workload = Workload(data=Made(8, lambda index: (index, index)), ops=[], batch_size=2)
"""


@pytest.fixture(scope="module", params=["started", pytest.param("forked", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Iterator[ForkServer | None]:
    """None, so that processes are started; or a server that has begun, so that it forks the first one, too."""
    with ForkServer() as server:
        if request.param == "forked":
            server.begin(child._environment(Launch(workload="train.py:workload"), {}))
        yield server if request.param == "forked" else None


@pytest.fixture
def launch(server: ForkServer | None, tmp_path: Path) -> Launch:
    """A workload file, and a session that misbehaves on request."""
    (tmp_path / "train.py").write_text(TRAIN)
    fakes, session = Path(__file__).parents[1] / "fakes", "trial_sessions:FakeSession"
    return Launch(
        workload="train.py:workload", session=session, directory=tmp_path, sys_path=(str(fakes),), server=server
    )


@pytest.fixture
def runner(launch: Launch) -> Iterator[TrialRunner]:
    yield from started(launch, Deadlines())


@pytest.fixture
def impatient(launch: Launch) -> Iterator[TrialRunner]:
    """A runner of a trial that will be silent."""
    yield from started(launch, IMPATIENT)


def started(launch: Launch, deadlines: Deadlines) -> Iterator[TrialRunner]:
    """Give a runner with little memory, that must leave no process."""
    with TrialRunner(launch, deadlines=deadlines, memory_limit_bytes=400 << 20) as runner:
        assert runner.start() is None
        pid = runner.pid
        assert pid is not None
        yield runner
    assert ProcessTree(pid).running() == set()


def is_gone(path: Path) -> bool:
    """Whether the process whose id is in this file has ended; nobody may have collected its status yet."""
    try:
        return psutil.Process(int(path.read_text())).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def failed(outcome: object, kind: FailureKind, phase: Phase = Phase.MEASURE) -> TrialFailure:
    assert isinstance(outcome, TrialFailure), outcome
    assert (outcome.kind, outcome.phase) == (kind, phase), outcome
    return outcome


def pids(runner: TrialRunner, *configs: ap.PipelineConfig, **options: str | int) -> list[int]:
    outcomes = [runner.measure(config, options) for config in configs]
    return [outcome.ran.processes for outcome in outcomes if isinstance(outcome, Measurement)]


def slow(case: tuple[Any, ...]) -> Any:
    return pytest.param(*case, marks=pytest.mark.slow)


CHOOSES = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras
from autopipe.workload.workload import Workload
from tests.fakes.sources import Made

model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
workload = Workload(data=Made(8, lambda index: ([0.0, 1.0], 0.0)), ops=[], batch_size=2, model=lambda: model)
"""
IS_FIRST = "import os, sys\n\nif 'keras' in sys.modules:\n    os.abort()\n"  # as torchvision does behind TensorFlow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forks", "above", "usual"),
    [(False, "", "tensorflow"), (True, "", "tensorflow"), (True, IS_FIRST, "tensorflow"), (False, "", "torch")],
)
def test_a_script_chooses_the_backend_of_its_trials_as_it_does_that_of_its_training(
    tmp_path: Path, forks: bool, above: str, usual: str
) -> None:
    (tmp_path / "chooses.py").write_text(above + CHOOSES)
    other = (("KERAS_BACKEND", usual),)  # torch is not installed, or not asked for
    asked = Launch(workload="chooses.py:workload", directory=tmp_path, environment=other)
    with ForkServer() as server:
        if forks:
            server.begin(child._environment(asked, {}))
            asked = dataclasses.replace(asked, server=server)
        with TrialRunner(asked) as runner:
            described = runner.describe()
    assert isinstance(described, Description)
    assert described.backend == "jax"


@pytest.mark.parametrize(
    ("fault", "kind", "said", "logged"),
    [
        slow(("exit", FailureKind.CRASHED, "exited with status 7", "")),
        slow(("abort", FailureKind.CRASHED, "SIGABRT", "in _abort")),
        slow(("kill", FailureKind.CRASHED, "SIGKILL", "")),  # without memory pressure
        slow(("sys_exit", FailureKind.CRASHED, "enough", "")),
        slow(("garbage", FailureKind.CRASHED, "this is not JSON", "")),
        slow(("close_all_files", FailureKind.CRASHED, "closed its channel", "")),
        ("hang", FailureKind.HUNG, "in for_ever", ""),
        slow(("hang_and_ignore_sigterm", FailureKind.HUNG, "in for_ever", "")),
        slow(("terminate", FailureKind.INTERRUPTED, "", "")),
        slow(("allocate", FailureKind.OUT_OF_MEMORY, "400 MiB", "")),
        ("raise", FailureKind.BAD_DATA, "Rule broken.", "Traceback"),
    ],
)
def test_a_trial_that_fails_is_a_failure_with_its_kind_and_reason(
    launch: Launch, fault: str, kind: FailureKind, said: str, logged: str
) -> None:
    for runner in started(launch, IMPATIENT if kind is FailureKind.HUNG else Deadlines()):
        failure = failed(runner.measure(CONFIG, {"fault": fault}), kind)
    assert said in failure.message
    assert logged in failure.log_tail
    assert (failure.config is not None, failure.config_key) == (True, CONFIG.key())
    assert failure.hint == "Do this." or fault != "raise"
    assert runner.pid is None


@pytest.mark.slow
def test_a_trial_that_lives_but_does_not_end_is_a_timeout(launch: Launch) -> None:
    for runner in started(launch, Deadlines(request_seconds=3.0, end_seconds=1.0)):
        failed(runner.measure(CONFIG, {"fault": "creep"}), FailureKind.TIMEOUT)


def test_a_trial_that_runs_when_the_time_for_all_is_over_is_cut(runner: TrialRunner) -> None:
    assert isinstance(runner.measure(CONFIG), Measurement)
    runner.until = time.monotonic() + 0.5
    failed(runner.measure(CONFIG, {"fault": "creep"}), FailureKind.INTERRUPTED)
    assert runner.pid is None


@pytest.mark.slow
def test_a_hung_trial_may_close_its_session(impatient: TrialRunner, tmp_path: Path) -> None:
    path = tmp_path / "closed"
    failed(impatient.measure(CONFIG, {"fault": "mark_close_then_hang", "path": str(path)}), FailureKind.HUNG)
    assert path.read_text() == "closed"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang_in_close", "thread_that_stays"])
def test_a_process_that_will_not_end_is_killed(impatient: TrialRunner, fault: str) -> None:
    assert isinstance(impatient.measure(CONFIG, {"fault": fault}), Measurement)


@pytest.mark.slow
def test_what_a_killed_trial_leaves_is_removed_from_the_disk_that_was_named(launch: Launch, tmp_path: Path) -> None:
    note, out = tmp_path / "left", tmp_path / "out"
    out.mkdir()
    leaves: JsonObject = {"fault": "leave_a_file_and_die", "path": str(note)}
    converting = CONFIG.model_copy(update={"keep": "array"})
    with TrialRunner(dataclasses.replace(launch, folder=out)) as runner:
        failed(runner.measure(converting, leaves), FailureKind.CRASHED)
        assert Path(note.read_text()).is_relative_to(out)
        assert list(out.iterdir()) == []
        failed(runner.measure(CONFIG, leaves), FailureKind.CRASHED)
        left = Path(note.read_text())
        assert (child.PREFIX in str(left), left.exists(), left.is_relative_to(out)) == (True, False, False)
        out.rmdir()
        assert str(out) in failed(runner.measure(converting), FailureKind.UNSUPPORTED, Phase.OPEN).message
        assert isinstance(runner.measure(CONFIG), Measurement)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "own_session"),
    [("", False), ("", True), ("kill", False), ("hang", True), ("hang_and_ignore_sigterm", True)],
)
def test_a_grandchild_that_holds_the_channel_hinders_no_answer_and_ends_with_its_trial(
    impatient: TrialRunner, tmp_path: Path, then: str, own_session: bool
) -> None:
    path = tmp_path / "pid"
    options: JsonObject = {"fault": "grandchild", "path": str(path), "own_session": own_session}
    if then:
        kind = FailureKind.CRASHED if then == "kill" else FailureKind.HUNG
        failed(impatient.measure(CONFIG, {**options, "then": then}), kind)
    else:
        assert isinstance(impatient.measure(CONFIG, options), Measurement)
        impatient.close()
    assert is_gone(path)


@pytest.mark.parametrize(
    ("changes", "kind", "phase", "said"),
    [
        ({"workload": "raises.py:workload"}, FailureKind.IMPORT, Phase.IMPORT, ["raises.py, line 3", "no photos"]),
        slow(({"session": "trial_sessions:Refuses"}, FailureKind.BUILD, Phase.BUILD, ["compiled", "Call compile()."])),
        ({"environment": (("PYTHONHOME", "/nowhere"),)}, FailureKind.CRASHED, Phase.START, []),
    ],
)
def test_a_child_that_cannot_begin_is_a_failure(
    launch: Launch, tmp_path: Path, changes: dict[str, object], kind: FailureKind, phase: Phase, said: list[str]
) -> None:
    (tmp_path / "raises.py").write_text("import sys\n\nraise RuntimeError('no photos')\n")
    apart = dataclasses.replace(launch, server=launch.server if "environment" not in changes else None)
    with TrialRunner(dataclasses.replace(apart, **changes)) as runner:  # type: ignore[arg-type]  # of each field's own type
        failure = failed(runner.start() or runner.measure(CONFIG), kind, phase)
    for words in said:
        assert words in f"{failure.message} {failure.hint}"


def test_a_good_trial_says_what_it_cost_whatever_it_prints(runner: TrialRunner) -> None:
    outcome = runner.measure(CONFIG, {"fault": "print_megabytes"})
    assert isinstance(outcome, Measurement)
    assert {Phase.BUILD, Phase.OPEN, Phase.MEASURE, Phase.CLOSE} == set(outcome.phase_seconds)
    assert outcome.overhead_seconds > 0
    assert isinstance(runner.ceiling(CONFIG.model_setup), Ceiling)
    assert isinstance(runner.verify([CONFIG]), Verification)


@pytest.mark.slow
def test_what_ops_warn_of_when_they_see_the_first_samples_is_told(launch: Launch) -> None:
    told: list[Event] = []
    warns = dataclasses.replace(launch, session="trial_sessions:WarningSession")
    with TrialRunner(warns, on_event=told.append) as runner:
        runner.measure(CONFIG, {})
    assert Log(text="4 of 4 images lie on their side.", of_data=True) in told


@pytest.mark.slow
def test_each_batch_size_is_measured_or_is_a_row_with_its_reason(launch: Launch) -> None:
    with TrialRunner(dataclasses.replace(launch, session="trial_sessions:SmallSession")) as runner:
        found = by_batch_size(runner, CONFIG.model_setup, 32, [256, 32, 5, 128, 16, 32])
    assert [row.batch_size for row in found] == [5, 16, 32, 128, 256]
    _, small, own, *_ = found
    reasons = {row.batch_size: (row.failure.kind, row.failure.message) for row in found if row.failure is not None}
    assert reasons[5] == (FailureKind.BUILD, "The model takes even batches only.")
    assert reasons[128][0] is FailureKind.OUT_OF_MEMORY
    assert ([*reasons], "128" in reasons[256][1]) == ([5, 128, 256], True)
    assert small.model == Estimate(value=161.0, low=161.0, high=161.0)  # of the second round
    assert isinstance(small.alone, Ceiling)
    assert small.alone.resources == Resources(peak_rss_bytes=16_000)
    assert own.name == "batch 32 (own)"


@pytest.mark.parametrize(
    ("growth", "configs", "processes"),
    [
        (1 << 30, [CONFIG, ap.PipelineConfig(loader=ap.Threads(workers=2)), CONFIG], [0, 0, 0]),
        (-1, [CONFIG, CONFIG], [0, 1]),
        slow((1 << 30, [CONFIG, *[CONFIG.model_copy(update={"channels": "first"})] * 2], [0, 1, 1])),  # for all of it
        slow((1 << 30, [AS_IT_IS, CONFIG, CONFIG, AS_IT_IS, AS_IT_IS], [0, 0, 0, 1, 1])),  # freed memory was kept
    ],
)
def test_a_child_that_was_begun_beforehand_serves_trials_until_it_is_to_be_replaced(
    launch: Launch, growth: int, configs: list[ap.PipelineConfig], processes: list[int]
) -> None:
    with TrialRunner(launch, growth_bytes=growth) as runner:
        runner.begin()
        begun = runner.pid
        runner.begin()
        found = pids(runner, *configs)
    order = list(dict.fromkeys([begun, *found]))
    assert [order.index(pid) for pid in found] == processes


@pytest.mark.slow
def test_a_child_whose_memory_grows_is_replaced_but_for_what_a_model_takes_in_its_first_training(
    launch: Launch,
) -> None:
    with TrialRunner(launch, growth_bytes=60 << 20) as runner:
        assert isinstance(runner.describe(), Description)
        first = pids(runner, CONFIG, fault="grow", bytes=100 << 20)
        assert [*pids(runner, CONFIG), *pids(runner, *[CONFIG] * 2, fault="grow", bytes=40 << 20)] == first * 3
        assert pids(runner, CONFIG) != first


@pytest.mark.slow
def test_an_idle_child_that_was_killed_is_replaced(runner: TrialRunner) -> None:
    [first] = pids(runner, CONFIG)
    ends = os.pidfd_open(first)
    os.kill(first, signal.SIGKILL)
    assert select.select([ends], [], [], GONE_SECONDS)[0]
    os.close(ends)
    assert pids(runner, CONFIG) not in ([], [first])


@pytest.mark.slow
def test_a_child_may_hold_what_is_free_when_it_is_asked(launch: Launch, this_machine: Callable[..., None]) -> None:
    this_machine(free_bytes=1 << 34)
    with TrialRunner(launch) as runner:
        [first] = pids(runner, CONFIG, fault="grow", bytes=100 << 20)
        this_machine(free_bytes=50 << 20)  # another tune, which had to be waited for, has left no more
        assert pids(runner, CONFIG) == [first]  # what it holds already is not counted against it
        failed(runner.measure(CONFIG, {"fault": "allocate"}), FailureKind.OUT_OF_MEMORY)
    assert runner.pid is None


@pytest.mark.slow
def test_a_workload_without_a_name_reaches_every_child(launch: Launch) -> None:
    workload = ap.Workload(data=Made(8, lambda index: index), ops=[], batch_size=2)
    with TrialRunner(dataclasses.replace(launch, workload=workload), growth_bytes=-1) as runner:
        assert len(pids(runner, CONFIG, CONFIG)) == 2


OWN_MODULES = """
import socket
import beside
import autopipe as ap
assert socket.socketpair
workload = ap.Workload(data=ap.Arrays(beside.numbers), ops=[], batch_size=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("loader", "by_name"), [(ap.Threads(workers=1), False), (ap.Processes(workers=1), True)])
def test_a_trial_finds_the_users_modules_and_runs_none_in_place_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: ap.LoaderConfig, by_name: bool
) -> None:
    (tmp_path / "own_train.py").write_text(OWN_MODULES)
    (tmp_path / "beside.py").write_text("import numpy as np\n\nnumbers = np.zeros((64, 4), 'float32')\n")
    (tmp_path / "socket.py").write_text("raise SystemExit(3)")
    if by_name:
        monkeypatch.chdir(tmp_path)
    else:
        monkeypatch.syspath_prepend(tmp_path)  # as `python elsewhere/own_train.py` does
    workload = "own_train.py:workload" if by_name else importlib.import_module("own_train").workload
    settings = Settings(simulate=ap.SimulatedAccelerator(0.001))
    with searching.runner_for(workload, settings) as runner:
        outcome = runner.measure(ap.PipelineConfig(loader=loader), {"min_seconds": 0.1, "max_seconds": 0.5})
    assert isinstance(outcome, Measurement), outcome


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_goes_through_and_leaves_no_process(runner: TrialRunner) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, PhaseBegan) and event.phase is Phase.MEASURE:
            signal.raise_signal(signal.SIGINT)

    runner.on_event = interrupt
    with pytest.raises(KeyboardInterrupt):
        runner.measure(CONFIG, {"fault": "hang"})
    assert runner.pid is None


class Interrupting(Made):
    """Data whose pickling is interrupted: when the child has its folder, and is about to start."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        signal.raise_signal(signal.SIGINT)
        return Interrupting, ()


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_child_starts_leaves_neither_a_process_nor_its_folder(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pickled = ap.Workload(data=Interrupting(8, lambda index: (index, index)), ops=[], batch_size=2)
    with TrialRunner(dataclasses.replace(launch, workload=pickled)) as runner:
        with pytest.raises(KeyboardInterrupt):
            runner.begin()
        assert runner.pid is not None
        assert len(list(tmp_path.glob(f"{child.PREFIX}*"))) == 1
    assert list(tmp_path.glob(f"{child.PREFIX}*")) == []


def test_a_child_that_still_loads_is_ended_and_not_waited_for(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(3600)\n")
    with TrialRunner(launch, deadlines=Deadlines(close_seconds=3600)) as runner:
        runner.begin()


STUDY = """
from autopipe.measure.trial.child import Launch, _environment
from autopipe.measure.trial.forkserver import ForkServer
from autopipe.measure.trial.supervise import TrialRunner
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loaders.workers import Threads

server = ForkServer() if {forked} else None

def show(event):
    print(event.event, getattr(event, "text", getattr(event, "phase", "")), runner.pid, flush=True)

session, sys_path = "trial_sessions:FakeSession", {sys_path!r}
launch = Launch(workload="train.py:workload", session=session, sys_path=sys_path, server=server)
if server is not None:
    server.begin(_environment(launch, {{}}))
with TrialRunner(launch, on_event=show) as runner:
    options = {{"fault": "{fault}", "path": "grandchild", "then": "hang"}}
    runner.measure(PipelineConfig(loader=Threads(workers=1)), options)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "last", "count"),
    [("hang", "measure", 1), ("hang_and_ignore_sigterm", "measure", 1), ("grandchild", "grandchild started", 2)],
)
def test_with_the_study_its_trial_is_gone(launch: Launch, tmp_path: Path, fault: str, last: str, count: int) -> None:
    forked, temporary = launch.server is not None, tmp_path / "temporary"
    (tmp_path / "study.py").write_text(STUDY.format(fault=fault, sys_path=launch.sys_path, forked=forked))
    temporary.mkdir()
    command, variables = [sys.executable, "study.py"], environment(TMPDIR=str(temporary))
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if last in line)
        family = [psutil.Process(each) for each in ProcessTree(int(line.split()[-1])).running()]
        assert len(family) == count
        child.collect(temporary)
        assert len(list(temporary.glob(f"{child.PREFIX}*"))) == 1  # as long as it lives
        process.kill()
    _, left = psutil.wait_procs(family, timeout=GONE_SECONDS)
    assert left == []
    child.collect(temporary)  # as the next start does
    assert list(temporary.glob(f"{child.PREFIX}*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("server", ["started"], indirect=True)
def test_a_server_forks_all_processes_but_the_first_and_where_it_dies_they_are_started(launch: Launch) -> None:
    with ForkServer() as server:
        launch = dataclasses.replace(launch, server=server)
        with TrialRunner(launch) as first, TrialRunner(launch) as second, TrialRunner(launch) as third:
            found = [pids(runner, CONFIG)[0] for runner in (first, second)]
            parents = [psutil.Process(pid).ppid() for pid in found]
            assert parents[0] == os.getpid()
            assert psutil.Process(parents[1]).ppid() == os.getpid()
            os.kill(parents[1], signal.SIGKILL)
            assert psutil.wait_procs([psutil.Process(parents[1])], GONE_SECONDS)[1] == []
            for runner in (second, third):
                assert psutil.Process(pids(runner, CONFIG)[0]).ppid() == os.getpid()


@pytest.mark.slow
def test_a_forked_process_ends_as_its_server_says_or_with_it(launch: Launch, tmp_path: Path) -> None:
    with ForkServer() as server, (tmp_path / "log").open("wb") as log, contextlib.ExitStack() as held:
        server.begin(child._environment(launch, {}))
        assert server.wait(60.0)
        pairs = [socket.socketpair() for _ in range(3)]
        forked = [server.fork({}, tmp_path, log.fileno(), [theirs.fileno()]) for _, theirs in pairs]
        for end in (each for pair in pairs for each in pair):
            held.enter_context(end)
        closed, killed, lost = [each for each in forked if each is not None]
        assert killed.poll() is None
        killed.send_signal(signal.SIGKILL)
        assert killed.wait(GONE_SECONDS) == killed.poll() == -signal.SIGKILL
        killed.terminate()  # it is gone: nobody else who has its number is told to end
        for end in pairs[0]:
            end.close()
        assert closed.wait(GONE_SECONDS) == 0
        os.kill(psutil.Process(lost.pid).ppid(), signal.SIGKILL)
        assert lost.wait(GONE_SECONDS) == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.skipif(len(machine.allowed()) < 2, reason="there is one core only")
def test_a_process_that_a_trial_has_bound_to_fewer_cores_runs_no_other_trial(runner: TrialRunner) -> None:
    runner.ceiling(CONFIG.model_setup)  # what the model leaves
    first, bound = pids(runner, CONFIG), pids(runner, CONFIG, fault="bind")
    after = pids(runner, CONFIG, CONFIG)
    assert first == bound
    assert after[0] != bound[0]
    assert after[0] == after[1]


@pytest.mark.slow
def test_a_process_whose_time_is_up_is_not_waited_for_as_it_closes(launch: Launch) -> None:
    patient = Deadlines(close_seconds=3600.0, end_seconds=0.1)
    with TrialRunner(launch, deadlines=patient) as runner:
        assert pids(runner, CONFIG, fault="hang_in_close") != []
        runner.until = time.monotonic()
