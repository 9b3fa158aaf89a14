"""The code on a node of a Ray cluster: makes batches there, and lists files that the node lacks. Imports no framework.

Failures go back as values; the owner, in `autopipe.extensions.ray.loader`, raises them.
"""

from __future__ import annotations

import collections
import functools
import os
import socket
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autopipe import _version, again
from autopipe.errors import AutopipeError, DataError, LoaderError
from autopipe.hardware import machine, processes
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.batching.pickling import RemoteFailure, unpickled
from autopipe.pipeline.loader import Recipe
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import spread
from autopipe.workload.sample import Source

SHARED_DATA = (
    "Data must lie where every node can read them: at the same path of a file system that all of them mount, or behind "
    "a URL (s3://, gs://, ...)."
)
_LOOKED_AT = 16  # files of a source


class Hello(NamedTuple):
    """The facts of a worker's node."""

    node: str
    lacking: list[str]
    free_bytes: int


class Training(NamedTuple):
    """The training's process: a block of memory that it shares, and the content of the block."""

    pid: int
    descriptor: int
    secret: bytes


class SlotPlace(NamedTuple):
    """A slot of the training's process."""

    number: int
    descriptor: int
    size: int


class Maker:
    """Makes batches into one block of memory; on the training's own machine into its slots, of which it maps `keep`."""

    def __init__(self, packed: bytes, rows: int, owner: Training, keep: int) -> None:
        self._packed, self._rows, self._owner, self._keep = packed, rows, owner, keep
        self._slots: collections.OrderedDict[int, SharedBlock] = collections.OrderedDict()

    def hello(self, version: str) -> Hello | RemoteFailure:
        try:
            require_same_version(version)
            missing = lacking(self._recipe.source)
            self._kernel  # noqa: B018  # made here, so that no first batch waits for it
            return Hello(node_name(), missing, machine.detect_memory().available_bytes)
        except BaseException as error:  # noqa: BLE001  # the owner raises it
            return RemoteFailure.of(told(error))

    def echo(self) -> NDArray[np.uint8] | None:
        """Return as much as `fill` does, in the same way."""
        return None if self._shares_memory else self._block.array((self._block.size,), np.dtype(np.uint8))

    def fill(
        self, epoch: int, indices: NDArray[np.int64], place: SlotPlace
    ) -> tuple[NDArray[np.uint8] | None, list[BadSample]] | RemoteFailure:
        """Return the content of a slot, or None if it was written there; and the replaced samples."""
        try:
            block = self._slot(place) if self._shares_memory else self._block
            bad = self._kernel.fill(epoch, indices, self._layout.arrays(block, len(indices)))
        except BaseException as error:  # noqa: BLE001  # the owner raises it
            return RemoteFailure.of(told(error))
        return self.echo(), bad

    def _slot(self, place: SlotPlace) -> SharedBlock:
        block = self._slots.pop(place.number, None)
        if block is None:
            block = SharedBlock(place.size, _opened(self._owner.pid, place.descriptor))
        self._slots[place.number] = block
        while len(self._slots) > self._keep:
            self._slots.popitem(last=False)
        return block

    @functools.cached_property
    def _shares_memory(self) -> bool:
        """Return True if this is the training's machine: the block holds the content that its process named."""
        secret = self._owner.secret
        try:
            block = SharedBlock(len(secret), _opened(self._owner.pid, self._owner.descriptor))
            return block.array((len(secret),), np.dtype(np.uint8)).tobytes() == secret
        except (OSError, ValueError):  # no such process here, none that may be looked into, or another file
            return False

    @functools.cached_property
    def _recipe(self) -> Recipe:
        processes.set_library_threads()
        processes.keep_freed_memory()
        made = unpickled(self._packed, elsewhere=True)
        assert isinstance(made, Recipe)
        return made

    @functools.cached_property
    def _kernel(self) -> Kernel:
        return Kernel(self._recipe, MemoryCache.of(self._recipe))

    @functools.cached_property
    def _layout(self) -> RowLayout:
        return RowLayout(self._recipe.spec, self._rows)

    @functools.cached_property
    def _block(self) -> SharedBlock:
        return SharedBlock(self._layout.size)


def _opened(pid: int, descriptor: int) -> int:
    return os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)


def require_same_version(owner: str) -> None:
    """Refuse to work for another version of autopipe, which may make other batches."""
    if owner != _version.__version__:
        raise LoaderError(
            f"All nodes of a Ray cluster must have one version of autopipe, but {node_name()} has "
            f"{_version.__version__} and the training has {owner}.",
            hint=again.on_nodes("ray", owner),
        )


def lacking(source: Source) -> list[str]:
    """Return files of a source, of some that are checked, that this machine does not have."""
    files = data_source.files(source, spread(len(source), min(_LOOKED_AT, max(2, len(source)))))
    return [file for file in files if "://" not in file and not os.path.exists(file)]  # noqa: PTH110  # may be bytes-like


def require_present(source: Source, but: Iterable[str] = ()) -> None:
    """Refuse to work without the data; files of `but` are missing at the owner, too."""
    missing = [file for file in lacking(source) if file not in set(but)]
    if missing:
        raise DataError(f"`{missing[0]}` is not on {node_name()} of the Ray cluster.", hint=SHARED_DATA)


def node_name() -> str:
    """Return the name of this machine in messages."""
    return f"the node `{socket.gethostname()}`"


def told(error: BaseException) -> BaseException:
    """Return an error of this node; if it is about a missing file, the node is named."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, FileNotFoundError):
        link = link.__cause__ or link.__context__
    if link is None:
        return error
    message = error.message if isinstance(error, AutopipeError) else str(error)
    kind = type(error) if isinstance(error, AutopipeError) else DataError
    return kind(f"On {node_name()}: {message}", hint=SHARED_DATA)
