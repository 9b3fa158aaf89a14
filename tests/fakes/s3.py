"""An S3 server on loopback (moto's) and a proxy before it, which delays answers, counts them, and breaks some.

Nothing here waits longer than `PATIENCE_SECONDS`. The server checks no signature: what credentials do is botocore's.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

PATIENCE_SECONDS = 60.0

Fault: TypeAlias = "Callable[[Handler], bool]"


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Run an S3 server in a process of its own; yield its port."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            yield _port(process.stderr.fileno())
        finally:
            process.kill()


def _port(descriptor: int) -> int:
    deadline, said = time.monotonic() + PATIENCE_SECONDS, b""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0] or not (chunk := os.read(descriptor, 4096)):
            break
        said += chunk
        if found := re.search(rb"Running on http://127\.0\.0\.1:(\d+)", said):
            # What it says later is of no interest, but must be taken, or it stops.
            threading.Thread(target=_drain, args=(descriptor,), daemon=True).start()
            return int(found[1])
    raise RuntimeError(f"The S3 server did not start: {said.decode(errors='replace')}")


def _drain(descriptor: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        while os.read(descriptor, 4096):
            pass


class _Quiet(http.server.ThreadingHTTPServer):
    """Says nothing of clients that hang up, as killed workers do."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Proxy:
    """An HTTP proxy before a server on loopback."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.requests: list[tuple[str, str]] = []  # ("GET", "/bucket/name") of each so far
        self.reset()
        self._server = _Quiet(("127.0.0.1", 0), type("Bound", (Handler,), {"owner": self}))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_SECONDS)

    def reset(self) -> None:
        """Pass everything on at once, and forget what was asked."""
        self.latency_seconds = 0.0  # what each answer waits
        self.requests.clear()
        self.fault: Fault = lambda handler: False  # may answer a request instead, and then returns True


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    owner: Proxy
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        pass

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.owner.requests.append((self.command, self.path))
        if self.owner.latency_seconds:
            threading.Event().wait(self.owner.latency_seconds)
        if self.owner.fault(self):
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.owner.upstream, timeout=PATIENCE_SECONDS)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

    def answer(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def cut(self) -> None:
        """Promise 1,000 bytes, send ten, and close the connection."""
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"0123456789")
        self.wfile.flush()
        self.close_connection = True
