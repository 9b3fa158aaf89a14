from __future__ import annotations

import collections
import contextlib
import functools
import gc
import itertools
import multiprocessing
import re
import sys
import threading
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe import frameworks
from autopipe.errors import ConfigError, DataWarning, LoaderError, ModelError, WorkloadError
from autopipe.measure import verify
from autopipe.measure.outcome import Report, VerifyOptions
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.batching import stream
from autopipe.pipeline.batching.datasets import copied
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.pipeline.wrap import WrappedData
from autopipe.search.space import from_config, of_wrapped, to_config
from autopipe.workload.ops.planner import make_plan
from tests.fakes.facts import known
from tests.unit.pipeline.devices.models import classifier

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


def make_tensors(calls: int = 1, prefetch: int = 0) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y))
    return dataset.map(lambda x, y: (x, y), num_parallel_calls=calls).batch(4).prefetch(prefetch)


class Items(keras.utils.PyDataset):
    def __init__(self, count: int, make: Callable[[int], Any], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._make(index)


def rows(index: int) -> tuple[Any, Any]:
    return X[4 * index :][:4], Y[4 * index :][:4]


def _wrapped(function: Callable[..., Any] = make_tensors, steps: int | None = None, **choices: Any) -> ap.Workload:
    return wrap.wrap(function, model=None, parameters=choices or {"calls": [1, 2]}, steps=steps, shuffle=False)


def as_it_is(workload: ap.Workload) -> ap.PipelineConfig:
    config = wrap.as_it_is(workload)
    assert config is not None
    return config


def choices(workload: ap.Workload) -> dict[str, Any]:
    assert isinstance(workload.data, WrappedData)
    return workload.data.choices


def opened(workload: ap.Workload) -> ap.Loader:
    return assembly.build_loader(workload, as_it_is(workload))


PLAIN = ap.Workload(data=ap.Arrays(X), ops=[], batch_size=2)
TENSORS = _wrapped(make_tensors, calls=[1, 2], prefetch=[0, 2, 4])
SEQUENCE = _wrapped(lambda workers=1: Items(3, rows, workers=workers), workers=[1, 2])


@pytest.mark.parametrize("workload", [TENSORS, SEQUENCE], ids=["tf.data", "PyDataset"])
def test_a_wrapped_dataset_gives_its_batches_as_they_are(workload: ap.Workload) -> None:
    with opened(workload) as loader:
        for epoch in range(2):
            batches = list(loader.batches(epoch))
            np.testing.assert_array_equal(X, np.concatenate([x for x, _ in batches]))
            np.testing.assert_array_equal(Y, np.concatenate([y for _, y in batches if y is not None]))
        assert (len(loader), loader.batch_size, loader.finish.is_identity) == (3, 4, True)
        np.testing.assert_array_equal(next(iter(loader.batches(0, start=2)))[0], X[8:])
        elements = list(loader.native_dataset(0, 2, start=1))
        assert len(list(itertools.islice(loader.native_dataset(0, 10**15), 7))) == 7  # epochs are not listed
    assert (len(TENSORS.data), len(SEQUENCE.data), workload.batch_size, tuple(workload.ops)) == (12, 10, 4, ())
    assert re.fullmatch(r"WrappedData\(.*: 3 batches of 4\)", repr(workload.data))
    assert all(isinstance(x, tf.Tensor) for x, _ in elements)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in elements]), np.concatenate([X[4:], X]))


def test_the_functions_defaults_are_the_dataset_as_it_is() -> None:
    config = as_it_is(_wrapped(make_tensors, prefetch=[2, 4], calls=[8]))
    assert config.loader == Wrapped.model_validate({"calls": 1, "prefetch": 0})
    config = as_it_is(_wrapped(lambda calls, **rest: make_tensors(calls), calls=[4, 1], other=["a"]))
    assert config.loader == Wrapped.model_validate({"calls": 4, "other": "a"})  # without one, the first choice
    assert wrap.as_it_is(PLAIN) is None


class Changing(keras.utils.PyDataset):
    """Changes itself when it is asked for a batch, as some code that people copy does."""

    def __init__(self, held: Any = None) -> None:
        super().__init__()
        self.size, self.images, self.rng, self.held = 4, X.copy(), np.random.default_rng(0), held

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        made = self.images[4 * index :][: self.size].copy(), Y[4 * index :][: self.size]
        self.size = len(made[0])
        self.images[:] = 0
        self.rng.random()
        if isinstance(self.held, Iterator):
            next(self.held)
        return made

    def on_epoch_end(self) -> None:
        self.size = 1


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("function", [False, True])
def test_a_dataset_is_as_it_was_after_it_was_wrapped(steps: int | None, *, function: bool) -> None:
    dataset = Changing(held=threading.Lock())  # which cannot be copied
    ap.wrap((lambda: dataset) if function else dataset, model=None, steps=steps)
    assert (dataset.size, dataset.rng.random()) == (4, np.random.default_rng(0).random())
    np.testing.assert_array_equal(dataset.images, X)


def test_a_dataset_whose_place_cannot_be_copied_is_not_asked() -> None:
    dataset = Changing(held=(number for number in range(9)))
    with pytest.raises(WorkloadError, match=r"`Changing\.held` cannot be copied") as told:
        ap.wrap(dataset, model=None)
    assert "ap.wrap(make_dataset" in str(told.value.hint)
    assert next(dataset.held) == 0
    assert len(ap.wrap(lambda: dataset, model=None).data) == 10


class Numbered(Changing):
    """Holds a generator that its own method made, as the iterators of ImageDataGenerator do."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.numbers()

    def numbers(self) -> Iterator[int]:
        yield from range(len(self.images))


def test_a_generator_of_its_own_method_begins_anew_in_what_is_asked() -> None:
    dataset = Numbered()
    ap.wrap(dataset, model=None)
    assert next(dataset.held) == 0
    assert next(copied(dataset).held) == 0
    assert next(dataset.held) == 1


class Counted(keras.utils.PyDataset):
    """Gives its batches' numbers without an end, and notes when epochs begin and end."""

    num_batches = None

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seen: list[str] = []

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.full((2, 1), index, np.float32), np.full(2, index)

    def on_epoch_begin(self) -> None:
        self.seen.append("begin")

    def on_epoch_end(self) -> None:
        self.seen.append("end")


def count_up(calls: int = 1) -> Any:
    numbers = tf.data.Dataset.range(100).repeat()
    return numbers.map(lambda number: (tf.fill([2, 1], number), tf.fill([2], number)))


def test_an_endless_py_dataset_is_still_told_of_its_epochs() -> None:
    made: list[Counted] = []

    def make(calls: int = 1) -> Any:
        made.append(Counted(workers=calls))
        return made[-1]

    with opened(_wrapped(make, steps=2)) as loader:
        for epoch in range(2):
            list(loader.batches(epoch))
    assert made[-1].seen == ["begin", "end"] * 2


def test_an_endless_py_dataset_is_wrapped_itself_if_the_steps_are_given_and_is_not_changed() -> None:
    dataset = Counted()
    workload = ap.wrap(dataset, model=None, steps=3)
    assert isinstance(workload.data, wrap.WrappedData)
    assert (len(workload.data), workload.data.by_index, dataset.seen) == (6, True, [])
    assert {"workers", "use_multiprocessing"} <= set(choices(workload))


class Numbers:
    """Batches without an end, each made from its number, as a dataset of Grain that repeats."""

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> Any:
        return numbered(index)


@pytest.mark.parametrize("config", [None, ap.PipelineConfig(loader=ap.Threads(workers=2), finish="host")])
def test_an_endless_dataset_with_an_index_is_wrapped_by_index_and_its_numbers_go_on(
    config: ap.PipelineConfig | None,
) -> None:
    workload = ap.wrap(Numbers(), steps=3)
    with assembly.build_loader(workload, config or as_it_is(workload)) as loader:
        epochs = [[int(x[0, 0]) for x, _ in loader.batches(epoch)] for epoch in range(2)]
    assert epochs == [[0, 1, 2], [3, 4, 5]]


# ---------------------------------------------------------------- a function of a batch in the model's place


def named(index: int) -> tuple[Any, Any]:
    return {"left": X[:4] + index, "right": X[:4] - index}, Y[:4]


MADE: tuple[Callable[[int], Any], ...] = (rows, lambda index: [*rows(index)], named, lambda index: rows(index)[0])


@pytest.mark.parametrize(
    "make",
    [
        *(functools.partial(Items, 3, each) for each in MADE),
        lambda: make_tensors(),
        lambda: make_tensors().map(lambda x, y: x),
    ],
    ids=["arrays", "list", "dictionary", "x alone", "tf.data", "tf.data, x alone"],
)
def test_a_step_in_the_models_place_is_called_with_each_batch_as_the_dataset_gives_it(make: Callable[[], Any]) -> None:
    dataset, seen = make(), list[Any]()
    with ap.build_trainer(workload := ap.wrap(make, step=seen.append, shuffle=False), as_it_is(workload)) as trainer:
        trainer.fit(epochs=2, verbose=0)
    plain = dataset if hasattr(dataset, "element_spec") else map(dataset.__getitem__, range(3))
    expected = list(plain) * 2
    assert [frame(each) for each in seen] == [frame(each) for each in expected]
    for one, other in zip(keras.tree.flatten(seen), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def frame(batch: Any) -> Any:
    """Return the containers of a batch, and the kinds of its arrays."""
    if isinstance(batch, dict):
        return {key: frame(part) for key, part in batch.items()}
    return [type(batch), *map(frame, batch)] if isinstance(batch, tuple | list) else type(batch)


def test_an_endless_dataset_that_failed_is_begun_anew() -> None:
    class Failing(Counted):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index == 2 and self.seen.count("begin") == 1:
                raise OSError("a disk is full")
            return super().__getitem__(index)

    workload = _wrapped(lambda calls=1: Failing(workers=calls), steps=3)
    with opened(workload) as loader:
        with pytest.raises(OSError, match="a disk is full"):
            list(loader.batches(0))
        assert [int(x[0, 0]) for x, _ in loader.batches(0)] == [0, 1, 2]


OTHER_PARAMETERS: tuple[Any, ...] = (["calls"], {"calls": 4}, {1: [4]})
NO_STEPS: tuple[Any, ...] = (0, 4.0)
NO_VALUES: tuple[list[Any], ...] = ([], [None], [types.SimpleNamespace()])
WORKERS: dict[str, Any] = {"loader": ap.Threads(workers=1), "arguments": {"add": 5}}
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ap.wrap(make_tensors, step=3), WorkloadError, "`step` must be a function"),  # type: ignore[arg-type]
    (lambda: ap.wrap(make_tensors, step=print, model=keras.Sequential), WorkloadError, "`step` must be a function"),
    (lambda: ap.wrap(Counted()), WorkloadError, "goes on without an end"),
    (lambda: ap.wrap(Numbers()), WorkloadError, "goes on without an end"),
    (lambda: ap.wrap(Items(3, rows), parameters={"worker": [1]}), WorkloadError, "`Items` has no parameter `worker`"),
    *((functools.partial(_wrapped, steps=each), WorkloadError, f"`steps`.*{each!r}") for each in NO_STEPS),
    *((functools.partial(wrap.wrap, make_tensors, parameters=each), WorkloadError, "`parameters` must name parameters "
      "and list the values to try of each") for each in OTHER_PARAMETERS),
    *((functools.partial(_wrapped, calls=each), WorkloadError, "must have some values to try") for each in NO_VALUES),
    *((functools.partial(Wrapped.model_validate, {"calls": each}), ConfigError, "must be a number, text or truth value")
      for each in NO_VALUES),
    (lambda: ap.build_trainer(TENSORS, as_it_is(TENSORS)), ModelError, "has no `model`"),
    (lambda: assembly.conversion_of(TENSORS, make_plan(TENSORS), STORAGES["array"]), ConfigError,
     "cannot be kept in another form"),
    (lambda: assembly.build_loader(PLAIN, ap.PipelineConfig(loader=Wrapped())), ConfigError, "wrapped datasets only"),
    (lambda: assembly.build_loader(PLAIN, ap.PipelineConfig(**WORKERS)), ConfigError, "`arguments` are for workers"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "said"), REFUSED)
def test_what_cannot_be_is_refused_in_words(call: Callable[[], object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def in_place(change: Callable[[Any], Any], place: int) -> Callable[..., Any]:
    """Return what makes batches of which one part is changed."""
    dataset = tf.data.Dataset.from_tensor_slices((X, X)).batch(5)
    return lambda calls=1: dataset.map(lambda *parts: (*parts[:place], change(parts[place]), *parts[place + 1 :]))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda calls: None, "returned None"),
        (lambda calls: [1, 2], "must return batches"),
        (lambda calls: (X, Y), r"must return batches.*ap\.Arrays"),
        (lambda calls: 1 / 0, "raised ZeroDivisionError"),
        (lambda prefetch: None, "has no parameter `calls`"),
        (lambda call: None, "Did you mean `call`"),
        (lambda calls: tf.data.Dataset.range(3), "must give batches"),
        (lambda calls: tf.data.Dataset.from_tensors((X, Y, Y, Y)), "must give batches"),
        (lambda calls: tf.data.Dataset.from_tensors(({"a": {"b": X}}, Y)), "must give batches"),
        (lambda calls: iter([([X, X], Y)]), "must give batches"),
        (
            lambda calls: iter([({"image": X, "meta": {"id": Y}}, [Y] * 6)]),
            r"gave \(\{'image': array \(10, 2\), 'meta': \{'id': array \(10,\)\}\}, \[(array \(10,\), ){4}…\]\)\.",
        ),
        (lambda calls: count_up().take(5).filter(lambda x, y: False), "must give batches"),
        (iter([(X, Y)]), "must be batches to read again and again, or a function of such.*pass the function"),
        (tf.data.Dataset.range(3).batch(3), "has no parameter `calls`"),
        (in_place(tf.sparse.from_dense, 0), "must give batches of dense arrays of numbers, but gave a SparseTensor"),
        (in_place(lambda y: tf.RaggedTensor.from_tensor(y[:, None]), 1), "gave a RaggedTensor"),
        (in_place(tf.strings.as_string, 0), "gave a ndarray of object in x.*StringLookup"),
        (in_place(tf.strings.as_string, 1), "gave a ndarray of object in y.*StringLookup"),
    ],
)
def test_what_cannot_be_wrapped_is_refused(function: Any, said: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        _wrapped(function, steps=2)
    assert re.search(said, f"{refused.value.message} {refused.value.hint}", re.DOTALL)


def of_tf_data(rows: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(rows).batch(4, drop_remainder=True)


def of_py_dataset(rows: Any) -> Any:
    return Items(2, lambda index: _of_each(rows, slice(4 * index, 4 * index + 4)))


def of_generator(rows: Any) -> Any:
    return (list(_of_each(rows, slice(start, start + 4))) for start in (0, 4))


def of_grain(rows: Any) -> Any:
    grain = pytest.importorskip("grain")  # there in `make test`; not with the oldest and newest frameworks
    return grain.MapDataset.source(list(range(8))).map(lambda row: _of_each(rows, row)).batch(4)


@pytest.mark.parametrize("form", [of_tf_data, of_py_dataset, of_generator])
def test_batches_of_several_parts_and_weights_are_wrapped(form: Callable[[Any], Any]) -> None:
    parts = ({"a": X, "b": X + 1}, (Y, Y + 1), np.ones(10, np.float32))
    with opened(_wrapped(lambda calls=1: form(parts))) as loader:
        assert loader.spec.labels == ("x.a", "y.0", "x.b", "y.1", "sample_weight")
        x, y, weight = next(loader.epoch(0))
        assert [len(part) for part in next(iter(loader.native_dataset(0, 1)))] == [4] * 5
    for found, expected in ((x["b"], X[:4] + 1), (y[1], Y[:4] + 1), (weight, np.ones(4))):
        np.testing.assert_array_equal(found, expected)


TARGETS: dict[str, tuple[Any, str]] = {
    "one-hot": (np.eye(10, dtype=np.float32), "categorical_crossentropy"),
    "vector of one": (Y[:, None], "mse"),
    "mask": (np.arange(60, dtype=np.uint8).reshape(10, 3, 2), "mse"),
    "mask of one-hots": (np.ones((10, 2, 2, 5), np.float32), "categorical_crossentropy"),
    "named": ({"kind": np.eye(10, dtype=np.float32), "where": np.ones((10, 3, 2), np.float32)}, "mse"),
}


def _of_each(rows: Any, which: Any) -> Any:
    return tf.nest.map_structure(lambda part: part[which], rows)


@pytest.mark.parametrize(
    ("target", "form"),
    [
        ("one-hot", of_tf_data),
        ("named", of_tf_data),
        ("mask of one-hots", of_py_dataset),
        ("mask", of_generator),
        ("vector of one", of_grain),
    ],
)
def test_targets_of_any_shape_are_planned_looked_at_and_trained_on(target: str, form: Callable[[Any], Any]) -> None:
    y, loss = TARGETS[target]
    weight = tf.nest.map_structure(lambda part: np.ones(part.shape[:-1], np.float32), y)
    rows = (X, y) if form is of_tf_data else (X, y, weight)

    def output(part: Any) -> Any:
        dense = keras.layers.Dense(int(np.prod(part.shape[1:])), activation="sigmoid")
        return keras.layers.Reshape(part.shape[1:])(dense(x))

    x = keras.Input((2,))
    model = keras.Model(x, tf.nest.map_structure(output, y))
    model.compile("sgd", loss, run_eagerly=True)
    workload = wrap.wrap(lambda calls=1: form(rows), model=model, parameters={"calls": [1, 2]})
    config = as_it_is(workload)
    fields = dict(zip(make_plan(workload).source.labels, make_plan(workload).source.columns, strict=True))
    for name, part in (y if isinstance(y, dict) else {"": y}).items():
        assert known(fields[f"y.{name}".rstrip(".")]).shape == part.shape[1:]
    found = verify.repeats(workload, [config], VerifyOptions(samples=8), Mock(spec=Report))
    assert [(each.message, each.samples) for each in found.agreements] == [(None, 8)]
    with assembly.build_trainer(workload, config) as trainer:
        assert np.isfinite(trainer.fit(epochs=1, verbose=0).history["loss"]).all()


def of_parts(size: int = 2) -> Iterator[Any]:
    yield from ({"a": X, "b": X} for _ in range(2))
    yield {"a": X, "b": X[:, :1]}


def wider(size: int = 2) -> Any:
    return Items(4, lambda at: (np.ones((2, 3 + (at == 2))), np.zeros(2)))


def sized(size: int = 2) -> Any:
    return tf.data.Dataset.from_tensors(np.zeros((4, size)))


@pytest.mark.parametrize(
    ("function", "size", "said"),
    [
        (of_parts, 2, r"it has the shape \(10, 2\), but another one has \(10, 1\)"),
        (wider, 2, r"it has the shape \(2, 3\), but another one has \(2, 4\)"),
        (sized, 3, r"whatever its parameters, but with {'size': 3} one has \(4, 3\)"),
    ],
)
def test_a_batch_of_another_shape_is_refused_and_parameters_are_blamed_if_they_were_changed(
    function: Callable[..., Any], size: int, said: str
) -> None:
    config = ap.PipelineConfig(loader=Wrapped.model_validate({"size": size}), finish="host")
    with assembly.build_loader(_wrapped(function, size=[2, 3]), config) as made, pytest.raises(LoaderError, match=said):
        list(made.batches(0))


@pytest.mark.parametrize("form", ["batches", "native_dataset"])
@pytest.mark.parametrize(
    ("ours", "whole"), [(False, False), (False, True), (True, False)], ids=["short last", "drop_remainder", "ours"]
)
def test_a_cache_is_complete_after_the_first_epoch(form: str, *, ours: bool, whole: bool) -> None:
    made: list[int] = []

    def load(number: Any) -> Any:
        made.append(int(number))
        return np.float32(number)

    def make(calls: int = 1) -> Any:
        dataset = tf.data.Dataset.range(10)
        dataset = dataset.map(lambda n: tf.ensure_shape(tf.numpy_function(load, [n], tf.float32), []), calls)
        return (dataset if ours else dataset.cache()).batch(4, drop_remainder=whole)

    config = ap.PipelineConfig(loader=Wrapped(tf_cache="memory" if ours else "none"), finish="host")
    with assembly.build_loader(_wrapped(make), config) as loader:
        made.clear()  # what the look at the first batch made
        for epoch in range(3):
            batches = iter(loader.batches(epoch) if form == "batches" else loader.native_dataset(epoch, 1))
            for _ in range(len(loader)):  # and none behind the last one, as a training takes its steps
                next(batches)
            del batches
    assert sorted(made) == list(range(10))


@pytest.mark.parametrize("form", ["batches", "native_dataset"])
@pytest.mark.parametrize("kind", ["one worker", "two workers", "generator"])
def test_each_batch_of_an_epoch_is_made_once(form: str, kind: str) -> None:
    made: list[int] = []

    def batch(index: int) -> Any:
        made.append(index)
        return rows(index)

    def make(calls: int = 2 if kind == "two workers" else 1) -> Any:
        return (batch(index) for index in range(3)) if kind == "generator" else Items(3, batch, workers=calls)

    with opened(_wrapped(make)) as loader:
        made.clear()  # what the looks at the first batches made
        spec = [0, 1] if form == "native_dataset" and kind != "generator" else []  # that Keras makes for TensorFlow's
        for epoch in range(3):
            batches = iter(loader.batches(epoch) if form == "batches" else loader.native_dataset(epoch, 1))
            for _ in range(len(loader)):
                next(batches)
            del batches
    assert sorted(made) == sorted([0, 1, 2] * 3 + spec)


def test_a_closed_loader_says_so() -> None:
    loader = opened(TENSORS)
    loader.close()
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader.batches(0)))


def test_what_on_epoch_end_raises_comes_once(capfd: pytest.CaptureFixture[str]) -> None:
    class Failing(Items):
        ended = 0

        def on_epoch_end(self) -> None:
            self.ended += 1
            if armed and self.ended == 2:
                raise OSError("the index is gone")

    armed = False
    model = functools.partial(classifier, shape=(2,), classes=10)
    workload = wrap.wrap(lambda calls=1: Failing(3, rows), model=model, parameters={"calls": [1]})
    config = as_it_is(workload)
    armed = True
    with assembly.build_trainer(workload, config) as trainer, pytest.raises(OSError, match="the index is gone"):
        trainer.fit(epochs=2, verbose=0)
    gc.collect()
    assert "Exception ignored" not in capfd.readouterr().err


def test_any_number_may_be_tried() -> None:
    workload = _wrapped(make_tensors, prefetch=[np.int64(1), 4, tf.data.AUTOTUNE])
    values = choices(workload)["prefetch"]
    assert (values, {type(value) for value in values}) == ((1, 4, -1), {int})


class DataLoader:
    """Built as torch's is, which forks its workers unless it is told otherwise."""

    __module__ = "torch.utils.data.dataloader"
    _iterator: Iterator[Any] | None = None

    def __init__(self, num_workers: int, context: Any = None) -> None:
        self.num_workers, self.multiprocessing_context = num_workers, context

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[Any]:
        return ((X[start : start + 4], Y[start : start + 4]) for start in range(0, 10, 4))


OWN = type("Own", (DataLoader,), {"__module__": __name__})  # a class of one's own


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Items(2, rows, workers=2, use_multiprocessing=True), "forked after JAX.*use_multiprocessing=False"),
        (lambda: DataLoader(2), 'DataLoader with num_workers=2 forks.*JAX.*="forkserver"'),
        (lambda: OWN(2), 'DataLoader with num_workers=2 forks.*JAX.*="forkserver"'),
    ],
)
def test_what_would_fork_after_a_framework_has_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, make: Any, said: str
) -> None:
    monkeypatch.setattr(frameworks, "running_framework", lambda: "JAX")
    with pytest.raises(LoaderError) as error:
        ap.wrap(make, steps=3)  # a PyDataset goes on
    assert re.search(said, f"{error.value.message} {error.value.hint}", re.DOTALL)


@pytest.mark.parametrize(
    ("opens", "workers", "against"),
    [
        (lambda path: path.open("rb"), 1, "threads would share `Items.file`, and move the position in it"),
        (lambda path: path.open("rb"), 2, None),  # threads of Keras share it as it is
        (lambda path: path.open("ab"), 1, None),
        (lambda path: (path.open("rb"), threading.Lock()), 1, None),
        (lambda path: zipfile.ZipFile(path, "w"), 1, None),  # which lets one read at a time
    ],
)
def test_threads_are_not_tried_where_they_would_move_the_position_in_a_file_of_all(
    tmp_path: Path, opens: Any, workers: int, against: str | None
) -> None:
    (tmp_path / "a").touch()
    dataset, opened = Items(3, rows, workers=workers), opens(tmp_path / "a")
    dataset.file, dataset.lock = opened if isinstance(opened, tuple) else (opened, None)
    with dataset.file:
        workload = wrap.wrap(lambda: dataset)
        said = ap.Threads.against(workload.data)
        config = ap.PipelineConfig(loader=Wrapped.model_validate({"workers": 2}))
        fails = pytest.raises(LoaderError, match="`workers` above 1 are threads of Keras, and threads would share")
        with contextlib.nullcontext() if against is None else fails:
            ap.build_loader(workload, config).close()
    assert str(said).startswith(str(against))


class Careless:
    """Batches by an index that do what several threads must not do at once."""

    def __init__(self, does: str) -> None:
        self.does, self.x, self.numbers = does, np.zeros((4, 3), np.float32), list[int]()
        self.count, self.turns, self.changes = 0, 0, [types.SimpleNamespace(angle=0.0)]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        if self.does == "opens":
            self.file = getattr(self, "file", None) or Path(__file__).open("rb")  # noqa: SIM115  # as readers do
        if self.does == "sets":
            self.index = float(index)
        if self.does == "draws":  # what an image and its mask are to be turned by
            self.changes[0].angle = float(index)
        if self.does == "counts":
            self.count += 1
        if self.does == "takes turns":
            self.turns += 1
            index += 0 * self.turns
        if self.does == "fills":
            self.x[:] = index
            return self.x
        self.numbers.append(index)  # as a cache does
        return np.full((4, 3), index, np.float32)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("opens", "threads would share `Careless.file`, and move the position in it while others read"),
        ("sets", "threads would share `Careless.index`, which each `Careless[i]` sets"),
        ("draws", "threads would share `Careless.changes[0].angle`, which each `Careless[i]` sets"),
        ("fills", "threads would fill the same arrays, those of the `Careless[i]` before"),
        ("takes turns", "threads would share `Careless.turns`, which each `Careless[i]` sets"),
        ("counts", None),
        ("keeps", None),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("forked_nurseries")
def test_threads_are_not_tried_where_asking_for_a_batch_changes_what_they_would_share(
    does: str, said: str | None
) -> None:
    assert ap.Threads.against(wrap.wrap(Careless(does)).data) == said
    with ap.live(Careless(does)) as batches:
        assert [x[0, 0] for x in batches] == [0, 1, 2]
        feeding: Any = batches._loader
        assert feeding.watch.config.loader.kind == ("threads" if said is None else "processes")


def test_keras_own_knobs_of_a_py_dataset_are_tried_beside_loaders_with_workers() -> None:
    workload = wrap.wrap(Items(3, rows, workers=8, use_multiprocessing=True), model=None)
    knobs = {"max_queue_size": 10, "use_multiprocessing": True, "workers": 8}
    assert as_it_is(workload).loader == Wrapped.model_validate(knobs)
    assert choices(workload)["use_multiprocessing"] == (False, True)
    assert {1, 8} <= set(choices(workload)["workers"])
    configs = [to_config(params) for params in of_wrapped(choices(workload), {"cores": 2}).grid()]
    counts = collections.Counter(each.loader.kind for each in configs if each.device_prefetch == 0)
    assert counts == {"wrapped": len(choices(workload)["workers"]) * 2, "threads": 36, "processes": 36}
    assert as_it_is(workload).key() in {config.key() for config in configs}


def test_the_functions_parameters_are_passed_to_it_by_each_loader() -> None:
    def make(add: int = 0, workers: int = 1) -> Any:
        return Items(3, lambda index: (X[4 * index :][:4] + add, Y[4 * index :][:4]), workers=workers)

    workload = wrap.wrap(make, model=None, parameters={"add": [0, 5], "workers": [1, 2]}, shuffle=False)
    configs = [to_config(params) for params in of_wrapped(choices(workload), {"cores": 1}).grid()]
    kinds = collections.Counter(each.loader.kind for each in configs if each.device_prefetch == 0)
    assert kinds == {"wrapped": 4, "threads": 2 * 36, "processes": 2 * 36}
    assert {to_config(from_config(each)).key() for each in configs} == {each.key() for each in configs}
    for loader in (
        {"loader": Wrapped.model_validate({"add": 5})},
        {"loader": ap.Threads(workers=1), "arguments": {"add": 5}},
    ):
        with assembly.build_loader(workload, ap.PipelineConfig(finish="host", **loader)) as made:
            np.testing.assert_array_equal(np.concatenate([x for x, _ in made.batches(0)]), X + 5)


def test_the_values_of_keras_knobs_may_be_given() -> None:
    workload = wrap.wrap(dataset := Items(3, rows), model=None, parameters={"workers": [1, 4]}, shuffle=False)
    assert choices(workload) == {"workers": (1, 4)}
    config = ap.PipelineConfig(loader=Wrapped.model_validate({"workers": 4}), finish="host")
    with assembly.build_loader(workload, config) as loader:
        assert (dataset.workers, len(list(loader.batches(0)))) == (4, 3)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_workers_of_grain_import_again_begins_no_others(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which would wait for that import to end."""

    class Batches:
        multiprocessing_options = types.SimpleNamespace(num_workers=workers)

        def __iter__(self) -> Iterator[Any]:
            yield np.zeros((4, 2)), np.zeros(4)

    (file := tmp_path / "train.py").write_text("wrapped = ap.wrap(batches)")
    names = {"ap": ap, "batches": Batches(), "__name__": "train"}
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: multiprocessing.current_process())
    with pytest.raises(LoaderError, match=r"def workload") if workers else contextlib.nullcontext():
        exec(compile(file.read_text(), str(file), "exec"), names)
    assert ("wrapped" in names) == (workers == 0)


def test_a_data_loader_is_refused_when_it_begins_after_a_framework_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(frameworks, "running_framework", lambda: None)
        feeder = WrappedData(lambda: DataLoader(2), {}).make({})
        assert len(list(feeder.epoch("arrays"))) == 3
    tf.constant(0)
    with pytest.raises(LoaderError, match="forks"):
        next(feeder.epoch("arrays"))


def test_forking_is_judged_without_settling_how_processes_start(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Mock(side_effect=lambda allow_none=False: None if allow_none else "fork")
    monkeypatch.setattr(multiprocessing, "get_start_method", method)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["fork", "spawn"])
    monkeypatch.setattr(frameworks, "running_framework", lambda: "TensorFlow")
    with pytest.raises(LoaderError, match="forks"):
        stream.require_safe_workers(DataLoader(2))
    method.assert_called_once_with(allow_none=True)


def test_a_data_loader_that_forks_nothing_is_read() -> None:
    tf.constant(0)
    begins_anew = DataLoader(2, multiprocessing.get_context("forkserver"))
    there_already = DataLoader(2)
    there_already._iterator = iter(())  # as of persistent workers
    for loader in (DataLoader(0), begins_anew, there_already):
        assert len(list(WrappedData(functools.partial(lambda made: made, loader), {}).make({}).epoch("arrays"))) == 3


def test_a_default_that_is_no_number_is_left_to_the_function() -> None:
    seen: list[Any] = []

    def make(calls: int = 1, prefetch: int | None = None) -> Any:
        seen.append(prefetch)
        return make_tensors(calls)

    workload = _wrapped(make, calls=[1, 2], prefetch=[4, 8])
    opened(workload).close()
    assert (set(seen), as_it_is(workload).loader) == ({None}, Wrapped.model_validate({"calls": 1}))


# ---------------------------------------------------------------- what gives its batches one after the other


def generated(count: int = 3) -> Iterator[Any]:
    x = np.empty((4, 2), np.float32)
    for number in range(count):
        x.fill(number)
        yield x, np.full(4, number)


class Listed:
    def __init__(self, count: int = 3) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return generated(self._count)


def from_grain(calls: int = 1) -> Any:
    grain = pytest.importorskip("grain")
    return grain.MapDataset.source(list(range(12))).map(lambda n: (np.full(2, n // 4, np.float32), n // 4)).batch(4)


def test_without_parameters_what_is_there_can_still_be_measured() -> None:
    workload = wrap.wrap(make_tensors, model=None)
    assert as_it_is(workload).loader == Wrapped()
    assert [params["device_prefetch"] for params in of_wrapped(choices(workload)).grid()] == [0, 2]


def five(calls: int = 1) -> Any:
    return count_up().take(5)


def numbered(index: int) -> tuple[Any, Any]:
    return np.full((2, 1), index, np.float32), np.full(2, index)


WHOLE, SEVEN = [[0, 1, 2]] * 3, [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4]]
EPOCHS: dict[str, tuple[Callable[..., Any], int | None, list[list[int]]]] = {
    "endless": (count_up, 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
    "endless PyDataset": (lambda calls=1: Counted(), 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
    "unknown length, begun anew": (lambda calls=1: count_up().take(7).filter(lambda x, y: True), 3, SEVEN),
    "a part": (five, 2, [[0, 1], [2, 3], [4, 0]]),
    "a part of a PyDataset": (lambda calls=1: Items(5, numbered), 2, [[0, 1], [2, 3], [4, 0]]),
    "more than all of a PyDataset": (lambda calls=1: Items(2, numbered, workers=2), 3, [[0, 1, 0], [1, 0, 1]]),
    "a part of a generator": (lambda calls=1: generated(5), 2, [[0, 1], [2, 3], [4, 0]]),
    "all": (five, 5, [[0, 1, 2, 3, 4]] * 2),
    "endless Grain": (lambda calls=1: from_grain().repeat(), 4, [[0, 1, 2, 0], [1, 2, 0, 1]]),
    "counted generator": (lambda calls=1: generated(), None, WHOLE),
    "counted iterable": (lambda calls=1: Listed(), None, WHOLE),
    "counted MapDataset": (from_grain, None, WHOLE),
    "counted tf.data": (lambda calls=1: count_up().take(3).filter(lambda x, y: True), None, WHOLE),
}


@pytest.mark.filterwarnings("ignore:Keras .* starts its workers:autopipe.errors.DataWarning")
@pytest.mark.parametrize(("make", "steps", "epochs"), EPOCHS.values(), ids=EPOCHS)
def test_epochs_follow_each_other_by_hand_and_in_fit(
    make: Callable[..., Any], steps: int | None, epochs: list[list[int]]
) -> None:
    workload = _wrapped(make, steps=steps)
    with opened(workload) as loader:
        assert len(loader) == len(epochs[0])
        read = (list(loader.batches(number)) for number in range(len(epochs)))  # a generator may fill an array again
        assert [[int(x[0, 0]) for x, _ in batches] for batches in read] == epochs
        assert len(list(loader.batches(len(epochs), start=1))) == len(epochs[0]) - 1
    with opened(workload) as loader:
        fits = [loader.native_dataset(0, count) for count in (2, len(epochs) - 2)[: len(epochs) - 1]]
        assert [int(x[0, 0]) for x, *_ in itertools.chain(*fits)] == list(itertools.chain(*epochs))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (count_up, "goes on without an end"),
        (EPOCHS["endless Grain"][0], "goes on without an end"),
        (lambda calls=1: generated(10**9), "did not end in"),
    ],
)
def test_a_dataset_without_an_end_or_of_too_many_batches_needs_its_steps(
    make: Callable[..., Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrap, "_COUNT_SECONDS", 0.0)
    with pytest.raises(WorkloadError, match=said) as error:
        _wrapped(make)
    assert "steps=" in str(error.value.hint)


def test_counting_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrap, "_SILENT_SECONDS", -1.0)
    with pytest.warns(DataWarning, match=r"its batches are counted.*steps=") as told:
        assert isinstance(_wrapped(lambda calls=1: generated(3)).data, WrappedData)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("x", "y", "is_image"),
    [
        (np.zeros((64, 48, 3), np.uint8), None, True),
        (np.zeros((64, 48, 3), np.float32), np.zeros((64, 48), np.uint8), True),
        (np.zeros((64, 48, 3), np.float32), np.zeros(64), False),  # a series of three values each
        (np.zeros((8, 64, 48, 3), np.uint8), None, False),
        (np.zeros((8, 28, 28), np.uint8), np.zeros(8), False),
    ],
)
def test_a_sample_in_place_of_a_batch_is_told_of(x: Any, y: Any, *, is_image: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ap.wrap(Items(2, lambda index: x if y is None else (x, y)))
    assert any("looks like one image" in str(each.message) for each in told) == is_image
