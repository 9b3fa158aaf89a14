"""Several devices on the TensorFlow backend, by `tf.distribute.MirroredStrategy`: GPUs, or virtual CPU devices."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from autopipe.devices.aliasing import tensor
from autopipe.devices.strategy import DeviceStrategy
from autopipe.errors import ModelError


class Mirrored(DeviceStrategy):
    """Every device holds all variables and takes an equal part of each batch; gradients are averaged.

    Batch normalisation uses the statistics of each device's part, as is usual with TensorFlow.
    """

    def __init__(self, devices: int) -> None:
        """Take the first `devices` GPUs; without any GPU, split the CPU into that many.

        Raises:
            ModelError: there are not so many devices, TensorFlow is already running with fewer, or this process has
                trained on another number of them.
        """
        self.devices = devices
        self._kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        self.looks_ahead = self._kind == "GPU"
        if self._kind == "CPU":
            _split_cpu(devices)
        found = len(tf.config.list_logical_devices(self._kind))
        if found < devices:
            raise ModelError(
                f"`devices` must not exceed the GPUs that TensorFlow sees: devices={devices}, but there are {found}.",
                hint=f"Use devices={found}, or check CUDA_VISIBLE_DEVICES.",
            )
        self._names = [f"{self._kind}:{number}" for number in range(devices)]
        self._strategy = _shared(tuple(self._names))

    @classmethod
    def available(cls) -> int:
        """Return the GPUs, or without any the cores of this process, each of which could be a virtual device."""
        return len(tf.config.list_physical_devices("GPU")) or len(os.sched_getaffinity(0))

    def scope(self) -> AbstractContextManager[Any]:
        return self._strategy.scope()  # type: ignore[no-any-return]  # TensorFlow has no types

    def check_model(self, model: Any) -> None:
        if model.jit_compile:
            raise ModelError(
                "TensorFlow cannot compile a step over several devices by XLA, "
                f"but the model is compiled with jit_compile=True, and devices={self.devices}.",
                hint="Compile it with jit_compile=False, or use devices=1 or the jax backend.",
            )
        if steps := getattr(model.optimizer, "gradient_accumulation_steps", None):
            raise ModelError(
                "On several devices Keras's TensorFlow backend cannot accumulate gradients, but the optimizer has "
                f"gradient_accumulation_steps={steps}, and devices={self.devices}.",
                hint="Leave gradient_accumulation_steps out, or use devices=1 or the jax backend.",
            )

    def place(self, array: Any) -> Any:
        if isinstance(array, tf.distribute.DistributedValues):
            return array
        rows = array.shape[0]
        self.check_evaluation_rows(rows)

        def part(context: Any) -> Any:
            number = context.replica_id_in_sync_group
            piece = tensor(array[rows * number // self.devices : rows * (number + 1) // self.devices])
            if self._kind == "CPU":
                return piece
            with tf.device(self._names[number]):
                return tf.identity(piece)

        return self._strategy.experimental_distribute_values_from_function(part)

    def check_evaluation_rows(self, rows: int) -> None:
        if rows < self.devices:
            raise ModelError(
                "The last batch of what is evaluated must hold a sample for each device, "
                f"but it has {rows} samples for devices={self.devices}.",
                hint=f"Leave {rows} of these samples out, or add {self.devices - rows}.",
            )

    def check_array_rows(self, rows: int) -> None:
        """TensorFlow shares out any number of them."""


_strategies: dict[tuple[str, ...], Any] = {}


def _shared(names: tuple[str, ...]) -> Any:
    """Return the process's one strategy for these devices.

    A second one would number its collectives as the first did, and TensorFlow would take them for the first's.
    """
    if names not in _strategies:
        if _strategies:
            raise ModelError(
                "One process can train on one number of devices only with TensorFlow, "
                f"but got devices={len(names)} after devices={len(next(iter(_strategies)))}.",
                hint="Build this trainer in a fresh process.",
            )
        _strategies[names] = tf.distribute.MirroredStrategy(names)
    return _strategies[names]


def _split_cpu(devices: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < devices:
            raise ModelError(
                f"`devices={devices}` on a machine without GPU needs that many virtual CPU devices, "
                "which TensorFlow can only make before it has run anything.",
                hint="Build the trainer in a fresh process, before any other use of TensorFlow.",
            ) from error
