"""Steps that finish batches on the device or several in one call, trainings that were cut, simulated devices."""

import contextlib
import functools
import pickle
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest

from autopipe.errors import ConfigError
from autopipe.pipeline.config import ModelSetup
from autopipe.pipeline.devices import feed
from autopipe.pipeline.devices import model as models
from autopipe.pipeline.devices.callbacks import TrainingCallbacks
from autopipe.pipeline.devices.model import SimulatedModel
from autopipe.pipeline.devices.simulated import SimulatedAccelerator, Timeline
from autopipe.pipeline.devices.trainer import Trainer, steps_of_a_call
from autopipe.pipeline.loader import Finish
from autopipe.workload.ops.values import Normalize, OneHot, Rescale
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices.models import Ends, KilledError, classifier, same_weights

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
    state = {"schema_version": 1, "epoch": 1, "batch": 1, "identity": "arrays"}
    same(trained(1, state=state), trained(together, state=state))  # in mid-epoch
    same(trained(1, batch_size), several := trained(together, batch_size))
    assert len(handed(several)) == 2 * len(several.loader)  # nothing was taken that was not trained
    assert several.state_dict() == {"schema_version": 1, "epoch": 2, "batch": 0, "identity": "arrays"}
    assert several.model.steps_per_execution == 1


def test_class_weights_and_validation_count_as_with_single_steps() -> None:
    weights = {0: 5.0, 1: 0.5}
    single, several = (trained(count, class_weight=weights, validation=ArrayLoader(X, Y, 4)) for count in (1, 4))
    same(single, several)
    for name, values in single.model.history.history.items():
        assert several.model.history.history[name] == pytest.approx(values, rel=1e-4)


def test_a_callback_that_looks_at_batches_sees_each(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
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


class Counting(keras.Sequential):
    traced = 0

    def train_step(self, data: Any) -> Any:
        self.traced += 1
        return super().train_step(data)


def test_a_further_fit_compiles_nothing_another_finish_once_and_a_model_compiled_anew_has_its_new_settings() -> None:
    model = Counting(classifier().layers)
    model.compile("sgd", "categorical_crossentropy")
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


BATCHES, EPOCHS = 5, 2


def trainer_of_arrays() -> Trainer:
    return Trainer(classifier(), ArrayLoader(X[:20], Y[:20], 4))


def run(folder: Path, *, save_freq: Any, kill_at: int | None) -> tuple[Trainer, list[tuple[int, int]]]:
    """Train, and return the epoch and the batch numbers that callbacks were told, too."""
    trainer, epochs, numbers = trainer_of_arrays(), list[int](), list[tuple[int, int]]()
    noting = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: epochs.append(epoch),
        on_train_batch_end=lambda batch, logs: numbers.append((epochs[-1], batch)),
    )
    callbacks: list[Any] = [keras.callbacks.BackupAndRestore(str(folder), save_freq=save_freq), noting]
    if kill_at is not None:
        callbacks.append(Ends(kill_at))
    with contextlib.nullcontext() if kill_at is None else pytest.raises(KilledError):
        trainer.fit(epochs=EPOCHS, callbacks=callbacks, verbose=0)
    return trainer, numbers


@functools.cache
def undisturbed() -> keras.Model:
    trainer = trainer_of_arrays()
    trainer.fit(epochs=EPOCHS, verbose=0)
    return trainer.model


@pytest.mark.parametrize(
    ("save_freq", "cuts", "first"),
    [
        (1, (1,), (0, 1)),
        (1, (5,), (1, 0)),
        (1, (6, 2), (1, 3)),
        (3, (8,), (1, 1)),  # what came after the last backup is trained again
        ("epoch", (7,), (1, 0)),
    ],
)
def test_a_run_that_was_cut_is_resumed_behind_its_backup(tmp_path: Path, save_freq: Any, cuts: Any, first: Any) -> None:
    for cut in cuts:
        run(tmp_path, save_freq=save_freq, kill_at=cut)
    trainer, numbers = run(tmp_path, save_freq=save_freq, kill_at=None)
    assert trainer.loader.asked[0][:2] == first  # type: ignore[attr-defined]  # an ArrayLoader
    rest = range(first[0] * BATCHES + first[1], EPOCHS * BATCHES)
    assert numbers == [divmod(number, BATCHES) for number in rest]
    assert same_weights(trainer.model, undisturbed())
    assert trainer.state_dict()["epoch"] == EPOCHS


def test_a_callback_that_joins_a_training_is_told_that_it_begins_once() -> None:
    first, joined = (Mock(spec=keras.callbacks.Callback) for _ in range(2))
    session = TrainingCallbacks([first], model=classifier(), epochs=1, steps=1, verbose=0)
    session.begin()
    session.callbacks = [joined, *session.callbacks]
    for _ in range(2):  # where the rest of an epoch comes before, Keras's `fit` is called twice
        session.on_train_begin()
    session.end()
    assert (first.on_train_begin.call_count, joined.on_train_begin.call_count) == (1, 1)


def test_stopping_within_the_rest_of_an_epoch_ends_training(tmp_path: Path) -> None:
    run(tmp_path, save_freq=1, kill_at=7)
    trainer = trainer_of_arrays()
    stop: Any = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(stop.model, "stop_training", True)
    )
    backup = keras.callbacks.BackupAndRestore(str(tmp_path), save_freq=1)
    assert trainer.fit(epochs=3, callbacks=[backup, stop], verbose=0).epoch == [1]
    assert trainer.state_dict()["epoch"] == 2


class FakeTime:
    """A clock that only `sleep` and the test move; each sleep lasts `overshoot` too long."""

    def __init__(self, overshoot: float = 0.0) -> None:
        self.now, self.overshoot = 0.0, overshoot
        self.timeline = Timeline(lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.overshoot


def simulated(*settings: Any, samples: int, together: int = 1) -> tuple[Trainer, FakeTime]:
    model, time = SimulatedModel(*settings), FakeTime()
    model.timeline = time.timeline
    trainer = Trainer(model, ArrayLoader(*blobs(samples), 4))
    trainer.setup = ModelSetup(steps_per_execution=together)
    return trainer, time


@pytest.mark.parametrize(("host", "overshoot", "over"), [(0.0, 0.0, 20.0), (5.0, 0.0, 52.0), (0.0, 0.001, 20.001)])
def test_a_late_host_idles_the_device_and_oversleeping_counts_once(host: float, overshoot: float, over: float) -> None:
    time = FakeTime(overshoot)
    for _ in range(10):
        time.now += host
        time.timeline.start(2.0)
    time.timeline.wait_until(time.timeline.free_at)
    assert time.now == pytest.approx(over, abs=1e-6)


@pytest.mark.parametrize("arguments", [(0.0,), (float("nan"),), ("15ms",), (1.0, 0), (1.0, "8")])
def test_impossible_devices_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigError, match="must be"):
        SimulatedAccelerator(*arguments)


@pytest.mark.parametrize("at_once", [1, 4])
def test_fit_takes_as_long_as_the_device_would(at_once: int) -> None:
    trainer, time = simulated(0.5, 4, samples=22, together=at_once)
    assert trainer.fit(epochs=2, verbose=0).history == {"loss": [0.0, 0.0]}
    assert time.now == pytest.approx(2 * 5.5 * 0.5)  # the last batch of each epoch holds 2 of 4 samples


@pytest.mark.parametrize(("reads", "expected"), [(False, [0.0, 0.5, 1.0]), (True, [0.5, 1.0, 1.5])])
def test_only_who_reads_the_loss_waits_for_the_step(reads: bool, expected: list[float]) -> None:
    seen = list[float]()

    def look(batch: int, logs: dict[str, float]) -> None:
        assert not reads or logs["loss"] == 0.0
        seen.append(time.now)

    trainer, time = simulated(0.5, samples=12)
    trainer.fit(verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)])
    assert seen == pytest.approx(expected)


def test_evaluation_and_prediction_take_time_too() -> None:
    trainer, time = simulated(0.5, samples=20)
    assert trainer.evaluate(trainer.loader, verbose=0) == 0.0
    assert time.now == pytest.approx(2.5)
    assert trainer.predict(trainer.loader, verbose=0).shape == (20, 1)


def test_it_is_a_workloads_model_and_can_be_saved(tmp_path: object) -> None:
    models.build(SimulatedAccelerator(0.25, 8)).save(f"{tmp_path}/device.keras")
    loaded = keras.saving.load_model(f"{tmp_path}/device.keras")
    assert (loaded.stands_for, loaded.compiled) == (SimulatedAccelerator(0.25, 8), True)


def test_a_step_takes_its_time_whatever_the_batch_or_in_proportion_to_it_and_is_busy_for_that_part() -> None:
    h100 = SimulatedAccelerator(0.224, 400)
    seconds = [h100.seconds(400), h100.seconds(100), SimulatedAccelerator(0.015).seconds(7)]
    assert seconds == pytest.approx([0.224, 0.056, 0.015])
    found = [h100.utilisation(*at) for at in ((1786, 400), (893, 400), (893, 32), (9999, 9))]
    assert found == pytest.approx([1.0, 0.5, 0.5, 1.0], abs=0.001)
