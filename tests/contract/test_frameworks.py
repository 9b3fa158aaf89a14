"""What `autopipe.frameworks` takes for granted of Keras, TensorFlow and JAX: each test fails on a version that differs.

How whole trainings come out on each backend is in `test_device_strategies`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.trainers.data_adapters import data_adapter, py_dataset_adapter

from autopipe import frameworks
from autopipe.errors import FrameworkError, FrameworkWarning
from autopipe.frameworks import tfdata
from autopipe.hardware.gpu import BACKENDS
from tests.fakes.commands import ROOT, python, succeeded
from tests.unit.pipeline.devices.models import Ends, KilledError, classifier

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


def test_fit_trains_every_batch_that_an_adapter_gives_and_no_other() -> None:
    opened: list[Iterator[Any]] = []

    def batches() -> Iterator[Any]:
        opened.append(iter([(tf.constant(X[at : at + 2]), tf.constant(Y[at : at + 2])) for at in (0, 2, 4)]))
        return opened[-1]

    model, expected = classifier(), classifier()
    model.fit(frameworks.data_adapter(batches, 3), epochs=2, verbose=0)
    for _ in range(2):
        for at in (0, 2, 4):
            expected.train_on_batch(X[at : at + 2], Y[at : at + 2])
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    loss = model.evaluate(frameworks.data_adapter(batches, 3), verbose=0)
    np.testing.assert_allclose(loss, model.evaluate(X, Y, batch_size=2, verbose=0), rtol=1e-5)
    assert model.predict(frameworks.data_adapter(batches, 3), verbose=0).shape == (6, 3)


def test_an_adapter_can_be_read_in_every_way() -> None:
    adapter = frameworks.data_adapter(lambda: iter([(1, 2)]), 1)
    adapter.on_epoch_begin()
    ways = (adapter.get_tf_dataset, adapter.get_jax_iterator, adapter.get_torch_dataloader, adapter.get_numpy_iterator)
    assert [list(way()) for way in ways] == [[(1, 2)]] * 4
    assert isinstance(adapter.get_tf_dataset(), tf.distribute.DistributedDataset)


def test_a_batch_that_is_taken_before_the_epoch_begins_is_an_error() -> None:
    adapter = frameworks.data_adapter(lambda: iter([(1, 2)]), 1)
    with pytest.raises(FrameworkError, match="takes a batch before the epoch begins"):
        next(adapter.get_numpy_iterator())


@pytest.mark.usefixtures("fresh")
def test_a_reader_that_keras_calls_in_another_way_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_jax_iterator(self: Any, super_batch: Any = None, shards: int = 1) -> None:
        pass

    monkeypatch.setattr(data_adapter.DataAdapter, "get_jax_iterator", get_jax_iterator)
    with pytest.raises(FrameworkError, match=r"asks for DataAdapter\.get_jax_iterator\(shards=\.\.\.\)"):
        frameworks.data_adapter(lambda: iter(()), 1)


def test_a_py_dataset_is_read_epoch_by_epoch() -> None:
    adapter = frameworks.py_dataset_adapter(Sequence())
    assert adapter.num_batches == 3
    for _ in range(2):
        adapter.on_epoch_begin()
        np.testing.assert_array_equal(np.concatenate([x for x, _ in adapter.get_numpy_iterator()]), X)
        adapter.on_epoch_end()


def test_texts_that_a_dataset_is_made_from_are_found_behind_its_transformations() -> None:
    named = tf.data.Dataset.from_tensor_slices((["a", "b"], [1, 2])).shuffle(2).map(lambda text, number: text)
    both = tf.data.Dataset.zip((named.batch(2), tf.data.Dataset.range(2))).prefetch(1)
    assert [list(each) for each in tfdata.texts(both)] == [[b"a", b"b"]]
    assert [list(tfdata.texts(each)) for each in (tf.data.Dataset.range(2), None, X)] == [[], [], []]


def test_a_shuffle_of_paths_fills_no_buffer_that_matters() -> None:
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


def test_layers_are_found_in_layers() -> None:
    inner = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(1)])
    outer = keras.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5), inner])
    found = [type(layer).__name__ for layer in frameworks.layers(outer)]
    assert (found.count("Dense"), found.count("Dropout"), found.count("Sequential")) == (2, 1, 2)


def test_layers_that_draw_are_told_from_those_that_do_not() -> None:
    assert frameworks.random_layer(keras.layers.RandomFlip()) == "RandomFlip"
    assert frameworks.random_layer(keras.layers.Dropout(0.5)) == "Dropout"
    assert frameworks.random_layer(keras.layers.Rescaling(2.0)) is None
    assert frameworks.random_layer(abs) is None


def test_shapes_are_known_without_computing() -> None:
    spec = frameworks.output_spec(lambda x: keras.ops.sum(x, axis=1), keras.KerasTensor((4, 5, 6)))
    assert tuple(spec.shape) == (4, 6)


def test_a_model_that_is_being_trained_is_not_built_once_more() -> None:
    class Shared:
        _distribute_strategy = "of several devices"

        def __init__(self) -> None:
            self.built_of: list[int] = []

        def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
            self.built_of.append(data_batch)

        _maybe_symbolic_build = _symbolic_build

    model = Shared()
    with frameworks.built(model, 1):
        with frameworks.built(model, 2):  # a callback evaluates it
            model._symbolic_build(data_batch=3)
        model._maybe_symbolic_build(data_batch=4)  # Keras's own call, which would take a batch of the training's
    model._symbolic_build(data_batch=5)
    assert model.built_of == [1, 5]


def test_each_compilation_is_another() -> None:
    model = classifier()
    first = frameworks.compilation(model)
    assert frameworks.compilation(model) is first
    model.compile("sgd", "mse")
    assert frameworks.compilation(model) is not first


def test_a_loss_is_new_until_it_has_compared() -> None:
    model = classifier()
    assert frameworks.loss_is_new(model)
    model.train_on_batch(X, Y)
    assert not frameworks.loss_is_new(model)


def test_a_restored_epoch_is_told_once_with_the_batches_behind_it(tmp_path: Path) -> None:
    backup = keras.callbacks.BackupAndRestore(str(tmp_path), save_freq=2)
    with pytest.raises(KilledError):
        classifier().fit(X, Y, batch_size=1, callbacks=[backup, Ends(5)], verbose=0)
    model, again = classifier(), keras.callbacks.BackupAndRestore(str(tmp_path), save_freq=2)
    assert frameworks.take_restored_epoch(model) is None
    again.set_model(model)
    again.on_train_begin()
    assert [frameworks.take_restored_epoch(model) for _ in range(2)] == [0, None]
    assert frameworks.batches_backed_up(again, 0) == 4


def test_logs_are_read_later_unless_a_callback_wants_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.src.backend, "IS_THREAD_SAFE", True)  # as on JAX

    class EachBatch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            pass

    assert frameworks.reads_logs_later(keras.callbacks.CallbackList([keras.callbacks.History()]))
    assert not frameworks.reads_logs_later(keras.callbacks.CallbackList([EachBatch()]))


@pytest.mark.slow  # processes that import a framework
@pytest.mark.parametrize(
    ("package", "runs", "named"),
    [("tensorflow as f", "f.constant(0)", "TensorFlow"), ("jax.numpy as f", "f.zeros(1) + 1", "JAX")],
)
def test_a_framework_is_running_once_it_has_computed(package: str, runs: str, named: str) -> None:
    lines = (
        "from autopipe import frameworks",
        "before = frameworks.running_framework()",
        f"import {package}",
        "imported = frameworks.running_framework()",
        runs,
        "print(before, imported, frameworks.running_framework())",
    )
    done = succeeded(python("-c", "\n".join(lines), cwd=ROOT))
    assert done.stdout.split() == ["None", "None", named]


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


def test_a_module_that_is_gone_is_told_likewise() -> None:
    with pytest.raises(FrameworkError, match=r"has no keras\.src\.nowhere"):
        frameworks.imported("keras", "src.nowhere", "Thing")


def test_a_version_that_was_not_tested_is_warned_of_once(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setattr(keras, "__version__", "99.1")
    with pytest.warns(FrameworkWarning, match=r"not tested with keras 99\.1 \(tested: >=.*,<.*\).* run: ") as told:
        [frameworks.data_adapter(lambda: iter(()), 1) for _ in range(2)]
    assert len(told) == 1


def test_nothing_private_is_used_elsewhere() -> None:
    private = re.compile(
        r"keras\.src|jax\._src|tensorflow\.python|[.\"](_flatten_layers|_symbolic_build|_compile_config|_compile_loss"
        r"|_initial_epoch|_async_train|_distribute_strategy|_training_metadata_path|_current_epoch)\b"
    )
    package = Path(frameworks.__file__).parents[1]
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if private.search(path.read_text())}
    assert found == {f"frameworks/{name}.py" for name in ("__init__", "hooks")}


def test_all_that_a_training_step_changes_is_held_by_the_model() -> None:
    model = classifier()
    model.fit(X, Y, verbose=0)
    held = {id(variable) for variable in frameworks.held_variables(model)}
    assert {
        id(variable) for variable in (*model.variables, *model.optimizer.variables, *model.metrics_variables)
    } <= held


def test_the_training_function_takes_this_state_and_an_iterator_over_batches() -> None:
    model = classifier()
    model.fit(X, Y, verbose=0)
    result = model.train_function(*frameworks.step_state(model, "optimizer", "metrics"), iter([(X, Y)]))
    logs = result[0] if frameworks.step_state(model, "optimizer", "metrics") else result
    assert "loss" in logs


def test_keras_has_the_backends_that_are_taken_as_its_own() -> None:
    folders = Path(next(iter(keras.src.backend.__path__))).iterdir()
    own = {each.name for each in folders if (each / "__init__.py").is_file()} - {"common", "tests"}
    assert own == set(BACKENDS)


def test_random_ops_get_other_seeds_and_orders_keep_theirs() -> None:
    @tf.function
    def traced() -> Any:
        return tf.random.uniform((), seed=1)

    def numbers() -> list[list[float]]:
        data = tf.data.Dataset.range(8)
        maps: tuple[Callable[[Any], Any], ...] = (
            lambda _: tf.random.uniform((), seed=1),
            lambda at: tf.random.stateless_uniform((), (at, 2)),
            lambda at: keras.random.uniform((), seed=3),
            lambda _: traced(),
        )
        return [[float(each) for each in data.map(change)] for change in maps]

    def order() -> list[int]:
        return [int(each) for each in tf.data.Dataset.range(8).shuffle(8, seed=1)]

    before = numbers(), order()
    assert (numbers(), order()) == before
    with tfdata.other_seeds():
        assert order() == before[1]
        assert all(not set(other) & set(each) for other, each in zip(numbers(), before[0], strict=True))
    assert (numbers(), order()) == before


def test_ops_that_are_traced_give_constant_numbers_and_those_that_run_at_once_do_not() -> None:
    def drawn(_: Any) -> Any:
        seed = tf.random.uniform((2,), 0, 1000, tf.int32)
        layer = keras.random.uniform((3,))
        return tf.concat(
            (
                tf.random.uniform((3,)),
                tf.random.normal((3,)),
                tf.random.truncated_normal((3,)),
                tf.random.stateless_uniform((3,), seed),
                layer,
            ),
            0,
        )

    def different() -> int:
        return len({x.tobytes() for x in tf.data.Dataset.range(6).map(drawn).as_numpy_iterator()})

    with tfdata.constant_numbers():
        assert different() == 1
        assert len({float(tf.random.uniform(())) for _ in range(6)}) == 6
        order = tf.data.Dataset.range(20).shuffle(20)
        assert list(order.as_numpy_iterator()) != list(order.as_numpy_iterator())
    assert different() == 6


def test_a_dataset_tells_what_it_is_made_from_and_whether_it_is_a_part_that_changes() -> None:
    for usual, anew in ((True, True), (None, True), (False, False)):
        shuffled = tf.data.Dataset.range(8).shuffle(8, reshuffle_each_iteration=usual)
        made = tf.data.Dataset.zip((shuffled.take(4), tf.data.Dataset.range(4)))
        assert dict(tfdata.dataset_ops(made))[shuffled] == ("TakeDataset", "ZipDataset")
        assert tfdata.splits_anew(made) is anew
        assert not tfdata.splits_anew(shuffled.repeat().take(8))
    assert not tfdata.splits_anew(Sequence())


@pytest.mark.parametrize(
    ("dataset", "mixes"),
    [
        (tf.data.Dataset.range(40).repeat().shuffle(40, seed=1), True),
        (tf.data.Dataset.range(40).repeat().map(lambda x: x).shuffle(40, seed=1), True),
        (tf.data.Dataset.range(40).shuffle(40, seed=1).repeat(), False),
        (tf.data.Dataset.range(20).repeat(2).shuffle(40, seed=1).repeat(), False),
    ],
)
def test_epochs_that_a_shuffle_mixes_are_seen_and_lack_samples(dataset: Any, mixes: bool) -> None:
    first = [int(x) for x in dataset.take(40).as_numpy_iterator()]
    assert (len(set(first)) < len(set(dataset.take(400).as_numpy_iterator()))) is mixes
    assert tfdata.mixes_epochs(dataset) is mixes
    of_classes = [tf.data.Dataset.range(8).repeat(), tf.data.Dataset.range(8, 16).repeat()]
    assert not tfdata.mixes_epochs(tf.data.Dataset.sample_from_datasets(of_classes).shuffle(8))


@pytest.mark.parametrize(
    ("steps", "kept"),
    [("bs", True), ("bms", True), ("sb", False), ("sbs", False), ("b", False), ("bsb", False), ("busb", False)],
)
def test_a_shuffle_of_whole_batches_is_seen_and_keeps_their_samples(steps: str, kept: bool) -> None:
    data = tf.data.Dataset.range(16)
    for step in steps:
        data = {
            "b": data.batch(2),
            "m": data.map(lambda x: x),
            "s": data.shuffle(16, seed=1),
            "u": data.unbatch() if data.element_spec.shape.rank else data,
        }[step]
    assert tfdata.shuffles_batches(data) is kept
    if kept:
        assert all({*map(tuple, data.as_numpy_iterator())} == {(x, x + 1) for x in range(0, 16, 2)} for _ in range(2))


def _flipped(x: Any) -> Any:
    return tf.image.random_flip_left_right(x)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda data: data.shuffle(4).cache().map(_flipped), ["lists", "order"]),
        (lambda data: data.shuffle(4).map(tf.negative).batch(2).cache().prefetch(1), ["order"]),
        (lambda data: data.shuffle(4).map(_flipped).snapshot("kept").batch(2), ["changes", "order"]),
        (lambda data: data.shuffle(4).map(tf.negative).cache().shuffle(4), []),
        (lambda data: data.shuffle(4, reshuffle_each_iteration=False).map(tf.negative).cache(), []),
        (lambda data: data.map(_flipped).batch(2).cache().prefetch(1), ["changes"]),
        (lambda data: data.map(tf.function(_flipped)).cache(), ["changes"]),
        (lambda data: data.map(_flipped).repeat().batch(2).cache().prefetch(1), ["endless"]),
        (lambda data: data.map(lambda x: x / 255).repeat(2).cache(), []),
        (lambda data: data.batch(2).map(keras.layers.RandomFlip()).cache(), ["changes"]),
        (lambda data: data.map(tf.negative).cache().map(_flipped), []),
        (lambda data: data.map(keras.layers.Rescaling(2)).cache(), []),
        (lambda data: data.map(lambda x: tf.image.stateless_random_flip_left_right(x, (1, 2))).cache(), []),
    ],
)
def test_a_cache_of_lists_of_random_changes_or_of_an_order_is_seen(change: Any, kinds: list[str]) -> None:
    assert list(tfdata.cached(change(tf.data.Dataset.from_tensor_slices(np.zeros((4, 6, 6, 3), np.float32))))) == kinds
    assert not list(tfdata.cached(Sequence()))


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda data: data.cache().take(6), True),
        (lambda data: data.cache().batch(4).take(3).prefetch(1), True),
        (lambda data: data.take(6).cache(), False),
        (lambda data: data.cache().take(40), False),
        (lambda data: data.cache().shuffle(40).take(6), False),  # the shuffle has read it to its end
        (lambda data: data.cache().repeat().take(80), False),
    ],
)
def test_a_cache_that_is_thrown_away_is_seen_and_makes_its_samples_again(change: Any, lost: bool) -> None:
    made = list[int]()

    def load(x: Any) -> Any:
        made.append(int(x))
        return x

    data = tf.data.Dataset.range(40).map(lambda x: tf.numpy_function(load, [x], x.dtype))
    changed = change(data)
    for _ in range(2):
        list(changed)
    assert tfdata.loses_cache(changed) is lost
    assert (len(made) > len(set(made))) is lost


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        (lambda x: x.shuffle(9), lambda y: y.shuffle(9), True),
        (lambda x: x.shuffle(9, seed=1), lambda y: y.shuffle(9, seed=2), True),
        (lambda x: x.shuffle(9, seed=1), lambda y: y.shuffle(9, seed=1).batch(1), False),
        (lambda x: x.shuffle(9), lambda y: y, False),
        (lambda x: x.shuffle(9).map(lambda value: (value, value)), lambda y: y.shuffle(9), False),  # a pair already
        (lambda x: x.shuffle(9), lambda y: y.map(lambda value: tf.cast(value, tf.int64)).shuffle(9), False),  # one kind
    ],
)
def test_parts_that_are_zipped_and_were_shuffled_each_on_its_own_are_seen(first: Any, second: Any, apart: bool) -> None:
    x = tf.data.Dataset.range(9)
    y = x.map(lambda value: tf.cast(value, tf.float32))
    zipped = tf.data.Dataset.zip((first(x), second(y))).batch(2)
    assert tfdata.zips_apart(zipped) is apart
    assert not tfdata.zips_apart(tf.data.Dataset.zip((x, y)).shuffle(9))
