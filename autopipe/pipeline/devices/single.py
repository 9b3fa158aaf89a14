"""One device: the first accelerator, or the CPU. The backends place everything there by themselves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np

from autopipe.errors import ModelError
from autopipe.pipeline.devices.strategy import DeviceStrategy

_Place = Callable[[Any], Any]


class SingleDevice(DeviceStrategy):
    """Trains on the backend's default device."""

    devices = 1

    def __init__(self) -> None:
        makers = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
        self.looks_ahead, self._place = makers[keras.backend.backend()]()

    def scope(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def place(self, array: Any) -> Any:
        return self._place(array)


def _tensorflow() -> tuple[bool, _Place]:
    import tensorflow as tf

    from autopipe.pipeline.devices.aliasing import tensor

    if not tf.config.list_logical_devices("GPU"):
        return False, tensor

    def to_gpu(array: Any) -> Any:
        if isinstance(array, tf.Tensor) and "GPU" in array.device:
            return array
        with tf.device("GPU:0"):
            return tf.identity(tensor(array))

    return True, to_gpu


def _jax() -> tuple[bool, _Place]:
    import jax

    # On the CPU a jitted step takes an aligned NumPy array as it is (0.1 ms less a step than through `device_put`).
    return (False, lambda array: array) if jax.default_backend() == "cpu" else (True, jax.device_put)


def _torch() -> tuple[bool, _Place]:  # pragma: no cover  # make test-torch runs it
    import torch

    _require_one_process(torch)

    def on_host(array: Any) -> Any:
        if isinstance(array, torch.Tensor):  # it is there already
            return array
        return torch.from_numpy(array if array.flags.writeable else np.array(array))

    if not torch.cuda.is_available():
        return False, on_host
    return True, lambda array: on_host(array).to("cuda", non_blocking=True)


def _require_one_process(torch: Any) -> None:  # pragma: no cover  # make test-torch runs it
    connected = torch.distributed.is_available() and torch.distributed.is_initialized()
    # torchrun sets both
    launched = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1
    ranks = torch.distributed.get_world_size() if connected else launched
    if ranks > 1:
        raise ModelError(
            f"Keras {keras.__version__} trains in one process on the torch backend, but torch.distributed connects "
            f"{ranks}.",
            hint="Use the jax backend: call jax.distributed.initialize() in each process, then make_trainer().",
        )
