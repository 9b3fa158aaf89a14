"""Messages in packets: whole at the other end, however long."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from autopipe.batching import worker

SYSTEM_BYTES = 1 << 17  # that a socket of Linux holds, and so a packet, unless it is raised


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SYSTEM_BYTES)
        yield one, other


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 16) + 1, 3_000_000])
def test_a_message_of_any_length_arrives_whole_and_before_the_next(
    ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    one, other = ends
    message = os.urandom(size)

    def tell() -> None:
        worker.send(one, message)
        worker.send(one, b"next")

    teller = threading.Thread(target=tell)
    teller.start()
    assert worker.receive(other) == message
    assert worker.receive(other) == b"next"
    teller.join()


def test_a_file_goes_with_a_long_message(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    given, kept = os.pipe()
    teller = threading.Thread(target=worker.send, args=(one, bytes(1_000_000), [kept]))
    teller.start()
    message, (descriptor,) = worker.receive_with_file(other)
    teller.join()
    os.write(descriptor, b"through")
    assert (len(message), os.read(given, 7)) == (1_000_000, b"through")
    for each in (given, kept, descriptor):
        os.close(each)


def test_an_end_that_closes_in_a_message_or_before_it_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    one.send((2).to_bytes(4, "little") + b"the first of two packets")
    one.close()
    for _ in range(2):
        with pytest.raises(EOFError):
            worker.receive(other)


def test_waiting_for_a_message_ends_in_the_channels_time(ends: tuple[socket.socket, socket.socket]) -> None:
    _, other = ends
    other.settimeout(0.01)
    with pytest.raises(TimeoutError):
        worker.receive(other)
