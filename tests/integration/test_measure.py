"""Sessions on real loaders and small models, and on other people's pipelines, which run as they are.

How fast anything runs is not tested; what is said of it is.
"""

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.errors import LoaderError, WorkloadError
from autopipe.hardware import disk, processes
from autopipe.measure import foreign
from autopipe.measure.outcome import Measurement, Phase
from autopipe.measure.session import TrialSession
from autopipe.pipeline.config import LoaderConfig, ModelSetup, PipelineConfig
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.values import JsonObject
from autopipe.workload.mode import Mode
from autopipe.workload.ops.planner import make_plan
from tests.fakes.damage import in_classes
from tests.fakes.reports import Told
from tests.fakes.sources import Made

pytestmark = pytest.mark.slow

IMAGES = np.random.default_rng(0).integers(0, 256, (70, 8, 8, 3), np.uint8)
LABELS = np.arange(70) % 3
RESCALE = ap.Rescale(1 / 255)
QUICK: JsonObject = {"min_seconds": 0.15, "max_seconds": 0.3, "page_cache": "warm"}
THREADS = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=4))
PHASES = list(Phase)[2:]  # the process is started and has imported its workload


def workload(model: Any = None, count: int = 70, **other: Any) -> ap.Workload:
    data, ops = ap.Arrays(IMAGES[:count], LABELS[:count]), [ap.RandomFlip(), RESCALE]
    model = model or ap.SimulatedAccelerator(step_seconds=0.004)
    return ap.Workload(**{"data": data, "ops": ops, "model": model, "batch_size": 8, **other})


def classifier(*first: Any, kind: type[keras.Sequential] = keras.Sequential, **compiled: Any) -> Any:
    def build() -> keras.Model:
        model = kind([keras.Input((8, 8, 3)), *first, keras.layers.Flatten(), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"], **compiled)
        return model

    return build


def measured(work: ap.Workload, config: PipelineConfig = THREADS, **options: Any) -> Measurement:
    session = TrialSession(work)
    found = session.measure(config, {**QUICK, **options}, Told())
    session.close()
    return found


def images(found: Measurement) -> int:
    return sum(window.images for window in found.windows)


def test_a_trial_whose_worker_died_says_so(tmp_path: Path) -> None:
    marker, here = tmp_path / "died", os.getpid()

    def read(index: int) -> Any:
        if index == 63 and os.getpid() != here and not marker.exists():
            marker.touch()
            os._exit(1)
        return IMAGES[index], LABELS[index]

    session = TrialSession(workload(data=Made(64, read)))
    config = ap.PipelineConfig(loader=ap.Processes(workers=1))
    warned = [session.measure(config, QUICK, Told()).warnings for _ in range(2)]
    session.close()
    assert [any("1 worker" in said and "died" in said for said in each) for each in warned] == [True, False]


def test_skipped_samples_are_no_obstacle_and_are_listed_by_no_trial(tmp_path: Path) -> None:
    def read(index: int) -> Any:
        if index == 63:
            raise FileNotFoundError("gone.jpg")
        return IMAGES[index], LABELS[index]

    log = str(tmp_path / "log")
    session = TrialSession(workload(data=Made(64, read), on_bad_sample="skip", bad_sample_log=log, batch_size=64))
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
    log, config = Told(), ap.PipelineConfig(loader=loader, keep=keep)
    session = TrialSession(workload(classifier()))
    with subprocess.Popen(["sleep", "60"]) as of_the_user:  # which the figures do not count
        found = session.measure(config, QUICK, log)
        of_the_user.kill()
    session.close()
    assert (found.config_key, found.batch_size, found.page_cache) == (config.key(), 8, "warm")
    assert found.images_per_second.value > 0
    assert (found.cache_fill_seconds is not None) == (keep == "memory" or loader.keeps_on_device)
    assert found.discarded_batches >= (8 if keep == "memory" else 1)
    assert found.epoch_restart_seconds is not None
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


@pytest.mark.parametrize(("count", "batch_size"), [(8, 8), (9, 8), (1, 1)])
def test_data_of_one_batch_are_measured(count: int, batch_size: int) -> None:
    found = measured(workload(count=count, batch_size=batch_size))
    assert found.batch_size == batch_size <= images(found)


class OddLogs(keras.Sequential):
    """Logs nested values, arrays, text and nothing at all."""

    def compile(self, **asked: Any) -> None:
        super().compile("sgd")

    def train_step(self, data: Any) -> Any:
        self(data[0])
        return {"confusion": keras.ops.ones((2, 2)), "nested": {"a": keras.ops.zeros(())}, "none": None}


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="such a train_step is written for one backend")
def test_whatever_a_model_logs_is_waited_for() -> None:
    assert measured(workload(classifier(kind=OddLogs))).images_per_second.value > 0


def test_a_trial_that_cannot_win_ends_before_it_may() -> None:
    assert measured(workload(), min_seconds=60.0, max_seconds=60.0, hopeless_below=1e9).measured_seconds < 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return in_classes(tmp_path, 40, (20, 20))


def photos(folder: Path, **other: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip(), RESCALE]
    model = ap.SimulatedAccelerator(step_seconds=0.02)
    return ap.Workload(data=ap.ImageFolder(folder), ops=ops, model=model, **{"batch_size": 4, **other})


COLD: JsonObject = {"min_seconds": 30.0, "max_seconds": 30.0, "page_cache": "cold"}


def test_a_cold_trial_reads_each_file_once_and_says_so_unless_a_cache_goes_on_from_memory(folder: Path) -> None:
    session = TrialSession(photos(folder))
    cached = session.measure(THREADS.model_copy(update={"keep": "memory"}), QUICK | {"page_cache": "cold"}, Told())
    assert cached.epoch_restart_seconds is not None
    assert not any("ended with the data" in warning for warning in cached.warnings)
    found = session.measure(THREADS, COLD, Told())
    assert (found.page_cache, found.epoch_restart_seconds) == ("cold", None)
    assert images(found) < 40
    assert any("ended with the data" in warning for warning in found.warnings)


def test_a_cold_trial_of_a_part_cached_reads_the_rest_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[Path] = []
    monkeypatch.setattr(disk, "drop", dropped.extend)
    session = TrialSession(photos(folder))
    assert (session.ceiling({"page_cache": "cold"}, Told()).read_bytes_per_second or 0) > 0
    dropped.clear()
    found = session.measure(THREADS.model_copy(update={"keep": "memory:50%"}), COLD, Told())
    assert {dropped.count(path) for path in folder.rglob("*") if path.is_file()} == {2}
    assert images(found) < 40  # of the second epoch; the first fills the cache
    assert any("ended with the data" in warning for warning in found.warnings)


def test_data_too_few_for_a_cold_trial_are_refused(folder: Path) -> None:
    with pytest.raises(WorkloadError, match="an epoch has 2 batches"):
        measured(photos(folder, batch_size=20), page_cache="cold")


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


def test_the_ceiling_names_all_there_is_to_know(folder: Path) -> None:
    found, cold = (TrialSession(photos(folder)).ceiling({"page_cache": each}, Told()) for each in ("warm", "cold"))
    assert 0 < found.model_images_per_second.value < 2 * 200  # 4 images in 20 ms; less on a slow machine
    assert None not in (found.loader_images_per_second, found.bytes_per_image, found.gradient_bytes)
    assert found.exchange_seconds is None  # on one device
    assert [cost.name for cost in found.op_costs] == ["read", "Decode", "Resize", "RandomFlip", "Rescale", "batching"]
    plan, pixels = make_plan(photos(folder)), 8 * 8 * 3  # which are of four bytes when they are finished
    assert (found.compact_bytes, found.finished_bytes) == (plan.compact.bytes, plan.compact.bytes + 3 * pixels)
    assert found.read_bytes_per_second is None
    assert (cold.read_bytes_per_second or 0) > 0  # with the disk in it
    setup = ModelSetup(finish="host", steps_per_execution=2)
    assert TrialSession(workload()).ceiling({**setup._asdict(), "model_only": True}, Told()).setup == setup


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
    session = TrialSession(workload(data=many, validation=many))
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
    session, training = TrialSession(workload(classifier()), mode=mode), TrialSession(workload(classifier()))
    described, same = session.describe(Told()), training.describe(Told())
    for config in (THREADS, ap.PipelineConfig(loader=ap.TfData())):
        log = Told()
        assert session.measure(config, QUICK, log).images_per_second.value > 0
        assert log.phases == PHASES
    session.close()
    training.close()
    assert (described.ops, described.model) == (same.ops, same.model)
    assert described.against("keep", "memory") == described.against("loader", "resident") == "samples are read once"
    assert same.against("keep", "memory") is None


SURE: JsonObject = {**QUICK, "model_images_per_second": 1e9}


def folder_of(path: Path, *random: Any, batch_size: int) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(8, 8), *random, RESCALE]
    data = ap.ImageFolder(in_classes(path, 70, (8, 8)))
    return ap.Workload(data=data, ops=ops, model=classifier(), batch_size=batch_size)


def opened(work: ap.Workload, code: Any, mode: Mode = Mode.TRAIN) -> tuple[TrialSession, ap.PipelineConfig]:
    name = code if isinstance(code, str) else "mine"
    return TrialSession(work, code, name, mode=mode), ap.PipelineConfig(loader=Foreign(code=name), finish="host")


def timed(
    work: ap.Workload, code: Any, log: Told | None = None, mode: Mode = Mode.TRAIN, **options: Any
) -> Measurement:
    session, config = opened(work, code, mode)
    found = session.measure(config, {**SURE, **options}, log or Told())
    session.close()
    assert found.config_key == config.key()
    assert found.images_per_second.value > 0
    return found


@pytest.mark.parametrize("code", ["tf.data", "keras", "fit"])
def test_plain_code_is_timed_epoch_after_epoch_without_our_settings(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(processes, "keep_freed_memory")
    threads, log = cv2.getNumThreads(), Told()
    found = timed(
        workload(classifier(), ops=[RESCALE]), code, log, min_seconds=2.0, max_seconds=4.0
    )  # time for an epoch
    assert cv2.getNumThreads() == threads
    assert all(window.images % 8 == 0 for window in found.windows)
    assert images(found) > 8 * 8  # an epoch has eight batches
    assert 0 < found.data_wait_share <= 1
    assert log.phases == PHASES


@pytest.mark.parametrize(("page_cache", "done"), [("cold", "drop"), ("warm", "warm")])
def test_all_files_that_plain_code_may_read_are_brought_into_the_regimes_state(
    page_cache: str, done: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its order is its own: with a shuffle, the first that it reads may be any."""
    touched: list[Path] = []
    monkeypatch.setattr(disk, done, touched.extend)
    work = folder_of(tmp_path, batch_size=1)
    found = timed(work, "keras", page_cache=page_cache, model_images_per_second=1.0)
    assert (found.page_cache, found.files_ready) == (page_cache, True)
    assert set(touched) == set(tmp_path.glob("*/*.png"))


@pytest.mark.parametrize("form", ["tf.data-cache", "directory", "keras-workers"])
@pytest.mark.parametrize("seconds", [1e-9, 60.0], ids=["a part", "all"])
def test_other_forms_of_a_folder_are_timed(form: str, seconds: float, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign, "_FILL_SECONDS", seconds)
    found = timed(folder_of(tmp_path, ap.RandomFlip(), batch_size=4), form)
    assert all(window.images % 4 == 0 for window in found.windows)


def test_a_function_of_the_users_that_has_no_name_to_import_is_handed_to_the_code() -> None:
    work = workload(ops=[ap.Map(lambda x: x[::2, ::2]), RESCALE])
    timed(work, "tf.data")


def by_two_inputs() -> keras.Model:
    inputs = {"image": keras.Input((8, 8, 3), name="image"), "numbers": keras.Input((2,), name="numbers")}
    both = keras.layers.concatenate([keras.layers.Flatten()(inputs["image"]), inputs["numbers"]])
    model = keras.Model(inputs, {"kind": keras.layers.Dense(3, name="kind")(both)})
    model.compile("sgd", {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    return model


def test_arrays_of_several_parts_are_timed_those_of_the_user_too() -> None:
    x, y, weight = {"image": IMAGES, "numbers": np.ones((70, 2), np.float32)}, {"kind": LABELS}, np.ones(70, np.float32)
    parts = ap.Workload(data=ap.Arrays(x, y, weight), ops=[RESCALE], model=by_two_inputs, batch_size=8)
    codes: list[Any] = ["fit", lambda: ({**x, "image": IMAGES.astype("float32")}, y, weight)]
    for code in codes:
        found = timed(parts, code)
        assert 8 * found.discarded_batches + images(found) > 8 * 8  # than an epoch
    with pytest.raises(WorkloadError, match=r"gives other batches: .* `sample_weight` is one part in some, and None"):
        TrialSession(parts, lambda: (x, y), "mine")


def dataset(batch_size: int = 8) -> Any:
    return tf.data.Dataset.from_tensor_slices((IMAGES.astype("float32"), LABELS)).batch(batch_size, drop_remainder=True)


@pytest.mark.parametrize("function", [dataset, lambda: dataset().repeat(), lambda: (IMAGES.astype("float32"), LABELS)])
def test_what_the_user_has_is_timed_as_it_is(function: Callable[[], Any]) -> None:
    timed(workload(classifier(), ops=[RESCALE]), function)


@pytest.mark.parametrize("whole", [False, True])  # with a short last batch, or without
@pytest.mark.parametrize("behind", [False, True])
def test_a_cache_of_samples_or_batches_within_it_is_complete_after_an_epoch(*, whole: bool, behind: bool) -> None:
    decoded: list[int] = []

    def decode(number: Any) -> Any:
        decoded.append(int(number))
        return IMAGES[number].astype("float32"), LABELS[number]

    def cached() -> Any:
        made = tf.data.Dataset.range(len(IMAGES))
        made = made.map(lambda number: tf.numpy_function(decode, [number], (tf.float32, tf.int64)))
        made = made.map(lambda x, y: (tf.ensure_shape(x, IMAGES[0].shape), tf.ensure_shape(y, ())))
        return made.batch(8, whole).cache() if behind else made.cache().batch(8, whole)

    found = timed(workload(classifier(), ops=[RESCALE]), cached, min_seconds=1.0, max_seconds=2.0)
    assert 8 * found.discarded_batches + images(found) > 3 * len(IMAGES)
    # In a look at the first batch, in the step that compiles, and in the first epoch.
    assert len(decoded) <= 2 * len(IMAGES) + 24
    assert all(window.images % 8 == 0 for window in found.windows)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: None, r"`mine` returned None. It must return a tf.data.Dataset, a keras.utils.PyDataset, or a pair"),
        (lambda: dataset(4), r"batches whose x is \(8, 8, 8, 3\) float32, but it gives \(4, 8, 8, 3\)."),
        (lambda: dataset().map(lambda x, y: (x[:, :4], y)), r"gives \(8, 4, 8, 3\). Give it the workload's batch"),
        (lambda: dataset().map(lambda x, y: (x, tf.one_hot(y, 3))), r"whose y is \(8,\) int64, but it gives \(8, 3\)"),
        (lambda: dataset().map(lambda x, y: x), "its batches have no y. Return batches"),
        (lambda: dataset().take(0), "must return a dataset of batches, but it holds none"),
        (lambda: 1 / 0, r"`mine\(\)` raised ZeroDivisionError: division by zero It is called without arguments."),
    ],
)
def test_what_is_wrong_with_the_users_is_said_with_what_to_do(function: Callable[[], Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        TrialSession(workload(classifier(), ops=[RESCALE]), function, "mine")


@pytest.mark.parametrize("code", ["tf.data", "tf.data-cache", "keras", "fit"])
def test_plain_code_validates_in_its_own_form(code: str, tmp_path: Path) -> None:
    asked = (
        folder_of(tmp_path, ap.RandomFlip(), batch_size=8)
        if code == "tf.data-cache"
        else workload(classifier(), ops=[RESCALE])
    )
    session, config = opened(dataclasses.replace(asked, validation=asked.data), code)
    for rate in (1e6, 1.0):  # of which it has too few for a part
        found = session.epoch(config, {"seconds": 0.3, "images_per_second": rate}, Told())
        assert found.share == 1.0
        assert min(found.training_seconds, found.validation_seconds, found.pause_seconds) > 0
    session.close()


@pytest.mark.parametrize("mode", [Mode.EVALUATE, Mode.PREDICT])
@pytest.mark.parametrize("code", ["tf.data", "keras", "fit"])
def test_plain_code_serves_batches_as_well(code: str, mode: Mode) -> None:
    timed(workload(classifier(), ops=[RESCALE]), code, mode=mode)
