"""Trainings that tune themselves: the weights are those of a fixed pipeline, whatever is tried meanwhile."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import ConfigError, ModelError
from autopipe.pipeline.switching import SwitchingLoader
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices import models
from tests.unit.pipeline.devices.models import same_weights

FIXED = ap.PipelineConfig(loader=ap.Threads(workers=2, queue_size=1))
OTHERS = [
    ap.PipelineConfig(loader=ap.Processes(workers=1, queue_size=1)),
    ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=1)),
    ap.PipelineConfig(loader=ap.Threads(workers=1, queue_size=1), keep="memory"),
    FIXED,
]


def model() -> keras.Model:
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(23)])
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def workload(photos: Path, **changes: Any) -> ap.Workload:
    ops = [ap.Decode(), ap.Resize(10, 10), ap.RandomCrop(8, 8), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(
        **{"data": ap.Table(photos / "labels.csv"), "ops": ops, "batch_size": 4, "model": model, **changes}
    )


class Switching(keras.callbacks.Callback):
    """Has another loader take over every few batches."""

    def __init__(self, every: int = 3) -> None:
        super().__init__()
        self._every, self._numbers, self._turns = every, itertools.count(1), itertools.cycle(OTHERS)
        self.served = set[Any]()

    def set_trainer(self, trainer: ap.Trainer) -> None:
        self._trainer = trainer

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        loader = self._trainer.loader
        assert isinstance(loader, SwitchingLoader)
        loader.watch = None  # here, nothing else decides
        self.served.add(loader.loader)
        if next(self._numbers) % self._every == 0 and not loader.is_switching:
            assert self._trainer.opened is not None
            loader.switch(self._trainer.opened(next(self._turns)))
            assert loader._upcoming is not None
            loader._upcoming.is_there(60)  # so that no loader is late, however slow the machine is


@functools.cache
def by_a_fixed_loader(photos: Path) -> ap.Trainer:
    with ap.build_trainer(workload(photos), FIXED) as trainer:
        trainer.fit(epochs=4, verbose=0)
    return trainer


def test_weights_are_the_same_whatever_takes_over_meanwhile(photos: Path) -> None:
    switching = Switching()
    data = workload(photos).data
    with ap.build_trainer(workload(photos), FIXED, tune="live") as trainer:
        history = trainer.fit(epochs=4, callbacks=[switching], validation=data, verbose=0)
        assert len(history.history["val_loss"]) == 4
    assert same_weights(trainer.model, by_a_fixed_loader(photos).model)
    assert len(switching.served) > 2


def test_a_training_begins_without_a_configuration(photos: Path) -> None:
    with ap.build_trainer(workload(photos), tune="live") as trainer:
        trainer.fit(epochs=4, verbose=0)
    assert same_weights(trainer.model, by_a_fixed_loader(photos).model)


def test_a_training_is_resumed_in_mid_epoch(photos: Path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise KeyboardInterrupt

    with ap.build_trainer(workload(photos), FIXED) as first:
        with pytest.raises(KeyboardInterrupt):
            first.fit(epochs=4, callbacks=[Stop()], tune="live", verbose=0)
        state = first.state_dict()
    assert (state["epoch"], state["batch"]) == (0, 3)
    with ap.build_trainer(workload(photos, model=lambda: first.model), FIXED) as second:
        second.load_state_dict(state)
        second.fit(epochs=4, callbacks=[Switching(2)], tune="live", verbose=0)
    assert same_weights(second.model, by_a_fixed_loader(photos).model)


def test_a_loop_of_ones_own_gets_the_same_batches(photos: Path) -> None:
    with ap.build_loader(workload(photos), FIXED) as fixed, ap.build_loader(workload(photos), tune="live") as loader:
        for epoch in range(3):
            for (x, y), (wanted_x, wanted_y) in zip(loader.epoch(epoch), fixed.epoch(epoch), strict=True):
                np.testing.assert_array_equal(np.asarray(x), np.asarray(wanted_x))
                np.testing.assert_array_equal(np.asarray(y), np.asarray(wanted_y))


def test_a_trainer_that_was_given_its_loader_cannot_tune_itself() -> None:
    x, y = blobs(24)
    trainer = ap.Trainer(models.classifier(run_eagerly=True), ArrayLoader(x.astype(np.float32), y, 4))
    with pytest.raises(ModelError, match="cannot tune itself"):
        trainer.fit(tune="live")


def test_a_configuration_is_needed_unless_the_training_finds_one(photos: Path) -> None:
    with pytest.raises(ConfigError, match="`config` is missing"):
        ap.build_trainer(workload(photos))
    with pytest.raises(ConfigError, match="`tune` must be"):
        ap.build_loader(workload(photos), FIXED, tune="always")  # type: ignore[arg-type]  # as a user may


def test_a_wrapped_dataset_is_trained_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def make_dataset() -> Any:
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((np.zeros((8, 8, 8, 3), np.float32), np.zeros(8))).batch(4)

    with ap.build_trainer(ap.wrap(make_dataset, model=model), tune="live") as trainer:
        trainer.fit(epochs=2, verbose=0)
        assert not isinstance(trainer.loader, SwitchingLoader)
    assert "as it is" in caplog.text
