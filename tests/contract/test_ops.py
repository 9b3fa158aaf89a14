"""What every op must do, wherever it runs: give what its reference in `op_references.py` gives, and nothing else."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import native, testing
from autopipe.testing import spec_of
from autopipe.workload.op import NUMPY, Op, Step
from autopipe.workload.plain_code import Library
from autopipe.workload.sample import FieldKind, Sample, SampleSpec
from tests.contract.op_references import CASES, COLOURS, Case

RNG = np.random.default_rng(0)
MIDDLE = (0.5,) * 6
LAST = 1 - 2**-53
RANDOM = [(0.0,) * 6, (0.3, 0.7, 0.1, 0.9, 0.6, 0.2), (0.5, 0.499999, 0.5, 0.5, 0.5, 0.5), (LAST,) * 6]


def image(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, shape, np.uint8)


def deep(*shape: int) -> NDArray[np.uint16]:
    return RNG.integers(0, 65536, shape, np.uint16)


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
    "deep-coloured": (deep(9, 7, 3), None),
    "deep and grey": (deep(9, 7, 1), RNG.integers(0, 5, (9, 7), np.uint8)),
    "deep, bright and dark": (RNG.choice(np.array([0, 65535], np.uint16), (9, 7, 3)), None),
    "deep, with many channels": (deep(9, 7, 17), RNG.integers(0, 999, (9, 7), np.uint16)),
    "deep and tiny": (deep(1, 1, 1), None),
    "deep row": (deep(1, 90, 4), RNG.integers(0, 999, (1, 90), np.uint16)),
    "deep column": (deep(90, 1, 2), None),
    "float": (RNG.random((13, 17, 3), np.float32), None),
    "float, with many channels": (RNG.random((13, 17, 17), np.float32), RNG.integers(0, 5, (13, 17), np.uint8)),
    "float row": (RNG.random((1, 90, 1), np.float32), None),
    "coloured mask": (image(13, 17, 3), coloured(13, 17)),
    "masked-strange: a colour of no class": (image(13, 17, 3), np.full((13, 17, 3), 77, np.uint8)),
    "encoded": (encoded(image(13, 17, 3)), None),
    "encoded grey": (encoded(image(13, 17)), np.int64(2)),
    "encoded, cut": (encoded(image(13, 17, 3))[:300], None),
}
for part in itertools.chain.from_iterable(SAMPLES.values()):
    if isinstance(part, np.ndarray):
        part.flags.writeable = False  # no op may change a sample
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.op).__name__)


def samples_of(case: Case) -> Iterator[Sample]:
    """Yield the samples of a case; the one that a test fails on is printed last."""
    for name, sample in SAMPLES.items():
        if name.split(":")[0].startswith(case.samples):
            print(name)  # noqa: T201  pytest shows it
            yield sample


def unsized(spec: SampleSpec) -> SampleSpec:
    return SampleSpec.of([field and dataclasses.replace(field, shape=None) for field in spec.columns])


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
    public = {each for each in map(ap.__getattribute__, ap.__all__) if isinstance(each, type) and issubclass(each, Op)}
    assert {type(case.op) for case in CASES} == public - {ap.Op, ap.On}  # which do nothing themselves


@each_case
def test_it_gives_what_its_reference_gives_or_refuses_the_sample(case: Case) -> None:
    for given in samples_of(case):
        sample = testing.frozen(given)
        for random in RANDOM if case.op.draws else RANDOM[:1]:
            drawn = numbers(case.op, random)
            wanted = expected(case, sample, drawn)
            if wanted is None:
                with pytest.raises(ap.BadSampleError):
                    case.op.apply(sample, spec_of(sample), drawn)
            else:
                assert_same(wanted, case.op.apply(sample, spec_of(sample), drawn), case.levels)


@each_case
def test_it_keeps_the_contract_of_ops(case: Case) -> None:
    """As from a pickle and from threads, and as the native library makes a batch, if it does."""
    testing.check_op(case.op, samples_of(case))


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
def test_what_arrays_are_augmented_by_is_made_by_the_native_library() -> None:
    made = (case for case in CASES if any(testing.at_once(case.op, sample) for sample in samples_of(case)))
    assert {case.op.name for case in made} >= {
        "CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize", "ResizeKeepingAspect", "RandomFlip", "RandomErasing",
        "RandomBrightness", "RandomContrast", "RandomSaturation", "RandomHue", "RandomGrayscale", "Pad", "MaskToClass",
        "OneHot", "Rescale", "Normalize", "Cast",
    }  # fmt: skip


def plain(
    case: Case, sample: Sample, dialect: Library, rng: Any = None, *, several_sizes: bool = False
) -> Sample | None:
    """Return the sample after the op's plain code; None where it says that it has none."""
    spec = spec_of(sample)
    made = case.op.apply(sample, spec, numbers(case.op, MIDDLE))
    step = Step(case.op, 0, spec, spec_of(made))
    if several_sizes:
        step = dataclasses.replace(step, before=unsized(spec), after=unsized(step.after))
    import tensorflow as tf

    tensorflow = dialect == "tf"
    scope: dict[str, Any] = {"np": np, "cv2": cv2, "tf": tf, "rng": rng or np.random.default_rng(0)}
    scope |= case.op.plain_functions(step)
    try:
        lines = list(case.op.plain(step, dialect))
    except ap.PlainCodeError:
        return None
    parts = {part: value for part, value in zip("xy", sample, strict=True) if value is not None}
    scope |= {part: tf.constant(value) if tensorflow else value for part, value in parts.items()}
    exec("\n".join([*case.op.plain_constants(step), *lines]), scope)
    x, y, *_ = [scope[part].numpy() if tensorflow else scope[part] for part in parts] + [None]
    return x, y


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
    if not case.op.draws or isinstance(case.op, ap.Map) or case.op.mixes:
        return
    for sample in samples_of(case):
        lowest = numbers(case.op, RANDOM[0])
        if expected(case, sample, lowest) is not None:
            found = plain(case, sample, "np", Lowest())
            assert found is not None
            assert_same(case.op.apply(sample, spec_of(sample), lowest), found, 1)


FIRST = {type(case.op): case for case in reversed(CASES)}
DIALECTS = [pytest.param(case, "np") for case in CASES] + [
    pytest.param(case, "tf", marks=() if case is FIRST[type(case.op)] else pytest.mark.slow) for case in CASES
]


@pytest.mark.parametrize(
    ("case", "dialect"), DIALECTS, ids=lambda each: each if isinstance(each, str) else type(each.op).__name__
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
                off = case.plain_levels if dialect == "tf" and np.asarray(one).dtype.kind in "ui" else 1e-6
                np.testing.assert_allclose(np.float64(other), np.float64(one), rtol=1e-6, atol=max(off, 1e-6))


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


def moved(case: Case) -> Iterator[tuple[Any, Any]]:
    """Yield what an op makes of parts whose rows and columns it moves, and the parts at the places that it names."""
    random = np.array(RANDOM)[:, : case.op.draws]
    for sample in samples_of(case):
        if expected(case, sample, random[0]) is not None and not isinstance(sample[0], bytes):
            touched = [part for part, on in zip(sample, case.op.touches(spec_of(sample)), strict=True) if on]
            for part in touched if case.op.places(sample[0].shape[:2], random) is not None else ():
                rows, columns = case.op.places(part.shape[:2], random)  # type: ignore[misc]
                for number, drawn in enumerate(random):
                    made = case.op.apply(sample, spec_of(sample), drawn)
                    at = [each is part for each in sample].index(True)
                    yield made[at], part[rows[number]][:, columns[number]]


def test_flips_and_crops_move_rows_and_columns_and_a_class_of_somebodys_own_does_not_say_so() -> None:
    found = set()
    for case in CASES:
        for made, wanted in moved(case):
            found.add(case.op.name)
            np.testing.assert_array_equal(made, wanted)
    assert found == {"CenterCrop", "RandomCrop", "RandomFlip"}

    class Darker(ap.RandomFlip):
        def pixels(self, array: NDArray[Any], kind: FieldKind, random: NDArray[np.float64]) -> NDArray[Any]:
            return super().pixels(array, kind, random) // 2

    assert Darker().places((4, 4), np.zeros((1, 2))) is None
