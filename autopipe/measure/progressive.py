"""Progressive JPEG files, which take longer to decode than baseline ones: how many of some files they are."""

from __future__ import annotations

import os
from collections.abc import Callable

import pydantic

from autopipe.errors import BadSampleError, DataError
from autopipe.values import Value
from autopipe.workload.data.paths import PathList, is_url, shown, spread, walk
from autopipe.workload.ops.headers import is_progressive

_LOOKED_AT = 512  # files


class Progressive(Value):
    """How many image files are progressive JPEG."""

    files: int = pydantic.Field(ge=0)  # all there are
    looked_at: int = pydantic.Field(ge=0)  # of them, those that were read
    progressive: int = pydantic.Field(ge=0)  # of those


def look_in(folder: str) -> Progressive:
    """Look at the image files of a folder, at any depth; raise DataError if it is missing or unreadable, or a URL."""
    if is_url(folder):
        raise DataError(f"Files of a folder on a disk can be looked at, but got {shown(folder)}.")
    files = PathList(folder, walk(os.fsencode(folder)))
    return look(len(files), files.read)


def look(files: int, read: Callable[[int], bytes]) -> Progressive:
    """Look at some of so many image files, spread over them.

    Args:
        files: how many there are.
        read: returns the content of one. If it raises BadSampleError, the file is left out.
    """
    looked_at = progressive = 0
    for index in spread(files, _LOOKED_AT):
        try:
            data = read(index)
        except BadSampleError:
            continue
        looked_at += 1
        progressive += is_progressive(data)
    return Progressive(files=files, looked_at=looked_at, progressive=progressive)
