"""The device strategy of a configuration, on the Keras backend of this process.

Each backend shares batches in its own way. Another package adds the way of a backend that has none here by an entry
point of the group `autopipe.device_strategies`, which has the backend's name and names a `SharingStrategy`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Final

import keras

from autopipe import registry
from autopipe.errors import ModelError
from autopipe.hardware import gpu
from autopipe.pipeline.devices.strategy import DeviceStrategy, SharingStrategy

_GROUP: Final = "autopipe.device_strategies"
_OURS: Final = (
    EntryPoint("tensorflow", "autopipe.pipeline.devices.mirrored:Mirrored", _GROUP),
    EntryPoint("jax", "autopipe.pipeline.devices.jax_parallel:JaxParallel", _GROUP),
)


def strategy(devices: int) -> DeviceStrategy:
    """Return the strategy for `devices` devices: one device, or the backend's own way of sharing batches. Raise
    ModelError if the backend has no such way, or there are fewer devices.
    """
    several = sharing()
    alone = several is None or several.cluster() == (0, 1)
    if devices == 1 and alone:
        from autopipe.pipeline.devices.single import SingleDevice

        return SingleDevice()
    if several is None:
        raise ModelError(
            f"`devices` must be 1 on the {keras.backend.backend()} backend, but got devices={devices}.",
            hint=f"Use the {' or '.join(_strategies())} backend to train on several devices.",
        )
    return several(devices)


def sharing() -> type[SharingStrategy] | None:
    """Return the backend's way of sharing batches; None if it has none."""
    found = _strategies().get(keras.backend.backend())
    return None if found is None else found.load()


def _strategies() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in (*registry.declared(_GROUP), *_OURS)}


def accelerators() -> int:
    """Return the number of accelerators of the backend in this process; 0 if it trains on the CPU."""
    match keras.backend.backend():
        case "tensorflow":
            import tensorflow as tf

            return len(tf.config.list_physical_devices("GPU"))
        case "jax":
            import jax

            return 0 if jax.default_backend() == "cpu" else int(jax.local_device_count())
        case _:  # pragma: no cover  # make test-torch runs it
            import torch

            return int(torch.cuda.device_count())


def virtual_devices() -> int:
    """Return the number of virtual CPU devices that may train here; 0 if none was asked for.

    On a machine with accelerators the CPU never trains.
    """
    several = sharing()
    if several is None or accelerators():
        return 0
    made = max(gpu.asked(), several.split())  # or the user's own code has split the CPU
    return made if made > 1 else 0


def names(devices: int) -> tuple[str, ...]:
    """Return the names of the first devices; virtual ones are called so."""
    if sharing() is None:  # Keras lists no devices then
        return (keras.backend.backend(),)
    found = tuple(keras.distribution.list_devices()[:devices]) or (keras.backend.backend(),)
    return found if devices == 1 or accelerators() else tuple(f"virtual {name}" for name in found)
