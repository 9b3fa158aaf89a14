"""The plan of a workload's ops: a deterministic prefix, which can be stored, a body, and a suffix that is cheap on a
batch, also on the device. Shapes and dtypes are found by running the ops on a few real samples, never by guessing.
Reading one sample is here, too, with errors that name the sample and the op.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import errors
from autopipe.errors import AutopipeError, BadSampleError, DataError, WorkloadError, shortened, told, warn_of_data
from autopipe.workload.data.paths import SUFFIXES, spread, unreadable
from autopipe.workload.op import Op, Plan, Step
from autopipe.workload.ops.on_parts import placed
from autopipe.workload.ops.pixels import PixelOp
from autopipe.workload.sample import (
    NUMBERED,
    Field,
    FieldKind,
    Part,
    Path,
    Sample,
    SampleSpec,
    Source,
    Structure,
    is_int64,
    label,
    paths_of,
)
from autopipe.workload.workload import Workload


def read(source: Source, index: int) -> Any:
    """Return the value of a source's `read`; raise BadSampleError if a user's source raised an error."""
    try:
        return errors.called(source.read, index)
    except BaseException as error:  # it is named and shown
        raise read_failure(error, source, index) from error


def read_sample(source: Source, index: int, structure: Structure | None) -> Sample:
    """Return a sample as `(x, y, *others)`; raise DataError if it cannot be read, or its structure is another."""
    try:
        return normalise(errors.called(source.read, index), structure)
    except BaseException as error:  # a user's source may raise anything; it is named and shown
        raise read_failure(error, source, index) from error


def run(step: Step, sample: Sample, random: NDArray[np.float64], source: Source, index: int) -> Sample:
    """Return a sample after an op; raise OpError, or the op's own AutopipeError, with the sample's name."""
    try:
        return errors.called(step.op.apply, sample, step.before, random)
    except BaseException as error:  # a user's function may raise anything; it is named and shown
        raise op_failure(error, step.op, source, index) from error


def prepared(steps: Iterable[Step], source: Source, index: int, structure: Structure | None) -> Sample:
    """Return a sample after deterministic steps; raise as `read_sample` and `run`."""
    sample = read_sample(source, index, structure)
    for step in steps:
        sample = run(step, sample, np.empty(0), source, index)
    return sample


def sample_name(source: Source, index: int) -> str:
    """Return a sample's path if the source knows it, else its number."""
    name = getattr(source, "name", None)
    return errors.printable(str(name(index))) if callable(name) else f"sample {index}"


def sample_place(source: Source, index: int) -> str:
    """Return a sample's number and name for messages; the number alone if that is its name."""
    number, name = f"sample {index}", sample_name(source, index)
    return name if name == number or name.startswith(f"{number} ") else f"{number} ({name})"


def op_failure(error: BaseException, op: Op, source: Source, index: int) -> AutopipeError:
    """Return the error of an op that failed on a sample, by its name. A KeyboardInterrupt from Ctrl-C is raised."""
    _pass_interrupt(error)
    place = f"{op.name} on {sample_place(source, index)}"
    if isinstance(error, AutopipeError):
        return errors.said_anew(error, f"{place}: {error.message}", error.hint)
    is_ours = type(error).__module__ == "cv2" and type(op).__module__.startswith("autopipe.") and op.name != "Map"
    hint = 'Is it of a dtype that OpenCV does not know? ap.Cast("float32") before it makes floats.' if is_ours else None
    return errors.OpError(f"{place} raised {told(error)}", hint=hint)


def read_failure(error: BaseException, source: Source, index: int) -> AutopipeError:
    """Return the error of a sample that could not be read. A KeyboardInterrupt from Ctrl-C is raised."""
    _pass_interrupt(error)
    place = sample_place(source, index)
    if isinstance(error, AutopipeError):
        named = f"sample {index}" if sample_name(source, index) in error.message else place
        return errors.said_anew(error, f"{named}: {error.message}", error.hint)
    if not isinstance(error, Exception):  # `sys.exit` says nothing about a sample
        return DataError(f"{place} cannot be read: {told(error)}")
    return unreadable(place, error, told(error))


def _pass_interrupt(error: BaseException) -> None:
    """Raise Ctrl-C again in the main thread, to which alone Python delivers it; elsewhere it is a plain error."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


_PROBES = 4  # samples looked at: the first, the last and two between
_ATTEMPTS = 20  # samples tried to find readable ones if bad samples are skipped
_IMAGES = (FieldKind.IMAGE, FieldKind.ENCODED)
_Samples: TypeAlias = dict[int, Sample]  # by their numbers
_UNFIT = "samples must be bytes, numbers or arrays of numbers, but one is {}."


def make_plan(workload: Workload) -> Plan:
    """Split a workload's ops, and find a sample's fields after each; raise what reading or an op raises."""
    samples, structure = _probe_samples(workload)
    source = described(workload.data, samples, structure)
    ops, tail = _suffix_last([placed(op, source) for op in workload.ops], source)
    first = next((at for at, (op, _) in enumerate(ops[:tail]) if op.mixes), tail)
    if after := [op.name for op, _ in ops[first:tail] if not op.mixes]:
        raise WorkloadError(
            f"`{ops[first][0].name}` mixes finished samples, but {', '.join(f'`{name}`' for name in after)} "
            "would change them afterwards.",
            hint=f"Put it behind `{after[-1]}`; only ops like Rescale, Normalize and Cast may follow it.",
        )
    steps, results = _run(ops[:tail], source, samples, workload)
    boundary = next((i for i, (op, _) in enumerate(ops[:tail]) if op.is_random), tail)
    plan = Plan(source, tuple(steps[:boundary]), tuple(steps[boundary:]), ())
    _require_alike(plan, results, workload.data)
    suffix, results = _run(ops[tail:], plan.compact, results, workload)
    plan = dataclasses.replace(plan, suffix=tuple(suffix))
    _warn_of_palettes(plan, [*samples.values()])
    _warn_of_images(plan, [*results.values()])
    return plan


_PALETTE = b"\x89PNG", b"\x03"  # the beginning of a file, and its byte 25: the type of a PNG's colours
_COLOURS = 256  # of a mask, at most


def _warn_of_palettes(plan: Plan, samples: Sequence[Sample]) -> None:
    for at, (read, made) in enumerate(zip(plan.source.columns, plan.finished.columns, strict=True)):
        if read is None or made is None or (read.kind, made.kind) != (FieldKind.ENCODED, FieldKind.MASK):
            continue
        if (made.shape or ())[2:] == (3,) and any((each[at][:4], each[at][25:26]) == _PALETTE for each in samples):
            said = "Masks are PNG files that hold numbers and a palette, and the model gets the palette's colours."
            hint = "If the numbers are classes, put ap.MaskToClass([(0, 0, 0), ...]) of these behind ap.Decode()."
            warn_of_data(f"{said} {hint}")


def _warn_of_images(plan: Plan, samples: Sequence[Sample]) -> None:
    x, y = plan.finished.x, plan.finished.y
    changes = x.dtype != np.uint8 or any(hasattr(each.op, "interpolation") for each in plan.steps)
    if y is None or y.kind is not FieldKind.MASK or (y.shape or ())[2:] != (3,) or y.dtype != np.uint8 or not changes:
        return
    if all(len(np.unique(sample[1].reshape(-1, 3), axis=0)) > _COLOURS for sample in samples):
        warn_of_data(
            f"Targets have more than {_COLOURS} colours each, as images have, and ops take them for masks: a resize "
            "takes the nearest pixels, and `Rescale` and the like leave them as they are. "
            'ap.Map(function, on="both") changes x and y alike, and on="mask" y alone.'
        )


def normalise(value: Any, structure: Structure | None = None) -> Sample:
    """Return a value of `read` as `(x, y, *others)`; raise DataError if its structure is another."""
    if structure is not None:
        return structure.flat(value)
    if not isinstance(value, tuple):
        return value, None
    if len(value) != 2:
        raise DataError(
            f"`read` must return x alone, (x, y) or (x, y, sample_weight), alike for all samples, "
            f"but returned a tuple of {len(value)}."
        )
    return value


def looked_at(count: int) -> list[int]:
    """Return the numbers of the samples, of `count`, on which a plan is tried."""
    return list(spread(count, _PROBES))


def _probe_samples(workload: Workload) -> tuple[_Samples, Structure | None]:
    wanted = looked_at(count := len(workload.data))
    if workload.on_bad_sample == "skip":
        wanted = sorted({*wanted, *spread(count, _ATTEMPTS)})
    samples: _Samples = {}
    structure = None
    for index in wanted:
        try:
            value = workload.data.read(index)
            if not samples:  # the first readable one shows how all are built
                structure = Structure.of(value, lambda path, part: _kind(workload.data, path, part) in _IMAGES)
            sample = normalise(value, structure)
            _require_int64(workload.data, sample, structure)
            samples[index] = sample
        except BaseException as error:  # whatever a user's source raises is shown with the sample's name
            failure = read_failure(error, workload.data, index)
            if workload.on_bad_sample == "error":
                raise failure from error
    if not samples:
        hint = "Check the data, or set on_bad_sample='error' to see the first error."
        raise DataError(f"none of {len(wanted)} samples could be read.", hint=hint)
    return samples, structure


def _require_int64(source: Source, sample: Sample, structure: Structure | None) -> None:
    for path, part in zip(paths_of(structure), sample, strict=True):
        if isinstance(part, int) and not is_int64(part) and _kind(source, path, part) is FieldKind.LABEL:
            said = f"`{label(path)}` is a label, which must be from -2**63 to 2**63 - 1, but got {shortened(part)}."
            raise DataError(said, hint=NUMBERED)


def described(source: Source, samples: _Samples, structure: Structure | None) -> SampleSpec:
    """Return the fields of a source's samples, by some of them."""
    first = zip(paths_of(structure), next(iter(samples.values())), strict=True)
    return _spec([_kind(source, path, part) for path, part in first], samples, structure)


def _kind(source: Source, path: Path, part: Part) -> FieldKind:
    slot, key = path
    told = getattr(source, f"{slot}_kind", None)
    if key is not None and told is not None:
        each = dict(enumerate(told)) if isinstance(told, tuple) else told
        if not isinstance(each, dict) or not isinstance(each.get(key), FieldKind):
            raise DataError(
                f"`{slot}_kind` of the data must be built as `{slot}` is, of FieldKind, but for `{label(path)}` "
                f"it is {told!r}."
            )
        told = each[key]
    if told is not None or slot == "sample_weight":
        return told or FieldKind.ARRAY
    if isinstance(part, bytes | memoryview):
        return FieldKind.ENCODED
    axes, is_input = _array(part).ndim, slot == "x"
    if axes == 0:
        return FieldKind.LABEL if key is None or not is_input else FieldKind.ARRAY
    return FieldKind.IMAGE if is_input and axes == 3 else FieldKind.ARRAY


def _field(kind: FieldKind, part: Part) -> Field:
    if isinstance(part, bytes | memoryview):
        return Field(FieldKind.ENCODED, None, None)
    array = _array(part)
    if kind is FieldKind.LABEL and array.dtype.kind in "iu":
        return Field(kind, array.shape, np.dtype(np.int64) if isinstance(part, int) else array.dtype, array.ndim)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        hint = "Let `read` return the bytes of a file, a number, or an array: numpy.asarray(...)."
        if array.dtype.kind == "S":
            hint = "Let `read` return the bytes of several files as a tuple, not as a list."
        elif isinstance(part, str) and os.fsencode(part).lower().endswith(SUFFIXES):
            hint = "Let `read` return the bytes of the file: pathlib.Path(path).read_bytes()."
        elif array.dtype.kind == "U":
            hint = NUMBERED
        raise DataError(_UNFIT.format(shortened(part)), hint=hint)
    return Field(kind, array.shape, array.dtype, array.ndim)


def _array(part: Part) -> NDArray[Any]:
    try:
        return np.asarray(part)
    except ValueError as error:
        hint = "Let `read` return its parts as a tuple, (x, y), and not as a list."
        raise DataError(_UNFIT.format(shortened(part)), hint=hint) from error


def _spec(kinds: Iterable[FieldKind | None], samples: _Samples, structure: Structure | None) -> SampleSpec:
    columns: list[Field | None] = []
    for kind, first, *others in zip(kinds, *samples.values(), strict=True):
        is_missing = first is None and len(columns) == 1  # the target
        parts = [_field(kind or FieldKind.ARRAY, part) for part in (first, *others) if not is_missing]
        columns.append(_merged(parts) if parts else None)
    return SampleSpec.of(columns, structure)


def _merged(column: Sequence[Field]) -> Field:
    dtypes = {field.dtype for field in column if 0 not in (field.shape or ())}  # an empty list has a dtype by chance
    if len(dtypes) > 1:
        hint = "Put ap.Cast before they are batched, or convert the data."
        raise WorkloadError(f"samples differ in dtype: {', '.join(sorted(str(d) for d in dtypes))}.", hint=hint)
    shared: dict[str, Any] = {}
    for name in ("shape", "rank", "channels"):
        first, *others = (getattr(field, name) for field in column)
        shared[name] = first if all(each == first for each in others) else None
    return dataclasses.replace(column[0], **shared)


_PLACES: Final = re.compile(r"(?<![a-z])(b?box(es)?|key_?points?|landmarks|joints)(?![a-z])", re.IGNORECASE)


def _look_for_places(op: Op, spec: SampleSpec, samples: Sequence[Sample]) -> None:
    def is_of_classes(y: Any) -> bool:
        return bool(np.isin(y, (0, 1)).all() or np.allclose(np.sum(y, axis=-1), 1))

    moves = op.acting
    if not (isinstance(moves, PixelOp) and moves.is_random and moves.target == "both"):
        return
    for at, (name, field) in enumerate(zip(spec.labels, spec.columns, strict=True)):
        if name.startswith("y") and field is not None and field.kind is FieldKind.ARRAY and field.shape != ():
            is_list = field.shape is not None and len(field.shape) == 2 and field.shape[1] in (4, 5)
            is_list &= field.dtype is not None and field.dtype.kind == "f"
            if _PLACES.search(name) or (is_list and not all(is_of_classes(sample[at]) for sample in samples)):
                warn_of_data(
                    f"`{moves.name}` moves images and leaves `{name}` as it is, which looks like boxes or points in "
                    'them. Move both by ap.Map(function, on="both", random=True), or leave the op out. on="image" says '
                    "that y is to stay as it is."
                )


def _run(
    ops: Sequence[tuple[Op, int]], source: SampleSpec, samples: _Samples, workload: Workload
) -> tuple[list[Step], _Samples]:
    spec, steps = source, []
    for op, stream in ops:
        kinds, seen = op.kinds(spec), [*samples.values()]
        op.look(seen, spec)
        _look_for_places(op, spec, seen)
        samples = _after(op, spec, samples, workload)
        after = _spec(kinds, samples, spec.structure)
        steps.append(Step(op, stream, spec, after))
        spec = after
    return steps, samples


def _after(op: Op, spec: SampleSpec, samples: _Samples, workload: Workload) -> _Samples:
    random = np.full(op.draws, 0.5)
    failure = None
    after: _Samples = {}
    for index, sample in samples.items():
        try:
            if not after:
                op.check(sample, spec)
            after[index] = op.apply(sample, spec, random)
        except BaseException as error:  # whatever a user's function raises is shown with op and sample
            failure = op_failure(error, op, workload.data, index)
            if workload.on_bad_sample == "error" or not isinstance(error, BadSampleError):
                raise failure from error
    if not after and failure is not None:
        raise failure
    return after


def _suffix_last(ops: Sequence[Op], source: SampleSpec) -> tuple[list[tuple[Op, int]], int]:
    """Return the ops with the suffix at the end, and the number before it."""
    body, suffix = list[tuple[Op, int]](), list[tuple[Op, int]]()
    blocked = [False] * len(source.columns)
    for stream in range(len(ops) - 1, -1, -1):
        op, touched = ops[stream], ops[stream].touches(source)
        # A OneHot of the label, say, may stand anywhere: no op that stays touches its field afterwards.
        if op.batchable and not any(b and t for b, t in zip(blocked, touched, strict=True)):
            suffix.insert(0, (op, stream))
        else:
            body.insert(0, (op, stream))
            blocked = [b or t for b, t in zip(blocked, touched, strict=True)]
    return body + suffix, len(body)


def _require_alike(plan: Plan, samples: _Samples, source: Source) -> None:
    labels = ("images", "targets") if plan.source.structure is None else [f"`{each}`" for each in plan.source.labels]
    for position, (named, field) in enumerate(zip(labels, plan.compact.columns, strict=True)):
        if field is None or field.shape is not None:
            continue
        if field.kind is FieldKind.ENCODED:
            raise WorkloadError(
                f"{named} are still encoded files where they are batched.", hint="Put ap.Decode() first in `ops`."
            )
        shapes = {np.shape(sample[position]): index for index, sample in reversed(samples.items())}
        shown = ", ".join(f"{shape} ({sample_name(source, index)})" for shape, index in list(shapes.items())[:3])
        hint = "Put ap.Resize, ap.CenterCrop or ap.RandomCrop in `ops`."
        if field.kind not in (*_IMAGES, FieldKind.MASK):
            is_x = position == 0 if plan.source.structure is None else plan.source.labels[position].startswith("x")
            pad = "ap.Map(function)" if is_x else 'ap.Map(function, on="mask")'
            if plan.source.structure is not None:
                pad = f'ap.On("{plan.source.labels[position]}", {pad})'
            hint = f"Pad them to one length where they are read, or by a function of your own: {pad}."
        raise WorkloadError(f"{named} must have one size to be batched, but got {shown}.", hint=hint)
