"""Device strategies: the devices of a model, how a batch gets there, and which strategy a configuration takes.

A strategy of several devices is one file and knows one backend's way of sharing batches; that of one device is here.
Another package adds the way of a backend that has none here by an entry point of the group
`autopipe.device_strategies`, which has the backend's name and names a `SharingStrategy`. The global batch stays that of
the workload: a strategy only splits it. Nothing here knows loaders or trainers.
"""

from __future__ import annotations

import abc
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint
from typing import Any, Final

import keras
import numpy as np

from autopipe import registry
from autopipe.errors import ModelError
from autopipe.hardware import gpu

_Place = Callable[[Any], Any]
_GROUP: Final = "autopipe.device_strategies"
_OURS: Final = (
    EntryPoint("tensorflow", "autopipe.pipeline.devices.mirrored:Mirrored", _GROUP),
    EntryPoint("jax", "autopipe.pipeline.devices.jax_parallel:JaxParallel", _GROUP),
)


class DeviceStrategy(abc.ABC):
    """The devices of a training. Made in the training process before the model, which is built and trained in its
    `scope()`.

    Attributes:
        devices: how many devices share a batch.
        rank: `(i, n)`: this is the i-th of n processes that train together, each on `devices` of its own.
        looks_ahead: whether placing a batch starts a transfer, so that it pays to place it before it is needed.
    """

    devices: int
    rank: tuple[int, int] = (0, 1)
    looks_ahead: bool

    @abc.abstractmethod
    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which the model is built and trained."""

    @abc.abstractmethod
    def place(self, array: Any) -> Any:
        """Return one array of a batch on a step's device; an array that is there already is returned as it is. NumPy
        memory may be aliased; the result then refers to its array.
        """

    @classmethod
    def unfit(cls, model: Any) -> str | None:
        """Return why the backend cannot train a compiled model on several devices; None if it can."""
        return None

    def exchange(self, numbers: int) -> Callable[[], object] | None:
        """Return a function that sums so many float32 of each device on all, and waits; None on one device."""
        return None

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Train inside; raise PeerLostError if another process of the training has ended."""
        yield

    def check_rows(self, rows: int) -> None:
        """Raise ModelError if `rows` is no multiple of `devices`."""
        if rows % self.devices:
            raise ModelError(
                f"A batch must divide equally between the devices, but got {rows} samples for devices={self.devices}.",
                hint=f"Use a batch size that is a multiple of {self.devices}; "
                "drop_remainder=True leaves out a short last batch.",
            )

    def check_evaluation_rows(self, rows: int) -> None:
        """Raise ModelError if the devices cannot share `rows` samples of an evaluation; uneven parts may be allowed."""
        if rest := rows % self.devices:
            raise ModelError(
                "The last batch of an evaluation must divide equally between the devices, "
                f"but it has {rows} samples for devices={self.devices}.",
                hint=f"Leave {rest} of these samples out, or add {self.devices - rest}.",
            )

    def check_array_rows(self, rows: int) -> None:
        """Do the same for arrays that Keras itself cuts into batches and places."""
        self.check_evaluation_rows(rows)


class SharingStrategy(DeviceStrategy):
    """Shares each batch among several devices: one backend's way of doing it."""

    @classmethod
    def cluster(cls) -> tuple[int, int]:
        """Return (i, n): this is the i-th of n processes that train together; (0, 1) if there is no other. Raise
        ModelError if there are others, but the backend cannot train together with them.
        """
        return 0, 1

    @abc.abstractmethod
    def __init__(self, devices: int) -> None:
        """Take the first accelerators, or virtual CPU devices if asked for; raise ModelError if there are fewer."""

    @classmethod
    def prepare(cls) -> None:
        """Do what must come before anything else runs on the backend in this process, if anything."""

    @classmethod
    def split(cls) -> int:
        """Return the number of virtual devices of the CPU in this process; 1 if it is not split."""
        return 1


def require_devices(devices: int, found: int, kind: str) -> None:
    """Raise ModelError if the backend sees fewer devices, of a kind such as "GPU"."""
    if found < devices:
        raise ModelError(
            f"`devices` must not exceed the devices that Keras's backend {keras.backend.backend()} sees: "
            f"devices={devices}, but there {'is' if found == 1 else 'are'} {found} {kind}.",
            hint=f"Use devices={found}, or check CUDA_VISIBLE_DEVICES. To try it on the CPU, set "
            f"{gpu.VARIABLE}={devices} before the process starts.",
        )


# -------------------- choice, on the Keras backend of this process


def chosen(devices: int) -> DeviceStrategy:
    """Return one device, or the backend's way of sharing batches. Raise ModelError if it has none, or fewer devices."""
    several = sharing()
    alone = several is None or several.cluster() == (0, 1)
    if devices == 1 and alone:
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
    """Return how many virtual CPU devices may train here; 0 if none, or if there are accelerators."""
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


# -------------------- one device: the first accelerator, or the CPU


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

    ranks = int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1  # torchrun sets both
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = torch.distributed.get_world_size()
    if ranks > 1:
        raise ModelError(
            f"Keras {keras.__version__} trains in one process on the torch backend, but torch.distributed connects "
            f"{ranks}.",
            hint="Use the jax backend: call jax.distributed.initialize() in each process, then make_trainer().",
        )

    def on_host(array: Any) -> Any:
        if isinstance(array, torch.Tensor):  # it is there already
            return array
        return torch.from_numpy(array if array.flags.writeable else np.array(array))

    if not torch.cuda.is_available():
        return False, on_host
    return True, lambda array: on_host(array).to("cuda", non_blocking=True)


# -------------------- tensors over NumPy memory: a tensor refers to its array, so that the array outlives its uses


_ALIGNMENT = 64  # EIGEN_MAX_ALIGN_BYTES with AVX-512; kernels abort the process on less


def tensor(array: Any) -> Any:
    """Return a tensor in host memory with the array's values; a tensor is returned as it is."""
    import tensorflow as tf

    if not isinstance(array, np.ndarray):
        return array
    fits = array.nbytes > 0 and array.dtype.kind in "iuf" and array.flags.c_contiguous
    is_aligned = int(array.__array_interface__["data"][0]) % _ALIGNMENT == 0
    if fits and is_aligned and array.flags.writeable:  # DLPack cannot say "read only"
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    with tf.device("CPU:0"):
        return tf.constant(array)
