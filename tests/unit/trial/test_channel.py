from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from autopipe.trial.channel import Channel
from autopipe.trial.protocol import Log, parse_event


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        yield channel, theirs
    channel.close()


def test_lines_come_whole_and_in_order(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(b"one\ntwo\nthr")
    assert channel.receive(1.0) == [b"one", b"two"]
    other.sendall(b"ee\n")
    assert channel.receive(1.0) == [b"three"]


def test_nothing_comes_in_time(pair: tuple[Channel, socket.socket]) -> None:
    assert pair[0].receive(0.0) == []


def test_the_end_comes_after_everything_before_it(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(b"last words\n")
    other.close()
    assert channel.receive(1.0) == [b"last words"]
    with pytest.raises(EOFError):
        channel.receive(1.0)


def test_a_message_is_one_line(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    channel.send(Log(text="a\nb"))
    line = other.recv(1000)
    assert line.endswith(b"\n")
    assert parse_event(line) == Log(text="a\nb")


def test_half_a_character_arrives_as_a_question_mark(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    channel.send(Log(text="é: caf\udce9.jpg"))
    assert parse_event(other.recv(1000)) == Log(text="é: caf?.jpg")


def test_sending_to_nobody_is_an_error(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.close()
    with pytest.raises(OSError, match="Broken pipe"):
        channel.send(Log(text="anybody?"))
