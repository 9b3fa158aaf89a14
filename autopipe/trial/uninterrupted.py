"""What a signal must not cut in two: the start of processes, and what clears them away.

Ctrl-C and SIGTERM raise KeyboardInterrupt wherever the main thread is; between a process that has started and the note
of it, that would leave the process to nobody. Nothing that can take long belongs into such a block.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back what ends this process in order while the block runs, and let it through then.

    Python handles signals in the main thread, so that elsewhere there is nothing to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)

    try:
        with contextlib.ExitStack() as handlers:
            for number in _SIGNALS:
                if callable(handler := signal.getsignal(number)):  # else it is ignored, or ends the process on the spot
                    handlers.callback(signal.signal, number, handler)
                    signal.signal(number, hold)
            yield
    finally:
        if held:
            signal.raise_signal(held[0])
