"""What every op must do: give what its plain reference gives, wherever it runs, and nothing else.

The ops are found in the package. One that has no case in `op_references.py` fails here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import cloudpickle
import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import BadSampleError, OpError, PlainCodeError
from autopipe.workload import ops
from autopipe.workload import order as randomness
from autopipe.workload.op import NUMPY, Op, Step
from autopipe.workload.ops import on_parts
from autopipe.workload.ops.custom import Map
from autopipe.workload.ops.geometry import RandomFlip
from autopipe.workload.plain_code import Library
from autopipe.workload.program import programs
from autopipe.workload.sample import Field, FieldKind, Rows, Sample, SampleSpec
from tests.contract.op_references import CASES, COLOURS, Case

RNG = np.random.default_rng(0)
MIDDLE = (0.5,) * 6
LAST = 1 - 2**-53
RANDOM = [(0.0,) * 6, (0.3, 0.7, 0.1, 0.9, 0.6, 0.2), (0.5, 0.499999, 0.5, 0.5, 0.5, 0.5), (LAST,) * 6]


def image(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, shape, np.uint8)


def coloured(*shape: int) -> NDArray[np.uint8]:
    return np.array(COLOURS, np.uint8)[RNG.integers(0, len(COLOURS), shape)]


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    return bytes(cv2.imencode(".png", pixels)[1])


SAMPLES: dict[str, Sample] = {
    "masked": (image(13, 17, 3), RNG.integers(0, 5, (13, 17), np.uint8)),
    "grey with a mask of one channel": (image(13, 17, 1), RNG.integers(0, 5, (13, 17, 1), np.uint8)),
    "plain": (image(9, 6, 3), None),
    "tiny": (image(1, 1, 3), RNG.integers(0, 5, (1, 1), np.uint8)),
    "row": (image(1, 90, 3), RNG.integers(0, 5, (1, 90), np.uint8)),
    "column": (image(90, 1, 3), RNG.integers(0, 5, (90, 1), np.uint8)),
    "bright and dark": (RNG.choice(np.array([0, 255], np.uint8), (13, 17, 3)), None),
    "labelled": (image(13, 17, 3), np.int64(3)),
    "deep-coloured": (RNG.integers(0, 65536, (9, 7, 3), np.uint16), None),
    "deep and grey": (RNG.integers(0, 65536, (9, 7, 1), np.uint16), RNG.integers(0, 5, (9, 7), np.uint8)),
    "deep, bright and dark": (RNG.choice(np.array([0, 65535], np.uint16), (9, 7, 3)), None),
    "deep, with many channels": (
        RNG.integers(0, 65536, (9, 7, 17), np.uint16),
        RNG.integers(0, 999, (9, 7), np.uint16),
    ),
    "deep and tiny": (RNG.integers(0, 65536, (1, 1, 1), np.uint16), None),
    "deep row": (RNG.integers(0, 65536, (1, 90, 4), np.uint16), RNG.integers(0, 999, (1, 90), np.uint16)),
    "deep column": (RNG.integers(0, 65536, (90, 1, 2), np.uint16), None),
    "float": (RNG.random((13, 17, 3), np.float32), None),
    "float, with many channels": (RNG.random((13, 17, 17), np.float32), RNG.integers(0, 5, (13, 17), np.uint8)),
    "float row": (RNG.random((1, 90, 1), np.float32), None),
    "coloured mask": (image(13, 17, 3), coloured(13, 17)),
    "masked-strange: a colour of no class": (image(13, 17, 3), np.full((13, 17, 3), 77, np.uint8)),
    "encoded": (encoded(image(13, 17, 3)), None),
    "encoded grey": (encoded(image(13, 17)), np.int64(2)),
    "encoded, cut": (encoded(image(13, 17, 3))[:300], None),
}
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.op).__name__)


def samples_of(case: Case) -> Iterator[Sample]:
    """Yield the samples of a case; the one that a test fails on is printed last."""
    for name, sample in SAMPLES.items():
        if name.split(":")[0].startswith(case.samples):
            print(name)  # noqa: T201  pytest shows it
            yield sample


def spec_of(sample: Sample) -> SampleSpec:
    def field(part: Any, *, target: bool) -> Field:
        if isinstance(part, bytes):
            return Field(FieldKind.ENCODED, None, None)
        pixels = FieldKind.MASK if target else FieldKind.IMAGE
        return Field(pixels if part.ndim >= 2 else FieldKind.LABEL, part.shape, part.dtype, part.ndim)

    x, y = sample
    return SampleSpec(field(x, target=False), None if y is None else field(y, target=True))


def unsized(spec: SampleSpec) -> SampleSpec:
    fields = [None if field is None else dataclasses.replace(field, shape=None) for field in spec.columns]
    return SampleSpec.of(fields)


def frozen(sample: Sample) -> Sample:
    parts = [np.array(part) if isinstance(part, np.ndarray) else part for part in sample]
    for part in parts:
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    return parts[0], parts[1]


def numbers(op: Op, random: tuple[float, ...]) -> NDArray[np.float64]:
    return np.array(random[: op.draws], np.float64)


def expected(case: Case, sample: Sample, random: NDArray[np.float64]) -> Sample | None:
    """Return the sample that the reference makes; None if it is to be refused."""
    spec = spec_of(sample)
    parts, fields = list(sample), (spec.x, spec.y)
    for at, touched in enumerate(case.op.touches(spec)):
        field = fields[at]
        if touched and field is not None:
            parts[at] = case.reference(parts[at], field.kind, random)
            if parts[at] is None:
                return None
    return parts[0], parts[1]


def assert_same(wanted: Sample, found: Sample, levels: float = 0) -> None:
    """Compare two samples; x may be off by some levels, a mask never is."""
    for one, other, off in zip(wanted, found, (levels, 0), strict=True):
        if one is None:
            assert other is None
            continue
        assert (np.shape(one), np.asarray(one).dtype) == (np.shape(other), np.asarray(other).dtype)
        np.testing.assert_allclose(np.asarray(other, np.float64), np.asarray(one, np.float64), rtol=0, atol=off)


def test_every_op_of_the_package_has_a_reference() -> None:
    modules = [importlib.import_module(f"{ops.__name__}.{each.name}") for each in pkgutil.iter_modules(ops.__path__)]
    found = {
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Op) and each.__module__ == module.__name__
        if not inspect.isabstract(each) and not each.__name__.startswith("_")
        if each.__module__ != on_parts.__name__  # what puts other ops on parts of a sample does nothing itself
    }
    assert {type(case.op) for case in CASES} == found


@each_case
def test_it_gives_what_its_reference_gives_or_refuses_the_sample(case: Case) -> None:
    for given in samples_of(case):
        sample = frozen(given)
        for random in RANDOM if case.op.draws else RANDOM[:1]:
            drawn = numbers(case.op, random)
            wanted = expected(case, sample, drawn)
            if wanted is None:
                with pytest.raises(BadSampleError):
                    case.op.apply(sample, spec_of(sample), drawn)
            else:
                made = case.op.apply(sample, spec_of(sample), drawn)
                assert_same(wanted, made, case.levels)


@each_case
def test_threads_and_order_and_pickling_make_no_difference(case: Case) -> None:
    sample = next(samples_of(case))
    spec, again = spec_of(sample), cloudpickle.loads(cloudpickle.dumps(case.op))

    def made(op: Op, index: int) -> Sample | None:
        random = randomness.uniforms(7, 1, np.array([index]), 2, op.draws)[0]
        try:
            return op.apply(sample, spec, random)
        except BadSampleError:
            return None

    alone = [made(case.op, index) for index in range(20)]
    order = RNG.permutation(20).tolist()
    with ThreadPoolExecutor(5) as pool:
        together = dict(zip(order, pool.map(functools.partial(made, again), order), strict=True))
    for index, wanted in enumerate(alone):
        found = together[index]
        assert (wanted is None) == (found is None)
        if wanted is not None and found is not None:
            assert_same(wanted, found)


def plain(
    case: Case, sample: Sample, dialect: Library, rng: Any = None, *, several_sizes: bool = False
) -> Sample | None:
    """Return the sample after the op's plain code; None where it says that it has none."""
    spec = spec_of(sample)
    made = case.op.apply(sample, spec, numbers(case.op, MIDDLE))
    step = Step(case.op, 0, spec, spec_of(made))
    if several_sizes:
        step = dataclasses.replace(step, before=unsized(spec), after=unsized(step.after))
    tensorflow = dialect == "tf"
    scope: dict[str, Any] = {
        "np": np,
        "cv2": cv2,
        "rng": rng or np.random.default_rng(0),
        **case.op.plain_functions(step),
    }
    if tensorflow:
        import tensorflow as tf

        scope["tf"] = tf
    try:
        lines = list(case.op.plain(step, dialect))
    except PlainCodeError:
        return None
    parts = {part: value for part, value in zip("xy", sample, strict=True) if value is not None}
    scope |= {part: tf.constant(value) if tensorflow else value for part, value in parts.items()}
    exec("\n".join([*case.op.plain_constants(step), *lines]), scope)
    found = [scope[part].numpy() if tensorflow else scope[part] for part in parts]
    return found[0], found[1] if len(found) > 1 else None


class Lowest:
    """A generator whose numbers are all at the lower ends of their ranges."""

    def random(self) -> float:
        return 0.0

    def uniform(self, lower: float, upper: float) -> float:
        return lower

    def integers(self, limits: Any) -> NDArray[np.int64]:
        return np.zeros(np.shape(limits), np.int64)


@each_case
def test_its_plain_code_at_the_lower_ends_of_all_ranges_gives_what_the_op_gives_there(case: Case) -> None:
    if not case.op.draws or isinstance(case.op, Map) or case.op.mixes:
        return
    for sample in samples_of(case):
        lowest = numbers(case.op, RANDOM[0])
        if expected(case, sample, lowest) is not None:
            found = plain(case, sample, "np", Lowest())
            assert found is not None
            assert_same(case.op.apply(sample, spec_of(sample), lowest), found, 1)


FIRST = {type(case.op): case for case in reversed(CASES)}


@pytest.mark.parametrize(
    ("case", "dialect"),
    [
        pytest.param(
            case, dialect, marks=pytest.mark.slow if dialect == "tf" and case is not FIRST[type(case.op)] else ()
        )
        for case in CASES
        for dialect in ("np", "tf")
    ],
    ids=lambda value: value if isinstance(value, str) else type(value.op).__name__,
)
def test_its_plain_code_gives_what_the_op_gives(case: Case, dialect: Library) -> None:
    """What is random may differ from the op in its numbers, not in its shape and dtype."""
    assert type(case.op).plain is not Op.plain, (
        f"{type(case.op).__name__} needs a method `plain(self, step, library)` that returns its lines of plain code, "
        "for `autopipe eject` and the baselines of a tune. If it has none, it raises PlainCodeError with a reason."
    )
    for sample in () if case.op.mixes else samples_of(case):
        if expected(case, sample, numbers(case.op, MIDDLE)) is None:
            continue
        wanted = case.op.apply(sample, spec_of(sample), numbers(case.op, MIDDLE))
        found = plain(case, sample, dialect)
        if found is None:
            return
        if dialect == "np" and (unknown := plain(case, sample, dialect, several_sizes=True)) is not None:
            assert list(map(np.shape, unknown)) == list(map(np.shape, wanted))  # one channel is kept, too
        for one, other in zip(wanted, found, strict=True):
            assert (np.shape(one), np.asarray(one).dtype) == (np.shape(other), np.asarray(other).dtype)
            if one is not None and not case.op.draws:
                exact = np.asarray(one).dtype.kind in "ui"
                off = (case.plain_levels if dialect == "tf" else 0) if exact else 0
                np.testing.assert_allclose(
                    np.asarray(other, np.float64), np.asarray(one, np.float64), rtol=1e-6, atol=max(off, 1e-6)
                )


@each_case
def test_on_a_batch_it_gives_what_it_gives_sample_by_sample(case: Case) -> None:
    from autopipe.pipeline.devices.trainer import KERAS_OPS

    for x, y in samples_of(case) if case.op.batchable else ():
        batch = np.stack([x, 255 - x]), None if y is None else np.stack([y, y])
        wanted = stacked([case.op.apply((each, y), spec_of((x, y)), np.empty(0)) for each in batch[0]])
        for library in (NUMPY, KERAS_OPS):
            found = case.op.finish(batch, spec_of((x, y)), library)
            assert_same(wanted, tuple(None if part is None else np.asarray(part) for part in found))


def stacked(samples: list[Sample]) -> Sample:
    xs, ys = zip(*samples, strict=True)
    return np.stack(xs), None if ys[0] is None else np.stack(ys)


def spec_after(case: Case, before: SampleSpec, after: Sample) -> SampleSpec:
    parts = [None if part is None else np.asarray(part) for part in after]
    kinds = case.op.kinds(before)
    fields = [
        None if part is None or kind is None else Field(kind, part.shape, part.dtype, part.ndim)
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return SampleSpec.of(fields)


def spans_of(array: NDArray[Any]) -> NDArray[Any]:
    rows = Rows(array, np.arange(len(array)))
    return native.rows_at(rows.addresses, array.shape[1:], array.itemsize)


def made_at_once(case: Case, x: Any, y: Any) -> bool:
    """Compare a batch that is made at once with its samples one by one; return False if it is not made so."""
    spec, generator = spec_of((x, y)), np.random.default_rng(5)
    random = np.concatenate([np.array(RANDOM)[:, : case.op.draws], generator.random((7, case.op.draws))])
    order = np.arange(x.size)
    xs = np.stack([x, *(x.flat[generator.permutation(order)].reshape(x.shape) for _ in random[1:])])
    ys = None if y is None else np.stack([y] * len(random))
    try:
        alone = [case.op.apply((one, y), spec, drawn) for one, drawn in zip(xs, random, strict=True)]
    except (BadSampleError, OpError):
        return False
    after = spec_after(case, spec, alone[0])
    for simd in (2, 0):
        found = programs(spec, [Step(case.op, 0, spec, after)])
        if not found.count:
            return False
        out = after.empty(len(xs))
        made = found.room(out)
        spans = [None if each is None else spans_of(each) for each in (xs, ys)]
        with mock.patch.object(native, "SIMD", simd):
            assert not found.fill(spans, random, made).any()
        found.put_finished(made, out)
        assert_same(stacked(alone), out)
    return True


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
def test_batches_of_what_arrays_are_augmented_by_are_made_at_once_with_the_bits_of_their_samples() -> None:
    found = {
        type(case.op).__name__
        for case in CASES
        for x, y in samples_of(case)
        if not isinstance(x, bytes) and not case.op.mixes and made_at_once(case, x, y)
    }
    assert found >= {
        "CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize", "ResizeKeepingAspect", "RandomFlip", "RandomErasing",
        "RandomBrightness", "RandomContrast", "RandomSaturation", "RandomHue", "RandomGrayscale", "Pad", "MaskToClass",
        "OneHot", "Rescale", "Normalize", "Cast",
    }  # fmt: skip


@each_case
def test_a_move_of_rows_and_columns_gives_the_same_bits_as_sample_by_sample(case: Case) -> None:
    for sample in samples_of(case):
        if moves(case, sample):
            random = np.array(RANDOM)[:, : case.op.draws]
            for number, drawn in enumerate(random):
                wanted = case.op.apply(sample, spec_of(sample), drawn)
                touched = case.op.touches(spec_of(sample))
                for part, one, is_on in zip(sample, wanted, touched, strict=True):
                    if is_on and part is not None:
                        places = case.op.places(part.shape[:2], random)
                        assert places is not None
                        rows, columns = (each[number] for each in places)
                        np.testing.assert_array_equal(part[rows][:, columns], one)


def moves(case: Case, sample: Sample) -> bool:
    """Tell whether an op says that it moves rows and columns, and takes samples of this size."""
    x = sample[0]
    if isinstance(x, bytes) or case.op.places(x.shape[:2], np.full((1, case.op.draws), 0.5)) is None:
        return False
    with contextlib.suppress(BadSampleError):
        case.op.apply(sample, spec_of(sample), np.full(case.op.draws, 0.5))
        return True
    return False


def test_flips_and_crops_move_rows_and_columns_and_a_class_of_somebodys_own_does_not_say_so() -> None:
    found = {type(case.op).__name__ for case in CASES for sample in samples_of(case) if moves(case, sample)}
    assert found == {"CenterCrop", "RandomCrop", "RandomFlip"}

    class Darker(RandomFlip):
        def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
            return super().pixels(array, kind, random) // 2

    assert Darker().places((4, 4), np.zeros((1, 2))) is None
