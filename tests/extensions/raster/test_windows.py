"""What `Windows` reads, and how it cuts and splits scenes. What it refuses: test_refusals.py; its contract:
test_contract.py.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import autopipe as ap
from autopipe.errors import BadSampleError, PlainCodeError, WorkloadError
from autopipe.extensions.raster.windows import Windows
from autopipe.measure import description
from autopipe.pipeline import assembly
from autopipe.pipeline.eject.module import eject
from autopipe.workload.data import source
from autopipe.workload.ops import planner
from tests.fakes import damage
from tests.fakes.nifti import nii

SCENE = np.random.default_rng(0).integers(0, 60_000, (70, 90, 6)).astype(np.uint16)


def saved(path: Path, array: NDArray[Any] = SCENE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    return path


def tiff(path: Path, array: NDArray[Any] = SCENE, *, nodata: object = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = {"photometric": "minisblack", "planarconfig": "contig"} | options
    if array.ndim == 2 or array.shape[2] == 1:
        array, chosen["planarconfig"] = array.reshape(array.shape[:2]), None
    tags = [] if nodata is None else [(42113, "s", 0, str(nodata), True)]
    separate = chosen["planarconfig"] == "separate"
    tifffile.imwrite(path, np.moveaxis(array, 2, 0) if separate else array, **{"extratags": tags} | chosen)
    return path


def tiled(path: Path, array: NDArray[Any] = SCENE, **options: Any) -> Path:
    return tiff(path, array, **{"tile": (32, 16), "compression": "zlib"} | options)


def pieces(path: Path) -> tuple[int, ...]:
    """Return where the tiles or strips of a TIFF file begin."""
    with tifffile.TiffFile(path) as file:
        return tuple(file.pages.first.dataoffsets)


# -------------------- formats


@pytest.mark.parametrize("codec", [None, "zlib", "lzw", "zstd"])
@pytest.mark.parametrize("layout", [{"tile": (32, 16)}, {"rowsperstrip": 7}])
@pytest.mark.parametrize("planarconfig", ["contig", "separate"])
@pytest.mark.parametrize("order", [{}, {"bigtiff": True, "byteorder": ">"}])
def test_every_layout_of_a_tiff_gives_the_pixels_of_the_scene(
    codec: str | None, layout: dict[str, Any], planarconfig: str, order: dict[str, Any], tmp_path: Path
) -> None:
    packing: dict[str, Any] = {"compression": codec, "predictor": codec is not None, "metadata": None}
    path = tiff(tmp_path / "a.tif", planarconfig=planarconfig, **packing, **layout, **order)
    assert_pixels(Windows(path, size=(24, 31)))
    assert_pixels(Windows(path, size=24, bands=(5, 1, 2)), (5, 1, 2))


def assert_pixels(data: Windows, bands: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> None:
    high, wide = data.read(0).shape[:2]
    tops, lefts = ([*range(0, whole - size + 1, size), whole - size] for whole, size in ((70, high), (90, wide)))
    places = [(top, left) for top in dict.fromkeys(tops) for left in dict.fromkeys(lefts)]
    assert len(data) == len(places)
    for number, (top, left) in enumerate(places):
        found = data.read(number)
        np.testing.assert_array_equal(found, SCENE[top : top + high, left : left + wide, [band - 1 for band in bands]])
        assert found.dtype.isnative


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_bands_in_pages_of_a_tiff_or_in_front_of_an_array_go_behind(compression: str | None, tmp_path: Path) -> None:
    turned = np.ascontiguousarray(np.moveaxis(SCENE, 2, 0))
    for name in ("a.tif", "a.ome.tif"):
        tifffile.imwrite(tmp_path / name, turned, photometric="minisblack", compression=compression)
        assert_pixels(Windows(tmp_path / name, size=24))
    np.savez_compressed(tmp_path / "a.npz", turned)
    zarr.create_array(tmp_path / "a.zarr", data=turned[None], chunks=(1, 4, 32, 32), shards=(1, 8, 64, 64))
    zarr.create_array(tmp_path / "2.zarr", data=turned, chunks=(4, 32, 50), zarr_format=2)
    for name in ("a.npz", "a.zarr", "2.zarr"):
        assert_pixels(Windows(tmp_path / name, size=24, bands_first=True))


@pytest.mark.parametrize("bands_first", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">u2", "<u2"])
def test_every_order_of_an_array_gives_its_pixels(order: Any, dtype: str, bands_first: bool, tmp_path: Path) -> None:
    for name, scene in (("a", SCENE), ("one", SCENE[:, :, :1])):
        turned = np.moveaxis(scene, 2, 0) if bands_first else scene
        path = saved(tmp_path / f"{name}.npy", np.array(turned, dtype, order=order))
        for side in (7, 40):  # of which rows are read in part, and as a whole
            data = Windows(path, size=side, bands_first=bands_first)
            np.testing.assert_array_equal(data.read(0), scene[:side, :side])
            np.testing.assert_array_equal(data.read(len(data) - 1), scene[-side:, -side:])
    assert_pixels(Windows(tmp_path / "a.npy", size=24, bands=(6, 2), bands_first=bands_first), (6, 2))
    saved(tmp_path / "flat.npy", np.array(SCENE[:, :, 0], dtype, order=order))
    np.testing.assert_array_equal(Windows(tmp_path / "flat.npy", size=9).read(0), SCENE[:9, :9, :1])


def test_planes_that_are_not_wanted_are_not_read(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", planarconfig="separate", compression="zlib")
    damage.blank(path, pieces(path)[5])
    assert_pixels(Windows(path, size=24, bands=(2,)), (2,))
    with pytest.raises(BadSampleError, match=r"a\.tif"):
        Windows(path, size=24, bands=(6,)).read(0)


def test_a_tile_that_a_sparse_file_leaves_out_is_without_data(tmp_path: Path) -> None:
    path = tiled(tmp_path / "a.tif", nodata=9, bigtiff=True, metadata=None)
    with tifffile.TiffFile(path, mode="r+b") as file:
        for name in ("TileOffsets", "TileByteCounts"):
            tag = file.pages.first.tags[name]
            tag.overwrite([0, *tag.value[1:]])
    wanted = SCENE.copy()
    wanted[:32, :16] = 9
    np.testing.assert_array_equal(Windows(path, size=(70, 90)).read(0), wanted)


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
    data = Windows(path, size=(33, 41))
    places = [(top, left) for top in (0, 33, 70 - 33) for left in (0, 41, 90 - 41)]
    assert len(data) == len(places)
    for number, (top, left) in enumerate(places):
        found = data.read(number)
        assert found.dtype == wanted.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, wanted[top : top + 33, left : left + 41], path.name)
    return wanted


TIFFS: dict[str, tuple[NDArray[Any], dict[str, Any]]] = {
    "alpha": (np.dstack([COLOURS, COLOURS[..., 0]]), PACKED | {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
    "alpha of 16 bits, as it is": (DEEP, {"photometric": "rgb", "extrasamples": ["assocalpha"]}),
    "planes, predictor 2, big-endian": (np.moveaxis(DEEP, 2, 0), PACKED | PLANES | {"predictor": 2}),
    "predictor 3": (DEEP.astype(np.float32) / 7, PACKED | {"predictor": 3, "planarconfig": "contig"}),
    "predictor 3, planes, big-endian": (np.moveaxis(DEEP / 7, 2, 0), PACKED | PLANES | {"predictor": 3}),
    "JPEG of 4:2:0": (COLOURS, TILE | {"compression": "jpeg", "photometric": "ycbcr", "subsampling": (2, 2)}),
    "JPEG of RGB": (COLOURS, TILE | {"compression": "jpeg", "photometric": "rgb"}),
    "JPEG of grey, in strips": (COLOURS[..., 0], {"compression": "jpeg", "rowsperstrip": 16}),
    "JPEG 2000 of 16 bits": (DEEP[..., 0], TILE | {"compression": "jpeg2000"}),
    "WebP": (COLOURS, TILE | {"compression": "webp", "photometric": "rgb"}),
    "LERC": (DEEP[..., 0].astype(np.float32), TILE | {"compression": "lerc"}),
    "PackBits": (COLOURS[..., 0], {"compression": "packbits"}),
    "12 bits packed": (DEEP[..., 0] >> 4, {"bitspersample": 12, "compression": None}),
    "1 bit": (COLOURS[..., 0] > 100, {"compression": None}),
    "1 bit, deflate": (COLOURS[..., 0] > 100, {"compression": "zlib", "rowsperstrip": 9}),
    "4 bits": (COLOURS[..., 0] >> 4, {"bitspersample": 4, "compression": None}),
    "white is 0": (COLOURS[..., 0], PACKED | {"photometric": "miniswhite"}),
    "palette": (COLOURS[..., 0], PACKED | {"photometric": "palette", "colormap": PALETTE}),
    "int8": (COLOURS[..., 0].astype(np.int8), PACKED),
    "float16": (COLOURS[..., 0].astype(np.float16), PACKED),
    "uint64 in pages": (np.moveaxis(DEEP, 2, 0).astype(np.uint64), PACKED),
    "bits the other way round": (COLOURS[..., 0], {"compression": None, "extratags": [(266, "H", 1, 2, True)]}),
}


@pytest.mark.parametrize("name", TIFFS)
def test_a_tiff_has_the_pixels_that_tifffile_reads(name: str, tmp_path: Path) -> None:
    array, options = TIFFS[name]
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, array, **{"photometric": "minisblack", "metadata": None} | options)
    assert_as_tifffile_reads_it(path)


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
    path, packed = (tiff(tmp_path / f"{codec}.tif", array, nodata=-9999, compression=codec) for codec in (None, "zlib"))
    zarr.create_array(tmp_path / "a.zarr", data=array).attrs["_FillValue"] = -9999
    kept, replaced = [1, -9999, 3, 4], [1, 0, 3, 4]
    for each in (path, packed, tmp_path / "a.zarr"):
        assert Windows(each, size=2, nodata=0).read(0).ravel().tolist() == replaced
        assert Windows(each, size=2).read(0).ravel().tolist() == kept
    parts = Windows(path, path, size=2, nodata=0).read(0)
    assert [part.ravel().tolist() for part in parts] == [replaced, kept]
    assert Windows(path, path, size=2, nodata={"y": 255}).read(0)[1].ravel().tolist() == [1, 255, 3, 4]


@pytest.mark.parametrize(
    ("dtype", "text", "held"),
    [
        ("int16", "-32768", -32768),
        ("float32", "-3.4028234663852886e+38", np.finfo(np.float32).min),
        ("float32", "0.1", np.float32(0.1)),
        ("float32", "nan", np.nan),
        ("uint8", "-9999", None),
        ("uint16", "nan", None),
    ],
)
def test_no_data_is_what_the_pixels_can_hold(dtype: str, text: str, held: Any, tmp_path: Path) -> None:
    array = np.array([[1, 2], [3 if held is None else held, 4]]).astype(dtype)
    for codec in (None, "zlib"):
        path = tiff(tmp_path / "a.tif", array, nodata=text, compression=codec)
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
        moved, dropped = ([data.read(number) for number in range(len(data))] for data in made)
    tops, lefts = (range(0, whole - size + 1, stride) for whole in (high, wide))
    assert [int(each[0, 0, 0]) for each in dropped] == [y * wide + x for y in tops for x in lefts]
    assert moved[-1][-1, -1, 0] == scene[-1, -1]
    assert stride > size or set(np.concatenate(moved).ravel().tolist()) == set(scene.ravel().tolist())
    assert len({each[0, 0, 0] for each in moved}) == len(moved)


@pytest.mark.usefixtures("forked_nurseries")
def test_random_windows_with_their_masks_are_the_same_in_every_loader_and_new_in_each_epoch(tmp_path: Path) -> None:
    for name in "ab":
        tiled(tmp_path / "images" / f"{name}.tif")
        saved(tmp_path / "masks" / f"{name}.npy", SCENE[:, :, 0])
    image = tmp_path / "images"
    data = Windows({"image": image, "more": image}, tmp_path / "masks", size=16, random=6, bands={"more": (3,)})
    ops = [ap.RandomFlip(), ap.On("image", ap.Normalize([float(band) for band in range(6)], [2.0] * 6))]
    workload, found = ap.Workload(data=data, ops=ops, batch_size=4, seed=3), list[Any]()
    loaders = ap.Threads(workers=1), ap.Threads(workers=2), ap.Processes(workers=2), ap.TfData(num_parallel_calls=2)
    for loader in loaders:
        with ap.build_loader(workload, ap.PipelineConfig(loader=loader)) as made:
            batches = [(*x.values(), y) for epoch in (0, 1) for x, y in made.epoch(epoch)]
            found.append([np.concatenate(parts) for parts in zip(*batches, strict=True)])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    x, more, y = found[0]
    np.testing.assert_array_equal(x[..., 0] * 2, y)
    np.testing.assert_array_equal(x[..., 2:3] * 2 + 2, more)
    assert len({window.tobytes() for window in x}) == 24  # in either epoch twelve others


@pytest.mark.parametrize("library", ["np", "tf"])
def test_plain_code_reads_image_and_mask_of_one_place_at_random(library: Any, tmp_path: Path) -> None:
    image, mask = saved(tmp_path / "a.npy"), saved(tmp_path / "mask.npy", SCENE[:, :, 0])
    plan = planner.make_plan(ap.Workload(data=Windows(image, mask, size=16, random=8), ops=[], batch_size=4))
    (step,) = plan.steps
    scope = {"np": np, "x": np.array([3, 0]), "y": np.array([3, 1]), "rng": np.random.default_rng(0)}
    if library == "tf":
        import tensorflow

        scope["tf"] = tensorflow
    found: dict[str, Any] = {}
    exec("\n".join(step.op.plain(step, library)), scope | dict(step.op.plain_functions(step)), found)
    x, y = np.asarray(found["x"]), np.asarray(found["y"])
    np.testing.assert_array_equal(x[..., 0], y)
    assert x.shape == (16, 16, 6)


def test_what_is_chosen_anew_in_each_epoch_is_kept_as_unpacked_scenes_and_a_grid_as_arrays(tmp_path: Path) -> None:
    path, packed, against = saved(tmp_path / "a.npy"), tiled(tmp_path / "a.tif"), []
    for scene, random in ((path, 8), (packed, 8), (path, None)):
        workload = ap.Workload(data=Windows(scene, size=16, random=random), ops=[ap.RandomFlip()], batch_size=4)
        found = description.impossible_to_feed(workload, planner.make_plan(workload))
        against.append({each.value for each in found if each.parameter == "keep"})
    assert against == [{"memory", "array", "tfrecord", "encoded"}, *[{"tfrecord", "encoded"}] * 2]


def test_every_position_is_reached_at_random_and_none_beyond(tmp_path: Path) -> None:
    data, ends = Windows(saved(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4)), size=2, random=1), 1 - 2**-53
    places = [(down, across) for down in (0.0, 0.4, 0.6, ends) for across in (0.0, 0.4, 0.5, ends)]
    assert {data.at_random(0, 0, np.array(place))[0, 0, 0] for place in places} == {0, 1, 2, 4, 5, 6}


def test_what_is_random_validates_nothing_and_needs_autopipe_and_a_grid_does_not(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npy")
    workload = ap.Workload(data=Windows(path, size=16, random=8), ops=[ap.RandomFlip()], batch_size=4)
    assert [op.name for op in workload.ops] == ["RandomWindow", "RandomFlip"]
    with pytest.raises(PlainCodeError, match="`RandomWindow` reads by autopipe"):
        eject(workload, "keras")
    with pytest.raises(WorkloadError, match=r"the same samples each time.*Pass a grid"):
        assembly.for_evaluation(workload, Windows(path, size=16, random=2))
    over = assembly.for_evaluation(workload, Windows(path, size=16))
    assert (over.ops, planner.make_plan(over).finished.x.shape) == ((), (16, 16, 6))


def test_the_bytes_of_a_sample_are_those_of_a_window_also_at_random_positions(tmp_path: Path) -> None:
    image, mask = tiled(tmp_path / "a.tif"), saved(tmp_path / "mask.npy", SCENE[:, :, 0].astype(np.uint8))
    for random in (None, 5):
        data = Windows(image, mask, size=(10, 20), random=random, bands=(1, 4))
        assert source.mean_bytes(data) == 10 * 20 * (2 * 2 + 1)
    assert source.mean_bytes(Windows([image, saved(tmp_path / "b.npy", SCENE[:30])], size=(30, None))) == 30 * 90 * 12


def test_the_digest_is_that_of_a_folder_that_was_moved_and_tells_how_windows_are_cut(tmp_path: Path) -> None:
    saved(tmp_path / "one" / "a.npy")
    digest = source.digest(Windows(tmp_path / "one", size=16))
    (tmp_path / "one").rename(tmp_path / "two")
    assert source.digest(Windows(tmp_path / "two", size=16)) == digest
    for options in ({"stride": 8}, {"random": 20}, {"bands": (1,)}, {"edge": "dropped"}):
        assert source.digest(Windows(tmp_path / "two", **{"size": 16} | options)) != digest


# -------------------- scenes


def test_scenes_are_matched_by_what_wildcards_stand_for(tmp_path: Path) -> None:
    for number in (2, 10, 1, 3):
        if number != 3:
            saved(tmp_path / "x" / f"s{number}_image.npy", np.full((4, 4), number))
        saved(tmp_path / "y" / f"{number}" / "mask.npy", np.full((4, 4), number))
    data = Windows(tmp_path / "x" / "s*_image.npy", tmp_path / "y" / "*" / "mask.npy", size=4)
    found = [(int(image[0, 0, 0]), int(mask[0, 0])) for image, mask in map(data.read, range(len(data)))]
    assert sorted(found) == [(1, 1), (2, 2), (10, 10)]
    assert len(Windows(tmp_path / "**" / "*.npy", size=4)) == 7
    paths = [tmp_path / "x" / f"s{number}_image.npy" for number in (2, 1)]
    assert [Windows(paths, size=4).read(number)[0, 0, 0] for number in range(2)] == [2, 1]


def seen(path: Path, subset: Any, **options: Any) -> set[int]:
    """Return the voxels or pixels of a part of a split."""
    data = Windows(path, subset=subset, **options)
    return {int(each) for number in range(len(data)) for each in data.read(number).ravel()}


def test_parts_of_a_split_share_no_scene_or_no_pixel_and_make_up_the_whole(tmp_path: Path) -> None:
    for number in range(5):
        saved(tmp_path / "scenes" / f"{number}.npy", np.full((4, 6), number))
    volume = nii(tmp_path / "a.nii", np.arange(24, dtype=np.int16).reshape(6, 2, 2))
    by_scene: dict[str, Any] = {"size": 2, "validation_split": 0.2}
    by_window: dict[str, Any] = {"validation_split": 0.5, "split_by": "window", "seed": 0}
    for path, sizes, last, options in (
        (tmp_path / "scenes", [4, 1], {4}, by_scene),
        (tmp_path / "scenes", [4, 1], None, by_scene | {"seed": 1}),
        (saved(tmp_path / "a.npy", np.arange(24).reshape(4, 6)), [12, 12], None, {"size": 2} | by_window),
        (volume, [12, 12], None, {"size": (1, None, None)} | by_window),
    ):
        training, validation = (seen(path, subset, **options) for subset in ("training", "validation"))
        assert training | validation == set(range(sum(sizes)))
        assert [len(training), len(validation)] == sizes
        assert last in (None, validation)


# -------------------- files that change


def test_a_file_that_was_cut_short_or_replaced_is_named_with_the_window_and_others_are_read(tmp_path: Path) -> None:
    for path in (tiled(tmp_path / "a.tif"), saved(tmp_path / "a.npy"), tiff(tmp_path / "b.tif")):
        data = Windows(path, size=16)
        os.truncate(path, path.stat().st_size * 2 // 3)
        with pytest.raises(BadSampleError, match=f"{path.name}.*(cut short|read).*rows 54 to 70, columns 74 to 90"):
            data.read(len(data) - 1)
    np.testing.assert_array_equal(Windows(tmp_path / "a.tif", size=16).read(0), SCENE[:16, :16])
    data = Windows(saved(tmp_path / "a.npy"), size=64)
    saved(tmp_path / "a.npy", SCENE[:60])
    with pytest.raises(BadSampleError, match=r"a\.npy` was replaced: it has 60x90 .* had 70x90"):
        data.read(0)
