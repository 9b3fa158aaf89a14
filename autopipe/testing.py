"""What every source, op, loader and storage form must do, as functions for the tests of whoever writes another one.

    from autopipe import testing

    def test_my_source():
        testing.check_source(MySource("photos"))

Each raises AssertionError with the rule that is broken. autopipe's own plugins are held against the same functions, and
against references of their own in `tests/contract`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import random
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import cloudpickle
import cv2
import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, LoaderError, OpError, PlainCodeError
from autopipe.pipeline import assembly
from autopipe.pipeline.config import LoaderConfig, PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import convert, estimate_bytes
from autopipe.pipeline.storage.form import Conversion, Storage
from autopipe.workload import order
from autopipe.workload.data import source as data_source
from autopipe.workload.op import NUMPY, Op, Step
from autopipe.workload.ops import planner
from autopipe.workload.plain_code import packed
from autopipe.workload.program import programs
from autopipe.workload.sample import (
    Batch,
    Field,
    FieldKind,
    Rows,
    Sample,
    SampleSpec,
    Source,
    Structure,
    keyed,
    leaves,
    slots_of,
)
from autopipe.workload.workload import Workload

_MOST = 64  # samples of a source that are read
_THREADS = 5


def _require(holds: object, rule: str) -> None:
    if not holds:
        raise AssertionError(rule)


def require_same(wanted: object, found: object, rule: str, *, dtypes: bool = True) -> None:
    """Raise AssertionError with the rule if two samples or batches differ in structure, shape, dtype or a value."""
    slots = [each if isinstance(each, tuple) else (each,) for each in (wanted, found)]
    _require([list(keyed(slot)) for slot in slots[0]] == [list(keyed(slot)) for slot in slots[1]], f"{rule}: structure")
    for one, other in zip(*([part for slot in each for part in leaves(slot)] for each in slots), strict=True):
        first, second = np.asarray(one), np.asarray(other)
        shapes = f"{first.dtype}{first.shape} is wanted, but {second.dtype}{second.shape} was given"
        _require(first.shape == second.shape and (first.dtype == second.dtype or not dtypes), f"{rule}: {shapes}")
        equal = np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
        _require(equal, f"{rule}: other values")


# -------------------- sources


def check_source(source: Source, sample: Callable[[int], Any] | None = None) -> None:
    """Check a source: its samples come by number, in any order, from any thread and from a pickle, and are always the
    same; and what else it offers (`x_kind`, `digest`, `name`, `files`, `spans`, `plain`) is true of them.

    Args:
        source: what the workload would get as `data`; of at least two samples.
        sample: what `read` must return for a number, perhaps in other dtypes; None: what it returns at first.

    Raises:
        AssertionError: with the rule that does not hold.
    """
    count, asked = len(source), data_source
    numbers = sorted({*range(0, count, max(1, count // _MOST)), count - 1})
    known = [source.read(number) for number in numbers]
    for number, found in zip(numbers, known, strict=True):
        if sample is not None:
            require_same(sample(number), found, f"sample {number} is what it must be", dtypes=False)
    shuffled = random.Random(0).sample(range(len(numbers)), len(numbers)) * 3
    with ThreadPoolExecutor(_THREADS) as pool:
        for place, found in zip(shuffled, pool.map(lambda at: source.read(numbers[at]), shuffled), strict=True):
            require_same(known[place], found, f"sample {numbers[place]} is the same from each thread, in any order")
    with contextlib.suppress(IndexError):
        source.read(count)
        raise AssertionError(f"of {count} samples, `read({count})` raises IndexError")
    again = cloudpickle.loads(cloudpickle.dumps(source))
    for number, wanted in zip(numbers, known, strict=True):
        require_same(wanted, again.read(number), f"sample {number} is the same from a pickle, as worker processes have")
    _require(
        asked.digest(source) == asked.digest(source) == asked.digest(again), "`digest` is the same until data change"
    )
    names = [planner.sample_name(source, number) for number in numbers]
    _require(names == [planner.sample_name(again, number) for number in numbers], "a pickle has the same names")
    _require(len({*names}) == len(names), f"each sample has a name of its own, but {names[:3]}, ... are not")
    files = asked.files(source)
    _require(all(Path(file).is_file() for file in files), f"`files` are files, but {files[:3]}, ... are not")
    _require({*asked.files(source, numbers[:2])} <= {*files}, "`files` of some samples are among those of all")
    _check_kinds(source, known[0])
    _check_spans(source, numbers, known)
    _check_plain(source, numbers, known)


def _structure(value: object) -> Structure | None:
    return Structure.of(value, lambda _, part: isinstance(part, bytes) or np.ndim(part) > 1)


def _check_kinds(source: Any, value: object) -> None:
    for name, slot in zip(("x_kind", "y_kind"), slots_of(value), strict=False):
        if (kinds := getattr(source, name, None)) is None:
            continue
        _require([*keyed(kinds)] == [*keyed(slot)], f"`{name}` has the parts that samples have")
        for kind, part in zip(leaves(kinds), leaves(slot), strict=True):
            encoded = isinstance(part, bytes)
            _require((kind is FieldKind.ENCODED) == encoded, f"`{name}` is ENCODED for bytes, and for nothing else")
            single = np.ndim(part) == 0 and not encoded
            _require(
                (kind is FieldKind.LABEL) == single, f"`{name}` is LABEL for a single number, and for nothing else"
            )


def _content(spans: Any) -> Any:
    """Return the bytes of spans: of files that the library opens, of open files, and in memory; others as they are."""
    if isinstance(spans, Rows):
        return spans.gathered()
    if not isinstance(spans, tuple):
        return spans
    found = list[bytes]()
    for path, address, file, offset, size, *pixels in spans[0].tolist():
        if path:
            found.append(Path(os.fsdecode(ctypes.string_at(path))).read_bytes()[offset:])
        elif address:
            found.append(ctypes.string_at(address, size or math.prod(pixels)))
        else:
            found.append(os.pread(file, size, offset))
    return found


def _check_spans(source: Source, numbers: Sequence[int], known: Sequence[object]) -> None:
    """Check that what the native library would read is what `read` returns."""
    if native.why_not() is not None or (spans := data_source.spans_half(source)) is None:
        return
    columns = [_content(each) for each in spans(np.array(numbers[::-1]))]
    for place, value in enumerate(reversed(known)):
        rule = f"`spans` are those of the same samples, but not of sample {numbers[-1 - place]}"
        for wanted, column in zip(planner.normalise(value, _structure(value)), columns, strict=True):
            given = None if column is None else column[place]
            if isinstance(wanted, np.ndarray) and isinstance(given, bytes):
                _require(wanted.tobytes() == given, rule)
            else:
                _require(np.array_equal(np.asarray(wanted), np.asarray(given)), rule)


def _check_plain(source: Source, numbers: Sequence[int], known: Sequence[object]) -> None:
    """Run the plain code of NumPy, which `autopipe eject` writes, unless the source says why it has none."""
    structure = _structure(known[0])
    spec = planner.described(source, {numbers[0]: planner.normalise(known[0], structure)}, structure)
    try:
        code = data_source.plain(source, spec, "np")
        _require(data_source.plain(source, spec, "tf").arguments, "the plain code of TensorFlow takes arguments, too")
    except PlainCodeError:
        return
    body = textwrap.indent("\n".join([*code.reading, f"return {packed(spec)}"]), "    ")
    lines = [*code.constants, code.functions, f"def load({', '.join(code.arguments)}):\n{body}", code.opened]
    scope: dict[str, Any] = {"np": np, "os": os, "Path": Path, "self": types.SimpleNamespace(), **code.given}
    if "tf." in (text := "\n".join(["import csv", *lines])):
        text = f"import tensorflow as tf\n{text}"
    exec(text, scope)  # noqa: S102  # the code of the plugin that is tested
    counted = eval(code.count, scope)  # noqa: S307  # as above
    _require(counted == len(source), f"the plain code counts {len(source)} samples, not {counted}")
    for number, wanted in zip(numbers, known, strict=True):
        found = eval(f"load({code.taken})", {**scope, "index": number})  # noqa: S307  # as above
        require_same(wanted, found, f"the plain code reads the same sample {number}")


# -------------------- ops

_RNG = np.random.default_rng(0)
SAMPLES: tuple[Sample, ...] = (
    (_RNG.integers(0, 256, (13, 17, 3), np.uint8), _RNG.integers(0, 5, (13, 17), np.uint8)),
    (_RNG.integers(0, 256, (13, 17, 1), np.uint8), None),
    (_RNG.integers(0, 256, (1, 1, 3), np.uint8), np.int64(3)),
    (_RNG.integers(0, 65536, (9, 7, 4), np.uint16), None),
    (_RNG.random((13, 17, 3), np.float32), np.int64(3)),
    (cv2.imencode(".png", _RNG.integers(0, 256, (13, 17, 3), np.uint8))[1].tobytes(), np.int64(2)),
)
"""Images with and without masks and labels, of 8 and 16 bits and floats, and one that is encoded."""
NUMBERS = np.array([(0.0,) * 8, (0.3, 0.7, 0.1, 0.9, 0.6, 0.2, 0.4, 0.8), (0.5,) * 8, (1 - 2**-53,) * 8])
"""Random numbers of four samples: the least and the largest that there are, among them."""


def check_op(
    op: Op,
    samples: Iterable[Sample] = SAMPLES,
    reference: Callable[[Sample, NDArray[np.float64]], Sample | None] | None = None,
) -> None:
    """Check an op: it is a pure function of a sample and of the sample's own random numbers, writes to nothing, gives
    the same from threads and from a pickle, and where it acts on whole batches, the same as sample by sample.

    Args:
        op: the op.
        samples: (x, y) each, of which it takes at least one; it may raise BadSampleError for others.
        reference: what a sample must become by these random numbers, of shape (draws,); None: it is to be refused.

    Raises:
        AssertionError: with the rule that does not hold.
    """
    again, taken = cloudpickle.loads(cloudpickle.dumps(op)), 0
    _require(op.draws <= NUMBERS.shape[1], f"this check has {NUMBERS.shape[1]} random numbers a sample")
    for given in samples:
        sample, spec = frozen(given), spec_of(given)
        drawn = NUMBERS[: len(NUMBERS) if op.draws else 1, : op.draws]
        made = [applied(op, sample, spec, numbers) for numbers in drawn]
        for numbers, found in zip(drawn, made, strict=True):
            if reference is not None:
                _require_alike(reference(sample, numbers), found, f"{op} does what its reference does by {numbers}")
        with ThreadPoolExecutor(_THREADS) as pool:
            for found, other in zip(
                made, pool.map(functools.partial(applied, again, sample, spec), drawn), strict=True
            ):
                _require_alike(found, other, f"{op} gives the same from a pickle, in another thread")
        if (first := made[0]) is None:
            continue
        taken += 1
        if op.batchable and not any(isinstance(part, bytes) for part in sample):
            found = op.finish(tuple(None if part is None else np.stack([part]) for part in sample), spec, NUMPY)
            require_same(tuple(None if part is None else np.asarray(part)[None] for part in first), tuple(found),
                         f"{op} gives by `finish` what it gives by `apply`")  # fmt: skip
        at_once(op, sample)
        if (calm := op.without_chance()) is not None and not calm.is_random:
            shapes = [np.shape(part) for part in calm.apply(sample, spec, np.empty(0))]
            _require(shapes == [np.shape(part) for part in first], f"{calm}, of `without_chance`, gives the same sizes")
    _require(taken, f"{op} takes none of these samples: pass some that it takes")


def applied(op: Op, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample | None:
    """Return a sample after an op, None if it refuses it."""
    try:
        return op.apply(sample, spec, random)
    except BadSampleError:
        return None


def _require_alike(wanted: Sample | None, found: Sample | None, rule: str) -> None:
    _require((wanted is None) == (found is None), f"{rule}: one of both refuses the sample")
    if wanted is not None:
        require_same(wanted, found, rule)


def frozen(sample: Sample) -> Sample:
    """Return a copy of a sample whose arrays cannot be written to."""
    parts = [np.array(part) if isinstance(part, np.ndarray) else part for part in sample]
    for part in parts:
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return tuple(parts)


def spec_of(sample: Sample) -> SampleSpec:
    """Describe a sample (x, y): encoded images, arrays as image and mask, and single numbers as labels."""

    def field(part: Any, pixels: FieldKind) -> Field | None:
        if part is None:
            return None
        if isinstance(part, bytes):
            return Field(FieldKind.ENCODED, None, None)
        array = np.asarray(part)
        return Field(pixels if array.ndim >= 2 else FieldKind.LABEL, array.shape, array.dtype, array.ndim)

    x, y = (field(part, kind) for part, kind in zip(sample, (FieldKind.IMAGE, FieldKind.MASK), strict=True))
    assert x is not None
    return SampleSpec(x, y)


def at_once(op: Op, sample: Sample) -> bool:
    """Check that the native library makes a batch with the bits of its samples; return False if it makes none."""
    x, y = sample
    if native.why_not() is not None or isinstance(x, bytes) or isinstance(y, bytes) or op.mixes:
        return False
    spec, generator = spec_of(sample), np.random.default_rng(5)
    random = np.concatenate([NUMBERS[:, : op.draws], generator.random((7, op.draws))])
    xs = np.stack([x, *(x.flat[generator.permutation(x.size)].reshape(x.shape) for _ in random[1:])])
    ys = None if y is None else np.stack([y] * len(random))
    try:
        alone = [op.apply((one, y), spec, drawn) for one, drawn in zip(xs, random, strict=True)]
    except (BadSampleError, OpError):
        return False
    after = _spec_after(op, spec, alone[0])
    for simd in (2, 0):
        found = programs(spec, [Step(op, 0, spec, after)])
        if not found.count:
            return False
        out = after.empty(len(xs))
        made, spans = found.room(out), [None if each is None else _rows_of(each) for each in (xs, ys)]
        with mock.patch.object(native, "SIMD", simd):
            _require(not found.fill(spans, random, made).any(), f"{op} refuses none at once that it takes one by one")
        found.put_finished(made, out)
        columns = zip(*alone, strict=True)
        wanted = tuple(None if column[0] is None else np.stack(column) for column in columns)
        require_same(wanted, tuple(out), f"{op} makes a batch at once with the bits of `apply`")
    return True


def _rows_of(array: NDArray[Any]) -> NDArray[Any]:
    rows = Rows(array, np.arange(len(array)))
    return native.rows_at(rows.addresses, array.shape[1:], array.itemsize)


def _spec_after(op: Op, before: SampleSpec, after: Sample) -> SampleSpec:
    parts = [None if part is None else np.asarray(part) for part in after]
    fields = [
        None if part is None or kind is None else Field(kind, part.shape, part.dtype, part.ndim)
        for kind, part in zip(op.kinds(before), parts, strict=True)
    ]
    return SampleSpec.of(fields)


# -------------------- loaders


class _Photos:
    """Encoded images of several sizes, with their numbers."""

    def __len__(self) -> int:
        return 23

    def read(self, index: int) -> tuple[bytes, int]:
        pixels = np.random.default_rng(index).integers(0, 256, (20 + index % 3, 30 - index % 2, 3), np.uint8)
        return cv2.imencode(".png", pixels)[1].tobytes(), index


def photos() -> Workload:
    """Return a workload of 23 encoded images in memory, cropped and flipped at random."""
    import autopipe as ap

    ops = [ap.Decode(), ap.Resize(20, 24), ap.RandomCrop(16, 16), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return Workload(data=_Photos(), ops=ops, batch_size=4, seed=7)


SETTINGS: tuple[Mapping[str, Any], ...] = ({}, {"keep": "memory"}, {"finish": "host", "keep": "memory:40%"})
"""Settings of a configuration in which a loader is checked."""


def check_loader(
    loader: LoaderConfig, workload: Workload | None = None, settings: Iterable[Mapping[str, Any]] = SETTINGS
) -> None:
    """Check a loader: in all settings it gives the batches that workload, seed and epoch alone fix, also after a resume
    in mid-epoch, after an epoch that is left, and in shards; nobody writes to a batch that somebody holds; and once it
    is closed it says so.

    Args:
        loader: the loader, such as `MyLoader(workers=2)`.
        workload: what it is to feed; None: `photos()`.
        settings: of `ap.PipelineConfig`.

    Raises:
        AssertionError: with the rule that does not hold.
        ConfigError: the loader refuses a setting.
    """
    workload = workload or photos()
    wanted = {epoch: expected_batches(workload, epoch) for epoch in range(4)}
    for chosen in settings:
        config, rule = PipelineConfig(loader=loader, **chosen), f"with {dict(chosen)}"
        with assembly.make_loader(workload, config) as made:
            _require(len(made) == len(wanted[0]), f"{rule} an epoch has {len(wanted[0])} batches, not {len(made)}")
            for epoch in (0, 1):
                _require_epoch(wanted[epoch], finished(made, made.batches(epoch)), f"{rule}, epoch {epoch}")
            left = made.batches(0)
            next(left)
            del left
            held = [(batch, finished(made, [batch])[0]) for batch in made.batches(2)]
            _require_epoch(wanted[2], [copy for _, copy in held], f"{rule}, behind an epoch that was left")
            next(begun := made.epoch(3))
            state, after = made.state_dict(), made.batches(0)
            del begun
        _require_epoch([copy for _, copy in held], finished(made, [each for each, _ in held]),
                       f"{rule} nobody writes to a batch that is held, and it outlives its loader")  # fmt: skip
        with contextlib.suppress(LoaderError):
            next(after)
            raise AssertionError(f"{rule} a loader that is closed raises LoaderError")
        with assembly.make_loader(workload, config) as made:
            made.load_state_dict(state)
            rest = copied(made.epoch(3))
        _require_epoch(wanted[3][1:], rest, f"{rule}, resumed behind the first batch")
    for part in range(3):
        with assembly.make_loader(workload, PipelineConfig(loader=loader), shard=(part, 3)) as made:
            shard = expected_batches(workload, 1, (part, 3))
            _require_epoch(shard, finished(made, made.batches(1)), f"shard {part} of 3")


def _require_epoch(wanted: Sequence[Batch], found: Sequence[Batch], rule: str) -> None:
    _require(len(wanted) == len(found), f"{rule}: {len(wanted)} batches are wanted, but {len(found)} came")
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        require_same(tuple(one), tuple(other), f"{rule}, batch {number}")


def expected_batches(workload: Workload, epoch: int, shard: tuple[int, int] = (0, 1)) -> list[Batch]:
    """Return an epoch's finished batches, made sample by sample in the user's order, without any loader; the next one
    takes the place of a bad sample. Ops that mix the samples of a batch are not taken.
    """
    assert not any(op.mixes for op in workload.ops)
    plan, count = planner.make_plan(workload), len(workload.data)
    steps = sorted(plan.steps, key=lambda step: step.stream)  # in the user's order
    numbers = order.epoch_order(workload.seed, epoch, count) if workload.shuffle else np.arange(count)
    if workload.blocks is not None:
        numbers = order.block_order(workload.seed, epoch, count, *workload.blocks)
    samples = list[Sample]()
    for index in numbers[shard[0] :: shard[1]].tolist():
        first = np.array([index])
        while True:
            try:
                sample = planner.normalise(workload.data.read(index), plan.source.structure)
                for step in steps:
                    drawn = order.uniforms(workload.seed, epoch, first, step.stream, step.op.draws)[0]
                    sample = step.op.apply(sample, step.before, drawn)
                break
            except BadSampleError:
                assert workload.on_bad_sample == "skip"
                index = (index + 1) % count
        samples.append(sample)
    size = workload.batch_size
    groups = [samples[at : at + size] for at in range(0, len(samples), size)]
    whole = [group for group in groups if len(group) == size or not workload.drop_remainder]
    return [
        tuple(None if parts[0] is None else np.stack(parts) for parts in zip(*group, strict=True)) for group in whole
    ]


def copied(batches: Iterable[Batch]) -> list[Batch]:
    """Return copies of batches, of which a loader may use the memory again."""
    return [tuple(None if part is None else np.array(part) for part in batch) for batch in batches]


def finished(loader: Loader, batches: Iterable[Batch]) -> list[Batch]:
    """Return copies of batches, finished where the loader leaves that to the device."""
    return copied(loader.finish.batch(batch, NUMPY) for batch in batches)


# -------------------- storage forms


def check_form(form: Storage, folder: Path, workload: Workload | None = None) -> None:
    """Check a storage form: after as many first ops as it can hold, samples come back as they were made, in any order,
    from threads and from a pickle; two conversions write the same; and the set says what it holds.

    Args:
        form: the form.
        folder: an empty folder.
        workload: whose samples are converted; None: `photos()`.

    Raises:
        AssertionError: with the rule that does not hold.
    """
    workload = workload or photos()
    plan = planner.make_plan(workload)
    _require(cuts := form.cuts(plan), f"{form.name} can hold these samples after none of the first ops: pass others")
    for cut in cuts:
        conversion, rule = Conversion.of(workload, plan, cut), f"{form.name} after {cut} of the first ops"
        convert(conversion, form, folder / f"{cut}", workers=2)
        found = layout.open_set(folder / f"{cut}", conversion, form)
        indices = [index for index in range(len(conversion)) if index not in found.record.bad]
        wanted, again = (
            {index: conversion.sample(index) for index in indices},
            cloudpickle.loads(cloudpickle.dumps(found)),
        )
        structure = plan.source.structure
        with ThreadPoolExecutor(_THREADS) as pool:
            for source in (found, again):
                read = pool.map(source.read, reversed(indices))
                for index, sample in zip(reversed(indices), read, strict=True):
                    parts = planner.normalise(sample, structure)
                    writeable = any(part.flags.writeable for part in parts if isinstance(part, np.ndarray))
                    _require(not writeable, f"{rule}: nobody may write to a sample")
                    require_same(tuple(wanted[index]), tuple(parts), f"{rule}, sample {index}")
        repeated = convert(conversion, form, folder / f"{cut}-again", workers=1)
        _require(repeated.record == found.record, f"{rule}: two conversions write the same files")
        files = [path for path in (folder / f"{cut}").iterdir() if path.suffix != ".json" and path.name[0] != "."]
        _require({*map(str, files)} == {*found.files()}, f"{rule}: `files` are those of the folder")
        size = estimate_bytes(conversion, form) / found.record.bytes
        _require(0.85 <= size <= 1.15, f"{rule}: `sample_bytes` gives about the size, but {size:.2f} times it")
        layout.verify(found, conversion)
