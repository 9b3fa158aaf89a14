"""What two epochs of people's datasets tell, planted and not: splits, targets, orders, and what asking changes."""

import functools
import gc
import io
import itertools
import random
import re
import types
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import cv2
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.errors import DataWarning
from autopipe.frameworks import grain as grain_data
from autopipe.frameworks import tfdata
from autopipe.measure import epochs
from autopipe.measure.outcome import Verification, VerifyOptions
from autopipe.measure.verify import repeats
from autopipe.pipeline import wrap
from autopipe.pipeline.batching import pickling
from tests.fakes.facts import known
from tests.fakes.reports import Told
from tests.unit.measure.test_randomness import DataLoader

Array: TypeAlias = NDArray[Any]
COUNT, BATCH = 48, 4
X = np.random.default_rng(5).random((COUNT, 6, 6, 3)).astype(np.float32)
Y = np.arange(COUNT) % 3


def looked_at(dataset: Any, steps: int | None = None, model: Any = None) -> Verification:
    workload = wrap.wrap(dataset, model=model, steps=steps, parameters={})
    return repeats(workload, [known(wrap.as_it_is(workload))], VerifyOptions(random=True), Told())


# -------------------- tf.data


def tensors() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y))


def flipped(x: Any, y: Any) -> Any:
    x = tf.image.random_brightness(tf.image.random_flip_left_right(x), 0.2)
    return x + tf.random.normal(x.shape, stddev=0.01), y


def apart() -> Any:
    images, masks = (tf.data.Dataset.from_tensor_slices(part).shuffle(COUNT) for part in (X, X[..., :1]))
    return tf.data.Dataset.zip((images, masks)).batch(BATCH)


def together() -> Any:
    images, masks = (tf.data.Dataset.from_tensor_slices(part) for part in (X, X[..., :1]))
    return tf.data.Dataset.zip((images, masks)).shuffle(COUNT).map(lambda x, y: (flipped(x, y)[0], y)).batch(BATCH)


PNG = cv2.imencode(".png", np.random.default_rng(6).integers(0, 256, (300, 300, 3), np.uint8))[1].tobytes()


def files() -> Any:
    return tf.data.Dataset.from_tensors(PNG).repeat().enumerate()


def decoded(number: Any, png: Any) -> Any:
    return tf.cast(tf.io.decode_png(png)[:8, :8], tf.float32) + tf.cast(number, tf.float32), number


def by_python(x: Any, y: Any) -> Any:
    return x + random.random(), y


def by_a_generator() -> Any:
    rng = np.random.default_rng()
    return tensors().map(lambda x, y: (x + rng.normal(), y)).batch(BATCH)


def in_order() -> Any:
    return tensors().map(flipped).batch(BATCH)


# -------------------- datasets with an index


class Items(keras.utils.PyDataset):
    """Batches of X and Y in the order of `rows`; what it does beside that, the classes below say."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows, self.size = np.arange(COUNT), BATCH

    def __len__(self) -> int:
        return COUNT // BATCH

    def __getitem__(self, index: int) -> Any:
        rows = self.rows[self.size * index :][: self.size]
        return X[rows], Y[rows]


class Shuffled(Items):
    def on_epoch_end(self) -> None:
        np.random.shuffle(self.rows)


class WithoutEffect(Items):
    def on_epoch_end(self) -> None:
        self.order = np.random.permutation(COUNT)


class Reordered(WithoutEffect):
    def on_epoch_end(self) -> None:
        super().on_epoch_end()
        self.order = np.random.permutation(COUNT)
        self.rows = self.rows[self.order]


class OtherPart(Items):
    def __len__(self) -> int:
        return COUNT // BATCH - 4

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.rows)


class Noisy(Items):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x + np.random.random(x.shape).astype(np.float32), y


class NoisyWithoutEffect(Noisy, WithoutEffect):
    pass


class Shrinking(Items):
    def __getitem__(self, index: int) -> Any:
        self.size = 2 if index == len(self) - 1 else self.size
        return super().__getitem__(index)


class DrawnAtTheBegin(Items):
    def on_epoch_begin(self) -> None:
        np.random.shuffle(self.rows)


class Turning(Items):
    last = 0

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        last, self.last = self.last, index
        return x + np.float32(last), y


class Memo(Items):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        return self.seen.setdefault(index, super().__getitem__(index))


class Drawn(Items):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[0], Y[self.rows[BATCH * index :][:BATCH]] + 10 * self.draw

    draw = 0

    def on_epoch_end(self) -> None:
        self.draw += 1


def archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(), "w")


class FromAFile(Items):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file, self.reader = archive(), types.SimpleNamespace(file=archive())

    def __del__(self) -> None:
        self.file.close()


class OpenedLate(Items):
    file: Any = None

    def __getitem__(self, index: int) -> Any:
        self.file = self.file or archive()
        return super().__getitem__(index)


class Samples:
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return X[index], Y[index]


def generator_of_items() -> Iterator[Any]:
    items = Shuffled()
    return (items[index] for index in range(len(items)))


def cases(table: dict[str, Any]) -> list[Any]:
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), id=name) for name, row in table.items()]


NEW, ANOTHER_Y = "samples that the first had not", "had another y than before"
FAULTS: dict[str, tuple[Any, str]] = {
    "a training part behind a shuffle": (lambda: tensors().shuffle(COUNT).take(32).map(flipped).batch(BATCH), NEW),
    "a validation part of batches behind a shuffle": (lambda: tensors().shuffle(COUNT).batch(BATCH).skip(6), NEW),
    "images and masks that are shuffled apart": (apart, ANOTHER_Y),
    "numbers of Python that are drawn once": (lambda: tensors().map(by_python).batch(BATCH), "`by_python` ("),
    "numbers of a generator that are drawn once": (by_a_generator, "only once, to trace it"),
    "targets that are drawn anew": (Drawn(), "48 of 48 samples that came again had another y"),
    "a batch that sets a size": (
        Shrinking(), "`Shrinking[0]` is another one after `Shrinking[11]` was asked for: it sets"),
    "the same by a function": (Shrinking, "it sets `size`"),
    "a batch that depends on the one before": (Turning(), "`Turning[0]` is another one after `Turning[11]`"),
    "random changes that a cache keeps": (
        lambda: tensors().map(flipped).cache().shuffle(COUNT).batch(BATCH), "`cache()` keeps"),
}  # fmt: skip


@pytest.mark.parametrize(("dataset", "said"), cases(FAULTS))
def test_what_makes_another_training_than_was_meant_is_a_fault(dataset: Any, said: str) -> None:
    (fault,) = looked_at(dataset).faults
    assert said in fault


SOUND: dict[str, Any] = {
    "a part of what is repeated": lambda: tensors().shuffle(COUNT).repeat().take(COUNT).batch(BATCH),
    "images and masks that are shuffled together": together,
    "samples that a cache keeps": lambda: tensors().cache().shuffle(COUNT).map(flipped).batch(BATCH),
    "a PyDataset with random changes": Noisy(),
    "a PyDataset that remembers": Memo(),
    "a PyDataset that opens its file late": OpenedLate(),
    "a generator": lambda: ((X[at : at + BATCH], Y[at : at + BATCH]) for at in range(0, COUNT, BATCH)),
    "a loader": lambda: DataLoader(Samples(), num_workers=2),
}


@pytest.mark.parametrize("dataset", cases(SOUND))
def test_sound_datasets_have_no_faults(dataset: Any) -> None:
    found = looked_at(dataset)
    assert (found.faults, found.hidden) == ((), isinstance(dataset, Noisy))
    assert not any("sample weight" in note for note in found.notes)


class Tossing(Items):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x * np.random.choice([1, -1]), y


def test_a_coin_for_each_batch_is_no_fault_though_it_comes_out_alike_at_first() -> None:
    for seed in range(8):
        np.random.seed(seed)
        assert looked_at(Tossing()).faults == ()


def test_what_follows_x_is_its_y_if_the_model_has_a_loss() -> None:
    """Two kinds of images of a model whose `train_step` computes the loss belong to nothing."""
    for loss in ("mse", None):
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", loss)
        assert len(looked_at(apart, model=lambda model=model: model).faults) == (loss is not None)


def of_grain() -> Any:
    grain = pytest.importorskip("grain")  # there in `make test`; not with the oldest and newest frameworks
    return grain.MapDataset.source(list(range(COUNT))).seed(0).shuffle().map(lambda row: (X[row], row)).batch(BATCH)


ALIKE = "the same in both epochs"
NOTES: dict[str, tuple[Any, list[str]]] = {
    "tf.data in order, with random changes": (in_order, [f"{ALIKE}, which have them in the same order"]),
    "batches that are shuffled as they are": (lambda: tensors().batch(BATCH).shuffle(COUNT), ["`shuffle` comes after"]),
    "an order that a cache keeps": (
        lambda: tensors().map(lambda x, y: (x / 2, y)).shuffle(COUNT).batch(BATCH).cache(),
        ["keeps the order of the `shuffle`", ALIKE]),
    "a PyDataset whose batches Keras shuffles": (Items(), [f"{ALIKE}, which have them in another order"]),
    "an `on_epoch_end` without effect": (WithoutEffect(), ["`WithoutEffect.on_epoch_end` has no effect"]),
    "an order that nothing reads, beside random changes": (
        NoisyWithoutEffect(), ["`NoisyWithoutEffect.on_epoch_end` draws `order` anew, which no other method reads"]),
    "an `on_epoch_end` that a generator does not call": (generator_of_items, ["`Shuffled.on_epoch_end` has no effect"]),
    "a PyDataset that is shuffled": (Shuffled(), []),
    "a dataset of Grain that ends": (of_grain, ["Grain orders and draws anew only in data that go on"]),
    "a PyDataset of another part in each epoch": (OtherPart(), ["If this is one part of a split"]),
    "targets that always come in the same order": (lambda: DataLoader(Samples()), [f"{ALIKE}"]),
}  # fmt: skip


def test_an_order_that_is_drawn_and_never_read_is_told() -> None:
    for kind, is_told in ((WithoutEffect, True), (Shuffled, False), (Reordered, False)):
        (dataset := kind()).on_epoch_end()
        assert ("draws `order` anew" in str(epochs.orders_nothing(dataset))) is is_told


@pytest.mark.parametrize("draws", [True, False])
def test_random_numbers_are_looked_for_in_epochs_of_grain_that_were_read(*, draws: bool) -> None:
    def make() -> Any:
        grain = pytest.importorskip("grain")
        rows = grain.MapDataset.source(list(range(COUNT))).seed(0).shuffle()
        noise = rows.random_map(lambda row, rng: (X[row] + rng.random() * draws, row))
        return noise.batch(COUNT // grain_data.ENOUGH_BATCHES)

    (found,) = looked_at(make).agreements
    assert (found.random is not None) is draws
    assert looked_at(of_grain().repeat(), steps=COUNT // BATCH).faults == ()


@pytest.mark.parametrize(("dataset", "said"), cases(NOTES))
def test_what_is_worth_to_know_is_a_note(dataset: Any, said: list[str]) -> None:
    found = looked_at(dataset)
    assert found.faults == ()
    assert [words in note for words, note in zip(said, found.notes, strict=True)] == [True] * len(said)


def without_order() -> Any:
    options = tf.data.Options()
    options.deterministic = False
    return tensors().shuffle(COUNT).batch(BATCH).with_options(options)


def test_what_is_worth_to_know_is_a_note_beside_others() -> None:
    others = " ".join(looked_at(Shuffled()).notes)
    for dataset, said in ((Memo, "`Memo.seen` grows with the batches"), (without_order, "no fixed order")):
        assert (sum(said in note for note in looked_at(dataset).notes), said in others) == (1, False)


@pytest.mark.filterwarnings("ignore:Keras .* starts its workers:autopipe.errors.DataWarning")
def test_a_race_between_workers_and_a_draw_is_called_one_where_keras_has_it() -> None:
    said = "starts its workers before it calls `DrawnAtTheBegin.on_epoch_begin`"
    for workers, raced in ((1, False), (2, not frameworks.draws_by_epoch())):
        faults = looked_at(DrawnAtTheBegin(workers=workers)).faults
        assert [said in each for each in faults] == [True] * raced


class InTurns(Items):
    """As in many scripts: images and masks of two iterators, whatever the index."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.images, self.masks = itertools.cycle(X), itertools.cycle(Y)

    def __getitem__(self, index: int) -> Any:
        return tuple(np.stack([next(each) for _ in range(BATCH)]) for each in (self.images, self.masks))


def test_a_dataset_that_takes_the_next_of_iterators_has_one_worker_and_is_told_so() -> None:
    with pytest.warns(DataWarning, match=r"does not use its index: it takes the next of `images`, `masks`"):
        workload = wrap.wrap(InTurns())
    assert not workload.data.by_index  # type: ignore[attr-defined]
    with pytest.warns(DataWarning):
        assert ["`self.images[index]`" in each for each in looked_at(InTurns).faults] == [True]
    assert wrap.wrap(Items()).data.by_index  # type: ignore[attr-defined]


def test_of_an_epoch_that_is_no_pass_the_distinct_samples_are_counted_without_random_changes() -> None:
    tf.random.set_seed(1)  # in one of a hundred orders the random changes hide no sample
    found = looked_at(lambda: tensors().repeat().map(flipped).shuffle(4 * COUNT).batch(BATCH), COUNT // BATCH)
    mixed, note = found.notes
    assert mixed.startswith("`shuffle` follows `repeat`")
    assert "of its 48 samples are distinct, but for random changes" in note
    assert 12 < int(note.split("counts: ")[1].split()[0]) < COUNT
    assert (found.agreements[0].is_pass, found.hidden) == (False, False)


def test_samples_that_a_changed_size_loses_are_counted_and_looking_changes_nothing_of_a_users_object() -> None:
    random.seed(1)  # by which Keras draws the order
    shrinking = Shrinking()
    assert any("of 46 samples" in note for note in looked_at(shrinking).notes)
    assert (shrinking.size, len(shrinking[0][0])) == (BATCH, BATCH)


@pytest.mark.parametrize("forks", [True, False])
def test_an_open_file_that_forked_workers_share_is_a_fault_and_what_does_not_pickle_is_named(forks: bool) -> None:
    found = looked_at(FromAFile(workers=2, use_multiprocessing=forks))
    said = "`FromAFile.file`, `FromAFile.reader.file`: worker processes that are forked share an open file"
    assert [said in each for each in found.faults] == [True] * forks
    assert [said in each for each in found.notes[:1]] == [not forks]
    assert any("`FromAFile.file`, `FromAFile.reader` cannot be pickled" in note for note in found.notes)


def test_a_file_that_each_process_opens_itself_is_not_shared_and_a_look_does_not_close_the_users() -> None:
    assert looked_at(late := OpenedLate()).notes[1:] == ()
    assert (pickling.open_files(late), len(late[0][0]), pickling.open_files(late)) == ([], BATCH, ["file"])
    looked_at(used := FromAFile())
    gc.collect()
    used.file.writestr("still", "open")
    assert pickling.open_files(used) == ["file", "reader.file"]


@pytest.mark.parametrize(("buffer", "said"), [(6, True), (COUNT, False), (1, False)])
def test_a_shuffle_that_mixes_only_neighbours_of_sorted_data_is_a_note(buffer: int, said: bool) -> None:
    def dataset() -> Any:
        return tf.data.Dataset.from_tensor_slices((X, np.sort(Y))).shuffle(buffer, seed=3).batch(BATCH)

    assert any("different y" in note for note in looked_at(dataset).notes) == said


# -------------------- samples that are made and thrown away


THROWN: dict[str, tuple[Any, str | None]] = {
    "filter": (lambda: files().map(decoded).filter(lambda x, number: number % 4 == 0), "75%"),
    "first": (lambda: files().filter(lambda number, png: number % 4 == 0).map(decoded), None),
    "skipped": (lambda: files().map(decoded).batch(4).skip(75).repeat(), r"4\d%"),
    "none": (lambda: files().map(decoded).batch(4), None),
}


def after_batches(tell: Callable[..., str | None], dataset: Any) -> str | None:
    iterator = iter(dataset)
    for _ in range(100):
        next(iterator)
    return tell(iterator, dataset)


@pytest.mark.parametrize(("dataset", "share"), cases(THROWN))
def test_samples_that_a_filter_throws_away_once_they_are_made_are_counted(
    dataset: Callable[[], Any], share: str | None
) -> None:
    said = (after_batches(lambda iterator, _: tfdata.thrown_away(iterator), dataset()) for _ in range(5))
    if share is None:  # where the machine stands still, a step that costs nothing takes long
        assert None in said
    else:
        assert re.search(f"throws away {share} of the samples", str(next(said)))


# A part of a function for which tf.data does not call it several times at once by itself.
STATEFUL = functools.partial(tf.random.uniform, (), 0, 2, tf.int64)


def test_a_costly_map_that_makes_one_element_after_the_other_is_told() -> None:
    def told(dataset: Any) -> Iterator[bool]:
        return (after_batches(tfdata.one_by_one, dataset) is not None for _ in range(5))

    assert next(told(files().map(lambda number, png: decoded(number + STATEFUL(), png))))
    assert next(told(tf.data.Dataset.range(9).interleave(lambda _: files().map(decoded), cycle_length=3).batch(8)))
    for dataset in (files().map(decoded, 2), files().map(lambda number, png: number + STATEFUL())):
        assert False in told(dataset)  # a machine may stand still


def test_a_map_of_many_small_elements_is_told_to_take_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, elements, microseconds, said in (
        ("MapAndBatch", 3, 33, True),
        ("ParallelMapV2", 384, 33, True),  # before it
        ("ParallelMapV2", 3, 33, False),  # behind it
        ("Map", 384, 500, False),  # a costly one
    ):
        times = {"Root": (3, 9_000), name: (elements, 384_000 * microseconds), "Shuffle": (9_000, 20_000_000)}
        nodes = [types.SimpleNamespace(name=name, num_elements=n, processing_time=t) for name, (n, t) in times.items()]
        monkeypatch.setattr(tfdata, "nodes_of", lambda _, nodes=nodes: dict(enumerate(nodes)))
        assert (f"takes {microseconds} us for each element" in str(tfdata.one_for_each(None, 128))) == said
