from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, DataError
from autopipe.hardware import disk
from autopipe.measure import op_costs
from autopipe.measure.description import PageCache
from autopipe.measure.facts import LoaderCeiling, ReadCosts
from autopipe.measure.op_costs import read_costs
from autopipe.measure.session import Part, Session
from autopipe.pipeline import assembly
from autopipe.pipeline.config import STORAGES, LoaderConfig, PipelineConfig
from autopipe.pipeline.storage.convert import convert
from autopipe.values import Estimate
from autopipe.workload.data.source import Subset
from autopipe.workload.ops.planner import make_plan
from tests.fakes import ceilings
from tests.fakes.reports import Told


@pytest.fixture(autouse=True)
def short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_costs, "_RUNG_SECONDS", 0.02)
    monkeypatch.setattr(op_costs, "_ALONE_SECONDS", 0.1)
    monkeypatch.setattr(op_costs, "_LADDER", (4, 16))  # more threads only take turns here


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


def test_warm_files_are_read_once_and_cold_ones_dropped_before_each_trial(
    tmp_path: Path, read: list[tuple[str, str]]
) -> None:
    warm, cold = PageCache(SMALL, "warm"), PageCache(SMALL, "cold")
    for pages in (warm, cold):
        pages.prepare([str(tmp_path), str(tmp_path / "gone")])
    assert read == []  # what is no file is left alone
    warm.prepare(files(tmp_path, "a", "b"))
    warm.prepare(files(tmp_path, "b", "b", "c"))
    assert sorted(read) == [("warm", "a"), ("warm", "b"), ("warm", "c")]
    read.clear()
    for _ in range(2):
        cold.prepare(files(tmp_path, "a"))
    assert read == [("drop", "a"), ("drop", "a")]


@pytest.mark.parametrize("regime", ["warm", "cold"])
def test_files_get_their_time_to_be_read_once_and_to_be_dropped_before_each_trial(
    regime: Any, tmp_path: Path, read: list[tuple[str, str]]
) -> None:
    ticks = itertools.count(0, 15)
    pages = PageCache(SMALL, regime, clock=lambda: float(next(ticks)))
    many = files(tmp_path, *map(str, range(100)))
    assert not pages.prepare(many)
    assert len(read) == 64
    assert not pages.prepare(many)  # 20 seconds for all trials: no later one waits for the disk again
    assert len(read) == (64 if regime == "warm" else 128)
    assert pages.prepare(many[:64])


def test_auto_is_cold_for_data_larger_than_memory_and_warm_for_others() -> None:
    class Huge(Source):
        def __len__(self) -> int:
            return 10**9

        def mean_bytes(self) -> float:
            return 1e6

    assert [PageCache(data, "auto").regime for data in (SMALL, Huge())] == ["warm", "cold"]


THREADS = ap.Threads(workers=1)


def test_the_files_of_the_whole_are_looked_at_once_however_many_trials_use_a_part() -> None:
    class Files(ap.Arrays):
        looked = 0

        def digest(self) -> str:
            self.looked += 1
            return "files"

    data = Files(np.zeros((10, 2), np.float32), np.arange(10))
    assert [Subset(data, 5).digest() for _ in range(3)] == ["files subset=5"] * 3
    assert data.looked == 1


@pytest.fixture
def session() -> Iterator[Session]:
    data = ap.Arrays(np.zeros((1000, 4, 4, 3), np.uint8), np.arange(1000))
    with contextlib.closing(Session(ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=10))) as made:
        yield made


def part_of(session: Session, config: PipelineConfig, told: Told | None = None, **known: Any) -> Part:
    return session.part(config, PageCache(SMALL, "warm"), told or Told(), **known)


@pytest.mark.parametrize(
    ("loader", "keep", "makes", "trains", "samples"),
    [
        (THREADS, "none", 1.0, 1.0, 1000),  # nothing has to be made
        (THREADS, "memory", 600.0, 300.0, 300),  # what is filled in 1.5 s while the model takes its own
        (THREADS, "memory", 1.0, 1.0, 40),  # some batches, however slow
        (ap.Resident(workers=2), "none", 600.0, 300.0, 900),  # what is made in 1.5 s before the model begins
    ],
)
def test_a_trial_uses_what_can_be_made_in_time(
    session: Session, loader: LoaderConfig, keep: Any, makes: float, trains: float, samples: int
) -> None:
    part = part_of(session, ap.PipelineConfig(loader=loader, keep=keep), makes=makes, trains=trains)
    assert (len(part.workload.data), part.share, part.conversion) == (samples, samples / 1000, None)


@pytest.mark.parametrize(("count", "expected"), [(1000, 256), (300, 256), (64, 64)])
def test_a_part_holds_whole_batches_as_what_is_left_over_would_be_read_beside_the_cache(
    count: int, expected: int
) -> None:
    data = ap.Arrays(np.zeros((count, 4, 4, 3), np.uint8), np.arange(count))
    workload = ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=64, drop_remainder=True)
    with contextlib.closing(Session(workload)) as session:
        config = ap.PipelineConfig(loader=THREADS, keep="memory")
        part = part_of(session, config, makes=600.0, trains=300.0)
    assert (len(part.workload.data), part.share) == (expected, expected / count)


@pytest.mark.parametrize("named", [False, True])
def test_a_form_is_written_once_to_the_folder_that_is_named_and_removed_at_the_end(
    session: Session, named: bool, tmp_path: Path
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
        data = ap.Arrays(np.zeros((rows, 4, 4, 3), np.uint8), np.arange(rows))
        workload = ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=10, converted=str(tmp_path))
        if rows == 100:
            of_these = assembly.conversion_of(workload, make_plan(workload), storage)
            convert(of_these, storage, tmp_path / "array", workers=1)
        told = Told()
        with contextlib.closing(Session(workload)) as session:
            part_of(session, config, told, makes=100.0, trains=1e6)
        said = "array` is of other data or ops, so a training with keep='array' stops"
        assert any(said in text for text in told.logs) is (rows > 100)


def test_what_can_be_made_in_time_depends_on_how_many_samples_are_read_at_a_time() -> None:
    """64 reads of 100 ms at a time feed what two of them cannot: the part for a cache would take half a minute."""
    alone = LoaderCeiling(loader_images_per_second=Estimate(value=600.0, low=590.0, high=610.0))
    waiting = alone.model_copy(update={"reads": ceilings.reads(10.0, 40.0, 160.0, 640.0)})

    def made(loader: LoaderCeiling, count: int) -> float:
        return loader.made_in_time(ap.PipelineConfig(loader=ap.Threads(workers=count)), cores=1)

    assert [made(waiting, count) for count in (2, 16, 64)] == [20.0, 160.0, 600.0]
    assert made(alone, 1) == 600.0


class Source:
    """Notes what is read, and by how many threads at a time."""

    def __init__(self, bad: set[int] | None = None) -> None:
        self.bad = bad or set()
        self.seen: list[int] = []
        self.threads: set[int] = set()

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> np.ndarray:
        self.seen.append(index)
        self.threads.add(threading.get_ident())
        if index in self.bad:
            raise BadSampleError("sample 0 is bad") if index == 0 else OSError(f"sample {index} has gone")
        return np.zeros(4, np.uint8)


def costs(source: Source, wall: float, busy: float, *, taken: float = 0.0, **more: Any) -> ReadCosts:
    """Return the costs of reads that take so long, one after the other."""
    ticks = ((number * wall, number * busy) for number in itertools.count())
    found = read_costs(source, range(10), 4.0, clock=lambda: next(ticks), taken=lambda: taken, **more)
    assert found is not None
    return found


def test_reads_that_do_not_wait_are_not_tried_side_by_side() -> None:
    source = Source()
    found = costs(source, 0.2, 0.2)
    assert (found.latency_seconds, found.cpu_seconds) == pytest.approx((0.2, 0.2))
    assert [rung.at_once for rung in found.rungs] == [1]
    assert not found.waits
    assert len(source.threads) == 1
    busy = costs(Source(), 0.004, 0.001, taken=2.0)  # put aside on a busy machine
    assert busy.latency_seconds == pytest.approx(0.001)


@pytest.mark.parametrize("wall", [0.02, pytest.param(2.5, marks=pytest.mark.slow)])
def test_reads_that_wait_are_tried_side_by_side_with_files_in_their_state_before_each_rung(wall: float) -> None:
    """What was dropped from memory once has come back with the rung before. Reads of seconds are tried, too."""
    source, before = Source(), list[int]()
    found = costs(source, wall, 0.001, prepare=lambda: before.append(len(source.seen)))
    assert found.waits
    assert found.wait_seconds == pytest.approx(wall - 0.001)
    assert [rung.at_once for rung in found.rungs][:2] == [1, 4]
    assert found.rungs[0].images_per_second == pytest.approx(1 / wall)
    assert (before[0], len(before)) == (0, len(found.rungs))
    assert before == sorted(set(before))


def test_bad_samples_are_passed_over() -> None:
    assert costs(Source(bad={0, 1}), 0.2, 0.2).latency_seconds == pytest.approx(0.2)
    assert read_costs(Source(bad={0}), [0], 4.0, taken=lambda: 0.0) is None


def test_an_error_that_is_not_the_fault_of_a_sample_is_raised() -> None:
    class Gone(Source):
        def read(self, index: int) -> np.ndarray:
            raise DataError("access is denied")

    with pytest.raises(DataError, match="denied"):
        read_costs(Gone(), range(3), 4.0)


class SeldomSlow(Source):
    """Reads that wait 5 ms, and one in fifty 200 ms."""

    def __len__(self) -> int:
        return 400

    def read(self, index: int) -> np.ndarray:
        threading.Event().wait(0.2 if index % 50 == 7 else 0.005)
        return super().read(index)

    def name(self, index: int) -> str:
        return f"photo {index}"


def test_reads_that_wait_are_enough_to_tell_of_one_in_fifty_that_takes_long() -> None:
    costs = (read_costs(SeldomSlow(), range(400), 4.0, taken=lambda: 0.0) for _ in range(5))
    tails = (each.tail for each in costs if each is not None and each.tail is not None)
    tail = next(each for each in tails if each.heavy)  # the machine itself may have stood still for a while
    assert tail.samples >= 200
    assert tail.p99_seconds >= 0.2
    assert int(tail.slowest.removeprefix("photo ")) % 50 == 7
