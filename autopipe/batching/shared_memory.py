"""Memory that workers share and that nobody has to clean up.

A block is an anonymous file in memory: it has no name, so it is gone when the last process that maps it is gone,
however that process ended. It is not taken from /dev/shm, whose size is often limited (64 MiB in a default container).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.core.sample import Batch, SampleSpec

_ALIGNMENT = 64  # TensorFlow and JAX take NumPy memory without a copy only if it is aligned to 64 bytes


class SharedBlock:
    """A block of zeroed memory behind a file descriptor; pages take room only once they are written to."""

    def __init__(self, size: int, descriptor: int | None = None) -> None:
        """Make a block of `size` bytes, or map the one behind `descriptor`, which then belongs to this object."""
        if descriptor is None:
            descriptor = _anonymous_file()
            os.ftruncate(descriptor, max(1, size))
        self.descriptor = descriptor
        self.size = size
        self._map = mmap.mmap(descriptor, max(1, size))

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int = 0) -> NDArray[Any]:
        """Return a new array over the block. The memory stays mapped as long as any such array lives."""
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at exit, `os` may be gone before this is
        if hasattr(self, "descriptor"):
            close(self.descriptor)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("autopipe", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class RowLayout:
    """Where the fields of `rows` samples lie in a block: first all x, then all y and others, each aligned."""

    def __init__(self, spec: SampleSpec, rows: int) -> None:
        self.spec = spec
        self.rows = rows
        self._offsets = []
        end = 0
        for field in spec.fields:
            self._offsets.append(end)
            end += -(-field.bytes * rows // _ALIGNMENT) * _ALIGNMENT
        self.size = end

    def arrays(self, block: SharedBlock, rows: int | None = None) -> Batch:
        """Return new arrays (x, y, *others) over the first `rows` samples of a block."""
        count = self.rows if rows is None else rows
        arrays = [
            block.array((count, *(field.shape or ())), field.dtype or np.dtype(np.uint8), offset)
            for field, offset in zip(self.spec.fields, self._offsets, strict=True)
        ]
        return self.spec.aligned(arrays)
