"""A search on this machine: what is known before, what it waits for, whose study it is, and what ap.tune refuses."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import types
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.api import tuning
from autopipe.api.tuning import tune
from autopipe.artifact import codegen, pick
from autopipe.errors import ConfigError, DataWarning, NothingMeasuredError, TrialError
from autopipe.hardware import gpu, machine
from autopipe.hardware.machine import Machine, Memory
from autopipe.measure.facts import Ceiling, Limits, WrappedDataset
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
from autopipe.values import Estimate, JsonObject
from autopipe.workload.mode import Mode
from tests.fakes import findings, profiles
from tests.fakes.facts import DESCRIBED
from tests.fakes.fleet import Fleet, Trials, imaginary
from tests.fakes.measurements import measurement
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


def test_what_is_free_is_looked_at_after_another_tune_was_waited_for_and_nothing_starts_before(
    monkeypatch: pytest.MonkeyPatch, search: Search
) -> None:
    name, runner, free = f"autopipe-test-{uuid.uuid4()}", Started(), [1 << 34]
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


def test_a_tune_that_waits_for_another_in_vain_ends_by_its_budget_and_starts_nothing(search: Search) -> None:
    name, runner = f"autopipe-test-{uuid.uuid4()}", Started()
    with lock.Queue(pytest.fail).held(name), pytest.raises(NothingMeasuredError, match=f"process {os.getpid()} "):
        search(runner, runner.on_event, lock_name=name, budget_seconds=0.01)
    (event,) = runner.told
    assert isinstance(event, Waiting)
    assert event.seconds == 0.02


HERE_OR_ELSEWHERE = """
schema_version: 1
parameters:
  loader: [threads, elsewhere]
  threads.workers: {choices: [1, 2], when: {loader: threads}}
  elsewhere.workers: {choices: [2, 4], when: {loader: elsewhere}}
"""


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("limits", "asked"), [(Limits(), True), (Limits(only={"loader": ("threads",)}), False)])
def test_trials_count_the_cores_elsewhere_if_a_loader_uses_them(search: Search, limits: Limits, asked: bool) -> None:
    class Asked(Started):
        def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> Ceiling:
            self.told.append((options or {}).get("elsewhere"))
            return super().ceiling(setup, options)

    runner = Asked()
    search(runner, written=HERE_OR_ELSEWHERE, space="mine.yaml", trials=1, budget_seconds=1.0, limits=limits)
    (first, *others) = runner.told
    assert (isinstance(first, dict) and first["loader"]["kind"] == "elsewhere") is asked
    assert not any(others)


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
            self.told.append(options)
            said = (None, "every epoch is the same")
            looks = [
                Agreement(config=each, digest="d", samples=8, message=told)
                for each, told in zip(configs, said, strict=True)
            ]
            return Verification(agreements=tuple(looks), compared=False)

    runner = Wrapping()
    as_it_is = PipelineConfig(loader=Wrapped.model_validate({"cache": False}), finish="host", device_prefetch=0)
    wrapped = WrappedDataset(as_it_is=as_it_is, choices={"cache": (False, True)})
    told = {"described": {"wrapped": wrapped}, "clock": lambda: now[0]}
    search(runner, space="default", trials=30, budget_seconds=50.0, **told)
    if not fastest:
        assert runner.told == []
        return
    if took:
        (event,) = runner.told
        assert isinstance(event, Log)
        assert "no time to see whether the fastest arguments, cache=True, change the training" in event.text
        return
    options, event = runner.told
    assert options == {"samples": 256, "seconds": 1.5}
    text = "The fastest arguments, cache=True, change the training: every epoch is the same."
    assert event == Log(text=text, of_data=True)


@pytest.mark.parametrize(
    ("accelerators", "chosen", "seconds"),
    [
        (1, {}, 6.0),
        (1, {"budget_seconds": 60.0}, 3.0),
        (1, {"budget_seconds": 20.0}, None),  # which trials need more
        (1, {"simulate": ap.SimulatedAccelerator(0.005)}, None),
        (0, {}, None),
    ],
)
def test_on_an_accelerator_the_last_that_is_measured_is_the_model_alone_with_twice_the_batch(
    search: Search, monkeypatch: pytest.MonkeyPatch, accelerators: int, chosen: dict[str, Any], seconds: float | None
) -> None:
    class Asked(Started):
        until = 0.0

        def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> Ceiling:
            if (options or {}).get("samples") is None:
                return super().ceiling(setup, options)
            assert options == {"model_only": True, "samples": 64}
            self.told.append(round(self.until - time.monotonic()))
            rate = Estimate(value=9000.0, low=9000.0, high=9000.0)
            return super().ceiling(setup).model_copy(update={"model_images_per_second": rate})

        def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
            self.told.clear()
            return super().measure(config, options)

    runner = Asked()
    found, _ = search(runner, described={"accelerators": accelerators}, **{"budget_seconds": 120.0, **chosen})
    assert found.result.doubled_images_per_second == (None if seconds is None else 9000.0)
    assert runner.told == ([] if seconds is None else [seconds])


def test_twice_the_batch_may_fail(search: Search) -> None:
    class Full(Started):
        def ceiling(self, setup: ModelSetup, options: JsonObject | None = None) -> Ceiling:
            if (options or {}).get("samples") is None:
                return super().ceiling(setup, options)
            return TrialFailure(  # type: ignore[return-value]  # as the runner itself does
                kind=FailureKind.OUT_OF_MEMORY, phase=Phase.WARM_UP, message="there is no room"
            )

    found, _ = search(Full(), described={"accelerators": 1})
    assert found.result.winner is not None
    assert found.result.doubled_images_per_second is None


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
            return EpochTime(training_seconds=1.0, validation_seconds=0.25, pause_seconds=0.5)

        def close(self) -> None:
            self._cut("close")

    validated = {"validation": 200, "accelerators": int(last == "ceiling")}
    found, _ = search(Interrupted(), described=validated, budget_seconds=120.0, trials=8)
    assert found.result.winner is not None


@pytest.mark.parametrize(
    ("validation", "chosen", "seconds"),
    [(200, {}, 3.6), (200, {"budget_seconds": 50.0}, 1.5), (0, {}, None), (200, {"mode": Mode.PREDICT}, None)],
)
def test_whole_epochs_are_timed_last_of_the_winner_and_the_fastest_two_baselines(
    search: Search, validation: int, chosen: dict[str, Any], seconds: float | None
) -> None:
    class Timing(Started):
        def measure(self, config: PipelineConfig, options: JsonObject) -> Measurement | TrialFailure:
            self.told.clear()
            return super().measure(config, options)

        def epoch(self, config: PipelineConfig, options: JsonObject) -> EpochTime | TrialFailure:
            self.told.append(options["seconds"])
            if config.loader.is_foreign:
                return TrialFailure(kind=FailureKind.CRASHED, phase=Phase.MEASURE, message="it cannot validate")
            return EpochTime(training_seconds=1.0, validation_seconds=0.25, pause_seconds=0.5)

    runner = Timing()
    asked = {"budget_seconds": 120.0, "trials": 8, **chosen}
    result = search(runner, described={"validation": validation}, **asked)[0].result
    timed = some(result.winner).epoch
    if seconds is None:
        assert (timed, runner.told) == (None, [])
        return
    assert runner.told == [pytest.approx(seconds)] * 3
    assert some(timed).seconds == 1.75
    assert [each.epoch for each in result.baselines] == [None] * len(result.baselines)


OF_A_BATCH = {"simulate": ap.SimulatedAccelerator(0.015, 400)}
FILES = "files=3 names=a sizes=b times=c"
OTHER_FILES = {
    "files=4 names=b sizes=c times=d": "data: 3 files there, 4 here.",
    "files=3 names=b sizes=b times=d": "data: files of other names.",
    "files=3 names=a sizes=c times=d": "data: files of other sizes.",
    "files=3 names=a sizes=b times=d": "data: files that have been written or copied since.",
    "rows=3": "data: files '3' there, nothing here",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": Mode.PREDICT}, "mode: nothing there, 'predict' here."),
        ({"simulate": ap.SimulatedAccelerator(0.005)}, "simulated step: '15ms' there, '5ms' here."),
        pytest.param(OF_A_BATCH, "simulated step: '15ms' there, '15ms/400' here", marks=pytest.mark.slow),
        pytest.param({"page_cache": "cold"}, "page cache: nothing there, 'cold' here.", marks=pytest.mark.slow),
        ({"described": {"model": "n", "data_digest": FILES}}, "workload: another model."),
        *(({"described": {"data_digest": now}}, said) for now, said in OTHER_FILES.items()),
        ({"seed": 1, "epochs": 3, "budget_seconds": 60.0}, None),
    ],
    ids=["mode", "step", "step of a batch", "page cache", "model", *OTHER_FILES, "what measures nothing else"],
)
def test_a_study_whose_trials_measured_something_else_is_not_gone_on_with(
    url: str, search: Search, change: dict[str, Any], said: str | None
) -> None:
    first: dict[str, Any] = {"storage": url, "simulate": ap.SimulatedAccelerator(0.015)}
    first |= {"described": {"data_digest": FILES}}
    search(Started(), **first)
    words = f"recorded for something else: {re.escape(said or '')}"
    with pytest.raises(TrialError, match=words) if said else contextlib.nullcontext():
        search(Started(), **(first | change))


def test_tunes_that_run_at_once_over_one_storage_keep_their_studies_apart_and_each_goes_on_with_its_own(
    tmp_path: Path, url: str, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_machine_and_space_are_looked_at_once_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, fleet, looks = tmp_path / "mine.yaml", Fleet(monkeypatch), list[Machine]()
    file.write_text("{schema_version: 1, parameters: {loader: [threads], threads.workers: [1, cores]}}")
    fleet.at(imaginary(), Surface())

    def detect() -> Machine:
        looks.append(imaginary())
        return looks[-1]

    monkeypatch.setattr(machine, "detect", detect)
    fleet.trials.on_describe = file.unlink
    settings = Settings(space=str(file), blocks=(0, 0), budget_seconds=None)
    found, tuned = tuning.run("train.py:workload", settings, Watcher())
    assert tuned is not None
    ours = [pick.parse_config(each.config) for each in found.trials if each.origin is not Asker.BASELINE]
    assert {each.loader.worker_count() for each in ours} <= {1, 4}
    assert len(looks) == 1


def test_what_looks_odd_about_the_data_in_a_trial_is_warned_of_once_where_nobody_else_is_told() -> None:
    watcher = Watcher()
    watcher.on_trial(Log(text="The model's first training step took 40 s."))
    odd = Log(text="4 of 4 images lie on their side.", of_data=True)
    with pytest.warns(DataWarning, match="lie on their side") as warned:
        list(map(watcher.on_trial, [odd] * 3))
    assert len(warned) == 1


def test_a_baseline_of_a_notebook_stands_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_dataset() -> None:
        pass

    kernel = types.ModuleType("__main__")
    make_dataset.__module__, make_dataset.__qualname__ = "__main__", "make_dataset"
    vars(kernel)["make_dataset"] = make_dataset
    monkeypatch.setitem(sys.modules, "__main__", kernel)
    with pytest.raises(ConfigError, match="must be a function that is defined in a file"):
        tune("train.py:workload", baseline=make_dataset)


def test_a_parameter_is_held_to_one_value_or_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []

    def run(workload: str, settings: Settings, watcher: object) -> tuple[None, str]:
        asked.append(settings)
        return None, "tuned"

    monkeypatch.setattr(tuning, "run", run)
    only = {"keep": "none", "threads.workers": 4, "loader": ["threads", "tfdata"]}
    tune("train.py:workload", only=only, space=Path("space.yaml"))  # type: ignore[arg-type]  # a path is taken, too
    (settings,) = asked
    assert settings.space == "space.yaml"
    assert settings.limits.only == {"keep": ("none",), "threads.workers": (4,), "loader": ("threads", "tfdata")}


def test_a_search_counts_the_cores_that_the_workload_leaves_to_its_trials(search: Search) -> None:
    bound, found = DESCRIBED.model_copy(update={"cores_left": 1}), imaginary()
    assert searching.facts_of(found, bound, Path.cwd()).cores == 1
    assert searching.hardware_of(found, bound).cores == 1
    for left in (None, found.cpu.cores, found.cpu.cores + 1):
        assert searching.bound(found, DESCRIBED.model_copy(update={"cores_left": left})) is found
    result = search(Started(), described={"cores_left": 1}, written=WORKERS, space="mine.yaml", trials=4)[0].result
    ours = [pick.parse_config(each.config) for each in result.trials if each.origin is not Asker.BASELINE]
    assert {each.loader.worker_count() for each in ours} == {1}


WORKERS = "{schema_version: 1, parameters: {loader: [threads], threads.workers: [1, cores]}}"


def test_processes_that_start_slowly_are_waited_for_within_the_budget(search: Search) -> None:
    class Begun(Started):
        until = 0.0

        def begin(self) -> None:
            self.told.append(round(self.until - time.monotonic()))

    asked: dict[str, Any] = {"budget_seconds": 100.0, "clock": lambda: 1000.0, "trials": 1}
    search(runner := Begun(), began=990.0, **asked)  # the first has taken a tenth of it
    assert set(runner.told) == {40}
    search(runner := Begun(), began=960.0, **asked)  # two fifths: others would take as long
    assert runner.told == []


FOUR = tuple(Device(uuid=f"GPU-{number}") for number in range(4))


@pytest.mark.parametrize(
    ("backend", "visible", "devices", "reason"),
    [
        ({"accelerators": 4}, None, 4, "Keras's jax backend sees 4 devices, NVML 4 devices"),
        ({"accelerators": 2}, "GPU-2,GPU-3", 2, "Keras's jax backend sees 2 devices, NVML 2 devices"),
        ({"accelerators": 4}, "3", 1, "Keras's jax backend sees 4 devices, NVML 1 device"),
        ({"accelerators": 0}, None, 1, "NVML sees 4 devices, but Keras's jax backend none: it trains on the CPU"),
        ({"accelerators": 8}, "", 1, "Keras's jax backend sees 8 devices, but NVML sees none, so only one is used"),
        ({"virtual_devices": 2}, "", 2, "2 virtual devices were asked for"),
        ({"accelerators": 0}, "", 1, "there is no accelerator"),
    ],
)
def test_devices_are_those_that_keras_and_nvml_both_see(
    backend: dict[str, int], visible: str | None, devices: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(devices=FOUR))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    seen = DESCRIBED.model_copy(update={"backend": "jax", **backend})
    assert searching.devices_of(seen, len(gpu.detect())) == (devices, reason)


def test_a_profile_is_made_of_what_a_search_found_and_none_of_nothing() -> None:
    result = findings.result()
    made = some(codegen.profile_of(result, DESCRIBED, profiles.hardware(), Settings()))
    assert (made.result, made.measured_at) == (result, result.ended_at)
    nothing = result.model_copy(update={"winner": None})
    assert codegen.profile_of(nothing, DESCRIBED, profiles.hardware(), Settings()) is None


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
