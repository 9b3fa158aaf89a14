"""Slices and parts of volumes: NIfTI files, stacks in .npy, TIFF and Zarr; and when a file is unpacked."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, OpError
from autopipe.extensions.raster import nifti, rasters
from autopipe.extensions.raster.windows import Windows
from autopipe.pipeline.assembly import batch_order
from autopipe.workload.data.source import Subset
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind
from tests.extensions.raster.test_refusals import VOLUME, slices_of
from tests.extensions.raster.test_windows import saved as npy
from tests.fakes.nifti import CODES, nii

COLOURS = np.random.default_rng(1).integers(0, 60_000, (6, 20, 30, 2)).astype(np.uint16)


def every(data: Windows) -> list[NDArray[Any]]:
    return [data.read(number) for number in range(len(data))]


# -------------------- formats


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("options", [{}, {"order": ">"}, {"version": 2}, {"order": ">", "version": 2}])
@pytest.mark.parametrize("dtype", list(CODES))
def test_slices_have_the_voxels_of_a_nifti(dtype: str, options: dict[str, Any], ending: str, tmp_path: Path) -> None:
    for array in (VOLUME.astype(dtype), COLOURS.astype(dtype)):
        found = every(slices_of(nii(tmp_path / f"a{ending}", array, **options)))
        np.testing.assert_array_equal(np.stack(found), array.reshape(6, 20, 30, -1), strict=True)
        assert all(each.dtype.isnative and each.flags.writeable for each in found)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_voxels_are_those_of_nibabel(ending: str, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    path = tmp_path / f"a{ending}"
    for dtype, slope in (("int16", None), ("uint16", None), ("float32", None), ("int16", 0.25)):
        for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
            image = kind(VOLUME.T.astype(dtype) * (slope or 1), np.eye(4), dtype=dtype)
            image.header.set_slope_inter(slope, -7 if slope else None)
            nibabel.save(image, path)
            wanted = np.asanyarray(nibabel.load(path).dataobj).astype(np.float32 if slope else dtype)
            np.testing.assert_array_equal(np.stack(every(slices_of(path)))[..., 0], wanted.T, strict=True)
    for shape in ((7, 6, 5, 1, 3), (7, 6, 5, 1), (7, 6, 5, 4), (7, 6, 1), (7, 6)):  # axes of one are left out
        array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
        wanted = array.reshape(7, 6, shape[2] if len(shape) > 2 else 1, -1).transpose(2, 1, 0, 3)
        np.testing.assert_array_equal(every(slices_of(path)), wanted)


@pytest.mark.parametrize(("dtype", "wanted"), [("i2", "f4"), ("u1", "f4"), ("f4", "f4"), ("i4", "f8"), ("f8", "f8")])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_what_a_header_scales_becomes_fractions(dtype: str, wanted: str, ending: str, tmp_path: Path) -> None:
    array = np.abs(VOLUME % 200).astype(dtype)
    path = nii(tmp_path / f"a{ending}", array, slope=0.5, intercept=-1024.25)
    fractions = (array * 0.5 - 1024.25).astype(wanted)
    np.testing.assert_array_equal(np.stack(every(slices_of(path)))[..., 0], fractions, strict=True)
    for slope in (0.0, float("nan")):  # not scaled, says the standard
        path = nii(tmp_path / f"b{ending}", array, slope=slope, intercept=5)
        np.testing.assert_array_equal(every(slices_of(path)), array[..., None])


def stacks(root: Path) -> Iterator[tuple[Path, NDArray[Any], dict[str, Any]]]:
    yield npy(root / "a.npy", VOLUME), VOLUME[..., None], {}
    yield npy(root / "b.npy", COLOURS), COLOURS, {}
    yield npy(root / "c.npy", np.moveaxis(COLOURS, 3, 0)), COLOURS, {"bands_first": True}
    np.savez_compressed(root / "d.npz", COLOURS)
    yield root / "d.npz", COLOURS, {}
    rgb, grey = np.concatenate([COLOURS, COLOURS[..., :1]], axis=3), "minisblack"
    written: tuple[tuple[NDArray[Any], str, dict[str, Any]], ...] = (
        (VOLUME, grey, {}),
        (VOLUME, grey, {"compression": "zlib", "rowsperstrip": 7}),
        (VOLUME, grey, {"compression": "zlib", "predictor": True, "tile": (16, 16)}),
        (VOLUME, grey, {"byteorder": ">", "bigtiff": True}),
        (VOLUME, grey, {"imagej": True}),
        (VOLUME, grey, {"compression": "zlib", "metadata": None}),
        (rgb, "rgb", {}),
        (rgb, "rgb", {"compression": "zlib"}),
        (VOLUME[:1], grey, {}),
    )
    for number, (array, photometric, packing) in enumerate(written):
        path, stack = root / f"{number}.tif", array[0] if len(array) == 1 else array
        tifffile.imwrite(path, stack, photometric=photometric, **{"compression": None} | packing)
        yield path, array.reshape(*array.shape[:3], -1), {}
    zarr.create_array(root / "a.zarr", data=VOLUME, chunks=(2, 16, 16))
    yield root / "a.zarr", VOLUME[..., None], {}
    zarr.create_array(root / "b.zarr", data=np.moveaxis(COLOURS, 3, 0)[None], chunks=(1, 1, 4, 16, 16))
    yield root / "b.zarr", COLOURS, {"bands_first": True}
    yield nii(root / "a.nii", VOLUME), VOLUME[..., None], {}
    yield nii(root / "b.nii.gz", COLOURS), COLOURS, {}


def test_slices_along_each_axis_and_parts_of_every_kind_of_volume_are_those_of_the_array(tmp_path: Path) -> None:
    patch, stride = (4, 9, 16), (3, 7, 16)
    for path, wanted, options in stacks(tmp_path):
        sizes: tuple[Any, ...] = ((1, None, None), (None, 1, None), (None, None, 1))
        for axis, size in enumerate(sizes[: 1 if len(wanted) == 1 else 3]):
            np.testing.assert_array_equal(np.stack(every(Windows(path, size=size, **options)), axis), wanted, str(path))
        if len(wanted) == 1:
            continue
        data = Windows(path, size=patch, stride=stride, bands=(wanted.shape[3],), **options)
        z, y, x = (
            sorted({*range(0, whole - part + 1, step), whole - part})
            for whole, part, step in zip(wanted.shape[:3], patch, stride, strict=True)
        )
        corners = [(top, row, column) for top in z for row in y for column in x]
        parts = [wanted[top : top + 4, row : row + 9, column : column + 16, -1:] for top, row, column in corners]
        np.testing.assert_array_equal(np.stack(every(data)), np.stack(parts), str(path), strict=True)


def test_parts_of_volumes_are_no_images_and_functions_of_numpy_act_on_them(tmp_path: Path) -> None:
    image, mask = nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "m.nii.gz", (VOLUME % 3).astype(np.uint8))
    data = Windows(image, mask, size=(4, 16, 16), random=8)
    assert (data.x_kind, data.y_kind) == (FieldKind.ARRAY, FieldKind.ARRAY)
    ops = [ap.Map(lambda volume, rng: volume[:, :, ::-1], random=True), ap.Normalize(100.0, 50.0)]
    plan = planner.make_plan(ap.Workload(data=data, ops=ops, batch_size=4))
    assert (plan.finished.x.shape, plan.finished.y and plan.finished.y.shape) == ((4, 16, 16, 1), (4, 16, 16))
    with pytest.raises(OpError, match=r"RandomFlip.*\(4, 16, 16, 1\).*ap\.Map"):
        planner.make_plan(ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=4))


def test_random_slices_are_of_all_of_a_volume_and_new_in_each_epoch(tmp_path: Path) -> None:
    depth = np.broadcast_to(np.arange(6, dtype=np.int16)[:, None, None], (6, 5, 5))
    data = Windows(nii(tmp_path / "a.nii.gz", depth), size=(1, None, None), random=40)
    config = ap.PipelineConfig(loader=ap.Threads(workers=1))
    with ap.build_loader(ap.Workload(data=data, ops=[], batch_size=40), config) as loader:
        seen = [np.array(next(iter(loader.epoch(epoch)))[0])[:, 0, 0, 0].tolist() for epoch in (0, 1)]
    assert set(seen[0]) == set(range(6))
    assert seen[0] != seen[1]


# -------------------- when a file is unpacked


def volumes(root: Path, count: int) -> Path:
    for number in range(count):
        nii(root / f"{number}.nii.gz", VOLUME + np.int16(number))
    return root


def test_in_blocks_each_volume_is_unpacked_once_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, whole = list[str](), nifti.unpacked

    def noted(path: str, *given: Any) -> Any:
        unpacked.append(Path(path).name)
        return whole(path, *given)

    monkeypatch.setattr(nifti, "unpacked", noted)
    monkeypatch.setattr("autopipe.extensions.raster.windows._WHOLE_BYTES", 2 * VOLUME.nbytes)
    folder, counts = volumes(tmp_path / "x", 6), []
    for shuffle in (ap.Blocks(mixed=2), True):
        data = slices_of(folder)
        unpacked.clear()
        for index in batch_order(ap.Workload(data=data, ops=[], batch_size=6, shuffle=shuffle)).epoch(0).tolist():
            data.read(index)
        counts.append(len(unpacked))
    assert counts[0] == 6
    assert counts[1] > 12
    monkeypatch.setattr("autopipe.extensions.raster.windows._WHOLE_BYTES", 10)
    unpacked.clear()
    every(Windows(sorted(folder.iterdir())[:2], sorted(volumes(tmp_path / "y", 2).iterdir()), size=(1, None, None)))
    assert unpacked == ["0.nii.gz", "0.nii.gz", "1.nii.gz", "1.nii.gz"]


def test_threads_that_need_the_same_value_wait_for_the_first_of_them_unless_their_patience_is_over() -> None:
    kept, started, go, made = rasters.Kept(160), threading.Semaphore(0), threading.Event(), list[str]()

    def make(key: str) -> str:
        made.append(key)
        started.release()
        assert go.wait(60)
        return "late"

    with ThreadPoolExecutor(5) as pool:
        firsts = [pool.submit(kept.get, key, functools.partial(make, key), lambda _: 60) for key in "ab"]
        assert all(started.acquire(timeout=60) for _ in firsts)
        others = [pool.submit(kept.get, "a", functools.partial(make, "a"), lambda _: 60) for _ in range(3)]
        assert kept.get("b", lambda: "own", lambda _: 60, 0.0) == "own"
        assert kept.get("b", lambda: "none", lambda _: 60) == "own"
        go.set()
        assert [each.result(60) for each in (*firsts, *others)] == ["late"] * 5
    assert kept.get("c", lambda: "c", lambda _: 40) == "c"
    assert kept.get("b", lambda: "gone", lambda _: 60) == "late"
    assert sorted(made) == ["a", "b"]


def test_what_is_kept_has_its_bound_what_was_used_last_stays_and_an_error_is_not_kept() -> None:
    kept, made = rasters.Kept(100), list[str]()

    def get(key: str, cost: int = 40) -> str:
        return kept.get(key, lambda: made.append(key) or key, lambda _: cost)  # type: ignore[func-returns-value]  # None, then

    for key in ("a", "b", "a", "c", "a", "b"):
        assert get(key) == key
    get("large", 101)
    get("b")
    assert made == ["a", "b", "c", "b", "large"]

    def fails() -> str:
        raise BadSampleError("no")

    for _ in range(2):
        with pytest.raises(BadSampleError, match="no"):
            kept.get("bad", fails, lambda _: 1)
    assert get("bad", 1) == "bad"


def test_blocks_are_volumes_of_any_size_also_of_a_part_of_the_samples(tmp_path: Path) -> None:
    paths = [nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "b.nii.gz", VOLUME[:3, :, :24])]
    data = Windows(paths, size=(1, None, None))
    assert [each.shape for each in every(data)] == [(20, 30, 1)] * 6 + [(20, 24, 1)] * 3
    parts = [Subset(data, 4), Subset(data, 1)]  # of four: slices 0, 2, 4 and 6
    assert [data.block_starts, *(part.block_starts for part in parts)] == [[0, 6], [0, 3], [0]]
    workload = ap.Workload(data=data, ops=[ap.CenterCrop(20, 20)], batch_size=3, shuffle=ap.Blocks(mixed=1))
    for epoch in range(5):
        order = batch_order(workload).epoch(epoch)
        assert np.count_nonzero(np.diff(order >= 6)) == 1
        assert sorted(order.tolist()) == list(range(9))
    split: dict[str, Any] = {"validation_split": 0.5, "subset": "training", "split_by": "window", "seed": 0}
    assert Windows(npy(tmp_path / "scene.npy", np.zeros((8, 8), np.uint8)), size=4, **split).block_starts == [0]
