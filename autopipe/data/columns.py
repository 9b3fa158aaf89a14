"""What sources of rows have in common: an image and perhaps a target in each row, kept by a library that reads one."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from autopipe.core.plain_code import PlainSource
from autopipe.core.sample import FieldKind, SampleSpec
from autopipe.data.arrays import looks_like_image, target_kind
from autopipe.data.paths import spread

_PROBES = 64  # rows whose sizes are looked at


class Columns(abc.ABC):
    """Rows of an image column, encoded or an array, and perhaps a target column.

    Attributes:
        classes: the names of the classes where the library knows them, else None.
    """

    x_kind: FieldKind
    y_kind: FieldKind | None
    classes: tuple[str, ...] | None = None
    _rows: Any

    @abc.abstractmethod
    def _row(self, index: int) -> list[Any]:
        """Return the image and the target, if there is one, of a row that is there."""

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, index: int) -> Any:
        """Return the image's file as bytes, and its label; or the image alone where there is no label."""
        parts = self._parts(index)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def mean_bytes(self) -> float:
        """Return the mean size of a row, of 64 of them."""
        rows = spread(len(self), _PROBES)
        sizes = [len(part) if isinstance(part, bytes) else part.nbytes for row in rows for part in self._parts(row)]
        return float(sum(sizes) / len(rows))

    def plain_numpy(self, spec: SampleSpec) -> PlainSource | None:
        """Return nothing: plain code reads this source."""
        return None

    plain_tensorflow = plain_numpy

    def _parts(self, index: int) -> list[Any]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._row(index)

    def _find_kinds(self) -> None:
        """Look at the first row."""
        x, *y = self._parts(0)
        self.x_kind = FieldKind.ENCODED
        if not isinstance(x, bytes):
            self.x_kind = FieldKind.IMAGE if looks_like_image(x.shape, x.dtype) else FieldKind.ARRAY
        self.y_kind = target_kind(np.shape(x), np.asarray(y[0])) if y else None
