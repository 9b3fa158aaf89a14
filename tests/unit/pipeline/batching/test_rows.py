"""Rows that are made at once: the native library fills a cache, and makes the samples of a conversion."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.errors import BadSampleError, WorkloadError
from autopipe.pipeline.assembly import conversion_of
from autopipe.pipeline.batching import cache, kernel
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.workload.op import Op
from autopipe.workload.ops import planner
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import FieldKind, Rows
from tests.fakes.facts import known
from tests.fakes.reference import by_python
from tests.unit.native.test_program import jpeg, pixels, png

pytestmark = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))

COUNT = 12
KEPT = ap.Decode(), ap.Resize(9, 8)


class Photographs:
    """Encoded images of several sizes, of which one is damaged if that is asked for."""

    x_kind, y_kind = FieldKind.ENCODED, FieldKind.LABEL

    def __init__(self, damaged: int | None = None) -> None:
        self.images = [jpeg(pixels((20 + number, 30))) for number in range(COUNT)]
        if damaged is not None:
            self.images[damaged] = self.images[damaged][:-300]

    def __len__(self) -> int:
        return COUNT

    def read(self, index: int) -> Any:
        return self.images[index], index


def recipe(source: Any, ops: Sequence[Op], cached: float, *, skips: bool = False) -> Recipe:
    workload = ap.Workload(data=source, ops=ops, batch_size=4, on_bad_sample="skip" if skips else "error")
    return dataclasses.replace(Recipe.of(workload, make_plan(workload)), cached=cached)


def batches(made: Recipe, epochs: int = 2) -> list[Any]:
    """Return the batches of some epochs, and how many samples the cache holds in the end."""
    kept = MemoryCache.of(made)
    filler, found = Kernel(made, kept), []
    for epoch, start in itertools.product(range(epochs), range(0, COUNT, 4)):
        filler.fill(epoch, np.arange(start, start + 4), batch := made.spec.empty(4))
        found.append([np.array(part) for part in batch])
    return [found, 0 if kept is None else kept.filled]


def same(one: Sequence[Any], other: Sequence[Any]) -> None:
    for first, second in zip(one, other, strict=True):
        for part, expected in zip(first, second, strict=True):
            np.testing.assert_array_equal(part, expected)


def noted_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the ops that the kernel will have run on single samples."""
    names: list[str] = []
    run = planner.run

    def noted(step: Any, *arguments: Any) -> Any:
        names.append(step.op.name)
        return run(step, *arguments)

    monkeypatch.setattr(kernel, "run", noted)
    return names


@pytest.mark.parametrize("cached", [1.0, 0.5])
@pytest.mark.parametrize(
    "rest", [(), (ap.RandomFlip(), ap.Rescale(1 / 255)), (ap.OneHot(COUNT),), (ap.Cast("float32", on="both"),)]
)
def test_the_library_fills_a_cache(monkeypatch: pytest.MonkeyPatch, cached: float, rest: tuple[Op, ...]) -> None:
    source = Photographs()
    expected, _ = batches(recipe(source, [*KEPT, *rest], 0.0))
    made = recipe(source, [*KEPT, *rest], cached)
    with monkeypatch.context() as refusing:
        refusing.setattr(kernel, "run", None)  # the kernel makes no sample by its ops
        found, filled = batches(made)
    same(found, expected)
    assert filled == cached * COUNT


def test_rows_of_a_cache_of_a_part_are_found_wherever_they_lie(tmp_path: Path) -> None:
    array = np.memmap(tmp_path / "sparse", np.uint8, "w+", shape=(2, 2**31))  # a cache of more than 2 GiB
    found = Rows(array, np.array([0, 1], np.int32)).addresses - array.ctypes.data
    assert found.tolist() == [0, 2**31]


def test_a_batch_of_which_a_part_of_a_cache_holds_all_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(Photographs(), [*KEPT, ap.RandomFlip()], 0.5)
    kept = known(MemoryCache.of(made))
    held = np.array([index for index in range(COUNT) if kept.keeps(index)])
    batch, expected = made.spec.empty(len(held)), made.spec.empty(len(held))
    Kernel(made, kept).fill(0, held, batch)
    Kernel(dataclasses.replace(made, cached=0.0)).fill(1, held, expected)
    monkeypatch.setattr(kernel, "run", None)  # the kernel makes no sample by its ops
    Kernel(made, kept).fill(1, held, batch)
    np.testing.assert_array_equal(batch[0], expected[0])


class Pairs(Photographs):
    """The same with masks, and weights."""

    x_kind, y_kind = FieldKind.ENCODED, FieldKind.ENCODED

    def read(self, index: int) -> Any:
        return self.images[index], png(pixels((20 + index, 30), 1)[..., 0]), np.float32(index)


@pytest.mark.parametrize("cached", [1.0, 0.5])
@pytest.mark.parametrize("kind", [Photographs, Pairs])
def test_the_library_fills_a_cache_of_samples_that_differ_in_shape(
    monkeypatch: pytest.MonkeyPatch, kind: type[Photographs], cached: float
) -> None:
    source, ops = kind(), [ap.Decode(), ap.RandomCrop(9, 8), ap.RandomFlip()]
    expected, _ = batches(recipe(source, ops, 0.0))
    made, names = recipe(source, ops, cached), noted_runs(monkeypatch)
    found, filled = batches(made)
    same(found, expected)
    assert filled == cached * COUNT
    assert cached < 1 or "Decode" not in names


def test_a_heap_that_is_full_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_SPARE_BYTES", 0)
    made = recipe(Photographs(), [ap.Decode(), ap.RandomCrop(9, 8)], 1.0)
    expected, _ = batches(dataclasses.replace(made, cached=0.0))
    found, filled = batches(dataclasses.replace(made, kept_bytes=1000.0))
    same(found, expected)
    assert 0 < filled < COUNT


def test_a_damaged_sample_is_named_or_replaced_while_a_cache_is_filled() -> None:
    source = Photographs(damaged=5)
    expected, _ = batches(recipe(source, KEPT, 0.0, skips=True))
    found, filled = batches(recipe(source, KEPT, 1.0, skips=True))
    same(found, expected)
    assert filled == COUNT - 1
    with pytest.raises(BadSampleError, match="sample 5"):
        batches(recipe(source, KEPT, 1.0))


def array_of(data: Any, ops: Sequence[Op], folder: Path, **settings: Any) -> Any:
    workload = ap.Workload(data=data, ops=ops, batch_size=4, **settings)
    return convert(conversion_of(workload, make_plan(workload), STORAGES["array"]), STORAGES["array"], folder)


@pytest.mark.parametrize(
    ("damaged", "rest"), [(5, ()), (5, (ap.OneHot(COUNT),)), (None, (ap.Map(np.flipud), ap.Rescale(1 / 255)))]
)
def test_the_library_makes_the_samples_of_a_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int | None, rest: tuple[Op, ...]
) -> None:
    alone, sample = list[int](), Conversion.sample

    def noted(made: Conversion, index: int) -> Any:
        alone.append(index)
        return sample(made, index)

    source = Photographs(damaged)
    with by_python():
        expected = array_of(source, [*KEPT, *rest], tmp_path / "one by one", on_bad_sample="skip")
    monkeypatch.setattr(Conversion, "sample", noted)
    found = array_of(source, [*KEPT, *rest], tmp_path / "at once", on_bad_sample="skip")
    assert {*alone} == {damaged} - {None}
    assert found.record == expected.record  # which has the checksums of all files, and the bad samples


def test_a_sample_of_another_dtype_ends_a_conversion(tmp_path: Path) -> None:
    class Mixed(Photographs):
        y_kind = FieldKind.ARRAY

        def read(self, index: int) -> Any:
            return self.images[index], np.array([index], np.float64 if index == 1 else np.float32)

    with pytest.raises(WorkloadError, match=r"Samples must be of one dtype to be kept, but sample 1 is float64"):
        array_of(Mixed(), KEPT, tmp_path)


# -------------------- ops that are done sample by sample, between those of the library


def noise(image: Any, rng: np.random.Generator) -> Any:
    return image ^ rng.integers(0, 2, image.shape, np.uint8)


CHAINS: dict[str, list[Op]] = {
    "between": [*KEPT, ap.Map(np.flipud), ap.RandomFlip(), ap.Rescale(1 / 255)],
    "first": [ap.Map(np.flipud), ap.RandomFlip(), ap.Map(noise, random=True), ap.Rescale(1 / 255)],
    "of any size": [ap.Decode(), ap.Map(np.flipud), ap.Resize(9, 8), ap.RandomFlip()],
    "last": [*KEPT, ap.RandomFlip(), ap.Map(noise, random=True)],
    "several": [*KEPT, ap.Map(noise, random=True), ap.RandomBrightness(), ap.Map(np.fliplr), ap.Normalize(9, 3)],
    "of labels": [*KEPT, ap.RandomFlip(), ap.Map(lambda y: y + 1, on="mask"), ap.RandomContrast(), ap.OneHot(13)],
    "of both": [*KEPT, ap.Map(lambda x, y: (x[1:], x[0, 0]), on="both"), ap.RandomFlip()],
    "of floats": [*KEPT, ap.Rescale(1 / 255), ap.Map(np.sqrt), ap.RandomFlip(), ap.Cast("float16")],
}


@pytest.mark.parametrize("cached", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", CHAINS)
def test_an_op_of_somebodys_own_cuts_a_batch_and_no_more(
    monkeypatch: pytest.MonkeyPatch, name: str, cached: float
) -> None:
    arrays = ap.Arrays(np.stack([pixels((9, 8))] * COUNT), np.arange(COUNT))
    made = recipe(arrays if name == "first" else Photographs(), CHAINS[name], cached)
    names = noted_runs(monkeypatch)
    found, filled = batches(made)
    assert {*names} == ({"Decode", "Map"} if name == "of any size" else {"Map"})
    with by_python():
        expected, filled_by_python = batches(made)
    same(found, expected)
    assert filled == filled_by_python


def some_fail(image: Any, label: Any) -> Any:
    if label == 6:
        raise BadSampleError("it is not wanted.")
    return image, label


def some_are_cut(image: Any, label: Any) -> Any:
    return image[: 3 if label == 6 else 9], label


@pytest.mark.parametrize("rest", [(), (ap.RandomFlip(),)])
def test_a_row_on_which_such_an_op_fails_is_replaced_or_named(rest: tuple[Op, ...]) -> None:
    skipping = recipe(Photographs(damaged=2), [*KEPT, ap.Map(some_fail, on="both"), *rest], 0.0, skips=True)
    batch = skipping.spec.empty(COUNT)
    bad = Kernel(skipping).fill(0, np.arange(COUNT), batch)
    assert [(each.index, each.replaced_by) for each in bad] == [(2, 3), (6, 7)]
    np.testing.assert_array_equal(batch[1], [0, 1, 3, 3, 4, 5, 7, 7, 8, 9, 10, 11])
    with pytest.raises(BadSampleError, match="Map on sample 6: it is not wanted"):
        batches(recipe(Photographs(), [*KEPT, ap.Map(some_fail, on="both"), *rest], 0.0))
    with pytest.raises(WorkloadError, match=r"sample 6 has x \(3, 8, 3\)"):
        batches(recipe(Photographs(), [*KEPT, ap.Map(some_are_cut, on="both"), *rest], 0.0))
