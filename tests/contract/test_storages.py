"""What every storage form must do. A new form is done when this passes as it is."""

import dataclasses
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe import testing
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.loader import Recipe
from autopipe.pipeline.storage.convert import convert
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.storage.layout import open_set
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.contract.test_loaders import of_parts
from tests.fakes.sources import Made

COUNT = 70
ENCODED = SampleSpec(Field(FieldKind.ENCODED, None, None), None)
DECODED = SampleSpec(Field(FieldKind.IMAGE, None, np.dtype(np.uint8)), None)
DEPTHS = {"photos": 2, "pairs": 1, "unlabelled": 2, "one_bad": 2, "parts": 2, "mixed": 3, "deep": 2}  # fixed ops first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for number in range(COUNT):
        size, kind = (20 + number % 3, 30 - number % 2, 3), f"class_{number % 3}"
        for place in (f"photos/{kind}", f"deep/{kind}", "images", "masks"):
            dtype = "uint16" if "deep" in place else "uint8"
            (root / place).mkdir(parents=True, exist_ok=True)
            numbers = np.random.default_rng(number + 1000 * (place == "masks"))
            cv2.imwrite(str(root / place / f"{number:03d}.png"), numbers.integers(0, np.iinfo(dtype).max, size, dtype))
    return root


def workload(case: str, folder: Path) -> ap.Workload:
    photos = ap.ImageFolder(folder / "photos")
    decode, resize, flip = ap.Decode(), ap.Resize(16, 16), ap.RandomFlip()
    changes: dict[str, Any] = {
        "pairs": {"data": ap.ImagePairs(folder / "images", folder / "masks"), "ops": (decode, ap.RandomCrop(16, 16))},
        "unlabelled": {"data": Made(COUNT, lambda index: photos.read(index)[0])},  # encoded images alone
        "one_bad": {"on_bad_sample": "skip"},
        "mixed": {"ops": (decode, resize, ap.OneHot(3), flip, ap.MixUp())},  # a label that is a vector
        "parts": {"data": of_parts(folder)},
        "deep": {"data": ap.ImageFolder(folder / "deep"), "ops": (ap.Decode(dtype="uint16"), resize, flip)},
    }
    return ap.Workload(**{"data": photos, "ops": (decode, resize, flip), "batch_size": 8, **changes.get(case, {})})


CUTS = [  # every form, case and cut that go together; samples are encoded before the first op and decoded after it
    pytest.param((name, case, cut), id=f"{name}-{case}-{cut}")
    for name in STORAGES
    for case, depth in DEPTHS.items()
    for cut in range(depth + 1)
    if STORAGES[name].can_hold(ENCODED if cut == 0 else DECODED)
]


@pytest.fixture(scope="module", params=CUTS)
def case(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    name, kind, cut = request.param
    made, target = workload(kind, folder), tmp_path_factory.mktemp("set")
    plan = make_plan(made)
    assert cut in STORAGES[name].cuts(plan)
    if kind == "one_bad":
        made = dataclasses.replace(made, data=_Broken(folder / "photos"))
    conversion = Conversion.of(made, plan, cut)
    convert(conversion, STORAGES[name], target, workers=2)
    stored = open_set(target, conversion, STORAGES[name])
    return SimpleNamespace(workload=made, plan=plan, conversion=conversion, stored=stored)


class _Broken(ap.ImageFolder):
    def read(self, index: int) -> Any:
        if index == 13:
            raise ap.BadSampleError("sample 13 is gone")
        return super().read(index)


@pytest.mark.parametrize("name", sorted(STORAGES))
@pytest.mark.parametrize("kind", DEPTHS)
def test_it_keeps_the_contract_of_forms(name: str, kind: str, folder: Path, tmp_path: Path) -> None:
    testing.check_form(STORAGES[name], tmp_path, workload(kind, folder))


def test_bad_samples_are_met_again(case: Any) -> None:
    bad = {13} if isinstance(case.workload.data, _Broken) else set[int]()
    assert (len(case.stored), set(case.stored.record.bad)) == (COUNT, bad)
    for index in bad:
        with pytest.raises(ap.BadSampleError, match="sample 13 is gone"):
            case.stored.read(index)
    case.stored.read(0)
    assert len(pickle.dumps(case.stored)) < 200 * COUNT


def test_batches_are_those_of_the_files(case: Any) -> None:
    recipe = Recipe.of(case.workload, case.plan)
    kept = Recipe.of(case.workload, case.plan, source=case.stored, done=case.conversion.cut)
    indices = np.arange(COUNT)[::-1].copy()
    for epoch in (0, 1):
        batches = [recipe.spec.empty(len(indices)) for _ in range(2)]
        bad = [Kernel(r).fill(epoch, indices, b) for r, b in zip((recipe, kept), batches, strict=True)]
        assert [(b.index, b.replaced_by) for b in bad[0]] == [(b.index, b.replaced_by) for b in bad[1]]
        for expected, actual in zip(*batches, strict=True):
            np.testing.assert_array_equal(expected, actual)


def test_the_set_says_what_it_holds(case: Any) -> None:
    kinds = [None if field is None else field.kind for field in case.conversion.spec.columns]
    if (structure := case.conversion.spec.structure) is not None:
        assert (case.stored.x_kind, case.stored.y_kind) == structure.packed(kinds)[:2]
    else:
        assert [case.stored.x_kind, case.stored.y_kind] == kinds
    assert str(case.stored.folder) in case.stored.name(3)
    assert {*case.stored.files([0])} < {*case.stored.files()}
    assert case.stored.mean_bytes() == sum(Path(path).stat().st_size for path in case.stored.files()) / COUNT
