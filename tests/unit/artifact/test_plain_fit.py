"""`model.fit(tuned.make_dataset())` trains the trainer's batches, on one device; on JAX by the last test."""

import gc
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.artifact import factory
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


def loader() -> ArrayLoader:
    return ArrayLoader(FLOATS, Y, 4)


def by_hand(epochs: int) -> keras.Model:
    """Train on the loader's batches one by one, to compare with."""
    model, source = classifier(), loader()
    for epoch in range(epochs):
        for x, y in source.batches(epoch):
            model.train_on_batch(x, y)
    return model


WORKLOAD = ap.Workload(
    data=ap.Arrays(X, Y), ops=[ap.RandomFlip(), ap.Rescale(1 / 255)], batch_size=4, model=compiled, seed=3
)


def tuned(**settings: Any) -> factory.Tuned:
    known = profile(workload=fingerprint.workload_digest(WORKLOAD), config=config(**settings))
    return factory.of_profile(known, WORKLOAD)


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


def test_a_dataset_goes_on_where_the_last_fit_stopped() -> None:
    model, batches = classifier(), feed.dataset(loader())
    model.fit(batches, epochs=1, verbose=0)
    model.fit(batches, epochs=3, initial_epoch=1, verbose=0)
    assert same_weights(model, by_hand(3))


@pytest.mark.parametrize(("steps", "epochs"), [pytest.param(2, 2, marks=pytest.mark.slow), (1, 1)])
def test_epochs_of_fit_may_be_parts_of_an_epoch_of_the_data_even_of_one_batch(steps: int, epochs: int) -> None:
    model = classifier()
    model.fit(feed.dataset(loader()), steps_per_epoch=steps, epochs=6, verbose=0)
    assert same_weights(model, by_hand(epochs))


def test_an_epoch_that_was_left_is_begun_again() -> None:
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch >= 1

    model, batches = classifier(), feed.dataset(loader())
    model.fit(batches, epochs=5, callbacks=[Stops()], verbose=0)
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


def test_what_a_loader_raises_is_told_and_it_is_closed_when_nothing_needs_the_dataset_any_more() -> None:
    source, model = loader(), classifier()
    source.fails_at, source.error = (4, 2), ap.ConfigError("Sample 7 is a teapot.")
    batches = feed.dataset(source, 3)
    model.fit(batches, initial_epoch=3, epochs=4, verbose=0)
    assert {epoch for epoch, *_ in source.asked} == {3}
    assert not source.closed
    with pytest.raises(Exception, match="Sample 7 is a teapot"):
        model.fit(batches, initial_epoch=4, epochs=5, verbose=0)
    del batches
    gc.collect()
    assert source.closed


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it is what is run here")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_trains_and_when_holds_on_jax() -> None:
    chosen = "trainer_does or goes_on or of_one_batch or was_left or mid_epoch"  # where Keras begins passes otherwise
    succeeded(python("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", chosen, cwd=ROOT))
