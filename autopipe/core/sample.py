"""What a sample is: an (x, y) pair, and the description of its two fields.

A sample is a tuple `(x, y)`; `y` is None where there is no target. Each part is `bytes` (an encoded image), a NumPy
array, or an integer label. A `Field` says which, so that an op can tell a mask from an image.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Part: TypeAlias = Any  # bytes, an array, an integer label or None; NumPy has no narrower common type
Sample: TypeAlias = tuple[Part, Part]


class FieldKind(enum.StrEnum):
    """What one part of a sample holds."""

    ENCODED = "encoded"  # bytes of a JPEG, PNG, ... file
    IMAGE = "image"  # an array (height, width, channels)
    MASK = "mask"  # an array (height, width[, channels]) that follows the image through geometric ops
    LABEL = "label"  # one integer
    ARRAY = "array"  # any other array; ops leave its geometry alone


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One part of a sample. `shape` and `dtype` are those of one sample, None where samples differ or bytes are held.

    `rank` is the number of axes, which is known also where samples differ in shape alone.
    """

    kind: FieldKind
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any] | None
    rank: int | None = dataclasses.field(default=None, compare=False)

    @property
    def bytes(self) -> int:
        """Bytes of one sample's part; 0 where the shape is not fixed."""
        if self.shape is None or self.dtype is None:
            return 0
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True, slots=True)
class SampleSpec:
    """The fields of a sample; `y` is None where the data have no target."""

    x: Field
    y: Field | None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that exist, x first."""
        return (self.x,) if self.y is None else (self.x, self.y)

    @property
    def bytes(self) -> int:
        """Bytes of one sample as arrays."""
        return sum(field.bytes for field in self.fields)

    @property
    def is_fixed(self) -> bool:
        """Whether every sample has the same shapes, so that a batch can be one array."""
        return all(field.shape is not None for field in self.fields)


@runtime_checkable
class Source(Protocol):
    """Where samples come from. Any object with these two methods will do.

    `read` is called from many threads and in other processes: a source must pickle, and keep no open handle in its
    pickle. Optional attributes: `x_kind`, `y_kind` (`FieldKind`), `name(index) -> str` for messages, `digest() -> str`,
    `files()`, and `remote`, what kind of URL the samples are behind ("s3") where they lie on no disk.

    `read_many(indices, out)`, also optional, is the batch half of `read`, for samples of one shape: it writes the
    samples of `indices`, an array of whole numbers from 0 to the length less one, to the arrays `out` = (x, y), of a
    row each (y is None where there is no target), without a visit to Python for each sample. It gives what `read`
    gives, to the bit. Whatever it raises, the batch is read again by `read`.
    """

    def __len__(self) -> int: ...

    def read(self, index: int) -> Any:
        """Return `(x, y)`, or `x` alone, of the sample at `index`."""
        ...


Batch: TypeAlias = tuple[NDArray[Any], NDArray[Any] | None]
