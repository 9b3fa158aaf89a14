"""Several devices on the JAX backend, by `keras.distribution.DataParallel`: accelerators, or virtual CPU devices."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import keras
import numpy as np

from autopipe import frameworks
from autopipe.errors import PeerLostError
from autopipe.hardware import gpu
from autopipe.pipeline.devices.strategy import SharingStrategy, require_devices

_LOST = ("Gloo", "NCCL", "ncclRemoteError", "connection closed", "heartbeat", "UNAVAILABLE")
"""What a collective operation that misses a process says."""


class JaxParallel(SharingStrategy):
    """Every device holds all variables and takes an equal part of each batch. A step computes the same as on one."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        if gpu.asked() >= devices and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
            # JAX refuses to be told twice. The errors: it is already running, or too old for the option. What there is,
            # is counted next. There is no effect if JAX uses other devices than the CPU's.
            with contextlib.suppress(RuntimeError, AttributeError):
                jax.config.update("jax_num_cpu_devices", devices)
        require_devices(devices, jax.local_device_count(), jax.default_backend().upper())
        self.rank = self.cluster()
        self.looks_ahead = self.rank == (0, 1) and jax.default_backend() != "cpu"
        # The first devices of each process, process by process: in this order they share a batch.
        owned = ([each for each in jax.devices() if each.process_index == at] for at in range(jax.process_count()))
        names = [f"{device.platform}:{device.id}" for each in owned for device in each[:devices]]
        self._distribution = keras.distribution.DataParallel(devices=names)

    @classmethod
    def cluster(cls) -> tuple[int, int]:
        return frameworks.jax_rank()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, RuntimeError) as error:  # jax.errors.JaxRuntimeError is a RuntimeError
            if self.rank == (0, 1) or not any(sign in str(error) for sign in _LOST):
                raise
            frameworks.leave_jax_cluster()
            raise PeerLostError(
                f"Another of the {self.rank[1]} processes that train together has ended, so that process "
                f"{self.rank[0]} cannot go on: {str(error).splitlines()[0]}",
                hint="Its own log says why. Start all of them again; keras.callbacks.BackupAndRestore goes on where "
                "the training was.",
            ) from error

    @classmethod
    def split(cls) -> int:
        return int(jax.local_device_count())

    def scope(self) -> AbstractContextManager[Any]:
        return self._distribution.scope()  # type: ignore[no-any-return]  # Keras has no types

    def exchange(self, numbers: int) -> Callable[[], object]:
        by_device = self._distribution.get_data_layout((self.devices, numbers)).backend_layout
        everywhere = jax.sharding.NamedSharding(by_device.mesh, jax.sharding.PartitionSpec())
        parts = jax.device_put(np.ones((self.devices, numbers), np.float32), by_device)
        summed = jax.jit(lambda each: each.sum(axis=0), out_shardings=everywhere)
        return lambda: jax.block_until_ready(summed(parts))

    def place(self, array: Any) -> Any:
        if self.rank != (0, 1):
            return array  # Keras puts the parts of several processes together
        self.check_evaluation_rows(array.shape[0])  # Keras places the result once more, in equal parts
        return jax.device_put(array, self._distribution.get_data_layout(array.shape).backend_layout)
