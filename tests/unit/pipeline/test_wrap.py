import functools
import itertools
import re
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import autopipe as ap
from autopipe.errors import ConfigError, DataWarning, LoaderError, ModelError, WorkloadError
from autopipe.measure import verify
from autopipe.measure.outcome import Report, VerifyOptions
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.batching.datasets import copied
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loaders.wrapped import Wrapped
from autopipe.pipeline.wrap import WrappedData
from autopipe.search.space import of_wrapped
from autopipe.workload.ops.planner import make_plan
from tests.fakes.facts import known
from tests.unit.pipeline.datasets import Items, X, Y, as_it_is, choices, make_tensors, opened, rows, wrapped

PLAIN = ap.Workload(data=ap.Arrays(X), ops=[], batch_size=2)
TENSORS = wrapped(make_tensors, calls=[1, 2], prefetch=[0, 2, 4])
SEQUENCE = wrapped(lambda workers=1: Items(3, rows, workers=workers), workers=[1, 2])


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
    config = as_it_is(wrapped(make_tensors, prefetch=[2, 4], calls=[8]))
    assert config.loader == Wrapped.model_validate({"calls": 1, "prefetch": 0})
    config = as_it_is(wrapped(lambda calls, **rest: make_tensors(calls), calls=[4, 1], other=["a"]))
    assert config.loader == Wrapped.model_validate({"calls": 4, "other": "a"})  # without one, the first choice
    assert wrap.as_it_is(PLAIN) is None
    without = wrap.wrap(make_tensors, model=None)  # parameters, it can still be measured
    assert as_it_is(without).loader == Wrapped()
    assert [params["device_prefetch"] for params in of_wrapped(choices(without)).grid()] == [0, 2]


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


def test_an_endless_py_dataset_is_wrapped_itself_if_the_steps_are_given_and_is_not_changed() -> None:
    dataset = Counted()
    workload = ap.wrap(dataset, model=None, steps=3)
    assert isinstance(workload.data, wrap.WrappedData)
    assert (len(workload.data), workload.data.by_index, dataset.seen) == (6, True, [])
    assert {"workers", "use_multiprocessing"} <= set(choices(workload))


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
    with ap.make_trainer(workload := ap.wrap(make, step=seen.append, shuffle=False), as_it_is(workload)) as trainer:
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


OTHER_PARAMETERS: tuple[Any, ...] = (["calls"], {"calls": 4}, {1: [4]})
NO_STEPS: tuple[Any, ...] = (0, 4.0)
NO_VALUES: tuple[list[Any], ...] = ([], [None], [types.SimpleNamespace()])
WORKERS: dict[str, Any] = {"loader": ap.Threads(workers=1), "arguments": {"add": 5}}
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: ap.wrap(make_tensors, step=3), WorkloadError, "`step` must be a function"),  # type: ignore[arg-type]
    (lambda: ap.wrap(make_tensors, step=print, model=keras.Sequential), WorkloadError, "`step` must be a function"),
    (lambda: ap.wrap(Counted()), WorkloadError, "goes on without an end"),

    (lambda: ap.wrap(Items(3, rows), parameters={"worker": [1]}), WorkloadError, "`Items` has no parameter `worker`"),
    *((functools.partial(wrapped, steps=each), WorkloadError, f"`steps`.*{each!r}") for each in NO_STEPS),
    *((functools.partial(wrap.wrap, make_tensors, parameters=each), WorkloadError, "`parameters` must name parameters "
      "and list the values to try of each") for each in OTHER_PARAMETERS),
    *((functools.partial(wrapped, calls=each), WorkloadError, "must have some values to try") for each in NO_VALUES),
    *((functools.partial(Wrapped.model_validate, {"calls": each}), ConfigError, "must be a number, text or truth value")
      for each in NO_VALUES),
    (lambda: ap.make_trainer(TENSORS, as_it_is(TENSORS)), ModelError, "has no `model`"),
    (lambda: assembly.conversion_of(TENSORS, make_plan(TENSORS), STORAGES["array"]), ConfigError,
     "cannot be kept in another form"),
    (lambda: assembly.make_loader(PLAIN, ap.PipelineConfig(loader=Wrapped())), ConfigError, "wrapped datasets only"),
    (lambda: assembly.make_loader(PLAIN, ap.PipelineConfig(**WORKERS)), ConfigError, "`arguments` are for workers"),
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
        wrapped(function, steps=2)
    assert re.search(said, f"{refused.value.message} {refused.value.hint}", re.DOTALL)


def _of_each(rows: Any, which: Any) -> Any:
    return tf.nest.map_structure(lambda part: part[which], rows)


@pytest.mark.parametrize(
    ("y", "form"),
    [
        (np.eye(10, dtype=np.float32), "tf.data"),
        ({"kind": np.eye(10, dtype=np.float32), "where": np.ones((10, 3, 2), np.float32)}, "tf.data"),
        (np.ones((10, 2, 2, 5), np.float32), "PyDataset"),
        (np.arange(60, dtype=np.uint8).reshape(10, 3, 2), "generator"),
        (Y[:, None], "grain"),
    ],
    ids=["one-hot", "named", "mask of one-hots", "mask", "vector of one"],
)
def test_targets_of_any_shape_are_planned_and_looked_at(y: Any, form: str) -> None:
    weight = tf.nest.map_structure(lambda part: np.ones(part.shape[:-1], np.float32), y)
    rows = (X, y) if form == "tf.data" else (X, y, weight)

    def make(calls: int = 1) -> Any:
        if form == "tf.data":
            return tf.data.Dataset.from_tensor_slices(rows).batch(4, drop_remainder=True)
        if form == "grain":
            grain = pytest.importorskip("grain")  # there in `make test`; not with the oldest and newest frameworks
            return grain.MapDataset.source(list(range(8))).map(lambda row: _of_each(rows, row)).batch(4)
        batches = [_of_each(rows, slice(start, start + 4)) for start in (0, 4)]
        return Items(2, batches.__getitem__) if form == "PyDataset" else iter(batches)

    workload = wrapped(make)
    fields = dict(zip(make_plan(workload).source.labels, make_plan(workload).source.columns, strict=True))
    for name, part in (y if isinstance(y, dict) else {"": y}).items():
        assert known(fields[f"y.{name}".rstrip(".")]).shape == part.shape[1:]
    found = verify.repeats(workload, [as_it_is(workload)], VerifyOptions(samples=8), Mock(spec=Report))
    assert [(each.message, each.samples) for each in found.agreements] == [(None, 8)]


DIFFERING: list[tuple[Callable[..., Any], int, str]] = [
    (lambda size=2: iter([{"a": X, "b": X}, {"a": X, "b": X}, {"a": X, "b": X[:, :1]}]), 2,
     r"it has the shape \(10, 2\), but another one has \(10, 1\)"),
    (lambda size=2: Items(4, lambda at: (np.ones((2, 3 + (at == 2))), np.zeros(2))), 2,
     r"it has the shape \(2, 3\), but another one has \(2, 4\)"),
    (lambda size=2: tf.data.Dataset.from_tensors(np.zeros((4, size))), 3,
     r"whatever its parameters, but with {'size': 3} one has \(4, 3\)"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "size", "said"), DIFFERING)
def test_a_batch_of_another_shape_is_refused_and_changed_parameters_blamed(function: Any, size: int, said: str) -> None:
    config = ap.PipelineConfig(loader=Wrapped.model_validate({"size": size}), finish="host")
    with assembly.make_loader(wrapped(function, size=[2, 3]), config) as made, pytest.raises(LoaderError, match=said):
        list(made.batches(0))


@pytest.mark.parametrize("form", ["batches", "native_dataset"])
@pytest.mark.parametrize(("ours", "whole"), [(False, False), (False, True), (True, False)])
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
    with assembly.make_loader(wrapped(make), config) as loader:
        made.clear()  # what the look at the first batch made
        for epoch in range(3):
            batches = iter(loader.batches(epoch) if form == "batches" else loader.native_dataset(epoch, 1))
            for _ in range(len(loader)):  # and none behind the last one, as a training takes its steps
                next(batches)
            del batches
    assert sorted(made) == list(range(10))


def test_a_closed_loader_says_so() -> None:
    loader = opened(TENSORS)
    loader.close()
    loader.close()
    with pytest.raises(LoaderError, match="closed"):
        next(iter(loader.batches(0)))


def generated(count: int = 3) -> Iterator[Any]:
    x = np.empty((4, 2), np.float32)
    for number in range(count):
        x.fill(number)
        yield x, np.full(4, number)


def from_grain(calls: int = 1) -> Any:
    grain = pytest.importorskip("grain")
    return grain.MapDataset.source(list(range(12))).map(lambda n: (np.full(2, n // 4, np.float32), n // 4)).batch(4)


def numbered(index: int) -> tuple[Any, Any]:
    return np.full((2, 1), index, np.float32), np.full(2, index)


WHOLE, SEVEN = [[0, 1, 2]] * 3, [[0, 1, 2], [3, 4, 5], [6, 0, 1], [2, 3, 4]]
EPOCHS: dict[str, tuple[Callable[..., Any], int | None, list[list[int]]]] = {
    "endless": (count_up, 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
    "endless PyDataset": (lambda calls=1: Counted(), 3, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
    "unknown length, begun anew": (lambda calls=1: count_up().take(7).filter(lambda x, y: True), 3, SEVEN),
    "a part": (lambda calls=1: count_up().take(5), 2, [[0, 1], [2, 3], [4, 0]]),
    "a part of a PyDataset": (lambda calls=1: Items(5, numbered), 2, [[0, 1], [2, 3], [4, 0]]),
    "more than all of a PyDataset": (lambda calls=1: Items(2, numbered, workers=2), 3, [[0, 1, 0], [1, 0, 1]]),
    "a part of a generator": (lambda calls=1: generated(5), 2, [[0, 1], [2, 3], [4, 0]]),
    "all": (lambda calls=1: count_up().take(5), 5, [[0, 1, 2, 3, 4]] * 2),
    "endless Grain": (lambda calls=1: from_grain().repeat(), 4, [[0, 1, 2, 0], [1, 2, 0, 1]]),
    "counted generator": (lambda calls=1: generated(), None, WHOLE),
    "counted MapDataset": (from_grain, None, WHOLE),
    "counted tf.data": (lambda calls=1: count_up().take(3).filter(lambda x, y: True), None, WHOLE),
}


@pytest.mark.filterwarnings("ignore:Keras .* starts its workers:autopipe.errors.DataWarning")
@pytest.mark.parametrize(("make", "steps", "epochs"), EPOCHS.values(), ids=EPOCHS)
def test_epochs_follow_each_other_by_hand_and_in_fit(make: Any, steps: int | None, epochs: list[list[int]]) -> None:
    workload = wrapped(make, steps=steps)
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
def test_a_dataset_without_an_end_or_of_many_batches_needs_steps(make: Any, said: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(wrap, "_COUNT_SECONDS", 0.0)
    with pytest.raises(WorkloadError, match=said) as error:
        wrapped(make)
    assert "steps=" in str(error.value.hint)


def test_counting_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrap, "_SILENT_SECONDS", -1.0)
    with pytest.warns(DataWarning, match=r"its batches are counted.*steps=") as told:
        assert isinstance(wrapped(lambda calls=1: generated(3)).data, WrappedData)
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
