"""How the parts of a sample make up what a model takes: x, y and sample_weight, each a part, a tuple or a dict of them.

Inside, a sample or a batch is a flat tuple `(x, y, *others)`: first the image, or else the first input; then the first
target, None where there is none; then all others. A `Structure` gives each its place in what users pass and get.
Which ops act on which parts is no business of this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from autopipe.errors import DataError, shortened

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
