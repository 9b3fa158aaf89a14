"""The inside of a worker process: fills batches until its socket closes.

Started as `python -m autopipe.batching.worker READERS SOCKET RECIPE [CACHE]`: how many threads read ahead, descriptors.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterator

import numpy as np

from autopipe.batching import packets
from autopipe.batching.cache import MemoryCache
from autopipe.batching.kernel import Kernel
from autopipe.batching.pickling import RemoteFailure, unpickled
from autopipe.batching.shared_memory import RowLayout, SharedBlock
from autopipe.batching.traced import traced
from autopipe.core.job import Recipe
from autopipe.hardware import allocator, opencv, own_process

_ABOUT_A_LATER_BATCH = 2  # fields of a message that is no order to fill one
_POLL_SECONDS = 5.0  # how often an idle worker looks whether its owner is still there


def main() -> None:
    """Serve one owner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    opencv.one_thread()
    allocator.keep_freed_memory()
    readers, channel_number, recipe_number, *cache_number = map(int, sys.argv[1:])
    if readers == 0:
        own_process.claim()
    channel = socket.socket(fileno=channel_number)
    channel.settimeout(_POLL_SECONDS)
    tasks = _tasks(channel, os.getppid())
    try:
        recipe = traced(_unpacked(recipe_number))
        kernel = Kernel(recipe, _cache(recipe, *cache_number), readers)
    except BaseException as error:  # noqa: BLE001  # the owner raises it, in place of the first batch
        for _ in tasks:
            _answer(channel, pickle.dumps(RemoteFailure.of(error)))
    else:
        _serve(channel, tasks, kernel)


def _cache(recipe: Recipe, descriptor: int | None = None) -> MemoryCache | None:
    if descriptor is None:
        return None
    return MemoryCache.of(recipe, SharedBlock(os.fstat(descriptor).st_size, descriptor))


def _unpacked(descriptor: int) -> Recipe:
    size = os.fstat(descriptor).st_size
    recipe: Recipe = unpickled(SharedBlock(size, descriptor).array((size,), np.dtype(np.uint8)).tobytes())
    return recipe


def _tasks(channel: socket.socket, owner: int) -> Iterator[tuple[bytes, list[int]]]:
    """Yield the owner's messages, with the file descriptors that came along, until it has gone."""
    while True:
        try:
            yield packets.receive_with_file(channel)
        except TimeoutError:
            if os.getppid() != owner:  # the socket may live on in a process that the owner forked
                return
        except (EOFError, ConnectionResetError):  # the latter of an owner that died before it took an answer
            return


def _serve(channel: socket.socket, tasks: Iterator[tuple[bytes, list[int]]], kernel: Kernel) -> None:
    blocks: dict[int, SharedBlock] = {}
    for message, descriptors in tasks:
        told = pickle.loads(message)  # noqa: S301  # from the owner
        if len(told) == _ABOUT_A_LATER_BATCH:
            begin, packed = told
            (kernel.begin if begin else kernel.forget)(np.frombuffer(packed, np.int64))
            continue
        number, size, rows, epoch, packed, gone = told
        for old in gone:
            del blocks[old]
        if descriptors:
            blocks[number] = SharedBlock(size, descriptors[0])
        indices = np.frombuffer(packed, np.int64)
        batch = RowLayout(kernel.spec, rows).arrays(blocks[number], len(indices))
        try:
            answer = pickle.dumps(kernel.fill(epoch, indices, batch))
        except BaseException as error:  # noqa: BLE001  # the owner raises it
            answer = pickle.dumps(RemoteFailure.of(error))
        if not _answer(channel, answer):
            return


def _answer(channel: socket.socket, answer: bytes) -> bool:
    """Send an answer; return whether there is still somebody to take it."""
    try:
        packets.send(channel, answer)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
