"""Looking over the shoulder of `fit`: what is fed, what is told, and that the training is the same as unwatched.

No test asserts how long anything took. Runs on the backend of the process, and by its last test on JAX.
"""

from __future__ import annotations

import dataclasses
import re
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.errors import ModelError
from autopipe.extensions.diagnose import data, run
from autopipe.extensions.diagnose import steps as steps_
from autopipe.extensions.diagnose.run import Onlooker, calls
from autopipe.extensions.diagnose.steps import Epochs, Look, TimedStep, grows
from autopipe.extensions.diagnose.watched import Watched, rows
from autopipe.hardware.processes import Sample, Usage
from autopipe.pipeline.devices.trainer import Trainer
from tests.fakes.commands import ROOT, python
from tests.fakes.loader import ArrayLoader, Clock
from tests.unit.cli.conftest import photos

X = np.random.default_rng(0).random((24, 6, 6, 3), np.float32)
Y = np.arange(24) % 3


class RandomDouble(keras.layers.Layer):
    """Doubles what passes in training, and notes how it was called."""

    called: list[bool]

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
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self.inner(x)))
        variables = self.inner.trainable_variables
        self.others.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.seen.update_state(keras.ops.ones(()))
        return {"loss": loss, "seen": self.seen.result()}


def model(*first: Any, **compiled: Any) -> keras.Model:
    keras.utils.set_random_seed(1)
    last = [keras.layers.Flatten(), keras.layers.Dense(3, activation="softmax")]
    made = keras.Sequential([keras.Input((6, 6, 3)), *first, *last])
    made.compile(**{"optimizer": "sgd", "loss": "sparse_categorical_crossentropy", **compiled})
    return made


def with_a_state() -> keras.Model:
    """Return a model that holds more than weights: averages, a seed, the moments of its optimizer, a metric."""
    layers = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=3)]
    return model(*layers, optimizer="adam", metrics=["accuracy"])


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


def watch(made: keras.Model, look: Look | None = None, source: Any = None, **fit: Any) -> list[Watched]:
    told: list[Watched] = []
    given = {"x": X, "y": Y, "batch_size": 4} if source is None else {"x": source}
    arguments: dict[str, Any] = {**given, "epochs": 2, "shuffle": False, "verbose": 0, **fit}
    watching = Onlooker(told.append, look or Look(steps=3, alone_seconds=0.05), source=source)
    made.fit(callbacks=[watching], **arguments)
    return told


def is_kerass(made: keras.Model) -> bool:
    """Return True if the model's training function is the one that Keras made."""
    name: str = made.train_function.__qualname__
    return name.startswith(("TensorFlowTrainer.", "JAXTrainer."))


SOURCES: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 4},
    "PyDataset": lambda: {"x": Sequence(), "y": None, "batch_size": None},
    "generator": lambda: {"x": batches(), "y": None, "batch_size": None, "steps_per_epoch": 6},
    "tf.data": lambda: {"x": tf_dataset(), "y": None, "batch_size": None},
}


@pytest.mark.parametrize(
    "source",
    ["tf.data", *(pytest.param(each, marks=pytest.mark.slow) for each in ("arrays", "PyDataset", "generator"))],
)
@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_a_watched_training_is_the_unwatched_one(source: str) -> None:
    plain, seen = with_a_state(), with_a_state()
    arguments = {"epochs": 2, "shuffle": False, "verbose": 0}
    expected = plain.fit(**{**arguments, **SOURCES[source]()}).history
    function_before = seen.train_function
    (told,) = watch(seen, **SOURCES[source]())
    assert (told.batch_size, told.backend) == (4, keras.backend.backend())
    assert told.steps * 4 == told.images
    assert told.alone_images_per_second is not None
    held = [made.variables + made.optimizer.variables for made in (seen, plain)]
    for ours, theirs in zip(*held, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    again = {key: values for key, values in seen.history.history.items() if key in expected}
    assert again == expected
    assert len(seen.history.history["images_per_second"]) == 2
    assert all(0 <= share <= 1 for share in seen.history.history["data_wait_share"])
    assert seen.train_function is not function_before  # Keras's own, made by now
    assert is_kerass(seen)


@pytest.mark.slow
def test_a_training_that_ends_before_enough_was_seen_is_told_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_, "_FEW_SECONDS", 1e9)  # however slow this machine is
    (told,) = watch(model(), Look(seconds=1e9, alone_seconds=0.05))
    assert told.alone_images_per_second is not None
    assert any("in all, w" in warning for warning in told.warnings)  # one step, on a machine that is busy


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
    (said,) = data.piped(Sequence(**forks), batch, 1e-6)
    assert "batches of 4 MiB" in said
    assert [*data.piped(Sequence(**forks), batch, 1e6), *data.piped(Sequence(workers=2), batch, 1e-6)] == []


def test_a_batch_is_not_held_while_the_ones_after_it_are_asked_for() -> None:
    given: list[weakref.ref[Any]] = []
    held: list[list[bool]] = []

    def lent() -> Iterator[Any]:
        given.clear()
        held.clear()
        for _ in range(3):
            held.append([each() is not None for each in given])
            x = X[:4].copy()
            given.append(weakref.ref(x))
            yield x, Y[:4]
            del x

    def three_steps(batches: Iterator[Any]) -> dict[str, Any]:  # as Keras does them, which itself lets go of each
        for _ in range(3):
            next(batches)
        return {}

    told: list[Watched] = []
    onlooker = Onlooker(told.append, Look(steps=1, alone_seconds=0.01))
    onlooker.set_model(model())
    onlooker.model.train_function = three_steps
    onlooker.on_train_begin()
    onlooker.model.train_function(lent())
    assert held == [[], [True], [False, True]]  # the last one is kept, for the model to run on alone
    while not told:
        onlooker.model.train_function(lent())
    onlooker.model.train_function(lent())
    assert held == [[], [False], [False, False]]
    onlooker.leave()


def test_augmentation_in_the_model_is_timed_by_leaving_it_out() -> None:
    RandomDouble.called = []
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
    class Own(keras.Sequential):
        def make_train_function(self, force: bool = False) -> Any:
            return super().make_train_function(force)

    made = Own([keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    with pytest.raises(ModelError, match="`make_train_function` of its own"):
        watch(made)


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_an_error_of_the_data_is_the_trainings_own_and_the_model_is_left_alone() -> None:
    def broken() -> Iterator[Any]:
        for _ in range(3):
            yield X[:4], Y[:4]
        raise ZeroDivisionError

    made = model()
    onlooker = Onlooker(lambda watched: None)
    with pytest.raises(Exception) as told:  # noqa: PT011  # TensorFlow's own, with the text of ours
        made.fit(broken(), epochs=1, steps_per_epoch=5, verbose=0, callbacks=[onlooker])
    assert "ZeroDivisionError" in f"{told.type.__name__}: {told.value}"
    assert is_kerass(made)


@pytest.mark.slow
def test_after_a_training_that_was_interrupted_the_same_callback_watches_the_next() -> None:
    class Interrupts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    told: list[Watched] = []
    made, onlooker = model(), Onlooker(told.append, Look(steps=3, alone_seconds=0.05))
    with pytest.raises(KeyboardInterrupt):
        made.fit(X, Y, batch_size=4, verbose=0, callbacks=[onlooker, Interrupts()])
    made.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[onlooker])
    assert len(told) == 1
    assert is_kerass(made)


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


def test_the_training_of_a_trainer_is_watched_like_any_other() -> None:
    told: list[Watched] = []
    made, onlooker = model(), Onlooker(told.append, Look(steps=3, alone_seconds=0.05))
    Trainer(made, ArrayLoader(X, Y, 4)).fit(epochs=2, callbacks=onlooker, verbose=0)
    assert [(each.batch_size, each.data) for each in told] == [(4, "autopipe")]
    assert is_kerass(made)


@pytest.mark.slow
def test_the_files_of_a_trainers_workload_are_looked_at(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    told: list[Watched] = []
    ops = [ap.Decode(), ap.Resize(6, 6), ap.Rescale(1 / 255)]
    workload = ap.Workload(data=ap.ImageFolder(tmp_path / "photos"), ops=ops, batch_size=2, model=model)
    with ap.build_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as trainer:
        trainer.fit(epochs=2, callbacks=Onlooker(told.append, Look(steps=3, alone_seconds=0.05)), verbose=0)
    (seen,) = told
    assert seen.image_files is not None
    assert (seen.image_files.files, seen.image_files.progressive) == (8, 0)
    assert seen.folder == str(tmp_path / "photos")


@pytest.mark.parametrize("keep", ["none", pytest.param("memory", marks=pytest.mark.slow)])
def test_the_ops_of_a_trainers_workload_that_are_python_are_named_if_the_training_pays_them(keep: str) -> None:
    def brighter(image: Any) -> Any:
        return np.minimum(image, 250) + 5

    told: list[Watched] = []
    data = ap.Arrays(np.zeros((8, 9, 9, 3), np.uint8), np.zeros(8, np.int64))
    ops = [ap.Resize(6, 6), ap.Map(brighter), ap.Rescale(1 / 255)]
    workload = ap.Workload(data=data, ops=ops, batch_size=2, model=model)
    with ap.build_trainer(workload, ap.PipelineConfig(loader=ap.Threads(workers=1), keep=keep)) as trainer:
        trainer.fit(epochs=3, callbacks=Onlooker(told.append, Look(steps=3, alone_seconds=0.05)), verbose=0)
    (seen,) = told
    python = [op.name for op in seen.ops if not op.native]
    assert ("Map(brighter)" in python) == (keep == "none")
    assert "Rescale" not in [op.name for op in seen.ops]  # the device does it
    assert seen.not_native == native.why_not()
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
    assert printed.count("verdict") == 1
    assert "tf.data.Dataset (" in printed


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_a_callback_knows_the_data_of_each_fit_and_holds_none_of_them() -> None:
    told: list[Watched] = []
    watching, made = Onlooker(told.append, Look(steps=3, alone_seconds=0.01)), model()
    held = list[weakref.ref[Any]]()
    for given in ({"x": X, "y": Y, "batch_size": 4}, {"x": tf_dataset()}):
        made.fit(**given, epochs=2, verbose=0, callbacks=[watching])
        held.append(weakref.ref(given["x"]))
    assert [each.data for each in told] == ["arrays", "tf.data.Dataset"]
    del given
    assert held[1]() is None


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="Keras hands tf.data's iterator to TensorFlow only")
@pytest.mark.parametrize("calls_at_once", [-1, pytest.param(2, marks=pytest.mark.slow)])  # -1: tf.data.AUTOTUNE
def test_what_autotune_has_chosen_is_told(calls_at_once: int) -> None:
    data = tf_dataset().repeat(20).map(lambda x, y: (x + 1, y), num_parallel_calls=calls_at_once)
    (seen,) = watch(model(), Look(steps=5, alone_seconds=0.01), data, epochs=1)
    assert (seen.autotune is None) == (calls_at_once != -1)
    assert ("AUTOTUNE" in dict(rows(seen))) == (calls_at_once == -1)
    assert calls_at_once != -1 or re.fullmatch(r"Map \d at once(; buffers hold .+)?", str(seen.autotune))


def test_memory_that_grows_with_each_epoch_is_told_with_what_it_comes_to() -> None:
    def usage(*gigabytes: float) -> Usage:
        looks = [Sample(seconds=at + 0.5, memory_bytes=int(each * 2**30)) for at, each in enumerate(gigabytes)]
        return Usage(samples=tuple(looks))

    begins = [0.0, 1.0, 2.0, 3.0, 4.0]
    (said,) = grows(usage(1, 2, 2.5, 3), begins)
    assert "512 MiB an epoch" in said
    assert "53 GiB" in said
    assert list(grows(usage(1, 2, 2.5, 2.5), begins)) == []
    assert list(grows(usage(1, 2, 3), begins[:4])) == []  # two epochs beside the first tell nothing
    assert list(grows(usage(0, 0, 0, 0), begins)) == []  # nothing was seen of them


def slow(clock: Clock, seconds: float) -> Iterator[int]:
    while True:
        clock.now += seconds
        yield 0


def step(seconds: float = 1.0, waiting: float = 0.0) -> TimedStep:
    return TimedStep(images=8, seconds=seconds, waiting_seconds=waiting, between_seconds=0.0)


def test_waiting_computing_and_the_time_between_are_told_apart() -> None:
    clock = Clock()
    steps = steps_.StepClock(clock)
    clock.now += 60.0  # what comes before the epoch
    steps.epoch_began()
    for _ in range(2):
        clock.now += 0.25
        steps.step_began()
        next(steps.waiting(slow(clock, 2.0)))
        clock.now += 1.0
        steps.step_ended(8)
    assert steps.steps == [
        dataclasses.replace(step(3.25, waiting=2.25), is_first=True),  # its data were opened
        dataclasses.replace(step(3.25, waiting=2.0), between_seconds=0.25),
    ]
    steps.epoch_began()
    clock.now += 0.5
    steps.step_began(fetched=True)  # before the call
    clock.now += 1.0
    steps.step_ended(8)
    assert steps.steps[2:] == [dataclasses.replace(step(1.5, waiting=0.5), is_first=True)]


def test_validation_is_no_steps_time_and_the_end_of_the_data_no_batch() -> None:
    clock = Clock()
    steps = steps_.StepClock(clock)
    for _ in range(2):
        steps.epoch_began()
        steps.step_began()
        clock.now += 1.0
        steps.step_ended(8)
        clock.now += 500.0
    assert [each.seconds for each in steps.steps] == [1.0, 1.0]
    steps.spent_on("between")
    clock.now += 7.0
    steps.validated(waited=4.0)
    steps.epochs_ended()
    found = Epochs(count=1, steps_seconds=1.0, between_seconds=500.0, images=8)
    assert steps.epochs == found.model_copy(update={"validation_seconds": 7.0, "validation_waiting_seconds": 4.0})
    assert steps.seconds == 1.0 + 2 * 500.0 + 7.0  # without the step that compiles
    assert list(steps.waiting([1, 2])) == [1, 2]


def test_a_step_lasts_until_its_device_has_done_it() -> None:
    clock = Clock()
    steps = steps_.StepClock(clock)
    steps.epoch_began()
    for _ in range(2):
        steps.step_began()
        clock.now += 1.0
        steps.step_ended(8)
    clock.now += 2.0
    steps.step_lasted()
    steps.epochs_ended()
    assert steps.steps == [dataclasses.replace(step(1.0), is_first=True), step(3.0)]
    assert steps.epochs == Epochs(count=1, steps_seconds=3.0, images=16)  # without the one that compiles


def test_epochs_behind_the_end_of_the_data_are_none() -> None:
    clock = Clock()
    steps = steps_.StepClock(clock)
    for images in (8, 8, 0, 0):
        steps.epoch_began()
        if images:
            steps.step_began()
            clock.now += 1.0
            steps.step_ended(images)
        clock.now += 500.0
    steps.epochs_ended()
    assert steps.epochs is not None
    assert (steps.epochs.count, steps.epochs.steps_seconds, steps.empty_epochs) == (1, 1.0, 2)


def test_only_the_later_half_counts_and_never_the_warm_up() -> None:
    steps = [step(50.0), step(9.0), *(step(1.0) for _ in range(10))]
    assert len(steps_.steady(steps)) == 5
    assert len(steps_.steady(steps[: steps_.WARM_UP_STEPS + 1])) == 1
    assert not steps_.steady(steps[: steps_.WARM_UP_STEPS])


@pytest.mark.parametrize(("waits", "rises"), [([0, 0, 0.5, 0.6], True), ([0.5] * 4, False), ([0.5], False)])
def test_a_queue_that_runs_empty_is_told(waits: list[float], rises: bool) -> None:
    seen = [step(waiting=each) for each in waits]
    told = [any("queue" in said for said in steps_.doubts(seen, has_queue=has_queue)) for has_queue in (True, False)]
    assert told == [rises, False]


def torch_loader(count: int, batch: int) -> Any:
    return types.SimpleNamespace(dataset=range(count), batch_size=batch, collate_fn=list)


@pytest.mark.parametrize(
    ("asked", "sizes", "said"),
    [
        (16, [10, 11, 9, 10], ["38%"]),
        (16, [16, 16, 16, 4], []),  # the last one of an epoch
        (16, [16, 4, 16, 4], []),
        (None, [3, 3], []),
    ],
)
def test_samples_that_a_loader_reads_and_drops_are_counted(asked: Any, sizes: list[int], said: list[str]) -> None:
    told = list(steps_.dropped(asked, [dataclasses.replace(step(), images=size) for size in sizes]))
    assert [share in words for share, words in zip(said, told, strict=True)] == [True] * len(said)


def test_a_loader_tells_how_many_samples_it_reads_for_a_batch() -> None:
    assert steps_.asked_of(torch_loader(64, 16)) == 16
    assert steps_.asked_of(torch_loader(8, 16)) is None  # no batch of it is full
    iterator = types.SimpleNamespace(_dataset=range(64), _collate_fn=list, _index_sampler=torch_loader(0, 16))
    assert steps_.asked_of(iterator) == 16
    assert steps_.asked_of(range(64)) is None


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the data are tf.data's")
@pytest.mark.parametrize("caches", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_first_epoch_of_a_cache_is_not_taken_for_a_slow_opening(caches: bool) -> None:
    data = tf_dataset().cache() if caches else tf_dataset()
    (seen,) = watch(model(), Look(alone_seconds=0.01), data, epochs=1)
    assert seen.epochs is not None
    assert (seen.epochs.first_batch_seconds == 0) == caches


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it is what is run here")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_of_this_holds_on_jax() -> None:
    done = python("-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", __file__, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-5000:]
