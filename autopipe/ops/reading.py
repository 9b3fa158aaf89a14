"""Reading one sample, and errors that say which sample and which op they are about."""

from __future__ import annotations

import threading
from typing import Any

from autopipe.core.op import Op
from autopipe.core.sample import Source
from autopipe.errors import AutopipeError, BadSampleError, DataError, OpError, printable, said_anew


def read(source: Source, index: int) -> Any:
    """Return what a source's `read` gives.

    Raises:
        BadSampleError: whatever a user's source raises of the sample.
    """
    try:
        return source.read(index)
    except BaseException as error:  # it is named and shown
        raise read_failure(error, source, index) from error


def sample_name(source: Source, index: int) -> str:
    """Return what a person calls a sample: its path where the source knows it."""
    name = getattr(source, "name", None)
    return printable(str(name(index))) if callable(name) else f"sample {index}"


def sample_place(source: Source, index: int) -> str:
    """Return a sample's number and what a person calls it, for messages; the number alone where that is its name."""
    number, name = f"sample {index}", sample_name(source, index)
    return name if name == number or name.startswith(f"{number} ") else f"{number} ({name})"


def op_failure(error: BaseException, op: Op, source: Source, index: int) -> AutopipeError:
    """Return the error to raise when an op failed on a sample: with the op, the sample's index and its name.

    Raises:
        KeyboardInterrupt: it was no failure; somebody pressed Ctrl-C.
    """
    _pass_interrupt(error)
    place = f"{op.name} on {sample_place(source, index)}"
    if isinstance(error, AutopipeError):
        return said_anew(error, f"{place}: {error.message}", error.hint)
    return OpError(f"{place} raised {type(error).__name__}: {error}")


def read_failure(error: BaseException, source: Source, index: int) -> AutopipeError:
    """Return the error to raise when a sample could not be read.

    Raises:
        KeyboardInterrupt: it was no failure; somebody pressed Ctrl-C.
    """
    _pass_interrupt(error)
    place = sample_place(source, index)
    if isinstance(error, AutopipeError):
        named = f"sample {index}" if sample_name(source, index) in error.message else place
        return said_anew(error, f"{named}: {error.message}", error.hint)
    kind = BadSampleError if isinstance(error, Exception) else DataError  # `sys.exit` says nothing about a sample
    return kind(f"{place} cannot be read: {type(error).__name__}: {error}")


def _pass_interrupt(error: BaseException) -> None:
    """Raise Ctrl-C again, which Python delivers to the main thread alone; anywhere else it is an error like others."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error
