from __future__ import annotations

import contextlib
import pickle
from typing import Any

import keras
import numpy as np
import pytest

from autopipe.pipeline.devices.train_steps import FinishedSteps
from autopipe.pipeline.devices.trainer import Trainer
from autopipe.pipeline.loader import Finish
from autopipe.workload.ops.values import Normalize, OneHot, Rescale
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices.models import classifier, counting

X, Y = blobs(24)


def compact(*, drop: bool = False) -> ArrayLoader:
    """A loader that leaves scaling and one-hot to the device."""
    loader = ArrayLoader(X, Y, 4, drop=drop)
    loader.finish = Finish((Rescale(1 / 255), OneHot(3)), (loader.spec, loader.spec))
    return loader


def finished() -> ArrayLoader:
    """A loader of the same batches, finished on the host."""
    return ArrayLoader((X * np.float32(1 / 255)).astype(np.float32), np.eye(3, dtype=np.float32)[Y], 4)


def test_a_finish_on_the_device_trains_what_a_finish_on_the_host_does() -> None:
    on_device = Trainer(classifier(one_hot=True), compact()).fit(epochs=3, verbose=0)
    on_host = Trainer(classifier(one_hot=True), finished()).fit(epochs=3, verbose=0)
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(on_device.history[name], on_host.history[name], rtol=1e-5)


def test_a_callback_asks_the_model_about_data_of_its_own_which_are_finished_already() -> None:
    model, ready = classifier(one_hot=True), finished()
    trainer = Trainer(model, compact())
    plain = ArrayLoader(X, Y, 4, shuffle=False, finish=compact().finish)
    losses: list[list[float]] = []

    class Asks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            asked = model.evaluate(ready.x, ready.y, batch_size=4, verbose=0), trainer.evaluate(compact(), verbose=0)
            losses.append([logs["val_loss"], *(loss for loss, _ in asked)])
            by_trainer, by_model = trainer.predict(plain, verbose=0), model.predict(ready.x, verbose=0)
            np.testing.assert_allclose(by_trainer, by_model, rtol=1e-5)

    history = trainer.fit(epochs=2, validation=compact(), callbacks=[Asks()], verbose=0).history
    assert [validated for validated, *_ in losses] == history["val_loss"]
    expected = model.evaluate(ready.x, ready.y, batch_size=4, verbose=0)
    np.testing.assert_allclose(trainer.evaluate(compact(), verbose=0), expected, rtol=1e-5)  # outside a training
    for validated, *asked in losses:
        assert asked == pytest.approx([validated, validated], rel=1e-5)


def test_afterwards_the_model_is_as_its_owner_made_it() -> None:
    model = classifier(one_hot=True)
    before = set(vars(model))
    Trainer(model, compact()).fit(epochs=1, validation=compact(), verbose=0)
    assert not {"train_step", "test_step", "predict_step", "evaluate"} & (set(vars(model)) - before)
    assert model.train_function is None
    ready = finished()
    history = model.fit(ready.x, ready.y, batch_size=4, verbose=0)  # Keras's own fit, on finished data
    assert history.history["loss"][0] < 2.0
    pickle.dumps(model)


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_of_the_owners_own_making_is_put_back_also_when_training_fails(fails: bool) -> None:
    model, loader = classifier(one_hot=True, run_eagerly=True), compact()
    model.train_step = own = model.train_step
    loader.fails_at = (0, 1) if fails else None
    with pytest.raises(RuntimeError, match="no error was set") if fails else contextlib.nullcontext():
        Trainer(model, loader).fit(epochs=1, verbose=0)
    assert model.train_step is own


def test_a_further_fit_compiles_nothing_and_another_finish_once() -> None:
    model = counting()
    trainer = Trainer(model, compact())
    trainer.fit(epochs=1, verbose=0)
    once = model.traced
    trainer.fit(epochs=2, verbose=0)
    Trainer(model, compact(), steps=trainer.steps).fit(epochs=1, verbose=0)
    assert model.traced == once > 0
    other = compact()
    other.finish = Finish((Normalize(0.5, 2.0), OneHot(3)), (other.spec, other.spec))
    Trainer(model, other, steps=trainer.steps).fit(epochs=1, verbose=0)
    twice = model.traced
    trainer.fit(epochs=1, verbose=0)
    assert model.traced == twice > once


def test_a_model_compiled_anew_trains_by_its_new_settings() -> None:
    model = counting()
    trainer = Trainer(model, compact())
    trainer.fit(epochs=1, verbose=0)
    before = model.traced
    model.compile(keras.optimizers.SGD(0.0), "categorical_crossentropy")
    weights = model.get_weights()
    trainer.fit(epochs=1, verbose=0)
    assert model.traced > before
    assert all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))


def test_a_callback_that_stood_in_the_functions_place_when_training_was_interrupted_is_not_kept() -> None:
    class Interrupts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise KeyboardInterrupt

    trainer = Trainer(classifier(one_hot=True), compact())
    diagnose = pytest.importorskip("autopipe.extensions.diagnose.run")
    onlooker = diagnose.Onlooker(lambda watched: None, diagnose.Look(steps=1, alone_seconds=0.05))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(callbacks=[onlooker, Interrupts()], verbose=0)
    trainer.fit(callbacks=[onlooker], verbose=0)
    assert trainer.fit(verbose=0).epoch == [0]


def test_nothing_is_put_before_the_steps_where_nothing_is_left_to_do() -> None:
    model = classifier()
    with FinishedSteps(model).applied(train=Finish(), test=Finish()):
        assert "train_step" not in vars(model)
