"""Samples that Python makes, and not the native library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from autopipe import native


@contextlib.contextmanager
def by_python() -> Iterator[None]:
    """Have Python make samples, in this process and in those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOPIPE_NATIVE", "0")
        patch.setattr(native, "why_not", lambda: "AUTOPIPE_NATIVE=0 is set")
        yield
