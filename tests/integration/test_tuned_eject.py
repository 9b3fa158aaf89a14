"""Ejected files run where autopipe is not, train a model, and give the same samples as autopipe's own loaders.

All of them run in one process, which imports the frameworks once; each test looks at what came of its own.
"""

import dataclasses
import importlib
import pickle
import runpy
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe.pipeline import assembly
from autopipe.pipeline.eject import NAMES
from autopipe.pipeline.eject import module as plain
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.workload.data.records import frame, serialise
from tests.fakes.commands import ROOT, python, succeeded
from tests.integration import ejected_run

PALETTE = ((0, 0, 0), (255, 0, 0), (0, 255, 0), (10, 20, 30))
FORMS: dict[str, Any] = {
    "tf.data": ap.PipelineConfig(loader=ap.TfData(num_parallel_calls=2, prefetch=1)),
    "keras": ap.PipelineConfig(loader=Foreign(code="keras-workers")),
}
if "grain" in NAMES:
    FORMS["grain"] = ap.PipelineConfig(loader=Foreign(code="grain"))
ARRAYS = (*FORMS, "fit")
CACHED = {"keep": "memory"}
MADE = ["tfdata", *(form for form in FORMS if form != "tf.data")]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # many models are compiled


@dataclasses.dataclass(frozen=True)
class Case:
    """A workload, and by how much what its plain code gives may be off what autopipe gives; None: it is random."""

    workload: ap.Workload
    tolerance: float | None = 0.0
    config: Mapping[str, str] = dataclasses.field(default_factory=dict)
    forms: tuple[str, ...] = tuple(FORMS)
    trained: tuple[str, ...] = ("tf.data", "keras", "fit")  # a model takes longer than all samples
    jpegs: bool = False  # TensorFlow's usual transform of a JPEG is a faster one, of fewer digits


def workload(data: Any, *ops: Any, batch_size: int = 4, **more: Any) -> ap.Workload:
    return ap.Workload(data=data, ops=ops, batch_size=batch_size, shuffle=False, seed=-1, **more)  # as none of NumPy


def write(path: Path, pixels: Any) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels)
    return path.read_bytes()


def example(root: Path) -> ap.Workload:
    """Return the workload of the example of two inputs, with a demo set of its own."""
    folder = ROOT / "examples" / "two_inputs"
    runpy.run_path(str(folder / "make_demo.py"))["make"](root, 20)
    made: ap.Workload = runpy.run_path(str(folder / "train.py"))["workload"]
    return made


def cases(root: Path) -> dict[str, Case]:
    random = np.random.default_rng(0)
    rows_of_arrays = random.integers(0, 256, (6, 9, 8, 3), np.uint8), random.integers(0, 3, 6)
    records, rows = [], {"classes": ["file;y"], "numbers": ["file;y"]}
    for number in range(6):
        kind, waves = number % 2, np.sin(np.arange(40)[:, None] / 9 + number) * np.cos(np.arange(50) / 7)
        path = f"photos/class {kind}/{number}.png"
        photo = write(root / path, random.integers(0, 256, (20 + number, 30, 3), np.uint8))
        write(root / f"jpegs/{kind}/{number}.jpg", np.repeat(waves[..., None] * 90 + 120, 3, axis=2))
        write(root / f"deep-png/{kind}/{number}.png", random.integers(0, 65536, (20, 30, 3), np.uint16))
        write(root / f"deep-tif/{kind}/{number}.tif", random.random((20, 30)).astype(np.float32))
        records.append(frame(serialise({"image/encoded": photo, "image/class/label": number})))
        for name, label in (("classes", f"{number}"), ("numbers", f"{number}.5")):
            rows[name].append(f"{path};{label}")
            (root / f"{name}.csv").write_text("\n".join(rows[name]))
    for number in range(5):
        write(root / f"images/{number}.png", random.integers(0, 256, (24, 32, 3), np.uint8))
        mask = np.asarray(PALETTE, np.uint8)[random.integers(0, 4, (24, 32))]
        write(root / f"masks/{number}_L.png", cv2.cvtColor(mask, cv2.COLOR_RGB2BGR))
    masked = ap.ImagePairs(root / "images", root / "masks", mask_suffix="_L")
    for shard in range(2):
        (root / f"{shard}.tfrecord").write_bytes(b"".join(records[3 * shard : 3 * shard + 3]))
    for name, array in zip("xy", rows_of_arrays, strict=True):
        np.save(root / f"{name}.npy", array)
    own = importlib.import_module("mine")
    small = ap.Decode(), ap.Resize(8, 9), ap.Rescale(1 / 255)
    tall, classes = ap.Resize(13, 15, interpolation="nearest"), ap.MaskToClass(PALETTE)
    folder, crop = ap.ImageFolder(root / "photos"), ap.RandomCrop(16, 16)
    smooth = 1.01 / 255  # TensorFlow's and OpenCV's bilinear pixels differ by one level
    jpegs = ap.ImageFolder(root / "jpegs")
    numbers = np.arange(30) % 2
    solids = np.full((30, 9, 8, 3), 255, np.uint8) * numbers.astype(np.uint8)[:, None, None, None], numbers
    (root / "train.txt").write_text("\n".join(map(str, range(5))))
    for name in ("left", "right"):
        (shutil.copytree(root / "images", root / name) / "0_L.png").write_bytes(b"not listed")
    twins = ap.ImagePairs(root / "left", root / "right", names=root / "train.txt")
    colours = ap.RandomBrightness(0.1), ap.RandomContrast()
    shown, depths = rows_of_arrays[0], random.random((6, 2)).astype(np.float32)
    scenes = ap.Decode(), ap.On("mask", classes), tall, ap.On("kind", ap.OneHot(3))
    both = ap.Arrays((shown, depths), {"depth": depths[:, 0], "kind": rows_of_arrays[1]}, depths[:, 1])
    stereo = ap.Arrays({"left": shown, "right": shown}, {"mask": shown[..., 0], "kind": rows_of_arrays[1]})
    house = example(root / "houses")
    still = [op for op in house.ops if not op.is_random]
    return {
        "folder": Case(
            workload(
                folder, ap.Decode(), ap.Pad(24, 24, value=7.0), ap.Resize(26, 28), ap.CenterCrop(21, 20),
                ap.Normalize((1.0, 2.0, 3.0), 60.0), ap.Cast("int32", on="mask"),
            ), 1.01 / 60, CACHED,
        ),
        "crops": Case(
            workload(jpegs, ap.Decode(), ap.CenterCrop(21, 20), ap.Rescale(1 / 255)), smooth, forms=("tf.data",),
            jpegs=True,
        ),
        "read": Case(
            workload(folder, *small), smooth, forms=("directory", "tf.data-cache"),
            trained=("directory", "tf.data-cache"),
        ),
        "deep": Case(
            workload(
                ap.ImageFolder(root / "deep-png"), ap.Decode(dtype="uint16"), small[1], ap.Rescale(1 / 65535)
            ), 1.01 / 65535, trained=(),
        ),
        "floats": Case(
            workload(ap.ImageFolder(root / "deep-tif"), ap.Decode(1, dtype="float32"), ap.Resize(8, 9, "area")),
            forms=("keras",), trained=(),
        ),
        "masks": Case(
            workload(
                masked, ap.Decode(), classes, ap.Pad(30, 34, mask_value=3), tall, ap.OneHot(4),
                ap.Rescale(1 / 255, 0.5), batch_size=2, drop_remainder=True,
            ), 1e-6,
        ),
        "table": Case(workload(ap.Table(root / "classes.csv", path="file", label="y"), *small), smooth),
        "regression": Case(workload(ap.Table(root / "numbers.csv", path="file", label="y"), *small), smooth),
        "records": Case(workload(ap.TFRecords(root / "*.tfrecord"), *small, ap.OneHot(6)), smooth),
        "arrays": Case(workload(ap.Arrays(*rows_of_arrays), *small[2:], ap.OneHot(3)), 1e-6, forms=ARRAYS),
        "mapped": Case(workload(ap.Arrays(root / "x.npy", root / "y.npy"), ap.OneHot(3)), forms=ARRAYS),
        "own": Case(workload(own.Own(), ap.Map(own.thinned), ap.OneHot(3))),
        "jitter": Case(workload(own.Own(), ap.Map(own.jittered, random=True)), None),
        "random": Case(
            workload(masked, ap.Decode(), classes, crop, ap.RandomFlip(vertical=True), *colours),
            None, {"channels": "first"}, trained=tuple(FORMS),
        ),
        "mixed": Case(
            workload(
                ap.Arrays(*solids), ap.OneHot(2), ap.CutMix(), ap.MixUp(0.4, probability=0.5), ap.Rescale(1 / 255),
                batch_size=8,
            ), None,
        ),
        "twins": Case(workload(twins, ap.Decode(), crop, ap.RandomFlip(vertical=True)), None, CACHED),
        "houses": Case(dataclasses.replace(house, ops=still, shuffle=False), smooth, trained=(), jpegs=True),
        "flipped": Case(dataclasses.replace(house, shuffle=False), None),
        "scenes": Case(workload(own.Scenes(root), *scenes, ap.Rescale(1 / 255)), 1e-6, trained=tuple(FORMS)),
        "both": Case(workload(both, *small[1:], ap.On("kind", ap.OneHot(3))), smooth, forms=ARRAYS, trained=("fit",)),
        "stereo": Case(workload(stereo, ap.RandomCrop(5, 4), ap.RandomFlip(vertical=True)), None, CACHED, trained=()),
    }  # fmt: skip


Made = dict[str, tuple[Case, dict[str, Any]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    root = tmp_path_factory.mktemp("ejected")
    shutil.copy(ROOT / "tests" / "integration" / "ejected_own.py", root / "mine.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root)
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        patch.setenv("HOUSES", str(root / "houses"))
        found = cases(root)
        given = {}
        for name, case in found.items():
            for form in case.forms:
                wanted = FORMS[form].model_copy(update=case.config) if form in FORMS else form
                written = plain.module(case.workload, wanted)
                file = f"{name}_{form.replace('.', '')}"
                (root / f"{file}.py").write_text(written.code)
                given[file] = {str(each): value for each, value in written.given.items()}, form in case.trained
        (root / "given.pickle").write_bytes(pickle.dumps(given))
        succeeded(python(ejected_run.__file__, cwd=root, backend="tensorflow"))
        outcomes = pickle.loads((root / "made.pickle").read_bytes())
        yield {file: (found[file.rpartition("_")[0]], outcome) for file, outcome in outcomes.items()}
        sys.modules.pop("mine", None)


def _expected(wanted: ap.Workload) -> dict[str, Any]:
    with assembly.make_loader(wanted, ap.PipelineConfig(loader=ap.Threads(workers=1), finish="host")) as loader:
        return ejected_run.joined(loader.epoch(0))


def test_what_is_not_random_gives_what_autopipe_gives(made: Made) -> None:
    for name, (case, found) in made.items():
        if case.tolerance is None:
            continue
        expected = _expected(case.workload)
        assert {part: value.shape for part, value in expected.items()} == {
            part: value.shape for part, value in found.items()
        }, name
        for part, value in expected.items():
            tolerance = case.tolerance if part.startswith("x") else 0
            if case.jpegs and name.endswith("tfdata") and tolerance:
                assert np.abs(found[part] - value).mean() < 2 * tolerance, name
                tolerance *= 20
            np.testing.assert_allclose(found[part], value, rtol=0, atol=tolerance, err_msg=f"{name}: {part}")
            assert found[part].dtype == value.dtype or not part.startswith("x"), name


@pytest.mark.parametrize("form", MADE)
def test_a_random_function_of_the_users_draws_from_the_generator_it_is_given(made: Made, form: str) -> None:
    case, found = made[f"jitter_{form}"]
    changed = found["x"] ^ np.stack([case.workload.data.read(index)[0] for index in range(6)])
    assert set(np.unique(changed)) == {0, 1}
    assert len(np.unique(changed.reshape(6, -1), axis=0)) == 6


@pytest.mark.parametrize("form", MADE)
def test_random_geometry_keeps_the_parts_of_a_sample_together(made: Made, form: str) -> None:
    random, twins, stereo = (made[f"{name}_{form}"][1] for name in ("random", "twins", "stereo"))
    assert (random["x"].shape, random["x"].dtype, random["y"].shape) == ((5, 3, 16, 16), np.uint8, (5, 16, 16))
    np.testing.assert_array_equal(twins["x"], twins["y"])
    assert len(np.unique(twins["x"].reshape(5, -1), axis=0)) == 5
    np.testing.assert_array_equal(stereo["x.left"], stereo["x.right"])
    np.testing.assert_array_equal(stereo["x.left"][..., 0], stereo["y.mask"])
    assert stereo["x.left"].shape == (6, 5, 4, 3)
    still, flipped = made[f"houses_{form}"][1]["x.image"], made[f"flipped_{form}"][1]["x.image"]
    turned = [not np.array_equal(*pair) for pair in zip(still, flipped, strict=True)]
    assert any(turned)
    np.testing.assert_array_equal(np.where(np.reshape(turned, (-1, 1, 1, 1)), still[:, :, ::-1], still), flipped)


@pytest.mark.parametrize("form", MADE)
def test_samples_are_mixed_with_their_targets(made: Made, form: str) -> None:
    """White images of class 1 and black ones of class 0: how bright one is on the whole is its share of class 1."""
    _, found = made[f"mixed_{form}"]
    x, y = found["x"], found["y"]
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((30, 9, 8, 3), np.float32, (30, 2), np.float32)
    np.testing.assert_allclose(y.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(x.mean(axis=(1, 2, 3)), y[:, 1], atol=1 / 255)
    assert len(np.unique(np.round(y[:, 1], 3))) > 5  # neither only cut nor left as they were
    assert any(len(np.unique(image)) > 1 for image in x)
