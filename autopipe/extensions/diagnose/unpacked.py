"""What reads of packed arrays unpack beside what they use: compressed chunks of HDF5 files, and members of .npz files.

The reads of `h5py.Dataset` and of NumPy's `NpzFile` are counted, by the line of the user's that reads.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from autopipe.measure.lines import users_frame

_READS = 8  # by a line of one process, after which it is told of
_TIMES = 4.0  # as many bytes unpacked as used
# An index of another kind, such as the name of a field, or a read of another thread meanwhile.
_NOT_COUNTED = (LookupError, TypeError, ValueError, RuntimeError, StopIteration)
_LEAST_BYTES = 2**20  # of a member that is read again and again

_CHUNKS = (
    "unpacks {times:.0f} times the bytes that it uses, because a chunk of `{name}` is {chunk}. For such reads "
    "write it with chunks={better}, or read whole chunks and shuffle those."
)
_MEMBER = (
    "reads and unpacks the whole of `{name}`, {megabytes:.0f} MB, each time. Keep the array instead of the "
    'file, or save it as .npy and open that with mmap_mode="r".'
)


class Unpacked:
    """Counts reads from now on, also in processes that are forked."""

    def __init__(self, told: Callable[[str, str], None], line_of: Callable[[types.FrameType], str]) -> None:
        """Call `told(message, line)` of a line that unpacks much more than it uses."""
        self._told, self._line_of = told, line_of
        self._sums: dict[Any, list[int]] = {}  # by what is read where: reads, bytes unpacked, bytes used
        self._held: dict[Any, dict[Any, None]] = {}  # by array: the chunks that HDF5 holds, the latest last

    def look_at(self, module: Any) -> None:
        """Count the reads of this module: of h5py or NumPy."""
        is_numpy = module.__name__ == "numpy"
        owner, count = (module.lib.npyio.NpzFile, self._member) if is_numpy else (module.Dataset, self._chunks)
        read = owner.__getitem__

        @functools.wraps(read)
        def counted(data: Any, index: Any, *arguments: Any, **named: Any) -> Any:
            found, frame = read(data, index, *arguments, **named), users_frame(sys._getframe(1))
            if frame is None or not hasattr(found, "nbytes") or found.dtype.hasobject:
                return found
            with contextlib.suppress(*_NOT_COUNTED):
                if (message := count((frame.f_code, frame.f_lineno), data, index, found)) is not None:
                    self._told(f"{self._line_of(frame)} {message}", self._line_of(frame))
            return found

        owner.__getitem__ = counted

    def _chunks(self, place: Any, data: Any, index: Any, found: Any) -> str | None:
        chosen = index if isinstance(index, tuple) else (index,)
        if not data.chunks or not data.id.get_create_plist().get_nfilters() or any(each is ... for each in chosen):
            return None
        chosen += (slice(None),) * (data.ndim - len(chosen))
        touched, runs = zip(*map(_touched, chosen, data.shape, data.chunks), strict=True)
        array, chunk = (data.file.filename, data.name), math.prod(data.chunks) * data.dtype.itemsize
        held, fit = self._held.setdefault(array, {}), data.id.get_access_plist().get_chunk_cache()[1] // chunk
        unpacked = 0
        for each in itertools.product(*touched):
            unpacked += 0 if each in held else chunk
            held[each] = held.pop(each, None)  # the latest one is the last
            if len(held) > fit:
                del held[next(iter(held))]
        sums = self._added((place, array), unpacked, found.nbytes)
        if sums is None or sums[0] < _TIMES * sums[1]:
            return None
        better = tuple(map(min, runs, data.chunks))
        return _CHUNKS.format(times=sums[0] / sums[1], name=data.name, chunk=data.chunks, better=better)

    def _member(self, place: Any, data: Any, name: str, found: Any) -> str | None:
        if found.nbytes < _LEAST_BYTES or self._added((place, data.zip.filename, name), found.nbytes, 0) is None:
            return None
        return _MEMBER.format(name=name, megabytes=found.nbytes / 1e6)

    def _added(self, key: Any, unpacked: int, used: int) -> tuple[int, int] | None:
        """Add a read; return the sums of bytes when there were enough reads, once."""
        sums = self._sums.setdefault(key, [0, 0, 0])
        sums[:] = sums[0] + 1, sums[1] + unpacked, sums[2] + used
        return (sums[1], sums[2]) if sums[0] == _READS else None


def _touched(index: Any, length: int, chunk: int) -> tuple[frozenset[int], int]:
    """Return the chunks of an axis that an index touches, and how many values that stand side by side it takes."""
    values = np.atleast_1d(np.arange(length)[index])
    return frozenset((values // chunk).tolist()), len(values) if isinstance(index, slice) else 1
