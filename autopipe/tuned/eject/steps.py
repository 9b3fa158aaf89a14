"""What a writer of plain code has to know of an op in its place."""

from __future__ import annotations

from autopipe.core.plan import Step
from autopipe.core.sample import Field, FieldKind

Lines = list[str]


def parts(step: Step) -> Lines:
    """Return the names of the parts that an op acts on: "x", "y" or both."""
    return [name for name, on in zip(("x", "y"), step.op.touches(step.before), strict=True) if on]


def is_encoded(step: Step, part: str) -> bool:
    """Return whether a part is the bytes of an image file before the op."""
    field = _field(step, part)
    return field is not None and field.kind is FieldKind.ENCODED


def is_mask(step: Step, part: str) -> bool:
    """Return whether a part is a mask before the op."""
    field = _field(step, part)
    return field is not None and field.kind is FieldKind.MASK


def is_flat(step: Step, part: str) -> bool:
    """Return whether a part has no channel axis before the op."""
    field = _field(step, part)
    return field is not None and field.rank == 2


def is_coloured_after(step: Step) -> bool:
    """Return whether y has a channel axis after the op."""
    return step.after.y is not None and step.after.y.rank == 3


def is_integer(step: Step, part: str) -> bool:
    """Return whether a part holds whole numbers before the op."""
    field = _field(step, part)
    return field is not None and field.dtype is not None and field.dtype.kind in "ui"


def _field(step: Step, part: str) -> Field | None:
    return step.before.x if part == "x" else step.before.y
