"""Which device strategy a configuration asks for, on the Keras backend of this process."""

from __future__ import annotations

import keras

from autopipe.devices.strategy import DeviceStrategy
from autopipe.errors import ModelError


def strategy(devices: int) -> DeviceStrategy:
    """Return the strategy for `devices` devices: one device, or the backend's own way of sharing batches out.

    Raises:
        ModelError: the backend has no such way, or there are not so many devices.
    """
    backend = keras.backend.backend()
    if devices == 1:
        from autopipe.devices.single import SingleDevice

        return SingleDevice()
    if backend == "tensorflow":
        from autopipe.devices.mirrored import Mirrored

        return Mirrored(devices)
    if backend == "jax":
        from autopipe.devices.jax_parallel import JaxParallel

        return JaxParallel(devices)
    raise ModelError(
        f"`devices` must be 1 on the {backend} backend, but got devices={devices}.",
        hint="Use the tensorflow or jax backend to train on several devices.",
    )


def available(backend: str) -> int:
    """Return how many devices could share a batch on `backend` in this process."""
    if backend == "tensorflow":
        from autopipe.devices.mirrored import Mirrored

        return Mirrored.available()
    if backend == "jax":
        from autopipe.devices.jax_parallel import JaxParallel

        return JaxParallel.available()
    return 1
