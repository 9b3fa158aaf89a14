"""A search on this machine: what is known before, what it waits for, whose study it is, and what ap.tune refuses."""

import contextlib
import datetime
import errno
import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import time
import types
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import Mock

import cloudpickle
import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import pick
from autopipe.hardware import gpu
from autopipe.hardware.machine import Memory
from autopipe.measure.facts import Ceiling, WrappedDataset
from autopipe.measure.outcome import Agreement, EpochTime, FailureKind, Measurement, Phase, TrialFailure, Verification
from autopipe.measure.trial.child import Log
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.search import lock, record, searching
from autopipe.search import space as spaces
from autopipe.search.conclusion import Searched
from autopipe.search.result import Asker, Event, OnEvent, SpaceTrimmed, StudyOpened, Waiting
from autopipe.search.searching import Site, Watcher
from autopipe.search.settings import Settings
from autopipe.values import JsonObject
from autopipe.workload.mode import Mode
from tests.fakes.facts import DESCRIBED, measurement
from tests.fakes.fleet import Trials, imaginary
from tests.fakes.nvml import Device, FakeNvml
from tests.fakes.surface import Surface
from tests.unit.search.conftest import some


@dataclass
class Started(Trials):
    """Notes when something is started for the trials, and what is told."""

    surface: Surface = field(default_factory=Surface)
    told: list[object] = field(default_factory=list)

    def begin(self) -> None:
        self.told.append("started")

    def on_event(self, event: object) -> None:
        self.told.append(event)


Search: TypeAlias = Callable[..., tuple[Searched, Settings]]
FULL = TrialFailure(kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message="there is no room")
TIMED = EpochTime(training_seconds=1.0, validation_seconds=0.25, pause_seconds=0.5)
SPACE = "{schema_version: 1, parameters: {loader: [threads], threads.workers: [1, cores]}}"


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    """Search on an imaginary machine of its own: two trials and no proof, if nothing else is chosen."""

    def searched(
        runner: Trials, listen: OnEvent = lambda event: None, *, lock_name: str = "", described: Any = None,
        folder: Path | None = None, written: str | None = None, **chosen: Any,
    ) -> tuple[Searched, Settings]:  # fmt: skip
        monkeypatch.setattr(searching, "MEASURING", lock_name or f"autopipe-test-{uuid.uuid4()}")
        monkeypatch.setattr(searching, "foreign_runner", lambda *_: runner)
        space = spaces.read("quick") if written is None else spaces.parse(written)
        known = DESCRIBED.model_copy(update=described)
        here = Site(machine=imaginary(), described=known, space=space, folder=folder or Path.cwd())
        asked: dict[str, Any] = {"space": "quick", "trials": 2, "blocks": (0, 0), "budget_seconds": None, **chosen}
        return searching.search(runner, here, Settings(**asked), listen)  # type: ignore[arg-type]  # plays it

    return searched


def test_what_is_free_is_looked_at_after_the_wait(monkeypatch: pytest.MonkeyPatch, search: Search, name: str) -> None:
    runner, free = Started(), [1 << 34]
    monkeypatch.setattr(searching, "detect_memory", lambda: Memory(usable_bytes=1 << 34, available_bytes=free[0]))
    with contextlib.ExitStack() as another_tune:
        another_tune.enter_context(lock.Queue(pytest.fail).held(name))

        def listen(event: Event) -> None:
            runner.told.append(event)
            if isinstance(event, Waiting):
                free[0] = 1 << 20  # the other has left that
                another_tune.close()

        _, asked = search(runner, listen, lock_name=name, described={"fixed_bytes": 1 << 30}, began=5.0)
    kinds = [each if isinstance(each, str) else type(each) for each in runner.told]
    assert kinds[0] is Waiting
    assert "started" in kinds[1 : kinds.index(StudyOpened)]
    trimmed = next(each for each in runner.told if isinstance(each, SpaceTrimmed))
    assert any(reason.startswith("keep memory: needs") for reason in trimmed.left_out)
    assert some(asked.began) > 5.0


def test_a_tune_that_waits_for_another_in_vain_ends_by_its_budget_and_starts_nothing(search: Search, name: str) -> None:
    runner = Started()
    with lock.Queue(pytest.fail).held(name), pytest.raises(ap.NothingMeasuredError, match=f"process {os.getpid()} "):
        search(runner, runner.on_event, lock_name=name, budget_seconds=0.01)
    assert [each.seconds for each in runner.told if isinstance(each, Waiting)] == [0.02]
    assert len(runner.told) == 1


@pytest.mark.parametrize(
    ("fastest", "took"), [(True, 0.0), (False, 0.0), (True, 30.0)], ids=["cached", "as it is", "too late"]
)
def test_fastest_arguments_that_change_the_training_are_told_once(search: Search, fastest: bool, took: float) -> None:
    now = [1000.0]

    class Wrapping(Started):
        """Trials of a wrapped dataset, one of whose two forms gives the same epoch again and again."""

        def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement:
            now[0] += took
            rate = 900.0 if config.loader.model_dump()["cache"] is fastest else 300.0
            return measurement(config, [rate] * 12, batch_size=32)

        def verify(self, configs: Sequence[PipelineConfig], options: JsonObject) -> Verification:
            assert options == {"samples": 256, "seconds": 1.5}
            looks = zip(configs, (None, "every epoch is the same"), strict=True)
            told = [Agreement(config=each, digest="d", samples=8, message=said) for each, said in looks]
            return Verification(agreements=tuple(told), compared=False)

    runner = Wrapping()
    as_it_is = PipelineConfig(loader=Wrapped.model_validate({"cache": False}), finish="host", device_prefetch=0)
    wrapped = WrappedDataset(as_it_is=as_it_is, choices={"cache": (False, True)})
    told = {"described": {"wrapped": wrapped}, "clock": lambda: now[0]}
    search(runner, space="default", trials=30, budget_seconds=50.0, **told)
    said = [(event.text, event.of_data) for event in runner.told if isinstance(event, Log)]
    if not fastest:
        assert said == []
    elif not took:
        assert said == [("The fastest arguments, cache=True, change the training: every epoch is the same.", True)]
    else:
        ((text, _),) = said
        assert "no time to see whether the fastest arguments, cache=True, change the training" in text


@pytest.mark.parametrize("last", ["epoch", "ceiling", "close"])
def test_ctrl_c_behind_the_search_loses_nothing(search: Search, last: str) -> None:
    class Interrupted(Started):
        is_over = False

        def _cut(self, name: str) -> None:
            if name == last and self.is_over:
                self.is_over = False  # once
                raise KeyboardInterrupt

        def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
            self.is_over = True
            return super().measure(config, options)

        def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> Ceiling:
            self._cut("ceiling" if "samples" in (options or {}) else "")
            return super().ceiling(setup, options)

        def epoch(self, config: PipelineConfig, options: JsonObject) -> EpochTime:
            self._cut("epoch")
            return TIMED

        def close(self) -> None:
            self._cut("close")

    validated = {"validation": 200, "accelerators": int(last == "ceiling")}
    found, _ = search(Interrupted(), described=validated, budget_seconds=120.0, trials=8)
    assert found.result.winner is not None


def test_whole_epochs_are_timed_last_of_the_winner_and_the_fastest_two_baselines(search: Search) -> None:
    cases: list[tuple[int, dict[str, Any], list[float]]] = [
        (200, {}, [3.6] * 3),
        (200, {"budget_seconds": 50.0}, [1.5] * 3),
        (0, {}, []),
        (200, {"mode": Mode.PREDICT}, []),
    ]
    for validation, chosen, seconds in cases:

        class Timing(Started):
            def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
                self.told.clear()
                return super().measure(config, options)

            def epoch(self, config: PipelineConfig, options: JsonObject) -> EpochTime | TrialFailure:
                self.told.append(options["seconds"])
                return FULL if config.loader.is_foreign else TIMED

        runner = Timing()
        asked = {"budget_seconds": 120.0, "trials": 8, **chosen}
        result = search(runner, described={"validation": validation}, **asked)[0].result
        assert runner.told == pytest.approx(seconds)
        assert some(result.winner).epoch == (TIMED if seconds else None)
        assert {each.epoch for each in result.baselines} == {None}


def test_a_study_whose_trials_measured_something_else_is_not_gone_on_with(url: str, search: Search) -> None:
    files = {"data_digest": "files=3 names=a sizes=b times=c"}
    first = {"storage": url, "simulate": ap.SimulatedAccelerator(0.015), "described": files}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"mode": Mode.PREDICT}, "mode: nothing there, 'predict' here."),
        ({"simulate": ap.SimulatedAccelerator(0.005)}, "simulated step: '15ms' there, '5ms' here."),
        ({"described": {"model": "n"} | files}, "workload: another model."),
        ({"described": {"data_digest": "files=4 names=b sizes=c times=d"}}, "data: 3 files there, 4 here."),
        ({"described": {"data_digest": "files=3 names=b sizes=b times=d"}}, "data: files of other names."),
        ({"described": {"data_digest": "files=3 names=a sizes=c times=d"}}, "data: files of other sizes."),
        ({"described": {"data_digest": "files=3 names=a sizes=b times=d"}}, "data: files that have been written or "),
        ({"described": {"data_digest": "rows=3"}}, "data: files '3' there, nothing here"),
    ]
    search(Started(), **first)
    for change, said in cases:
        with pytest.raises(ap.TrialError, match=re.escape(f"recorded for something else: {said}")):
            search(Started(), **(first | change))
    search(Started(), **first, seed=1, epochs=3, budget_seconds=60.0)  # which measure nothing else


def test_tunes_at_once_stay_apart(tmp_path: Path, url: str, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second runs within a trial of the first, as one on another machine of the kind may."""
    monkeypatch.setattr(record, "is_shared", lambda url: True)  # as a server's is
    opened, ran, found = list[tuple[str, int]](), Counter[str](), dict[str, Searched]()

    def tune(name: str, trials: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        def measures() -> None:
            ran[name] += 1
            meanwhile()

        def listen(event: Event) -> None:
            if isinstance(event, StudyOpened):
                opened.append((name, event.resumed))

        runner = Started(on_measure=measures)
        found[name], _ = search(runner, listen, folder=tmp_path / name, trials=trials, storage=url)

    tune("one", 12, lambda: None if "other" in ran else tune("other", 13))
    assert {name: len(result.study.trials) for name, result in found.items()} == ran
    before = ran["one"]
    tune("one", 14)
    assert opened == [("one", 0), ("other", 0), ("one", before)]


def test_what_looks_odd_about_the_data_in_a_trial_is_warned_of_once_where_nobody_else_is_told() -> None:
    watcher = Watcher()
    watcher.on_trial(Log(text="The model's first training step took 40 s."))
    odd = Log(text="4 of 4 images lie on their side.", of_data=True)
    with pytest.warns(ap.DataWarning, match="lie on their side") as warned:
        list(map(watcher.on_trial, [odd] * 3))
    assert len(warned) == 1


def test_a_baseline_of_a_notebook_stands_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_dataset() -> None:
        pass

    kernel = types.ModuleType("__main__")
    make_dataset.__module__, make_dataset.__qualname__ = "__main__", "make_dataset"
    vars(kernel)["make_dataset"] = make_dataset
    monkeypatch.setitem(sys.modules, "__main__", kernel)
    with pytest.raises(ap.ConfigError, match="must be a function that is defined in a file"):
        ap.tune("train.py:workload", baseline=make_dataset)


def test_a_search_counts_the_cores_that_the_workload_leaves_to_its_trials(search: Search) -> None:
    bound, found = DESCRIBED.model_copy(update={"cores_left": 1}), imaginary()
    assert searching.facts_of(found, bound, Path.cwd()).cores == searching.hardware_of(found, bound).cores == 1
    for left in (None, found.cpu.cores, found.cpu.cores + 1):
        assert searching.bound(found, DESCRIBED.model_copy(update={"cores_left": left})) is found
    result = search(Started(), described={"cores_left": 1}, written=SPACE, space="mine.yaml", trials=4)[0].result
    ours = [pick.parse_config(each.config) for each in result.trials if each.origin is not Asker.BASELINE]
    assert {each.loader.worker_count() for each in ours} == {1}


def test_devices_are_those_that_keras_and_nvml_both_see(monkeypatch: pytest.MonkeyPatch) -> None:
    four = tuple(Device(uuid=f"GPU-{number}") for number in range(4))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(devices=four))
    cases: list[tuple[dict[str, int], str, int, str]] = [
        ({"accelerators": 4}, "0,1,2,3", 4, "Keras's jax backend sees 4 devices, NVML 4 devices"),
        ({"accelerators": 2}, "GPU-2,GPU-3", 2, "Keras's jax backend sees 2 devices, NVML 2 devices"),
        ({"accelerators": 4}, "3", 1, "Keras's jax backend sees 4 devices, NVML 1 device"),
        ({"accelerators": 0}, "0,1", 1, "NVML sees 2 devices, but Keras's jax backend none: it trains on the CPU"),
        ({"accelerators": 8}, "", 1, "Keras's jax backend sees 8 devices, but NVML sees none, so only one is used"),
        ({"virtual_devices": 2}, "", 2, "2 virtual devices were asked for"),
        ({"accelerators": 0}, "", 1, "there is no accelerator"),
    ]
    for backend, visible, devices, reason in cases:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        seen = DESCRIBED.model_copy(update={"backend": "jax", **backend})
        assert searching.devices_of(seen, len(gpu.detect())) == (devices, reason)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_trials_build_a_model_under_the_dtype_policy_of_the_process_that_tunes(policy: str) -> None:
    def build() -> Any:
        return keras.layers.Dense(1)

    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy(policy)
        workload = ap.Workload(data=ap.Arrays(np.zeros((4, 2))), ops=[], batch_size=2, model=build)
        sent = cloudpickle.dumps(searching.runner_for(workload).launch.workload)
        keras.config.set_dtype_policy("float32")  # as a new process has it
        assert cloudpickle.loads(sent).model().dtype_policy.name == policy
    finally:
        keras.config.set_dtype_policy(before)


@pytest.fixture
def name() -> str:
    return f"autopipe-test-{uuid.uuid4()}"


HOLDS = """import sys
from autopipe.search import lock
with lock.Queue(print).held(sys.argv[1]):
    print()
    sys.stdin.read()
"""
BEGAN = time.time()


@contextlib.contextmanager
def holding(name: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold the lock."""
    command = [sys.executable, "-u", "-X", "study=db://me:password@host", "-c", HOLDS, name]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("state", "patience_seconds", "advice"),
    [
        ("running", 0.01, "end it by `kill {process}`"),
        ("stopped", 3600.0, "`kill -CONT {process}`"),
        ("running of {user}", 0.01, "or ask {user} to end it."),  # who alone can
    ],
)
def test_a_process_is_waited_for_no_longer_than_was_said_and_named_with_its_state(
    name: str, monkeypatch: pytest.MonkeyPatch, state: str, patience_seconds: float, advice: str
) -> None:
    waited, own, user = list[str](), os.getuid(), pwd.getpwuid(os.getuid()).pw_name
    kind, _, whose = state.format(user=user).partition(" ")
    with holding(name) as holder:
        if kind == "stopped":
            os.kill(holder.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
            monkeypatch.setattr(lock, "_STOPPED_SECONDS", 0.0)
        if whose:
            monkeypatch.setattr("os.getuid", lambda: own + 1)
        queue = lock.Queue(waited.append, patience_seconds)
        with pytest.raises(ap.NothingMeasuredError) as refused, queue.held(name):
            pytest.fail("it got in")
    (told,), hint = waited, str(refused.value.hint)
    begins = " ".join(filter(None, (f"process {holder.pid}", whose, "(")))
    begun = f"begun at {datetime.datetime.fromtimestamp(BEGAN):%Y-}"
    assert re.fullmatch(rf"{re.escape(begins)}.*import lock.*{begun}.*{kind}\)", told, re.S)
    assert told in refused.value.message
    assert "password" not in refused.value.message
    assert advice.format(process=holder.pid, user=user) in hint
    assert not whose or "kill" not in hint


def test_no_socket_no_queue(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    forbidden = Mock(side_effect=OSError(errno.EACCES, os.strerror(errno.EACCES)))
    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with lock.Queue(pytest.fail).held(name):
        pass
    assert "cannot be kept from measuring at the same time: Permission denied" in caplog.text
