"""Slices and parts of volumes: NIfTI files, stacks in .npy, TIFF and Zarr; what is refused; when a file is unpacked."""

from __future__ import annotations

import gzip
import os
import struct
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, DataError, OpError, PlainCodeError
from autopipe.extensions.raster import nifti, rasters
from autopipe.extensions.raster.windows import Windows
from autopipe.measure.verify import verify
from autopipe.pipeline.assembly import batch_order
from autopipe.pipeline.eject.module import eject
from autopipe.workload.data.source import Subset
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind
from tests.extensions.raster.test_windows import saved as npy
from tests.fakes import damage
from tests.fakes.nifti import CODES, header_of, nii

VOLUME = np.random.default_rng(0).integers(-900, 3000, (6, 20, 30)).astype(np.int16)
COLOURS = np.random.default_rng(1).integers(0, 60_000, (6, 20, 30, 2)).astype(np.uint16)


def slices_of(file: Path) -> Windows:
    return Windows(file, size=(1, None, None))


def every(data: Windows) -> list[NDArray[Any]]:
    return [data.read(number) for number in range(len(data))]


# -------------------- formats


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("options", [{}, {"order": ">"}, {"version": 2}, {"order": ">", "version": 2}])
@pytest.mark.parametrize("dtype", list(CODES))
def test_slices_have_the_voxels_of_a_nifti(dtype: str, options: dict[str, Any], ending: str, tmp_path: Path) -> None:
    for array in (VOLUME.astype(dtype), COLOURS.astype(dtype)):
        found = every(Windows(nii(tmp_path / f"a{ending}", array, **options), size=(1, None, None)))
        np.testing.assert_array_equal(found, array.reshape(6, 20, 30, -1))
        assert {(each.dtype, each.dtype.isnative, each.flags.writeable) for each in found} == {
            (np.dtype(dtype), True, True)
        }


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_voxels_are_those_of_nibabel(ending: str, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    path = tmp_path / f"a{ending}"
    for dtype, slope in (("int16", None), ("uint16", None), ("float32", None), ("int16", 0.25)):
        for kind in (nibabel.Nifti1Image, nibabel.Nifti2Image):
            image = kind(VOLUME.T.astype(dtype) * (slope or 1), np.eye(4), dtype=dtype)
            image.header.set_slope_inter(slope, -7 if slope else None)
            nibabel.save(image, path)
            wanted = np.asanyarray(nibabel.load(path).dataobj)
            found = every(Windows(path, size=(1, None, None)))
            assert found[0].dtype == (np.float32 if slope else dtype)
            np.testing.assert_array_equal(
                [each[..., 0].T for each in found], np.moveaxis(wanted, 2, 0).astype(found[0].dtype)
            )


@pytest.mark.parametrize(("dtype", "wanted"), [("i2", "f4"), ("u1", "f4"), ("f4", "f4"), ("i4", "f8"), ("f8", "f8")])
@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_what_a_header_scales_becomes_fractions(dtype: str, wanted: str, ending: str, tmp_path: Path) -> None:
    array = np.abs(VOLUME % 200).astype(dtype)
    path = nii(tmp_path / f"a{ending}", array, slope=0.5, intercept=-1024.25)
    found = np.stack(every(Windows(path, size=(1, None, None))))[..., 0]
    assert found.dtype == wanted
    np.testing.assert_array_equal(found, (array * 0.5 - 1024.25).astype(wanted))
    for slope in (0.0, float("nan")):  # not scaled, says the standard
        path = nii(tmp_path / f"b{ending}", array, slope=slope, intercept=5)
        np.testing.assert_array_equal(every(Windows(path, size=(1, None, None))), array[..., None])


def stacks(root: Path) -> Iterator[tuple[Path, NDArray[Any], dict[str, Any]]]:
    yield npy(root / "a.npy", VOLUME), VOLUME[..., None], {}
    yield npy(root / "b.npy", COLOURS), COLOURS, {}
    yield npy(root / "c.npy", np.moveaxis(COLOURS, 3, 0)), COLOURS, {"bands_first": True}
    np.savez_compressed(root / "d.npz", COLOURS)
    yield root / "d.npz", COLOURS, {}
    for name, packing in (
        ("plain", {"compression": None}),
        ("strips", {"compression": "zlib", "rowsperstrip": 7}),
        ("tiles", {"compression": "zlib", "predictor": True, "tile": (16, 16)}),
        ("swapped", {"compression": None, "byteorder": ">", "bigtiff": True}),
        ("imagej", {"compression": None, "imagej": True}),
        ("none said", {"compression": "zlib", "metadata": None}),
    ):
        tifffile.imwrite(root / f"{name}.tif", VOLUME, photometric="minisblack", **packing)
        yield root / f"{name}.tif", VOLUME[..., None], {}
    rgb = np.concatenate([COLOURS, COLOURS[..., :1]], axis=3)
    for compression in (None, "zlib"):
        tifffile.imwrite(root / f"rgb{compression}.tif", rgb, photometric="rgb", compression=compression)
        yield root / f"rgb{compression}.tif", rgb, {}
    tifffile.imwrite(root / "one.tif", VOLUME[0], photometric="minisblack", compression=None)
    yield root / "one.tif", VOLUME[:1, ..., None], {}
    zarr.create_array(root / "a.zarr", data=VOLUME, chunks=(2, 16, 16))
    yield root / "a.zarr", VOLUME[..., None], {}
    zarr.create_array(root / "b.zarr", data=np.moveaxis(COLOURS, 3, 0)[None], chunks=(1, 1, 4, 16, 16))
    yield root / "b.zarr", COLOURS, {"bands_first": True}
    yield nii(root / "a.nii", VOLUME), VOLUME[..., None], {}
    yield nii(root / "b.nii.gz", COLOURS), COLOURS, {}


def test_slices_along_each_axis_and_parts_of_every_kind_of_volume_are_those_of_the_array(tmp_path: Path) -> None:
    for path, wanted, options in stacks(tmp_path):
        depth, height, width, _ = wanted.shape
        for size, axis in (((1, None, None), 0), ((None, 1, None), 1), ((None, None, 1), 2)):
            if depth > 1 or axis == 0:
                found = every(Windows(path, size=size, **options))
                np.testing.assert_array_equal(np.stack(found, axis), wanted, str(path))
        if depth == 1:
            continue
        patch = (4, 9, 16)
        data = Windows(path, size=patch, stride=(3, 7, 16), bands=(wanted.shape[3],), **options)
        corners = [
            (z, y, x)
            for z in sorted({*range(0, depth - patch[0] + 1, 3), depth - patch[0]})
            for y in sorted({*range(0, height - 9 + 1, 7), height - 9})
            for x in sorted({*range(0, width - 16 + 1, 16), width - 16})
        ]
        assert len(data) == len(corners)
        for number, (z, y, x) in enumerate(corners):
            part = wanted[z : z + patch[0], y : y + 9, x : x + 16, -1:]
            np.testing.assert_array_equal(data.read(number), part, str(path))
        assert data.read(0).dtype == wanted.dtype


def test_masks_are_of_the_same_slices_and_ops_act_on_both(tmp_path: Path) -> None:
    for name in ("p1", "p2"):
        nii(tmp_path / "images" / f"{name}.nii.gz", VOLUME)
        nii(tmp_path / "masks" / f"{name}_seg.nii", (VOLUME % 3).astype(np.uint8))
    data = Windows(tmp_path / "images", tmp_path / "masks" / "*_seg.nii", size=(1, None, None))
    assert (len(data), data.x_kind, data.y_kind) == (12, FieldKind.IMAGE, FieldKind.MASK)
    workload = ap.Workload(data=data, ops=[ap.RandomFlip(), ap.RandomCrop(16, 16)], batch_size=12, seed=1)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))) as loader:
        x, y = next(iter(loader.epoch(0)))
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((12, 16, 16, 1), np.int16, (12, 16, 16), np.uint8)
    np.testing.assert_array_equal(x[..., 0] % 3, y)


def test_parts_of_volumes_are_no_images_and_functions_of_numpy_act_on_them(tmp_path: Path) -> None:
    image, mask = nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "m.nii.gz", (VOLUME % 3).astype(np.uint8))
    data = Windows(image, mask, size=(4, 16, 16), random=8)
    assert (data.x_kind, data.y_kind) == (FieldKind.ARRAY, FieldKind.ARRAY)

    def mirrored(volume: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        return volume[:, :, ::-1] if rng.random() < 0.5 else volume

    ops = [ap.Map(mirrored, random=True), ap.Normalize(100.0, 50.0)]
    plan = planner.make_plan(ap.Workload(data=data, ops=ops, batch_size=4))
    assert (plan.finished.x.shape, plan.finished.y and plan.finished.y.shape) == ((4, 16, 16, 1), (4, 16, 16))
    flips = ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=4)
    with pytest.raises(OpError, match=r"RandomFlip.*\(4, 16, 16, 1\).*ap\.Map"):
        planner.make_plan(flips)


def test_slices_of_volumes_of_several_sizes_are_whole(tmp_path: Path) -> None:
    paths = [nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "b.nii.gz", VOLUME[:4, :, :24])]
    data = Windows(paths, size=(1, None, None))
    assert [each.shape for each in every(data)] == [(20, 30, 1)] * 6 + [(20, 24, 1)] * 4
    workload = ap.Workload(data=data, ops=[ap.CenterCrop(20, 20)], batch_size=10, shuffle=False)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as loader:
        assert next(iter(loader.epoch(0)))[0].shape == (10, 20, 20, 1)


def test_random_slices_are_of_all_of_a_volume_and_new_in_each_epoch(tmp_path: Path) -> None:
    depth = np.broadcast_to(np.arange(6, dtype=np.int16)[:, None, None], (6, 5, 5))
    data = Windows(nii(tmp_path / "a.nii.gz", depth), size=(1, None, None), random=40)
    workload = ap.Workload(data=data, ops=[], batch_size=40)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as loader:
        seen = [np.array(next(iter(loader.epoch(epoch)))[0])[:, 0, 0, 0].tolist() for epoch in (0, 1)]
    assert set(seen[0]) == set(range(6))
    assert seen[0] != seen[1]


# -------------------- when a file is unpacked


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of packed files, in the order in which they were unpacked."""
    names: list[str] = []
    whole = nifti.unpacked

    def noted(path: str, *given: Any) -> Any:
        names.append(Path(path).name)
        return whole(path, *given)

    monkeypatch.setattr(nifti, "unpacked", noted)
    return names


def volumes(root: Path, count: int) -> Path:
    for number in range(count):
        nii(root / f"{number}.nii.gz", VOLUME + np.int16(number))
    return root


def test_in_blocks_each_volume_is_unpacked_once_an_epoch_and_else_for_most_slices(
    tmp_path: Path, unpacked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autopipe.extensions.raster.windows._WHOLE_BYTES", 2 * VOLUME.nbytes)
    folder, counts = volumes(tmp_path, 6), []
    for shuffle in (ap.Blocks(mixed=2), True):
        data = Windows(folder, size=(1, None, None))
        workload = ap.Workload(data=data, ops=[], batch_size=6, shuffle=shuffle)
        unpacked.clear()
        for index in batch_order(workload).epoch(0).tolist():
            data.read(index)
        counts.append(len(unpacked))
    assert counts[0] == 6
    assert counts[1] > 12


def test_a_volume_larger_than_the_room_stays_until_the_next_one_is_read(
    tmp_path: Path, unpacked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autopipe.extensions.raster.windows._WHOLE_BYTES", 10)
    every(Windows(volumes(tmp_path / "x", 2), volumes(tmp_path / "y", 2), size=(1, None, None)))
    assert unpacked == ["0.nii.gz", "0.nii.gz", "1.nii.gz", "1.nii.gz"]


def test_threads_that_need_the_same_volume_wait_for_the_first_of_them() -> None:
    kept, started, go = rasters.Kept(100, least=1), threading.Event(), threading.Event()
    made: list[str] = []

    def make() -> int:
        made.append("a")
        started.set()
        assert go.wait(60)
        return 7

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(kept.get, "a", make, lambda _: 200)
        assert started.wait(60)
        others = [pool.submit(kept.get, "a", make, lambda _: 200) for _ in range(3)]
        go.set()
        assert [each.result(60) for each in (first, *others)] == [7] * 4
    assert made == ["a"]


def test_a_thread_whose_patience_is_over_makes_the_value_for_itself() -> None:
    kept, started, go = rasters.Kept(100), threading.Event(), threading.Event()

    def stalled() -> str:
        started.set()
        assert go.wait(60)
        return "late"

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(kept.get, "a", stalled, lambda _: 60)
        assert started.wait(60)
        assert kept.get("a", lambda: "own", lambda _: 60, 0.0) == "own"
        assert kept.get("a", lambda: "none", lambda _: 60) == "own"
        go.set()
        assert first.result(60) == "late"
    assert kept.get("b", lambda: "b", lambda _: 40) == "b"
    assert kept.get("a", lambda: "gone", lambda _: 60) == "late"


def test_an_error_reaches_all_threads_that_waited_and_the_next_one_tries_anew() -> None:
    kept = rasters.Kept(100)

    def fails() -> int:
        raise BadSampleError("no")

    for _ in range(2):
        with pytest.raises(BadSampleError, match="no"):
            kept.get("a", fails, lambda _: 1)
    assert kept.get("a", lambda: 5, lambda _: 1) == 5


def test_blocks_are_volumes_also_of_a_part_of_the_samples(tmp_path: Path) -> None:
    data = Windows([nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "b.nii", VOLUME[:3])], size=(1, None, None))
    assert data.block_starts == [0, 6]
    assert Subset(data, 4).block_starts == [0, 3]  # slices 0, 2, 4 and 6
    assert Subset(data, 1).block_starts == [0]
    workload = ap.Workload(data=data, ops=[], batch_size=3, shuffle=ap.Blocks(mixed=1))
    for epoch in range(5):
        order = batch_order(workload).epoch(epoch)
        assert np.count_nonzero(np.diff(order >= 6)) == 1
        assert sorted(order.tolist()) == list(range(9))
    path = npy(tmp_path / "scene.npy", np.zeros((8, 8), np.uint8))
    parts = Windows(path, size=4, validation_split=0.5, subset="training", split_by="window", seed=0)
    assert parts.block_starts == [0]


LOADERS = [ap.Threads(workers=3), ap.Processes(workers=2), ap.TfData(num_parallel_calls=2), ap.Resident(workers=2)]


@pytest.mark.usefixtures("forked_nurseries")
@pytest.mark.parametrize("loader", LOADERS, ids=str)
def test_every_loader_gives_the_slices_of_the_blocks_order(loader: Any, tmp_path: Path) -> None:
    masks = [npy(tmp_path / "masks" / f"{n}.npy", (VOLUME + n) % 3) for n in range(4)]
    data = Windows(sorted(volumes(tmp_path / "x", 4).iterdir()), masks, size=(1, None, None))
    workload = ap.Workload(data=data, ops=[], batch_size=8, seed=3, shuffle=ap.Blocks(mixed=2))
    with ap.build_loader(workload, ap.PipelineConfig(loader=loader)) as made:
        for epoch in (0, 1):
            order = batch_order(workload).epoch(epoch)
            batches = [[np.array(part) for part in batch] for batch in made.epoch(epoch)]
            x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
            np.testing.assert_array_equal(x, [data.read(index)[0] for index in order])
            np.testing.assert_array_equal(y, [data.read(index)[1] for index in order])


@pytest.mark.slow
def test_all_loaders_agree_on_volumes_in_blocks_and_code_without_autopipe_has_no_such_order(tmp_path: Path) -> None:
    data = Windows(volumes(tmp_path, 3), size=(1, None, None))
    workload = ap.Workload(data=data, ops=[], batch_size=4, shuffle=ap.Blocks(mixed=2))
    report: Any = types.SimpleNamespace(progress=lambda *_: None)
    found = verify(workload, [ap.PipelineConfig(loader=each) for each in LOADERS], samples=18, report=report)
    assert [(each.message, each.samples) for each in found.agreements] == [(None, 18)] * len(LOADERS)
    assert len({each.digest for each in found.agreements}) == 1
    with pytest.raises(PlainCodeError, match=r"Blocks\(size=None, mixed=2\).*shuffle=True"):
        eject(workload, "keras")


# -------------------- refusals


def changed(content: bytearray, **fields: Any) -> bytearray:
    places = {"dims": ("<8h", 40), "code": ("<h", 70), "offset": ("<f", 108), "scaling": ("<2f", 112)}
    for name, values in fields.items():
        form, at = places[name]
        struct.pack_into(form, content, at, *values)
    return content


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dims": (3, 32000, 32000, 32000, 1, 1, 1, 1)}, r"cut short.*\(32000, 32000, 32000\)"),
        ({"dims": (7, *[32767] * 7)}, "cut short"),
        ({"dims": (3, 30, -20, 6, 1, 1, 1, 1)}, r"damaged header.*\[3, 30, -20"),
        ({"dims": (3, 30, 0, 6, 1, 1, 1, 1)}, "damaged header"),
        ({"dims": (0, 1, 1, 1, 1, 1, 1, 1)}, "damaged header"),
        ({"dims": (9, 1, 1, 1, 1, 1, 1, 1)}, "damaged header"),
        ({"dims": (5, 5, 4, 3, 2, 3, 1, 1)}, r"must hold a volume.*\(3, 2, 3, 4, 5\)"),
        ({"code": (128,)}, "`datatype` is 128"),
        ({"code": (32,)}, "`datatype` is 32"),
        ({"offset": (float("inf"),)}, "begin at byte inf"),
        ({"offset": (float("nan"),)}, "begin at byte nan"),
        ({"offset": (-352.0,)}, "begin at byte -352"),
        ({"offset": (40.0,)}, "begin at byte 40"),
        ({"offset": (1e12,)}, "cut short"),
        ({"scaling": (float("inf"), 0)}, "scales voxels by inf"),
        ({"scaling": (2, float("nan"))}, "scales voxels by 2.0 and nan"),
    ],
)
def test_headers_that_cannot_be_are_refused(fields: dict[str, Any], said: str, ending: str, tmp_path: Path) -> None:
    content = bytes(changed(header_of((30, 20, 6), 4), **fields)) + VOLUME.tobytes()
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending == ".nii.gz" else content)
    with pytest.raises(DataError, match=said) as raised:
        Windows(path, size=(1, None, None))
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin with a header"),
        (b"\x5c\x01\x00", "does not begin with a header"),
        (bytes(header_of((1, 1, 1), 4)[:200]), "does not begin with a header"),
        (b"text that is no volume" * 50, "does not begin with a header"),
        (bytes(header_of((1, 1, 1), 4)).replace(b"n+1", b"ni1"), r"in one file.*ni1.*\.hdr and \.img"),
        (bytes(header_of((1, 1, 1), 4)).replace(b"n+1", b"\0\0\0"), "in one file"),
    ],
)
def test_files_that_are_no_nifti_are_named(content: bytes, said: str, tmp_path: Path) -> None:
    for name, written in (("a.nii", content), ("a.nii.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(written)
        with pytest.raises(DataError, match=said) as raised:
            Windows(tmp_path / name, size=(1, None, None))
        assert name in str(raised.value)
    (tmp_path / "b.nii.gz").write_bytes(b"not packed at all, but named so")
    with pytest.raises(DataError, match=r"b\.nii\.gz` cannot be read"):
        Windows(tmp_path / "b.nii.gz", size=(1, None, None))


def test_a_packed_volume_that_is_damaged_is_named_and_not_unpacked_again(tmp_path: Path, unpacked: list[str]) -> None:
    whole = nii(tmp_path / "a.nii.gz", VOLUME).read_bytes()
    half = gzip.compress(gzip.decompress(whole)[:4000])
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    checksum = bytearray(whole)
    checksum[-6] ^= 1
    for number, content in enumerate((whole[: len(whole) // 2], half, bytes(flipped), bytes(checksum))):
        path = tmp_path / f"b{number}.nii.gz"
        path.write_bytes(content)
        data = Windows(path, size=(1, None, None))
        unpacked.clear()
        for index in range(3):
            with pytest.raises(
                BadSampleError, match=rf"b{number}\.nii\.gz.*slices {index} to {index + 1}, rows 0 to 20"
            ):
                data.read(index)
        assert len(unpacked) == 1
    path = nii(tmp_path / "c.nii", VOLUME)
    data = Windows(path, size=(1, None, None))
    os.truncate(path, 4000)
    with pytest.raises(BadSampleError, match=r"c\.nii` is cut short"):
        data.read(5)


@given(st.data())
@settings(max_examples=60)
def test_whatever_a_header_says_the_file_is_named_or_its_slices_are_read(data: st.DataObject) -> None:
    header = header_of((5, 4, 3), 4, version=data.draw(st.sampled_from([1, 2])))
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(header) + bytes(data.draw(st.sampled_from([120, 60, 0])))
    ending = data.draw(st.sampled_from([".nii", ".nii.gz"]))
    path = Path(f"/tmp/autopipe-{os.getpid()}-header{ending}")
    path.write_bytes(gzip.compress(content, 1) if ending == ".nii.gz" else content)
    try:
        assert damage.is_named(slices_of, path, lambda part: part.ndim == 3)
    finally:
        path.unlink()


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_whatever_is_wrong_with_a_damaged_volume_is_told_with_its_name(name: str, tmp_path: Path) -> None:
    path = nii(tmp_path / name, VOLUME)
    assert damage.unnamed(slices_of, path, tries=60) == []


def test_masks_of_another_shape_and_voxels_of_which_some_are_scaled_are_named(tmp_path: Path) -> None:
    nii(tmp_path / "x" / "a.nii.gz", VOLUME)
    nii(tmp_path / "y" / "a.nii.gz", VOLUME[:5])
    with pytest.raises(
        DataError, match=r"`y` must have.*6x20x30 as `.*x/a\.nii\.gz`, but `.*y/a\.nii\.gz` has 5x20x30"
    ):
        Windows(tmp_path / "x", tmp_path / "y", size=(1, None, None))
    nii(tmp_path / "z" / "a.nii", VOLUME)
    nii(tmp_path / "z" / "b.nii.gz", VOLUME, slope=2)
    with pytest.raises(DataError, match=r"has int16, and `.*b\.nii\.gz` has float32.*scale"):
        Windows(tmp_path / "z", size=(1, None, None))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 16}, r"holds a volume.*size of three"),
        ({"size": (1, 1, 16)}, "`size` must be .* at most one axis of 1"),
        ({"size": (1, 2, 3, 4)}, "`size` must be"),
        ({"size": (0, 4, 4)}, "`size` must be"),
        ({"size": (7, 4, 4)}, r"must fit.*\(7, 4, 4\), and `.*a\.nii` has 6x20x30"),
        ({"size": (1, None, None), "stride": (1, 1)}, "`stride` must be a whole number of pixels >= 1, or 3"),
        ({"size": (1, 16, 16), "stride": (1, 8, 8), "split_by": "window"}, "do not overlap"),
        ({"size": (1, None, None), "bands": (2,)}, r"from 1 to 1 in `.*a\.nii`, but got 2"),
    ],
)
def test_sizes_that_do_not_fit_volumes_are_refused(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    split = {"validation_split": 0.5, "subset": "training"} if "split_by" in options else {}
    with pytest.raises(DataError, match=said):
        Windows(nii(tmp_path / "a.nii", VOLUME), **options | split)


def test_a_stack_of_more_axes_and_an_array_that_is_no_volume_are_named(tmp_path: Path) -> None:
    tifffile.imwrite(
        tmp_path / "hyper.tif",
        np.zeros((4, 3, 8, 9), np.uint8),
        imagej=True,
        metadata={"axes": "ZCYX"},
        compression=None,
    )
    npy(tmp_path / "flat.npy", np.zeros((8, 9), np.uint8))
    npy(tmp_path / "deep.npy", np.zeros((2, 3, 4, 5, 6), np.uint8))
    for name, said in (("hyper.tif", "ZCYX"), ("flat.npy", r"\(8, 9\)"), ("deep.npy", r"\(2, 3, 4, 5, 6\)")):
        with pytest.raises(DataError, match=said) as raised:
            Windows(tmp_path / name, size=(1, None, None))
        assert name in str(raised.value)


def test_parts_of_a_split_by_slice_share_none(tmp_path: Path) -> None:
    path = nii(tmp_path / "a.nii", VOLUME)
    parts = [
        Windows(path, size=(1, None, None), validation_split=0.5, subset=subset, split_by="window", seed=0)
        for subset in ("training", "validation")
    ]
    seen = [{each.tobytes() for each in every(part)} for part in parts]
    assert [len(each) for each in seen] == [3, 3]
    assert not seen[0] & seen[1]
