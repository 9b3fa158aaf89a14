"""Whether this process makes samples in one thread and does nothing else.

There, code that is faster but holds Python's lock may be used: nobody waits for the lock. A worker process claims it at
its start, for good, and so does an actor of `Ray`; what an op costs there is measured under `claimed`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_claims = 0


def claim() -> None:
    """Say that from now on one thread of this process makes samples, and no other needs Python's lock."""
    global _claims  # it is about the process
    _claims += 1


@contextlib.contextmanager
def claimed() -> Iterator[None]:
    """Have it be so for a while."""
    global _claims
    claim()
    try:
        yield
    finally:
        _claims -= 1


def is_claimed() -> bool:
    """Whether that was said."""
    return _claims > 0
