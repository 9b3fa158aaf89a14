"""A sample: its flat form `(x, y, *others)`, its `Structure` as users pass and get it, its fields, and `Source`.

Each part is `bytes` (an encoded image), a NumPy array or an integer label; y is None without a target. A `Field` gives
the kind of a part, so that an op can tell a mask from an image. Which ops act on which parts is not decided here.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Container, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import DataError, shortened

# -------------------- structure
# Inside, a sample or a batch is a flat tuple `(x, y, *others)`: first the image, or else the first input; then the
# first target, or None; then all others. A `Structure` gives each its place in x, y and sample_weight of the user.

Path: TypeAlias = tuple[str, str | int | None]
"""Where a part is: "x", "y" or "sample_weight", and its key or number in there, None if it is all of it."""

SLOTS = ("x", "y", "sample_weight")


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """The place of each part of a flat sample in x, y and sample_weight."""

    paths: tuple[Path, ...]  # by position; the second is ("y", None), for the missing target

    @classmethod
    def of(cls, value: Any, is_image: Callable[[Path, Any], bool]) -> Structure | None:
        """Return the structure of x, (x, y) or (x, y, sample_weight); None for x alone and for (x, y), each one part.
        `is_image` tells, by path and value, if ops on images act on a part of x.
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
        slots = slots_of(value)
        for name, slot in zip(SLOTS, triple(slots), strict=True):
            keys = [key for each, key in self.paths if each == name]
            wanted = [] if self.paths[1] == (name, None) and slot is None else keys
            if (set(keyed(slot)) if slot is not None else set()) != set(wanted):
                said = f"{len(keys)} parts ({', '.join(map(str, keys))})"
                said = "missing" if not keys else "one part" if keys == [None] else said
                said = f"`{name}` is {said} in some, and {shortened(slot)} in another"
                raise DataError(f"All samples must be built alike, but {said}.")
        return tuple(part_at(slots, path) for path in self.paths)

    def packed(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        made = list[Any]()
        for name in SLOTS:
            each = zip(self.paths, parts, strict=True)
            found: dict[Any, Any] = {key: part for (slot, key), part in each if slot == name}
            numbered = all(isinstance(key, int) for key in found)
            several: Any = (tuple(found[key] for key in sorted(found)) or None) if numbered else found
            made.append(found.get(None, several))
        while made[-1] is None:
            made.pop()
        return tuple(made)

    def named(self, name: str | int) -> int | None:
        """Return the position of a part by its key or `label`; None if no part or several parts match."""
        labels = [label(path) for path in self.paths]
        if name in labels:
            return labels.index(str(name))
        found = [number for number, (_, key) in enumerate(self.paths) if key is not None and key == name]
        return found[0] if len(found) == 1 else None


def paths_of(structure: Structure | None) -> tuple[Path, ...]:
    """Return the path of each part of a flat sample."""
    return (("x", None), ("y", None)) if structure is None else structure.paths


def label(path: Path) -> str:
    """Return the name of a part in messages: "x", "x.image", "y.0", "sample_weight"."""
    slot, key = path
    return slot if key is None else f"{slot}.{key}"


def slots_of(value: Any) -> tuple[Any, ...]:
    """Return a value of `read` as (x,), (x, y) or (x, y, sample_weight); raise DataError for other lengths."""
    if not isinstance(value, tuple):
        return (value,)
    if not 1 <= len(value) <= len(SLOTS):
        raise DataError(
            f"`read` must return x alone, (x, y) or (x, y, sample_weight), but returned a tuple of {len(value)}.",
            hint="Several inputs go into a tuple or a dictionary of their own: ((left, right), y).",
        )
    return value


def part_at(slots: Sequence[Any], path: Path) -> Any:
    """Return one part of (x, y, sample_weight); None if the slot does not exist."""
    name, key = path
    slot = triple(slots)[SLOTS.index(name)]
    return slot if key is None else slot[key]


def triple(slots: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return x, y and sample_weight of a batch, None for a missing one."""
    x, y, weight, *_ = [*slots, None, None]
    return x, y, weight


def mapped(function: Callable[[Any], Any], slot: Any) -> Any:
    """Return x, y or sample_weight with a function applied to each part."""
    if isinstance(slot, dict):
        return {key: function(part) for key, part in slot.items()}
    return tuple(map(function, slot)) if isinstance(slot, tuple) else function(slot)


def keyed(slot: Any) -> dict[Any, Any]:
    """Return the parts of x, y or sample_weight by their keys or numbers; a single part by None."""
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


# -------------------- sample

Part: TypeAlias = Any  # bytes, an array, an integer label or None; NumPy has no narrower common type
Sample: TypeAlias = tuple[Part, ...]  # (x, y, *others)


class FieldKind(enum.StrEnum):
    """The content of one part of a sample."""

    ENCODED = "encoded"  # bytes of a JPEG, PNG, ... file
    IMAGE = "image"  # an array (height, width, channels)
    MASK = "mask"  # an array (height, width[, channels]) that follows the image through geometric ops
    LABEL = "label"  # one integer
    ARRAY = "array"  # any other array; ops leave its geometry alone


_AXES_OF_AN_IMAGE = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One part of a sample. `shape` and `dtype` are None if samples differ, or the part is bytes."""

    kind: FieldKind
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any] | None
    rank: int | None = dataclasses.field(default=None, compare=False)  # axes, also if samples differ in shape alone
    channels: int | None = dataclasses.field(default=None, compare=False, repr=False)  # the last of three axes
    # Plain code of TensorFlow has whole numbers as "floats", not rounded, or an image as the bytes of its "jpeg" file.
    held: Literal["floats", "jpeg"] | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.shape is not None and len(self.shape) == _AXES_OF_AN_IMAGE:
            object.__setattr__(self, "channels", self.shape[2])

    @property
    def bytes(self) -> int:
        if self.shape is None or self.dtype is None:
            return 0
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True, slots=True)
class SampleSpec:
    """The fields of a sample; `y` is None without a target, `structure` for a plain x or (x, y)."""

    x: Field
    y: Field | None
    others: tuple[Field, ...] = ()
    structure: Structure | None = None

    @classmethod
    def of(cls, columns: Sequence[Field | None], structure: Structure | None = None) -> SampleSpec:
        x, y, *others = columns
        assert x is not None
        return cls(x, y, tuple(field for field in others if field is not None), structure)

    @property
    def columns(self) -> tuple[Field | None, ...]:  # of the parts of a flat sample or batch
        return (self.x, self.y, *self.others)

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for field in self.columns if field is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(label, paths_of(self.structure)))

    @property
    def counted(self) -> str | None:
        each = zip(paths_of(self.structure), self.columns, strict=True)
        parts = [(label(path), field) for path, field in each if path[0] == "x" and field is not None]
        ranks = [_AXES_OF_AN_IMAGE if field.shape is None else len(field.shape) for _, field in parts]  # or encoded
        if ranks.count(_AXES_OF_AN_IMAGE) == 1 and max(ranks) == _AXES_OF_AN_IMAGE:
            return None
        return ", ".join(f"{name} {field.shape}" for name, field in parts)

    def aligned(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(arrays) if self.y is not None else (arrays[0], None, *arrays[1:])

    def packed(self, batch: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(batch) if self.structure is None else self.structure.packed(batch)

    def empty(self, rows: int) -> Batch:
        return tuple(
            None if field is None else np.empty((rows, *(field.shape or ())), field.dtype) for field in self.columns
        )

    @property
    def bytes(self) -> int:
        return sum(field.bytes for field in self.fields)

    @property
    def is_fixed(self) -> bool:
        return all(field.shape is not None for field in self.fields)


@runtime_checkable
class Source(Protocol):
    """A source of samples. Any object with `__len__` and `read` will do.

    `read` is called from many threads and in other processes: a source must pickle, and keep no open handle in its
    pickle. Optional attributes: `x_kind`, `y_kind` (`FieldKind`), `name(index) -> str` for messages, `digest() -> str`,
    `files()`, `remote`, the kind of URL of the samples ("s3") if they are on no disk, `idempotent`, False if loaders
    with `read_ahead` must not repeat a slow read, `block_starts`, the numbers of the first samples of blocks for
    `ap.Blocks`, and `first_op`, which a workload puts in front of its ops, for a `read` that depends on the epoch: it
    makes the sample of what `read` returns by random numbers of its own.

    For a model with several inputs or targets, x, y or both are tuples or dictionaries of parts; `x_kind` and `y_kind`,
    if given, have the same form. A third part weights the sample in the loss.
    """

    def __len__(self) -> int: ...

    def read(self, index: int) -> Any:
        """Return `(x, y)`, `x` alone or `(x, y, sample_weight)`, of the sample at `index`."""
        ...


def is_still_true(kind: type, said: Container[str], changes: Container[str]) -> bool:
    """Return True unless a class below that of the attributes `said` has one of `changes`, which belie them."""
    for each in kind.__mro__:
        if any(name in said for name in vars(each)):
            return True
        if any(name in changes for name in vars(each)):
            return False
    return True


def has_room(room: NDArray[Any], part: Part) -> bool:
    """Return True if NumPy writes a part to an array without broadcasting, cutting numbers or making NaN of None."""
    return part is not None and np.shape(part) == room.shape and not cuts(room.dtype, part)


def cuts(dtype: np.dtype[Any], part: Part) -> bool:
    """Return True if NumPy would cut a part's numbers to fit a dtype; too large a Python integer it refuses itself."""
    if dtype.kind not in "iub":
        return False
    if isinstance(part, np.ndarray | np.generic):
        return part.dtype != dtype and not np.can_cast(part.dtype, dtype)
    if isinstance(part, int) and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return not limits.min <= part <= limits.max
    return isinstance(part, float)


NUMBERED: Final = "Number the classes from 0: names, labels = numpy.unique(labels, return_inverse=True)."


def is_int64(number: int) -> bool:
    """Return True if int64, the dtype of integer labels in a batch, holds a whole number."""
    return -(2**63) <= number < 2**63


Batch: TypeAlias = tuple[Any, ...]  # arrays (x, y, *others); y is None without a target


# -------------------- rows


class Rows(NamedTuple):
    """Parts of samples that are rows of one array, each from 0 to its length less one, and were not gathered yet."""

    array: NDArray[Any]
    numbers: NDArray[np.integer]

    @property
    def addresses(self) -> NDArray[np.int64]:
        return self.array.ctypes.data + self.numbers.astype(np.int64) * self.array.strides[0]

    def gathered(self, out: NDArray[Any] | None = None) -> NDArray[Any]:
        if out is None or self.array.dtype != out.dtype or not self.array.flags.c_contiguous:
            gathered: NDArray[Any] = self.array[self.numbers]  # `take` would copy the whole array first
            return gathered
        return self.array.take(self.numbers, axis=0, out=out, mode="clip")  # any other mode goes through a copy
