"""The language between a study and the process that measures for it: one JSON object a line, on a socket of its own.

The parent sends requests; the child answers each with events, of which the last is `done`. An answer ends at that line
and not at the end of the stream, which a grandchild may hold open for ever. Everything that crosses the boundary is
declared here, and carried by a `Channel`, the same on both sides.
"""

from __future__ import annotations

import dataclasses
import json
import selectors
import socket
import threading
from typing import Annotated, Literal

import pydantic
import pydantic_core

from autopipe.measure.facts import Ceiling, Description
from autopipe.measure.outcome import EpochTime, LoaderRate, Measurement, Phase, TrialFailure, Verification
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.devices.simulated import SimulatedAccelerator
from autopipe.values import JsonObject, Value
from autopipe.workload.mode import Mode


class Channel:
    """Sends messages and receives lines. Owns the socket; sending is safe from any thread, receiving from one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._pending = b""
        self._selector = selectors.PollSelector()
        self._selector.register(connection, selectors.EVENT_READ)

    def send(self, message: pydantic.BaseModel) -> None:
        """Send one message; raises OSError if the other side has gone."""
        with self._sending:
            self._socket.sendall(_line(message) + b"\n")

    def receive(self, timeout_seconds: float) -> list[bytes]:
        """Return the complete lines, or wait for some; empty if none arrived. Raises EOFError if the other side has
        closed, or died; earlier lines have been returned by then.
        """
        if not self._selector.select(timeout_seconds):
            return []
        try:
            chunk = self._socket.recv(1 << 16)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return lines

    def close(self) -> None:
        self._selector.close()
        self._socket.close()


def _line(message: pydantic.BaseModel) -> bytes:
    try:
        return message.model_dump_json().encode()
    except pydantic_core.PydanticSerializationError:  # half a character, from the name of a file that is no UTF-8
        return json.dumps(message.model_dump(mode="json"), ensure_ascii=False).encode("utf-8", "replace")


IN_TRIAL = "AUTOPIPE_IN_TRIAL"
"""Set in the child's environment, so that a script without a main guard that tunes in there gets a clear error."""


class Reference(Value):
    """A workload by name, "train.py:workload" or "package.module:attribute"; `may_call`: the name may be a function."""

    kind: Literal["reference"] = "reference"
    text: str
    may_call: bool = True


class Pickled(Value):
    """A workload as an object that has no name, in an anonymous file that the child inherits."""

    kind: Literal["pickled"] = "pickled"
    fd: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a child makes its session of a workload."""

    session: str = "autopipe.measure.session:Session"  # the "module:callable" that makes it from the workload
    sys_path: tuple[str, ...] = ()  # folders in addition to the child's own
    simulate: SimulatedAccelerator | None = None  # a simulated accelerator in place of the workload's model
    mode: Mode = Mode.TRAIN  # of the steps that trials measure
    code: str | None = None  # foreign code to measure: plain code by its name, or the user's "FILE.py:function"


class Load(Value):
    """Import the workload and make the session. The first request, once."""

    request: Literal["load"] = "load"
    workload: Annotated[Reference | Pickled, pydantic.Field(discriminator="kind")]
    terms: Terms


class Ask(Value):
    """Call the method of the session that has this name; the answer is what it returns."""

    request: Literal["describe", "measure", "loader", "epoch", "ceiling", "verify"]
    configs: tuple[PipelineConfig, ...] = ()  # the one to `measure`, or those to `verify`
    options: JsonObject = pydantic.Field(default_factory=dict)


class Close(Value):
    """Close the session and exit. Has no answer."""

    request: Literal["close"] = "close"


Request = Load | Ask | Close


class Ready(Value):
    """The answer to `Load`."""

    status: Literal["ready"] = "ready"
    too_late: bool = False  # the workload's file has set what the framework had read when it was imported before


Answer = Ready | Description | Measurement | LoaderRate | EpochTime | Ceiling | Verification | TrialFailure


class PhaseBegan(Value):
    """The trial entered a phase."""

    event: Literal["phase"] = "phase"
    phase: Phase


class Progress(Value):
    """The trial is alive; its progress."""

    event: Literal["progress"] = "progress"
    images: int
    images_per_second: float


class Log(Value):
    """A line for the user."""

    event: Literal["log"] = "log"
    text: str
    of_data: bool = False  # a DataWarning's


class Done(Value):
    """The end of an answer."""

    event: Literal["done"] = "done"
    answer: Annotated[Answer, pydantic.Field(discriminator="status")]


Event = PhaseBegan | Progress | Log | Done

REQUEST: pydantic.TypeAdapter[Request] = pydantic.TypeAdapter(
    Annotated[Request, pydantic.Field(discriminator="request")]
)
EVENT: pydantic.TypeAdapter[Event] = pydantic.TypeAdapter(Annotated[Event, pydantic.Field(discriminator="event")])
