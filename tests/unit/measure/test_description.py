"""The state of the files, the part of the data for a trial, and the loader alone."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.hardware import disk
from autopipe.measure import description
from autopipe.measure.description import PageCache
from autopipe.measure.facts import LoaderCeiling, OpCost, ReadCosts
from autopipe.measure.session import Part, TrialSession
from autopipe.pipeline import assembly
from autopipe.pipeline.config import STORAGES, LoaderConfig, PipelineConfig
from autopipe.pipeline.storage.convert import convert
from autopipe.values import Estimate
from autopipe.workload.data.source import Subset
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.sample import Batch
from tests.fakes import ceilings
from tests.fakes.reports import Told

SMALL = ap.Arrays(np.zeros((2, 4, 4, 3), np.uint8), np.arange(2))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was done to which file."""
    done: list[tuple[str, str]] = []
    for name in ("warm", "drop"):
        monkeypatch.setattr(disk, name, lambda paths, name=name: done.extend((name, path.name) for path in paths))
    return done


def files(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).write_bytes(b"x")
    return [str(folder / name) for name in names]


@pytest.mark.parametrize("regime", ["warm", "cold"])
def test_warm_files_are_read_once_and_cold_ones_dropped_before_each_trial(
    regime: Any, tmp_path: Path, read: list[tuple[str, str]]
) -> None:
    pages, word = PageCache(SMALL, regime), {"warm": "warm", "cold": "drop"}[regime]
    pages.prepare([str(tmp_path), str(tmp_path / "gone")])
    assert read == []  # what is no file is left alone
    pages.prepare(files(tmp_path, "a", "b"))
    pages.prepare(files(tmp_path, "b", "b", "c"))
    assert sorted(read) == [(word, name) for name in ("abc" if regime == "warm" else "abbc")]
    read.clear()
    ticks = itertools.count(0, 15)
    pages = PageCache(SMALL, regime, clock=lambda: float(next(ticks)))
    many = files(tmp_path, *map(str, range(100)))
    for read_in_all in (64, 64 if regime == "warm" else 128):
        assert not pages.prepare(many)  # 20 seconds for all trials: no later one waits for the disk again
        assert len(read) == read_in_all
    assert pages.prepare(many[:64])


class Counted(ap.Arrays):
    looked, rows = 0, 10

    def digest(self) -> str:
        self.looked += 1
        return "files"

    def __len__(self) -> int:
        return self.rows

    def mean_bytes(self) -> float:
        return 1e6


def test_auto_is_cold_for_data_larger_than_memory_and_files_are_looked_at_once_however_many_trials_use_a_part() -> None:
    data = Counted(np.zeros((10, 2), np.float32), np.arange(10))
    assert [Subset(data, 5).digest() for _ in range(3)] == ["files subset=5"] * 3
    assert (data.looked, PageCache(data, "auto").regime) == (1, "warm")
    data.rows = 10**9
    assert PageCache(data, "auto").regime == "cold"


THREADS = ap.Threads(workers=1)


def of_rows(count: int, **more: Any) -> ap.Workload:
    data = ap.Arrays(np.zeros((count, 4, 4, 3), np.uint8), np.arange(count))
    return ap.Workload(data=data, ops=[ap.RandomFlip()], **{"batch_size": 10, **more})


@pytest.fixture
def session() -> Iterator[TrialSession]:
    with contextlib.closing(TrialSession(of_rows(1000))) as made:
        yield made


def part_of(session: TrialSession, config: PipelineConfig, told: Told | None = None, **known: Any) -> Part:
    return session.part(config, PageCache(SMALL, "warm"), told or Told(), **known)


def test_a_trial_uses_what_can_be_made_in_time(session: TrialSession) -> None:
    cases: list[tuple[LoaderConfig, Any, float, float, int]] = [
        (THREADS, "none", 1.0, 1.0, 1000),  # nothing has to be made
        (THREADS, "memory", 600.0, 300.0, 300),  # what is filled in 1.5 s while the model takes its own
        (THREADS, "memory", 1.0, 1.0, 40),  # some batches, however slow
        (ap.Resident(workers=2), "none", 600.0, 300.0, 900),  # what is made in 1.5 s before the model begins
    ]
    for loader, keep, makes, trains, samples in cases:
        part = part_of(session, ap.PipelineConfig(loader=loader, keep=keep), makes=makes, trains=trains)
        assert (len(part.workload.data), part.share, part.conversion) == (samples, samples / 1000, None)


def test_a_part_holds_whole_batches_as_what_is_left_over_would_be_read_beside_the_cache() -> None:
    for count, expected in ((1000, 256), (300, 256), (64, 64)):
        with contextlib.closing(TrialSession(of_rows(count, batch_size=64, drop_remainder=True))) as session:
            part = part_of(session, ap.PipelineConfig(loader=THREADS, keep="memory"), makes=600.0, trains=300.0)
        assert (len(part.workload.data), part.share) == (expected, expected / count)


@pytest.mark.parametrize("named", [False, True])
def test_a_form_is_written_once_to_the_folder_that_is_named_and_removed_at_the_end(
    session: TrialSession, named: bool, tmp_path: Path
) -> None:
    config, place = ap.PipelineConfig(loader=THREADS, keep="array"), str(tmp_path) if named else None
    first, second = (part_of(session, config, makes=100.0, trains=1e6, folder=place) for _ in range(2))
    assert first == second
    assert first.conversion is not None
    assert (first.conversion.samples, first.share) == (150, 0.15)
    folder = Path(first.workload.converted)
    assert folder.is_dir()
    assert folder.is_relative_to(tmp_path) is named
    session.close()
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_kept_set_of_other_data_is_told_of_and_one_of_these_is_not(tmp_path: Path) -> None:
    config, storage = ap.PipelineConfig(loader=THREADS, keep="array"), STORAGES["array"]
    for rows in (100, 101):
        workload = of_rows(rows, converted=str(tmp_path))
        if rows == 100:
            of_these = assembly.conversion_of(workload, make_plan(workload), storage)
            convert(of_these, storage, tmp_path / "array", workers=1)
        told = Told()
        with contextlib.closing(TrialSession(workload)) as session:
            part_of(session, config, told, makes=100.0, trains=1e6)
        said = "array` is of other data or ops, so a training with keep='array' stops"
        assert any(said in text for text in told.logs) is (rows > 100)


def test_what_can_be_made_in_time_depends_on_how_many_samples_are_read_at_a_time() -> None:
    """64 reads of 100 ms at a time feed what two of them cannot: the part for a cache would take half a minute."""
    alone = LoaderCeiling(loader_images_per_second=Estimate(value=600.0, low=590.0, high=610.0))
    waiting = alone.model_copy(update={"reads": ceilings.reads(10.0, 40.0, 160.0, 640.0)})
    for count, made in ((2, 20.0), (16, 160.0), (64, 600.0)):
        assert waiting.made_in_time(ap.PipelineConfig(loader=ap.Threads(workers=count)), cores=1) == made
    assert alone.made_in_time(ap.PipelineConfig(loader=THREADS), cores=1) == 600.0


# ---------------------------------------------------------------- the loader alone

S3 = ceilings.reads(10.0, 40.0, 160.0, 640.0, cpu=0.0005)


class Loader:
    """Batches of `size` that come after so many seconds each, by its own clock; on two cores, which work throughout."""

    def __init__(self, size: int, seconds: Iterable[float]) -> None:
        self.now, self.taken, self.size, self._seconds = 0.0, 0, size, iter(seconds)

    def clock(self) -> tuple[float, float]:
        return self.now, 2 * self.now

    def batches(self) -> Iterator[Batch]:
        for seconds in self._seconds:
            self.now += seconds
            self.taken += 1
            yield np.zeros((self.size, 1)), None

    def rate(self, workers: int) -> float:
        found, core_seconds = description.timed(self.batches(), workers, self.size, 0.6, clock=self.clock)
        assert core_seconds == pytest.approx(2 / found.value)
        return found.value


def size(op_seconds: float, workers: int, found: ReadCosts | None = None, read_ahead: int = 0) -> int:
    waits = 0.0 if found is None else found.wait_seconds
    ops = (
        OpCost(name="read", part="fixed", seconds_per_image=0.0005, wait_seconds_per_image=waits),
        OpCost(name="Decode", part="fixed", seconds_per_image=op_seconds),
    )
    return description.batch_size(256, ap.Threads(workers=workers, read_ahead=read_ahead), ops, found)


def test_a_storage_that_waits_and_slow_ops_are_timed_in_smaller_batches() -> None:
    """In batches of 256 it would be 78 s: 66 of them at first, and then 64 twice, of 640 images a second."""
    few = size(0.002, 64, S3, read_ahead=64)
    loader = Loader(few, itertools.repeat(few / 640))
    assert loader.rate(64) == pytest.approx(640)
    assert 3 < loader.now < 8
    assert 15 < size(0.1, 64) < 21
    assert (size(0.001, 2), size(60.0, 2)) == (256, 1)


def test_the_loader_alone_is_timed_over_whole_rounds_as_far_as_patience_goes() -> None:
    ends_together = itertools.cycle([4.0, *[0.0] * 63])
    for batch, seconds, workers, rate, taken in (
        (32, itertools.repeat(1 / 128), 2, 4096, 4 + 11 * 7),  # windows of 0.05 s and a little, until 0.6 s are over
        (32, itertools.repeat(0.5), 2, 64, 4 + 2 * 2),  # whole rounds
        (20, ends_together, 64, 20 * 64 / 4.0, 66 + 2 * 64),
        (20, itertools.repeat(2.0), 64, 10, 15),  # parts of a round: three times the patience in place of 388 s
    ):
        loader = Loader(batch, seconds)
        assert (loader.rate(workers), loader.taken) == pytest.approx((rate, taken))


def test_each_form_and_cut_has_its_size(photos: Path) -> None:
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()]
    made = ap.Workload(data=ap.Table(photos / "labels.csv"), ops=ops, batch_size=4)
    sizes = description.cut_sizes(made, make_plan(made))
    assert {name: list(cuts) for name, cuts in sizes.items()} == {"array": [1, 2], "tfrecord": [0]}
    assert sizes["array"][2] == 23 * (8 * 8 * 3 + 8)
    assert sizes["array"][1] > 23 * 40 * 60 * 3
    assert sizes["tfrecord"][0] > sum(path.stat().st_size for path in photos.glob("*.[jp][pn]g"))
