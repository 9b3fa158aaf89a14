"""Looking over the shoulder of `fit`: what is fed, what is told, and that the training is the same as unwatched.

No test asserts how long anything took. Runs on the backend of the process, and by its last test on JAX.
"""

import itertools
import re
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.extensions.diagnose import data, run
from autopipe.extensions.diagnose import steps as steps_
from autopipe.extensions.diagnose.run import Onlooker, calls
from autopipe.extensions.diagnose.steps import Epochs, Look, TimedStep, grows
from autopipe.extensions.diagnose.watched import Watched, rows
from autopipe.hardware.processes import Sample, Usage
from tests.extensions.diagnose.conftest import only
from tests.fakes.commands import ROOT, python
from tests.fakes.loader import Clock

X = np.random.default_rng(0).random((24, 6, 6, 3), np.float32)
Y = np.arange(24) % 3


class RandomDouble(keras.layers.Layer):
    """Doubles what passes in training, and notes how it was called."""

    called: ClassVar[list[bool]] = []

    def call(self, inputs: Any, training: bool = False) -> Any:
        self.called.append(bool(training))
        return inputs * (2.0 if training else 1.0)


class TwoOptimizers(keras.Model):
    """A training step of its own, with a metric and an optimizer that `compile` knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = model()
        self.others = keras.optimizers.Adam(0.1)
        self.seen = keras.metrics.Sum(name="seen")
        self.others.build(self.inner.trainable_variables)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)

    def train_step(self, data: Any) -> Any:
        variables = self.inner.trainable_variables
        self.others.apply_gradients((variable, variable) for variable in variables)
        self.seen.update_state(keras.ops.ones(()))
        return {"seen": self.seen.result()}


def model(*first: Any, **compiled: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    last = [keras.layers.Flatten(), keras.layers.Dense(3, activation="softmax")]
    made = keras.Sequential([keras.Input((6, 6, 3)), *first, *last])
    made.compile(**{"optimizer": "sgd", "loss": "sparse_categorical_crossentropy", **compiled})
    return made


class Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return X[4 * index :][:4], Y[4 * index :][:4]


def batches() -> Iterator[Any]:
    while True:
        yield X[:4], Y[:4]


def tf_dataset() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)


LOOK = Look(steps=3, alone_seconds=0.05)
FIT: dict[str, Any] = {"x": X, "y": Y, "batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
ITSELF = {"y": None, "batch_size": None}  # of what makes its own batches


def watch(made: keras.Model, look: Look = LOOK, source: Any = None, **fit: Any) -> list[Watched]:
    told: list[Watched] = []
    given = {} if source is None else {"x": source, **ITSELF}
    made.fit(callbacks=[Onlooker(told.append, look, source=source)], **{**FIT, **given, **fit})
    return told


def is_kerass(made: keras.Model) -> bool:
    """Return True if the model's training function is the one that Keras made."""
    name: str = made.train_function.__qualname__
    return name.startswith(("TensorFlowTrainer.", "JAXTrainer."))


SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": dict,
    "PyDataset": lambda: {"x": Sequence(), **ITSELF},
    "generator": lambda: {"x": batches(), **ITSELF, "steps_per_epoch": 6},
    "tf.data": lambda: {"x": tf_dataset(), **ITSELF},
}


@pytest.mark.parametrize(
    "source",
    ["tf.data", *(pytest.param(each, marks=pytest.mark.slow) for each in ("arrays", "PyDataset", "generator"))],
)
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_a_watched_training_is_the_unwatched_one(source: str) -> None:
    """Of a model that holds more than weights: averages, a seed, the moments of its optimizer, a metric."""
    layers = [[keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=3)] for _ in "12"]
    plain, seen = (model(*each, optimizer="adam", metrics=["accuracy"]) for each in layers)
    expected = plain.fit(**{**FIT, **SOURCES[source]()}).history
    function_before = seen.train_function
    (told,) = watch(seen, **SOURCES[source]())
    assert (told.batch_size, told.backend, told.images) == (4, keras.backend.backend(), told.steps * 4)
    assert told.alone_images_per_second is not None
    held = [made.variables + made.optimizer.variables for made in (seen, plain)]
    for ours, theirs in zip(*held, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    history = seen.history.history
    assert {key: values for key, values in history.items() if key in expected} == expected
    assert len(history["images_per_second"]) == 2
    assert all(0 <= share <= 1 for share in history["data_wait_share"])
    assert seen.train_function is not function_before  # Keras's own, made by now
    assert is_kerass(seen)


@pytest.mark.parametrize("anew", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_split_behind_a_shuffle_that_orders_anew_is_told(anew: bool) -> None:
    (told,) = watch(model(), source=tf_dataset().shuffle(6, reshuffle_each_iteration=anew).take(4))
    assert any("is trained on, too" in warning for warning in told.warnings) is anew


@pytest.mark.slow
def test_a_training_of_two_steps_tells_nothing_and_several_at_once_are_taken_one_by_one() -> None:
    assert watch(model(), epochs=1, x=X[:8], y=Y[:8]) == []
    (told,) = watch(model(steps_per_execution=2), look=Look(steps=2, alone_seconds=0.05), epochs=3)
    assert told.images == 8 * told.steps
    assert any("steps_per_execution" in warning for warning in told.warnings)


@pytest.mark.parametrize(("asked", "on"), [("run_eagerly", ["tensorflow", "jax"]), ("jit_compile", ["jax"])])
def test_a_model_that_is_not_compiled_is_told(asked: str, on: list[str]) -> None:
    (told,) = watch(model(**{asked: asked == "run_eagerly"}))
    assert any(f"{asked}=" in warning for warning in told.warnings) is (keras.backend.backend() in on)


def test_batches_that_are_large_for_a_pipe_are_told() -> None:
    batch, forks = (np.zeros((16, 128, 128, 4), np.float32), np.arange(16)), {"workers": 2, "use_multiprocessing": True}
    only(data.piped(Sequence(**forks), batch, 1e-6), "batches of 4 MiB")
    only([*data.piped(Sequence(**forks), batch, 1e6), *data.piped(Sequence(workers=2), batch, 1e-6)], None)


def test_augmentation_in_the_model_is_timed_by_leaving_it_out() -> None:
    RandomDouble.called.clear()
    made = model(keras.Sequential([RandomDouble(), keras.layers.RandomFlip(seed=1)]))
    (told,) = watch(made)
    assert set(told.augmentation) == {"RandomDouble", "RandomFlip"}
    assert told.without_augmentation_images_per_second is not None
    assert RandomDouble.called[-1] is False  # the last trace was the one without
    assert "call" not in vars(made.layers[0].layers[0])
    layer = RandomDouble()
    with run.turned_off([layer]):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(X, training=True)), X)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(X, training=True)), 2 * X)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="its training step is TensorFlow's")
def test_nothing_of_a_training_step_of_its_own_is_changed_by_running_it_alone() -> None:
    made = TwoOptimizers()
    made.compile()
    made.fit(X, Y, batch_size=4, verbose=0)
    held = [made.others.iterations, made.others.variables[2], made.seen.variables[0], *made.inner.variables]
    before = [variable.numpy().copy() for variable in held]
    with run.unchanged(made):
        calls(made.train_function, (), (X[:4], Y[:4]), 0.05)
        assert made.others.iterations.numpy() > before[0]
    for variable, value in zip(held, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_model_that_makes_its_own_training_function_is_refused() -> None:
    own = {"make_train_function": lambda self, force=False: keras.Sequential.make_train_function(self, force)}
    made = type("Own", (keras.Sequential,), own)([keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    with pytest.raises(ap.ModelError, match="`make_train_function` of its own"):
        watch(made)


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_an_error_of_the_data_is_the_trainings_own_and_the_model_is_left_alone() -> None:
    def broken() -> Iterator[Any]:
        yield from itertools.islice(batches(), 3)
        raise ZeroDivisionError

    made = model()
    with pytest.raises(Exception) as told:  # noqa: PT011  # TensorFlow's own, with the text of ours
        watch(made, source=broken(), epochs=1, steps_per_epoch=5)
    assert "ZeroDivisionError" in f"{told.type.__name__}: {told.value}"
    assert is_kerass(made)


@pytest.mark.slow
def test_after_a_training_that_was_interrupted_the_same_callback_watches_the_next() -> None:
    class Interrupts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    told: list[Watched] = []
    made, onlooker = model(), Onlooker(told.append, LOOK)
    with pytest.raises(KeyboardInterrupt):
        made.fit(**FIT, callbacks=[onlooker, Interrupts()])
    made.fit(**FIT, callbacks=[onlooker])
    assert (len(told), is_kerass(made)) == (1, True)


def test_the_next_may_be_of_another_model_or_of_the_same_compiled_anew() -> None:
    first, other = model(), model()
    onlooker = Onlooker(lambda watched: None)
    for made in (first, other):
        onlooker.set_model(made)
        onlooker.on_train_begin()  # and no end
    assert is_kerass(first)
    other.compile("sgd", "sparse_categorical_crossentropy")
    other.make_train_function()
    anew = other.train_function
    onlooker.leave()
    assert other.train_function is anew


@pytest.mark.parametrize("keep", ["none", pytest.param("memory", marks=pytest.mark.slow)])
def test_the_training_of_a_trainer_is_watched_with_the_ops_that_are_python_if_it_pays_them(keep: str) -> None:
    def brighter(image: Any) -> Any:
        return np.minimum(image, 250) + 5

    told: list[Watched] = []
    arrays = ap.Arrays(np.zeros((8, 9, 9, 3), np.uint8), np.zeros(8, np.int64))
    ops = [ap.Resize(6, 6), ap.Map(brighter), ap.Rescale(1 / 255)]
    workload = ap.Workload(data=arrays, ops=ops, batch_size=2, model=model)
    with ap.make_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1), keep=keep)) as trainer:
        trainer.fit(epochs=3, callbacks=Onlooker(told.append, LOOK), verbose=0)
    (seen,) = told
    assert (seen.batch_size, seen.data, seen.not_native) == (2, "autopipe", native.why_not())
    python = [op.name for op in seen.ops if not op.native]
    assert ("Map(brighter)" in python) == (keep == "none")
    assert "Rescale" not in [op.name for op in seen.ops]  # the device does it
    lines = [text for name, text in rows(seen) if name == "Python"]
    assert len(lines) == bool(python)
    assert keep == "memory" or "Map(brighter)" in lines[0] or seen.not_native is not None


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_the_callback_of_the_docs_prints_its_verdict_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "autopipe" / "extensions" / "diagnose" / "README.md").read_text()
    code, *_ = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.M)
    short = code.replace("ap.Diagnose()", "ap.Diagnose(steps=3)")
    exec(short, {"model": model(), "dataset": tf_dataset()})
    printed = capsys.readouterr().out
    assert (printed.count("verdict"), "tf.data.Dataset (" in printed) == (1, True)


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_a_callback_knows_the_data_of_each_fit_and_holds_none_of_them() -> None:
    told: list[Watched] = []
    watching, made = Onlooker(told.append, Look(steps=3, alone_seconds=0.01)), model()
    held = list[weakref.ref[Any]]()
    for given in ({"x": X}, {"x": tf_dataset(), **ITSELF}):
        made.fit(**{**FIT, **given}, callbacks=[watching])
        held.append(weakref.ref(given["x"]))
    assert [each.data for each in told] == ["arrays", "tf.data.Dataset"]
    del given
    assert held[1]() is None


@pytest.mark.parametrize(
    ("gigabytes", "said"),
    [
        ((1, 2, 2.5, 3), "512 MiB an epoch.*53 GiB"),
        ((1, 2, 2.5, 2.5), None),
        ((1, 2, 3), None),  # two epochs beside the first tell nothing
        ((0, 0, 0, 0), None),  # nothing was seen of them
    ],
)
def test_memory_that_grows_with_each_epoch_is_told_with_what_it_comes_to(
    gigabytes: tuple[float, ...], said: str | None
) -> None:
    looks = [Sample(seconds=at + 0.5, memory_bytes=int(each * 2**30)) for at, each in enumerate(gigabytes)]
    told = list(grows(Usage(samples=tuple(looks)), [float(each) for each in range(len(gigabytes) + 1)]))
    assert [bool(re.search(str(said), each)) for each in told] == [True] * (said is not None)


# -------------------- the times of steps


def slow(clock: Clock, seconds: float) -> Iterator[int]:
    while True:
        clock.now += seconds
        yield 0


def step(seconds: float = 1.0, waiting: float = 0.0, **other: Any) -> TimedStep:
    return TimedStep(**{"images": 8, "seconds": seconds, "waiting_seconds": waiting, "between_seconds": 0.0, **other})


def timed(clock: Clock, images: Iterable[int], after: float = 0.0) -> steps_.StepClock:
    """Return the times of epochs of one step of a second each, or of none without images."""
    steps = steps_.StepClock(clock)
    for each in images:
        steps.epoch_began()
        if each:
            steps.step_began()
            clock.now += 1.0
            steps.step_ended(each)
        clock.now += after
    return steps


def test_waiting_computing_and_the_time_between_are_told_apart() -> None:
    steps = steps_.StepClock(clock := Clock())
    clock.now += 60.0  # what comes before the epoch
    steps.epoch_began()
    for _ in range(2):
        clock.now += 0.25
        steps.step_began()
        next(steps.waiting(slow(clock, 2.0)))
        clock.now += 1.0
        steps.step_ended(8)
    opened = step(3.25, waiting=2.25, is_first=True)  # its data were opened
    assert steps.steps == [opened, step(3.25, waiting=2.0, between_seconds=0.25)]
    steps.epoch_began()
    clock.now += 0.5
    steps.step_began(fetched=True)  # before the call
    clock.now += 1.0
    steps.step_ended(8)
    assert steps.steps[2:] == [step(1.5, waiting=0.5, is_first=True)]


def test_validation_is_no_steps_time_and_the_end_of_the_data_no_batch() -> None:
    steps = timed(clock := Clock(), [8, 8], after=500.0)
    assert [each.seconds for each in steps.steps] == [1.0, 1.0]
    steps.spent_on("between")
    clock.now += 7.0
    steps.validated(waited=4.0)
    steps.epochs_ended()
    found = {"between_seconds": 500.0, "validation_seconds": 7.0, "validation_waiting_seconds": 4.0}
    assert steps.epochs == Epochs(count=1, steps_seconds=1.0, images=8, **found)
    assert steps.seconds == 1.0 + 2 * 500.0 + 7.0  # without the step that compiles
    assert list(steps.waiting([1, 2])) == [1, 2]


def test_a_step_lasts_until_its_device_has_done_it() -> None:
    steps = steps_.StepClock(clock := Clock())
    steps.epoch_began()
    for _ in range(2):
        steps.step_began()
        clock.now += 1.0
        steps.step_ended(8)
    clock.now += 2.0
    steps.step_lasted()
    steps.epochs_ended()
    assert steps.steps == [step(1.0, is_first=True), step(3.0)]
    assert steps.epochs == Epochs(count=1, steps_seconds=3.0, images=16)  # without the one that compiles


def test_epochs_behind_the_end_of_the_data_are_none() -> None:
    steps = timed(Clock(), [8, 8, 0, 0], after=500.0)
    steps.epochs_ended()
    assert steps.epochs is not None
    assert (steps.epochs.count, steps.epochs.steps_seconds, steps.empty_epochs) == (1, 1.0, 2)


def test_only_the_later_half_counts_and_never_the_warm_up() -> None:
    steps = [step(50.0), step(9.0), *(step(1.0) for _ in range(10))]
    found = [len(steps_.steady(steps[:count])) for count in (12, steps_.WARM_UP_STEPS + 1, steps_.WARM_UP_STEPS)]
    assert found == [5, 1, 0]


@pytest.mark.parametrize(("waits", "rises"), [([0, 0, 0.5, 0.6], True), ([0.5] * 4, False), ([0.5], False)])
def test_a_queue_that_runs_empty_is_told(waits: list[float], rises: bool) -> None:
    seen = [step(waiting=each) for each in waits]
    told = [any("queue" in said for said in steps_.doubts(seen, has_queue=has_queue)) for has_queue in (True, False)]
    assert told == [rises, False]


@pytest.mark.parametrize(
    ("asked", "sizes", "said"),
    [
        (16, [10, 11, 9, 10], "38%"),
        (16, [16, 16, 16, 4], None),  # the last one of an epoch
        (16, [16, 4, 16, 4], None),
        (None, [3, 3], None),
    ],
)
def test_samples_that_a_loader_reads_and_drops_are_counted(asked: Any, sizes: list[int], said: str | None) -> None:
    only(steps_.dropped(asked, [step(images=size) for size in sizes]), said)


def test_a_loader_tells_how_many_samples_it_reads_for_a_batch() -> None:
    whole, short = (
        types.SimpleNamespace(dataset=range(count), batch_size=16, collate_fn=list) for count in (64, 8)
    )  # no batch of the second is full
    iterator = types.SimpleNamespace(_dataset=range(64), _collate_fn=list, _index_sampler=whole)
    assert [steps_.asked_of(each) for each in (whole, short, iterator, range(64))] == [16, None, 16, None]


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it is what is run here")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_of_this_holds_on_jax() -> None:
    done = python("-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", __file__, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-5000:]
