"""A web server on loopback, which has what a test puts there, sends ranges, and fails as a test wants it to."""

import contextlib
import http.server
import re
import threading
from collections.abc import Iterator

CUT = 0  # in place of a status: no answer, and the connection closed


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}  # by path
        self.status: dict[str, int] = {}  # what it answers for a path in place of 200
        self.ranges = True  # whether it can send a part of a file
        self.asked: list[tuple[str, int, int]] = []  # the bytes that were asked for and sent: path, first and last
        self.broken: set[str] = set()  # paths of which it sends the first half, and then closes the connection
        self.may_answer = threading.Event()  # it sends no content until this is set
        self.may_answer.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Answers(http.server.BaseHTTPRequestHandler):
    """One connection of a client, of which nothing is printed."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for the acknowledgement of its header
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:
        pass

    def send(self, status: int, length: object, content: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for header in (*headers, ("Content-Length", str(length))):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")


class Handler(Answers):
    server: Server

    def do_GET(self) -> None:
        path, is_get = self.path.partition("?")[0], self.command == "GET"
        status = self.server.status.get(path, 200 if path in self.server.files else 404)
        content = self.server.files.get(path, b"") if status == 200 else b"no"
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked and status == 200 and self.server.ranges:
            first, last = int(asked[1]), int(asked[2] or len(content) - 1)
            status, content = (206, content[first : last + 1]) if first < len(content) else (416, b"")
            self.server.asked.append((path, first, last))
        is_broken = path in self.server.broken and is_get
        self.close_connection |= is_broken or status == CUT
        if status == CUT:
            return
        if is_get:
            self.server.may_answer.wait(60)
        with contextlib.suppress(ConnectionError):  # of a client that waits no longer
            self.send(status, len(content), content[: len(content) // 2] if is_broken else content)

    do_HEAD = do_GET


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join(60)
