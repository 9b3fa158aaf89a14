"""`ap.live`: the batches of a plain loop, in its order and its containers, whatever makes them."""

import collections
import gc
import hashlib
import operator
import pickle
import sys
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.pipeline.batching.datasets import batch_at
from autopipe.pipeline.batching.torch_batches import TorchBatches

pytestmark = pytest.mark.usefixtures("forked_nurseries")
COUNT = 12


class Plain:
    """A plain sequence of batches, the last of which is short."""

    length = COUNT

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        size = 4 if index < COUNT - 1 else 2
        return np.random.default_rng(index).random((4, 3), dtype=np.float32)[:size], np.full(size, index)


class OfKeras(keras.utils.PyDataset):
    """A PyDataset that its own hook shuffles, if the loop calls it."""

    def __init__(self) -> None:
        super().__init__(workers=2)
        self.order, self.calls = list(range(COUNT)), 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return list(Plain()[self.order[index]])

    def on_epoch_end(self) -> None:
        self.calls += 1
        np.random.default_rng(self.calls).shuffle(self.order)


def of_grain() -> Any:
    grain = pytest.importorskip("grain")  # there in `make test`; not with the oldest and newest frameworks
    numbers = grain.MapDataset.source(list(range(40))).shuffle(seed=3)
    return numbers.map(lambda number: {"x": np.full(3, number, np.float32), "y": number}).batch(4)


def digest(batches: Iterable[Any]) -> tuple[str, Any]:
    """Return a digest of batches, and the kinds of their parts."""
    found, kinds = hashlib.sha256(), set()
    for batch in batches:
        kinds.add((type(batch).__name__, *(type(part).__name__ for part in keras.tree.flatten(batch))))
        for part in keras.tree.flatten(batch):
            found.update(np.ascontiguousarray(part).tobytes() + str(part.dtype).encode())
    return found.hexdigest(), kinds


def by_hand(dataset: Any) -> Iterable[Any]:
    return (dataset[index] for index in range(len(dataset)))


@pytest.mark.parametrize(("make", "threads"), [(Plain, True), (Plain, False), (OfKeras, False), (of_grain, True)])
def test_the_batches_are_those_of_a_plain_loop(make: Callable[[], Any], *, threads: bool) -> None:
    expected = digest(by_hand(make()))
    with ap.live(make(), threads=threads) as batches:
        assert len(batches) == len(make())
        assert [digest(batches) for _ in range(2)] == [expected] * 2


Four = collections.namedtuple("Four", ["images", "parts", "targets", "names"])


class Named(Plain):
    """Batches as those that find objects: four parts, of lists that are not alike, with names of files."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        rows = [row[: 1 + index % 3] for row in x]
        return Four(x, rows, {"labels": y, "none": None}, [f"{index}.png"] * (1 + index))


class Masked(Plain):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return np.ma.masked_array(x, mask=x < 0.5), y


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("kind", [Named, Masked])
def test_batches_of_any_form_come_as_they_are(kind: type[Plain], *, threads: bool) -> None:
    dataset = kind()
    with ap.live(dataset, threads=threads) as batches:
        for _ in range(2):
            for ours, theirs in zip(batches, by_hand(dataset), strict=True):
                assert [*map(type, ours)] == [*map(type, theirs)]
                assert type(ours) is type(theirs)
                np.testing.assert_equal(tuple(ours), tuple(theirs))
                assert np.ma.getmaskarray(ours[0]).tolist() == np.ma.getmaskarray(theirs[0]).tolist()


class Broken(Named):
    """Batches, or samples of a `DataLoader`, one of which cannot be read."""

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise ValueError("odd")
        return super().__getitem__(index)


def test_a_batch_that_cannot_be_made_is_named_whatever_its_form() -> None:
    with pytest.raises(ap.WorkloadError, match="odd"), ap.live(Broken()) as batches:
        list(batches)


@pytest.mark.parametrize(
    ("collate", "said"),
    [
        (list, r"`Broken\[7\]` raised ValueError: odd \(.*\)\. It is a sample of the DataLoader\."),
        (operator.itemgetter(2), r"`DataLoader\[0\]` raised IndexError: .*there are 2 batches"),
    ],
)
def test_a_data_loader_without_a_batch_names_a_sample(monkeypatch: pytest.MonkeyPatch, collate: Any, said: str) -> None:
    torch = SimpleNamespace(empty=lambda *_, **__: SimpleNamespace(random_=lambda **_: None), int64=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    drawn = {"batch_sampler": [[0, 1], [7, 2]], "generator": None}
    batches = TorchBatches(SimpleNamespace(dataset=Broken(), collate_fn=collate, worker_init_fn=None, **drawn))
    batches.on_epoch_begin()
    with pytest.raises(ap.WorkloadError, match=said):
        [batch_at(batches, index, 2) for index in (0, 1)]
    assert len(pickle.loads(pickle.dumps(batches))) == 2


@pytest.mark.parametrize("threads", [True, False])
def test_the_loop_owns_the_dataset_between_two_epochs(*, threads: bool) -> None:
    plain, fed = OfKeras(), OfKeras()
    with ap.live(fed, threads=threads) as batches:
        for _ in range(3):
            assert digest(batches) == digest(by_hand(plain))
            plain.on_epoch_end()
            fed.on_epoch_end()
    assert fed.calls == 3  # by this loop, and by nothing else


def test_a_loop_may_stop_in_the_middle_and_give_the_dataset_another_length() -> None:
    dataset = Plain()
    dataset.length = 3
    with ap.live(dataset) as batches:
        assert next(iter(batches))[1].tolist() == [0] * 4
        dataset.length = 5
        assert digest(batches) == digest(by_hand(dataset))
        assert len(batches) == 5
    dataset.length = sys.maxsize  # without an end, it goes on after the epoch before
    with ap.live(dataset, steps=3) as batches:
        assert [[int(y[0]) for _, y in batches] for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.timeout(300)  # on a busy machine processes start late, and many windows are needed
def test_other_loaders_take_their_turn_while_the_loop_waits_and_the_batches_stay() -> None:
    class Waits(Plain):
        length = 100

        def __getitem__(self, index: int) -> Any:
            threading.Event().wait(0.02)
            return super().__getitem__(index % (COUNT - 1))

    wanted = digest(Plain()[index % (COUNT - 1)] for index in range(100))
    with ap.live(Waits()) as batches:
        for _ in range(300):
            assert digest(batches) == wanted
            if batches.changes:
                break
    assert batches.changes


class Locked(Plain):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_what_cannot_be_fed_or_goes_on_without_an_end_is_refused_by_name() -> None:
    for dataset in ([np.zeros(2)], iter([np.zeros(2)])):
        with pytest.raises(ap.WorkloadError, match="by their index"):
            next(iter(ap.live(dataset)))
    with pytest.raises(ap.LoaderError, match=r"Locked\.lock"):
        next(iter(ap.live(Locked(), threads=False)))
    with pytest.raises(ap.WorkloadError, match="`RepeatMapDataset` goes on without an end") as refused:
        next(iter(ap.live(of_grain().repeat())))
    assert "ap.live(..., steps=1000)" in str(refused.value.hint)
    with ap.live(of_grain().repeat(), steps=10) as batches:
        assert digest(batches) == digest(of_grain())


def test_workers_end_with_the_loop() -> None:
    before = set(threading.enumerate())
    for _ in ap.live(Plain()):
        pass
    gc.collect()
    assert not [each for each in set(threading.enumerate()) - before if each.name[len("autopipe-") :].isdecimal()]
