"""What is TfData's own: the native dataset that `fit` takes, and that nothing is traced twice."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.errors import BadSampleError
from autopipe.hardware import machine
from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.loaders import tfdata
from autopipe.workload.sample import FieldKind
from tests.fakes.sources import Made


def opened(photos: Path, *ops: Any, **settings: Any) -> ap.Loader:
    steps = [ap.Decode(), ap.CenterCrop(36, 40), *ops, ap.RandomCrop(16, 16), ap.Rescale(1 / 255)]
    workload = ap.Workload(data=ap.Table(photos / "labels.csv"), ops=steps, batch_size=4)
    config = ap.PipelineConfig(loader=settings.pop("loader", ap.TfData(num_parallel_calls=2, prefetch=1)), **settings)
    return ap.build_loader(workload, config)


@pytest.mark.parametrize("keep", ["none", "memory"])
@pytest.mark.parametrize("finish", ["device", "host"])
def test_the_native_dataset_runs_on_through_epochs_from_any_batch(photos: Path, keep: str, finish: str) -> None:
    with opened(photos, keep=keep, finish=finish) as loader:
        one_by_one = [batch for epoch in (2, 3, 4) for batch in loader.batches(epoch, 4 if epoch == 2 else 0)]
        dataset = loader.native_dataset(2, 3, 4)
        x, y = dataset.element_spec
        assert (x.shape.as_list(), y.shape.as_list(), y.dtype.name) == ([None, 16, 16, 3], [None], "int64")
        assert len(dataset) == len(one_by_one) == 2 + 6 + 6
        for (x, y), (native_x, native_y) in zip(one_by_one, dataset, strict=True):
            np.testing.assert_array_equal(x, native_x.numpy())
            np.testing.assert_array_equal(y, native_y.numpy())


@pytest.mark.parametrize(
    ("knobs", "at_once", "tuned"),
    [
        ({}, machine.usable_cores(), True),
        ({"num_parallel_calls": 1, "prefetch": 0}, 1, False),
        ({"prefetch": 2}, None, False),
    ],
)
def test_knobs_that_are_given_turn_tensorflows_own_tuning_off_and_else_a_core_makes_a_batch(
    photos: Path, knobs: dict[str, Any], at_once: int | None, tuned: bool
) -> None:
    with opened(photos, loader=ap.TfData(**knobs)) as made:
        graph = made._graph[0].graph  # type: ignore[attr-defined]  # nothing public tells
        options = [node for node in graph.as_graph_def().node if node.op == "OptionsDataset"]
        parsed = tf.data.Options()._to_proto()
        parsed.ParseFromString(options[-1].attr["serialized_options"].s)
        assert (parsed.autotune_options.enabled, parsed.deterministic) == (tuned, True)
        assert made.batches_at_once == (at_once or machine.usable_cores())
        held = ap.TfData(**knobs).held_batches(0, ModelSetup())
        assert held == made.buffered_batches + made.batches_at_once + 1  # one is in use


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("at", ["traced", "begun"])
def test_ctrl_c_waits_until_tensorflow_has_made_a_pipeline(
    photos: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Else the process may wait for TensorFlow's threads for ever as it ends."""
    owner, name = (tfdata, "_traced") if at == "traced" else (tfdata._TfDataLoader, "native_dataset")
    usual, made = getattr(owner, name), list[Any]()

    def interrupted(*values: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        made.append(usual(*values, **named))
        return made[0]

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt), opened(photos) as loader:
        next(loader.batches(0))
    assert len(made) == 1


def test_samples_that_tensorflow_does_not_know_leave_no_thread_of_a_loader_and_opencv_its_own() -> None:
    threads = cv2.getNumThreads()
    workload = ap.Workload(data=ap.Arrays(np.zeros((8, 4), np.longdouble)), ops=[], batch_size=2)
    with pytest.raises(TypeError, match="float128"):
        ap.build_loader(workload, ap.PipelineConfig(loader=ap.TfData(read_ahead=4)))
    for each in threading.enumerate():
        if each.name.startswith("autopipe-reader"):
            each.join(20)
            assert not each.is_alive()
    assert cv2.getNumThreads() == threads


def test_a_closed_loader_lets_go_of_its_data(photos: Path) -> None:
    with opened(photos, keep="memory") as loader:
        next(loader.batches(0))
        kernel = weakref.ref(loader._work._held[1])  # type: ignore[attr-defined]  # TensorFlow keeps `_work` for ever
        assert kernel() is not None
    gc.collect()
    assert kernel() is None


def scene(index: int) -> tuple[Any, Any]:
    """Return an image and its mask; one of which a loader does not look as it opens is smaller."""
    size = (15, 20) if index == 6 else (20, 20)
    levels = np.random.default_rng(index).integers(0, 256, (*size, 3), np.uint8)
    return levels, np.full(size, index, np.uint8)


def test_epochs_that_fail_leave_no_threads_and_no_files_behind() -> None:
    data: Any = Made(8, scene)
    data.y_kind = FieldKind.MASK
    workload = ap.Workload(data=data, ops=[ap.RandomCrop(16, 16), ap.Resize(8, 8)], batch_size=4)
    config = ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=2, prefetch=1, read_ahead=64))
    process, after = psutil.Process(), []
    with ap.build_loader(workload, config) as made:
        for epoch in range(6):
            with pytest.raises(BadSampleError):
                list(made.batches(epoch))
            after.append((process.num_threads(), process.num_fds()))
    threads, files = zip(*after, strict=True)
    assert threads[-1] - threads[0] < 64  # of a single epoch
    assert files[-1] - files[0] < 3
