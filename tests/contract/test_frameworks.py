"""What `autopipe.frameworks` takes for granted of Keras and TensorFlow: each test fails on a version that differs."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters import data_adapter, py_dataset_adapter

from autopipe import frameworks
from autopipe.errors import FrameworkError, FrameworkWarning
from autopipe.frameworks import tfdata
from tests.fakes.commands import ROOT, python, succeeded

X = np.arange(6 * 48, dtype=np.float32).reshape(6, 4, 4, 3)
Y = np.arange(6) % 3


@pytest.fixture
def fresh() -> Iterator[None]:
    """Have the adapter's class made anew, in the test and after it."""
    frameworks._adapter_class.cache_clear()
    yield
    frameworks._adapter_class.cache_clear()


class Sequence(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[2 * index :][:2], Y[2 * index :][:2]


def test_an_adapter_can_be_read_in_every_way_once_the_epoch_has_begun() -> None:
    adapter = frameworks.data_adapter(lambda: iter([(1, 2)]), 1)
    adapter.on_epoch_begin()
    ways = (adapter.get_tf_dataset, adapter.get_jax_iterator, adapter.get_torch_dataloader, adapter.get_numpy_iterator)
    assert [list(way()) for way in ways] == [[(1, 2)]] * 4
    assert isinstance(adapter.get_tf_dataset(), tf.distribute.DistributedDataset)
    adapter = frameworks.data_adapter(lambda: iter([(1, 2)]), 1)
    with pytest.raises(FrameworkError, match="takes a batch before the epoch begins"):
        next(adapter.get_numpy_iterator())


def test_what_a_dataset_is_made_from_and_reads_ahead_is_found_behind_its_transformations() -> None:
    named = tf.data.Dataset.from_tensor_slices((["a", "b"], [1, 2])).shuffle(2).map(lambda text, number: text)
    both = tf.data.Dataset.zip((named.batch(2), tf.data.Dataset.range(2))).prefetch(1)
    assert [list(each) for each in tfdata.texts(both)] == [[b"a", b"b"]]
    assert [list(tfdata.texts(each)) for each in (tf.data.Dataset.range(2), None, X)] == [[], [], []]
    paths = tf.data.Dataset.from_tensor_slices((["a", "b"], [1, 2]))
    orders = [paths.shuffle(2), paths.shuffle(2, reshuffle_each_iteration=False), paths.shuffle(2).cache(), None]
    assert [tfdata.shuffles_anew(each) for each in orders] == [True, False, False, False]
    assert tfdata.batches_ahead(paths.prefetch(9).batch(2).prefetch(3).repeat()) == 3
    assert tfdata.batches_ahead(paths.batch(2).prefetch(tf.data.AUTOTUNE)) == 0
    assert tfdata.shuffle_buffer(paths.shuffle(2).map(lambda path, number: path)) is None
    assert tfdata.shuffle_buffer(paths.map(lambda path, number: path).shuffle(3)) == (2, None)  # all there are
    assert tfdata.shuffle_buffer(paths.cache().repeat().shuffle(2)) is None
    assert tfdata.shuffle_buffer(tf.data.Dataset.from_tensor_slices(X).shuffle(5)) == (5, 5 * X[0].nbytes)
    assert tfdata.shuffle_buffer(tf.data.Dataset.from_tensor_slices(X).shuffle(5).cache().batch(2)) is None
    every = len(X)
    assert tfdata.shuffle_buffer(tf.data.Dataset.from_tensor_slices(X).shuffle(9 * every)) == (every, X.nbytes)


RUNS = [("tensorflow as f", "f.constant(0)", "TensorFlow"), ("jax.numpy as f", "f.zeros(1) + 1", "JAX")]


@pytest.mark.slow  # processes that import a framework
@pytest.mark.parametrize(("package", "runs", "named"), RUNS)
def test_a_framework_is_running_once_it_has_computed(package: str, runs: str, named: str) -> None:
    asked = "print(frameworks.running_framework())"
    lines = "from autopipe import frameworks", asked, f"import {package}", asked, runs, asked
    assert succeeded(python("-c", "\n".join(lines), cwd=ROOT)).stdout.split() == ["None", "None", named]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (data_adapter, "DataAdapter", lambda: frameworks.data_adapter(lambda: iter(()), 1)),
        (py_dataset_adapter, "PyDatasetAdapter", lambda: frameworks.py_dataset_adapter(Sequence())),
        (keras.src.backend, "compute_output_spec", lambda: frameworks.output_spec(abs)),
        (keras.Layer, "_flatten_layers", lambda: frameworks.layers(keras.Layer())),
    ],
)
def test_what_is_gone_is_told_with_the_versions_that_work(
    owner: Any, name: str, call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(FrameworkError, match=rf"autopipe works with keras.*has no .*\.{name}") as error:
        call()
    assert keras.__version__ in str(error.value)
    assert re.fullmatch(r"Run: .*pip install.* 'keras\S+'", str(error.value.hint))
    with pytest.raises(FrameworkError, match=r"has no keras\.src\.nowhere"):
        frameworks.imported("keras", "src.nowhere", "Thing")


def test_a_version_that_was_not_tested_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setattr(keras, "__version__", "99.1")
    with pytest.warns(FrameworkWarning, match=r"not tested with keras 99\.1 \(tested: >=.*,<.*\).* run: ") as told:
        [frameworks.data_adapter(lambda: iter(()), 1) for _ in range(2)]
    assert len(told) == 1


def test_ops_that_are_traced_give_constant_numbers_and_those_that_run_at_once_do_not() -> None:
    def drawn(_: Any) -> Any:
        seed = tf.random.uniform((2,), 0, 1000, tf.int32)
        of_seed = tf.random.stateless_uniform((3,), seed)
        others = [draw((3,)) for draw in (tf.random.uniform, tf.random.normal, tf.random.truncated_normal)]
        return tf.concat((*others, of_seed, keras.random.uniform((3,))), 0)

    def different() -> int:
        return len({x.tobytes() for x in tf.data.Dataset.range(6).map(drawn).as_numpy_iterator()})

    with tfdata.constant_numbers():
        assert different() == 1
        assert len({float(tf.random.uniform(())) for _ in range(6)}) == 6
        order = tf.data.Dataset.range(20).shuffle(20)
        assert list(order.as_numpy_iterator()) != list(order.as_numpy_iterator())
    assert different() == 6


NUMBERS = tf.data.Dataset.range(40)
IMAGES = tf.data.Dataset.from_tensor_slices(np.zeros((4, 6, 6, 3), np.float32))
TWO_CLASSES = [tf.data.Dataset.range(8).repeat(), tf.data.Dataset.range(8, 16).repeat()]


def flipped(x: Any) -> Any:
    return tf.image.random_flip_left_right(x)


def parts(usual: bool | None) -> Any:
    order = NUMBERS.shuffle(8, reshuffle_each_iteration=usual)
    return tf.data.Dataset.zip((order.take(4), NUMBERS.take(4)))


def zipped(first: Any, second: Any) -> Any:
    return tf.data.Dataset.zip((first(NUMBERS), second(NUMBERS.map(lambda x: tf.cast(x, tf.float32))))).batch(2)


def shuffled(data: Any, seed: int | None = None) -> Any:
    return data.shuffle(40, seed=seed)


SEEN: list[tuple[Callable[[Any], Any], Any, Any]] = [
    (tfdata.mixes_epochs, shuffled(NUMBERS.repeat()), True),
    (tfdata.mixes_epochs, shuffled(NUMBERS).repeat(), False),
    (tfdata.mixes_epochs, shuffled(NUMBERS.repeat(2)).repeat(), False),
    (tfdata.mixes_epochs, shuffled(tf.data.Dataset.sample_from_datasets(TWO_CLASSES)), False),
    (tfdata.shuffles_batches, shuffled(NUMBERS.batch(2)), True),
    (tfdata.shuffles_batches, shuffled(NUMBERS.batch(2).map(lambda x: x)), True),
    (tfdata.shuffles_batches, shuffled(NUMBERS).batch(2), False),
    (tfdata.shuffles_batches, shuffled(shuffled(NUMBERS).batch(2)), False),
    (tfdata.shuffles_batches, shuffled(NUMBERS.batch(2)).batch(2), False),
    (tfdata.shuffles_batches, shuffled(NUMBERS.batch(2).unbatch()).batch(2), False),
    (tfdata.cached, shuffled(IMAGES).cache().map(flipped), ["lists", "order"]),
    (tfdata.cached, shuffled(IMAGES).map(tf.negative).batch(2).cache().prefetch(1), ["order"]),
    (tfdata.cached, shuffled(IMAGES).map(flipped).snapshot("kept").batch(2), ["changes", "order"]),
    (tfdata.cached, shuffled(shuffled(IMAGES).map(tf.negative).cache()), []),
    (tfdata.cached, IMAGES.shuffle(4, reshuffle_each_iteration=False).map(tf.negative).cache(), []),
    (tfdata.cached, IMAGES.map(flipped).batch(2).cache().prefetch(1), ["changes"]),
    (tfdata.cached, IMAGES.map(tf.function(flipped)).cache(), ["changes"]),
    (tfdata.cached, IMAGES.map(flipped).repeat().batch(2).cache().prefetch(1), ["endless"]),
    (tfdata.cached, IMAGES.batch(2).map(keras.layers.RandomFlip()).cache(), ["changes"]),
    (tfdata.cached, IMAGES.map(tf.negative).cache().map(flipped), []),
    (tfdata.cached, IMAGES.map(lambda x: tf.image.stateless_random_flip_left_right(x, (1, 2))).cache(), []),
    (tfdata.cached, Sequence(), []),
    (tfdata.loses_cache, NUMBERS.cache().take(6), True),
    (tfdata.loses_cache, NUMBERS.cache().batch(4).take(3).prefetch(1), True),
    (tfdata.loses_cache, NUMBERS.take(6).cache(), False),
    (tfdata.loses_cache, NUMBERS.cache().take(40), False),
    (tfdata.loses_cache, shuffled(NUMBERS.cache()).take(6), False),  # the shuffle has read it to its end
    (tfdata.loses_cache, NUMBERS.cache().repeat().take(80), False),
    *((tfdata.splits_anew, parts(usual), anew) for usual, anew in ((True, True), (None, True), (False, False))),
    (tfdata.splits_anew, shuffled(NUMBERS).repeat().take(8), False),
    (tfdata.splits_anew, Sequence(), False),
    (tfdata.zips_apart, zipped(shuffled, shuffled), True),
    (tfdata.zips_apart, zipped(lambda x: shuffled(x, 1), lambda y: shuffled(y, 2)), True),
    (tfdata.zips_apart, zipped(lambda x: shuffled(x, 1), lambda y: shuffled(y, 1).batch(1)), False),
    (tfdata.zips_apart, zipped(shuffled, lambda y: y), False),
    (
        tfdata.zips_apart,
        zipped(lambda x: shuffled(x).map(lambda value: (value, value)), shuffled),
        False,
    ),  # a pair already
    (tfdata.zips_apart, zipped(shuffled, lambda y: shuffled(y.map(lambda x: tf.cast(x, tf.int64)))), False),  # one kind
    (tfdata.zips_apart, shuffled(tf.data.Dataset.zip((NUMBERS, NUMBERS))), False),
]


@pytest.mark.parametrize(("seen", "dataset", "wanted"), SEEN, ids=range(len(SEEN)))
def test_shuffles_caches_and_zips_that_spoil_what_they_give_are_seen(seen: Any, dataset: Any, wanted: Any) -> None:
    assert (list(seen(dataset)) if isinstance(wanted, list) else seen(dataset)) == wanted
