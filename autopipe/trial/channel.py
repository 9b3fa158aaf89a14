"""Lines over a socket, the same on both sides. It knows neither what the lines mean nor what to do when they stop."""

from __future__ import annotations

import json
import selectors
import socket
import threading

import pydantic
import pydantic_core

_CHUNK_BYTES = 1 << 16


class Channel:
    """Sends messages and receives lines. Owns the socket; sending is safe from any thread, receiving from one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._pending = b""
        self._selector = selectors.PollSelector()
        self._selector.register(connection, selectors.EVENT_READ)

    def send(self, message: pydantic.BaseModel) -> None:
        """Send one message.

        Raises:
            OSError: if the other side has gone.
        """
        with self._sending:
            self._socket.sendall(_line(message) + b"\n")

    def receive(self, timeout_seconds: float) -> list[bytes]:
        """Return the lines that are complete, or wait for something to arrive; an empty list if nothing did.

        Raises:
            EOFError: if the other side has closed, or died. What it sent before has been returned by then.
        """
        if not self._selector.select(timeout_seconds):
            return []
        try:
            chunk = self._socket.recv(_CHUNK_BYTES)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return lines

    def close(self) -> None:
        """Close the socket."""
        self._selector.close()
        self._socket.close()


def _line(message: pydantic.BaseModel) -> bytes:
    try:
        return message.model_dump_json().encode()
    except pydantic_core.PydanticSerializationError:  # half a character, from the name of a file that is no UTF-8
        return json.dumps(message.model_dump(mode="json"), ensure_ascii=False).encode("utf-8", "replace")
