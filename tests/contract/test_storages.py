"""What every storage form must do. A new form is done when this passes as it is."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.errors import BadSampleError
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.convert import convert, estimate_bytes
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.storage.layout import StoredSource, open_set, verify
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import make_plan, normalise
from autopipe.workload.program import programs
from autopipe.workload.sample import Field, FieldKind, Sample, SampleSpec
from tests.fakes import damage
from tests.fakes.sources import Made

COUNT = 70
ENCODED = SampleSpec(Field(FieldKind.ENCODED, None, None), None)
DECODED = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype(np.uint8)), None)
DEPTHS = {  # ops of the deterministic prefix
    "photos": 2, "pairs": 1, "unlabelled": 2, "one_bad": 2, "parts": 2, "mixed": 3, "deep": 2,
}  # fmt: skip


class Parts:
    """A user's source for a model of three inputs and two targets, with a weight for each sample."""

    def __init__(self, folder: Path) -> None:
        self._photos = ap.ImageFolder(folder / "photos")
        self._pairs = ap.ImagePairs(folder / "images", folder / "masks")

    def __len__(self) -> int:
        return len(self._photos)

    def read(self, index: int) -> Any:
        photo, label = self._photos.read(index)
        image, mask = self._pairs.read(index)
        numbers = np.array([index, -index, 0.5], np.float32)
        x = {"numbers": numbers, "photo": photo, "image": image, "age": np.float64(index / 7)}
        return x, {"label": label, "mask": mask}, np.float32(index / COUNT)


def write_image(path: Path, number: int, size: tuple[int, int], deepest: int = 255) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    dtype = np.uint8 if deepest < 256 else np.uint16
    pixels = np.random.default_rng(number).integers(0, deepest, (*size, 3), dtype)
    assert cv2.imwrite(str(path), pixels)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for number in range(COUNT):
        size = (20 + number % 3, 30 - number % 2)
        write_image(root / "photos" / f"class_{number % 3}" / f"{number:03d}.png", number, size)
        write_image(root / "deep" / f"class_{number % 3}" / f"{number:03d}.png", number, size, deepest=65536)
        write_image(root / "images" / f"{number:03d}.png", number, size)
        write_image(root / "masks" / f"{number:03d}.png", number + 1000, size)
    return root


def workload(case: str, folder: Path) -> ap.Workload:
    photos = ap.ImageFolder(folder / "photos")
    ops = [ap.Decode(), ap.Resize(16, 16), ap.RandomFlip()]
    made = ap.Workload(data=photos, ops=ops, batch_size=8)
    match case:
        case "pairs":
            data: Any = ap.ImagePairs(folder / "images", folder / "masks")
            return dataclasses.replace(made, data=data, ops=(ap.Decode(), ap.RandomCrop(16, 16)))
        case "unlabelled":  # encoded images alone
            return dataclasses.replace(made, data=Made(COUNT, lambda index: photos.read(index)[0]))
        case "one_bad":
            return dataclasses.replace(made, on_bad_sample="skip")
        case "mixed":  # a label that is a vector
            return dataclasses.replace(made, ops=(*ops[:2], ap.OneHot(3), ops[2], ap.MixUp()))
        case "parts":
            return dataclasses.replace(made, data=Parts(folder))
        case "deep":
            op = ap.Decode(dtype="uint16")
            return dataclasses.replace(made, data=ap.ImageFolder(folder / "deep"), ops=(op, *ops[1:]))
    return made


@dataclasses.dataclass
class Case:
    workload: ap.Workload
    plan: Plan
    conversion: Conversion
    stored: StoredSource


def cuts() -> list[Any]:
    """Every form, case and cut that go together; samples are encoded before the first op and decoded after it."""
    return [
        pytest.param((name, case, cut), id=f"{name}-{case}-{cut}")
        for name in STORAGES
        for case, depth in DEPTHS.items()
        for cut in range(depth + 1)
        if STORAGES[name].can_hold(ENCODED if cut == 0 else DECODED)
    ]


@pytest.fixture(scope="module", params=cuts())
def case(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, kind, cut = request.param
    storage = STORAGES[name]
    made = workload(kind, folder)
    plan = make_plan(made)
    assert cut in storage.cuts(plan)
    target = tmp_path_factory.mktemp("set")
    if kind == "one_bad":
        made = dataclasses.replace(made, data=_Broken(made.data))
    conversion = Conversion.of(made, plan, cut)
    convert(conversion, storage, target, workers=2)
    return Case(made, plan, conversion, open_set(target, conversion, storage))


class _Broken(Made):
    def __init__(self, source: Any) -> None:
        super().__init__(len(source), source.read)
        self.x_kind, self.y_kind = source.x_kind, source.y_kind

    def read(self, index: int) -> Any:
        if index == 13:
            raise BadSampleError("sample 13 is gone")
        return super().read(index)


def read(case: Case, index: int, stored: StoredSource | None = None) -> Sample:
    return normalise((stored or case.stored).read(index), case.plan.source.structure)


def good(case: Case) -> list[int]:
    return [index for index in range(COUNT) if index not in case.stored.record.bad]


def assert_same(kept: Any, made: Any) -> None:
    assert type(kept) is type(made)
    np.testing.assert_array_equal(kept, made)
    assert getattr(kept, "dtype", None) == getattr(made, "dtype", None)


def test_samples_come_back_in_any_order(case: Case) -> None:
    assert len(case.stored) == COUNT
    for index in reversed(good(case)):
        for kept, made in zip(read(case, index), case.conversion.sample(index), strict=True):
            assert_same(kept, made)


@pytest.mark.slow
def test_a_read_that_gives_less_than_was_asked_for_is_gone_on_with(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    damage.read_in_pieces(monkeypatch)
    test_samples_come_back_in_any_order(case)


def test_bad_samples_are_met_again(case: Case) -> None:
    bad = set(range(COUNT)) - set(good(case))
    assert bad == ({13} if isinstance(case.workload.data, _Broken) else set())
    for index in bad:
        with pytest.raises(BadSampleError, match="sample 13 is gone"):
            case.stored.read(index)


def test_a_pickled_set_reads_the_same_and_holds_no_content(case: Case) -> None:
    case.stored.read(0)
    pickled = pickle.dumps(case.stored)
    assert len(pickled) < 200 * COUNT
    for kept, made in zip(read(case, 7, pickle.loads(pickled)), case.conversion.sample(7), strict=True):
        assert_same(kept, made)


def test_many_threads_read_at_once(case: Case) -> None:
    indices = good(case) * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda index: read(case, index), indices))
    for index, sample in zip(indices, found, strict=True):
        assert_same(sample[0], case.conversion.sample(index)[0])


@pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
def test_whole_batches_hold_what_is_read_one_by_one_and_bad_samples_are_left(case: Case) -> None:
    spec = case.plan.cut(case.conversion.cut)
    if not spec.is_fixed:
        return
    bad, indices = [*case.stored.record.bad], np.random.default_rng(0).permutation(good(case))
    batch = spec.empty(len(indices) + len(bad))
    columns = case.stored.spans(np.array([*indices, *bad]))
    spans = [column[0] if isinstance(column, tuple) else None for column in columns]
    left = programs(spec, []).fill(spans, np.empty((len(batch[0]), 0)), batch) != 0
    assert np.flatnonzero(left).tolist() == [*range(len(indices), len(left))]
    for row, index in enumerate(indices.tolist()):
        for part, column, one in zip(batch, columns, read(case, index), strict=True):
            found = part[row] if isinstance(column, tuple) else None if column is None else column[row]
            np.testing.assert_array_equal(found, one)


def test_arrays_cannot_be_written_to(case: Case) -> None:
    for part in read(case, 0):
        assert not (isinstance(part, np.ndarray) and part.flags.writeable)


def test_batches_are_those_of_the_files(case: Case) -> None:
    recipe = Recipe.of(case.workload, case.plan)
    kept = Recipe.of(case.workload, case.plan, source=case.stored, done=case.conversion.cut)
    indices = np.arange(COUNT)[::-1].copy()
    for epoch in (0, 1):
        batches = [recipe.spec.empty(len(indices)) for _ in range(2)]
        bad = [Kernel(r).fill(epoch, indices, b) for r, b in zip((recipe, kept), batches, strict=True)]
        assert [(b.index, b.replaced_by) for b in bad[0]] == [(b.index, b.replaced_by) for b in bad[1]]
        for expected, actual in zip(*batches, strict=True):
            np.testing.assert_array_equal(expected, actual)


def test_the_source_says_what_it_holds(case: Case) -> None:
    kinds = [None if field is None else field.kind for field in case.conversion.spec.columns]
    if (structure := case.conversion.spec.structure) is not None:
        assert (case.stored.x_kind, case.stored.y_kind) == structure.packed(kinds)[:2]
    else:
        assert [case.stored.x_kind, case.stored.y_kind] == kinds
    assert str(case.stored.folder) in case.stored.name(3)


def test_files_are_those_of_the_shards(case: Case) -> None:
    assert case.stored.folder.path is not None
    whole = {
        str(path)
        for path in case.stored.folder.path.iterdir()
        if not path.name.endswith(".json") and path.name[0] != "."
    }
    assert set(case.stored.files()) == whole
    assert set(case.stored.files([0])) < whole
    assert case.stored.mean_bytes() == sum(Path(path).stat().st_size for path in whole) / COUNT


def test_the_size_is_estimated_within_a_tenth(case: Case) -> None:
    storage = STORAGES[case.stored.record.storage]
    assert estimate_bytes(case.conversion, storage) == pytest.approx(case.stored.record.bytes, rel=0.15)


def test_the_set_is_verified(case: Case) -> None:
    assert verify(case.stored, case.conversion, at_most=20) == 20


def test_two_conversions_give_equal_files(case: Case, tmp_path: Path) -> None:
    storage = STORAGES[case.stored.record.storage]
    again = convert(case.conversion, storage, tmp_path / "again", workers=1)
    assert again.record == case.stored.record
