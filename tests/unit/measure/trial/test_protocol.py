from __future__ import annotations

import socket
from collections.abc import Iterator

import pydantic
import pytest

from autopipe.measure.facts import Ceiling
from autopipe.measure.outcome import FailureKind, Phase, TrialFailure, Verification
from autopipe.measure.trial import protocol
from autopipe.measure.trial.protocol import Channel, Log, parse_event
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.pipeline.loaders.threads import Threads
from autopipe.values import Estimate
from autopipe.workload.mode import Mode


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
    assert parse_event(line) == Log(text=arrives)


CONFIG = PipelineConfig(loader=Threads(workers=3, queue_size=5), channels="first")


@pytest.mark.parametrize(
    "request_",
    [
        protocol.Load(workload=protocol.Reference(text="train.py:workload"), sys_path=("/x",)),
        protocol.Load(workload=protocol.Pickled(fd=7)),
        protocol.Load(workload=protocol.Pickled(fd=7), simulate=SimulatedAccelerator(0.224, 400)),
        protocol.Ask(request="measure", configs=(CONFIG,), options={"windows": 5, "cap": {"seconds": 2.5}}),
        protocol.Ask(request="ceiling"),
        protocol.Ask(request="step_time", mode=Mode.PREDICT),
        protocol.Ask(request="verify", configs=(CONFIG, CONFIG)),
        protocol.Close(),
    ],
)
def test_a_request_survives_the_channel(request_: protocol.Request) -> None:
    line = request_.model_dump_json().encode()
    assert b"\n" not in line
    assert request_ == protocol.parse_request(line)


@pytest.mark.parametrize(
    "event",
    [
        protocol.PhaseBegan(phase=Phase.FIRST_BATCH),
        protocol.Progress(images=64, images_per_second=10.5),
        protocol.Log(text="two\nlines"),
        protocol.Done(answer=protocol.Ready()),
        protocol.Done(answer=TrialFailure(kind=FailureKind.BUILD, phase=Phase.BUILD, message="x")),
        protocol.Done(answer=Verification(agreements=())),
        protocol.Done(
            answer=Ceiling(
                model_images_per_second=Estimate(value=1.0, low=1.0, high=1.0), model_core_seconds_per_image=0.0
            )
        ),
    ],
)
def test_an_event_survives_the_channel(event: protocol.Event) -> None:
    line = event.model_dump_json().encode()
    assert b"\n" not in line
    assert event == protocol.parse_event(line)


@pytest.mark.parametrize("line", [b"", b"hello", b"{}", b'{"event": "done"}', b'{"event": "phase", "phase": "lunch"}'])
def test_another_language_is_refused(line: bytes) -> None:
    with pytest.raises(pydantic.ValidationError):
        protocol.parse_event(line)
