"""The op list, split by where each op can run: a deterministic prefix, a body, and a suffix that is cheap on a batch.

The suffix may run after transfer, on the device; the prefix can be cached or stored once. Shapes and dtypes are found
by running the NumPy halves on a few real samples, never by guessing.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from autopipe.core.op import Op
from autopipe.core.plan import Plan, Step
from autopipe.core.sample import Field, FieldKind, Part, Sample, SampleSpec, Source
from autopipe.core.workload import Workload
from autopipe.errors import AutopipeError, BadSampleError, DataError, OpError, WorkloadError, shortened

_PROBES = 4  # samples looked at: the first, the last and two between
_ATTEMPTS = 20  # samples tried to find readable ones where bad samples are skipped


def make_plan(workload: Workload) -> Plan:
    """Split the ops of a workload and find what samples look like after each.

    Raises:
        DataError: a sample cannot be read or decoded.
        OpError: an op fails on a sample.
        WorkloadError: samples differ in shape where a batch needs them alike.
    """
    samples = _probe_samples(workload)
    source = _merge(_describe(workload.data, samples[0][1]), [sample for _, sample in samples])
    ops, tail = _suffix_last(workload.ops, source)
    _require_mixing_last([op for op, _ in ops[:tail]])
    steps, results = _run(ops[:tail], source, samples, workload)
    boundary = next((i for i, (op, _) in enumerate(ops[:tail]) if op.is_random), tail)
    plan = Plan(source, tuple(steps[:boundary]), tuple(steps[boundary:]), ())
    _require_alike(plan, results, workload.data)
    suffix, _ = _run(ops[tail:], plan.compact, results, workload)
    return dataclasses.replace(plan, suffix=tuple(suffix))


def normalise(value: Any) -> Sample:
    """Return what a source's `read` gave as `(x, y)`."""
    if isinstance(value, tuple):
        if len(value) != 2:
            raise DataError(f"`read` must return (x, y) or x alone, but returned a tuple of {len(value)}.")
        return value
    return value, None


def sample_name(source: Source, index: int) -> str:
    """Return what a person calls a sample: its path where the source knows it."""
    name = getattr(source, "name", None)
    return str(name(index)) if callable(name) else f"sample {index}"


def op_failure(error: BaseException, op: Op, source: Source, index: int) -> AutopipeError:
    """Return the error to raise when an op failed on a sample: with the op, the sample's index and its name.

    Raises:
        KeyboardInterrupt: it was no failure; somebody pressed Ctrl-C.
    """
    _pass_interrupt(error)
    place = f"{type(op).__name__} on sample {index} ({sample_name(source, index)})"
    if isinstance(error, AutopipeError):
        return type(error)(f"{place}: {error.message}", hint=error.hint)
    return OpError(f"{place} raised {type(error).__name__}: {error}", hint="The original error is shown above.")


def read_failure(error: BaseException, source: Source, index: int) -> AutopipeError:
    """Return the error to raise when a sample could not be read.

    Raises:
        KeyboardInterrupt: it was no failure; somebody pressed Ctrl-C.
    """
    _pass_interrupt(error)
    name = sample_name(source, index)
    place = f"sample {index} ({name})"
    if isinstance(error, AutopipeError):
        named = f"sample {index}" if name in error.message else place
        return type(error)(f"{named}: {error.message}", hint=error.hint)
    kind = BadSampleError if isinstance(error, Exception) else DataError  # `sys.exit` says nothing about a sample
    return kind(f"{place} cannot be read: {type(error).__name__}: {error}")


def _pass_interrupt(error: BaseException) -> None:
    """Raise Ctrl-C again, which Python delivers to the main thread alone; anywhere else it is an error like others."""
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def _probe_samples(workload: Workload) -> list[tuple[int, Sample]]:
    count = len(workload.data)
    wanted = sorted({int(i) for i in np.linspace(0, count - 1, min(_PROBES, count))})
    if workload.on_bad_sample == "skip":
        wanted = sorted({*wanted, *(int(i) for i in np.linspace(0, count - 1, min(_ATTEMPTS, count)))})
    samples = []
    for index in wanted:
        try:
            samples.append((index, normalise(workload.data.read(index))))
        except BaseException as error:  # whatever a user's source raises is shown with the sample's name
            failure = read_failure(error, workload.data, index)
            if workload.on_bad_sample == "error":
                raise failure from error
    if not samples:
        raise DataError(
            f"none of {len(wanted)} samples could be read.",
            hint="Check the data, or set on_bad_sample='error' to see the first error.",
        )
    return samples


def _describe(source: Source, sample: Sample) -> SampleSpec:
    x, y = sample
    for name, part in (("x", x), ("y", y)):
        if isinstance(part, tuple | dict):
            raise DataError(
                f"`read` must return (x, y), each one array, number or bytes, but {name} is {shortened(part)}.",
                hint="Several inputs or targets cannot be fed; numbers that belong together go into one array.",
            )
    x_kind = getattr(source, "x_kind", None) or _guess(x, image=True)
    if y is None:
        return SampleSpec(_field(x_kind, x), None)
    y_kind = getattr(source, "y_kind", None) or _guess(y, image=False)
    return SampleSpec(_field(x_kind, x), _field(y_kind, y))


def _guess(part: Part, *, image: bool) -> FieldKind:
    if isinstance(part, bytes | memoryview):
        return FieldKind.ENCODED
    if np.ndim(part) == 0:
        return FieldKind.LABEL
    if image and np.ndim(part) == 3:
        return FieldKind.IMAGE
    return FieldKind.ARRAY


def _field(kind: FieldKind, part: Part) -> Field:
    if isinstance(part, bytes | memoryview):
        return Field(FieldKind.ENCODED, None, None)
    array = np.asarray(part)
    if kind is FieldKind.LABEL and array.dtype.kind in "iu":
        return Field(kind, array.shape, np.dtype(np.int64) if isinstance(part, int) else array.dtype, array.ndim)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise DataError(f"samples must be bytes, numbers or arrays of numbers, but one is {array.dtype} {part!r:.80}.")
    return Field(kind, array.shape, array.dtype, array.ndim)


def _fields(like: SampleSpec, sample: Sample) -> tuple[Field, ...]:
    parts = sample if like.y is not None else sample[:1]
    return tuple(_field(field.kind, part) for field, part in zip(like.fields, parts, strict=True))


def _merge(first: SampleSpec, samples: Sequence[Sample]) -> SampleSpec:
    """Return the spec with the shapes of fields in which samples differ set to None."""
    columns = zip(*(_fields(first, sample) for sample in samples), strict=True)
    merged = []
    for column in columns:
        alike = all(field.shape == column[0].shape for field in column)
        dtypes = {field.dtype for field in column}
        if len(dtypes) > 1:
            raise WorkloadError(
                f"samples differ in dtype: {', '.join(sorted(str(d) for d in dtypes))}.",
                hint="Put ap.Cast before they are batched, or convert the data.",
            )
        one_rank = len({field.rank for field in column}) == 1
        shape, rank = column[0].shape if alike else None, column[0].rank if one_rank else None
        merged.append(dataclasses.replace(column[0], shape=shape, rank=rank))
    return SampleSpec(merged[0], merged[1] if len(merged) > 1 else None)


def _run(
    ops: Sequence[tuple[Op, int]], source: SampleSpec, samples: list[tuple[int, Sample]], workload: Workload
) -> tuple[list[Step], list[tuple[int, Sample]]]:
    spec, steps = source, []
    for op, stream in ops:
        kinds = op.kinds(spec)
        op.look([sample for _, sample in samples], spec)
        samples = _after(op, spec, samples, workload)
        after = _merge(_with_kinds(kinds, samples[0][1]), [sample for _, sample in samples])
        steps.append(Step(op, stream, spec, after))
        spec = after
    return steps, samples


def _after(op: Op, spec: SampleSpec, samples: list[tuple[int, Sample]], workload: Workload) -> list[tuple[int, Sample]]:
    random = np.full(op.draws, 0.5)
    after: list[tuple[int, Sample]] = []
    failure = None
    for index, sample in samples:
        try:
            if not after:
                op.check(sample, spec)
            after.append((index, op.apply(sample, spec, random)))
        except BaseException as error:  # whatever a user's function raises is shown with op and sample
            failure = op_failure(error, op, workload.data, index)
            if workload.on_bad_sample == "error" or not isinstance(error, BadSampleError):
                raise failure from error
    if not after and failure is not None:
        raise failure
    return after


def _with_kinds(kinds: tuple[FieldKind, FieldKind | None], sample: Sample) -> SampleSpec:
    x, y = sample
    return SampleSpec(_field(kinds[0], x), None if y is None else _field(kinds[1] or FieldKind.ARRAY, y))


def _suffix_last(ops: Sequence[Op], source: SampleSpec) -> tuple[list[tuple[Op, int]], int]:
    """Return the ops with those of the suffix moved to the end, and how many come before it.

    A batchable op belongs to the suffix if no op that stays before it touches the same field afterwards: a OneHot of
        the
    label, say, may stand anywhere in the list.
    """
    body: list[tuple[Op, int]] = []
    suffix: list[tuple[Op, int]] = []
    blocked = [False, False]
    for stream in range(len(ops) - 1, -1, -1):
        op = ops[stream]
        touched = _touched(op, source)
        if op.batchable and not any(b and t for b, t in zip(blocked, touched, strict=True)):
            suffix.insert(0, (op, stream))
        else:
            body.insert(0, (op, stream))
            blocked = [b or t for b, t in zip(blocked, touched, strict=True)]
    return body + suffix, len(body)


def _require_mixing_last(ops: Sequence[Op]) -> None:
    first = next((number for number, op in enumerate(ops) if op.mixes), len(ops))
    after = [type(op).__name__ for op in ops[first:] if not op.mixes]
    if after:
        raise WorkloadError(
            f"`{type(ops[first]).__name__}` mixes finished samples, but {', '.join(f'`{name}`' for name in after)} "
            "would change them afterwards.",
            hint=f"Put it behind `{after[-1]}`; only ops like Rescale, Normalize and Cast may follow it.",
        )


def _touched(op: Op, source: SampleSpec) -> tuple[bool, bool]:
    """Return which fields an op may touch; a y that is still encoded will be a mask."""
    y_is_mask = source.y is not None and source.y.kind in (FieldKind.MASK, FieldKind.ENCODED)
    on_y = op.mixes or op.target == "mask" or (op.target == "both" and y_is_mask)
    return op.target != "mask", source.y is not None and on_y


def _require_alike(plan: Plan, samples: list[tuple[int, Sample]], source: Source) -> None:
    for label, field, position in (("images", plan.compact.x, 0), ("targets", plan.compact.y, 1)):
        if field is None or field.shape is not None:
            continue
        if field.kind is FieldKind.ENCODED:
            raise WorkloadError(
                f"{label} are still encoded files where they are batched.", hint="Put ap.Decode() first in `ops`."
            )
        shapes = {np.shape(sample[position]): index for index, sample in reversed(samples)}
        shown = ", ".join(f"{shape} ({sample_name(source, index)})" for shape, index in list(shapes.items())[:3])
        raise WorkloadError(
            f"{label} must have one size to be batched, but got {shown}.",
            hint="Put ap.Resize, ap.CenterCrop or ap.RandomCrop in `ops`.",
        )
