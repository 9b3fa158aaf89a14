"""A part of the data: as many samples as a trial can use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autopipe.core.sample import Batch, Source
from autopipe.data import source as data_source


class Subset:
    """The first `count` samples of a source, in an order of their own that is spread over the whole of it."""

    def __init__(self, source: Source, count: int) -> None:
        self._source = source
        self._count = min(count, len(source))
        self._stride = len(source) // self._count
        self.x_kind = getattr(source, "x_kind", None)
        self.y_kind = getattr(source, "y_kind", None)
        self.remote = data_source.remote(source)
        self.idempotent = getattr(source, "idempotent", True)

    def __len__(self) -> int:
        return self._count

    def read(self, index: int) -> Any:
        """Return a sample of the source."""
        return self._source.read(index * self._stride)

    @property
    def read_many(self) -> Callable[[NDArray[np.integer], Batch], None] | None:
        """The source's batch half, if it has one."""
        read_many = data_source.batch_half(self._source)
        return None if read_many is None else lambda indices, out: read_many(indices * self._stride, out)

    def name(self, index: int) -> str:
        """Return what the source calls the sample."""
        name = getattr(self._source, "name", None)
        return str(name(index * self._stride)) if callable(name) else f"sample {index * self._stride}"

    def files(self, indices: Iterable[int] | None = None) -> list[str]:
        """Return the files of some samples, or of all."""
        chosen = range(self._count) if indices is None else indices
        return data_source.files(self._source, [index * self._stride for index in chosen])

    def digest(self) -> str:
        """Describe the part by the whole, which is looked at once in a process, and the count."""
        return f"{data_source.first_digest(self._source)} subset={self._count}"
