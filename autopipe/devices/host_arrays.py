"""Batches for whoever trains without Keras's `fit`: arrays of the Keras backend, and the finish on its device.

In a training by `fit`, batches are placed by the device strategy and finished inside the model's own compiled step
(`autopipe.devices.finished_steps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from autopipe.core.finish import Finish
from autopipe.core.sample import Batch
from autopipe.devices.keras_ops import KERAS_OPS


def place() -> Callable[[Any], Any] | None:
    """Return what makes a backend's array of a NumPy array, without a copy where it can; None if that means to send it.

    It is sent where the backend's device is not the host.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        from autopipe.devices.aliasing import tensor

        return None if tf.config.list_logical_devices("GPU") else tensor
    if backend == "jax":
        import jax

        return jax.device_put if jax.default_backend() == "cpu" else None
    return None


def compiled(finish: Finish) -> Callable[[Batch], Batch]:
    """Return the finish of a batch as one function that the backend has compiled, if it compiles."""

    def finished(batch: Batch) -> Batch:
        return finish.batch(batch, KERAS_OPS)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        function: Callable[[Batch], Batch] = tf.function(finished, autograph=False, reduce_retracing=True)
        return function
    if backend == "jax":
        import jax

        jitted: Callable[[Batch], Batch] = jax.jit(finished)
        return jitted
    return finished
