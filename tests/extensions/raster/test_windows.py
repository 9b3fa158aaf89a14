"""What `Windows` reads and refuses, and how it cuts and splits scenes and volumes; its contract: test_contract.py."""

import contextlib
import gzip
import importlib
import itertools
import math
import os
import random
import struct
import sys
import tempfile
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
from autopipe.errors import BadSampleError, DataError, DataWarning, MissingExtraError
from autopipe.extensions.raster import nifti
from autopipe.extensions.raster.windows import Windows
from autopipe.measure import description
from autopipe.pipeline import assembly
from autopipe.pipeline.eject.module import eject
from autopipe.workload.data import source
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind
from tests.extensions.raster.files import SCENE, SLICES, VOLUME, assert_windows, every, pieces, saved, slices_of, tiled
from tests.fakes import damage
from tests.fakes.nifti import CODES, header_of, nii


@pytest.mark.parametrize("codec", [None, "zlib", "lzw", "zstd"])
@pytest.mark.parametrize("planarconfig", ["contig", "separate"])
def test_every_layout_of_a_tiff_gives_the_pixels_of_the_scene(codec: Any, planarconfig: str, tmp_path: Path) -> None:
    layouts: list[dict[str, Any]] = [{"tile": (32, 16)}, {"rowsperstrip": 7}]
    packing = {"compression": codec, "predictor": codec is not None, "metadata": None, "planarconfig": planarconfig}
    for layout, order in itertools.product(layouts, ({}, {"bigtiff": True, "byteorder": ">"})):
        path = saved(tmp_path / "a.tif", **packing | layout | order)
        assert_windows(Windows(path, size=(24, 31)))
        assert_windows(Windows(path, size=24, bands=(5, 1, 2)), SCENE[..., [4, 0, 1]])


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_bands_in_pages_of_a_tiff_or_in_front_of_an_array_go_behind(compression: str | None, tmp_path: Path) -> None:
    turned = np.ascontiguousarray(np.moveaxis(SCENE, 2, 0))
    for name in ("a.tif", "a.ome.tif"):
        tifffile.imwrite(tmp_path / name, turned, photometric="minisblack", compression=compression)
        assert_windows(Windows(tmp_path / name, size=24))
    for path in (
        saved(tmp_path / "a.npz", turned),
        saved(tmp_path / "a.zarr", turned[None], chunks=(1, 4, 32, 32), shards=(1, 8, 64, 64)),
        saved(tmp_path / "2.zarr", turned, chunks=(4, 32, 50), zarr_format=2),
    ):
        assert_windows(Windows(path, size=24, bands_first=True))


@pytest.mark.parametrize(("order", "dtype", "first"), [*itertools.product("CF", (">u2", "<u2"), (False, True))])
def test_every_order_of_an_array_gives_its_pixels(order: Any, dtype: str, first: bool, tmp_path: Path) -> None:
    for scene in (SCENE[:, :, :1], SCENE):
        path = saved(tmp_path / "a.npy", np.array(np.moveaxis(scene, 2, 0) if first else scene, dtype, order=order))
        for side in (7, 40):  # of which rows are read in part, and as a whole
            assert_windows(Windows(path, size=side, bands_first=first), scene)
    assert_windows(Windows(path, size=24, bands=(6, 2), bands_first=first), SCENE[..., [5, 1]])
    flat = saved(tmp_path / "flat.npy", np.array(SCENE[..., 0], dtype, order=order))
    assert_windows(Windows(flat, size=9), SCENE[..., :1])


def test_planes_that_are_not_wanted_are_not_read_and_a_tile_left_out_is_without_data(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.tif", planarconfig="separate", compression="zlib")
    damage.blank(path, pieces(path)[5])
    assert_windows(Windows(path, size=24, bands=(2,)), SCENE[..., 1:2])
    with pytest.raises(ap.BadSampleError, match=r"a\.tif"):
        Windows(path, size=24, bands=(6,)).read(0)
    sparse, wanted = tiled(tmp_path / "b.tif", nodata=9, bigtiff=True, metadata=None), SCENE.copy()
    with tifffile.TiffFile(sparse, mode="r+b") as file:
        for tag in (file.pages.first.tags[name] for name in ("TileOffsets", "TileByteCounts")):
            tag.overwrite([0, *tag.value[1:]])
    wanted[:32, :16] = 9
    assert_windows(Windows(sparse, size=24), wanted)


# -------------------- files as other programs write them: the pixels are those of tifffile

DEEP = SCENE[..., :4]
# As smooth as photographs are, for codecs that lose some of it.
COLOURS = np.stack([np.add.outer(np.arange(70), np.arange(90) * n) % 200 for n in (1, 2, 1)], -1).astype(np.uint8)
TILE = {"tile": (32, 48)}
PACKED = TILE | {"compression": "zlib"}
PLANES = {"planarconfig": "separate", "byteorder": ">"}
PALETTE = np.arange(768, dtype=np.uint16).reshape(3, 256)


def assert_as_tifffile_reads_it(path: Path) -> NDArray[Any]:
    """Compare each window of a grid with the first level of what tifffile makes of the whole; return that."""
    whole: NDArray[Any] = tifffile.imread(path, series=0, level=0)
    with tifffile.TiffFile(path) as file:
        in_front = file.series[0].axes[0] not in "Y"
    wanted = whole[:, :, None] if whole.ndim == 2 else np.moveaxis(whole, 0, 2) if in_front else whole
    assert_windows(Windows(path, size=(33, 41)), wanted.astype(wanted.dtype.newbyteorder("=")))
    return wanted


TIFFS: dict[str, tuple[NDArray[Any], dict[str, Any]]] = {
    "alpha": (np.dstack([COLOURS, COLOURS[..., 0]]), PACKED | {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
    "planes, predictor 2, big-endian": (np.moveaxis(DEEP, 2, 0), PACKED | PLANES | {"predictor": 2}),
    "predictor 3": (DEEP.astype(np.float32) / 7, PACKED | {"predictor": 3, "planarconfig": "contig"}),
    "predictor 3, planes, big-endian": (np.moveaxis(DEEP / 7, 2, 0), PACKED | PLANES | {"predictor": 3}),
    "JPEG of 4:2:0": (COLOURS, TILE | {"compression": "jpeg", "photometric": "ycbcr", "subsampling": (2, 2)}),
    "JPEG of grey, in strips": (COLOURS[..., 0], {"compression": "jpeg", "rowsperstrip": 16}),
    "JPEG 2000 of 16 bits": (DEEP[..., 0], TILE | {"compression": "jpeg2000"}),
    "WebP": (COLOURS, TILE | {"compression": "webp", "photometric": "rgb"}),
    "LERC": (DEEP[..., 0].astype(np.float32), TILE | {"compression": "lerc"}),
    "PackBits": (COLOURS[..., 0], {"compression": "packbits"}),
    "12 bits packed": (DEEP[..., 0] >> 4, {"bitspersample": 12, "compression": None}),
    "1 bit, deflate": (COLOURS[..., 0] > 100, {"compression": "zlib", "rowsperstrip": 9}),
    "4 bits": (COLOURS[..., 0] >> 4, {"bitspersample": 4, "compression": None}),
    "white is 0": (COLOURS[..., 0], PACKED | {"photometric": "miniswhite"}),
    "palette": (COLOURS[..., 0], PACKED | {"photometric": "palette", "colormap": PALETTE}),
    "int8": (COLOURS[..., 0].astype(np.int8), PACKED),
    "float16": (COLOURS[..., 0].astype(np.float16), PACKED),
    "bits the other way round": (COLOURS[..., 0], {"compression": None, "extratags": [(266, "H", 1, 2, True)]}),
}


@pytest.mark.parametrize(("array", "options"), TIFFS.values(), ids=TIFFS)
def test_a_tiff_has_the_pixels_that_tifffile_reads(array: Any, options: dict[str, Any], tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", array, **{"photometric": "minisblack", "metadata": None} | options)
    assert_as_tifffile_reads_it(tmp_path / "a.tif")


@pytest.mark.parametrize("scene", [DEEP, DEEP[..., 0], COLOURS], ids=["bands", "grey", "colours"])
@pytest.mark.parametrize("packing", [PACKED, {"compression": None}], ids=["packed", "plain"])
def test_smaller_copies_and_masks_are_no_bands(scene: NDArray[Any], packing: dict[str, Any], tmp_path: Path) -> None:
    options = packing | {"photometric": "rgb" if scene is COLOURS else "minisblack"}
    options |= {"planarconfig": "contig"} if scene.ndim == 3 else {}
    halves, mask = (scene[::2, ::2], scene[::4, ::4]), scene.reshape(70, 90, -1)[..., 0] > 100
    for ome, path in ((False, tmp_path / "a.tif"), (True, tmp_path / "a.ome.tif")):
        with tifffile.TiffWriter(path, ome=ome) as file:
            file.write(scene, subifds=2, metadata={"axes": "YXS"[: scene.ndim]} if ome else None, **options)
            for each in halves:
                file.write(each, subfiletype=1, metadata=None, **options)
    with tifffile.TiffWriter(tmp_path / "gdal.tif") as file:  # which has both as pages behind the first
        for kind, array in ((0, scene), (4, mask), (1, halves[0]), (5, mask[::2, ::2]), (1, halves[1])):
            kinds = {"photometric": "minisblack"} | packing if kind & 4 else options
            file.write(array, subfiletype=kind, metadata=None, **kinds)
    for path in tmp_path.iterdir():
        assert assert_as_tifffile_reads_it(path).shape == (70, 90, scene.size // (70 * 90))


# -------------------- pixels without data


def test_pixels_without_data_are_given_another_value_of_the_parts_that_are_named(tmp_path: Path) -> None:
    array = np.array([[1, -9999], [3, 4]], np.int16)
    path = saved(tmp_path / "a.tif", array, nodata=-9999)
    zarr.create_array(tmp_path / "a.zarr", data=array).attrs["_FillValue"] = -9999
    kept, replaced = [1, -9999, 3, 4], [1, 0, 3, 4]
    for each in (path, saved(tmp_path / "b.tif", array, nodata=-9999, compression="zlib"), tmp_path / "a.zarr"):
        both = Windows(each, size=2, nodata=0), Windows(each, size=2)
        assert [data.read(0).ravel().tolist() for data in both] == [replaced, kept]
    for nodata, y in ((0, kept), ({"x": 0, "y": 255}, [1, 255, 3, 4])):
        parts = Windows(path, path, size=2, nodata=nodata).read(0)
        assert [part.ravel().tolist() for part in parts] == [replaced, y]


@pytest.mark.parametrize(
    ("dtype", "text", "held"),
    [
        ("int16", "-32768", -32768),
        ("float32", "-3.4028234663852886e+38", np.finfo(np.float32).min),
        ("float32", "nan", np.nan),
        *(("float32", "0.1", np.float32(0.1)), ("uint8", "-9999", None), ("uint16", "nan", None)),
    ],
)
def test_no_data_is_what_the_pixels_can_hold(dtype: str, text: str, held: Any, tmp_path: Path) -> None:
    array = np.array([[1, 2], [3 if held is None else held, 4]]).astype(dtype)
    for codec in (None, "zlib"):
        path = saved(tmp_path / "a.tif", array, nodata=text, compression=codec)
        found = Windows(path, size=2, nodata=9).read(0)[..., 0]
        np.testing.assert_array_equal(found, np.where([[0, 0], [held is not None, 0]], 9, array))


# -------------------- windows


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 50))
def test_a_grid_covers_the_scene_and_stays_inside(high: int, wide: int, size: int, stride: int) -> None:
    size = min(size, high, wide)
    scene = np.arange(high * wide, dtype=np.float32).reshape(high, wide)
    with tempfile.TemporaryDirectory() as folder:  # of one run of the property: its fixtures are those of all runs
        path = saved(Path(folder) / "a.npy", scene)
        made = [Windows(path, size=size, stride=stride, edge=edge) for edge in ("moved", "dropped")]
        moved, dropped = map(every, made)
    tops, lefts = (range(0, whole - size + 1, stride) for whole in (high, wide))
    assert [int(each[0, 0, 0]) for each in dropped] == [y * wide + x for y in tops for x in lefts]
    assert moved[-1][-1, -1, 0] == scene[-1, -1]
    assert stride > size or set(np.concatenate(moved).ravel().tolist()) == set(scene.ravel().tolist())
    assert len({each[0, 0, 0] for each in moved}) == len(moved)


@pytest.mark.parametrize("library", ["np", "tf"])
def test_plain_code_reads_image_and_mask_of_one_place_at_random(library: Any, tmp_path: Path) -> None:
    image, mask = saved(tmp_path / "a.npy"), saved(tmp_path / "mask.npy", SCENE[:, :, 0])
    plan = planner.make_plan(ap.Workload(data=Windows(image, mask, size=16, random=8), ops=[], batch_size=4))
    (step,), found = plan.steps, dict[str, Any]()
    scope = {"np": np, "x": np.array([3, 0]), "y": np.array([3, 1]), "rng": np.random.default_rng(0)}
    scope |= {"tf": importlib.import_module("tensorflow")} if library == "tf" else {}
    exec("\n".join(step.op.plain(step, library)), scope | dict(step.op.plain_functions(step)), found)
    x, y = np.asarray(found["x"]), np.asarray(found["y"])
    np.testing.assert_array_equal(x[..., 0], y)
    assert x.shape == (16, 16, 6)


def test_what_is_random_is_kept_as_unpacked_scenes_needs_autopipe_and_validates_nothing(tmp_path: Path) -> None:
    path, packed, against = saved(tmp_path / "a.npy"), tiled(tmp_path / "a.tif"), []
    for scene, drawn in ((path, None), (packed, 8), (path, 8)):
        workload = ap.Workload(data=Windows(scene, size=16, random=drawn), ops=[ap.RandomFlip()], batch_size=4)
        found = description.impossible_to_feed(workload, planner.make_plan(workload))
        against.append({each.value for each in found if each.parameter == "keep"})
    assert against == [*[{"tfrecord", "encoded"}] * 2, {"memory", "array", "tfrecord", "encoded"}]
    assert [op.name for op in workload.ops] == ["RandomWindow", "RandomFlip"]
    with pytest.raises(ap.PlainCodeError, match="`RandomWindow` reads by autopipe"):
        eject(workload, "keras")
    with pytest.raises(ap.WorkloadError, match=r"the same samples each time.*Pass a grid"):
        assembly.for_evaluation(workload, Windows(path, size=16, random=2))
    over = assembly.for_evaluation(workload, Windows(path, size=16))
    assert (over.ops, planner.make_plan(over).finished.x.shape) == ((), (16, 16, 6))


def test_every_position_is_reached_at_random_and_none_beyond(tmp_path: Path) -> None:
    data, ends = Windows(saved(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4)), size=2, random=1), 1 - 2**-53
    places = [(down, across) for down in (0.0, 0.4, 0.6, ends) for across in (0.0, 0.4, 0.5, ends)]
    assert {data.at_random(0, 0, np.array(place))[0, 0, 0] for place in places} == {0, 1, 2, 4, 5, 6}


def test_the_bytes_and_the_digest_of_windows_tell_how_they_are_cut_wherever_the_files_lie(tmp_path: Path) -> None:
    image, mask = tiled(tmp_path / "a.tif"), saved(tmp_path / "mask.npy", SCENE[:, :, 0].astype(np.uint8))
    for drawn in (None, 5):
        data = Windows(image, mask, size=(10, 20), random=drawn, bands=(1, 4))
        assert source.mean_bytes(data) == 10 * 20 * (2 * 2 + 1)
    assert source.mean_bytes(Windows([image, saved(tmp_path / "b.npy", SCENE[:30])], size=(30, None))) == 30 * 90 * 12
    digest = source.digest(Windows(saved(tmp_path / "one" / "a.npy").parent, size=16))
    (tmp_path / "one").rename(tmp_path / "two")
    for options in ({}, {"stride": 8}, {"random": 20}, {"bands": (1,)}, {"edge": "dropped"}):
        assert (source.digest(Windows(tmp_path / "two", **{"size": 16} | options)) == digest) == (not options)


# -------------------- scenes


def test_scenes_are_matched_by_what_wildcards_stand_for(tmp_path: Path) -> None:
    for number in (2, 10, 1, 3):
        if number != 3:
            saved(tmp_path / "x" / f"s{number}_image.npy", np.full((4, 4), number))
        saved(tmp_path / "y" / f"{number}" / "mask.npy", np.full((4, 4), number))
    data = Windows(tmp_path / "x" / "s*_image.npy", tmp_path / "y" / "*" / "mask.npy", size=4)
    assert sorted((int(image[0, 0, 0]), int(mask[0, 0])) for image, mask in every(data)) == [(1, 1), (2, 2), (10, 10)]
    assert len(Windows(tmp_path / "**" / "*.npy", size=4)) == 7
    paths = [tmp_path / "x" / f"s{number}_image.npy" for number in (2, 1)]
    assert [image[0, 0, 0] for image in every(Windows(paths, size=4))] == [2, 1]


def test_parts_of_a_split_share_no_scene_or_no_pixel_and_make_up_the_whole(tmp_path: Path) -> None:
    for number in range(5):
        saved(tmp_path / "scenes" / f"{number}.npy", np.full((4, 6), number))
    volume = saved(tmp_path / "a.nii", np.arange(24, dtype=np.int16).reshape(6, 2, 2))
    by_scene: dict[str, Any] = {"size": 2, "validation_split": 0.2}
    by_window: dict[str, Any] = {"validation_split": 0.5, "split_by": "window", "seed": 0}
    for path, sizes, last, options in (
        (tmp_path / "scenes", [4, 1], {4}, by_scene),
        (tmp_path / "scenes", [4, 1], None, by_scene | {"seed": 1}),
        (saved(tmp_path / "a.npy", np.arange(24).reshape(4, 6)), [12, 12], None, {"size": 2} | by_window),
        (volume, [12, 12], None, {"size": (1, None, None)} | by_window),
    ):
        parts = (every(Windows(path, subset=subset, **options)) for subset in ("training", "validation"))
        training, validation = ({int(each) for each in np.concatenate(part).ravel()} for part in parts)
        assert training | validation == set(range(sum(sizes)))
        assert [len(training), len(validation)] == sizes
        assert last in (None, validation)


# -------------------- files that change


def test_a_file_that_was_cut_short_or_replaced_is_named_with_the_window_and_others_are_read(tmp_path: Path) -> None:
    for path in (tiled(tmp_path / "a.tif"), saved(tmp_path / "a.npy"), saved(tmp_path / "b.tif")):
        data = Windows(path, size=16)
        os.truncate(path, path.stat().st_size * 2 // 3)
        with pytest.raises(ap.BadSampleError, match=f"{path.name}.*(cut short|read).*rows 54 to 70, columns 74 to 90"):
            data.read(len(data) - 1)
    np.testing.assert_array_equal(Windows(tmp_path / "a.tif", size=16).read(0), SCENE[:16, :16])
    data = Windows(saved(tmp_path / "a.npy"), size=64)
    saved(tmp_path / "a.npy", SCENE[:60])
    with pytest.raises(ap.BadSampleError, match=r"a\.npy` was replaced: it has 60x90 .* had 70x90"):
        data.read(0)


# -------------------- volumes

CHANNELS = np.random.default_rng(1).integers(0, 60_000, (6, 20, 30, 2)).astype(np.uint16)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize("options", [{}, {"order": ">"}, {"version": 2}, {"order": ">", "version": 2}])
@pytest.mark.parametrize("dtype", list(CODES))
def test_slices_have_the_voxels_of_a_nifti_scaled_or_not(
    dtype: str, options: dict[str, Any], ending: str, tmp_path: Path
) -> None:
    for array in (VOLUME.astype(dtype), CHANNELS.astype(dtype)):
        found = every(slices_of(nii(tmp_path / f"a{ending}", array, **options)))
        np.testing.assert_array_equal(np.stack(found), array.reshape(6, 20, 30, -1), strict=True)
        assert all(each.dtype.isnative and each.flags.writeable for each in found)
    wanted = np.float64 if dtype in ("i4", "u4", "i8", "u8", "f8") else np.float32
    whole = np.abs(VOLUME % 100).astype(dtype)
    for slope in (0.5, 0.0, float("nan")):  # not scaled, says the standard of the last two
        path = nii(tmp_path / f"b{ending}", whole, slope=slope, intercept=-1024.25, **options)
        voxels = (whole * 0.5 - 1024.25).astype(wanted) if slope == 0.5 else whole
        np.testing.assert_array_equal(np.stack(every(slices_of(path)))[..., 0], voxels, strict=True)


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_voxels_are_those_of_nibabel(ending: str, tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    path = tmp_path / f"a{ending}"
    for kind, dtype in itertools.product((nibabel.Nifti1Image, nibabel.Nifti2Image), ("int16", "uint16", "float32")):
        nibabel.save(kind(VOLUME.T.astype(dtype), np.eye(4)), path)
        np.testing.assert_array_equal(np.stack(every(slices_of(path))), VOLUME.astype(dtype)[..., None], strict=True)
    for shape in ((7, 6, 5, 1, 3), (7, 6, 5, 1), (7, 6, 5, 4), (7, 6, 1), (7, 6)):  # axes of one are left out
        array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
        wanted = array.reshape(7, 6, shape[2] if len(shape) > 2 else 1, -1).transpose(2, 1, 0, 3)
        np.testing.assert_array_equal(every(slices_of(path)), wanted)


GREY, ZIP = {"photometric": "minisblack", "compression": None}, {"photometric": "minisblack", "compression": "zlib"}
RGB = np.concatenate([CHANNELS, CHANNELS[..., :1]], axis=3)
TURNED = np.moveaxis(CHANNELS, 3, 0)
STACKS: list[tuple[str, NDArray[Any], NDArray[Any], dict[str, Any]]] = [  # file, what is in it, volume, packing
    ("a.npy", VOLUME, VOLUME, {}),
    ("b.npy", CHANNELS, CHANNELS, {}),
    ("c.npy", TURNED, CHANNELS, {}),
    ("d.npz", CHANNELS, CHANNELS, {}),
    ("0.tif", VOLUME, VOLUME, GREY),
    ("1.tif", VOLUME, VOLUME, ZIP | {"rowsperstrip": 7}),
    ("2.tif", VOLUME, VOLUME, ZIP | {"predictor": True, "tile": (16, 16)}),
    ("3.tif", VOLUME, VOLUME, GREY | {"byteorder": ">", "bigtiff": True}),
    ("4.tif", VOLUME, VOLUME, GREY | {"imagej": True}),
    ("5.tif", VOLUME, VOLUME, ZIP | {"metadata": None}),
    ("6.tif", RGB, RGB, GREY | {"photometric": "rgb"}),
    ("7.tif", RGB, RGB, ZIP | {"photometric": "rgb"}),
    ("8.tif", VOLUME[0], VOLUME[:1], GREY),
    ("a.zarr", VOLUME, VOLUME, {"chunks": (2, 16, 16)}),
    ("b.zarr", TURNED[None], CHANNELS, {"chunks": (1, 1, 4, 16, 16)}),
    ("a.nii", VOLUME, VOLUME, {}),
    ("b.nii.gz", CHANNELS, CHANNELS, {}),
]


@pytest.mark.parametrize(("name", "array", "volume", "packing"), STACKS, ids=[each[0] for each in STACKS])
def test_slices_along_each_axis_and_parts_of_a_volume_are_those_of_the_array(
    name: str, array: Any, volume: Any, packing: dict[str, Any], tmp_path: Path
) -> None:
    path, wanted = tmp_path / name, volume.reshape(*volume.shape[:3], -1)
    tifffile.imwrite(path, array, **packing) if path.suffix == ".tif" else saved(path, array, **packing)
    options: dict[str, Any] = {"bands_first": name in ("c.npy", "b.zarr")}
    sizes: tuple[Any, ...] = (SLICES, (None, 1, None), (None, None, 1))
    for axis, size in enumerate(sizes[: 1 if len(wanted) == 1 else 3]):
        np.testing.assert_array_equal(np.stack(every(Windows(path, size=size, **options)), axis), wanted)
    if len(wanted) > 1:
        data = Windows(path, size=(4, 9, 16), stride=(3, 7, 16), bands=(wanted.shape[3],), **options)
        corners = itertools.product((0, 2), (0, 7, 11), (0, 14))  # the last of each axis are moved inside
        parts = [wanted[z : z + 4, y : y + 9, x : x + 16, -1:] for z, y, x in corners]
        np.testing.assert_array_equal(np.stack(every(data)), np.stack(parts), strict=True)


def test_parts_of_volumes_are_no_images_and_functions_of_numpy_act_on_them(tmp_path: Path) -> None:
    image, mask = nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "m.nii.gz", (VOLUME % 3).astype(np.uint8))
    data = Windows(image, mask, size=(4, 16, 16), random=8)
    assert (data.x_kind, data.y_kind) == (FieldKind.ARRAY, FieldKind.ARRAY)
    ops = [ap.Map(lambda volume, rng: volume[:, :, ::-1], random=True), ap.Normalize(100.0, 50.0)]
    plan = planner.make_plan(ap.Workload(data=data, ops=ops, batch_size=4))
    assert (plan.finished.x.shape, plan.finished.y and plan.finished.y.shape) == ((4, 16, 16, 1), (4, 16, 16))
    with pytest.raises(ap.OpError, match=r"RandomFlip.*\(4, 16, 16, 1\).*ap\.Map"):
        planner.make_plan(ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=4))


def test_random_slices_are_of_all_of_a_volume_and_new_in_each_epoch(tmp_path: Path) -> None:
    depth = np.broadcast_to(np.arange(6, dtype=np.int16)[:, None, None], (6, 5, 5))
    data = Windows(nii(tmp_path / "a.nii.gz", depth), size=SLICES, random=40)
    config = ap.PipelineConfig(loader=ap.Threads(workers=1))
    with ap.make_loader(ap.Workload(data=data, ops=[], batch_size=40), config) as loader:
        seen = [np.array(next(iter(loader.epoch(epoch)))[0])[:, 0, 0, 0].tolist() for epoch in (0, 1)]
    assert (set(seen[0]), seen[0] == seen[1]) == (set(range(6)), False)


SPLIT = {"validation_split": 0.5, "subset": "training", "split_by": "window"}


CUBE = {"tile": (16, 16, 16), "volumetric": True, "photometric": "minisblack"}
HYPER = {"imagej": True, "metadata": {"axes": "ZCYX"}, "compression": None}
FILES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{f"{name}/a.tif": (SCENE[..., :2], {}) for name in ("bands", "dtype", "size", "nodata", "twice")},
    "bands/b.tif": (SCENE[..., :1], {}),
    "dtype/b.tif": (SCENE[..., :2].astype(np.int16), {}),
    "size/b.tif": (SCENE[:20, :30, :2], {}),
    "nodata/b.tif": (SCENE[..., :2], {"nodata": 5}),
    **dict.fromkeys(("x/a.tif", "pairs/a.tif", "pairs/b.tif", "twice/a.npy"), (SCENE, {})),
    "y/a.npy": (SCENE[:60, :, 0], {}),
    "row.npy": (np.zeros(5), {}),
    "complex.npy": (SCENE[..., 0].astype(np.complex64), {}),
    "pages.tif": (SCENE[None, :, :, :3].repeat(2, 0), {"photometric": "rgb"}),
    "cube.tif": (np.zeros((32, 32, 32), np.uint8), CUBE | {"planarconfig": None}),
    "hyper.tif": (np.zeros((4, 3, 8, 9), np.uint8), HYPER | {"planarconfig": None}),
    "volume.nii": (VOLUME, {}),
    "masks/volume.nii.gz": (VOLUME[:5], {}),
    "scaled/a.nii": (VOLUME, {}),
    "scaled/b.nii.gz": (VOLUME, {"slope": 2}),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are refused, alone or together."""
    root = tmp_path_factory.mktemp("places")
    for name, (array, options) in FILES.items():
        saved(root / name, array, **options)
    (root / "empty").mkdir()
    (root / "a.jp2").write_bytes(b"")
    np.savez(root / "two.npz", a=SCENE, b=SCENE)
    zarr.create_group(root / "group.zarr").create_array("0", data=SCENE)
    return root


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        ("bands", {}, r"same bands, but `.*a\.tif` has 2, and `.*b\.tif` has 1"),
        ("bands", {"bands": (2,)}, r"from 1 to 1 in `.*b\.tif`, but got 2"),
        ("dtype", {}, r"same dtype, but `.*a\.tif` has uint16, and `.*b\.tif` has int16"),
        ("nodata", {}, r"same nodata, but `.*a\.tif` has None, and `.*b\.tif` has 5\.0.* nodata=0 replaces"),
        ("size", {"size": 32}, r"size=\(32, 32\), and `.*b\.tif` has 20x30.*smaller windows"),
        ("x y", {}, r"70x90 as `.*a\.tif`, but `.*a\.npy` has 60x90"),
        ("pairs y", {}, r"needs its `y`, but 1 have none, such as `.*b\.tif`"),
        ("twice", {}, r"one raster of each scene, but .*a\.npy` and .*a\.tif` are"),
        ("empty", {}, "No scenes were found for `x`"),
        ("none.tif", {}, r"`.*none\.tif` does not exist"),
        ("a.jp2", {}, "must be a raster, by its ending"),
        ("two.npz", {}, r"two\.npz` must hold one array"),
        ("group.zarr", {}, r"group\.zarr` must be.* is a group; its arrays are 0.*\*\.zarr/0"),
        ("row.npy", {}, r"row\.npy`.* its shape is \(5,\)"),
        ("complex.npy", {}, r"complex\.npy`.* its dtype is complex64"),
        ("pages.tif", {}, r"pages\.tif` must hold one raster.*2 pages"),
        ("cube.tif", {}, r"cube\.tif` must hold one raster.*ZYX"),
        ("hyper.tif", {"size": SLICES}, r"hyper\.tif`.*ZCYX"),
        ("volume.nii masks/volume.nii.gz", {"size": SLICES}, r"6x20x30 as `.*nii`, but `.*gz` has 5x20x30"),
        ("scaled", {"size": SLICES}, r"has int16, and `.*b\.nii\.gz` has float32.*scale"),
        ("volume.nii", {}, r"holds a volume.*size of three"),
        ("volume.nii", {"size": (1, 1, 16)}, "`size` must be .* at most one axis of 1"),
        ("volume.nii", {"size": (1, 2, 3, 4)}, "`size` must be"),
        ("volume.nii", {"size": (0, 4, 4)}, "`size` must be"),
        ("volume.nii", {"size": (7, 4, 4)}, r"must fit.*\(7, 4, 4\), and `.*volume\.nii` has 6x20x30"),
        ("volume.nii", {"size": SLICES, "stride": (1, 1)}, "`stride` must be a whole number of pixels >= 1, or 3"),
        ("volume.nii", {"size": (1, 16, 16), "stride": (1, 8, 8)} | SPLIT, "do not overlap"),
        ("x", {"stride": 1} | SPLIT, "do not overlap"),
        ("x", {"stride": (1, 2, 3)}, "`stride` must be"),
        ("x", {"edge": "cut"}, "`edge` must be"),
        ("x", {"random": 0}, "`random` must be"),
        ("x", {"bands": (0, 1)}, "numbers from 1"),
        ("x", {"bands": {"z": (1,)}}, "`bands` must name parts, which are x, but got 'z'"),
        ("x", {"nodata": -1}, "`nodata` must be a value of uint16"),
        ("x", {"nodata": math.nan}, "`nodata` must be a value of uint16"),
        ("x", {"nodata": {"mask": 0}}, "`nodata` must name parts, which are x, but got 'mask'"),
        ("x", {"split_by": "pixel"}, "`split_by` must be"),
        ("x", {"validation_split": 0.2}, "given together"),
        ("x", {"validation_split": 0.2, "subset": "training"}, "leaves none"),
    ],
)
def test_what_is_no_scene_is_refused(names: str, options: dict[str, Any], said: str, places: Path) -> None:
    with pytest.raises(DataError, match=said):
        Windows(*[places / name for name in names.split()], **{"size": 16} | options)


def test_lists_of_scenes_are_of_one_length_and_not_empty(places: Path) -> None:
    image, nothing = places / "x" / "a.tif", list[Path]()
    for parts, said in (([[image, image], [image]], "equally long, but have 2 and 1"), ([nothing], "No scenes")):
        with pytest.raises(DataError, match=said):
            Windows(*parts, size=16)
    assert len(Windows(places / "bands", size=32, bands=(1,))) == 2 * 3 * 3  # a band that all have
    assert len(Windows(places / "*.zarr" / "0", size=16)) == 5 * 6


@pytest.mark.parametrize(
    ("crs", "left", "said"),
    [(32633, 505.0, None), (32633, 560.0, r"\(32633, 560.0, 90.0, 10.0\) in `.*y.tif`"), (32632, 500.0, "32632")],
)
def test_a_mask_that_lies_elsewhere_on_earth_is_told(crs: int, left: float, said: str | None, tmp_path: Path) -> None:
    for name, number, edge in (("x", 32633, 500.0), ("y", crs, left)):
        tags: list[Any] = [(33550, "d", 3, (10.0, 10.0, 0.0), True)]
        tags += [(33922, "d", 6, (0.0, 0.0, 0.0, edge, 90.0, 0.0), True)]
        tags += [(34735, "H", 8, (1, 1, 0, 1, 3072, 0, 1, number), True)]
        saved(tmp_path / f"{name}.tif", SCENE[..., 0], extratags=tags, compression="zlib")
    with pytest.warns(DataWarning, match=said) if said else contextlib.nullcontext():
        Windows(tmp_path / "x.tif", tmp_path / "y.tif", size=24)
    Windows(tmp_path / "x.tif", saved(tmp_path / "y.npy", SCENE[..., 0]), size=24)  # which does not say where it lies


def test_a_missing_library_or_codec_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Any:
        raise KeyError("LZW requires the 'imagecodecs' package")

    tiled(tmp_path / "a.tif", compression="lzw")
    zarr.create_array(tmp_path / "a.zarr", data=SCENE)
    with monkeypatch.context() as patch:
        patch.setattr(type(tifffile.TIFF.DECOMPRESSORS), "__getitem__", missing)
        with pytest.raises(DataError, match=r"compressed by LZW.*autopipe-tuner\[raster\]"):
            Windows(tmp_path / "a.tif", size=16)
    for module, name in (("tifffile", "a.tif"), ("zarr", "a.zarr")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=f"`{module}` is not installed; the extra `raster` brings it"):
            Windows(tmp_path / name, size=16)


# -------------------- volumes


def header(form: str, at: int, *values: float) -> bytes:
    """Return a volume whose header says something else in one place."""
    content = header_of((30, 20, 6), 4)
    struct.pack_into(form, content, at, *values)
    return bytes(content) + VOLUME.tobytes()


def dims(*values: int) -> bytes:
    return header("<8h", 40, *values, *[1] * (8 - len(values)))


TINY = bytes(header_of((1, 1, 1), 4))


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (dims(3, 32000, 32000, 32000), r"cut short.*\(32000, 32000, 32000\)"),
        (dims(7, *[32767] * 7), "cut short"),
        (dims(3, 30, -20, 6), r"damaged header.*\[3, 30, -20"),
        (dims(3, 30, 0, 6), "damaged header"),
        (dims(9), "damaged header"),
        (dims(5, 5, 4, 3, 2, 3), r"must hold a volume.*\(3, 2, 3, 4, 5\)"),
        (header("<h", 70, 128), "`datatype` is 128"),
        (header("<h", 70, 32), "`datatype` is 32"),
        *((header("<f", 108, each), f"begin at byte {each:.3g}") for each in (math.inf, math.nan, -352.0, 40.0)),
        (header("<f", 108, 1e12), "cut short"),
        (header("<2f", 112, math.inf, 0), "scales voxels by inf"),
        (header("<2f", 112, 2, math.nan), "scales voxels by 2.0 and nan"),
        (b"\x5c\x01\x00", "does not begin with a header"),
        (b"text that is no volume" * 50, "does not begin with a header"),
        (TINY.replace(b"n+1", b"ni1"), r"in one file.*ni1.*\.hdr and \.img"),
        (TINY.replace(b"n+1", b"\0\0\0"), "in one file"),
    ],
)
def test_headers_that_cannot_be_are_refused(content: bytes, said: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(content) if ending == ".nii.gz" else content)
    with pytest.raises(DataError, match=said) as raised:
        slices_of(path)
    assert str(path) in str(raised.value)


def test_a_damaged_packed_volume_is_named_and_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, whole = list[str](), nifti.unpacked
    monkeypatch.setattr(nifti, "unpacked", lambda path, *given: unpacked.append(path) or whole(path, *given))  # type: ignore[func-returns-value]
    packed = nii(tmp_path / "a.nii.gz", VOLUME).read_bytes()
    flipped, checksum = bytearray(packed), bytearray(packed)
    flipped[len(packed) // 2] ^= 255
    checksum[-6] ^= 1
    path = tmp_path / "b.nii.gz"
    for content in (packed[: len(packed) // 2], gzip.compress(gzip.decompress(packed)[:4000]), flipped, checksum):
        path.write_bytes(content)
        data = slices_of(path)
        unpacked.clear()
        for index in range(3):
            with pytest.raises(BadSampleError, match=rf"b\.nii\.gz.*slices {index} to {index + 1}, rows 0 to 20"):
                data.read(index)
        assert len(unpacked) == 1
    path.write_bytes(b"not packed at all, but named so")
    with pytest.raises(DataError, match=r"b\.nii\.gz` cannot be read"):
        slices_of(path)
    data = slices_of(nii(tmp_path / "c.nii", VOLUME))
    os.truncate(tmp_path / "c.nii", 4000)
    with pytest.raises(BadSampleError, match=r"c\.nii` is cut short"):
        data.read(5)


# -------------------- damage


@pytest.mark.parametrize("name", ["a.tif", "b.tif", "a.npy", "a.npz", "a.nii", "a.nii.gz"])
def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(name: str, tmp_path: Path) -> None:
    path, scene = tmp_path / name, SCENE[:40, :40, :3]
    tiled(tmp_path / "a.tif", scene, tile=(16, 16))
    saved(tmp_path / "b.tif", scene, planarconfig="separate", compression="lzw", rowsperstrip=8)
    np.savez_compressed(saved(tmp_path / "a.npy", scene).with_suffix(".npz"), scene)
    nii(path, VOLUME) if ".nii" in name else None
    size = SLICES if ".nii" in name else 16
    assert damage.unnamed(lambda file: Windows(file, size=size), path, tries=60) == []


@pytest.mark.parametrize("version", [2, 3])
def test_whatever_is_wrong_with_a_zarr_array_is_told_with_its_name(version: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr", SCENE[:20, :20, :2], chunks=(10, 10, 2), zarr_format=version)
    chance = random.Random(2)
    for file in sorted(each for each in path.rglob("*") if each.is_file()):
        whole = file.read_bytes()
        for _ in range(10):
            content = bytearray(whole)
            content[chance.randrange(len(content))] = chance.randrange(256)
            file.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
            assert damage.is_named(lambda folder: Windows(folder, size=10), path)
        file.write_bytes(whole)


@given(st.data())
@settings(max_examples=60)
def test_whatever_a_tag_or_a_header_says_the_file_is_named_or_its_windows_are_read(data: st.DataObject) -> None:
    """Each change is to a tag or header itself, which random bytes seldom hit."""

    def changed(content: bytearray, first: int, last: int) -> None:
        content[data.draw(st.integers(first, last))] = data.draw(st.integers(0, 255))

    with tempfile.TemporaryDirectory() as folder:
        path = tiled(Path(folder) / "a.tif", SCENE[:32, :32, :2], tile=(16, 16))
        with tifffile.TiffFile(path) as file:
            tag = data.draw(st.sampled_from(list(file.pages.first.tags)))
        tagged = bytearray(path.read_bytes())
        changed(tagged, tag.offset, tag.offset + 11)
        path.write_bytes(tagged)
        assert damage.is_named(lambda file: Windows(file, size=8), path, lambda window: window.shape[:2] == (8, 8))
        header = header_of((5, 4, 3), 4, version=data.draw(st.sampled_from([1, 2])))
        for _ in range(data.draw(st.integers(1, 4))):
            changed(header, 0, len(header) - 1)
        header += bytes(data.draw(st.sampled_from([120, 60, 0])))
        for name, content in (("a.nii", header), ("a.nii.gz", gzip.compress(header, 1))):
            (Path(folder) / name).write_bytes(content)
            assert damage.is_named(slices_of, Path(folder) / name, lambda part: part.ndim == 3)
