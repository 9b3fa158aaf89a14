"""The steps of a plan as what makes a batch at once: programs of the native library, one for each part of a sample that
is an image or a mask, and behind them ops that NumPy does to the whole batch. Steps that are neither, such as `Map`,
Python does sample by sample: a plan is a chain of both (`links`). What becomes of rows that the library leaves is the
kernel's business.
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
from autopipe.workload.op import NUMPY, Step
from autopipe.workload.ops.pixels import PixelOp
from autopipe.workload.sample import Batch, Field, FieldKind, SampleSpec, is_still_true

_IMAGES: Final = (FieldKind.IMAGE, FieldKind.MASK)
_RANKS: Final = (2, 3)  # of images and masks
_MOST_BYTES: Final = 8  # of a value
_SAID: Final = frozenset(("instructions", "terms"))
_CHANGES: Final = frozenset(("apply", "pixels", "values", "touches", "finish"))
_BLOCK_BYTES: Final = 1 << 18  # of samples that NumPy finishes at a time, so that they stay in the processor's cache


@dataclasses.dataclass(frozen=True, slots=True)
class Programs:
    """What does the first `count` of some steps to a batch: a program to each image or mask, and then NumPy."""

    count: int
    parts: tuple[native.Program | None, ...]  # most do nothing but copy a label, say; None: there is no such part
    has_code: tuple[bool, ...]  # of each part, whether its program does something
    before: SampleSpec  # the sample before the steps
    made: SampleSpec  # behind the programs
    after: SampleSpec  # after all of the steps
    finish: tuple[Step, ...]  # the steps behind the programs, which NumPy does
    finished: tuple[bool, ...]  # of each part, whether one of these acts on it
    # In a chain, the steps before these that Python does to each sample, with the places of their random numbers among
    # those of all
    alone: tuple[tuple[Step, slice], ...] = ()

    @property
    def is_native(self) -> bool:
        return any(self.has_code)

    def room(self, out: Batch) -> Batch:
        if not self.finish:
            return out
        return tuple(
            np.empty((len(to), *(field.shape or ())), field.dtype) if field is not None and is_finished else to
            for field, to, is_finished in zip(self.made.columns, out, self.finished, strict=True)
        )

    def fill(self, spans: Sequence[NDArray[Any] | None], drawn: NDArray[np.float64], made: Batch) -> NDArray[np.uint8]:
        """Write rows of the parts with spans; return 0 for each that is made, by the random numbers of all steps."""
        verdicts = np.zeros(len(drawn), np.uint8)
        for number, of_part in enumerate(spans):
            if (program := self.parts[number]) is not None and of_part is not None:
                verdicts |= program.fill(of_part, drawn, made[number])
        return verdicts

    def put_finished(self, made: Batch, out: Batch, only: NDArray[np.integer] | None = None) -> None:
        """Write what NumPy makes behind the programs to `out`, of `only` some rows if not all."""
        if not self.finish:
            return
        at_once = max(1, _BLOCK_BYTES // max(1, self.made.bytes + self.after.bytes))
        for first in range(0, len(out[0] if only is None else only), at_once):
            rows: Any = slice(first, first + at_once)
            rows = rows if only is None else only[rows]
            batch: Batch = tuple(None if part is None else part[rows] for part in made)
            for step in self.finish:
                batch = step.op.finish(batch, step.before, NUMPY)
            for part, to, is_finished in zip(batch, out, self.finished, strict=True):
                if not is_finished or to is None:
                    continue
                if part.shape != to[rows].shape or part.dtype != to.dtype:
                    raise ValueError(f"{part.dtype} {part.shape} is not {to.dtype} {to[rows].shape}")
                to[rows] = part


def links(before: SampleSpec, steps: Sequence[Step]) -> tuple[Programs, ...]:
    """Return the chain that makes all steps, of which none mixes samples, of samples of `before`. Its last programs are
    of no step if Python ends it.
    """
    made, alone = list[Programs](), list[tuple[Step, slice]]()
    at = draw = 0
    while True:
        found = programs(before, steps[at:], draw=draw)
        if (is_done := found.is_native or bool(found.finish)) or at == len(steps):
            if is_done or alone or not made:
                made.append(dataclasses.replace(found, alone=tuple(alone)))
            alone.clear()
        if at == len(steps):
            return tuple(made)
        passed = steps[at : at + (found.count if is_done else 1)]
        at += len(passed)
        first, draw, before = draw, draw + sum(step.op.draws for step in passed), passed[-1].after
        if not is_done:
            alone.append((passed[0], slice(first, draw)))


def programs(before: SampleSpec, steps: Sequence[Step], *, draw: int = 0, any_shape: bool = False) -> Programs:
    """Return the programs of as many of the first steps as a batch can have; `draw` is its first number's place."""
    each = [_Part(number, field) for number, field in enumerate(before.columns) if field is not None]
    parts = {part.number: part for part in each if part.is_known}
    finish: list[Step] = []
    made = _programs(before, (), parts, finish)
    for number, step in enumerate(steps, start=1):
        touched = step.touched.keys()
        on = [parts[place] for place in touched & parts.keys()]
        found = [part.found(step) for part in on] if touched <= parts.keys() and _alike(step) else [None]
        if on and None not in found:
            for part, code in zip(on, found, strict=True):
                part.code.extend((instruction, draw) for instruction in code or ())
        elif step.op.batchable and not step.op.draws and not any(part.is_encoded for part in on):
            finish.append(step)
            for part in on:
                part.is_closed = True
        else:
            break
        draw += step.op.draws
        for part in parts.values():
            if not part.is_closed and (field := step.after.columns[part.number]) is not None:
                part.field = field
        if not any(part.is_encoded for part in parts.values()) and (any_shape or step.after.is_fixed):
            made = _programs(before, steps[:number], parts, finish)
    return made


def _programs(before: SampleSpec, steps: Sequence[Step], parts: dict[int, _Part], finish: Sequence[Step]) -> Programs:
    fields = [parts[number].field if number in parts else field for number, field in enumerate(before.columns)]
    code = [parts[number].code if number in parts else [] for number in range(len(fields))]
    touched = [step.op.touches(step.before) for step in finish]
    programs = [
        None
        if field is None or field.dtype is None or (field.shape is None and not each)
        else native.Program(each, field.shape, field.dtype)
        for each, field in zip(code, fields, strict=True)
    ]
    return Programs(
        count=len(steps),
        parts=tuple(programs),
        has_code=tuple(map(bool, code)),
        before=before,
        made=SampleSpec.of(fields, before.structure),
        after=steps[-1].after if steps else before,
        finish=tuple(finish),
        finished=tuple(any(on[number] for on in touched) for number in range(len(fields))),
    )


def _alike(step: Step) -> bool:
    if not (isinstance(step.op.acting, PixelOp) and step.op.acting.in_pixels):
        return True
    shapes = [field.shape for field in step.touched.values()]
    return len(shapes) < 2 or (None not in shapes and len({shape[:2] for shape in shapes if shape}) == 1)


@dataclasses.dataclass(slots=True)
class _Part:
    number: int
    field: Field  # behind the instructions
    code: list[tuple[Instruction, int]] = dataclasses.field(default_factory=list)  # each with its first draw's number
    is_closed: bool = False  # NumPy has gone on with it, so that no instruction can follow

    @property
    def is_encoded(self) -> bool:
        return self.field.kind is FieldKind.ENCODED

    @property
    def is_known(self) -> bool:
        field = self.field
        is_small = field.dtype is not None and field.dtype.itemsize <= _MOST_BYTES
        return self.is_encoded or (field.kind in _IMAGES and field.rank in _RANKS and is_small)

    def found(self, step: Step) -> tuple[Instruction, ...] | None:
        op, after = step.op.acting, step.after.columns[self.number]
        if self.is_closed or not is_still_true(type(op), _SAID, _CHANGES):
            return None
        try:
            kind = after.kind if self.is_encoded and after is not None else self.field.kind
            code = op.instructions(dataclasses.replace(self.field, kind=kind))
        except (AutopipeError, ValueError, OverflowError):  # Python raises it again, with the sample's name
            return None
        is_bytes = self.is_encoded or self.field.dtype == np.uint8
        if code is None or not (is_bytes or all(each.is_wide for each in code)):
            return None
        makes_floats = code[-1:] and code[-1].name == "LINEAR"
        is_wide = bool(code) and all(each.is_wide for each in code)
        is_kept = makes_floats or is_wide or not is_bytes or after is None or after.dtype in (None, np.uint8)
        return code if is_kept else None
