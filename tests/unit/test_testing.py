"""The contracts for plugins: what is sound passes, and each rule that is broken is named."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import testing
from autopipe.pipeline.config import LOADERS
from autopipe.workload.sample import FieldKind, Sample, SampleSpec


class Numbers:
    x_kind, y_kind = FieldKind.IMAGE, FieldKind.LABEL

    def __len__(self) -> int:
        return 9

    def read(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return np.full((4, 5, 3), index, np.uint8), index


def but(**own: Any) -> Any:
    return type("Wrong", (Numbers,), own)()


CALLS = itertools.count()
WRONG = {
    "is the same": but(read=lambda self, index: next(CALLS)),
    "raises IndexError": but(read=lambda self, index: Numbers().read(index % 9)),
    "`digest` is the same": but(digest=lambda self: f"id={id(self)}"),
    "a name of its own": but(name=lambda self, index: "sample"),
    "`files` are files": but(files=lambda self, indices=None: ["/no/such/file"]),
    "`y_kind` is LABEL": but(y_kind=FieldKind.MASK),
}


def test_sources() -> None:
    testing.check_source(Numbers())
    testing.check_source(Numbers(), lambda index: (np.full((4, 5, 3), index, np.uint8), index))
    for rule, source in WRONG.items():
        with pytest.raises(AssertionError, match=rule):
            testing.check_source(source)


@dataclasses.dataclass(frozen=True)
class Doubled(ap.Op):
    draws = 1

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        x, y = sample
        return (x * 2 if random[0] < 0.5 else x), y


class Overwriting(Doubled):
    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        sample[0][...] = 0
        return sample


class Chancy(Doubled):
    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        return super().apply(sample, spec, np.random.random(1))  # what it must not do


class Grown(Doubled):
    def without_chance(self) -> ap.Op:
        return ap.Resize(99, 99)


IMAGES = [sample for sample in testing.SAMPLES if not isinstance(sample[0], bytes)]


def test_ops() -> None:
    np.random.seed(1)
    testing.check_op(Doubled(), IMAGES, lambda sample, random: (sample[0] * (2 if random[0] < 0.5 else 1), sample[1]))
    for op, samples, reference, rule in (
        (Doubled(), IMAGES, lambda sample, _: sample, "its reference"),
        (Doubled(), [], None, "takes none of these samples"),
        (Chancy(), IMAGES, None, "from a pickle"),
        (Grown(), IMAGES, None, "`without_chance`"),
    ):
        with pytest.raises(AssertionError, match=rule):
            testing.check_op(op, samples, reference)
    with pytest.raises(ValueError, match="read-only"):
        testing.check_op(Overwriting(), IMAGES)


class Swapped(ap.Threads):
    """A variant of a loader, which gives the first two batches in the place of each other."""

    def open(self, job: Any) -> ap.Loader:
        made: Any = super().open(job)
        batches = made.batches

        def swapped(epoch: int, start: int = 0, **more: Any) -> Iterator[Any]:
            first, second, *rest = [tuple(map(np.array, each)) for each in batches(epoch, start, **more)]
            return iter([second, first, *rest])

        made.batches = swapped
        return cast(ap.Loader, made)


def test_loaders() -> None:
    assert LOADERS["threads"] is ap.Threads  # a variant does not take its place
    testing.check_loader(ap.Threads(workers=2))
    with pytest.raises(AssertionError, match=r"epoch 0, batch 0: other values"):
        testing.check_loader(Swapped(workers=1))
