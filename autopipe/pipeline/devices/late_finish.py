"""Finishes batches for whoever trains without a model of Keras, as arrays of the Keras backend, on its device.

In a training by `fit`, batches are placed by the device strategy and finished inside the model's own compiled step
(`autopipe.pipeline.devices.finished_steps`). Frameworks are imported when they are needed, and not before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from autopipe.pipeline.batching.forking import Owner
from autopipe.pipeline.loader import Loader
from autopipe.workload.finish import Finish
from autopipe.workload.sample import Batch


class LateFinish:
    """See `autopipe.workload.finish.Finishing`."""

    def __init__(self, finish: Finish, on_host: Callable[[], Loader]) -> None:
        self._finish = finish
        self._owner = Owner()
        self._open_on_host = on_host

    def place(self) -> Callable[[Any], Any] | None:
        import keras

        match keras.backend.backend():
            case "tensorflow":
                import tensorflow as tf

                from autopipe.pipeline.devices.aliasing import tensor

                return None if tf.config.list_logical_devices("GPU") else tensor
            case "jax":
                import jax

                return jax.device_put if jax.default_backend() == "cpu" else None
        return None

    def on_device(self, batch: Batch) -> Batch:
        return self._compiled(batch)

    def on_host(self) -> Loader:
        self._owner.require()
        return self._open_on_host()

    @functools.cached_property
    def _compiled(self) -> Callable[[Batch], Batch]:
        """The finish as one function that the backend has compiled, if it compiles."""
        import keras

        from autopipe.pipeline.devices.keras_ops import KERAS_OPS

        def finished(batch: Batch) -> Batch:
            return self._finish.batch(batch, KERAS_OPS)

        compiled: Callable[[Batch], Batch] = finished
        match keras.backend.backend():
            case "tensorflow":
                import tensorflow as tf

                compiled = tf.function(finished, autograph=False, reduce_retracing=True)
            case "jax":
                import jax

                compiled = jax.jit(finished)
        return compiled
