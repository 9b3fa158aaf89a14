"""What every loader must do with a dataset whose `dataset[i]` is a batch: hand over Keras's batches, epoch by epoch."""

import random
import sys
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras.src.trainers.data_adapters import py_dataset_adapter

import autopipe as ap
from autopipe import frameworks
from autopipe.pipeline import wrap
from autopipe.pipeline.loaders.wrapped import Wrapped

pytestmark = pytest.mark.usefixtures("forked_nurseries")


def by_keras(workers: int, *, use_multiprocessing: bool = False) -> ap.LoaderConfig:
    knobs = {"workers": workers, "use_multiprocessing": use_multiprocessing, "max_queue_size": 10}
    return Wrapped.model_validate(knobs)


OURS: dict[str, ap.LoaderConfig] = {f"threads-{n}": ap.Threads(workers=n, queue_size=2) for n in (1, 3)}
OURS |= {f"processes-{n}": ap.Processes(workers=n, queue_size=2) for n in (1, 3)}
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
    """Seven batches of four that hold their index, and how many epochs have ended; the last one is shorter."""

    begun = ended = 0

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < 7:
            raise IndexError(index)
        rows = 3 if index == 6 else 4
        return np.full((rows, 2), index, np.float32), np.full(rows, self.ended)

    def on_epoch_begin(self) -> None:
        self.begun += 1

    def on_epoch_end(self) -> None:
        self.ended += 1


class Endless(keras.utils.PyDataset):
    """Has a batch for every number, and no length."""

    num_batches = None

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.full((4, 2), index, np.float32), np.zeros(4, np.int64)


def wrapped(dataset: Any, **settings: Any) -> ap.Workload:
    return wrap.wrap(dataset, model=None, **{"shuffle": False, **settings})


def opened(workload: ap.Workload, loader: ap.LoaderConfig) -> ap.Loader:
    return ap.make_loader(workload, ap.PipelineConfig(loader=loader, finish="host", device_prefetch=0))


def read(loader: ap.Loader, epoch: int, start: int = 0, most: int | None = None) -> list[tuple[int, int, int]]:
    """Return the index, the ended epochs and the samples of each batch."""
    found = []
    batches = loader.batches(epoch, start)
    for x, y in batches:
        assert (len(set(x.ravel())), len(set(y)), x.dtype, y.dtype) == (1, 1, np.float32, np.int64)
        found.append((int(x[0, 0]), int(y[0]), len(x)))
        if len(found) == most:
            break
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    return found


def indices(loader: ap.Loader, epoch: int, start: int = 0) -> list[int]:
    return [index for index, *_ in read(loader, epoch, start)]


def epoch_of(ended: int, start: int = 0) -> list[tuple[int, int, int]]:
    return [(index, ended, 3 if index == 6 else 4) for index in range(start, 7)]


@of_all
def test_batches_come_by_index_and_an_ended_epoch_is_seen_by_all_workers(loader: ap.LoaderConfig) -> None:
    dataset = Numbered()
    workload = wrapped(dataset)
    with opened(workload, loader) as made:
        assert (len(made), made.batch_size, len(workload.data)) == (7, 4, 27)
        assert [read(made, epoch) for epoch in range(3)] == [epoch_of(0), epoch_of(1), epoch_of(2)]
    assert (dataset.begun, dataset.ended) == (3, 3)  # here, and once an epoch


@of_all
def test_the_numbers_of_a_dataset_without_a_length_go_on_from_epoch_to_epoch(loader: ap.LoaderConfig) -> None:
    with opened(wrapped(Endless(), steps=3, shuffle=True), loader) as made:
        assert [indices(made, epoch) for epoch in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    if loader in OURS.values():
        with opened(wrapped(Endless(), steps=3), loader) as made:  # resumes where it was
            assert indices(made, 2, start=1) == [7, 8]


@of_ours
def test_each_epoch_has_an_order_that_the_seed_fixes_and_a_state_resumes_with_the_next_batch(
    loader: ap.LoaderConfig,
) -> None:
    orders = []
    for seed in (1, 1, 2):
        with opened(wrapped(Numbered(), shuffle=True, seed=seed), loader) as made:
            orders.append([indices(made, epoch) for epoch in range(3)])
    assert all(sorted(order) == list(range(7)) for order in orders[0])
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in (*orders[0], *orders[2])}) == 6
    workload = wrapped(Numbered(), shuffle=True)
    with opened(workload, loader) as made:
        whole = [indices(made, epoch) for epoch in range(3)]
    with opened(workload, loader) as made:
        epoch = made.epoch(1)
        assert [int(next(epoch)[0][0, 0]) for _ in range(3)] == whole[1][:3]
        state = made.state_dict()
        epoch.close()  # type: ignore[attr-defined]  # it is a generator
    with opened(wrapped(Numbered(), shuffle=True), loader) as made:
        made.load_state_dict(state)
        assert [[int(x[0, 0]) for x, _ in made.epoch(epoch)] for epoch in (1, 2)] == [whole[1][3:], whole[2]]


@of_all
def test_an_epoch_left_in_the_middle_disturbs_no_other(loader: ap.LoaderConfig) -> None:
    if loader == LOADERS["Keras-threads"]:
        pytest.skip("Keras hands over what its threads have made ahead in the next epoch")
    dataset = Numbered()
    with opened(wrapped(dataset), loader) as made:
        assert read(made, 0, most=2) == epoch_of(0)[:2]
        assert read(made, 1, start=2) == epoch_of(1, start=2)
        assert read(made, 2) == epoch_of(2)
    assert (dataset.begun, dataset.ended) == (3, 3)


@of_ours
def test_a_dataset_that_has_changed_without_a_hook_is_sent_again(loader: ap.LoaderConfig) -> None:
    class Levels(keras.utils.PyDataset):
        ended = 0
        __len__, __getitem__ = Numbered.__len__, Numbered.__getitem__

    dataset = Levels()
    with opened(wrapped(dataset), loader) as made:
        assert read(made, 0) == epoch_of(0)
        if isinstance(loader, ap.Processes):  # threads may have made some of the next epoch
            dataset.ended = 5
            assert read(made, 1) == epoch_of(5)
        assert indices(made, 2) == list(range(7))


class Torch(types.ModuleType):
    """A stand-in for torch, whose global generator begins with the same state in each process."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.manual_seed(0)

    def manual_seed(self, seed: int) -> None:
        self.rand = random.Random(seed).random


class Drawn(Numbered):
    """Random numbers of all kinds that people draw; torch is imported as the dataset arrives."""

    def __init__(self, **knobs: Any) -> None:
        super().__init__(**knobs)
        self.random, self.held = np.random.default_rng(0), {"state": np.random.RandomState(0)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        sys.modules.setdefault("torch", Torch())
        self.__dict__.update(state)

    def __getitem__(self, index: int) -> Any:
        import random

        drawn = [self.random.random(), self.held["state"].rand(), np.random.rand(), random.random()]
        return np.array([[*drawn, sys.modules["torch"].rand()]] * 4, np.float64), np.full(4, index)


def test_processes_draw_other_numbers_for_each_batch_whichever_worker_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Torch())  # for the first batch, which is made here
    found = []
    for workers in (1, 3):
        with opened(wrapped(Drawn()), ap.Processes(workers=workers)) as made:
            found.append([[x[0].tolist() for x, _ in made.batches(epoch)] for epoch in range(2)])
    assert found[0] == found[1]
    drawn = np.array(found[0]).reshape(-1, 5)
    assert [len(set(column)) for column in drawn.T] == [14] * 5


def test_batches_are_shuffled_as_by_a_keras_that_draws_by_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    if not frameworks.draws_by_epoch():  # Keras 3.16 does
        monkeypatch.setattr(py_dataset_adapter.OrderedEnqueuer, "start", lambda self, epoch: None)
    with opened(wrapped(Numbered(), shuffle=True, seed=9), ap.Threads(workers=2)) as made:
        for epoch in (0, 2, 1):
            random.Random(epoch).shuffle(expected := list(range(7)))
            assert indices(made, epoch) == expected


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
    with pytest.raises(ap.ConfigError, match=said):
        ap.make_loader(wrapped(made), ap.PipelineConfig(**config))
