"""The base of device strategies: the devices of a model, and how a batch gets there.

One strategy is one file and knows one backend's way of doing it; `autopipe.pipeline.devices.choose` picks. The global
batch stays that of the workload: a strategy only splits it. Nothing here knows loaders or trainers.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from autopipe.errors import ModelError


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
        """Return one array of a batch on a step's device; an array that is there already is returned as it is.

        NumPy memory may be aliased; the result then refers to its array.
        """

    @classmethod
    def unfit(cls, model: Any) -> str | None:
        """Return why the backend cannot train a compiled model on several devices; None if it can."""
        return None

    def check_model(self, model: Any) -> None:
        """Raise ModelError if a part of the model's compilation works on one device only."""
        if self.devices > 1 and (reason := self.unfit(model)) is not None:
            raise ModelError(
                f"`model` cannot be trained on several devices: {reason}, and devices={self.devices}.",
                hint="Compile it without that, or use devices=1 or the jax backend.",
            )

    def exchange(self, numbers: int) -> Callable[[], object] | None:
        """Return a function that sums up so many float32 of each device on all of them, and returns when that is done.

        None if there is nothing to exchange: on one device.
        """
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
        """Take that many devices; raise ModelError if there are fewer."""

    @classmethod
    def prepare(cls) -> None:
        """Do what must come before anything else runs on the backend in this process, if anything."""

    @classmethod
    def split(cls) -> int:
        """Return the number of virtual devices of the CPU in this process; 1 if it is not split."""
        return 1
