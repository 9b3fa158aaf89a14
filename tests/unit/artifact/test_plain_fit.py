"""`model.fit(tuned.make_dataset())` trains the trainer's batches. On TensorFlow here, and its heart on JAX by the last.

Not tested: several devices and processes, for which there is the trainer.
"""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import factory
from autopipe.errors import ConfigError
from autopipe.measure import fingerprint
from autopipe.pipeline.devices import feed
from tests.fakes.commands import ROOT, python, succeeded
from tests.fakes.loader import ArrayLoader, blobs
from tests.fakes.profiles import config, profile
from tests.unit.pipeline.devices.models import same_weights

# Keras says so of every tf.data.Dataset, unless `fit` is told shuffle=False.
pytestmark = pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
X, Y = blobs(22)
FLOATS = X.astype(np.float32) / 255


def classifier(**compile_arguments: Any) -> keras.Model:
    """Return a small model, without a metric where order alone counts: its step is compiled in half the time."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, **compile_arguments)
    return model


def compiled() -> keras.Model:
    return classifier(metrics=["accuracy"])


def loader(batch_size: int = 4, **settings: Any) -> ArrayLoader:
    return ArrayLoader(FLOATS, Y, batch_size, **settings)


def by_hand(epochs: int, batch_size: int = 4, class_weight: dict[int, float] | None = None) -> keras.Model:
    """Train on the loader's batches one by one, to compare with."""
    model, source = classifier(), loader(batch_size)
    for epoch in range(epochs):
        for x, y in source.batches(epoch):
            model.train_on_batch(x, y, class_weight=class_weight)
    return model


WORKLOAD = ap.Workload(
    data=ap.Arrays(X, Y), ops=[ap.RandomFlip(), ap.Rescale(1 / 255)], batch_size=4, model=compiled, seed=3
)


def tuned(**settings: Any) -> factory.Tuned:
    return factory.of_profile(
        profile(workload=fingerprint.workload_digest(WORKLOAD), config=config(**settings)), WORKLOAD
    )


def test_it_trains_and_validates_what_the_trainer_does() -> None:
    pipeline, held_out = tuned(finish="device"), ap.Arrays(X[:10], Y[:10])
    with pipeline.make_trainer() as trainer:
        expected = trainer.fit(epochs=2, validation=held_out, verbose=0).history
    model = compiled()
    validation = pipeline.make_dataset(held_out)
    found = model.fit(pipeline.make_dataset(), validation_data=validation, epochs=2, verbose=0).history
    assert same_weights(model, trainer.model)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)
    assert model.predict(validation, verbose=0).shape == (10, 3)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="one import of TensorFlow is enough")
def test_a_loader_of_tf_data_may_feed_it() -> None:
    pipeline = tuned(loader=ap.TfData(num_parallel_calls=2, prefetch=2))
    with pipeline.make_loader() as batches:
        expected = [[np.array(x) for x, _ in batches.epoch(epoch)] for epoch in (0, 1)]
    made = pipeline.make_dataset()
    for epoch in expected:
        for x, (found, _) in zip(epoch, made, strict=True):
            np.testing.assert_array_equal(x, found)


def test_a_dataset_goes_on_where_the_last_fit_stopped() -> None:
    model, batches = classifier(), feed.dataset(loader())
    model.fit(batches, epochs=1, verbose=0)
    model.fit(batches, epochs=3, initial_epoch=1, verbose=0)
    assert same_weights(model, by_hand(3))


def test_a_fresh_one_begins_with_the_epoch_it_is_told() -> None:
    source = loader()
    classifier().fit(feed.dataset(source, 3), initial_epoch=3, epochs=5, verbose=0)
    assert {epoch for epoch, *_ in source.asked} == {3, 4}


@pytest.mark.parametrize(("steps", "epochs"), [pytest.param(2, 2, marks=pytest.mark.slow), (1, 1)])
def test_epochs_of_fit_may_be_parts_of_an_epoch_of_the_data_even_of_one_batch(steps: int, epochs: int) -> None:
    model = classifier()
    model.fit(feed.dataset(loader()), steps_per_epoch=steps, epochs=6, verbose=0)
    assert same_weights(model, by_hand(epochs))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras refuses it there")
def test_several_steps_may_be_one_execution_and_class_weights_count_as_in_keras() -> None:
    weights = {0: 5.0, 1: 0.5, 2: 1.0}
    model = classifier(steps_per_execution=3)
    model.fit(feed.dataset(loader()), epochs=2, class_weight=weights, verbose=0)
    assert same_weights(model, by_hand(2, class_weight=weights))


class _StopsAfter(keras.callbacks.Callback):
    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = batch >= self._batch


def test_an_epoch_that_was_left_is_begun_again() -> None:
    model, batches = classifier(), feed.dataset(loader())
    model.fit(batches, epochs=5, callbacks=[_StopsAfter(1)], verbose=0)
    expected, source = classifier(), loader()
    for epoch, most in ((0, 2), (0, 6), (1, 6)):
        for x, y in list(source.batches(epoch))[:most]:
            expected.train_on_batch(x, y)
    model.fit(batches, epochs=2, verbose=0)
    assert same_weights(model, expected)


def test_asking_for_its_length_in_mid_epoch_disturbs_nothing() -> None:
    class Asks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            assert len(batches) == getattr(batches, "num_batches", 6) == 6

    model, batches = classifier(), feed.dataset(loader())
    model.fit(batches, epochs=2, callbacks=[Asks()], verbose=0)
    assert same_weights(model, by_hand(2))


def test_samples_without_a_target_will_do() -> None:
    found = classifier().predict(feed.dataset(ArrayLoader(FLOATS, None, 4, shuffle=False)), verbose=0)
    np.testing.assert_allclose(found, classifier().predict(FLOATS, verbose=0), rtol=1e-5)


def test_axes_are_as_keras_has_them_when_it_is_made() -> None:
    keras.config.set_image_data_format("channels_first")
    try:
        x, _ = next(iter(tuned(channels="last").make_dataset()))
    finally:
        keras.config.set_image_data_format("channels_last")
    assert tuple(x.shape) == (4, 3, 4, 4)


def test_what_a_loader_raises_is_told() -> None:
    source = loader()
    source.fails_at, source.error = (0, 2), ConfigError("Sample 7 is a teapot.")
    with pytest.raises(Exception, match="Sample 7 is a teapot"):
        classifier().fit(feed.dataset(source), verbose=0)


def test_the_loader_is_closed_when_nothing_needs_the_dataset_any_more() -> None:
    source, model = loader(), classifier()
    batches = feed.dataset(source)
    model.fit(batches, epochs=1, verbose=0)
    assert not source.closed
    del batches
    gc.collect()
    assert source.closed


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it is what is run here")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_trains_and_when_holds_on_jax() -> None:
    chosen = "trainer_does or goes_on or of_one_batch or was_left or mid_epoch"  # where Keras begins passes otherwise
    succeeded(python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", chosen, cwd=ROOT))
