"""Windows at random positions that are cut out of scenes which are kept unpacked: the same batches as from the files,
in every loader and place, whatever happens to the files and to what is kept.
"""

import errno
import functools
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe.artifact import converting
from autopipe.extensions.raster import nifti, rasters
from autopipe.extensions.raster.windows import Windows
from autopipe.measure import description, fingerprint, formats
from autopipe.measure.description import PageCache
from autopipe.measure.session import TrialSession
from autopipe.pipeline import assembly
from autopipe.pipeline.assembly import batch_order
from autopipe.pipeline.batching import cache, kernel
from autopipe.pipeline.batching.cache import MemoryCache
from autopipe.pipeline.storage.array import Array
from autopipe.workload.data import source
from autopipe.workload.data.source import Subset
from autopipe.workload.ops import planner
from tests.extensions.raster import files
from tests.extensions.raster.files import SLICES, VOLUME, assert_same, every, pieces, saved, tiled
from tests.fakes import damage
from tests.fakes.facts import DESCRIBED
from tests.fakes.nifti import nii
from tests.fakes.reports import Told

SCENE = np.ascontiguousarray(files.SCENE[..., :3])
LOADERS = {
    "threads": ap.Threads(workers=2),
    "processes": ap.Processes(workers=2),
    "tfdata": ap.TfData(num_parallel_calls=2),
}


def scenes(root: Path, *, size: Any = (20, 24), random: int | None = 6, **options: Any) -> ap.Workload:
    """Write two scenes of unlike sizes, with masks in other tiles, unless they are there; cut them for ops that use
    the random numbers that follow those of the windows.
    """
    images, masks = root / "images", root / "masks"
    for name, high in () if images.exists() else (("a", 70), ("b", 41)):
        tiled(images / f"{name}.tif", SCENE[:high])
        tiled(masks / f"{name}.tif", (SCENE[:high, :, 0] % 7).astype(np.uint8), tile=(16, 48))
    data = Windows({"image": images, "mask": masks}, masks, size=size, random=random)
    ops = [ap.RandomFlip(), ap.On("image", ap.Normalize([1.0, 2.0, 3.0], [2.0] * 3))]
    return ap.Workload(data=data, ops=ops, batch_size=4, seed=3, converted=str(root / "converted"), **options)


def config(keep: str, loader: str = "threads") -> ap.PipelineConfig:
    return ap.PipelineConfig(loader=LOADERS[loader], keep=keep)


def parts(batch: Any) -> list[NDArray[Any]]:
    return [np.array(part) for part in ([*batch[0].values(), batch[1]] if isinstance(batch[0], dict) else batch)]


def batches(workload: ap.Workload, keep: str = "none", loader: str = "threads", epochs: int = 2) -> list[NDArray[Any]]:
    """Return the batches of the first epochs, and which samples were bad."""
    with ap.make_loader(workload, config(keep, loader)) as made:
        found = [part for epoch in range(epochs) for batch in made.epoch(epoch) for part in parts(batch)]
        return [*found, np.array(sorted(getattr(made, "bad_samples", {}).items()))]


@pytest.mark.usefixtures("forked_nurseries")
@pytest.mark.parametrize(
    ("size", "random", "name"),
    [
        *((size, 6, "threads") for size in ((20, 24), (32, 16), (40, 80), (41, 90), 1)),
        (16, None, "threads"),
        ((20, 24), 6, "tfdata"),
        ((20, 24), 6, "processes"),
    ],
)
def test_windows_are_the_same_out_of_what_is_kept(size: Any, random: int | None, name: str, tmp_path: Path) -> None:
    workload = scenes(tmp_path, size=size, random=random)
    wanted = batches(workload)
    for image, mask, y in zip(*(wanted[part:-1:3] for part in range(3)), strict=True):
        np.testing.assert_array_equal(mask[..., 0], y)
        np.testing.assert_array_equal((image[..., 0] * 2 + 1) % 7, y)
    seen = {window.tobytes() for batch in wanted[:-1:3] for window in batch}
    assert size != (20, 24) or len(seen) == 24  # in either epoch twelve others
    ap.convert(workload, to="array")
    for keep in ("none", "array", "memory", "memory:40%", "array+memory"):
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
        assert (unpacked, bool(caplog.messages)) == ([], seconds is not None)
        said += caplog.messages
        caplog.clear()
    found = source.pieces(workload.data)
    assert found is not None
    assert [f"{done} of {len(found)} pieces" in each for done, each in enumerate(said, 1)] == [True] * (len(found) - 1)


def test_the_memory_of_kept_scenes_is_known_beforehand_and_a_set_of_them_beside_an_artifact(tmp_path: Path) -> None:
    workload = scenes(tmp_path)
    plan, found = planner.make_plan(workload), source.pieces(workload.data)
    assert found is not None
    whole = len(found) * sum(part.nbytes for part in parts(found.read(0)))
    assert description.fixed_bytes(workload, plan) == whole
    assert 0 <= MemoryCache.bytes_needed(assembly.recipe_of(workload, config("memory"), plan)) - whole <= 1000
    cuts = {"first_ops": fingerprint.first_ops(plan), "cuts": description.cut_sizes(workload, plan)}
    assert cuts["cuts"] == {"array": {1: whole}}
    ap.convert(workload, to="array")
    for digest, is_known in ((source.digest(found), True), ("else", False)):
        described = DESCRIBED.model_copy(update={"pieces": (len(found), digest), **cuts})
        assert converting.is_beside(tmp_path, described, config("array")) == is_known


@pytest.mark.parametrize(
    ("size", "keep"), [((20, 16), "memory"), pytest.param((40, 24), "array", marks=pytest.mark.slow)]
)
def test_a_damaged_tile_spoils_its_own(size: Any, keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_TOLERATED_SHARE", 1.0)
    scenes(tmp_path)
    damage.blank(tmp_path / "images" / "a.tif", pieces(tmp_path / "images" / "a.tif")[8])
    with pytest.raises(ap.BadSampleError, match=r"a\.tif"):
        ap.convert(scenes(tmp_path, size=size), to="array")
    log = tmp_path / "bad.jsonl"
    workload = scenes(tmp_path, size=size, random=60, on_bad_sample="skip", bad_sample_log=str(log))
    wanted = batches(workload, epochs=1)
    assert wanted[-1].size
    assert "a.tif" in log.read_text()
    ap.convert(workload, to="array")
    assert_same(wanted, batches(workload, keep, epochs=1))


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
        with pytest.raises(ap.StorageError):
            kept(**other)
    os.utime(tiled(path, SCENE + 1), ns=(1, 1))
    with pytest.raises(ap.StorageError, match="times"):
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
    with pytest.raises(ap.StorageError, match="disk is full"):
        ap.convert(workload, to="array", workers=1)
    with pytest.raises(ap.StorageError):
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


@pytest.mark.parametrize("options", [{"random": 4}, {}, {"bands": (3, 1), "stride": 7}])
def test_windows_are_the_same_however_their_files_are_written(tmp_path: Path, options: Any) -> None:
    for at in range(3):
        tiled(tmp_path / f"{at}.tif")
    data, first = Windows(tmp_path / "*.tif", size=(20, 24), **options), list[Any]()
    for name, _, read in data.rewritten(tmp_path):
        rng = np.random.default_rng(0)
        found = [each for _ in range(5) for each in read(rng)]
        first = first or found
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
    with pytest.raises(ap.BadSampleError, match=r"a\.tif"):
        formats.formats(workload)


# -------------------- when a file is unpacked


def volumes(root: Path, count: int) -> list[Path]:
    return [nii(root / f"{number}.nii.gz", VOLUME + np.int16(number)) for number in range(count)]


def test_in_blocks_each_volume_is_unpacked_once_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked, whole = list[str](), nifti.unpacked

    def noted(path: str, *given: Any) -> Any:
        unpacked.append(Path(path).name)
        return whole(path, *given)

    monkeypatch.setattr(nifti, "unpacked", noted)
    monkeypatch.setattr("autopipe.extensions.raster.windows._WHOLE_BYTES", 2 * VOLUME.nbytes)
    paths, counts = volumes(tmp_path / "x", 6), []
    for shuffle in (ap.Blocks(mixed=2), True):
        data = Windows(paths, size=SLICES)
        unpacked.clear()
        for index in batch_order(ap.Workload(data=data, ops=[], batch_size=6, shuffle=shuffle)).epoch(0).tolist():
            data.read(index)
        counts.append(len(unpacked))
    assert counts[0] == 6 < 12 < counts[1]
    monkeypatch.setattr("autopipe.extensions.raster.windows._WHOLE_BYTES", 10)
    unpacked.clear()
    every(Windows(paths[:2], volumes(tmp_path / "y", 2), size=SLICES))
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

    assert [get(key) for key in "abacab"] == list("abacab")
    assert (get("large", 101), get("b"), made) == ("large", "b", ["a", "b", "c", "b", "large"])

    def fails() -> str:
        raise ap.BadSampleError("no")

    for _ in range(2):
        with pytest.raises(ap.BadSampleError, match="no"):
            kept.get("bad", fails, lambda _: 1)
    assert get("bad", 1) == "bad"


def test_blocks_are_volumes_of_any_size_also_of_a_part_of_the_samples(tmp_path: Path) -> None:
    paths = [nii(tmp_path / "a.nii", VOLUME), nii(tmp_path / "b.nii.gz", VOLUME[:3, :, :24])]
    data = Windows(paths, size=SLICES)
    assert [each.shape for each in every(data)] == [(20, 30, 1)] * 6 + [(20, 24, 1)] * 3
    parts = [Subset(data, 4), Subset(data, 1)]  # of four: slices 0, 2, 4 and 6
    assert [data.block_starts, *(part.block_starts for part in parts)] == [[0, 6], [0, 3], [0]]
    workload = ap.Workload(data=data, ops=[ap.CenterCrop(20, 20)], batch_size=3, shuffle=ap.Blocks(mixed=1))
    for epoch in range(5):
        order = batch_order(workload).epoch(epoch)
        assert np.count_nonzero(np.diff(order >= 6)) == 1
        assert sorted(order.tolist()) == list(range(9))
    split: dict[str, Any] = {"validation_split": 0.5, "subset": "training", "split_by": "window", "seed": 0}
    assert Windows(saved(tmp_path / "scene.npy", np.zeros((8, 8), np.uint8)), size=4, **split).block_starts == [0]
