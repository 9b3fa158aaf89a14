from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import keras
import numpy as np
import pytest

from autopipe.pipeline.devices.callbacks import TrainingCallbacks
from autopipe.pipeline.devices.trainer import Trainer
from tests.fakes.loader import ArrayLoader, blobs
from tests.unit.pipeline.devices.models import Ends, KilledError, classifier, same_weights

X, Y = blobs(20)
BATCHES, EPOCHS = 5, 2


def trainer_of_arrays() -> Trainer:
    return Trainer(classifier(), ArrayLoader(X.astype(np.float32) / 255, Y, 4))


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
def test_a_run_that_was_cut_is_resumed_behind_its_last_backup(
    tmp_path: Path, save_freq: Any, cuts: tuple[int, ...], first: tuple[int, int]
) -> None:
    for cut in cuts:
        run(tmp_path, save_freq=save_freq, kill_at=cut)
    trainer, numbers = run(tmp_path, save_freq=save_freq, kill_at=None)
    assert trainer.loader.asked[0][:2] == first  # type: ignore[attr-defined]  # an ArrayLoader
    rest = range(first[0] * BATCHES + first[1], EPOCHS * BATCHES)
    assert numbers == [divmod(number, BATCHES) for number in rest]
    assert same_weights(trainer.model, undisturbed())
    assert trainer.state_dict()["epoch"] == EPOCHS


def test_a_callback_that_joins_a_training_is_told_that_it_begins_once() -> None:
    first, joined = keras.callbacks.Callback(), keras.callbacks.Callback()
    first.on_train_begin, joined.on_train_begin = Mock(), Mock()
    session = TrainingCallbacks([first], model=classifier(), epochs=1, steps=1, verbose=0)
    session.begin()
    session.callbacks = [joined, *session.callbacks]
    session.on_train_begin()
    session.on_train_begin()  # where the rest of an epoch comes before, Keras's `fit` is called twice
    session.end()
    assert (first.on_train_begin.call_count, joined.on_train_begin.call_count) == (1, 1)


def test_stopping_within_the_rest_of_an_epoch_ends_training(tmp_path: Path) -> None:
    run(tmp_path, save_freq=1, kill_at=7)
    trainer = trainer_of_arrays()
    stop = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: setattr(stop.model, "stop_training", True))
    backup = keras.callbacks.BackupAndRestore(str(tmp_path), save_freq=1)
    assert trainer.fit(epochs=3, callbacks=[backup, stop], verbose=0).epoch == [1]
    assert trainer.state_dict()["epoch"] == 2
