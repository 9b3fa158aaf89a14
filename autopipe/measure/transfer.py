"""What it costs to send a batch from the host's memory to the device, where that is a transfer at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import keras

from autopipe.core.stats import median
from autopipe.devices.strategy import DeviceStrategy

_TIMES = 7


def seconds_per_image(
    strategy: DeviceStrategy,
    arrays: tuple[Any, ...],
    arrived: Callable[[Any], object],
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Return the seconds that an image takes to the device, the median of some batches, one after the other.

    Args:
        strategy: sends them.
        arrays: a batch in the host's memory, samples first.
        arrived: returns when an array that was sent is there.
        clock: wall seconds.

    Returns:
        None where a batch is used where it lies: on a CPU.
    """
    if not strategy.looks_ahead:
        return None
    took = []
    for _ in range(1 + _TIMES):
        began = clock()
        for sent in [strategy.place(array) for array in arrays]:
            arrived(sent)
        took.append(clock() - began)
    return median(took[1:]) / len(arrays[0])  # the first one also makes room on the device


def arrived(array: Any) -> None:
    """Return when an array that was sent to the device is there."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        jax.block_until_ready(array)
    elif backend == "tensorflow":
        import tensorflow as tf

        tf.test.experimental.sync_devices()
    else:  # pragma: no cover  # torch is no dependency; not run in the tests
        import torch

        torch.cuda.synchronize()
