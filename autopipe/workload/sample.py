"""What a sample is: an (x, y) pair, or more parts, and the description of its fields.

A sample is a tuple `(x, y)`; `y` is None where there is no target. Each part is `bytes` (an encoded image), a NumPy
array, or an integer label. A `Field` says which, so that an op can tell a mask from an image. Where a model takes
several inputs or targets, or weights of samples, further parts follow these two (`autopipe.workload.sample`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError, shortened

# -------------------- structure
# How the parts of a sample make up what a model takes: x, y and sample_weight, each a part, a tuple or a dict of them.
#
# Inside, a sample or a batch is a flat tuple `(x, y, *others)`: first the image, or else the first input; then the
# first target, None where there is none; then all others. A `Structure` gives each its place in what users pass and
# get. Which ops act on which parts is no business of this module.


Path: TypeAlias = tuple[str, str | int | None]
"""Where a part is: "x", "y" or "sample_weight", and its key or number in there, None if it is all of it."""

SLOTS = ("x", "y", "sample_weight")


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """Where each part of a flat sample belongs."""

    paths: tuple[Path, ...]  # by position; the second is ("y", None), for a part that is None, where there is no target

    @classmethod
    def of(cls, value: Any, is_image: Callable[[Path, Any], bool]) -> Structure | None:
        """Return the structure of what a source's `read` gave; None of x alone and of (x, y), each one part.

        Args:
            value: x, (x, y) or (x, y, sample_weight).
            is_image: tells of a part of x, by where and what it is, whether ops on images act on it.

        Raises:
            DataError: the value is none of these.
        """
        slots = slots_of(value)
        if len(slots) == len(SLOTS) and slots[1] is None and slots[2] is not None:
            raise DataError(
                f"`sample_weight` weights the loss of targets and needs `y`, but got (x, None, {shortened(slots[2])}).",
                hint="Give targets as y, or x alone: Keras would train on the weights as targets.",
            )
        if len(slots) < 3 and not any(isinstance(slot, tuple | dict) for slot in slots):
            return None
        paths = [(name, key) for name, slot in zip(SLOTS, slots, strict=False) for key in _keys(name, slot)]
        inputs = [path for path in paths if path[0] == "x"]
        first = next((path for path in inputs if is_image(path, part_at(slots, path))), inputs[0])
        target = next((path for path in paths if path[0] == "y"), None)
        return cls((first, target or ("y", None), *(path for path in paths if path not in (first, target))))

    def flat(self, value: Any) -> tuple[Any, ...]:
        """Return the parts of what `read` gave, or of a batch, in their order.

        Raises:
            DataError: it is built in another way.
        """
        slots = slots_of(value)
        for number, name in enumerate(SLOTS):
            slot = slots[number] if number < len(slots) else None
            keys = [key for each, key in self.paths if each == name]
            if not _is_like(slot, [] if self.paths[1] == (name, None) and slot is None else keys):
                raise DataError(
                    f"All samples must be built alike, but `{name}` is {_wanted(keys)} in some, "
                    f"and {shortened(slot)} in another."
                )
        return tuple(part_at(slots, path) for path in self.paths)

    def packed(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Return (x,), (x, y) or (x, y, sample_weight), as a model takes them, of flat parts."""
        made = [self._slot(name, parts) for name in SLOTS]
        while made[-1] is None:
            made.pop()
        return tuple(made)

    def part(self, slots: Sequence[Any], number: int) -> Any:
        """Return one part, by its place in the flat order, of (x, y, sample_weight)."""
        return part_at(slots, self.paths[number])

    @property
    def labels(self) -> tuple[str, ...]:
        """What the parts are called in messages."""
        return tuple(map(label, self.paths))

    def positions(self, name: str) -> list[int]:
        """Return where the parts of "x", "y" or "sample_weight" are in the flat order."""
        return [number for number, (slot, _) in enumerate(self.paths) if slot == name]

    def named(self, name: str | int) -> int | None:
        """Return the position of a part that is named by its key, or as `label` does; None if there is none such."""
        if name in self.labels:
            return self.labels.index(str(name))
        found = [number for number, (_, key) in enumerate(self.paths) if key is not None and key == name]
        return found[0] if len(found) == 1 else None

    def _slot(self, name: str, parts: Sequence[Any]) -> Any:
        found: dict[Any, Any] = {key: part for (slot, key), part in zip(self.paths, parts, strict=True) if slot == name}
        if None in found:
            return found[None]
        if all(isinstance(key, int) for key in found):
            return tuple(found[key] for key in sorted(found)) or None
        return found


def label(path: Path) -> str:
    """Return what a part is called in messages: "x", "x.image", "y.0", "sample_weight"."""
    slot, key = path
    return slot if key is None else f"{slot}.{key}"


def slots_of(value: Any) -> tuple[Any, ...]:
    """Return what `read` gave as (x,), (x, y) or (x, y, sample_weight).

    Raises:
        DataError: it is a tuple of another length.
    """
    if not isinstance(value, tuple):
        return (value,)
    if not 1 <= len(value) <= len(SLOTS):
        raise DataError(
            f"`read` must return x alone, (x, y) or (x, y, sample_weight), but returned a tuple of {len(value)}.",
            hint="Several inputs go into a tuple or a dictionary of their own: ((left, right), y).",
        )
    return value


def part_at(slots: Sequence[Any], path: Path) -> Any:
    """Return one part of (x, y, sample_weight); None where the slot is not there."""
    name, key = path
    number = SLOTS.index(name)
    slot: Any = slots[number] if number < len(slots) else None
    return slot if key is None else slot[key]


def triple(slots: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return x, y and sample_weight of a batch, None where it has none."""
    x, y, weight, *_ = [*slots, None, None]
    return x, y, weight


def mapped(function: Callable[[Any], Any], slot: Any) -> Any:
    """Return x, y or sample_weight with a function applied to each part."""
    if isinstance(slot, dict):
        return {key: function(part) for key, part in slot.items()}
    return tuple(map(function, slot)) if isinstance(slot, tuple) else function(slot)


def zipped(function: Callable[[list[Any]], Any], slots: Sequence[Any]) -> Any:
    """Return several x, y or sample_weight of one structure as one, by a function of what each has in a place."""
    if isinstance(slots[0], dict):
        return {key: function([slot[key] for slot in slots]) for key in slots[0]}
    if isinstance(slots[0], tuple):
        return tuple(function(list(parts)) for parts in zip(*slots, strict=True))
    return function(list(slots))


def keyed(slot: Any) -> dict[Any, Any]:
    """Return the parts of x, y or sample_weight by their keys or numbers; one part by None."""
    return slot if isinstance(slot, dict) else dict(enumerate(slot)) if isinstance(slot, tuple) else {None: slot}


def leaves(slot: Any) -> list[Any]:
    """Return the parts of x, y or sample_weight."""
    return list(keyed(slot).values())


def _keys(name: str, slot: Any) -> list[str | int | None]:
    if not isinstance(slot, tuple | dict):
        return [] if slot is None and name != "x" else [None]
    deep = any(part is None or isinstance(part, tuple | dict) for part in leaves(slot))
    if not slot or deep or (isinstance(slot, dict) and not all(isinstance(key, str) for key in slot)):
        raise DataError(
            f"`{name}` must be one part, or a tuple or a dictionary of parts by name, each one array, number or bytes, "
            f"but got {shortened(slot)}.",
            hint="Tuples and dictionaries within others cannot be fed.",
        )
    return list(keyed(slot))


def _is_like(slot: Any, keys: list[Any]) -> bool:
    if isinstance(slot, dict):
        return slot.keys() == set(keys)
    if isinstance(slot, tuple):
        return set(range(len(slot))) == set(keys)
    return (slot is not None and keys == [None]) or (slot is None and not keys)


def _wanted(keys: list[Any]) -> str:
    if keys in ([], [None]):
        return "one part" if keys else "missing"
    return f"{len(keys)} parts ({', '.join(map(str, keys))})"


# -------------------- sample


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


# -------------------- gather
# Rows of an array by their numbers, in one call: what whole batches are made by.


def gather(rows: NDArray[Any], indices: NDArray[np.integer], out: NDArray[Any]) -> None:
    """Write the rows of an array that `indices` name, each from 0 to its length less one, to `out`, in one call."""
    if rows.dtype == out.dtype and rows.flags.c_contiguous and rows.flags.aligned and out.flags.c_contiguous:
        rows.take(indices, axis=0, out=out, mode="clip")  # any other mode goes through a copy
    else:  # `take` would copy the whole array first
        out[...] = rows[indices]
