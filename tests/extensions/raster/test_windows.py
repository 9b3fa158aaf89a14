"""What `Windows` reads, how it cuts and splits scenes, and what it refuses. Its contract is in test_contract.py."""

from __future__ import annotations

import contextlib
import io
import math
import multiprocessing
import os
import pickle
import random as random_numbers
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
from autopipe.errors import BadSampleError, DataError, DataWarning, MissingExtraError, PlainCodeError, WorkloadError
from autopipe.extensions.raster import rasters
from autopipe.extensions.raster.windows import Windows
from autopipe.measure import description
from autopipe.pipeline import assembly
from autopipe.pipeline.eject.module import eject
from autopipe.workload.data import source
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind
from tests.fakes import damage

SCENE = np.random.default_rng(0).integers(0, 60_000, (70, 90, 6)).astype(np.uint16)
CODECS = [None, "zlib", "lzw", "zstd"]


def saved(path: Path, array: NDArray[Any] = SCENE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    return path


def tiff(path: Path, array: NDArray[Any] = SCENE, *, nodata: float | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if array.shape[2] == 1:
        array, options = array[:, :, 0], options | {"planarconfig": None}
    separate = options.get("planarconfig") == "separate"
    tags = [] if nodata is None else [(42113, "s", 0, str(nodata), True)]
    tifffile.imwrite(
        path, np.moveaxis(array, 2, 0) if separate else array, photometric="minisblack", extratags=tags, **options
    )
    return path


def tiled(path: Path, array: NDArray[Any] = SCENE, **options: Any) -> Path:
    chosen = {"planarconfig": "contig", "tile": (32, 16), "compression": "zlib"} | options
    return tiff(path, array, **chosen)


# -------------------- formats


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", [{"tile": (32, 16)}, {"rowsperstrip": 7}])
@pytest.mark.parametrize("planarconfig", ["contig", "separate"])
@pytest.mark.parametrize("options", [{}, {"bigtiff": True, "byteorder": ">"}])
def test_every_layout_of_a_tiff_gives_the_pixels_of_the_scene(
    codec: str | None, layout: dict[str, Any], planarconfig: str, options: dict[str, Any], tmp_path: Path
) -> None:
    predictor = codec is not None
    path = tiff(
        tmp_path / "a.tif",
        planarconfig=planarconfig,
        compression=codec,
        predictor=predictor,
        metadata=None,
        **layout,
        **options,
    )
    assert_pixels(Windows(path, size=(24, 31)))
    assert_pixels(Windows(path, size=24, bands=(5, 1, 2)), (5, 1, 2))


def assert_pixels(data: Windows, bands: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> None:
    high, wide = data.read(0).shape[:2]
    tops = [*range(0, 70 - high + 1, high), 70 - high]
    lefts = [*range(0, 90 - wide + 1, wide), 90 - wide]
    places = [(top, left) for top in dict.fromkeys(tops) for left in dict.fromkeys(lefts)]
    assert len(data) == len(places)
    for number, (top, left) in enumerate(places):
        found = data.read(number)
        np.testing.assert_array_equal(found, SCENE[top : top + high, left : left + wide, [band - 1 for band in bands]])
        assert found.dtype.isnative


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
@pytest.mark.parametrize("bands", [1, 3, 200])
def test_dtypes_and_numbers_of_bands_come_through(dtype: str, bands: int, tmp_path: Path) -> None:
    array = np.random.default_rng(1).integers(0, 100, (20, 30, bands)).astype(dtype)
    for path in (saved(tmp_path / "a.npy", array), tiled(tmp_path / "a.tif", array, tile=(16, 16))):
        found = Windows(path, size=(20, 30)).read(0)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_bands_in_pages_of_a_tiff_or_in_front_of_an_array_go_behind(compression: str | None, tmp_path: Path) -> None:
    turned = np.ascontiguousarray(np.moveaxis(SCENE, 2, 0))
    for name in ("a.tif", "a.ome.tif"):
        tifffile.imwrite(tmp_path / name, turned, photometric="minisblack", compression=compression)
        assert_pixels(Windows(tmp_path / name, size=24))
    saved(tmp_path / "a.npy", turned)
    np.savez_compressed(tmp_path / "a.npz", turned)
    zarr.create_array(tmp_path / "a.zarr", data=turned[None], chunks=(1, 4, 32, 32), shards=(1, 8, 64, 64))
    for name in ("a.npy", "a.npz", "a.zarr"):
        assert_pixels(Windows(tmp_path / name, size=24, bands_first=True))


@pytest.mark.parametrize("bands_first", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">u2", "<u2"])
def test_every_order_of_an_array_gives_its_pixels(order: Any, dtype: str, bands_first: bool, tmp_path: Path) -> None:
    for name, scene in (("a", SCENE), ("one", SCENE[:, :, :1])):
        turned = np.moveaxis(scene, 2, 0) if bands_first else scene
        saved(tmp_path / f"{name}.npy", np.array(turned, dtype, order=order))
        for side in (7, 40):  # of which rows are read in part, and as a whole
            data = Windows(tmp_path / f"{name}.npy", size=side, bands_first=bands_first)
            np.testing.assert_array_equal(data.read(0), scene[:side, :side])
            np.testing.assert_array_equal(data.read(len(data) - 1), scene[-side:, -side:])
    assert_pixels(Windows(tmp_path / "a.npy", size=24, bands=(6, 2), bands_first=bands_first), (6, 2))
    saved(tmp_path / "flat.npy", np.array(SCENE[:, :, 0], dtype, order=order))
    np.testing.assert_array_equal(Windows(tmp_path / "flat.npy", size=9).read(0), SCENE[:9, :9, :1])


@pytest.mark.parametrize("version", [2, 3])
def test_a_zarr_array_of_either_version_gives_the_pixels_of_the_scene(version: Any, tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=SCENE, chunks=(32, 50, 4), zarr_format=version)
    assert_pixels(Windows(tmp_path / "a.zarr", size=24))
    assert_pixels(Windows(tmp_path / "a.zarr", size=24, bands=(6, 2)), (6, 2))


def test_the_bytes_of_a_sample_are_those_of_a_window_also_at_random_positions(tmp_path: Path) -> None:
    image, mask = tiled(tmp_path / "a.tif"), saved(tmp_path / "mask.npy", SCENE[:, :, 0].astype(np.uint8))
    for random in (None, 5):
        data = Windows(image, mask, size=(10, 20), random=random, bands=(1, 4))
        assert source.mean_bytes(data) == 10 * 20 * (2 * 2 + 1)
    assert source.mean_bytes(Windows([image, saved(tmp_path / "b.npy", SCENE[:30])], size=(30, None))) == 30 * 90 * 12


def test_what_is_kept_has_its_bound_and_what_was_used_last_stays() -> None:
    kept, made = rasters.Kept(100), list[str]()

    def get(key: str, cost: int = 40) -> str:
        return kept.get(key, lambda: made.append(key) or key, lambda _: cost)  # type: ignore[func-returns-value]  # None, then

    for key in ("a", "b", "a", "c", "a", "b"):
        assert get(key) == key
    assert made == ["a", "b", "c", "b"]
    get("large", 101)
    get("b")
    assert made == ["a", "b", "c", "b", "large"]


def pieces(path: Path) -> tuple[int, ...]:
    """Return where the tiles or strips of a TIFF file begin."""
    with tifffile.TiffFile(path) as file:
        return tuple(file.pages.first.dataoffsets)


def test_planes_that_are_not_wanted_are_not_read(tmp_path: Path) -> None:
    data = Windows(tiff(tmp_path / "a.tif", planarconfig="separate", compression="zlib"), size=24, bands=(2,))
    damage.blank(tmp_path / "a.tif", pieces(tmp_path / "a.tif")[5])
    assert_pixels(data, (2,))
    with pytest.raises(BadSampleError, match=r"a\.tif"):
        Windows(tmp_path / "a.tif", size=24, bands=(6,)).read(0)


def test_a_tile_that_a_sparse_file_leaves_out_is_without_data(tmp_path: Path) -> None:
    path = tiled(tmp_path / "a.tif", nodata=9, bigtiff=True, metadata=None)
    with tifffile.TiffFile(path, mode="r+b") as file:
        page = file.pages.first
        for name in ("TileOffsets", "TileByteCounts"):
            values = list(page.tags[name].value)
            values[0] = 0
            page.tags[name].overwrite(values)
    wanted = SCENE.copy()
    wanted[:32, :16] = 9
    np.testing.assert_array_equal(Windows(path, size=(70, 90)).read(0), wanted)


# -------------------- windows


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 50))
def test_a_grid_covers_the_scene_and_stays_inside(high: int, wide: int, size: int, stride: int) -> None:
    size = min(size, high, wide)
    scene = np.arange(high * wide, dtype=np.float32).reshape(high, wide)
    with tempfile.TemporaryDirectory() as folder:  # of one run of the property: its fixtures are those of all runs
        path = saved(Path(folder) / "a.npy", scene)
        moved, dropped = (Windows(path, size=size, stride=stride, edge=edge) for edge in ("moved", "dropped"))
        tops, lefts = (range(0, whole - size + 1, stride) for whole in (high, wide))
        assert [int(dropped.read(n)[0, 0, 0]) for n in range(len(dropped))] == [
            y * wide + x for y in tops for x in lefts
        ]
        seen = np.concatenate([moved.read(n).ravel() for n in range(len(moved))])
        assert moved.read(len(moved) - 1)[-1, -1, 0] == scene[-1, -1]
        assert stride > size or set(seen.tolist()) == set(scene.ravel().tolist())
        assert len({moved.read(n)[0, 0, 0] for n in range(len(moved))}) == len(moved)


def batches(workload: ap.Workload, loader: Any, epochs: int = 2, keep: str = "none") -> list[list[Any]]:
    made = ap.build_loader(workload, ap.PipelineConfig(loader=loader, keep=keep))
    with made:
        return [[np.array(each[0]) for each in made.epoch(number)] for number in range(epochs)]


@pytest.mark.usefixtures("forked_nurseries")
def test_windows_at_random_positions_are_the_same_in_every_loader_and_new_in_each_epoch(tmp_path: Path) -> None:
    for name in "ab":
        tiled(tmp_path / "images" / f"{name}.tif")
        saved(tmp_path / "masks" / f"{name}.npy", SCENE[:, :, 0])
    data = Windows(tmp_path / "images", tmp_path / "masks", size=16, random=6)
    ops = [ap.RandomFlip(), ap.Normalize([float(band) for band in range(6)], [2.0] * 6)]
    workload = ap.Workload(data=data, ops=ops, batch_size=4, seed=3)
    one = batches(workload, ap.Threads(workers=2))
    for loader in (ap.Threads(workers=1), ap.Processes(workers=2), ap.TfData(num_parallel_calls=2)):
        for first, second in zip(one, batches(workload, loader), strict=True):
            np.testing.assert_array_equal(first, second)
    assert not np.array_equal(one[0], one[1])
    assert len({window.tobytes() for batch in one[0] for window in batch}) == 12


def test_a_mask_is_of_the_same_place_as_its_image(tmp_path: Path) -> None:
    image, mask = tiled(tmp_path / "a.tif"), saved(tmp_path / "mask.npy", SCENE[:, :, 0])
    data = Windows({"image": image, "more": image}, {"mask": mask}, size=16, random=8, bands={"more": (3,)})
    workload = ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=8, seed=1)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as loader:
        x, y = next(iter(loader.epoch(0)))
    np.testing.assert_array_equal(x["image"][..., 0], y["mask"])
    np.testing.assert_array_equal(x["image"][..., 2:3], x["more"])


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


def test_a_converted_grid_gives_the_same_batches(tmp_path: Path) -> None:
    for name in "ab":
        tiled(tmp_path / "images" / f"{name}.tif")
    workload = ap.Workload(
        data=Windows(tmp_path / "images", size=16, nodata=0),
        ops=[ap.RandomFlip()],
        batch_size=4,
        converted=str(tmp_path / "converted"),
    )
    wanted = batches(workload, ap.Threads(workers=1), epochs=1)
    ap.convert(workload, to="array")
    for keep in ("array", "memory", "array+memory"):
        for first, second in zip(wanted[0], batches(workload, ap.Threads(workers=2), 1, keep)[0], strict=True):
            np.testing.assert_array_equal(first, second)


def test_every_position_is_reached_at_random_and_none_beyond(tmp_path: Path) -> None:
    data = Windows(saved(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4)), size=2, random=1)
    corners = {
        data.at_random(0, 0, np.array([down, across]))[0, 0, 0]
        for down in (0.0, 0.4, 0.6, 1 - 2**-53)
        for across in (0.0, 0.4, 0.5, 1 - 2**-53)
    }
    assert corners == {0, 1, 2, 4, 5, 6}


def test_what_is_random_validates_nothing_and_needs_autopipe_and_a_grid_does_not(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npy")
    workload = ap.Workload(data=Windows(path, size=16, random=8), ops=[ap.RandomFlip()], batch_size=4)
    assert [op.name for op in workload.ops] == ["RandomWindow", "RandomFlip"]
    with pytest.raises(PlainCodeError, match="`RandomWindow` reads by autopipe"):
        eject(workload, "keras")
    with pytest.raises(WorkloadError, match=r"the same samples each time.*Pass a grid"):
        assembly.for_evaluation(workload, Windows(path, size=16, random=2))
    over = assembly.for_evaluation(workload, Windows(path, size=16))
    assert over.ops == ()
    assert planner.make_plan(over).finished.x.shape == (16, 16, 6)


def test_kinds_tell_images_from_targets_of_each_pixel(tmp_path: Path) -> None:
    path, mask = saved(tmp_path / "a.npy"), saved(tmp_path / "m.npy", SCENE[:, :, :1].astype(np.float32))
    data = Windows(path, mask, size=16)
    assert (data.x_kind, data.y_kind) == (FieldKind.IMAGE, FieldKind.MASK)
    assert data.read(0)[1].shape == (16, 16)
    assert Windows(path, path, size=16, bands={"y": (1, 2)}).read(0)[1].shape == (16, 16, 2)


# -------------------- scenes


def test_scenes_are_matched_by_what_wildcards_stand_for(tmp_path: Path) -> None:
    for number in (2, 10, 1):
        saved(tmp_path / "x" / f"s{number}_image.npy", np.full((4, 4), number))
        saved(tmp_path / "y" / f"{number}" / "mask.npy", np.full((4, 4), number))
    saved(tmp_path / "y" / "3" / "mask.npy", np.full((4, 4), 3))
    data = Windows(tmp_path / "x" / "s*_image.npy", tmp_path / "y" / "*" / "mask.npy", size=4)
    assert len(Windows(tmp_path / "**" / "*.npy", size=4)) == 7
    assert {int(image[0, 0, 0]) for image, _ in map(data.read, range(3))} == {1, 2, 10}
    assert all(image[0, 0, 0] == mask[0, 0] for image, mask in map(data.read, range(3)))
    paths = [tmp_path / "x" / f"s{number}_image.npy" for number in (2, 1)]
    assert [Windows(paths, size=4).read(number)[0, 0, 0] for number in range(2)] == [2, 1]


def test_parts_of_a_split_by_scene_share_no_scene_and_make_up_the_whole(tmp_path: Path) -> None:
    for number in range(5):
        saved(tmp_path / f"{number}.npy", np.full((4, 6), number))
    for seed, last in ((None, {4}), (1, None)):
        scenes = []
        for subset in ("training", "validation"):
            data = Windows(tmp_path, size=2, validation_split=0.2, subset=subset, seed=seed)
            scenes.append({int(data.read(number)[0, 0, 0]) for number in range(len(data))})
        assert scenes[0] | scenes[1] == set(range(5))
        assert not scenes[0] & scenes[1]
        assert last in (None, scenes[1])


def test_parts_of_a_split_by_window_share_no_pixel(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npy", np.arange(24).reshape(4, 6))
    parts = [
        Windows(path, size=2, validation_split=0.5, subset=subset, split_by="window", seed=0)
        for subset in ("training", "validation")
    ]
    seen = [{int(each) for n in range(len(part)) for each in part.read(n).ravel()} for part in parts]
    assert seen[0] | seen[1] == set(range(24))
    assert not seen[0] & seen[1]
    for options in ({"stride": 1}, {"size": (2, 4)}):
        with pytest.raises(DataError, match="do not overlap"):
            Windows(path, **{"size": 2} | options, validation_split=0.5, subset="training", split_by="window")


def test_pixels_without_data_are_given_another_value(tmp_path: Path) -> None:
    array = np.array([[[1], [-9999]], [[3], [4]]], np.int16)
    path = tiff(tmp_path / "a.tif", array, nodata=-9999, planarconfig="contig")
    packed = tiff(tmp_path / "b.tif", array, nodata=-9999, planarconfig="contig", compression="zlib")
    zarr.create_array(tmp_path / "a.zarr", data=array).attrs["_FillValue"] = -9999
    for each in (path, packed, tmp_path / "a.zarr"):
        assert Windows(each, size=2, nodata=0).read(0).ravel().tolist() == [1, 0, 3, 4]
        assert Windows(each, size=2).read(0).ravel().tolist() == [1, -9999, 3, 4]
    image, mask = Windows(path, path, size=2, nodata=0).read(0)
    assert (image.ravel().tolist(), mask.ravel().tolist()) == ([1, 0, 3, 4], [1, -9999, 3, 4])
    assert Windows(path, path, size=2, nodata={"y": 255}).read(0)[1].ravel().tolist() == [1, 255, 3, 4]
    holes = np.array([[[math.nan], [1]]], np.float32)
    path = tiff(tmp_path / "nan.tif", holes, nodata=math.nan, planarconfig="contig")
    assert Windows(path, size=(1, 2), nodata=-1).read(0).ravel().tolist() == [-1, 1]


# -------------------- refusals


def two(root: Path, **second: Any) -> Path:
    tiled(root / "a.tif", SCENE[:, :, :2])
    options = {"array": SCENE[:, :, :2]} | second
    tiled(root / "b.tif", **options)
    return root


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"array": SCENE[:, :, :1]}, r"same bands, but `.*a\.tif` has 2, and `.*b\.tif` has 1"),
        (
            {"array": SCENE[:, :, :2].astype(np.int16)},
            r"same dtype, but `.*a\.tif` has uint16, and `.*b\.tif` has int16",
        ),
        ({"nodata": 5}, r"same nodata, but `.*a\.tif` has None, and `.*b\.tif` has 5\.0.* nodata=0 replaces"),
        ({"array": SCENE[:20, :30, :2]}, r"size=\(32, 32\), and `.*b\.tif` has 20x30.*smaller windows"),
    ],
)
def test_rasters_that_differ_are_named_with_both_values(second: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        Windows(two(tmp_path, **second), size=32)


def test_bands_that_a_file_lacks_are_named_and_those_that_all_have_are_taken(tmp_path: Path) -> None:
    two(tmp_path, array=SCENE[:, :, :1])
    with pytest.raises(DataError, match=r"from 1 to 1 in `.*b\.tif`, but got 2"):
        Windows(tmp_path, size=32, bands=(2,))
    assert len(Windows(tmp_path, size=32, bands=(1,))) == 2 * 3 * 3


@pytest.mark.parametrize(
    ("crs", "left", "said"),
    [
        (32633, 500.0, None),
        (32633, 505.0, None),
        (32633, 560.0, r"\(32633, 560.0, 90.0, 10.0\) in `.*y.tif`"),
        (32632, 500.0, "32632"),
    ],
)
def test_a_mask_that_lies_elsewhere_on_earth_is_told(crs: int, left: float, said: str | None, tmp_path: Path) -> None:
    for name, number, edge in (("x", 32633, 500.0), ("y", crs, left)):
        tags = [
            (33550, "d", 3, (10.0, 10.0, 0.0), True),
            (33922, "d", 6, (0.0, 0.0, 0.0, edge, 90.0, 0.0), True),
            (34735, "H", 8, (1, 1, 0, 1, 3072, 0, 1, number), True),
        ]
        tifffile.imwrite(tmp_path / f"{name}.tif", SCENE[..., 0], extratags=tags, compression="zlib")
    with pytest.warns(DataWarning, match=said) if said else contextlib.nullcontext():
        Windows(tmp_path / "x.tif", tmp_path / "y.tif", size=24)
    Windows(tmp_path / "x.tif", saved(tmp_path / "y.npy", SCENE[..., 0]), size=24)  # which does not say where it lies


def test_a_part_of_another_size_or_without_a_scene_is_named(tmp_path: Path) -> None:
    image = tiled(tmp_path / "x" / "a.tif")
    mask = saved(tmp_path / "y" / "a.npy", SCENE[:60, :, 0])
    with pytest.raises(DataError, match=r"70x90 as `.*a\.tif`, but `.*a\.npy` has 60x90"):
        Windows(image, mask, size=16)
    tiled(tmp_path / "x" / "b.tif")
    with pytest.raises(DataError, match=r"needs its `y`, but 1 have none, such as `.*b\.tif`"):
        Windows(tmp_path / "x", tmp_path / "y", size=16)
    with pytest.raises(DataError, match="equally long, but have 2 and 1"):
        Windows([image, image], [mask], size=16)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"size": 0}, "`size` must be"),
        ({"stride": (1, 2, 3)}, "`stride` must be"),
        ({"edge": "cut"}, "`edge` must be"),
        ({"random": 0}, "`random` must be"),
        ({"bands": (0, 1)}, "numbers from 1"),
        ({"bands": {"z": (1,)}}, "`bands` must name parts, which are x, but got 'z'"),
        ({"nodata": -1}, "`nodata` must be a value of uint16"),
        ({"nodata": math.nan}, "`nodata` must be a value of uint16"),
        ({"nodata": {"mask": 0}}, "`nodata` must name parts, which are x, but got 'mask'"),
        ({"split_by": "pixel"}, "`split_by` must be"),
        ({"validation_split": 0.2}, "given together"),
        ({"validation_split": 0.2, "subset": "training"}, "leaves none"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        Windows(saved(tmp_path / "a.npy"), **{"size": 16} | arguments)


def test_places_without_scenes_are_named(tmp_path: Path) -> None:
    saved(tmp_path / "twice" / "a.npy")
    tiled(tmp_path / "twice" / "a.tif")
    with pytest.raises(DataError, match=r"one raster of each scene, but .*a\.npy` and .*a\.tif` are"):
        Windows(tmp_path / "twice", size=16)
    places: list[Any] = [tmp_path, tmp_path / "*.tif", []]
    for place in places:
        with pytest.raises(DataError, match="No scenes were found for `x`"):
            Windows(place, size=16)
    with pytest.raises(DataError, match=r"`.*none\.tif` does not exist"):
        Windows(tmp_path / "none.tif", size=16)
    (tmp_path / "a.jp2").write_bytes(b"")
    with pytest.raises(DataError, match="must be a raster, by its ending"):
        Windows(tmp_path / "a.jp2", size=16)


def test_files_that_hold_no_raster_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=SCENE, b=SCENE)
    zarr.create_group(tmp_path / "group.zarr").create_array("0", data=SCENE)
    saved(tmp_path / "flat.npy", np.zeros(5))
    saved(tmp_path / "complex.npy", np.zeros((5, 5), np.complex64))
    (tmp_path / "text.tif").write_text("no raster")
    for name, said in (
        ("two.npz", "must hold one array"),
        ("group.zarr", r"is a group; its arrays are 0.*\*\.zarr/0"),
        ("flat.npy", r"its shape is \(5,\)"),
        ("complex.npy", "its dtype is complex64"),
        ("text.tif", "cannot be read as a raster"),
    ):
        with pytest.raises(DataError, match=said) as raised:
            Windows(tmp_path / name, size=4)
        assert str(tmp_path / name) in str(raised.value)
    assert len(Windows(tmp_path / "*.zarr" / "0", size=16)) == 5 * 6


def test_a_missing_library_or_codec_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiled(tmp_path / "a.tif", compression="lzw")
    zarr.create_array(tmp_path / "a.zarr", data=SCENE)
    with monkeypatch.context() as patch:
        patch.setattr(type(tifffile.TIFF.DECOMPRESSORS), "__getitem__", _missing)
        with pytest.raises(DataError, match=r"compressed by LZW.*autopipe-tuner\[raster\]"):
            Windows(tmp_path / "a.tif", size=16)
    for module, name in (("tifffile", "a.tif"), ("zarr", "a.zarr")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=f"`{module}` is not installed; the extra `raster` brings it"):
            Windows(tmp_path / name, size=16)


def _missing(*_: object) -> Any:
    raise KeyError("LZW requires the 'imagecodecs' package")


def test_a_file_that_was_cut_short_is_named_with_the_window_and_others_are_read(tmp_path: Path) -> None:
    for path in (tiled(tmp_path / "a.tif"), saved(tmp_path / "a.npy"), tiff(tmp_path / "b.tif", planarconfig="contig")):
        data = Windows(path, size=16)
        os.truncate(path, path.stat().st_size * 2 // 3)
        with pytest.raises(BadSampleError, match=f"{path.name}.*(cut short|read).*rows 54 to 70, columns 74 to 90"):
            data.read(len(data) - 1)
    data = Windows(tiled(tmp_path / "c.tif"), size=16)
    os.truncate(tmp_path / "c.tif", (tmp_path / "c.tif").stat().st_size * 2 // 3)
    np.testing.assert_array_equal(data.read(0), SCENE[:16, :16])


def test_a_scene_that_was_replaced_by_another_is_named(tmp_path: Path) -> None:
    data = Windows(saved(tmp_path / "a.npy"), size=64)
    saved(tmp_path / "a.npy", SCENE[:60])
    with pytest.raises(BadSampleError, match=r"a\.npy` was replaced: it has 60x90 .* had 70x90"):
        data.read(0)


@pytest.mark.parametrize("random", [None, 9])
def test_a_bad_window_is_skipped_and_counted(random: int | None, tmp_path: Path) -> None:
    for name in ("a", "b"):
        tiled(tmp_path / f"{name}.tif", SCENE[:32])
    data = Windows(tmp_path, size=(32, 10), random=random)
    damage.blank(tmp_path / "a.tif", *pieces(tmp_path / "a.tif"), size=50)
    log = tmp_path / "bad.jsonl"
    workload = ap.Workload(data=data, ops=[], batch_size=9, on_bad_sample="skip", bad_sample_log=str(log), seed=1)
    with (
        ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=1))) as loader,
        pytest.raises(DataError, match=r"samples of epoch 0 are bad.*a\.tif"),
    ):
        list(loader.epoch(0))
    assert "a.tif" in log.read_text()


@pytest.mark.parametrize("name", ["a.tif", "b.tif", "a.npy", "a.npz"])
def test_whatever_is_wrong_with_a_damaged_file_is_told_with_its_name(name: str, tmp_path: Path) -> None:
    path, scene = tmp_path / name, SCENE[:40, :40, :3]
    write: dict[str, Any] = {
        "a.tif": lambda: tiled(path, scene, tile=(16, 16)),
        "b.tif": lambda: tiff(path, scene, planarconfig="separate", compression="lzw", rowsperstrip=8),
        "a.npy": lambda: saved(path, scene),
        "a.npz": lambda: np.savez_compressed(path, scene),
    }
    write[name]()
    assert damage.unnamed(lambda file: Windows(file, size=16), path, tries=60) == []


def test_whatever_is_wrong_with_a_zarr_array_is_told_with_its_name(tmp_path: Path) -> None:
    chance = random_numbers.Random(2)
    for version in (2, 3):
        path = tmp_path / f"{version}.zarr"
        zarr.create_array(path, data=SCENE[:20, :20, :2], chunks=(10, 10, 2), zarr_format=version)
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
def test_tags_of_a_tiff_that_lie_are_told_with_its_name(data: st.DataObject) -> None:
    """Each change is to a tag itself, which random bytes seldom hit."""
    content = bytearray(TAGGED)
    with tifffile.TiffFile(io.BytesIO(TAGGED)) as file:
        tag = data.draw(st.sampled_from(list(file.pages.first.tags)))
    place = tag.offset + data.draw(st.integers(0, 11))
    content[place] = data.draw(st.integers(0, 255))
    path = Path(f"/tmp/autopipe-{os.getpid()}-tagged.tif")
    path.write_bytes(content)
    try:
        assert damage.is_named(lambda file: Windows(file, size=8), path, lambda window: window.shape[:2] == (8, 8))
    finally:
        path.unlink()


def _tagged() -> bytes:
    content = io.BytesIO()
    scene = SCENE[:32, :32, :2]
    tifffile.imwrite(content, scene, tile=(16, 16), compression="zlib", photometric="minisblack", planarconfig="contig")
    return content.getvalue()


TAGGED = _tagged()


# -------------------- processes


def test_nothing_open_is_shared_with_a_forked_or_pickled_source(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=SCENE, chunks=(32, 50, 4))
    data = Windows([tiled(tmp_path / "a.tif"), tmp_path / "a.zarr"], size=32)
    wanted = [data.read(number) for number in range(len(data))]
    again = pickle.loads(pickle.dumps(data))
    assert len(pickle.dumps(data)) < 4000
    for number, window in enumerate(wanted):
        np.testing.assert_array_equal(again.read(number), window)
    here = data._kept
    data.read(0)
    assert data._kept is here is not None
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        np.testing.assert_array_equal(pool.map(data.read, range(len(data))), wanted)


def test_the_digest_is_that_of_a_folder_that_was_moved_and_tells_how_windows_are_cut(tmp_path: Path) -> None:
    saved(tmp_path / "one" / "a.npy")
    digest = source.digest(Windows(tmp_path / "one", size=16))
    (tmp_path / "one").rename(tmp_path / "two")
    assert source.digest(Windows(tmp_path / "two", size=16)) == digest
    for options in ({"stride": 8}, {"random": 20}, {"bands": (1,)}, {"edge": "dropped"}):
        assert source.digest(Windows(tmp_path / "two", **{"size": 16} | options)) != digest
