"""Other people's pipelines, as a tune compares with them: they run as they are, and what is wrong with one is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import keras
import numpy as np
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.errors import WorkloadError
from autopipe.hardware import disk, processes
from autopipe.measure import foreign
from autopipe.measure.session import TrialSession
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.values import JsonObject
from autopipe.workload.mode import Mode
from tests.fakes.images import in_classes
from tests.fakes.reports import Told
from tests.integration.test_measure import IMAGES, LABELS, PHASES, QUICK, classifier

pytestmark = pytest.mark.slow

SURE: JsonObject = {**QUICK, "model_images_per_second": 1e9}


def workload(model: Any = None, *ops: Any) -> ap.Workload:
    ops = (*ops, ap.Rescale(1 / 255))
    return ap.Workload(data=ap.Arrays(IMAGES, LABELS), ops=ops, model=model or classifier(), batch_size=8)


def photos(folder: Path, *random: Any, batch_size: int) -> ap.Workload:
    in_classes(folder, 70, (8, 8))
    ops = [ap.Decode(), ap.Resize(8, 8), *random, ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.ImageFolder(folder), ops=ops, model=classifier(), batch_size=batch_size)


def measured(session: TrialSession, code: str, log: Told | None = None, options: JsonObject = SURE) -> Any:
    return session.measure(ap.PipelineConfig(loader=Foreign(code=code), finish="host"), options, log or Told())


@pytest.mark.parametrize("code", ["tf.data", "keras", "fit"])
def test_plain_code_is_timed_epoch_after_epoch_without_our_settings(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(processes, "keep_freed_memory")
    threads, log = cv2.getNumThreads(), Told()
    session = TrialSession(workload(), code, code)
    found = measured(session, code, log, SURE | {"min_seconds": 2.0, "max_seconds": 4.0})  # time for an epoch
    session.close()
    assert cv2.getNumThreads() == threads
    assert found.config_key == ap.PipelineConfig(loader=Foreign(code=code), finish="host").key()
    assert all(window.images % 8 == 0 for window in found.windows)
    assert sum(window.images for window in found.windows) > 8 * 8  # an epoch has eight batches
    assert 0 < found.data_wait_share <= 1
    assert log.phases == PHASES


@pytest.mark.parametrize(("page_cache", "done"), [("cold", "drop"), ("warm", "warm")])
def test_all_files_that_plain_code_may_read_are_brought_into_the_regimes_state(
    page_cache: str, done: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its order is its own: with a shuffle, the first that it reads may be any."""
    touched: list[Path] = []
    monkeypatch.setattr(disk, done, touched.extend)
    session = TrialSession(photos(tmp_path, batch_size=1), "keras", "keras")
    options = SURE | {"page_cache": page_cache, "model_images_per_second": 1.0}
    found = measured(session, "keras", options=options)
    session.close()
    assert (found.page_cache, found.files_ready) == (page_cache, True)
    assert set(touched) == set(tmp_path.glob("*/*.png"))


@pytest.mark.parametrize("form", ["tf.data-cache", "directory", "keras-workers"])
@pytest.mark.parametrize("seconds", [1e-9, 60.0], ids=["a part", "all"])
def test_other_forms_of_a_folder_are_timed(form: str, seconds: float, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign, "_FILL_SECONDS", seconds)
    session = TrialSession(photos(tmp_path, ap.RandomFlip(), batch_size=4), form, form)
    found = measured(session, form)
    session.close()
    assert found.images_per_second.value > 0
    assert all(window.images % 4 == 0 for window in found.windows)


def test_a_function_of_the_users_that_has_no_name_to_import_is_handed_to_the_code() -> None:
    session = TrialSession(
        workload(ap.SimulatedAccelerator(0.002), ap.Map(lambda x: x[::2, ::2])), "tf.data", "tf.data"
    )
    assert measured(session, "tf.data").images_per_second.value > 0
    session.close()


def by_two_inputs() -> keras.Model:
    inputs = {"image": keras.Input((8, 8, 3), name="image"), "numbers": keras.Input((2,), name="numbers")}
    both = keras.layers.concatenate([keras.layers.Flatten()(inputs["image"]), inputs["numbers"]])
    model = keras.Model(inputs, {"kind": keras.layers.Dense(3, name="kind")(both)})
    model.compile("sgd", {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True)})
    return model


def test_arrays_of_several_parts_are_timed_those_of_the_user_too() -> None:
    x, y, weight = {"image": IMAGES, "numbers": np.ones((70, 2), np.float32)}, {"kind": LABELS}, np.ones(70, np.float32)
    parts = ap.Workload(data=ap.Arrays(x, y, weight), ops=[ap.Rescale(1 / 255)], model=by_two_inputs, batch_size=8)
    codes: list[Any] = ["fit", lambda: ({**x, "image": IMAGES.astype("float32")}, y, weight)]
    for code in codes:
        session = TrialSession(parts, code, "fit")
        found = measured(session, "fit")
        assert 8 * found.discarded_batches + sum(window.images for window in found.windows) > 8 * 8  # than an epoch
        session.close()
    with pytest.raises(WorkloadError, match=r"gives other batches: .* `sample_weight` is one part in some, and None"):
        TrialSession(parts, lambda: (x, y), "mine")


def dataset(batch_size: int = 8) -> Any:
    return tf.data.Dataset.from_tensor_slices((IMAGES.astype("float32"), LABELS)).batch(batch_size, drop_remainder=True)


@pytest.mark.parametrize(
    "function",
    [dataset, lambda: dataset().repeat(), lambda: (IMAGES.astype("float32"), LABELS)],
    ids=["dataset", "one without an end", "arrays"],
)
def test_what_the_user_has_is_timed_as_it_is(function: Callable[[], Any]) -> None:
    assert measured(TrialSession(workload(), function, "mine"), "a.py:mine").images_per_second.value > 0


@pytest.mark.parametrize("whole", [False, True], ids=["short-last", "drop_remainder"])
@pytest.mark.parametrize("behind", [False, True], ids=["samples", "batches"])
def test_a_cache_within_it_is_complete_after_an_epoch(*, whole: bool, behind: bool) -> None:
    decoded: list[int] = []

    def decode(number: Any) -> Any:
        decoded.append(int(number))
        return IMAGES[number].astype("float32"), LABELS[number]

    def cached() -> Any:
        made = tf.data.Dataset.range(len(IMAGES)).map(
            lambda number: tf.numpy_function(decode, [number], (tf.float32, tf.int64))
        )
        made = made.map(lambda x, y: (tf.ensure_shape(x, IMAGES[0].shape), tf.ensure_shape(y, ())))
        return made.batch(8, whole).cache() if behind else made.cache().batch(8, whole)

    session = TrialSession(workload(), cached, "mine")
    looked = len(decoded)  # at the first batch
    found = measured(session, "mine", options=SURE | {"min_seconds": 1.0, "max_seconds": 2.0})
    session.close()
    images = 8 * found.discarded_batches + sum(window.images for window in found.windows)
    assert images > 3 * len(IMAGES)
    assert len(decoded) - looked <= 2 * len(IMAGES)  # in the step that compiles, and in the first epoch
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
    ids=["nothing", "another batch size", "other images", "other labels", "no labels", "empty", "raises"],
)
def test_what_is_wrong_with_the_users_is_said_with_what_to_do(function: Callable[[], Any], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        TrialSession(workload(), function, "mine")


@pytest.mark.parametrize("code", ["tf.data", "tf.data-cache", "keras", "fit"])
def test_plain_code_validates_in_its_own_form(code: str, tmp_path: Path) -> None:
    asked = photos(tmp_path / "train", ap.RandomFlip(), batch_size=8) if code == "tf.data-cache" else workload()
    asked = dataclasses.replace(asked, validation=asked.data)
    session = TrialSession(asked, code, code)
    config = ap.PipelineConfig(loader=Foreign(code=code), finish="host")
    found = session.epoch(config, {"seconds": 0.3, "images_per_second": 1e6}, Told())
    part = session.epoch(config, {"seconds": 0.3, "images_per_second": 1.0}, Told())  # of which it has too few
    session.close()
    assert (found.share, part.share) == (1.0, 1.0)
    assert min(found.training_seconds, found.validation_seconds, found.pause_seconds) > 0


def test_what_is_validated_on_is_kept_as_well_if_only_a_part_of_it_is_timed(tmp_path: Path) -> None:
    made: list[int] = []

    def counted(image: Any) -> Any:
        made.append(1)
        return image

    asked = photos(tmp_path, ap.Map(counted), batch_size=1)
    session = TrialSession(dataclasses.replace(asked, validation=asked.data), "tf.data-cache", "cached")
    made.clear()
    config = ap.PipelineConfig(loader=Foreign(code="tf.data-cache"), finish="host")
    found = session.epoch(config, {"seconds": 1.0, "images_per_second": 1.0}, Told())
    session.close()
    assert found.share < 1
    assert len(made) < 2 * 70  # once for each that is validated on, and those of a look at the samples


def test_how_a_users_own_baseline_validates_is_not_known() -> None:
    session = TrialSession(dataclasses.replace(workload(), validation=ap.Arrays(IMAGES, LABELS)), dataset, "own")
    config = ap.PipelineConfig(loader=Foreign(code="own"), finish="host")
    with pytest.raises(WorkloadError, match="is not known"):
        session.epoch(config, {"seconds": 0.3, "images_per_second": 1e6}, Told())
    session.close()


@pytest.mark.parametrize("mode", [Mode.EVALUATE, Mode.PREDICT])
@pytest.mark.parametrize("code", ["tf.data", "keras", "fit"])
def test_plain_code_serves_batches_as_well(code: str, mode: Mode) -> None:
    session = TrialSession(workload(), code, code, mode=mode)
    found = measured(session, code)
    session.close()
    assert found.images_per_second.value > 0
