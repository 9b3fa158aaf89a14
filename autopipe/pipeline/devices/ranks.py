"""Differences between the processes of one training: rank 0 writes checkpoints and logs, the others only read them.

All ranks hold the same weights, so one copy is enough, and several writers of one file would spoil it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras

from autopipe.errors import ModelError

_WRITE = (keras.callbacks.ModelCheckpoint, keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)
_RESTORES = keras.callbacks.BackupAndRestore
_SAVING = ("on_train_batch_end", "on_epoch_end", "on_train_end")


def callbacks_of(rank: tuple[int, int], callbacks: Iterable[Any]) -> list[Any]:
    """Return the callbacks of a rank: without those that write, unless it is rank 0.

    `BackupAndRestore` restores in each rank, so all of them must see its folder.
    """
    number, ranks = rank
    if ranks == 1:
        return list(callbacks)
    kept = [each for each in callbacks if number == 0 or not isinstance(each, _WRITE)]
    for callback in kept:
        if isinstance(callback, (*_WRITE, _RESTORES)):
            callback.on_train_begin = _alone(callback.on_train_begin)
            for name in _SAVING:
                setattr(callback, name, _alone(getattr(callback, name)) if number == 0 else lambda *_, **__: None)
    return kept


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that makes no variables over all processes: Keras makes some to save by, and would wait there."""

    @functools.wraps(method)
    def run(*values: Any, **named: Any) -> Any:
        shared = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            return method(*values, **named)
        finally:
            keras.distribution.set_distribution(shared)

    return run


def refuse_prediction(rank: tuple[int, int]) -> None:
    """Raise ModelError if there are several processes, each of which would predict a part of the results only."""
    if rank[1] > 1:
        raise ModelError(
            f"`predict` runs in one process, but this is one of {rank[1]} that train together.",
            hint="Save the model in process 0, and predict in a process of its own.",
        )
