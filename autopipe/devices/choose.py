"""Which device strategy a configuration asks for, on the Keras backend of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from autopipe.devices.strategy import DeviceStrategy
from autopipe.errors import ModelError
from autopipe.hardware import virtual

if TYPE_CHECKING:
    from autopipe.devices.jax_parallel import JaxParallel
    from autopipe.devices.mirrored import Mirrored


def strategy(devices: int) -> DeviceStrategy:
    """Return the strategy for `devices` devices: one device, or the backend's own way of sharing batches out.

    Raises:
        ModelError: the backend has no such way, or there are not so many devices.
    """
    if devices == 1:
        from autopipe.devices.single import SingleDevice

        return SingleDevice()
    if (several := sharing()) is None:
        backend = keras.backend.backend()
        raise ModelError(
            f"`devices` must be 1 on the {backend} backend, but got devices={devices}.",
            hint="Use the tensorflow or jax backend to train on several devices.",
        )
    return several(devices)


def sharing() -> type[Mirrored | JaxParallel] | None:
    """Return the backend's way of sharing batches out; None where it has none."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from autopipe.devices.mirrored import Mirrored

        return Mirrored
    if backend == "jax":
        from autopipe.devices.jax_parallel import JaxParallel

        return JaxParallel
    return None


def accelerators() -> int:
    """Return how many accelerators the backend sees in this process; 0 where it trains on the CPU."""
    from autopipe.devices.single import SingleDevice

    return SingleDevice.accelerators()


def virtual_devices() -> int:
    """Return how many virtual CPU devices may train here: those that were asked for; 0 where there are none.

    On a machine with accelerators the CPU does not train, whatever was asked for.
    """
    several = sharing()
    if several is None or accelerators():
        return 0
    made = max(virtual.asked(), several.split())  # or the user's own code has split the CPU
    return made if made > 1 else 0


def names(devices: int) -> tuple[str, ...]:
    """Return what the first devices are called; virtual ones by that word."""
    found = tuple(keras.distribution.list_devices()[:devices]) or (keras.backend.backend(),)
    return found if devices == 1 or accelerators() else tuple(f"virtual {name}" for name in found)
