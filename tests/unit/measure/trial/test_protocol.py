from __future__ import annotations

import socket
from collections.abc import Iterator

import pydantic
import pytest

from autopipe.measure.trial import protocol
from autopipe.measure.trial.protocol import EVENT, Channel, Log


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        yield channel, theirs
    channel.close()


def test_lines_come_whole_and_in_order_and_the_end_after_all_of_them(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    assert channel.receive(0.0) == []
    other.sendall(b"one\ntwo\nthr")
    assert channel.receive(1.0) == [b"one", b"two"]
    other.sendall(b"ee\n")
    other.close()
    assert channel.receive(1.0) == [b"three"]
    with pytest.raises(EOFError):
        channel.receive(1.0)
    with pytest.raises(OSError, match="Broken pipe"):
        channel.send(Log(text="anybody?"))


@pytest.mark.parametrize(("text", "arrives"), [("a\nb", "a\nb"), ("é: caf\udce9.jpg", "é: caf?.jpg")])
def test_a_message_is_one_line_in_which_half_a_character_is_a_question_mark(
    pair: tuple[Channel, socket.socket], text: str, arrives: str
) -> None:
    channel, other = pair
    channel.send(Log(text=text))
    line = other.recv(1000)
    assert (line.count(b"\n"), line[-1:]) == (1, b"\n")
    assert EVENT.validate_json(line) == Log(text=arrives)


@pytest.mark.parametrize("line", [b"", b"hello", b"{}", b'{"event": "done"}', b'{"event": "phase", "phase": "lunch"}'])
def test_another_language_is_refused(line: bytes) -> None:
    with pytest.raises(pydantic.ValidationError):
        protocol.EVENT.validate_json(line)
