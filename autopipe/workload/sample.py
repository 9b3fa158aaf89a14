"""What a sample is: an (x, y) pair, or more parts, and the description of its fields.

A sample is a tuple `(x, y)`; `y` is None where there is no target. Each part is `bytes` (an encoded image), a NumPy
array, or an integer label. A `Field` says which, so that an op can tell a mask from an image. Where a model takes
several inputs or targets, or weights of samples, further parts follow these two (`autopipe.workload.structure`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autopipe.workload.structure import Structure

Part: TypeAlias = Any  # bytes, an array, an integer label or None; NumPy has no narrower common type
Sample: TypeAlias = tuple[Part, ...]  # (x, y, *others)


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
    """The fields of a sample; `y` is None where the data have no target.

    `others` are those of further parts, and `structure` tells how all of them make up what a model takes; it is None of
    a plain x or (x, y).
    """

    x: Field
    y: Field | None
    others: tuple[Field, ...] = ()
    structure: Structure | None = None

    @classmethod
    def of(cls, columns: Sequence[Field | None], structure: Structure | None = None) -> SampleSpec:
        """Return the spec whose `columns` are these."""
        x, y, *others = columns
        assert x is not None
        return cls(x, y, tuple(field for field in others if field is not None), structure)

    @property
    def columns(self) -> tuple[Field | None, ...]:
        """The field of each part of a flat sample or batch: `(x, y, *others)`."""
        return (self.x, self.y, *self.others)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields that exist, x first."""
        return tuple(field for field in self.columns if field is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the parts of a flat sample are called in messages."""
        return ("x", "y") if self.structure is None else self.structure.labels

    def aligned(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Return what belongs to each of `fields` as a flat sample or batch, with None for a target that is missing."""
        return tuple(arrays) if self.y is not None else (arrays[0], None, *arrays[1:])

    def packed(self, batch: Sequence[Any]) -> tuple[Any, ...]:
        """Return a flat batch, or sample, as it is fed: (x, y), with None for a missing y, or by its structure."""
        return tuple(batch) if self.structure is None else self.structure.packed(batch)

    def empty(self, rows: int) -> Batch:
        """Return new arrays for a batch of so many samples."""
        return tuple(
            None if field is None else np.empty((rows, *(field.shape or ())), field.dtype) for field in self.columns
        )

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
    `files()`, `remote`, what kind of URL the samples are behind ("s3") where they lie on no disk, and `idempotent`,
    False if a read that is late must not be made again, as loaders with `read_ahead` may do.

    For a model with several inputs or targets, x, y or both are tuples or dictionaries of parts; `x_kind` and `y_kind`,
    where given, are then built alike. A third part weights the sample in the loss.

    `read_many(indices, out)`, also optional, is the batch half of `read`, for samples of one shape: it writes the
    samples of `indices`, an array of whole numbers from 0 to the length less one, to the arrays `out` = (x, y), of a
    row each (y is None where there is no target; further parts follow as in `Structure.paths`), without a visit to
    Python for each sample. It gives what `read` gives, to the bit. Whatever it raises, the batch is read again by
    `read`.
    """

    def __len__(self) -> int: ...

    def read(self, index: int) -> Any:
        """Return `(x, y)`, `x` alone or `(x, y, sample_weight)`, of the sample at `index`."""
        ...


def has_room(room: NDArray[Any], part: Part) -> bool:
    """Return whether NumPy writes a part to an array as it is: it would broadcast, cut numbers, or make NaN of None."""
    return part is not None and np.shape(part) == room.shape and not cuts(room.dtype, part)


def cuts(dtype: np.dtype[Any], part: Part) -> bool:
    """Return whether NumPy would cut numbers like a part's to fit a dtype: fractions, and whole ones that are larger.

    A Python integer that is too large it refuses, which comes to the same.
    """
    if dtype.kind not in "iub":
        return False
    if isinstance(part, np.ndarray | np.generic):
        return part.dtype != dtype and not np.can_cast(part.dtype, dtype)
    if isinstance(part, int) and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return not limits.min <= part <= limits.max
    return isinstance(part, float)


def is_int64(number: int) -> bool:
    """Return whether int64 holds a whole number: what labels that are Python's own integers become in a batch."""
    return -(2**63) <= number < 2**63


Batch: TypeAlias = tuple[Any, ...]  # arrays (x, y, *others); y is None where there is no target
