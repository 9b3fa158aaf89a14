"""Messages over a pair of sockets that keep packets apart: a long message goes in several.

Linux takes no packet above some 400 KiB unless its administrator has raised net.core.wmem_max, which is the numbers of
53,000 samples. What is in a message is no business of this module.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

_COUNT = struct.Struct("<I")  # packets of a message, before the first
_PACKET_BYTES = 1 << 16


def send(channel: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a message, which is not empty, and the descriptors of files with it.

    Raises:
        OSError: the other end is closed.
    """
    first = _COUNT.pack(-(-len(message) // _PACKET_BYTES)) + message[:_PACKET_BYTES]
    if descriptors:
        socket.send_fds(channel, [first], descriptors)
    else:
        channel.send(first)
    for at in range(_PACKET_BYTES, len(message), _PACKET_BYTES):
        channel.send(message[at : at + _PACKET_BYTES])


def receive(channel: socket.socket) -> bytes:
    """Return a message; descriptors of files that come with it are closed.

    Raises:
        EOFError: the other end is closed.
        TimeoutError: none began in the channel's time.
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
