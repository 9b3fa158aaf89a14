"""A trace in Chrome's trace event format, which Perfetto opens, too: the spans of trials, reads and ops (`--trace`).

Every process appends to the one file, a line for each event. What is noted is the kernel's business, and the feed's.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from autopipe.errors import ConfigError

_LEAST_SECONDS: Final = 1e-4  # a note takes 3 microseconds
_MOST: Final = 20_000  # spans of one kernel; a browser shows a few hundred thousand
_LAST: Final = {"ph": "M", "name": "trace_ended", "pid": 0, "args": {}}

_T = TypeVar("_T")


class Trace:
    """Appends spans to a trace's file, from any thread. If the disk is full, they are lost, and the work goes on."""

    def __init__(self, file: str) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        weakref.finalize(self, os.close, self._file)
        self._lanes = threading.local()
        self._left = _MOST

    def span(self, name: str, began: float, ended: float) -> None:
        """Note work of this thread, by the monotonic clock, unless it was short or there are many notes."""
        if ended - began < _LEAST_SECONDS or self._left <= 0:
            return
        self._left -= 1
        lane = getattr(self._lanes, "lane", None)
        line = f'{{"ph":"X","name":{json.dumps(name)},"ts":{began * 1e6:.1f},"dur":{(ended - began) * 1e6:.1f},'
        if lane is None:
            lane = self._lanes.lane = f'"pid":{os.getpid()},"tid":{threading.get_native_id()}}},\n'
            named = json.dumps({"name": threading.current_thread().name})
            line = f'{{"ph":"M","name":"thread_name","args":{named},{lane}{line}'
        with contextlib.suppress(OSError):
            os.write(self._file, f"{line}{lane}".encode())

    def noted(self, function: Callable[..., _T], name: str | Callable[..., str]) -> Callable[..., _T]:
        """Return the function with its calls noted, by a name or by that of its arguments."""

        def timed(*arguments: Any) -> _T:
            began = time.monotonic()
            try:
                return function(*arguments)
            finally:
                self.span(name if isinstance(name, str) else name(*arguments), began, time.monotonic())

        return timed


@contextlib.contextmanager
def begun(file: Path | None) -> Iterator[str | None]:
    """Begin a trace's file, and end it; yield its name. Raise ConfigError if it cannot be written."""
    if file is None:
        yield None
        return
    try:
        file.write_text("[\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"`--trace` must name a file that can be written to, but got {str(file)!r}: {error.strerror}.",
            hint="For example: --trace trace.json",
        ) from error
    try:
        yield str(file.absolute())
    finally:
        with contextlib.suppress(OSError), file.open("a", encoding="utf-8") as stream:
            stream.write(f"{json.dumps(_LAST)}]\n")
