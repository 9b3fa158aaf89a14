"""The contracts for plugins: what is sound passes, and each rule that is broken is named."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import testing
from autopipe.pipeline.config import STORAGES
from autopipe.workload.sample import FieldKind, Sample, SampleSpec


class Numbers:
    """Samples of a user's own source; what is wrong with them, the classes below say."""

    x_kind, y_kind = FieldKind.IMAGE, FieldKind.LABEL

    def __len__(self) -> int:
        return 9

    def read(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return np.full((4, 5, 3), index, np.uint8), index


class Changing(Numbers):
    calls = itertools.count()

    def read(self, index: int) -> Any:
        x, y = super().read(index)
        return x, y + next(self.calls)


class Endless(Numbers):
    def read(self, index: int) -> Any:
        return super().read(index % 9)


class OfMachine(Numbers):
    def digest(self) -> str:
        return f"id={id(self)}"


class Alike(Numbers):
    def name(self, index: int) -> str:
        return "sample"


class Gone(Numbers):
    def files(self, indices: Any = None) -> list[str]:
        return ["/no/such/file"]


class Mistaken(Numbers):
    y_kind = FieldKind.MASK


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (Numbers(), None),
        (Changing(), "is the same"),
        (Endless(), "raises IndexError"),
        (OfMachine(), "`digest` is the same"),
        (Alike(), "a name of its own"),
        (Gone(), "`files` are files"),
        (Mistaken(), "`y_kind` is LABEL"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_sources(source: Any, rule: str | None) -> None:
    if rule is None:
        testing.check_source(source)
        testing.check_source(source, lambda index: (np.full((4, 5, 3), index, np.uint8), index))
    else:
        with pytest.raises(AssertionError, match=rule):
            testing.check_source(source)


@dataclasses.dataclass(frozen=True)
class Doubled(ap.Op):
    """An op of somebody else's, in Python."""

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


@pytest.mark.parametrize(
    ("op", "rule"),
    [(Doubled(), None), (Chancy(), "from a pickle"), (Grown(), "`without_chance`")],
    ids=lambda value: type(value).__name__,
)
def test_ops(op: ap.Op, rule: str | None) -> None:
    np.random.seed(1)
    if rule is None:
        testing.check_op(op, IMAGES, lambda sample, random: (sample[0] * (2 if random[0] < 0.5 else 1), sample[1]))
        with pytest.raises(AssertionError, match="its reference"):
            testing.check_op(op, IMAGES, lambda sample, _: sample)
        with pytest.raises(AssertionError, match="takes none of these samples"):
            testing.check_op(op, [])
    else:
        with pytest.raises(AssertionError, match=rule):
            testing.check_op(op, IMAGES)


def test_an_op_that_writes_to_its_sample_fails_where_it_does() -> None:
    with pytest.raises(ValueError, match="read-only"):
        testing.check_op(Overwriting(), IMAGES)


@pytest.mark.parametrize("loader", [ap.Threads(workers=2), ap.TfData(num_parallel_calls=2)], ids=lambda each: each.kind)
def test_loaders(loader: Any) -> None:
    testing.check_loader(loader)


def test_a_loader_in_another_order_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ap.Threads.open  # a class of its own would be registered in the place of this one

    def swapping(settings: ap.Threads, job: Any) -> ap.Loader:
        made = opened(settings, job)
        batches = made.batches

        def swapped(epoch: int, start: int = 0, **more: Any) -> Iterator[Any]:
            first, second, *rest = [tuple(map(np.array, each)) for each in batches(epoch, start, **more)]
            return iter([second, first, *rest])

        made.batches = swapped  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(ap.Threads, "open", swapping)
    with pytest.raises(AssertionError, match=r"epoch 0, batch 0: other values"):
        testing.check_loader(ap.Threads(workers=1))


@pytest.mark.parametrize("name", sorted(STORAGES))
def test_forms(name: str, tmp_path: Path) -> None:
    testing.check_form(STORAGES[name], tmp_path)
