"""Windows at random positions that are cut out of scenes which are kept unpacked: the same batches as from the files,
in every loader and place, whatever happens to the files and to what is kept.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

import autopipe as ap
from autopipe.artifact import converting
from autopipe.errors import BadSampleError, StorageError
from autopipe.extensions.raster import rasters
from autopipe.extensions.raster.windows import Windows
from autopipe.measure import description, fingerprint, formats
from autopipe.measure.description import PageCache
from autopipe.measure.session import TrialSession
from autopipe.pipeline import assembly
from autopipe.pipeline.batching import cache, kernel
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.storage.array import Array
from autopipe.workload.data import source
from autopipe.workload.ops import planner
from tests.extensions.raster.test_windows import pieces
from tests.fakes import damage
from tests.fakes.facts import DESCRIBED
from tests.fakes.reports import Told

SCENE = np.random.default_rng(0).integers(0, 60_000, (70, 90, 3)).astype(np.uint16)
LOADERS = {
    "threads": ap.Threads(workers=2),
    "processes": ap.Processes(workers=2),
    "tfdata": ap.TfData(num_parallel_calls=2),
}
KEEPS = ("array", "memory", "memory:40%", "array+memory")


def tiff(path: Path, array: NDArray[Any] = SCENE, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {"tile": (32, 16), "compression": "zlib", "photometric": "minisblack", "metadata": None} | options
    tifffile.imwrite(path, array, planarconfig="contig" if array.ndim == 3 else None, **packed)
    return path


def write(root: Path) -> None:
    """Write two scenes of unlike sizes, with masks in other tiles."""
    for name, high in (("a", 70), ("b", 41)):
        tiff(root / "images" / f"{name}.tif", SCENE[:high])
        tiff(root / "masks" / f"{name}.tif", (SCENE[:high, :, 0] % 7).astype(np.uint8), tile=(16, 48))


def workload_of(root: Path, *, size: Any = (20, 24), random: int = 6, **options: Any) -> ap.Workload:
    """Return a workload whose ops use the random numbers that follow those of the windows."""
    data = Windows({"image": root / "images", "mask": root / "masks"}, root / "masks", size=size, random=random)
    ops = [ap.RandomFlip(), ap.On("image", ap.Normalize([1.0, 2.0, 3.0], [2.0] * 3))]
    return ap.Workload(data=data, ops=ops, batch_size=4, seed=3, converted=str(root / "converted"), **options)


def scenes(root: Path, **options: Any) -> ap.Workload:
    write(root)
    return workload_of(root, **options)


def batches(workload: ap.Workload, keep: str = "none", loader: Any = LOADERS["threads"]) -> list[NDArray[Any]]:
    with ap.build_loader(workload, ap.PipelineConfig(loader=loader, keep=keep)) as made:
        return [
            np.array(part)
            for epoch in range(2)
            for x, y in made.epoch(epoch)
            for part in ([*x.values(), y] if isinstance(x, dict) else [x, y])
        ]


def assert_same(wanted: list[NDArray[Any]], found: list[NDArray[Any]]) -> None:
    assert len(wanted) == len(found)
    for first, second in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("size", "name"),
    [
        *((size, "threads") for size in ((20, 24), (32, 16), (40, 80), (41, 90), 1)),
        ((20, 24), "tfdata"),
        pytest.param((20, 24), "processes", marks=pytest.mark.slow),
    ],
)
def test_windows_come_out_of_kept_scenes_as_out_of_their_files(size: Any, name: str, tmp_path: Path) -> None:
    workload = scenes(tmp_path, size=size)
    wanted = batches(workload)
    ap.convert(workload, to="array")
    for keep in KEEPS:
        assert_same(wanted, batches(workload, keep, LOADERS[name]))


def test_a_scene_is_unpacked_once_and_then_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiff(tmp_path / "a.tif")
    workload = ap.Workload(
        data=Windows(path, size=(20, 24), random=40), ops=[], batch_size=8, converted=str(tmp_path / "converted")
    )
    plan = planner.make_plan(workload)
    unpacked: list[tuple[int, int, int]] = []
    whole = rasters._Tiff.unpacked

    def counted(raster: rasters._Tiff, row: int, column: int, plane: int) -> NDArray[Any]:
        unpacked.append((row, column, plane))
        return whole(raster, row, column, plane)

    monkeypatch.setattr(rasters._Tiff, "unpacked", counted)
    opened = assembly.opener(workload, plan=plan)
    with opened(ap.PipelineConfig(loader=LOADERS["threads"], keep="memory")) as loader:
        assert loader.fill_seconds > 0
        seen = len(unpacked)
        list(loader.epoch(0))
    assert len(unpacked) == seen
    ap.convert(workload, to="array")
    seen = len(unpacked)
    batches_of(opened, "array")
    assert len(unpacked) == seen


def batches_of(opened: Any, keep: str) -> None:
    with opened(ap.PipelineConfig(loader=LOADERS["threads"], keep=keep)) as loader:
        list(loader.epoch(0))


def test_how_far_the_scenes_are_unpacked_is_said_before_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workload = scenes(tmp_path)
    batches(workload, "memory")
    assert not caplog.messages
    monkeypatch.setattr(cache, "_SAID_EVERY_SECONDS", 0.0)
    batches_of(assembly.opener(workload), "memory")
    pieces = source.pieces(workload.data)
    assert pieces is not None
    assert [f"{done} of {len(pieces)} pieces" in said for done, said in enumerate(caplog.messages, 1)] == [True] * (
        len(pieces) - 1
    )


def test_the_memory_of_kept_scenes_is_known_beforehand(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    plan = planner.make_plan(workload)
    recipe = assembly.recipe_of(workload, ap.PipelineConfig(loader=LOADERS["threads"], keep="memory"), plan)
    pieces = source.pieces(workload.data)
    assert pieces is not None
    each = sum(np.asarray(part).nbytes for part in (*pieces.read(0)[0].values(), pieces.read(0)[1]))
    assert description.fixed_bytes(workload, plan) == each * len(pieces)
    assert each * len(pieces) <= MemoryCache.bytes_needed(recipe) <= each * len(pieces) + 1000
    assert description.cut_sizes(workload, plan) == {"array": {1: each * len(pieces)}}


@pytest.mark.parametrize(
    ("size", "keep"), [((20, 16), "memory"), pytest.param((40, 24), "array", marks=pytest.mark.slow)]
)
def test_a_damaged_tile_spoils_the_windows_that_need_it_and_no_others(
    size: Any, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_TOLERATED_SHARE", 1.0)
    write(tmp_path)
    damage.blank(tmp_path / "images" / "a.tif", pieces(tmp_path / "images" / "a.tif")[8])
    workload = workload_of(tmp_path, size=size, random=60, on_bad_sample="skip", bad_sample_log=os.devnull)
    wanted, bad = skipping(workload, "none")
    assert bad
    ap.convert(workload, to="array")
    found, its_bad = skipping(workload, keep)
    assert its_bad == bad
    assert_same(wanted, found)


def skipping(workload: ap.Workload, keep: str) -> tuple[list[NDArray[Any]], dict[int, int]]:
    with ap.build_loader(workload, ap.PipelineConfig(loader=LOADERS["threads"], keep=keep)) as made:
        found = [np.array(part) for x, y in made.epoch(0) for part in (*x.values(), y)]
        return found, made.bad_samples  # type: ignore[attr-defined]


def test_a_damaged_scene_ends_the_conversion_unless_bad_samples_are_skipped(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    (tmp_path / "images" / "a.tif").write_bytes((tmp_path / "images" / "a.tif").read_bytes()[:-2000])
    with pytest.raises(BadSampleError, match=r"a\.tif"):
        ap.convert(workload, to="array")


def test_a_scene_that_changed_since_is_noticed(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    ap.convert(workload, to="array")
    batches(workload, "array")
    os.utime(tiff(tmp_path / "images" / "a.tif", SCENE + 1), ns=(1, 1))
    with pytest.raises(StorageError, match="times"):
        batches(workload_of(tmp_path), "array")


def test_scenes_kept_with_other_bands_or_for_other_sizes_are_no_others(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif")

    def of(**options: Any) -> ap.Workload:
        data = Windows(path, **{"size": 20, "random": 8, **options})
        return ap.Workload(data=data, ops=[], batch_size=4, converted=str(tmp_path / "converted"))

    ap.convert(of(), to="array")
    for same in ({}, {"random": 16}, {"size": (18, 30)}):
        batches_of(assembly.opener(of(**same)), "array")
    for other in ({"bands": (1, 2)}, {"size": 40}, {"nodata": 5}):
        with pytest.raises(StorageError):
            batches_of(assembly.opener(of(**other)), "array")


def test_a_disk_that_is_full_meanwhile_keeps_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = scenes(tmp_path)
    wanted, write, shards = batches(workload), Array.write_shard, list[int]()

    def full(form: Array, samples: Iterable[Any], spec: Any, to: Path) -> None:
        shards.append(len(shards))
        if len(shards) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(form, samples, spec, to)

    monkeypatch.setattr(Array, "write_shard", full)
    with pytest.raises(StorageError, match="disk is full"):
        ap.convert(workload, to="array", workers=1)
    with pytest.raises(StorageError):
        batches(workload, "array")
    monkeypatch.undo()
    assert ap.convert(workload, to="array").figures.kept > 0
    assert_same(wanted, batches(workload, "array"))


@pytest.mark.parametrize("keep", ["array", "memory"])
def test_a_trial_keeps_a_part_of_the_scenes_and_knows_what_share_it_is(keep: str, tmp_path: Path) -> None:
    tiff(tmp_path / "a.tif", np.tile(SCENE, (4, 1, 1)))
    data = Windows(tmp_path / "a.tif", size=16, random=64)
    session = TrialSession(ap.Workload(data=data, ops=[], batch_size=2))
    config = ap.PipelineConfig(loader=LOADERS["threads"], keep=keep)
    try:
        part = session.part(config, PageCache(data, "warm"), Told(), makes=6.0, trains=1e9, folder=str(tmp_path))
        whole, some = source.pieces(data), source.pieces(part.workload.data)
        assert whole is not None
        assert some is not None
        assert len(some) < len(whole) / 2
        assert part.share == len(some) / len(whole)
        assert len(part.workload.data) >= 8
        assert some.digest() != whole.digest()  # type: ignore[attr-defined]
        if part.conversion is not None:
            assert (part.conversion.samples, part.conversion.whole) == (len(some), len(whole))
        assert_same(batches(part.workload), batches(part.workload, keep))
    finally:
        session.close()


def test_a_set_beside_an_artifact_is_known_as_that_of_the_scenes(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    plan = planner.make_plan(workload)
    ap.convert(workload, to="array")
    whole = source.pieces(workload.data)
    assert whole is not None
    described = DESCRIBED.model_copy(
        update={
            "pieces": (len(whole), source.digest(whole)),
            "first_ops": fingerprint.first_ops(plan),
            "cuts": description.cut_sizes(workload, plan),
        }
    )
    config = ap.PipelineConfig(loader=LOADERS["threads"], keep="array")
    assert converting.is_beside(tmp_path, described, config)
    assert not converting.is_beside(tmp_path, described.model_copy(update={"pieces": (len(whole), "else")}), config)


WRITTEN = ("raw pixels", "TIFF, tiles of 256, zstd", "TIFF, tiles of 512, deflate", "Zarr, chunks of 256x256, lz4")


@pytest.mark.parametrize("options", [{"random": 4}, {}, {"bands": (3, 1), "stride": 7}])
def test_windows_are_the_same_however_their_files_are_written(tmp_path: Path, options: Any) -> None:
    write(tmp_path)
    data = Windows(tmp_path / "images", tmp_path / "masks", size=(20, 24), **options)
    first = None
    for name, _, read in data.rewritten(tmp_path):
        rng = np.random.default_rng(0)
        found = [each for _ in range(5) for each in read(rng)]
        first = first or found
        assert len(found) == 10
        for one, other in zip(first, found, strict=True):
            np.testing.assert_array_equal(one, other, strict=True, err_msg=str(name))


def test_formats_compare_scenes_as_they_are_with_other_files(tmp_path: Path) -> None:
    path = tiff(tmp_path / "a.tif", np.zeros((128, 128, 3), np.uint16), tile=(32, 32))
    workload = ap.Workload(data=Windows(path, size=32, random=12), ops=[], batch_size=4)
    forms = {form.name: form for form in formats.formats(workload).forms}
    assert {formats.AS_THEY_ARE, *WRITTEN} <= forms.keys()
    assert forms["raw pixels"].bytes_per_image == pytest.approx(32 * 32 * 3 * 2, rel=0.01)
    assert forms[formats.AS_THEY_ARE].bytes_per_image == path.stat().st_size / 16
    assert [each.name for each in tmp_path.iterdir()] == ["a.tif"]
    damage.truncate(path)
    with pytest.raises(BadSampleError, match=r"a\.tif"):
        formats.formats(workload)
