"""Scenes and volumes behind URLs: the same windows as from a disk, of which only what is needed is read; and what is
said of servers that fail.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import tifffile

import autopipe as ap
from autopipe.extensions.raster.windows import Windows
from autopipe.measure import formats
from autopipe.measure.fingerprint import storage_of
from autopipe.workload.data import source
from tests.extensions.raster.files import SLICES, VOLUME, assert_same, every, saved
from tests.fakes.web import CUT, Server, serving

aiohttp = pytest.importorskip("aiohttp")

SCENE = np.random.default_rng(0).integers(0, 60_000, (512, 640, 3)).astype(np.uint16)
TILES = {"tile": (128, 128), "compression": "zlib", "photometric": "minisblack", "planarconfig": "contig"}


@pytest.fixture
def web() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def scene(web: Server, tmp_path: Path) -> str:
    """The URL of a scene with an overview, whose pages are in front, as GDAL lays out a COG. It is signed."""
    with tifffile.TiffWriter(tmp_path / "a.tif", bigtiff=True) as file:
        file.write(SCENE, **TILES)
        file.write(SCENE[::2, ::2], subfiletype=1, **TILES)
    web.files["/a.tif"] = (tmp_path / "a.tif").read_bytes()
    return f"{web.url}/a.tif?signature=hunter2"


def test_of_a_scene_a_window_reads_its_own_tiles_and_each_once(web: Server, scene: str, tmp_path: Path) -> None:
    data = Windows(scene, size=128, stride=64)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        tiles = dict(zip(file.pages.first.dataoffsets, file.pages.first.databytecounts, strict=True))
    data.read(0)
    web.asked.clear()
    np.testing.assert_array_equal(data.read(1), SCENE[:128, 64:192])
    (asked,) = web.asked
    assert tiles[asked[1]] == asked[2] - asked[1] + 1
    web.asked.clear()
    np.testing.assert_array_equal(data.read(14), SCENE[64:192, 320:448])
    assert len(web.asked) == 4
    assert {asked[1] for asked in web.asked} <= tiles.keys()
    assert (storage_of(data), data.files()) == ("http", [])


def test_every_kind_of_file_is_read_as_from_a_disk(web: Server, tmp_path: Path) -> None:
    few = SCENE[:70, :90]
    written: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("tiles.tif", few, {"tile": (128, 128), "compression": "lzw", "predictor": True}),
        ("plain.tif", few, {"photometric": "rgb", "byteorder": ">"}),
        ("planes.tif", few, {"planarconfig": "separate", "compression": "zlib", "rowsperstrip": 9}),
        *(("a.npy", few, {}), ("a.npz", few, {}), ("turned.npy", np.asfortranarray(few), {})),
        *(("v.nii", VOLUME, {}), ("v.nii.gz", VOLUME, {})),
        ("stack.tif", VOLUME, {"planarconfig": None, "compression": "zlib"}),
    )
    for name, array, options in written:
        path, is_volume = saved(tmp_path / name, array, **options), array is VOLUME
        web.files[f"/{name}"] = path.read_bytes()
        for size in (SLICES, (None, 1, None), (None, None, 1)) if is_volume else ((24, 31),):
            both: tuple[Any, ...] = (path, f"{web.url}/{name}")
            bands = None if is_volume else (3, 1)
            assert_same(*(every(Windows(place, size=size, bands=bands)) for place in both))


@pytest.mark.usefixtures("forked_nurseries")
def test_batches_are_those_of_files_on_a_disk(scene: str, tmp_path: Path) -> None:
    mask, found = saved(tmp_path / "mask.npy", (SCENE[..., 0] % 5).astype(np.uint8)), list[Any]()
    for place, loader, keep in (
        (tmp_path / "a.tif", ap.Threads(workers=1), "none"),
        (scene, ap.Threads(workers=2, read_ahead=4), "memory"),
        (scene, ap.Processes(workers=2), "none"),
    ):
        data = Windows(place, mask, size=96, random=8)
        workload = ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=4, seed=3)
        with ap.make_loader(workload, ap.PipelineConfig(loader=loader, keep=keep)) as made:
            found.append([np.array(part) for epoch in range(2) for batch in made.epoch(epoch) for part in batch])
        assert_same(found[0], found[-1])


def test_a_folder_and_a_pattern_of_a_bucket_are_listed(tmp_path: Path) -> None:
    bucket, system = f"memory://{uuid.uuid4().hex}", fsspec.filesystem("memory")
    for name in "ba":
        part = SCENE[:64, :64] + ord(name)
        for path in (
            saved(tmp_path / f"scenes/{name}.tif", part),
            saved(tmp_path / f"masks/{name}_mask.npy", part[..., 0]),
        ):
            system.pipe_file(f"{bucket}/{path.relative_to(tmp_path)}", path.read_bytes())
    system.pipe_file(f"{bucket}/scenes/readme.txt", b"no scene")
    data = Windows(f"{bucket}/scenes", f"{bucket}/masks/*_mask.npy", size=64)
    for (x, y), name in zip(every(data), "ab", strict=True):
        assert_same((x, y), (SCENE[:64, :64] + ord(name), x[..., 0]))
    with pytest.raises(ap.DataError, match="No scenes were found"):
        Windows(f"{bucket}/none*.tif", size=64)


def test_a_scene_that_changed_on_its_server_is_other_data_and_formats_know_its_size(web: Server, scene: str) -> None:
    before, size = source.digest(Windows(scene, size=128)), len(web.files["/a.tif"])
    assert source.digest(Windows(scene, size=128)) == before
    there, *_ = formats.formats(ap.Workload(data=Windows(scene, size=128), ops=[], batch_size=4)).forms
    assert there.bytes_per_image == pytest.approx(size * 128**2 / (512 * 640))
    web.files["/a.tif"] += bytes(8)
    assert source.digest(Windows(scene, size=128)) != before


# -------------------- servers that fail

FAILS: dict[str, Callable[[Server], object]] = {
    "breaks off": lambda web: web.broken.add("/a.tif"),
    "refuses": lambda web: web.status.update({"/a.tif": 503}),
    "hangs up": lambda web: web.status.update({"/a.tif": CUT}),
    "is silent": lambda web: web.may_answer.clear(),
}


@pytest.mark.parametrize(("fails", "random"), [*itertools.product(list(FAILS)[:3], [None, 4]), ("is silent", 4)])
def test_a_server_that_fails_is_named_with_the_window_and_no_sample_is_skipped(
    web: Server, scene: str, fails: str, random: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fails == "is silent":
        options = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=1)}}
        monkeypatch.setitem(fsspec.config.conf, "http", options)
    monkeypatch.setattr("autopipe.extensions.raster.windows._TILE_BYTES", 0)
    data = Windows(scene, size=128, random=random)
    workload = ap.Workload(data=data, ops=[], batch_size=2, on_bad_sample="skip", bad_sample_log="/dev/null")
    with ap.make_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2))) as loader:
        FAILS[fails](web)
        with pytest.raises(ap.DataError, match=r"/a\.tif.* cannot be read.*window of rows") as caught:
            list(loader.epoch(0))
    assert not isinstance(caught.value, ap.BadSampleError)
    assert "hunter2" not in str(caught.value)


def test_a_scene_that_is_gone_or_cut_short_since_is_a_bad_sample(web: Server, scene: str) -> None:
    data, fresh, whole = Windows(scene, size=128), Windows(scene, size=128), web.files.pop("/a.tif")
    with pytest.raises(ap.BadSampleError, match=r"/a\.tif.*does not exist"):
        fresh.read(0)
    for size, said in ((5000, r"/a\.tif.* (is cut short|ends before byte).* rows 384 to 512"), (-1, r"a\.tif")):
        web.files["/a.tif"] = whole
        data.read(0)
        web.files["/a.tif"] = whole[: size if size > 0 else len(whole) // 2]
        with pytest.raises(ap.BadSampleError, match=said):
            data.read(len(data) - 1)


def test_places_that_cannot_be_read_by_url_are_refused(web: Server, scene: str, tmp_path: Path) -> None:
    web.files |= {"/a.zarr": b"none", "/a.jp2": b"none", "/empty.tif": b"", "/text.tif": b"no raster at all"}
    for name, said in (
        ("*.tif", "cannot list"),
        ("a.zarr", "must be on a disk"),
        ("a.jp2", "by its ending"),
        ("none.tif", r"do not exist.*none\.tif"),
        ("empty.tif", r"empty\.tif"),
        ("text.tif", r"text\.tif` cannot be read as a raster"),
    ):
        with pytest.raises(ap.DataError, match=said):
            Windows(f"{web.url}/{name}", size=4)
    with pytest.raises(ap.DataError, match="All files must be URLs"):
        Windows([f"{web.url}/text.tif", tmp_path / "a.tif"], size=4)
    web.ranges = False
    with pytest.raises(ap.DataError, match=r"/a\.tif\?…` cannot send a part of a file") as caught:
        Windows(scene, size=128)
    assert "hunter2" not in str(caught.value)
