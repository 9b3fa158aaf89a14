"""Sessions on real loaders and small models. How fast anything runs is not tested; what is said of it is."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.errors import LoaderError, WorkloadError
from autopipe.hardware import disk
from autopipe.measure.meter import overall
from autopipe.measure.outcome import Phase
from autopipe.measure.session import TrialSession
from autopipe.pipeline.batching import trace
from autopipe.pipeline.config import LoaderConfig, ModelSetup, PipelineConfig
from autopipe.values import JsonObject
from autopipe.workload.mode import Mode
from autopipe.workload.ops.planner import make_plan
from tests.fakes.images import in_classes
from tests.fakes.reports import Told
from tests.fakes.sources import Made

pytestmark = pytest.mark.slow

IMAGES = np.random.default_rng(0).integers(0, 256, (70, 8, 8, 3), np.uint8)
LABELS = np.arange(70) % 3
QUICK: JsonObject = {"min_seconds": 0.15, "max_seconds": 0.3, "page_cache": "warm"}
THREADS = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=4))
PHASES = list(Phase)[2:]  # the process is started and has imported its workload


def workload(model: Any = None, count: int = 70, **other: Any) -> ap.Workload:
    return ap.Workload(
        data=ap.Arrays(IMAGES[:count], LABELS[:count]),
        ops=[ap.RandomFlip(), ap.Rescale(1 / 255)],
        model=model or ap.SimulatedAccelerator(step_seconds=0.004),
        **{"batch_size": 8, **other},
    )


def classifier(*first: Any, kind: type[keras.Sequential] = keras.Sequential, **compiled: Any) -> Any:
    def build() -> keras.Model:
        model = kind([keras.Input((8, 8, 3)), *first, keras.layers.Flatten(), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"], **compiled)
        return model

    return build


def test_a_trial_whose_worker_died_says_so(tmp_path: Path) -> None:
    marker, here = tmp_path / "died", os.getpid()

    def read(index: int) -> Any:
        if index == 63 and os.getpid() != here and not marker.exists():
            marker.touch()
            os._exit(1)
        return IMAGES[index], LABELS[index]

    session = TrialSession(dataclasses.replace(workload(), data=Made(64, read)))
    config = ap.PipelineConfig(loader=ap.Processes(workers=1))
    first, second = (session.measure(config, QUICK, Told()).warnings for _ in range(2))
    session.close()
    assert [said for said in first if "1 worker" in said and "died" in said] != []
    assert [said for said in second if "died" in said] == []


def test_skipped_samples_are_no_obstacle_and_are_listed_by_no_trial(tmp_path: Path) -> None:
    def read(index: int) -> Any:
        if index == 63:
            raise FileNotFoundError("gone.jpg")
        return IMAGES[index], LABELS[index]

    skipping = workload(on_bad_sample="skip", bad_sample_log=str(tmp_path / "log"), batch_size=64)
    session = TrialSession(dataclasses.replace(skipping, data=Made(64, read)))
    assert len(session.describe(Told()).sizes) == 15
    assert session.measure(THREADS, QUICK, Told()).images_per_second.value > 0
    session.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("loader", "keep"),
    [
        (ap.Threads(workers=2), "memory"),
        (ap.Processes(workers=1), "none"),
        (ap.Processes(workers=1), "memory"),
        (ap.TfData(), "none"),
        (ap.Resident(workers=2), "none"),
    ],
)
def test_a_real_model_is_measured_on_every_loader(loader: LoaderConfig, keep: Any) -> None:
    log = Told()
    session = TrialSession(workload(classifier()))
    config = ap.PipelineConfig(loader=loader, keep=keep)
    with subprocess.Popen(["sleep", "60"]) as of_the_user:  # which the figures do not count
        found = session.measure(config, QUICK, log)
        of_the_user.kill()
    session.close()
    assert found.images_per_second.value > 0
    assert found.batch_size == 8
    assert found.config_key == config.key()
    assert (found.cache_fill_seconds is not None) == (keep == "memory" or loader.keeps_on_device)
    assert found.discarded_batches >= (8 if keep == "memory" else 1)
    assert found.epoch_restart_seconds is not None
    assert found.page_cache == "warm"
    assert 0 <= found.data_wait_share <= 1
    assert found.ran.backend == keras.backend.backend()
    processes = 2 if loader.kind == "processes" else 0  # the worker, and what forked it
    assert (found.ran.processes, found.ran.threads == 0) == (processes, processes > 0)
    assert log.phases == PHASES
    assert log.images == sorted(log.images)


def test_trial_after_trial_runs_on_one_compiled_model() -> None:
    built = []

    def build() -> Any:
        built.append(1)
        return classifier()()

    session = TrialSession(workload(build))
    for finish in ("device", "host", "device"):
        session.measure(THREADS.model_copy(update={"finish": finish}), QUICK, Told())
    assert len(built) == 1
    several = TrialSession(workload(classifier(steps_per_execution=4))).measure(THREADS, QUICK, Told())
    trained = [window.images for window in several.windows]
    is_of_the_loader = any(images % 8 for images in trained)  # what it made, as a queue was emptied meanwhile
    assert is_of_the_loader or all(images % (4 * 8) == 0 for images in trained)


@pytest.mark.parametrize(("count", "batch_size"), [(8, 8), (9, 8), (1, 1)])
def test_data_of_one_batch_are_measured(count: int, batch_size: int) -> None:
    found = TrialSession(workload(count=count, batch_size=batch_size)).measure(THREADS, QUICK, Told())
    assert found.batch_size == batch_size
    assert sum(window.images for window in found.windows) >= batch_size


class Epochs(keras.Sequential):
    begun = 0

    def reset_metrics(self) -> None:
        type(self).begun += 1
        super().reset_metrics()


def test_a_trial_trains_epoch_after_epoch_and_counts_the_pauses_between_them() -> None:
    session = TrialSession(workload(classifier(kind=Epochs)))
    session.measure(THREADS, QUICK, Told())  # the model alone trains first
    Epochs.begun = 0
    found = session.measure(THREADS, QUICK, Told())
    assert Epochs.begun > sum(window.images for window in found.windows) // 64  # 8 batches of 8
    assert found.images_per_second == overall(found.windows, 64)


class OddLogs(keras.Model):
    """Logs nested values, arrays, text and nothing at all."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(keras.ops.reshape(inputs, (-1, 192)))

    def train_step(self, data: Any) -> Any:
        x, _ = data
        self(x)
        return {"confusion": keras.ops.ones((2, 2)), "nested": {"a": keras.ops.zeros(())}, "none": None}


def odd() -> keras.Model:
    model = OddLogs()
    model.compile(optimizer="sgd")
    return model


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="a train_step of one's own is written for one backend"
)
def test_whatever_a_model_logs_is_waited_for() -> None:
    assert TrialSession(workload(odd)).measure(THREADS, QUICK, Told()).images_per_second.value > 0


def test_a_trial_that_cannot_win_ends_before_it_may() -> None:
    options: JsonObject = {"min_seconds": 60.0, "max_seconds": 60.0, "hopeless_below": 1e9, "page_cache": "warm"}
    assert TrialSession(workload()).measure(THREADS, options, Told()).measured_seconds < 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return in_classes(tmp_path, 40, (20, 20))


def photos(folder: Path, **other: Any) -> ap.Workload:
    return ap.Workload(
        data=ap.ImageFolder(folder),
        ops=[ap.Decode(), ap.Resize(8, 8), ap.RandomFlip(), ap.Rescale(1 / 255)],
        model=ap.SimulatedAccelerator(step_seconds=0.02),
        **{"batch_size": 4, **other},
    )


def test_a_cold_trial_reads_each_file_once_and_says_so_unless_a_cache_goes_on_from_memory(folder: Path) -> None:
    session = TrialSession(photos(folder))
    cached = session.measure(THREADS.model_copy(update={"keep": "memory"}), QUICK | {"page_cache": "cold"}, Told())
    assert cached.epoch_restart_seconds is not None
    assert not any("ended with the data" in warning for warning in cached.warnings)
    found = session.measure(THREADS, QUICK | {"max_seconds": 30.0, "min_seconds": 30.0, "page_cache": "cold"}, Told())
    assert found.page_cache == "cold"
    assert found.epoch_restart_seconds is None
    assert sum(window.images for window in found.windows) < 40
    assert any("ended with the data" in warning for warning in found.warnings)


def test_a_cold_trial_of_a_part_cached_reads_the_rest_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[Path] = []
    monkeypatch.setattr(disk, "drop", dropped.extend)
    half = THREADS.model_copy(update={"keep": "memory:50%"})
    long: JsonObject = QUICK | {"max_seconds": 30.0, "min_seconds": 30.0, "page_cache": "cold"}
    session = TrialSession(photos(folder))
    assert (session.ceiling({"page_cache": "cold"}, Told()).read_bytes_per_second or 0) > 0
    dropped.clear()
    found = session.measure(half, long, Told())
    assert {dropped.count(path) for path in folder.rglob("*") if path.is_file()} == {2}
    assert sum(window.images for window in found.windows) < 40  # of the second epoch; the first fills the cache
    assert any("ended with the data" in warning for warning in found.warnings)


def test_data_too_few_for_a_cold_trial_are_refused(folder: Path) -> None:
    with pytest.raises(WorkloadError, match="an epoch has 2 batches"):
        TrialSession(photos(folder, batch_size=20)).measure(THREADS, QUICK | {"page_cache": "cold"}, Told())


@pytest.mark.parametrize(
    ("validates", "free", "said"),
    [
        (False, 40 * 8 * 8 * 3 + 1, "A cache of 100% of the samples needs"),
        (True, 40 * 8 * 8 * 3 * 2, r"needs 7\.\d KiB for training's and 7\.\d KiB for validation's, but 15"),
    ],
)
def test_a_cache_is_refused_if_it_has_no_room_beside_validations_samples(
    validates: bool, free: int, said: str, this_machine: Callable[..., None], folder: Path
) -> None:
    asked = photos(folder)
    session = TrialSession(dataclasses.replace(asked, validation=asked.data if validates else None))
    this_machine(free_bytes=free)
    with pytest.raises(LoaderError, match=said):
        session.measure(THREADS.model_copy(update={"keep": "memory"}), QUICK, Told())


@pytest.mark.parametrize(
    "config",
    [
        PipelineConfig(loader=ap.Threads(workers=2)),
        PipelineConfig(loader=ap.Threads(workers=1), keep="memory"),
        PipelineConfig(loader=ap.Threads(workers=1), keep="array"),
        PipelineConfig(loader=ap.Processes(workers=1)),
        PipelineConfig(loader=ap.TfData(), finish="host"),
    ],
    ids=PipelineConfig.short,
)
@pytest.mark.parametrize("page_cache", ["warm", "cold"])
def test_a_loader_runs_without_the_model(folder: Path, config: PipelineConfig, page_cache: str) -> None:
    session = TrialSession(photos(folder))
    found = session.loader(config, {"page_cache": page_cache}, Told())
    assert found.images_per_second.value > 0
    assert found.images_per_second.low <= found.images_per_second.high
    session.close()


def test_the_loader_alone_makes_do_with_little_memory(this_machine: Callable[..., None]) -> None:
    session = TrialSession(workload())
    this_machine(free_bytes=20_000, cores=64)  # 12 batches
    found = session.ceiling({}, Told())
    session.close()
    assert found.loader_images_per_second is not None
    assert found.op_costs


def test_the_ceiling_names_all_there_is_to_know(folder: Path) -> None:
    found, plan = TrialSession(photos(folder)).ceiling({"page_cache": "warm"}, Told()), make_plan(photos(folder))
    assert 0 < found.model_images_per_second.value < 2 * 200  # 4 images in 20 ms; less on a slow machine
    assert found.loader_images_per_second is not None
    assert [cost.name for cost in found.op_costs] == ["read", "Decode", "Resize", "RandomFlip", "Rescale", "batching"]
    assert found.bytes_per_image is not None
    assert found.gradient_bytes is not None
    assert found.exchange_seconds is None  # on one device
    assert (found.compact_bytes, found.finished_bytes) == (plan.compact.bytes, plan.finished.bytes)
    assert plan.finished.bytes - plan.compact.bytes == 3 * 8 * 8 * 3  # of four bytes a value in place of one
    assert found.read_bytes_per_second is None
    cold = TrialSession(photos(folder)).ceiling({"page_cache": "cold"}, Told())  # which has the disk in it
    assert (cold.read_bytes_per_second or 0) > 0
    setup = ModelSetup(finish="host", steps_per_execution=2)
    assert TrialSession(workload()).ceiling({**setup._asdict(), "model_only": True}, Told()).setup == setup


def test_what_the_model_alone_takes_is_told_if_asked_for_and_of_any_number_of_samples() -> None:
    session = TrialSession(workload(classifier()))
    options: JsonObject = {"model_only": True, "samples": 3}
    without, watched = (session.ceiling({**options, "resources": asked}, Told()) for asked in (False, True))
    session.close()
    assert without.resources is None
    assert watched.resources is not None
    assert (watched.resources.peak_rss_bytes or 0) > 0
    assert watched.resources.gpu_memory_bytes is None  # it trains on none


EPOCHS: JsonObject = {"seconds": 0.3, "images_per_second": 1e6, "page_cache": "warm"}


@pytest.mark.parametrize(
    ("loader", "keep"), [(ap.Threads(workers=2), "memory"), (ap.Processes(workers=1), "none"), (ap.TfData(), "none")]
)
def test_whole_epochs_are_timed_with_the_validation_that_the_workload_names(loader: LoaderConfig, keep: Any) -> None:
    session = TrialSession(workload(classifier(), validation=ap.Arrays(IMAGES[:20], LABELS[:20])))
    assert session.describe(Told()).validation == 20
    found = session.epoch(ap.PipelineConfig(loader=loader, keep=keep), EPOCHS, Told())
    session.close()
    assert found.share == 1.0
    assert min(found.training_seconds, found.validation_seconds, found.pause_seconds) > 0


def test_epochs_of_many_samples_are_timed_on_a_part_and_without_validation_there_is_nothing_to_time() -> None:
    many = ap.Arrays(np.repeat(IMAGES, 20, axis=0), np.repeat(LABELS, 20))
    session = TrialSession(dataclasses.replace(workload(validation=many), data=many))
    found = session.epoch(THREADS, {**EPOCHS, "images_per_second": 1000.0}, Told())
    session.close()
    assert 0 < found.share < 0.2
    assert found.training_seconds >= 0.9 * 175 * 0.004  # of the simulated accelerator; longer on a slow machine
    plain = TrialSession(workload())
    with pytest.raises(WorkloadError, match="names no `validation`"):
        plain.epoch(THREADS, EPOCHS, Told())
    plain.close()


@pytest.mark.parametrize("mode", [Mode.EVALUATE, Mode.PREDICT])
def test_batches_are_served_once_and_without_chance(mode: Mode) -> None:
    asked, log = workload(classifier()), Told()
    session = TrialSession(asked, mode=mode)
    described = session.describe(Told())
    for config in (THREADS, ap.PipelineConfig(loader=ap.TfData())):
        log = Told()
        assert session.measure(config, QUICK, log).images_per_second.value > 0
        assert log.phases == PHASES
    session.close()
    training = TrialSession(asked)
    same = training.describe(Told())
    training.close()
    assert (described.ops, described.model) == (same.ops, same.model)
    assert described.against("keep", "memory") == described.against("loader", "resident") == "samples are read once"
    assert same.against("keep", "memory") is None


# ---------------------------------------------------------------- `--trace`: what trials note of their reads and ops


def slow(image: Any) -> Any:
    return np.sort(np.repeat(image, 40, axis=0), axis=0)[: len(image)]  # takes longer than spans that are left out


@pytest.mark.parametrize(
    "loader", [ap.Threads(workers=2), ap.Threads(workers=2, read_ahead=4), ap.Processes(workers=1), ap.TfData()]
)
def test_a_trial_and_ops_and_batches_of_workers_are_spans(loader: LoaderConfig, tmp_path: Path, photos: Path) -> None:
    workload = ap.Workload(
        data=ap.Table(photos / "labels.csv", path="path", label="label"),
        ops=[ap.Decode(), ap.Resize(256, 256), ap.Map(slow)],
        model=ap.SimulatedAccelerator(step_seconds=0.002),
        batch_size=4,
    )
    config = ap.PipelineConfig(loader=loader)
    session = TrialSession(workload)
    with trace.begun(tmp_path / "trace.json") as file:
        session.measure(config, {**QUICK, "trace": file}, Told())
    session.close()
    spans = [event for event in json.loads((tmp_path / "trace.json").read_text()) if event["ph"] == "X"]
    named = {event["name"] for event in spans}
    mapped = workload.ops[-1].name
    assert named >= {config.short(), mapped}
    assert named >= ({"native batch"} if native.why_not() is None else {"Decode", "Resize"})
    of_ops = {event["pid"] for event in spans if event["name"] == mapped}
    of_trial = {event["pid"] for event in spans if event["name"] == config.short()}
    assert (of_ops == of_trial) == (loader.kind != "processes")
