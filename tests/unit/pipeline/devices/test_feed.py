"""What reaches the device and comes back: batches, tensors over arrays, logs, times; and which models fit."""

import dataclasses
import itertools
import json
import math
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe import frameworks
from autopipe.errors import AutopipeError, ConfigError, ModelError, OpError
from autopipe.hardware.processes import Neighbours, Sample
from autopipe.pipeline import assembly
from autopipe.pipeline.batching.cache import RowLayout, SlotPool
from autopipe.pipeline.devices import callbacks
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices import strategy as strategies
from autopipe.pipeline.devices.callbacks import EpochFigures, EpochMonitor, StepLogs
from autopipe.pipeline.devices.feed import Fault, Placement, Stream, TimedLoader, class_weights, replayed
from autopipe.pipeline.devices.mirrored import Mirrored
from autopipe.pipeline.devices.strategy import DeviceStrategy, SingleDevice, tensor
from autopipe.pipeline.loader import Finish, Loader
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec
from tests.fakes.loader import ArrayLoader, Clock, blobs
from tests.unit.pipeline.devices.models import classifier


class Host(DeviceStrategy):
    devices = 1

    def __init__(self, looks_ahead: bool = False) -> None:
        self.looks_ahead = looks_ahead

    def scope(self) -> Any:
        raise NotImplementedError

    def place(self, array: Any) -> Any:
        return array


def stream(loader: ArrayLoader, steps: int, placement: Placement | None = None) -> Stream:
    return Stream(loader, placement or Placement(Host()), Fault(), first=(0, 0), steps=steps)


@pytest.mark.parametrize(("transfers", "handed"), [(True, 4), (False, 1)])
def test_batches_are_placed_before_they_are_asked_for_if_that_transfers_them(transfers: bool, handed: int) -> None:
    loader = ArrayLoader(*blobs(40), 4)
    walk = stream(loader, 10, placement=Placement(Host(looks_ahead=transfers), prefetch=3)).take(10)
    next(walk)
    assert len(loader.handed) == handed
    assert len(list(walk)) == 9


class Foreign(ArrayLoader):
    """Hands over a framework's own dataset, which fails in the framework's own words."""

    found: OpError | None = None

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        yield next(self.batches(epoch, start))
        raise RuntimeError("{{function_node ...}} Unexpected end of the file")

    def diagnose(self, error: Exception) -> AutopipeError | None:
        assert "Unexpected end" in str(error)
        return self.found


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the others take no native datasets")
@pytest.mark.parametrize("wrapped", [lambda loader: loader, TimedLoader])
def test_a_frameworks_error_is_raised_as_what_the_loader_finds_behind_it(wrapped: Any) -> None:
    loader = Foreign(*blobs(12), 4)
    with pytest.raises(RuntimeError, match="Unexpected end"):  # if it finds nothing
        list(stream(loader, 3).take(3))
    loader.found = OpError("Decode on sample 7 (7.jpg): the file is cut short")
    loader.found.__cause__ = cause = ValueError("the file is cut short")
    fault = Fault()
    with pytest.raises(OpError, match=r"7\.jpg") as caught, fault.raised_as_itself():
        list(Stream(wrapped(loader), Placement(Host()), fault, first=(0, 0), steps=3).take(3))
    assert caught.value is loader.found
    assert caught.value.__cause__ is cause


def test_a_replay_of_several_passes_reads_on_and_begins_a_pass_again_that_was_left() -> None:
    loader = ArrayLoader(*blobs(12), 4, shuffle=False)
    with replayed(loader, Placement(Host()), Fault(), 3, passes=3) as feed:
        assert feed.num_batches == 3
        feed.on_epoch_begin()
        for _ in range(2):
            batches = feed.get_numpy_iterator()
            assert [next(batches)[0].shape for _ in range(3)] == [(4, 4, 4, 3)] * 3  # as Keras does, not to its end
        assert loader.asked == [(0, 0, False), (1, 0, False)]
        next(feed.get_numpy_iterator())
        assert loader.asked[2:] == [(2, 0, True)]
        for _ in range(2):  # beyond the passes that were told, each begins anew
            again = [batch[0] for batch in feed.get_numpy_iterator()]
            assert np.array_equal(np.concatenate(again), loader.x)
        assert loader.asked[3] == (0, 0, False)


@pytest.mark.parametrize("y", [np.array([0, 2, 1]), np.eye(3)[[0, 2, 1]], np.array([[0], [2], [1]])])
def test_class_weights_are_those_of_the_samples_classes(y: np.ndarray[Any, Any]) -> None:
    assert class_weights(y, {0: 2.0, 1: 3.0}).tolist() == [2.0, 1.0, 3.0]
    for without in (None, np.zeros((3, 4, 4))):
        with pytest.raises(ModelError, match="class_weight"):
            class_weights(without, {0: 1.0})


class OnDevice:
    """A number that counts how often it was fetched."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.fetched = 0

    def __float__(self) -> float:
        self.fetched += 1
        return self.value


def logs() -> tuple[StepLogs, OnDevice]:
    loss = OnDevice(0.5)
    return StepLogs({"loss": loss, "accuracy": 1.0}), loss


def test_nothing_is_fetched_until_it_is_read() -> None:
    step, loss = logs()
    assert "loss" in (step or {})
    assert (list(step), len(step), loss.fetched) == (["accuracy", "loss"], 2, 0)
    assert (step["loss"], loss.fetched) == (0.5, 1)
    assert np.asarray(step).tolist() == [1.0, 0.5]  # all are waited for
    assert loss.fetched == 2
    others = StepLogs({"words": "a", "nested": {"loss": OnDevice(2.0)}})
    assert (others["words"], others["nested"]["loss"]) == ("a", 2.0)


def test_every_way_of_reading_gives_numbers() -> None:
    ways: list[Callable[[StepLogs], Any]] = [
        dict,
        StepLogs.copy,
        lambda step: {**step},
        lambda step: dict(step.items()),
        lambda step: dict(zip(step, step.values(), strict=True)),
        lambda step: {name: step.get(name) for name in step},
        lambda step: json.loads(json.dumps(step)),
    ]
    assert [way(logs()[0]) for way in ways] == [{"accuracy": 1.0, "loss": 0.5}] * len(ways)
    assert logs()[0].get("none", 3) == 3


def aligned(shape: tuple[int, ...], dtype: str = "float32", offset: int = 0) -> np.ndarray[Any, Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size].view(dtype).reshape(shape)


def shares(array: np.ndarray[Any, Any]) -> bool:
    return bool(np.shares_memory(array, np.asarray(memoryview(tensor(array)))))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32"])
@pytest.mark.parametrize("shape", [(64, 64, 64), (3,)])
def test_aligned_memory_is_not_copied(shape: tuple[int, ...], dtype: str) -> None:
    assert shares(aligned(shape, dtype))


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(aligned((64, 64, 64), offset=16), id="not aligned to what kernels need"),
        pytest.param(aligned((64, 64, 64))[:, ::2], id="with gaps"),
        pytest.param(np.frombuffer(aligned((64, 64, 64)).data.toreadonly(), np.float32), id="read only"),
        pytest.param(aligned((0, 4)), id="empty"),
        pytest.param(aligned((64, 64, 64), "bool"), id="bool"),
    ],
)
def test_everything_else_is_copied(array: np.ndarray[Any, Any]) -> None:
    assert not shares(array)
    assert np.array_equal(copied := tensor(array), array)
    assert tensor(copied) is copied


class SlotLoader(ArrayLoader):
    """Fills slots that come back when the last reference is gone; batch number n of all is filled with n."""

    def __init__(self, batches: int) -> None:
        super().__init__(np.zeros((4 * batches, 64, 64, 3), np.uint8), None, 4)
        spec = SampleSpec(Field(FieldKind.IMAGE, (64, 64, 3), np.dtype(np.uint8)), None)
        self.pool = SlotPool(RowLayout(spec, 4), keep=2)
        self.slots_used: set[int] = set()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number in range(start, len(self)):
            slot = self.pool.acquire()
            self.slots_used.add(slot.number)
            slot.layout.arrays(slot.block)[0][...] = number
            yield self.pool.lend(slot, 4)


def test_no_batch_in_use_is_overwritten_and_slots_come_back() -> None:
    loader = SlotLoader(batches=60)
    held: dict[int, Any] = {}
    stream = Stream(loader, Placement(SingleDevice()), Fault(), first=(0, 0), steps=60)
    for number, (x,) in enumerate(stream.take(60)):
        if number % 7 == 0:
            held[number] = x  # kept while all the others come and go
        assert int(tf.reduce_max(x)) == number
    for number, x in held.items():
        assert (x.numpy().min(), x.numpy().max()) == (number, number)
    assert len(loader.slots_used) <= len(held) + 3


class SlowLoader(ArrayLoader):
    """Takes so many seconds for each batch of four, and for the first of an epoch, by the given clock."""

    def __init__(self, clock: Clock, seconds: float = 2.0, first: float = 2.0) -> None:
        super().__init__(np.zeros((20, 1), np.float32), None, 4, shuffle=False)
        self._clock, self._seconds, self._first = clock, seconds, first

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number, batch in enumerate(super().batches(epoch, start, last=last)):
            self._clock.now += self._seconds if number else self._first
            yield batch

    def native_dataset(self, epoch: int, epochs: int, start: int = 0) -> Any:
        return list(itertools.chain.from_iterable(self.batches(number) for number in range(epoch, epoch + epochs)))


def test_waiting_and_the_restart_of_epochs_are_noted() -> None:
    clock = Clock()
    loader = TimedLoader(source := SlowLoader(clock, 1, first=5), clock)
    assert loader.first_taken is None
    for epoch in range(3):
        for _ in loader.batches(epoch):
            clock.now += 100  # the model's own time does not count
    first: float | None = loader.first_taken
    assert (loader.waited_seconds, loader.taken, first, loader.restarts) == (27, 15, 5, [5, 5])
    loader = TimedLoader(loader.loader, clock)
    assert len(list(loader.native_dataset(0, 3))) == 15  # which goes through all epochs
    assert len(loader.restarts) == 2
    loader.close()
    assert source.closed


class OneTrainer:
    def __init__(self, loader: Loader, clock: Clock) -> None:
        self.loader = loader
        self._clock = clock

    def fit(self, monitor: EpochMonitor, epochs: int) -> list[dict[str, Any]]:
        monitor.set_trainer(self)
        monitor.on_train_begin()
        history: list[dict[str, Any]] = []
        for epoch in range(epochs):
            monitor.on_epoch_begin(epoch)
            for number, _ in enumerate(self.loader.batches(epoch)):
                self._clock.now += 3.0
                monitor.on_train_batch_end(number)
            self._clock.now += 100.0  # validation
            logs: dict[str, Any] = {"loss": 1.0}
            monitor.on_epoch_end(epoch, logs)
            history.append(logs)
        monitor.on_train_end()
        return history


ALONE = Neighbours(Sample, clock=lambda: 0.0)


def _watched(clock: Clock) -> tuple[EpochMonitor, list[tuple[int, EpochFigures]]]:
    judged: list[tuple[int, EpochFigures]] = []
    return EpochMonitor(lambda trainer, epoch, figures: judged.append((epoch, figures)), clock, lambda: ALONE), judged


def test_an_epoch_is_timed_from_its_first_batch_to_its_last() -> None:
    clock = Clock()
    monitor, judged = _watched(clock)
    history = OneTrainer(SlowLoader(clock), clock).fit(monitor, epochs=2)
    expected = EpochFigures(images_per_second=4 / 5.0, data_wait_share=2 / 5.0)
    assert judged == [(0, expected), (1, expected)]
    assert history[1] == {"loss": 1.0, **dataclasses.asdict(expected)}


def test_a_training_without_a_trainer_is_refused() -> None:
    monitor, _ = _watched(Clock())
    with pytest.raises(ModelError, match=r"plain `model\.fit`"):
        monitor.on_train_begin()


def test_an_epoch_of_one_batch_is_not_judged() -> None:
    monitor, judged = _watched(Clock())
    monitor.set_trainer(OneTrainer(SlowLoader(Clock()), Clock()))
    monitor.on_train_begin()
    monitor.on_train_batch_end(0)
    logs: dict[str, Any] = {}
    monitor.on_epoch_end(0, logs)
    assert (judged, logs) == ([], {})


@pytest.fixture(autouse=True)
def _data_format() -> Iterator[None]:
    yield
    keras.config.set_image_data_format("channels_last")


def loader(shape: tuple[int, ...] = (8, 4, 4, 3), *ops: Any, first: bool = False) -> ArrayLoader:
    made = ArrayLoader(np.zeros(shape, np.float32), np.arange(8) % 3, 4)
    made.finish = Finish(ops, (made.spec,) * len(ops), channels_first=first)
    return made


def test_a_function_is_called_and_a_model_is_taken_as_it_is() -> None:
    assert isinstance(models.build(classifier), keras.Model)
    mine = classifier()
    assert models.build(mine) is mine


@pytest.mark.parametrize("channels", ["first", "last"])
def test_layers_follow_the_channel_order(channels: Any) -> None:
    def build() -> keras.Model:
        shape = (3, 8, 8) if keras.config.image_data_format() == "channels_first" else (8, 8, 3)
        return compiled([keras.Input(shape), keras.layers.Conv2D(2, 3)])

    assert models.build(build, channels=channels).layers[0].data_format == f"channels_{channels}"


POOLED = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)]


class Pairs(keras.Sequential):
    def train_step(self, *arguments: Any) -> Any:
        return super().train_step(*arguments)


class Subclassed(keras.Model):
    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("build", "batch"),
    [
        (Subclassed, (8, 4, 4, 3)),
        (lambda: Pairs(classifier().layers), (8, 2, 4, 4, 3)),
        (lambda: keras.Sequential([keras.Input((None, None, 3)), *POOLED]), (8, 4, 4, 3)),
        (lambda: keras.Sequential([keras.Input((4, 4, 3)), *POOLED]), (8, 4, 4, 3)),
    ],
)
def test_a_model_of_unknown_shapes_or_an_open_size_is_not_judged(build: Any, batch: tuple[int, ...]) -> None:
    model = build()
    model.compile("sgd", "mse")
    models.check(model, loader(batch))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_tensorflow_in_several_processes_is_refused_with_what_works(workers: int, monkeypatch: Any) -> None:
    cluster = {"cluster": {"worker": ["a:1", "b:1"][:workers]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster if workers else {}))
    if workers < 2:
        assert Mirrored.cluster() == frameworks.jax_rank() == (0, 1)
        return
    with pytest.raises(ModelError, match=r"MultiWorkerMirroredStrategy fails under it \(keras issue 20585") as caught:
        strategies.chosen(1)
    assert "jax.distributed.initialize" in str(caught.value.hint)


def test_a_rank_has_its_part_of_every_batch() -> None:
    x, y = blobs(16, side=4)
    workload = ap.Workload(data=ap.Arrays(x, y), ops=(), batch_size=8, shuffle=False)
    with assembly.make_loader(workload, THREAD) as whole, assembly.make_loader(workload, THREAD, rank=(1, 2)) as half:
        assert (len(whole), len(half), half.batch_size) == (2, 2, 4)
        assert half.identity == whole.identity  # so that a state of either resumes the other
        assert [batch[0].tolist() for batch in half.batches(0)] == [x[4:8].tolist(), x[12:16].tolist()]


def test_rank_0_writes_and_the_others_only_restore() -> None:
    log, other = type("Writes", (keras.callbacks.CSVLogger,), {})("log.csv"), keras.callbacks.EarlyStopping()
    backup = keras.callbacks.BackupAndRestore("backup", save_freq=1)
    backup._save_model = Mock()
    assert callbacks.of_rank((0, 1), [log, other, backup]) == [log, other, backup]
    assert callbacks.of_rank((1, 2), [log, other, backup]) == [other, backup]
    backup.on_train_batch_end(0)
    backup.on_epoch_end(0)
    backup._save_model.assert_not_called()


LEFT, RIGHT = np.ones((6, 2), np.float32), np.ones((6, 3), np.float32)
Y = np.arange(6) % 2


def model() -> keras.Model:
    inputs = [keras.Input((2,), name="left"), keras.Input((3,), name="right")]
    built = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(keras.layers.concatenate(inputs)))
    built.compile(loss="sparse_categorical_crossentropy")
    return built


def trainer(x: Any, weight: Any = None, *, y: Any = Y, model: Any = model) -> ap.Trainer:
    workload = ap.Workload(data=ap.Arrays(x, y, weight), ops=[], batch_size=2, model=model)
    return ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1)))


def compiled(layers: list[Any], loss: str = "mse", **settings: Any) -> keras.Model:
    made = keras.Sequential(layers)
    made.compile("sgd", loss, **settings)
    return made


def priced(as_names: bool) -> keras.Model:
    seen = keras.Input((2,))
    outputs = [keras.layers.Dense(1, name=name)(seen) for name in ("kind", "price")]
    built = keras.Model(seen, {"kind": outputs[0], "price": outputs[1]} if as_names else outputs)
    built.compile(loss="mse")
    return built


def convolution(**settings: Any) -> keras.Model:
    layers = [keras.layers.Conv2D(3, 3, data_format="channels_first"), keras.layers.Flatten(), keras.layers.Dense(3)]
    return compiled([keras.Input((3, 4, 4)), *layers], "sparse_categorical_crossentropy", **settings)


def not_compiled() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


TWO: Any = types.SimpleNamespace(devices=2)
SHARED = ap.Workload(data=ap.Arrays(*blobs(16, side=4)), ops=(), batch_size=6)
THREAD = ap.PipelineConfig(loader=ap.Threads(workers=1))
PRICES = {"class": Y, "price": Y}
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: models.build(3), "must be a function that returns a compiled keras.Model.*but got 3"),
    (lambda: models.build(lambda: None), r"returned None\. Is a `return model` missing"),
    (lambda: models.build(dict), "returned {}"),
    (lambda: models.build(not_compiled), "must be compiled.*Call model.compile"),
    (lambda: models.build(not_compiled()), "must be compiled"),
    (lambda: models.build(classifier(), strategy=TWO), "Pass the function that builds"),
    (lambda: ap.Trainer(classifier(), loader((8, 6, 6, 3))),
     r"takes batches of shape \(None, 4, 4, 3\), but gets \(None, 6, 6, 3\)\. Ch"),
    (lambda: ap.Trainer(classifier(), loader((4, 4, 3))), "one sample in place of a batch"),
    (lambda: ap.Trainer(classifier(), loader(first=True)),
     r'gets \(None, 3, 4, 4\)\. The batches have channels="first"'),
    (lambda: ap.Trainer(classifier(shape=(3, 4, 4)), loader()),
     r'gets \(None, 4, 4, 3\)\. The batches have channels="last"'),
    (lambda: ap.Trainer(convolution(jit_compile=False), loader(first=True)),
     r'of `model` has channels first\. Use channels="last"'),
    (lambda: ap.Trainer(classifier(one_hot=True), loader()),
     r"(?s)cannot compare its output of shape \(None, 3\) with .* shape \(None,\).*ap.OneHot"),
    (lambda: ap.Trainer(classifier(), loader((8, 4, 4, 3), ap.OneHot(3))), r"targets of shape \(None, 3\)"),
    (lambda: assembly.make_loader(SHARED, THREAD, rank=(0, 4)), "between 4 processes, but `batch_size` is 6"),
    (lambda: trainer({"left": LEFT, "wrong": Y}), r"2 inputs \('left', 'right'\), but x has the parts 'left', 'wrong'"),
    (lambda: trainer((LEFT, RIGHT, LEFT)), "but x has 3 parts"),
    (lambda: trainer(LEFT), "but x is one part"),
    (lambda: trainer((RIGHT, LEFT)), r"shape \(None, 2\) as 'left', but gets \(None, 3\)"),
    (lambda: trainer((LEFT, RIGHT), model=lambda: compiled([keras.Input((2,)), keras.layers.Dense(1)])),
     r"takes 1 input \(.*\), but x has 2 parts"),
    (lambda: trainer((LEFT, RIGHT), np.ones(6, np.float32)).fit(class_weight={0: 2.0}), "cannot be used together"),
    *((lambda as_names=as_names: trainer(LEFT, y=PRICES, model=lambda: priced(as_names)),
       "are called 'kind', 'price', but y has the parts 'class', 'price'") for as_names in (True, False)),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_what_does_not_fit_is_told_before_anything_is_trained(call: Callable[[], object], said: str) -> None:
    with pytest.raises((ModelError, ConfigError), match=said):
        call()


def test_what_fits_is_trained() -> None:
    ap.Trainer(convolution(jit_compile=True), loader(first=True)).fit(verbose=0)  # on a CPU, they need XLA
    with trainer(LEFT, y={"price": Y, "kind": Y}, model=lambda: priced(True)) as made:
        assert len(made.fit(verbose=0).history["loss"]) == 1
    with trainer((LEFT, RIGHT)) as made:
        assert made.fit(class_weight={0: 2.0}, verbose=0).history["loss"]


@pytest.mark.parametrize("x", [(LEFT, RIGHT), {"right": RIGHT, "left": LEFT}, {"left": LEFT, "right": RIGHT, "z": Y}])
def test_inputs_are_taken_by_their_order_or_by_their_names(x: Any) -> None:
    with trainer(x) as made:
        assert len(made.fit(verbose=0).history["loss"]) == 1


def test_a_forward_pass_is_timed_if_its_input_is_known() -> None:
    assert 0 < models.forward_seconds(not_compiled(), 8) < math.inf
    assert models.forward_seconds(keras.Sequential([keras.layers.Dense(1)]), 8) == math.inf
