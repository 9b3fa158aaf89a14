"""The inside of a worker process, which fills batches until its socket closes, and its messages with the owner.

Started as `python -m autopipe.pipeline.batching.worker READERS SOCKET RECIPE [CACHE]`: how many threads read ahead,
descriptors.

Messages go over a pair of sockets that keep packets apart; a long message goes in several. Linux takes no packet above
some 400 KiB unless its administrator has raised net.core.wmem_max, which is the numbers of 53,000 samples.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from autopipe.hardware import opencv, processes
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.batching.pickling import RemoteFailure, unpickled
from autopipe.pipeline.batching.traced import traced
from autopipe.pipeline.loader import Recipe

_COUNT = struct.Struct("<I")  # packets of a message, before the first
_PACKET_BYTES = 1 << 16


def send(channel: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message, which is not empty, and file descriptors with it; raise OSError if the other end is closed."""
    first = _COUNT.pack(-(-len(message) // _PACKET_BYTES)) + message[:_PACKET_BYTES]
    if descriptors:
        socket.send_fds(channel, [first], descriptors)
    else:
        channel.send(first)
    for at in range(_PACKET_BYTES, len(message), _PACKET_BYTES):
        channel.send(message[at : at + _PACKET_BYTES])


def receive(channel: socket.socket) -> bytes:
    """Return a message; descriptors of files that come with it are closed. Raise EOFError if the other end is closed,
    and TimeoutError if none began in the channel's time.
    """
    return _whole(channel, channel.recv(_COUNT.size + _PACKET_BYTES))


def receive_with_file(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Return a message, and the descriptor that came with it, if one did; raises as `receive` does."""
    first, descriptors, _, _ = socket.recv_fds(channel, _COUNT.size + _PACKET_BYTES, 1)
    return _whole(channel, first), descriptors


def _whole(channel: socket.socket, first: bytes) -> bytes:
    """Return the message that begins with this packet."""
    if not first:
        raise EOFError
    (count,) = _COUNT.unpack_from(first)
    if count == 1:
        return first[_COUNT.size :]
    patience = channel.gettimeout()
    channel.settimeout(None)  # the rest is on its way
    try:
        rest = [channel.recv(_PACKET_BYTES) for _ in range(count - 1)]
    finally:
        channel.settimeout(patience)
    if not all(rest):
        raise EOFError
    return b"".join((first[_COUNT.size :], *rest))


_ABOUT_A_LATER_BATCH = 2  # fields of a message that is no order to fill one
_POLL_SECONDS = 5.0  # how often an idle worker looks whether its owner is still there


def main() -> None:
    """Serve one owner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    opencv.one_thread()
    processes.keep_freed_memory()
    readers, channel_number, recipe_number, *cache_number = map(int, sys.argv[1:])
    if readers == 0:
        processes.claim()
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
            yield receive_with_file(channel)
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
    """Send an answer; return False if the owner is gone."""
    try:
        send(channel, answer)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
