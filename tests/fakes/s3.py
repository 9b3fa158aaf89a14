"""An S3 server on loopback (moto's) and a proxy before it, which delays answers, counts them, and breaks some.

Nothing here waits longer than `PATIENCE_SECONDS`. The server checks no signature: what credentials do is botocore's.
"""

import contextlib
import http.client
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tests.fakes.web import Answers

PATIENCE_SECONDS = 60.0
RUNS = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")

Fault: TypeAlias = "Callable[[Handler], bool]"


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Run an S3 server in a process of its own; yield its port."""
    command, said = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], ""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        late = threading.Timer(PATIENCE_SECONDS, process.kill)
        late.start()
        while (found := RUNS.search(said)) is None and (line := process.stderr.readline()):
            said += line
        late.cancel()
        rest = threading.Thread(target=process.stderr.read)  # of no interest, but must be taken, or it stops
        rest.start()
        try:
            assert found is not None, f"The S3 server did not start: {said}"
            yield int(found[1])
        finally:
            process.kill()
            rest.join()


class Proxy(http.server.ThreadingHTTPServer):
    """An HTTP proxy before a server on loopback."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.upstream = upstream
        self.requests: list[tuple[str, str]] = []  # ("GET", "/bucket/name") of each so far
        self.reset()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up, as killed workers do."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(PATIENCE_SECONDS)

    def reset(self) -> None:
        """Pass everything on at once, and forget what was asked."""
        self.latency_seconds = 0.0  # what each answer waits
        self.requests.clear()
        self.fault: Fault = lambda handler: False  # may answer a request instead, and then returns True


class Handler(Answers):
    server: Proxy

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path))
        if self.server.latency_seconds:
            threading.Event().wait(self.server.latency_seconds)
        if self.server.fault(self):
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=PATIENCE_SECONDS)
        with contextlib.closing(upstream):
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
        own = ("connection", "transfer-encoding", "content-length", "date", "server")
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else len(content)
        self.send(answer.status, length, content, *(each for each in answer.getheaders() if each[0].lower() not in own))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

    def answer(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.send(status, len(text), text)

    def cut(self) -> None:
        """Promise 1,000 bytes, send ten, and close the connection."""
        self.send(200, 1000, b"0123456789")
        self.close_connection = True
