"""Notes of what happened when, for a time line: each process appends to a file of its own in one folder.

Written in the trace event format of Chrome, one event a line, in microseconds of the clock that all processes of a
machine share. What costs time where nothing is traced is not here: no object of this module exists then.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

_FLUSH_EVENTS = 256
_FLUSH_SECONDS = 0.2  # workers are killed when a loader closes: no more than this is lost of them
MOST_EVENTS = 100_000
"""In one process; a browser shows a few hundred thousand."""


class TraceLog:
    """Takes notes in this process. Pickles: what comes out elsewhere writes to the same folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._lanes = threading.local()
        self._pending: list[str] = []
        self._written = 0.0
        self._left = MOST_EVENTS
        self._file: int | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return TraceLog, (self._folder,)

    def span(self, name: str, began: float, ended: float) -> None:
        """Note what this thread did between two readings of `time.monotonic`."""
        self._note(f'"ph":"X","name":"{name}","ts":{began * 1e6:.1f},"dur":{(ended - began) * 1e6:.1f}')

    def instant(self, name: str) -> None:
        """Note that something happened now."""
        self._note(f'"ph":"i","s":"p","name":"{name}","ts":{time.monotonic() * 1e6:.1f}')

    def count(self, name: str, value: int) -> None:
        """Note the present value of something that goes up and down."""
        self._note(f'"ph":"C","name":"{name}","ts":{time.monotonic() * 1e6:.1f},"args":{{"{name}":{value}}}')

    def flight(self, phase: str, name: str, identity: str) -> None:
        """Note that something which no thread holds for all of its time begins ("b"), goes on ("n") or ends ("e")."""
        self._note(f'"ph":"{phase}","cat":"{name}","id":"{identity}","name":"{name}","ts":{time.monotonic() * 1e6:.1f}')

    def flush(self) -> None:
        """Write what was noted."""
        with self._lock:
            self._write(time.monotonic())

    def _note(self, event: str) -> None:
        lane = getattr(self._lanes, "text", None)
        if lane is None:
            lane = self._lanes.text = self._new_lane()
        with self._lock:
            if self._left <= 0:
                return
            self._left -= 1
            self._pending.append(f"{{{event},{lane}}}\n")
            now = time.monotonic()
            if len(self._pending) >= _FLUSH_EVENTS or now - self._written > _FLUSH_SECONDS:
                self._write(now)

    def _new_lane(self) -> str:
        """Return what names this thread in an event, and note its name."""
        lane = f'"pid":{os.getpid()},"tid":{threading.get_native_id()}'
        name = json.dumps({"name": threading.current_thread().name})
        with self._lock:
            self._pending.append(f'{{"ph":"M","name":"thread_name","ts":0,"args":{name},{lane}}}\n')
        return lane

    def _write(self, now: float) -> None:
        if self._pending:
            try:
                if self._file is None:
                    path = Path(self._folder) / f"{os.getpid()}-{id(self)}.jsonl"
                    self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                os.write(self._file, "".join(self._pending).encode())
            except OSError:  # no room for more: what is taken note of goes on
                self._left = 0
            self._pending.clear()
        self._written = now

    def __del__(self) -> None:
        self._write(0.0)
        if self._file is not None:
            os.close(self._file)
