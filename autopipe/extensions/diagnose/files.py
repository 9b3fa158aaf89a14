"""Finds the image files that a training reads, as far as its data name them, and looks for progressive JPEG."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe import frameworks
from autopipe.workload.data import source as data_source
from autopipe.workload.data.paths import SUFFIXES, read_file, spread
from autopipe.workload.ops import progressive
from autopipe.workload.ops.progressive import Progressive
from autopipe.workload.sample import Source

_FILES = 512  # whose folders are looked at
_FIRST = 3  # parts of a tuple that may be the path
_DEPTH = 3  # datasets in datasets, as torch has them in a DataLoader


def look(data: Any) -> tuple[Progressive, str] | None:
    """Look at the image files of a training. Return what they are, and the innermost folder that holds them all; None
    if the data name no files.
    """
    for listed in _lists(data):
        place = next((at for at in range(_FIRST) if len(listed) and _path(listed[0], at)), None)
        if place is None or not os.path.isfile(_path(listed[0], place)):  # noqa: PTH113
            continue
        named = [_path(listed[index], place) for index in spread(len(listed), _FILES)]
        parents = {os.path.dirname(os.path.abspath(path)) for path in named if path}  # noqa: PTH100, PTH120
        found = progressive.look(len(listed), lambda index: read_file(os.fsencode(_path(listed[index], place))))  # noqa: B023
        return found, os.path.commonpath(parents)
    return None


def _lists(data: Any) -> Iterator[Sequence[Any] | NDArray[Any]]:
    """Yield the lists and vectors in a training's data that may be of files, or of tuples with a file."""
    if isinstance(data, Source):
        yield data_source.files(data)
    yield from frameworks.texts(data)
    for _ in range(_DEPTH):
        frame = data.gi_frame if inspect.isgenerator(data) else None
        inside = getattr(data, "__dict__", {}) if frame is None else frame.f_locals
        yield from [value for value in inside.values() if isinstance(value, list | tuple | np.ndarray)]
        data = getattr(data, "dataset", None)


def _path(value: Any, place: int) -> str:
    """Return the path of an image in an element of a list; "" if there is none."""
    if isinstance(value, tuple | list):
        value = value[place] if place < len(value) else None
    elif place > 0:
        return ""
    is_path = isinstance(value, str | bytes | os.PathLike) and os.fsencode(value).lower().endswith(SUFFIXES)
    return os.fsdecode(value) if is_path else ""
