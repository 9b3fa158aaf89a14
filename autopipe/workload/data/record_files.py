"""Which TFRecord files are meant, on a disk or behind URLs, and where their records start."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError, DataWarning
from autopipe.workload.data import remote
from autopipe.workload.data.paths import PathList
from autopipe.workload.data.records import record_offsets
from autopipe.workload.data.remote import Info, ObjectList
from autopipe.workload.data.url import is_url, located, shown
from autopipe.workload.script import RULE, located_pattern

_MOST_FILES = 1_000_000
_NUMBERED = re.compile(r"(.*)-(\d+)-of-(\d+)(\.\w+)?")


def scanned(
    pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[PathList, Iterable[NDArray[np.uint64]]]:
    """Return the files, and where the records of each start.

    Raises:
        DataError: no file matches; one is compressed, cut short, or no TFRecord file.
    """
    urls = _urls(pattern)
    if urls:
        top, objects = remote.named(urls)
        files: PathList = ObjectList(top, objects)
        found = [(files.path(number), each) for number, each in enumerate(objects)]
        return files, remote.at_once(lambda one: record_offsets(one[0], one[1].size, one[1].tag.hex()), found)
    paths = _matching(pattern)
    root = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120
    relative = (os.fsencode(os.path.relpath(path, root)) for path in paths)
    files = PathList(root, (path.rpartition(b"/")[::2] for path in relative))
    return files, (record_offsets(files.path(number)) for number in range(len(files)))


def _urls(pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> dict[str, Info]:
    """Return what is known of each URL that is meant; none where files on a disk are."""
    if not isinstance(pattern, str | os.PathLike):
        places = [located(place) for place in pattern]
        return remote.asked(places) if any(map(is_url, places)) else {}
    place = located(pattern)
    if not is_url(place):
        return {}
    found = remote.matching(place)
    if not found:
        raise DataError(f"No object matches `{shown(place)}`.", hint="Check the address.")
    _warn_of_missing_files(sorted(found))
    return found


def _matching(pattern: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    if not isinstance(pattern, str | os.PathLike):
        if not pattern:
            raise DataError("`pattern` must name at least one file, but is an empty sequence.")
        return [os.path.abspath(located(path)) for path in pattern]  # noqa: PTH100  links are not resolved
    absolute = located(pattern) if is_url(pattern) else located_pattern(pattern)
    paths = sorted(glob.glob(absolute, recursive=True))  # noqa: PTH207
    if not paths:
        raise DataError(
            f"No file matches {absolute!r}.",
            hint=RULE,
        )
    _warn_of_missing_files(paths)
    return [os.path.abspath(path) for path in paths]  # noqa: PTH100


def _warn_of_missing_files(paths: list[str]) -> None:
    """Warn of a set named NAME-00003-of-00010 of which some files are missing."""
    sets: dict[tuple[str, int], set[int]] = {}
    for path in paths:
        match = _NUMBERED.fullmatch(path)
        if match:
            sets.setdefault((match[1], int(match[3])), set()).add(int(match[2]))
    for (name, total), found in sets.items():
        missing = sorted(set(range(min(total, _MOST_FILES))) - found)
        if missing:
            warnings.warn(
                f"`{name}-*` should be {total} files by their names, but {len(missing)} are missing, "
                f"the first is number {missing[0]}.",
                DataWarning,
                stacklevel=4,
            )
