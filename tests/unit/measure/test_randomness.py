"""Random numbers that repeat, planted and not, in the datasets that people write. torch is not installed here."""

import copy
import functools
import importlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, TypeAlias

import grain
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.random import default_rng
from numpy.typing import NDArray

from autopipe.errors import LoaderError
from autopipe.measure.randomness import Look, OtherSeeds, digests, watch_maps
from autopipe.pipeline.wrap import WrappedData
from tests.fakes.reports import Told

# Of a draw in `on_epoch_begin`.
pytestmark = pytest.mark.filterwarnings("ignore:Keras .* starts its workers:autopipe.errors.DataWarning")

Array: TypeAlias = NDArray[Any]
Draw: TypeAlias = Callable[[Any], Any]
"""Returns an array of a shape, of random numbers from 0 to 1."""
COUNT, BATCH, SIZE = 48, 8, 8
X = np.random.default_rng(5).random((COUNT, SIZE, SIZE, 1)).astype(np.float32)
Y = np.arange(COUNT)
CONSTANT = np.full_like(X, 0.5)


# -------------------- random changes of a batch


def flip(x: Array, draw: Draw, share: float = 0.5) -> Any:
    return np.where(draw((len(x), 1, 1, 1)) >= share, x[:, :, ::-1], x)


def brightness(x: Array, draw: Draw) -> Any:
    return np.clip(x + 0.4 * (draw((len(x), 1, 1, 1)) - 0.5), 0, 1).astype(np.float32)


def noise(x: Array, draw: Draw) -> Any:
    return (x + 0.1 * draw(x.shape)).astype(np.float32)


# -------------------- datasets


class _Batches:
    def __init__(self, samples: int, *, shuffle: bool) -> None:
        self._samples, self._shuffle = samples, shuffle

    def __len__(self) -> int:
        return -(-self._samples // 8)

    def __iter__(self) -> Iterator[list[int]]:
        indices = list(range(self._samples))
        if self._shuffle:
            random.shuffle(indices)
        return (indices[at : at + 8] for at in range(0, self._samples, 8))


class DataLoader:
    """torch's, whose workers are copies in this process.

    As in torch, each worker has a copy of the dataset, made when an epoch begins, and a state of NumPy's global
    generator of its own; workers make batches in turn.
    """

    def __init__(
        self, dataset: Any, *, num_workers: int = 0, shuffle: bool = False, worker_init_fn: Any = None
    ) -> None:
        self.dataset, self.num_workers, self.worker_init_fn = dataset, num_workers, worker_init_fn
        self.batch_sampler: Any = _Batches(len(dataset), shuffle=shuffle)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        make = [_worker(self, number) for number in range(self.num_workers)] or [_batch_of(self.dataset)]
        for number, indices in enumerate(self.batch_sampler):
            yield make[number % len(make)](indices)


def _batch_of(dataset: Any) -> Callable[[list[int]], Any]:
    return lambda indices: tuple(map(np.stack, zip(*(dataset[index] for index in indices), strict=True)))


def _worker(loader: DataLoader, number: int) -> Callable[[list[int]], Any]:
    batch = _batch_of(copy.deepcopy(loader.dataset))
    state = np.random.RandomState(random.getrandbits(32)).get_state()  # as torch seeds it

    def within(run: Callable[[], Any]) -> Any:
        nonlocal state
        outside = np.random.get_state()
        np.random.set_state(state)
        try:
            return run()
        finally:
            state = np.random.get_state()
            np.random.set_state(outside)

    if (begin := loader.worker_init_fn) is not None:
        within(lambda: begin(number))
    return lambda indices: within(lambda: batch(indices))


class Items(keras.utils.PyDataset):
    """Batches of images, changed by `change(dataset, rows, x)`; `begin` and `end` are called with the dataset."""

    def __init__(
        self, change: Any, x: Array = X, y: Any = Y, *, begin: Any = None, end: Any = None, workers: int = 1
    ) -> None:
        super().__init__(workers=workers)
        self.change, self.x, self.y, self.begin, self.end = change, x, y, begin, end
        self.batch, self.epoch, self.order, self.rng = BATCH, 0, np.arange(COUNT), np.random.default_rng(1)

    def __len__(self) -> int:
        return COUNT // self.batch

    def __getitem__(self, index: int) -> Any:
        rows = self.order[self.batch * index :][: self.batch]
        return self.change(self, rows, self.x[rows]), self.y[rows]

    def on_epoch_begin(self) -> None:
        if self.begin is not None:
            self.begin(self)

    def on_epoch_end(self) -> None:
        self.epoch += 1
        if self.end is not None:
            self.end(self)


def shuffled(items: Items) -> None:
    np.random.shuffle(items.order)


def by_sample(items: Items, rows: Any, x: Array) -> Array:
    return np.stack([noise(each, default_rng(int(row)).random) for each, row in zip(x, rows, strict=True)])


def batches(order: Any = Y) -> Iterator[Any]:
    return ((X[order[at : at + BATCH]], order[at : at + BATCH]) for at in range(0, COUNT, BATCH))


def seeded_generator(given: Iterable[Any] = ()) -> Iterator[Any]:
    rng = np.random.default_rng(0)
    for x, y in given or batches():
        yield noise(x, rng.random), y


def tensors(x: Array = X) -> Any:
    return tf.data.Dataset.from_tensor_slices((x, Y))


def seeds_from_a_counter() -> Any:  # as TensorFlow's guide of data augmentation has it
    counter = tf.data.Dataset.counter()
    both = tf.data.Dataset.zip((tensors(), tf.data.Dataset.zip((counter, counter)))).shuffle(COUNT)
    return both.map(lambda xy, seed: (tf.image.stateless_random_flip_left_right(xy[0], seed), xy[1])).batch(BATCH)


def numpy_in_a_map() -> Any:
    def noisy(x: Array, y: Any) -> Any:
        return noise(x, np.random.RandomState(int(y[0])).random_sample)

    return tensors().batch(BATCH).map(lambda x, y: (tf.numpy_function(noisy, (x, y), tf.float32), y))


class Samples:
    """One image at each index, changed by `change(dataset, index, x)`."""

    def __init__(self, change: Any, x: Array = X) -> None:
        self.change, self.x, self.rng = change, x, np.random.default_rng(0)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.change(self, index, self.x[index : index + 1])[0], Y[index]


def with_own(augment: Any) -> Any:
    return lambda dataset, _, x: augment(x, dataset.rng.random)


def with_global(augment: Any) -> Any:
    return lambda dataset, _, x: augment(x, np.random.random)


def unchanged(dataset: Any, _: Any, x: Array) -> Array:
    return x


def found(make: Callable[..., Any], steps: int | None = None) -> list[str]:
    look = Look(WrappedData(make, {}, steps), {}, Told())
    return [each for each in (look.over_epochs(10.0), look.over_workers()) if each is not None]


class Noisy(grain.transforms.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return noise(element[np.newaxis], rng.random)[0]


def by_sampler(epochs: int | None = 1) -> Any:
    sampler = grain.samplers.IndexSampler(COUNT, shuffle=True, seed=2, num_epochs=epochs)
    operations = [Noisy(), grain.transforms.Batch(BATCH)]
    return grain.DataLoader(data_source=X, sampler=sampler, operations=operations, worker_count=0)


def mapped(*, goes_on: bool = False) -> Any:
    dataset = grain.MapDataset.source(X).seed(2).shuffle().random_map(Noisy()).batch(BATCH)
    return dataset.repeat() if goes_on else dataset


EPOCHS, WORKERS = "of the next epochs", "are copies of others"
WORKERS_EPOCHS = "workers draw the same random numbers in"


def seeded_workers(samples: Any, workers: int, seed: Callable[[int], None]) -> DataLoader:
    return DataLoader(samples, num_workers=workers, shuffle=True, worker_init_fn=seed)


PLANTED: dict[str, tuple[Any, ...]] = {
    "a PyDataset that seeds NumPy when an epoch begins": (
        lambda: Items(with_global(flip), begin=lambda _: np.random.seed(0), workers=3), EPOCHS),
    "a PyDataset with a generator for each sample, shuffled": (lambda: Items(by_sample, end=shuffled), EPOCHS),
    "a generator function with a seed": (seeded_generator, EPOCHS),
    "tf.data whose op has a seed": (
        lambda: tensors().map(lambda x, y: (tf.image.random_brightness(x, 0.4, seed=1), y)).batch(BATCH), EPOCHS),
    "tf.data with seeds from a counter, made before": (functools.cache(seeds_from_a_counter), EPOCHS),
    "tf.data with NumPy in a map": (numpy_in_a_map, EPOCHS),
    "a generator of NumPy's bits for each batch, in threads": (
        lambda: Items(lambda _, rows, x: noise(x, np.random.Generator(np.random.PCG64(rows[0])).random), workers=2),
        EPOCHS),
    "Grain's sampler of one epoch": (by_sampler, EPOCHS),
    "Grain's seed, read ahead": (lambda: mapped().to_iter_dataset(), EPOCHS),
    "workers with copies of one generator": (
        lambda: DataLoader(Samples(with_own(noise)), num_workers=2), EPOCHS, WORKERS),
    "workers that all seed NumPy alike, shuffled": (
        lambda: seeded_workers(Samples(with_global(flip)), 4, lambda _: np.random.seed(0)), WORKERS),
    "workers that seed NumPy by their number, shuffled": (
        lambda: seeded_workers(Samples(with_global(noise)), 3, lambda number: np.random.seed(number)), WORKERS_EPOCHS),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_random_numbers_that_repeat_are_found(name: str) -> None:
    make, *said = PLANTED[name]
    assert [words in sentence for words, sentence in zip(said, found(make), strict=True)] == [True] * len(said)


def test_of_an_epoch_that_takes_long_the_beginning_is_compared() -> None:
    def make() -> Any:
        items = Items(lambda items, rows, x: noise(x, default_rng(int(rows[0])).random))
        items.batch = 1
        return items

    assert "24 of 24 batches" in str(Look(WrappedData(make, {}), {}, Told()).over_epochs(0.0))


CLEAN: dict[str, Callable[..., Any]] = {
    "a PyDataset with a generator for each batch and epoch": lambda: Items(
        lambda items, rows, x: noise(x, default_rng((7, items.epoch, int(rows[0]))).random)),
    "a PyDataset without anything random, shuffled": lambda: Items(unchanged, end=shuffled),
    "a PyDataset whose constant images are changed by a seed": lambda: Items(
        lambda items, rows, x: flip(x, default_rng(0).random), CONSTANT),
    "a PyDataset of three images": lambda: Items(with_global(flip), X[Y % 3], Y % 3),
    "a PyDataset that changes few images": lambda: Items(with_global(functools.partial(flip, share=0.98))),
    "a generator function with an order of its own": lambda: batches(default_rng(0).permutation(COUNT)),
    "tf.data of a fixed part": lambda: (
        tensors().shuffle(COUNT, seed=1, reshuffle_each_iteration=False).take(32).batch(BATCH)),
    "tf.data made before, whose op has no seed": functools.cache(lambda: (
        tensors().shuffle(COUNT).map(lambda x, y: (tf.image.random_flip_left_right(x), y)).batch(BATCH))),
    "tf.data made before, without anything random": functools.cache(
        lambda: tensors().map(lambda x, y: (x / 2, y)).shuffle(COUNT).batch(BATCH)),
    "tf.data made before, with changes that a cache keeps, which is told of elsewhere": functools.cache(
        lambda: tensors().map(lambda x, y: (tf.image.random_flip_left_right(x), y)).cache().batch(BATCH)),
    "workers that are seeded, of flips": lambda: DataLoader(Samples(with_global(flip)), num_workers=4, shuffle=True),
    "workers without anything random": lambda: DataLoader(Samples(unchanged), num_workers=2),
    "no workers": lambda: DataLoader(Samples(with_own(noise))),
    "Grain's order alone": lambda: grain.MapDataset.source(X).seed(2).shuffle().batch(BATCH),
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_a_seed_of_tensorflows_own() -> None:
    """Ops without a seed of their own repeat with one, which another test may have set."""
    tf.random.set_seed(None)


@pytest.mark.parametrize("make", CLEAN.values(), ids=CLEAN)
def test_random_numbers_that_do_not_repeat_are_no_matter_and_neither_is_a_dataset_without_any(
    make: Callable[..., Any],
) -> None:
    assert found(make) == []


def test_of_a_dataset_that_is_another_one_at_each_call_nothing_is_told() -> None:
    with pytest.raises(LoaderError, match="gives other samples each time"):
        found(lambda: tensors(X[np.random.permutation(COUNT)]).take(32).batch(BATCH))


def test_a_generator_that_goes_on_is_compared_with_what_comes_next() -> None:
    endless = lambda: seeded_generator(itertools.cycle(batches()))  # noqa: E731
    for make in (endless, lambda: by_sampler(None), lambda: mapped(goes_on=True)):
        assert found(make, steps=COUNT // BATCH) == []


def test_other_seeds_are_given_to_whoever_asks_and_afterwards_all_is_as_before() -> None:
    def drawn() -> list[float]:
        np.random.seed(1)
        random.seed(1)
        makes = (default_rng(1), np.random.default_rng((1, 2)), np.random.RandomState(1), Random(1), random.Random("a"))
        return [np.random.random(), random.random(), *(float(each.random()) for each in makes)]

    before = drawn()
    np.random.seed(9)
    expected = np.random.RandomState(9).random()
    with OtherSeeds() as seeds:
        assert drawn() == before
        made = (default_rng(1), np.random.RandomState(1), Random(1))
        seeds.change(True)
        assert not {float(each.random()) for each in made} & set(before)  # they continue elsewhere
        assert not set(drawn()) & set(before)
        assert isinstance(Random(1), random.Random)
        assert isinstance(np.random.mtrand._rand, np.random.RandomState)
        with pytest.raises(ValueError, match="non-negative"):
            np.random.default_rng(-1)
        seeds.change(False)
        assert drawn() == before
        np.random.seed(3)
    assert np.random.random() == expected
    assert drawn() == before


def drawn_by_a_layer(x: Any) -> Any:
    importlib.import_module("keras.src.random.seed_generator").make_default_seed()  # as its first call on JAX does
    return x


def drawn_by_both(x: Any) -> Any:
    return drawn_by_a_layer(x + round(random.random()))


def test_numbers_that_tf_data_draws_once_are_told_of_unless_they_seed_a_layer() -> None:
    for function, is_told in ((drawn_by_a_layer, False), (drawn_by_both, True)):
        told = list[str]()
        end = watch_maps(told.append, tf)
        tf.data.Dataset.range(3).map(function)
        end()
        assert ["tf.random.uniform" in each for each in told] == [True] * is_told


def test_digests_of_texts_are_of_what_they_say() -> None:
    texts = [np.array(["one", "two"], object), np.array(["".join(["o", "ne"]), "three"], object)]
    (first, second), (again, other) = (digests([each]) for each in texts)
    assert first == again
    assert len({first, second, other}) == 3
