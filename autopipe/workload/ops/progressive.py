"""Progressive JPEG files: how many there are, what they cost, and the same pixels as a baseline file.

A progressive file holds the coefficients of its blocks in several scans, a baseline one in a single scan, which takes
less time to decode. `region.c` moves the coefficients; whole folders are rewritten in `pipeline/storage/rewrite`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
import pydantic

from autopipe.errors import BadSampleError, DataError
from autopipe.values import Value
from autopipe.workload.data.paths import PathList, is_url, shown, spread, walk
from autopipe.workload.ops import region
from autopipe.workload.ops.decode import Decode, decode

_LOOKED_AT = 512  # files
_TIMED = 8  # files
_ROUNDS, _ROUNDS_SECONDS = 7, 1.0

is_progressive = Decode.is_progressive
HOW_TO = "install a C compiler and libjpeg-turbo's headers (Debian, Ubuntu: apt-get install gcc libjpeg-dev)"


def why_not() -> str | None:
    """Return why no file can be rewritten here; None if they can."""
    found = region.compiled()
    return found if isinstance(found, str) else None


def rewritten(data: bytes) -> bytes | None:
    """Return a progressive JPEG as a baseline one, with its markers; None if that is not possible: it is damaged, or
    decodes to other pixels then, as a file does whose last scans are missing.
    """
    try:
        pixels, made = decode(data, 3), region.baseline(data)
        return made if made is not None and np.array_equal(decode(made, 3), pixels) else None
    except BadSampleError:
        return None


class Progressive(Value):
    """How many image files are progressive JPEG, and what they cost."""

    files: int = pydantic.Field(ge=0)  # all there are
    looked_at: int = pydantic.Field(ge=0)  # of them, those that were read
    progressive: int = pydantic.Field(ge=0)  # of those
    timed: int = pydantic.Field(default=0, ge=0)  # of these, those that were decoded as they are and as baseline files
    seconds: float = pydantic.Field(default=0.0, ge=0)  # that decoding one of the timed took; 0 if none was
    baseline_seconds: float = pydantic.Field(default=0.0, ge=0)  # the same as baseline files
    needs: str | None = None  # what to do before they can be timed and rewritten here


def look_in(folder: str) -> Progressive:
    """Look at the image files of a folder, at any depth; raise DataError if it is missing or unreadable, or a URL."""
    if is_url(folder):
        raise DataError(f"Files of a folder on a disk can be looked at, but got {shown(folder)}.")
    files = PathList(folder, walk(os.fsencode(folder)))
    return look(len(files), files.read)


def look(files: int, read: Callable[[int], bytes]) -> Progressive:
    """Look at some of so many image files, spread over them, and time a few progressive ones as they are and rewritten.

    Args:
        files: how many there are.
        read: returns the content of one. If it raises BadSampleError, the file is left out.
    """
    looked_at, found = 0, []
    for index in spread(files, _LOOKED_AT):
        try:
            data = read(index)
        except BadSampleError:
            continue
        looked_at += 1
        if is_progressive(data):
            found.append(index)
    few = [found[place] for place in spread(len(found), _TIMED)]
    pairs = [pair for index in few if (pair := _pair(read, index)) is not None]
    seconds, baseline = _seconds(pairs)
    return Progressive(
        files=files,
        looked_at=looked_at,
        progressive=len(found),
        timed=len(pairs),
        seconds=seconds,
        baseline_seconds=baseline,
        needs=HOW_TO if found and why_not() is not None else None,
    )


def _pair(read: Callable[[int], bytes], index: int) -> tuple[bytes, bytes] | None:
    """Return a file as it is and as a baseline one."""
    try:
        data = read(index)
    except BadSampleError:  # it is gone
        return None
    made = rewritten(data)
    return None if made is None else (data, made)


def _seconds(pairs: list[tuple[bytes, bytes]]) -> tuple[float, float]:
    """Return the mean time of decoding the first and the second of a pair, of each the shortest of several rounds:
    other load on the machine can only make it longer.
    """
    rounds: list[list[list[float]]] = []
    end = time.perf_counter() + _ROUNDS_SECONDS
    while pairs and (not rounds or (len(rounds) < _ROUNDS and time.perf_counter() < end)):
        rounds.append([[_timed(each) for each in pair] for pair in pairs])
    first, second = np.min(rounds, axis=0).mean(axis=0) if rounds else (0.0, 0.0)
    return float(first), float(second)


def _timed(data: bytes) -> float:
    start = time.perf_counter()
    decode(data, 3)
    return time.perf_counter() - start
