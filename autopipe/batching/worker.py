"""The inside of a worker process: fills batches until its socket closes.

Started as `python -m autopipe.batching.worker SOCKET RECIPE [CACHE]` with file descriptors. It imports no framework.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import traceback

import cv2
import numpy as np

from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import Kernel
from autopipe.batching.memory import RowLayout, SharedBlock
from autopipe.batching.process import MESSAGE_BYTES, RemoteFailure
from autopipe.core.job import Recipe
from autopipe.errors import AutopipeError, LoaderError
from autopipe.hardware import allocator

_POLL_SECONDS = 5.0  # how often an idle worker looks whether its owner is still there
_TRACEBACK_CHARACTERS = 20_000


def main() -> None:
    """Serve one owner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    cv2.setNumThreads(0)
    allocator.keep_freed_memory()
    channel_number, recipe_number, *cache_number = map(int, sys.argv[1:])
    channel = socket.socket(fileno=channel_number)
    channel.settimeout(_POLL_SECONDS)
    recipe = _unpacked(recipe_number)
    cache = None
    if cache_number:
        block = SharedBlock(os.fstat(cache_number[0]).st_size, cache_number[0])
        cache = MemoryCache.of(recipe, block)
    _serve(channel, recipe, Kernel(recipe, cache), os.getppid())


def _unpacked(descriptor: int) -> Recipe:
    size = os.fstat(descriptor).st_size
    path, body = pickle.loads(SharedBlock(size, descriptor).array((size,), np.dtype(np.uint8)).tobytes())  # noqa: S301  # from the owner
    sys.path[:] = path
    recipe: Recipe = pickle.loads(body)  # noqa: S301  # from the owner
    return recipe


def _serve(channel: socket.socket, recipe: Recipe, kernel: Kernel, owner: int) -> None:
    blocks: dict[int, SharedBlock] = {}
    while True:
        try:
            message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 1)
        except TimeoutError:
            if os.getppid() != owner:  # the socket may live on in a process that the owner forked
                return
            continue
        if not message:
            return
        number, size, rows, epoch, packed, gone = pickle.loads(message)  # noqa: S301  # from the owner
        for old in gone:
            del blocks[old]
        if descriptors:
            blocks[number] = SharedBlock(size, descriptors[0])
        indices = np.frombuffer(packed, np.int64)
        batch = RowLayout(recipe.spec, rows).arrays(blocks[number], len(indices))
        try:
            answer = pickle.dumps(kernel.fill(epoch, indices, batch))
        except Exception as error:  # noqa: BLE001  # sent to the owner, who raises it
            answer = _packed_failure(error)
        try:
            channel.send(answer)
        except OSError:
            return


def _packed_failure(error: Exception) -> bytes:
    text = "".join(traceback.format_exception(error))[-_TRACEBACK_CHARACTERS:]
    known = (
        error if isinstance(error, AutopipeError) else LoaderError(f"A worker failed: {type(error).__name__}: {error}")
    )
    return pickle.dumps(RemoteFailure(known, text))


if __name__ == "__main__":
    main()
