"""What every loader must do with a dataset whose `dataset[i]` is a batch: hand over Keras's batches, epoch by epoch.

`Keras` is the dataset as it is, read by Keras's own adapter, whose processes are forked in a process of their own.
"""

from __future__ import annotations

import functools
import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from keras.src.trainers.data_adapters import py_dataset_adapter

import autopipe as ap
from autopipe import frameworks
from autopipe.errors import ConfigError
from autopipe.pipeline import wrap
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.loaders.wrapped import Wrapped

pytestmark = pytest.mark.usefixtures("forked_nurseries")


def by_keras(workers: int, *, use_multiprocessing: bool = False) -> LoaderConfig:
    knobs = {"workers": workers, "use_multiprocessing": use_multiprocessing, "max_queue_size": 10}
    return Wrapped.model_validate(knobs)


OURS: dict[str, LoaderConfig] = {
    "threads-1": ap.Threads(workers=1, queue_size=2),
    "threads-3": ap.Threads(workers=3, queue_size=2),
    "processes-1": ap.Processes(workers=1, queue_size=2),
    "processes-3": ap.Processes(workers=3, queue_size=2),
}
LOADERS = {
    **OURS,
    "Keras": by_keras(1),
    "Keras-threads": by_keras(3),
    "Keras-processes": by_keras(2, use_multiprocessing=True),
}
SLOW = ("threads-1", "processes-1", "Keras-processes")  # the last one's process has to import Keras
of_all = pytest.mark.parametrize(
    "loader",
    [pytest.param(each, marks=pytest.mark.slow if name in SLOW else ()) for name, each in LOADERS.items()],
    ids=LOADERS,
)
of_ours = pytest.mark.parametrize("loader", [OURS["threads-3"], OURS["processes-3"]], ids=["threads", "processes"])


class Numbered(keras.utils.PyDataset):
    """Batches of four that hold their index, and how many epochs have ended; the last one is shorter."""

    def __init__(self, count: int = 7, last: int = 3, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.count, self.last, self.begun, self.ended = count, last, 0, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        rows = self.last if index == self.count - 1 else 4
        return np.full((rows, 2), index, np.float32), np.full(rows, self.ended)

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.ended += 1


class Plain:
    """The same by a class of no framework, without a hook."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return Numbered()[index]


class Endless(keras.utils.PyDataset):
    """Has a batch for every number, and no length."""

    num_batches = None

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.full((4, 2), index, np.float32), np.zeros(4, np.int64)


def wrapped(dataset: Any, **settings: Any) -> ap.Workload:
    return wrap.wrap(dataset, model=None, **{"shuffle": False, **settings})


def opened(workload: ap.Workload, loader: LoaderConfig) -> ap.Loader:
    return ap.build_loader(workload, ap.PipelineConfig(loader=loader, finish="host", device_prefetch=0))


def read(loader: ap.Loader, epoch: int, start: int = 0, most: int | None = None) -> list[tuple[int, int, int]]:
    """Return the index, the ended epochs and the samples of each batch."""
    found = []
    batches = loader.batches(epoch, start)
    for x, y in batches:
        assert len(set(x.ravel())) == len(set(y)) == 1
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        found.append((int(x[0, 0]), int(y[0]), len(x)))
        if len(found) == most:
            break
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    return found


def epoch_of(ended: int, start: int = 0) -> list[tuple[int, int, int]]:
    return [(index, ended, 3 if index == 6 else 4) for index in range(start, 7)]


@of_all
def test_batches_come_by_index_and_an_ended_epoch_is_seen_by_all_workers(loader: LoaderConfig) -> None:
    dataset = Numbered()
    workload = wrapped(dataset)
    with opened(workload, loader) as made:
        assert (len(made), made.batch_size, len(workload.data)) == (7, 4, 27)
        assert [read(made, epoch) for epoch in range(3)] == [epoch_of(0), epoch_of(1), epoch_of(2)]
    assert (dataset.begun, dataset.ended) == (3, 3)  # here, and once an epoch


@of_all
def test_the_numbers_of_a_dataset_without_a_length_go_on_from_epoch_to_epoch(loader: LoaderConfig) -> None:
    with opened(wrapped(Endless(), steps=3, shuffle=True), loader) as made:
        assert [[index for index, *_ in read(made, epoch)] for epoch in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@of_ours
def test_a_dataset_without_a_length_resumes_where_it_was(loader: LoaderConfig) -> None:
    with opened(wrapped(Endless(), steps=3), loader) as made:
        assert [index for index, *_ in read(made, 2, start=1)] == [7, 8]


@of_ours
def test_each_epoch_has_an_order_of_its_own_that_the_seed_fixes(loader: LoaderConfig) -> None:
    orders = []
    for seed in (1, 1, 2):
        with opened(wrapped(Numbered(), shuffle=True, seed=seed), loader) as made:
            orders.append([[index for index, *_ in read(made, epoch)] for epoch in range(3)])
    assert all(sorted(order) == list(range(7)) for order in orders[0])
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in (*orders[0], *orders[2])}) == 6


@pytest.mark.parametrize("loader", ["Keras", pytest.param("Keras-processes", marks=pytest.mark.slow)])
def test_keras_shuffles_each_epoch_anew_as_fit_does(loader: str) -> None:
    with opened(wrapped(Numbered(20), shuffle=True), LOADERS[loader]) as made:
        orders = [[index for index, *_ in read(made, epoch)] for epoch in range(3)]
    assert [sorted(order) for order in orders] == [list(range(20))] * 3
    assert len(set(map(tuple, orders))) == 3
    if loader == "Keras-processes" and frameworks.draws_by_epoch():
        for epoch, order in enumerate(orders):
            random.Random(epoch).shuffle(expected := list(range(20)))
            assert order == expected


@pytest.mark.parametrize(
    ("loader", "dataset"), [(OURS["threads-3"], Plain), (OURS["processes-3"], Numbered)], ids=["threads", "processes"]
)
def test_a_state_taken_in_mid_epoch_resumes_with_the_next_batch(loader: LoaderConfig, dataset: Any) -> None:
    workload = wrapped(dataset(), shuffle=True)
    with opened(workload, loader) as made:
        whole = [[index for index, *_ in read(made, epoch)] for epoch in range(3)]
    with opened(workload, loader) as made:
        epoch = made.epoch(1)
        assert [int(next(epoch)[0][0, 0]) for _ in range(3)] == whole[1][:3]
        state = made.state_dict()
        epoch.close()  # type: ignore[attr-defined]  # it is a generator
    with opened(wrapped(dataset(), shuffle=True), loader) as made:
        made.load_state_dict(state)
        assert [int(x[0, 0]) for x, _ in made.epoch(1)] == whole[1][3:]
        assert [int(x[0, 0]) for x, _ in made.epoch(2)] == whole[2]


@of_all
def test_an_epoch_left_in_the_middle_disturbs_no_other(loader: LoaderConfig) -> None:
    if loader == LOADERS["Keras-threads"]:
        pytest.skip("Keras hands over what its threads have made ahead in the next epoch")
    dataset = Numbered()
    with opened(wrapped(dataset), loader) as made:
        assert read(made, 0, most=2) == epoch_of(0)[:2]
        assert read(made, 1, start=2) == epoch_of(1, start=2)
        assert read(made, 2) == epoch_of(2)
    assert (dataset.begun, dataset.ended) == (3, 3)


@of_ours
def test_two_loaders_that_are_read_in_turns_do_not_disturb_each_other(loader: LoaderConfig) -> None:
    with opened(wrapped(Numbered(5)), loader) as one, opened(wrapped(Numbered(5)), loader) as other:
        for first, second in zip(one.batches(0), other.batches(0), strict=True):
            np.testing.assert_array_equal(first[0], second[0])


@of_ours
def test_a_dataset_that_has_changed_without_a_hook_is_sent_again(loader: LoaderConfig) -> None:
    class Levels(keras.utils.PyDataset):
        count, last, ended = 7, 3, 0
        __len__, __getitem__ = Numbered.__len__, Numbered.__getitem__

    dataset = Levels()
    with opened(wrapped(dataset), loader) as made:
        assert read(made, 0) == epoch_of(0)
        if isinstance(loader, ap.Processes):  # threads may have made some of the next epoch
            dataset.ended = 5
            assert read(made, 1) == epoch_of(5)
        assert [index for index, *_ in read(made, 2)] == list(range(7))


@of_all
def test_batches_may_differ_where_the_dataset_says_so(loader: LoaderConfig) -> None:
    class Varied(Numbered):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            x, y = super().__getitem__(index)
            rows = 2 if index == 3 else len(x)
            return np.repeat(x[:rows, :, None], 1 + index % 3, axis=2), y[:rows]

    with opened(wrapped(Varied()), loader) as made:
        for epoch in range(2):
            shapes = [(x.shape, y.shape) for x, y in made.batches(epoch)]
            rows = [4, 4, 4, 2, 4, 4, 3]
            assert shapes == [((row, 2, 1 + index % 3), (row,)) for index, row in enumerate(rows)]


class Parts(Numbered):
    """Dictionaries, and weights of samples."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return {"a": x, "b": x + 1}, y, np.ones(len(x))


@of_all
def test_batches_of_several_parts_keep_their_structure(loader: LoaderConfig) -> None:
    with opened(wrapped(Parts()), loader) as made:
        x, y, weight = next(made.epoch(0))
    np.testing.assert_array_equal(x["b"], x["a"] + 1)
    assert (y.shape, weight.dtype) == ((4,), np.float64)


class Drawn(Numbered):
    """Random numbers of all kinds that people draw."""

    def __init__(self, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.random, self.held = np.random.default_rng(0), {"state": np.random.RandomState(0)}

    def __getitem__(self, index: int) -> Any:
        import random

        drawn = [self.random.random(), self.held["state"].rand(), np.random.rand(), random.random()]
        return np.array([drawn] * 4, np.float64), np.full(4, index)


def test_processes_draw_other_numbers_for_each_batch_whichever_worker_makes_it() -> None:
    found = []
    for workers in (1, 3):
        with opened(wrapped(Drawn()), ap.Processes(workers=workers)) as made:
            found.append([[x[0].tolist() for x, _ in made.batches(epoch)] for epoch in range(2)])
    assert found[0] == found[1]
    drawn = np.array(found[0]).reshape(-1, 4)
    assert [len(set(column)) for column in drawn.T] == [14] * 4


class Torch(types.ModuleType):
    """A stand-in for torch, whose global generator begins with the same state in each process."""

    state = 67280421310721

    def manual_seed(self, seed: int) -> None:
        self.state = seed

    def rand(self) -> float:
        self.state = (6364136223846793005 * self.state + 1442695040888963407) % 2**64
        return self.state / 2**64


class DrawnByTorch(Numbered):
    """Draws from torch's global generator, where torch is imported as the dataset arrives."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        sys.modules.setdefault("torch", Torch("torch"))
        self.__dict__.update(state)

    def __getitem__(self, index: int) -> Any:
        return np.full((4, 1), sys.modules["torch"].rand()), np.full(4, index)


def test_processes_draw_other_numbers_of_torchs_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Torch("torch"))  # for the first batch, which is made here
    found = []
    for workers in (1, 3):
        with opened(wrapped(DrawnByTorch()), ap.Processes(workers=workers)) as made:
            found.append([float(x[0, 0]) for x, _ in made.batches(0)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 7


def with_grain(count: int) -> Any:
    grain = pytest.importorskip("grain")  # there in `make test`; not with the oldest and newest frameworks
    numbers = grain.MapDataset.source(list(range(count * 4)))
    return numbers.map(lambda number: (np.full(2, number // 4, np.float32), np.int64(0))).batch(4)


@of_ours
@pytest.mark.slow
def test_a_grain_dataset_with_an_index_is_made_by_workers(loader: LoaderConfig) -> None:
    with opened(wrapped(with_grain(5)), loader) as made:
        assert [index for index, *_ in read(made, 0)] == list(range(5))


@given(
    count=some.integers(1, 6),
    last=some.integers(1, 4),
    workers=some.integers(1, 3),
    starts=some.lists(some.integers(0, 5), min_size=1, max_size=3),
)
def test_threads_give_the_batches_of_keras_own_adapter(count: int, last: int, workers: int, starts: list[int]) -> None:
    adapter = frameworks.py_dataset_adapter(Numbered(count, last))
    with opened(wrapped(Numbered(count, last)), ap.Threads(workers=workers, queue_size=1)) as made:
        for epoch, start in enumerate(min(start, count - 1) for start in starts):
            adapter.on_epoch_begin()
            expected = list(adapter.get_numpy_iterator())[start:]
            adapter.on_epoch_end()
            for ours, theirs in zip(made.batches(epoch, start), expected, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    np.testing.assert_array_equal(one, other)


def test_batches_are_shuffled_as_by_a_keras_that_draws_by_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    if not frameworks.draws_by_epoch():  # Keras 3.16 does
        monkeypatch.setattr(py_dataset_adapter.OrderedEnqueuer, "start", lambda self, epoch: None)
    with opened(wrapped(Numbered(), shuffle=True, seed=9), ap.Threads(workers=2)) as made:
        for epoch in (0, 2, 1):
            random.Random(epoch).shuffle(expected := list(range(7)))
            assert [index for index, *_ in read(made, epoch)] == expected


@pytest.mark.parametrize(("workers", "told"), [(1, False), (2, True)])
def test_a_draw_in_on_epoch_begin_beside_workers_that_have_started_is_told_of(*, workers: int, told: bool) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        wrapped(Numbered(workers=workers))
    says = ["`Numbered.on_epoch_begin`" in str(each.message) for each in found]
    assert says == [True] * (told and not frameworks.draws_by_epoch())


@pytest.mark.parametrize(
    ("dataset", "config", "said"),
    [
        (Numbered, {"loader": ap.TfData()}, "`tfdata` cannot feed it"),
        (Numbered, {"loader": ap.Threads(workers=1), "keep": "memory"}, "cannot be kept, or read ahead"),
        (Numbered, {"loader": ap.Processes(workers=1, read_ahead=4)}, "cannot be kept, or read ahead"),
        (lambda: (Numbered()[0] for _ in range(3)), {"loader": ap.Threads(workers=1)}, "`threads` cannot feed it"),
    ],
)
def test_what_needs_samples_is_refused(dataset: Callable[[], Any], config: Any, said: str) -> None:
    made = dataset() if dataset is Numbered else dataset
    with pytest.raises(ConfigError, match=said):
        ap.build_loader(wrapped(made), ap.PipelineConfig(**config))


def test_a_function_may_return_such_a_dataset() -> None:
    workload = wrapped(functools.partial(Numbered, 3))
    for loader in (OURS["threads-1"], OURS["processes-1"], by_keras(1)):
        with opened(workload, loader) as made:
            assert [index for index, *_ in read(made, 0)] == [0, 1, 2]
