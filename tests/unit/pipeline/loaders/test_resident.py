"""What is peculiar to Resident and TfData. Not tested: a GPU; tests/contract/test_resident.py runs on JAX, too."""

import functools
import gc
import shutil
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, ConfigError, DataError, LoaderError, OpError
from autopipe.hardware import gpu, machine
from autopipe.pipeline import assembly
from autopipe.pipeline.assembly import evaluation_loader, make_loader, make_trainer
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.loaders import tfdata
from autopipe.pipeline.loaders.resident import DeviceMemoryWarning
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Batch, FieldKind, Source
from tests.fakes.damage import truncate
from tests.fakes.sources import Made
from tests.unit.pipeline.devices.models import classifier

OPS = [ap.Decode(), ap.Resize(20, 24), ap.RandomCrop(16, 16), ap.RandomFlip(vertical=True), ap.Rescale(1 / 255)]
RESIDENT = PipelineConfig(loader=ap.Resident(workers=2))
THREADS = PipelineConfig(loader=ap.Threads(workers=2))
ONE = {"num_parallel_calls": 1, "prefetch": 0}


def workload(folder: Path, **changes: Any) -> ap.Workload:
    settings = {"data": ap.Table(folder / "labels.csv"), "ops": OPS, "batch_size": 4, "seed": 3, **changes}
    return ap.Workload(**settings)


def noted(data: Source, read: list[int]) -> Made:
    def sample(index: int) -> Any:
        read.append(index)
        return data.read(index)

    return Made(len(data), sample)


def batches(work: ap.Workload, config: PipelineConfig, epochs: int = 2) -> list[Batch]:
    with make_loader(work, config) as loader:
        return [tuple(map(np.array, batch)) for epoch in range(epochs) for batch in loader.batches(epoch)]


def assert_alike(found: list[Batch], wanted: list[Batch]) -> None:
    for batch, other in zip(found, wanted, strict=True):
        for part, same in zip(batch, other, strict=True):
            assert part.dtype == same.dtype
            np.testing.assert_array_equal(part, same)


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> Path:
    """A copy of the photos to spoil."""
    return Path(shutil.copytree(photos, tmp_path / "photos"))


@pytest.mark.parametrize("dtype", ["uint8", "int64"])  # the second is kept in memory, and moved there
def test_images_and_masks_of_several_parts_are_moved_alike(dtype: str) -> None:
    def parts(index: int) -> Any:
        rng = np.random.default_rng(index)
        left, right = (rng.integers(0, 256, (size, 12, 3), np.uint8) for size in (10, 14))
        mask = rng.integers(0, 5, (10, 12)).astype(dtype)
        return {"left": left, "right": right, "numbers": rng.random(3)}, (mask, index), np.float32(index)

    data: Any = Made(10, parts)
    data.y_kind = (FieldKind.MASK, FieldKind.LABEL)
    ops = [ap.On(("left", "right", "y.0"), ap.RandomFlip(vertical=True)), ap.On(("left", "y.0"), ap.RandomCrop(6, 7))]
    work = ap.Workload(data=data, ops=ops, batch_size=4)
    assert_alike(batches(work, RESIDENT), batches(work, THREADS))


@pytest.mark.slow
def test_a_trainer_gets_arrays_of_the_device_and_trains_the_same_weights(photos: Path) -> None:
    def trained(config: PipelineConfig) -> list[NDArray[Any]]:
        model = functools.partial(classifier, shape=(16, 16, 3), classes=23)
        with make_trainer(workload(photos, model=model), config) as trainer:
            trainer.fit(epochs=2, verbose=0, validation=ap.Table(photos / "labels.csv"))
            return [np.array(each) for each in trainer.model.get_weights()]

    for config in (RESIDENT, RESIDENT.model_copy(update={"steps_per_execution": 2, "device_prefetch": 0})):
        for found, wanted in zip(trained(config), trained(THREADS), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    with make_loader(workload(photos), RESIDENT) as loader:
        (numbers, samples, *_), y = next(iter(loader.native_dataset(0, 1)))
    assert keras.ops.is_tensor(samples)  # of all, from which the step gathers a batch
    assert (len(samples), len(numbers), len(y)) == (23, 4, 4)
    assert isinstance(y, np.ndarray)  # labels of 64 bits, which JAX would cut


def test_what_is_validated_goes_through_threads_and_is_kept_in_memory(photos: Path) -> None:
    with evaluation_loader(workload(photos), RESIDENT, ap.Table(photos / "labels.csv")) as loader:
        assert not loader.on_device
        assert len(list(loader.batches(0))) == len(loader) == 6


def test_settings_that_it_decides_by_itself_make_no_other_configuration() -> None:
    for settings in ({"keep": "memory"}, {"keep": "encoded"}, {"keep": "memory:50%"}, {"finish": "host"}):
        assert RESIDENT.model_copy(update=settings) == RESIDENT
    assert RESIDENT.model_copy(update={"keep": "array+memory"}) == RESIDENT.model_copy(update={"keep": "array"})


def test_each_sample_is_made_once(photos: Path) -> None:
    read = list[int]()
    with make_loader(workload(photos, data=noted(ap.Table(photos / "labels.csv"), read)), RESIDENT) as loader:
        before = len(read)
        for epoch in range(3):
            list(loader.batches(epoch))
    assert len(read) == before
    assert loader.fill_seconds > 0


INTEGERS = Made(20, lambda index: (np.full((6, 6, 3), index, np.int32), index))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ops": [ap.Decode(), ap.RandomResizedCrop(8, 8)]}, "samples are encoded or differ in size"),
        ({"ops": [ap.RandomCrop(4, 4)], "data": INTEGERS}, "x is int32"),
        ({"ops": [*OPS[:2], ap.RandomBrightness(0.2)]}, "cannot do `RandomBrightness`"),
        ({"ops": [*OPS[:3], ap.Resize(8, 8)]}, "cannot do `Resize`"),
        ({"ops": [*OPS[:2], ap.RandomFlip(), ap.OneHot(23), ap.MixUp(0.2)]}, "cannot do `OneHot`"),
    ],
)
def test_a_workload_that_it_cannot_feed_is_told_in_one_sentence(photos: Path, changes: Any, why: str) -> None:
    work = workload(photos, **changes)
    said = ap.Resident.impossible(make_plan(work))["loader", "resident"]
    with pytest.raises(ConfigError, match=why) as caught:
        make_loader(work, RESIDENT)
    assert said in caught.value.message
    assert "\n" not in str(caught.value)


def refused(photos: Path, config: PipelineConfig = RESIDENT, rank: tuple[int, int] = (0, 1)) -> str:
    with pytest.raises(ConfigError) as caught:
        make_loader(workload(photos, drop_remainder=True), config, rank=rank)
    return caught.value.message


def test_several_devices_and_other_backends_are_refused(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ap.Resident.impossible(make_plan(workload(photos))) == {}
    assert "one device, but 2 devices" in refused(photos, RESIDENT.model_copy(update={"devices": 2}))
    assert "one device, but 4 devices" in refused(photos, rank=(1, 4))
    monkeypatch.setattr(gpu, "keras_backend", lambda: "torch")
    assert "works with TensorFlow or JAX, but Keras's backend is torch" in refused(photos)


def test_a_set_that_memory_cannot_hold_is_refused_with_the_bytes(photos: Path, this_machine: Any) -> None:
    this_machine(free_bytes=1000)
    with pytest.raises(LoaderError, match=r"needs .* of memory .* of cache\), but 1000 B are free"):
        make_loader(workload(photos), RESIDENT)


def full(monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]) -> None:
    """Have the device take labels only."""
    made = assembly._device()

    def place(array: Any) -> Any:
        if array.ndim > 1:
            raise error()
        return made.place(array)

    monkeypatch.setattr(assembly, "_device", lambda: made._replace(place=place))


@pytest.mark.parametrize(
    ("said", "bad"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\n...", 0),
        ("Failed copying input tensor from CPU:0 to GPU:0 in order to run Identity: Dst tensor is not initialized.", 1),
    ],
)
def test_samples_without_room_on_a_device_are_in_memory(damaged: Path, monkeypatch: Any, said: str, bad: int) -> None:
    if bad:
        truncate(damaged / "5.jpg")
    read = list[int]()
    data = noted(ap.Table(damaged / "labels.csv"), read)
    work = workload(damaged, data=data, on_bad_sample="skip", bad_sample_log=str(damaged / "bad.jsonl"))
    wanted = batches(work, THREADS)
    full(monkeypatch, lambda: RuntimeError(said))
    match = rf"which take \d.* sent from the host's memory: {said.splitlines()[0]}"
    with pytest.warns(DeviceMemoryWarning, match=match) as warned:
        loader: Any = make_loader(work, RESIDENT)
    assert len(warned) == 1
    before = len(read)
    with loader:
        assert not loader.on_device
        assert_alike([tuple(map(np.array, batch)) for n in range(2) for batch in loader.batches(n)], wanted)
        assert loader.bad_samples == ({0: 1, 1: 1} if bad else {})
    assert set(read[before:]) == ({5} if bad else set())  # what was made is kept


def test_another_error_of_the_device_is_raised(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full(monkeypatch, lambda: RuntimeError("no such device"))
    with pytest.raises(RuntimeError, match="no such device"):
        make_loader(workload(photos), RESIDENT)


@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [("error", BadSampleError, r"Decode on sample 5 .*5\.jpg"), ("skip", DataError, "2 samples of epoch 0 are bad")],
)
def test_a_bad_sample_is_named_and_an_epoch_of_too_many_fails(damaged: Path, bad: Any, error: Any, said: str) -> None:
    for name in ("5.jpg", "6.jpg"):
        truncate(damaged / name)
    work = workload(damaged, on_bad_sample=bad, bad_sample_log=str(damaged / "bad.jsonl"))
    with pytest.raises(error, match=said):
        batches(work, RESIDENT)


def test_an_op_that_raises_is_named_and_ends_the_opening(photos: Path) -> None:
    def strict(image: NDArray[Any]) -> NDArray[Any]:
        if image.sum() % 2:
            raise ValueError("odd")
        return image

    data = Made(200, lambda index: np.full((1, 1, 1), index == 150, np.uint8))
    with pytest.raises(OpError, match=r"sample 150 raised ValueError: odd"):
        make_loader(ap.Workload(data=data, ops=[ap.Map(strict), ap.RandomFlip()], batch_size=4), RESIDENT)


def opened(photos: Path, *ops: Any, **settings: Any) -> ap.Loader:
    steps = [ap.Decode(), ap.CenterCrop(36, 40), *ops, ap.RandomCrop(16, 16), ap.Rescale(1 / 255)]
    workload = ap.Workload(data=ap.Table(photos / "labels.csv"), ops=steps, batch_size=4)
    config = ap.PipelineConfig(loader=settings.pop("loader", ap.TfData(num_parallel_calls=2, prefetch=1)), **settings)
    return ap.make_loader(workload, config)


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


@pytest.mark.parametrize(("knobs", "at_once"), [({}, 0), (ONE, 1), ({"prefetch": 2}, 0)])
def test_knobs_that_are_given_turn_tensorflows_own_tuning_off(photos: Path, knobs: Any, at_once: int) -> None:
    with opened(photos, loader=ap.TfData(**knobs)) as made:
        nodes = made._graph[0].graph.as_graph_def().node  # type: ignore[attr-defined]  # nothing public tells
        parsed = tf.data.Options()._to_proto()
        options = [node for node in nodes if node.op == "OptionsDataset"][-1]
        parsed.ParseFromString(options.attr["serialized_options"].s)
        assert (parsed.autotune_options.enabled, parsed.deterministic) == (knobs == {}, True)
        assert made.batches_at_once == (at_once or machine.usable_cores())
        held = ap.TfData(**knobs).held_batches(0, ModelSetup())
        assert held == made.buffered_batches + made.batches_at_once + 1  # one is in use


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("at", ["traced", "begun"])
def test_ctrl_c_waits_until_tensorflow_has_made_a_pipeline(photos: Path, monkeypatch: Any, at: str) -> None:
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


def test_a_closed_loader_lets_go_of_its_data(photos: Path) -> None:
    with opened(photos, keep="memory") as loader:
        next(loader.batches(0))
        kernel = weakref.ref(loader._work._held[1])  # type: ignore[attr-defined]  # TensorFlow keeps `_work` for ever
        assert kernel() is not None
    gc.collect()
    assert kernel() is None
