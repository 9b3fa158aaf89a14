"""Steps that finish batches on the device, and several that are one call: the same weights as by single ones."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from autopipe.hardware import processes
from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.devices import feed
from autopipe.pipeline.devices.trainer import Trainer, steps_of_a_call
from autopipe.pipeline.loader import Finish
from autopipe.workload.ops.values import Normalize, OneHot, Rescale
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices.models import classifier, counting, same_weights

IMAGES, Y = blobs(24)
X = IMAGES.astype(np.float32) / 255


def trained(together: int, batch_size: int = 4, *, state: dict[str, Any] | None = None, **arguments: Any) -> Trainer:
    trainer = Trainer(classifier(), ArrayLoader(X, Y, batch_size))
    trainer.setup = ModelSetup(steps_per_execution=together)
    if state is not None:
        trainer.load_state_dict(state)
    trainer.fit(**{"epochs": 2, "verbose": 0, **arguments})
    return trainer


def handed(trainer: Trainer) -> list[list[int]]:
    assert isinstance(trainer.loader, ArrayLoader)
    return trainer.loader.handed


def same(single: Trainer, several: Trainer) -> None:
    assert same_weights(single.model, several.model)
    assert handed(single) == handed(several)
    assert single.state_dict() == several.state_dict()


@pytest.mark.parametrize(("together", "batch_size"), [(4, 4), (32, 7)])
def test_weights_and_batches_are_those_of_single_steps(together: int, batch_size: int) -> None:
    same(trained(1, batch_size), several := trained(together, batch_size))
    assert len(handed(several)) == 2 * len(several.loader)  # nothing was taken that was not trained
    assert several.state_dict() == {"schema_version": 1, "epoch": 2, "batch": 0, "identity": "arrays"}
    assert several.model.steps_per_execution == 1


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a loop inside TensorFlow's graph")
def test_the_allocator_is_told_again_what_a_dataset_of_a_generator_undoes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[None] = []
    monkeypatch.setattr(processes, "keep_again", lambda: told.append(None))
    trained(4)
    assert len(told) == 2  # each epoch


def test_a_training_goes_on_in_mid_epoch() -> None:
    state = {"schema_version": 1, "epoch": 1, "batch": 1, "identity": "arrays"}
    same(trained(1, state=state), trained(4, state=state))


def test_class_weights_and_validation_count_as_with_single_steps() -> None:
    weights = {0: 5.0, 1: 0.5}
    single, several = (trained(count, class_weight=weights, validation=ArrayLoader(X, Y, 4)) for count in (1, 4))
    same(single, several)
    for name, values in single.model.history.history.items():
        assert several.model.history.history[name] == pytest.approx(values, rel=1e-4)


def test_a_callback_of_ones_own_that_looks_at_batches_sees_each(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    class Looks(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches += 1

    callback = Looks()
    trained(4, callbacks=[callback], epochs=1)
    assert callback.batches == 6
    assert "steps_per_execution=4 is left at 1: `Looks` looks at each batch." in caplog.text
    patched = keras.callbacks.Callback()
    patched.on_train_batch_begin = lambda batch, logs=None: None
    kerass = [keras.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.keras")), keras.callbacks.TerminateOnNaN()]
    assert [steps_of_a_call(classifier(), 4, each) for each in ([patched], kerass)] == [None, 4]


def test_a_model_that_was_compiled_for_several_steps_keeps_its_number() -> None:
    for model in (classifier(steps_per_execution=3), classifier(run_eagerly=True)):
        assert steps_of_a_call(model, 8, []) is None


def test_batches_of_other_shapes_come_in_stacks_of_their_own() -> None:
    batches = [(np.full((rows, 2), rows), np.zeros(rows)) for rows in (4, 4, 4, 4, 3)]
    shapes = [[part.shape for part in stack] for stack in feed.stacked(iter(batches), 3)]
    assert shapes == [[(3, 4, 2), (3, 4)], [(1, 4, 2), (1, 4)], [(1, 3, 2), (1, 3)]]


def test_batches_that_lie_one_behind_the_other_are_stacked_without_a_copy() -> None:
    whole = np.arange(24).reshape(12, 2)
    one, two, three, four = (whole[start : start + 3] for start in (0, 3, 6, 9))
    for parts in ([two, three, four], [one, three], [one, two.copy()], [two, one], [whole, whole]):
        np.testing.assert_array_equal(stacked := feed.stack(parts), np.stack(parts))
        assert np.shares_memory(stacked, whole) == (len(parts) == 3)


def compact(*, drop: bool = False) -> ArrayLoader:
    """A loader that leaves scaling and one-hot to the device."""
    loader = ArrayLoader(IMAGES, Y, 4, drop=drop)
    loader.finish = Finish((Rescale(1 / 255), OneHot(3)), (loader.spec, loader.spec))
    return loader


def test_afterwards_the_model_is_as_its_owner_made_it() -> None:
    model = classifier(one_hot=True)
    before = set(vars(model))
    Trainer(model, compact()).fit(epochs=1, validation=compact(), verbose=0)
    assert not {"train_step", "test_step", "predict_step", "evaluate"} & (set(vars(model)) - before)
    assert model.train_function is None
    finished = (IMAGES * np.float32(1 / 255)).astype(np.float32), np.eye(3, dtype=np.float32)[Y]
    history = model.fit(*finished, batch_size=4, verbose=0)  # Keras's own fit
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


def test_a_further_fit_compiles_nothing_another_finish_once_and_a_model_compiled_anew_has_its_new_settings() -> None:
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
    model.compile(keras.optimizers.SGD(0.0), "categorical_crossentropy")
    weights = model.get_weights()
    trainer.fit(epochs=1, verbose=0)
    assert model.traced > twice
    assert all(map(np.array_equal, weights, model.get_weights()))
