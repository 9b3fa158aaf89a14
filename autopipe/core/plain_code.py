"""Plain code: what an op or a source writes of itself for pipelines that do without autopipe.

An op writes lines on `x` and `y`, a source says how its samples come into them; both once for NumPy and OpenCV, and
once for TensorFlow, as a person would. Random numbers are drawn from `rng` in NumPy, and by TensorFlow itself there.
How the lines become a file is in `autopipe.tuned.eject`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from autopipe.core.sample import Field, FieldKind, SampleSpec

if TYPE_CHECKING:
    from autopipe.core.plan import Step

Lines: TypeAlias = list[str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlainSource:
    """How plain code gets at the samples of a source.

    Attributes:
        opened: in TensorFlow, an expression: the dataset of what `load` takes; in NumPy, the lines that keep what is
            listed in `self`.
        count: an expression. In TensorFlow: over how many samples they are shuffled; in NumPy: how many there are.
        taken: in NumPy, what `load` takes for the sample `index`; in TensorFlow, `load` itself, or a partial of it.
        arguments: the names of what `load` takes.
        reading: the first lines of `load`, which make `x` and `y` of that.
        constants: lines at the top of the file, and the code of functions that list the samples.
        functions: code.
        given: what the caller passes, by name: data that no file holds.
        is_arrays: whether what `load` takes are rows of arrays, which are given or are constants in capitals.
    """

    opened: str
    count: str
    taken: str = "load"
    arguments: tuple[str, ...]
    reading: Lines = dataclasses.field(default_factory=list)
    constants: Lines = dataclasses.field(default_factory=list)
    functions: str = ""
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_arrays: bool = False


def names(spec: SampleSpec) -> tuple[str, ...]:
    """Return the names of a sample's parts: "x", or "x" and "y"."""
    return ("x",) if spec.y is None else ("x", "y")


def parts(step: Step) -> tuple[str, ...]:
    """Return the names of the parts that an op acts on: "x", "y" or both."""
    return tuple(name for name, on in zip(("x", "y"), step.op.touches(step.before), strict=True) if on)


def part_of(spec: SampleSpec, part: str) -> Field:
    """Return what is known of a part that is there."""
    field = spec.x if part == "x" else spec.y
    assert field is not None  # nobody asks for a y that is not there
    return field


def is_encoded(step: Step, part: str) -> bool:
    """Return whether a part is there, as the bytes of an image file, before the op."""
    return part in names(step.before) and part_of(step.before, part).kind is FieldKind.ENCODED


def is_mask(step: Step, part: str) -> bool:
    """Return whether a part is a mask before the op."""
    return part_of(step.before, part).kind is FieldKind.MASK


def is_flat(step: Step, part: str) -> bool:
    """Return whether a part has no channel axis before the op."""
    return part_of(step.before, part).rank == 2


def is_grey(step: Step, part: str) -> bool:
    """Return whether a part has a channel axis of length one before the op, which OpenCV leaves out."""
    field = part_of(step.before, part)
    return field.rank == 3 and field.shape is not None and field.shape[-1] == 1


def is_integer(step: Step, part: str) -> bool:
    """Return whether a part holds whole numbers before the op."""
    dtype = part_of(step.before, part).dtype
    return dtype is not None and dtype.kind in "ui"


def tensor_type(field: Field) -> str:
    """Return the TensorFlow dtype of a part, as code."""
    return "tf.string" if field.dtype is None else f"tf.{field.dtype.name}"


def shape_lines(spec: SampleSpec, named: tuple[str, ...]) -> Lines:
    """Return lines that say the shapes of tensors that came through Python, which TensorFlow cannot know."""
    found = []
    for part in named:
        field = part_of(spec, part)
        shape: object = () if field.kind is FieldKind.ENCODED else field.shape
        if shape is None and field.rank is not None:
            shape = [None] * field.rank
        found += [] if shape is None else [f"{part}.set_shape({shape})"]
    return found


def quoted(text: str) -> str:
    """Return a literal in double quotes, unless the text itself has some, as formatters write it."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text else literal
