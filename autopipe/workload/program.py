"""The steps of a plan as programs of the native library: one for each part of a sample that is an image or a mask.

A program ends before the first step that has no instructions, such as `Map`; Python goes on there. Which samples are
made natively, and what becomes of the rows that the library leaves, is the kernel's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import AutopipeError
from autopipe.native import Instruction
from autopipe.workload.op import NUMPY, Op, Step
from autopipe.workload.ops.pixels import PixelOp
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec

_IMAGES: Final = (FieldKind.IMAGE, FieldKind.ENCODED, FieldKind.MASK)
_OWN: Final = frozenset(("apply", "pixels", "values", "values_into", "box", "finished", "touches", "finish"))
_LEVELS: Final = np.arange(256, dtype=np.uint8)
_BYTE: Final = np.dtype(np.uint8)


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a sample's parts, which do the first `count` of some steps."""

    count: int
    parts: tuple[native.Program | None, ...]  # None: Python has that part already, a label
    before: SampleSpec
    after: SampleSpec
    labels: tuple[Step, ...]  # steps on a label alone, which act on the whole batch

    def fill(self, spans: Sequence[NDArray[Any] | None], drawn: NDArray[np.float64], out: Batch) -> NDArray[np.uint8]:
        """Write rows of images and masks in `out`; return a verdict for each, 0 if both are made.

        `drawn` are the random numbers of all steps, side by side.
        """
        verdicts = np.zeros(len(drawn), np.uint8)
        for program, of_part, to in zip(self.parts, spans, out, strict=True):
            if program is not None and of_part is not None:
                verdicts |= program.fill(of_part, drawn, to)
        return verdicts


def programs(steps: Sequence[Step], *, simd: int = 2) -> Programs | None:
    """Return programs of as many of the steps as they can do; None if that is none, or no library is there."""
    if not steps or native.why_not() is not None:
        return None
    before = steps[0].before
    parts = [_Part(number, field) for number, field in enumerate(before.columns) if field and field.kind in _IMAGES]
    if not parts or parts[0].number != 0 or not all(part.is_bytes for part in parts):
        return None
    labels: list[Step] = []
    draw, done = 0, 0
    for number, step in enumerate(steps, start=1):
        touched = step.op.touches(step.before)
        if not any(touched[part.number] for part in parts):
            if before.structure is not None or not (step.op.batchable and step.op.draws == 0):
                break
            labels.append(step)
        else:
            on = [part for part in parts if touched[part.number]]
            if not _alike(step, touched) or not all(part.takes(step, draw, number) for part in on):
                break
        draw += step.op.draws
        if all(part.is_there(step.after) for part in parts):
            done = number
    if done == 0:
        return None
    after = steps[done - 1].after
    made = {part.number: part.program(done, after, simd=simd) for part in parts}
    of_parts = tuple(made.get(number) for number in range(len(before.columns)))
    return Programs(done, of_parts, before, after, tuple(step for step in labels if step in steps[:done]))


def _alike(step: Step, touched: Sequence[bool]) -> bool:
    """Return False if an op would have to look whether the images that it changes together are of one size."""
    if not (isinstance(step.op.acting, PixelOp) and step.op.acting.in_pixels):
        return True
    shapes = [
        field.shape for field, is_touched in zip(step.before.columns, touched, strict=True) if field and is_touched
    ]
    return len(shapes) < 2 or (None not in shapes and len({shape[:2] for shape in shapes if shape}) == 1)


class _Part:
    """The instructions of one part, as far as they are found."""

    def __init__(self, number: int, field: Field) -> None:
        self.number = number
        self._field = field
        self._code: list[tuple[int, Instruction, int]] = []
        self._values: list[tuple[int, Op]] = []  # each with the number of its step

    @property
    def is_bytes(self) -> bool:
        return self._field.kind is FieldKind.ENCODED or self._field.dtype == _BYTE

    def takes(self, step: Step, draw: int, number: int) -> bool:
        """Add a step; return False if it has no instructions."""
        field, op = self._field, step.op.acting
        if op.by_value and _is_its_own(op, "values") and field.shape is not None:
            self._values.append((number, op))
        elif self._values or not self.is_bytes:
            return False
        else:
            found = self._instructions(op, field, is_mask=step.op.is_mask(self.number))
            if found is None:
                return False
            self._code.extend((number, each, draw) for each in found)
        after = step.after.columns[self.number]
        assert after is not None
        self._field = after
        return True

    def _instructions(self, op: Op, field: Field, *, is_mask: bool) -> tuple[Instruction, ...] | None:
        if not _is_its_own(op, "instructions"):
            return None
        try:
            return op.mask_instructions(field) if is_mask else op.instructions(field)
        except AutopipeError:  # Python raises it again, with the sample's name
            return None

    def is_there(self, after: SampleSpec) -> bool:
        """Return True if rows may be written now: of one shape, and no longer encoded."""
        field = after.columns[self.number]
        return field is not None and field.shape is not None and field.kind is not FieldKind.ENCODED

    def program(self, count: int, after: SampleSpec, *, simd: int) -> native.Program:
        field = after.columns[self.number]
        assert field is not None
        assert field.shape is not None
        assert field.dtype is not None
        code = [(each, draw) for number, each, draw in self._code if number <= count]
        changes = [op for number, op in self._values if number <= count]
        if changes:
            code.append((_table(changes, field.shape), 0))
        return native.Program(code, field.shape, field.dtype, simd=simd)


def _table(ops: Sequence[Op], shape: tuple[int, ...]) -> Instruction:
    """Return the instruction that does ops on values by a table of all levels, which the ops themselves make."""
    levels: Any = _LEVELS if len(shape) == 2 else np.repeat(_LEVELS[:, None], shape[2], axis=1)
    for op in ops:
        levels = op.values(levels, NUMPY)  # type: ignore[attr-defined]
    table = np.ascontiguousarray(np.asarray(levels).T)
    return Instruction(native.TABLE, (table.dtype.itemsize, len(shape) == 3), table=table)


def _is_its_own(op: Op, name: str) -> bool:
    """Return True if no class below that of a method, somebody's own, changes what the op does."""
    for kind in type(op).__mro__:
        if name in vars(kind):
            return True
        if _OWN & vars(kind).keys():
            return False
    return False
