"""Plain code: the lines that ops and sources write of themselves for pipelines without autopipe.

An op writes lines on the variables of a sample's parts, a source writes lines that load them; both once for NumPy and
OpenCV, and once for TensorFlow, as a person would. The variables are `x` and `y`; those of several parts are called
like `x_left` and `y_mask`. Random numbers are drawn from `rng` in NumPy, and by TensorFlow itself there. The files made
of these lines are in `autopipe.pipeline.eject`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from autopipe.errors import PlainCodeError
from autopipe.workload.sample import SLOTS, Field, FieldKind, SampleSpec, is_still_true, keyed, paths_of

if TYPE_CHECKING:
    from autopipe.workload.op import Op, Step


Lines: TypeAlias = list[str]
Library: TypeAlias = Literal["np", "tf"]  # in which plain code is written: NumPy and OpenCV, or TensorFlow
_NO_NAME = re.compile(r"\W")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlainSource:
    """Plain code that loads the samples of a source."""

    # in TensorFlow, an expression: the dataset of the arguments of `load`; in NumPy, lines that keep the listing in
    # `self`
    opened: str
    count: str  # an expression. In TensorFlow: over how many samples they are shuffled; in NumPy: how many there are
    # in NumPy, the arguments of `load` for the sample `index`; in TensorFlow, `load` itself, or a partial of it
    taken: str = "load"
    arguments: tuple[str, ...]  # the names of the arguments of `load`
    reading: Lines = dataclasses.field(default_factory=list)  # the first lines of `load`: the parts of a sample
    # lines at the top of the file, and the code of functions that list the samples
    constants: Lines = dataclasses.field(default_factory=list)
    functions: str = ""  # code
    # the caller's arguments, by name: data that no file holds
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # whether the arguments of `load` are rows of arrays, which are given or are constants in capitals
    is_arrays: bool = False


def columns(spec: SampleSpec) -> tuple[str, ...]:
    """Return the variable of each part: "x", "y", "x_left"; ops have none that begins so."""
    paths = paths_of(spec.structure)
    found = tuple(slot if key is None else f"{slot}_{_NO_NAME.sub('_', str(key))}" for slot, key in paths)
    if len({name.upper() for name in found}) == len(found):  # also as names of constants
        return found
    return tuple(slot if key is None else f"{slot}_{number}" for number, (slot, key) in enumerate(paths))


class Variable(str):
    """The variable of a part of a sample, with the part's field in the spec that it was asked of."""

    field: Field  # of a part that an op acts on: before the op
    after: Field  # and after it

    @property
    def is_mask(self) -> bool:
        return self.field.kind is FieldKind.MASK

    @property
    def is_flat(self) -> bool:
        return self.field.rank == 2

    @property
    def is_integer(self) -> bool:
        return self.field.dtype is not None and self.field.dtype.kind in "ui"

    @property
    def tensor_type(self) -> str:
        return "tf.string" if self.field.dtype is None else f"tf.{self.field.dtype.name}"

    @property
    def size(self) -> str:
        return f"tf.io.extract_jpeg_shape({self})" if self.field.held == "jpeg" else f"tf.shape({self})"

    def cut(self, height: object, width: object) -> str:
        """Return a line that cuts a rectangle out of the part, at `top` and `left`; of a JPEG, only that is decoded."""
        if self.field.held != "jpeg":
            return f"{self} = {self}[top : top + {height}, left : left + {width}]"
        size = f"tf.stack((top, left, {height}, {width}))"
        return f"{self} = tf.io.decode_and_crop_jpeg({self}, {size}, channels={self.field.channels})"

    def channel_axis(self) -> Lines:
        """Return lines that give a channel axis of one back, which OpenCV drops; of any, if unknown."""
        shape = self.field.shape or self.after.shape
        is_lost = self.field.rank == 3 and (shape is None or shape[-1] == 1)
        return [f"{self} = np.atleast_3d({self})"] if is_lost else []


def names(spec: SampleSpec) -> tuple[Variable, ...]:
    """Return the variables of the existing parts: those of x first, then those of y, then of weights."""
    found: dict[str, list[Variable]] = {slot: [] for slot in SLOTS}
    for (slot, _), name, field in zip(paths_of(spec.structure), columns(spec), spec.columns, strict=True):
        if field is not None:
            variable = Variable(name)
            variable.field = variable.after = field
            found[slot].append(variable)
    return tuple(itertools.chain(*found.values()))


def parts(step: Step) -> tuple[Variable, ...]:
    """Return the variables of the parts that an op acts on, those of x first."""
    on = dict(zip(columns(step.before), step.op.touches(step.before), strict=True))
    found = tuple(name for name in names(step.before) if on[name])
    after = {name: name.field for name in names(step.after)}
    for variable in found:
        variable.after = after.get(variable, variable.field)
    return found


def packed(spec: SampleSpec) -> str:
    """Return a model's arguments: each part in its dictionary or tuple, and weights of samples as the third."""
    if spec.structure is None:
        return ", ".join(names(spec))
    slots = list[str]()
    for slot in _slots(spec):
        if isinstance(slot, dict):
            slots.append(f"{{{', '.join(f'{_key(key)}: {name}' for key, name in slot.items())}}}")
        else:
            slots.append(f"({', '.join(slot)}{',' * (len(slot) == 1)})" if isinstance(slot, tuple) else str(slot))
    return ", ".join(slots) if len(slots) > 1 else f"({slots[0]},)"


def unpacked(spec: SampleSpec) -> Lines:
    """Return lines that take the parts out of what `source.read(index)` returns."""
    value = "source.read(index)"
    if spec.structure is None:
        return [f"{', '.join(names(spec))} = {value}"]
    slots = dict(zip(SLOTS, _slots(spec), strict=False))
    found = [f"{', '.join(slots)} = {value}{'[:2]' if len(slots) == 2 else ''}"]
    if len(slots) == 1:
        found.append("x = x[0] if isinstance(x, tuple) else x")
    for slot, built in slots.items():
        if isinstance(built, dict | tuple):
            each = keyed(built)
            found.append(f"{', '.join(each.values())} = {', '.join(f'{slot}[{_key(key)}]' for key in each)}")
    return found


def plain_lines(op: Op, step: Step, library: Library) -> Lines:
    """Return an op's plain code; raise PlainCodeError if it has none, or of other parts, or of another class."""
    if not is_still_true(type(op), ("plain",), ("apply", "mix", "pixels", "values")):
        raise PlainCodeError(f"`{op.name}` has no plain code (`plain`)")
    lines = list(op.plain(step, library))
    if step.before.structure is not None:
        known, text = names(step.before), "\n".join(lines)
        if strange := [name for name in "xy" if name not in known and re.search(rf"(?<![\w.]){name}\b", text)]:
            raise PlainCodeError(
                f"`{op.name}` writes plain code of `{strange[0]}`, but the parts are {', '.join(known)} "
                "(`autopipe.workload.plain_code.parts` has those that it acts on)"
            )
    return lines


def drawn_tensorflow(step: Step, name: str, *arguments: float) -> tuple[Lines, str]:
    """Return a `tf.image.random_...` with `{}` for a part, and lines before it; parts share a seed."""
    given = "".join(f", {argument!r}" for argument in arguments)
    if len(parts(step)) == 1:
        return [], f"tf.image.random_{name}({{}}{given})"
    seed = "seed = tf.random.uniform((2,), maxval=2**31 - 1, dtype=tf.int32)"
    return [seed], f"tf.image.stateless_random_{name}({{}}{given}, seed=seed)"


def converted(part: str, dtype: str, library: Library) -> str:
    """Return code that converts a part to a dtype."""
    if library == "tf" and dtype == "float32" and isinstance(part, Variable) and part.field.held == "floats":
        return part
    return f"{part}.astype({quoted(dtype)})" if library == "np" else f"tf.cast({part}, tf.{dtype})"


def through_python(call: str, given: str, made: Sequence[Variable], *, random: bool = False) -> Lines:
    """Return lines of TensorFlow that make variables by a call of Python, `random` with a generator of its `seed`."""
    if random:
        call = f"lambda {given}, seed: {call}({given}, np.random.default_rng(int(seed)))"
        given = f"{given}, seed"
    types = [variable.tensor_type for variable in made]
    returned = types[0] if len(types) == 1 else f"[{', '.join(types)}]"
    return [f"{', '.join(made)} = tf.numpy_function({call}, [{given}], {returned})", *shape_lines(made)]


SEED: Final = "seed = tf.random.uniform((), maxval=2**31 - 1, dtype=tf.int32)"


def shape_lines(variables: Iterable[Variable]) -> Lines:
    """Return lines that set the shapes of tensors, after the op, that TensorFlow cannot know."""
    found = []
    for variable in variables:
        field = variable.after
        shape: object = () if field.kind is FieldKind.ENCODED else field.shape
        if shape is None and field.rank is not None:
            shape = [None] * field.rank
        found += [] if shape is None else [f"{variable}.set_shape({shape})"]
    return found


def quoted(text: str) -> str:
    """Return a literal in double quotes, or in single ones if the text has double quotes, as formatters write it."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in text else literal


def _slots(spec: SampleSpec) -> tuple[Any, ...]:
    named = zip(columns(spec), spec.columns, strict=True)
    return spec.packed([name if field is not None else None for name, field in named])


def _key(key: Any) -> str:
    return quoted(key) if isinstance(key, str) else str(key)
