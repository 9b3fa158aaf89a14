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
from tests.extensions.raster.test_windows import pieces, tiled
from tests.fakes import damage
from tests.fakes.facts import DESCRIBED
from tests.fakes.reports import Told

SCENE = np.random.default_rng(0).integers(0, 60_000, (70, 90, 3)).astype(np.uint16)
LOADERS = {
    "threads": ap.Threads(workers=2),
    "processes": ap.Processes(workers=2),
    "tfdata": ap.TfData(num_parallel_calls=2),
}


def write(root: Path) -> None:
    """Write two scenes of unlike sizes, with masks in other tiles."""
    for name, high in (("a", 70), ("b", 41)):
        tiled(root / "images" / f"{name}.tif", SCENE[:high])
        tiled(root / "masks" / f"{name}.tif", (SCENE[:high, :, 0] % 7).astype(np.uint8), tile=(16, 48))


def workload_of(root: Path, *, size: Any = (20, 24), random: int | None = 6, **options: Any) -> ap.Workload:
    """Return a workload whose ops use the random numbers that follow those of the windows."""
    data = Windows({"image": root / "images", "mask": root / "masks"}, root / "masks", size=size, random=random)
    ops = [ap.RandomFlip(), ap.On("image", ap.Normalize([1.0, 2.0, 3.0], [2.0] * 3))]
    return ap.Workload(data=data, ops=ops, batch_size=4, seed=3, converted=str(root / "converted"), **options)


def scenes(root: Path, **options: Any) -> ap.Workload:
    write(root)
    return workload_of(root, **options)


def config(keep: str, loader: str = "threads") -> ap.PipelineConfig:
    return ap.PipelineConfig(loader=LOADERS[loader], keep=keep)


def parts(batch: Any) -> list[NDArray[Any]]:
    return [np.array(part) for part in ([*batch[0].values(), batch[1]] if isinstance(batch[0], dict) else batch)]


def batches(workload: ap.Workload, keep: str = "none", loader: str = "threads") -> list[NDArray[Any]]:
    with ap.build_loader(workload, config(keep, loader)) as made:
        return [part for epoch in range(2) for batch in made.epoch(epoch) for part in parts(batch)]


def assert_same(wanted: list[NDArray[Any]], found: list[NDArray[Any]]) -> None:
    for first, second in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("size", "random", "name"),
    [
        *((size, 6, "threads") for size in ((20, 24), (32, 16), (40, 80), (41, 90), 1)),
        (16, None, "threads"),
        ((20, 24), 6, "tfdata"),
        pytest.param((20, 24), 6, "processes", marks=pytest.mark.slow),
    ],
)
def test_windows_are_the_same_out_of_what_is_kept(size: Any, random: int | None, name: str, tmp_path: Path) -> None:
    workload = scenes(tmp_path, size=size, random=random)
    wanted = batches(workload)
    ap.convert(workload, to="array")
    for keep in ("array", "memory", "memory:40%", "array+memory"):
        assert_same(wanted, batches(workload, keep, name))


def test_a_scene_is_unpacked_once_and_then_no_more_and_it_is_said_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    workload, unpacked, whole = scenes(tmp_path), list[object](), rasters._Tiff.unpacked

    def counted(raster: rasters._Tiff, row: int, column: int, plane: int) -> NDArray[Any]:
        unpacked.append(row)
        return whole(raster, row, column, plane)

    monkeypatch.setattr(rasters._Tiff, "unpacked", counted)
    ap.convert(workload, to="array")
    said = list[str]()
    for keep, seconds in (("memory", None), ("memory", 0.0), ("array", None)):
        if seconds is not None:
            monkeypatch.setattr(cache, "_SAID_EVERY_SECONDS", seconds)
        with assembly.opener(workload)(config(keep)) as loader:
            assert loader.fill_seconds > 0 or keep == "array"
            unpacked.clear()
            list(loader.epoch(0))
        assert unpacked == []
        assert bool(caplog.messages) == (seconds is not None)
        said += caplog.messages
        caplog.clear()
    found = source.pieces(workload.data)
    assert found is not None
    assert [f"{done} of {len(found)} pieces" in each for done, each in enumerate(said, 1)] == [True] * (len(found) - 1)


def test_the_memory_of_kept_scenes_is_known_beforehand(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    plan, found = planner.make_plan(workload), source.pieces(workload.data)
    assert found is not None
    whole = len(found) * sum(part.nbytes for part in parts(found.read(0)))
    assert description.fixed_bytes(workload, plan) == whole
    needed = MemoryCache.bytes_needed(assembly.recipe_of(workload, config("memory"), plan))
    assert whole <= needed <= whole + 1000
    assert description.cut_sizes(workload, plan) == {"array": {1: whole}}


@pytest.mark.parametrize(
    ("size", "keep"), [((20, 16), "memory"), pytest.param((40, 24), "array", marks=pytest.mark.slow)]
)
def test_a_damaged_tile_spoils_its_own(size: Any, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_TOLERATED_SHARE", 1.0)
    write(tmp_path)
    damage.blank(tmp_path / "images" / "a.tif", pieces(tmp_path / "images" / "a.tif")[8])
    with pytest.raises(BadSampleError, match=r"a\.tif"):
        ap.convert(workload_of(tmp_path, size=size), to="array")
    log = tmp_path / "bad.jsonl"
    workload = workload_of(tmp_path, size=size, random=60, on_bad_sample="skip", bad_sample_log=str(log))
    wanted, bad = skipping(workload, "none")
    assert bad
    assert "a.tif" in log.read_text()
    ap.convert(workload, to="array")
    found, its_bad = skipping(workload, keep)
    assert its_bad == bad
    assert_same(wanted, found)


def skipping(workload: ap.Workload, keep: str) -> tuple[list[NDArray[Any]], dict[int, int]]:
    with ap.build_loader(workload, config(keep)) as made:
        found = [part for batch in made.epoch(0) for part in parts(batch)]
        return found, made.bad_samples  # type: ignore[attr-defined]


def test_scenes_that_changed_or_were_kept_with_other_bands_or_for_other_sizes_are_no_others(tmp_path: Path) -> None:
    path = tiled(tmp_path / "a.tif", SCENE)

    def kept(**options: Any) -> list[NDArray[Any]]:
        data = Windows(path, **{"size": 20, "random": 8, **options})
        workload = ap.Workload(data=data, ops=[], batch_size=4, converted=str(tmp_path / "converted"))
        if not (tmp_path / "converted").exists():
            ap.convert(workload, to="array")
        return batches(workload, "array")

    for same in ({}, {"random": 16}, {"size": (18, 30)}):
        assert kept(**same)
    for other in ({"bands": (1, 2)}, {"size": 40}, {"nodata": 5}):
        with pytest.raises(StorageError):
            kept(**other)
    os.utime(tiled(path, SCENE + 1), ns=(1, 1))
    with pytest.raises(StorageError, match="times"):
        kept()


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
    data = Windows(tiled(tmp_path / "a.tif", np.tile(SCENE, (4, 1, 1))), size=16, random=64)
    session = TrialSession(ap.Workload(data=data, ops=[], batch_size=2))
    try:
        warm, folder = PageCache(data, "warm"), str(tmp_path)
        part = session.part(config(keep), warm, Told(), makes=6.0, trains=1e9, folder=folder)
        whole: Any = source.pieces(data)
        some: Any = source.pieces(part.workload.data)
        assert (part.share, some.digest() == whole.digest()) == (len(some) / len(whole), False)
        assert part.share < 0.5
        assert len(part.workload.data) >= 8
        if part.conversion is not None:
            assert (part.conversion.samples, part.conversion.whole) == (len(some), len(whole))
        assert_same(batches(part.workload), batches(part.workload, keep))
    finally:
        session.close()


def test_a_set_beside_an_artifact_is_known_as_that_of_the_scenes(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    plan, whole = planner.make_plan(workload), source.pieces(workload.data)
    ap.convert(workload, to="array")
    assert whole is not None
    cuts = {"first_ops": fingerprint.first_ops(plan), "cuts": description.cut_sizes(workload, plan)}
    for digest, is_known in ((source.digest(whole), True), ("else", False)):
        described = DESCRIBED.model_copy(update={"pieces": (len(whole), digest), **cuts})
        assert converting.is_beside(tmp_path, described, config("array")) == is_known


@pytest.mark.parametrize("options", [{"random": 4}, {}, {"bands": (3, 1), "stride": 7}])
def test_windows_are_the_same_however_their_files_are_written(tmp_path: Path, options: Any) -> None:
    write(tmp_path)
    data, first = Windows(tmp_path / "images", tmp_path / "masks", size=(20, 24), **options), list[Any]()
    for name, _, read in data.rewritten(tmp_path):
        rng = np.random.default_rng(0)
        found = [each for _ in range(5) for each in read(rng)]
        first = first or found
        assert len(found) == 10
        for one, other in zip(first, found, strict=True):
            np.testing.assert_array_equal(one, other, strict=True, err_msg=str(name))


def test_formats_compare_scenes_as_they_are_with_other_files(tmp_path: Path) -> None:
    path = tiled(tmp_path / "a.tif", np.zeros((128, 128, 3), np.uint16), tile=(32, 32))
    workload = ap.Workload(data=Windows(path, size=32, random=12), ops=[], batch_size=4)
    found = {form.name: form.bytes_per_image for form in formats.formats(workload).forms}
    assert {"TIFF, tiles of 256, zstd", "TIFF, tiles of 512, deflate", "Zarr, chunks of 256x256, lz4"} <= found.keys()
    assert found["raw pixels"] == pytest.approx(32 * 32 * 3 * 2, rel=0.01)
    assert found[formats.AS_THEY_ARE] == path.stat().st_size / 16
    assert [each.name for each in tmp_path.iterdir()] == ["a.tif"]
    damage.truncate(path)
    with pytest.raises(BadSampleError, match=r"a\.tif"):
        formats.formats(workload)
