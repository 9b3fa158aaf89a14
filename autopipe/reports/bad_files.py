"""The samples that a training would stop at, as text."""

from __future__ import annotations

from collections.abc import Iterator

from autopipe.core.verification import FileVerification


def lines(found: FileVerification) -> Iterator[str]:
    """Yield what `autopipe verify --files` prints: a line for each bad sample, and the sum."""
    for each in found.bad:
        yield f"bad       {each.name}: {each.reason}"
    before = f", {found.resumed:,} of them by an earlier look that was stopped" if found.resumed else ""
    if not found.bad:
        yield f"verified  all {found.samples:,} samples can be read and decoded{before}"
        return
    yield f"verified  {found.samples:,} samples{before}: {len(found.bad):,} cannot be used"
    if len(found.bad) <= max(1, found.samples // 100):
        yield 'next      replace or remove them, or train with on_bad_sample="skip", which puts others in their place'
    else:
        yield 'next      replace or remove them; they are more than the 1 % that on_bad_sample="skip" puts up with'
