import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import autopipe as ap
from autopipe import native
from autopipe.hardware import machine as hardware
from autopipe.measure import op_costs as measure_op_costs
from autopipe.measure.facts import OpCost, ReadCosts, SampleTail
from autopipe.measure.op_costs import Turn, as_made, fitted, held_share, op_costs, read_costs, share, with_lock
from autopipe.workload.ops.planner import make_plan
from tests.fakes.commands import by_python
from tests.fakes.facts import known
from tests.fakes.sources import Made

FREE = Turn(wall=1.0, cpu=1.0)


def test_the_lock_is_what_does_not_scale_and_neither_memory_nor_other_programs() -> None:
    long, short, nothing = Turn(5.0, 5.0), Turn(1.0, 1.0), Turn(0.0, 0.0)
    for alone, together, free, threads, held in (
        (long, Turn(5.1, 5.0), FREE, 2, 0.0),  # it scales
        (long, Turn(10.0, 5.0), FREE, 2, 1.0),  # not at all
        (long, Turn(10.0, 5.0), FREE, 4, 0.5),  # of four threads it lets two through at a time
        (long, Turn(9.0, 9.0), FREE, 2, 0.0),  # a slow memory
        (Turn(20.1, 0.1), Turn(20.1, 0.1), FREE, 2, 0.0),  # it waits by itself
        (long, Turn(10.0, 5.0), Turn(2.0, 1.0), 2, 0.0),  # other programs take as much
        (short, Turn(9.0, 1.0), FREE, 2, 1.0),  # no share exceeds the whole
        (nothing, nothing, FREE, 2, 0.0),  # no time at all
    ):
        assert share(alone, together, free, threads) == pytest.approx(held)


def _call() -> None:
    """Stand for a function whose calls are made up."""


class Machine:
    """Calls of a millisecond that hold the lock for a part of it, on so many cores; notes how many run at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int, held: float, waits: float = 0.0) -> None:
        self.crews: list[int] = []
        self._held, self._waits = held, waits
        monkeypatch.setattr(hardware, "usable_cores", lambda: cores)
        monkeypatch.setattr(measure_op_costs, "_turn", self._run)

    def _run(self, call: Callable[[], object], threads: int, seconds: float) -> Turn:
        if call is not _call:
            return FREE
        self.crews.append(threads)
        return Turn(wall=max(0.001 + self._waits, threads * self._held * 0.001), cpu=0.001)


def test_the_more_cores_the_shorter_a_lock_is_seen_but_of_what_takes_long_or_waits_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cores, held, waits, seconds, seen, crews in (
        (1, 1.0, 0.0, 0.001, 0.0, []),
        (2, 1.0, 0.0, 0.001, 1.0, [1, 2]),
        (2, 0.15, 0.0, 0.001, 0.0, [1, 2]),
        (4, 0.15, 0.0, 0.001, 0.0, [1, 4]),
        (12, 0.15, 0.0, 0.001, 0.15, [1, 12]),
        (64, 0.15, 0.0, 0.001, 0.15, [1, 16]),
        (128, 0.01, 0.0, 0.001, 0.0, [1, 16]),
        # Of a storage that gives so much and no more, many would wait for each other as for a lock.
        (64, 0.15, 0.002, 0.003, 0.0, [1, 4]),
        (64, 1.0, 0.0, 0.5, 1.0, [1, 4]),
    ):
        machine = Machine(monkeypatch, cores, held, waits)
        assert held_share(_call, seconds) == pytest.approx(seen)
        assert machine.crews == crews


SINGLE = tuple(
    OpCost(name=name, part=part, seconds_per_image=seconds)  # type: ignore[arg-type]
    for name, part, seconds in (
        ("read", "fixed", 0.1), ("Decode", "fixed", 0.5), ("RandomFlip", "fresh", 0.2), ("Rescale", "finish", 0.3))
)  # fmt: skip


def total(found: Iterable[OpCost], *parts: str) -> float:
    return sum(cost.seconds_per_image for cost in found if cost.part in parts)


def clock_of(steps: Iterable[tuple[float, float]]) -> Callable[[], tuple[float, float]]:
    """Return a clock that goes on by these seconds, wall and processor, each time it is looked at."""
    return map(tuple, itertools.accumulate(map(np.array, steps))).__next__


def looks(rows: Iterable[Sequence[tuple[float, float]]]) -> Iterator[tuple[float, float]]:
    """Yield what goes by between the looks of `op_costs`: once at the beginning, then a row for each sample."""
    yield 0.0, 0.0
    for number, row in enumerate(rows):
        yield from [(0.0, 0.0), *row, *[(0.0, 0.0)] * (number >= 7)]  # from the eighth on it asks whether time is up


def timed(
    rows: Sequence[Sequence[tuple[float, float]]], *, seconds: float = 9.0, taken: float = 0.0
) -> tuple[tuple[OpCost, ...], SampleTail]:
    """Return the costs of samples whose reads and flips take so long, wall and processor."""
    data = ap.Arrays(np.zeros((count := len(rows), 8, 8, 3), np.uint8), np.arange(count))
    workload, clock = ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=2), clock_of(looks(rows))
    return op_costs(workload, make_plan(workload), range(count), seconds=seconds, taken=lambda: taken, clock=clock)


def test_each_op_is_timed_and_told_by_where_it_may_run() -> None:
    workload = _mixed(ap.RandomFlip(), ap.Rescale(1 / 255))
    clock = clock_of(itertools.repeat((1.0, 1.0)))
    found = op_costs(workload, make_plan(workload), range(4), taken=lambda: 0.0, clock=clock)[0]
    parts = [("read", "fixed"), ("Resize", "fixed"), ("RandomFlip", "fresh"), ("Rescale", "finish")]
    assert [(cost.name, cost.part) for cost in found] == parts
    assert {(cost.seconds_per_image, cost.wait_seconds_per_image) for cost in found} == {(1.0, 0.0)}


def test_what_waits_in_most_samples_and_longer_than_any_thread_on_a_busy_machine_waits_by_itself() -> None:
    read, flip = timed([[(0.021, 0.001), (0.011 if number == 3 else 0.001, 0.001)] for number in range(10)])[0]
    assert (read.wait_seconds_per_image, read.seconds_per_image) == pytest.approx((0.020, 0.001))
    assert (read.wall_seconds_per_image, flip.wait_seconds_per_image) == pytest.approx((0.021, 0.0))
    read, flip = timed([[(0.050, 0.001), (0.004, 0.001)]] * 10, taken=2.0)[0]
    assert (read.wait_seconds_per_image, flip.wait_seconds_per_image) == pytest.approx((0.049, 0.0))


def test_a_heavy_tail_is_told_by_the_name_of_its_slowest_and_a_few_samples_are_enough_when_time_is_up() -> None:
    tail = timed([[(0.3 if number == 70 else 0.001, 0.001), (0.0, 0.0)] for number in range(200)])[1]
    assert (tail.samples, tail.slowest, tail.heavy) == (200, "row 70 of uint8[200, 8, 8, 3]", True)
    assert (tail.p50_seconds, tail.slowest_share) == pytest.approx((0.001, 0.301 / 0.499), rel=0.01)
    equal = timed([[(0.001, 0.001), (0.0, 0.0)]] * 200)[1]
    assert (equal.heavy, equal.slowest_share) == pytest.approx((False, 0.01))
    assert timed([[(1.0, 1.0), (1.0, 1.0)]] * 50, seconds=0.5)[1].samples == 8


def brighter(image: Any) -> Any:
    return np.minimum(image, 250) + 5


def _mixed(*ops: ap.Op) -> ap.Workload:
    data = ap.Arrays(np.zeros((4, 9, 9, 3), np.uint8), np.arange(4))
    return ap.Workload(data=data, ops=[ap.Resize(8, 8), *ops], batch_size=2)


NATIVE = pytest.mark.skipif(native.why_not() is not None, reason="there is no native library")


@NATIVE
def test_what_python_does_to_each_sample_is_told_by_name() -> None:
    mapped = ap.Map(lambda image: image)
    for ops, python in (
        ([ap.RandomFlip()], []),
        ([ap.Map(brighter), ap.RandomFlip()], ["Map(brighter)"]),
        ([ap.RandomFlip(), mapped], ["Map"]),
        ([ap.Rescale(1 / 255), ap.OneHot(4), ap.MixUp(0.2)], []),
    ):
        found = op_costs(workload := _mixed(*ops), make_plan(workload), range(4))[0]
        assert [cost.name for cost in found if not cost.native] == python


def test_without_the_native_library_each_op_is_python() -> None:
    workload = _mixed(ap.RandomFlip())
    with by_python():
        found = op_costs(workload, make_plan(workload), range(4))[0]
        assert [cost.native for cost in found[1:]] == [False, False]
        assert as_made(found, workload, make_plan(workload), range(4)) == found


@NATIVE
def test_a_native_op_costs_what_the_library_takes_longer_with_it_and_others_what_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload = _mixed(ap.RandomFlip(), ap.RandomFlip(vertical=True), ap.Map(brighter), ap.RandomFlip())
    plan = make_plan(workload)
    before = op_costs(workload, plan, range(4))[0]
    seconds = itertools.cycle([0.0, 4.0, 12.0, 36.0])  # of four samples
    monkeypatch.setattr(time, "thread_time", itertools.accumulate(seconds).__next__)
    after = as_made(before, workload, plan, range(4))
    costs = [cost.seconds_per_image for cost in after]
    assert [costs[0] + costs[1], *costs[2:4]] == pytest.approx([1.0, 2.0, 6.0])
    assert costs[0] / costs[1] == pytest.approx(before[0].seconds_per_image / before[1].seconds_per_image)
    assert after[4] == before[4]
    python = sum(cost.seconds_per_image for cost in before[:4])
    assert costs[5] / before[5].seconds_per_image == pytest.approx(9.0 / python)  # behind what Python does


@NATIVE
def test_ops_on_images_of_all_sizes_share_what_the_library_takes_until_they_are_of_one_size(tmp_path: Path) -> None:
    files = [tmp_path / "a" / f"{number}.jpg" for number in range(2)]
    files[0].parent.mkdir()
    for number, file in enumerate(files):
        cv2.imwrite(str(file), np.zeros((9 + number, 9, 3), np.uint8))
    ops = [ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()]
    workload = ap.Workload(data=ap.ImageFolder(tmp_path), ops=ops, batch_size=2)
    plan = make_plan(workload)
    before = op_costs(workload, plan, range(2))[0]
    first, made = (
        np.array([cost.seconds_per_image for cost in each][:3])
        for each in (before, as_made(before, workload, plan, [0, 1]))
    )
    assert made / made.sum() == pytest.approx(first / first.sum())
    for file in files:
        file.write_bytes(b"no image")
    assert as_made(before, workload, plan, [0, 1]) == before  # of samples that the library cannot make


def test_the_lock_is_asked_of_every_op_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = _mixed(ap.RandomFlip(), ap.Map(brighter))
    plan, asked = make_plan(workload), list[float]()

    def held_share(call: Callable[[], object], seconds: float) -> float:
        call()
        asked.append(seconds)
        return 0.5

    monkeypatch.setattr(measure_op_costs, "held_share", held_share)
    single = tuple(
        cost.model_copy(update={"native": cost.name != "Map(brighter)"})
        for cost in op_costs(workload, plan, range(4))[0]
    )
    native = tuple(cost.model_copy(update={"native": True}) for cost in single)
    assert with_lock(native, workload, plan, range(4)) == native
    signs: list[str] = []
    found = with_lock(single, workload, plan, range(4), lambda: signs.append("alive"))
    assert len(signs) == len(plan.steps)
    assert asked == [single[-1].wall_seconds_per_image]
    assert [cost.lock_seconds_per_image for cost in found] == [0, 0, 0, 0.5 * single[-1].seconds_per_image]


def broken(index: int) -> Any:
    if index:
        raise ap.BadSampleError("sample 1 is bad") if index == 1 else OSError("sample 2 has gone")
    return np.zeros((4, 4, 3), np.uint8)


def test_bad_samples_are_passed_over_and_without_others_the_lock_stays_unknown() -> None:
    workload = ap.Workload(data=Made(3, broken), ops=[], batch_size=1, on_bad_sample="skip")
    plan = make_plan(workload)
    assert op_costs(workload, plan, [1, 0, 2])[0][0].name == "read"
    with pytest.raises(ap.BadSampleError, match="none of 2 samples"):
        op_costs(workload, plan, [1, 2])
    assert with_lock(SINGLE[:1], workload, plan, [1, 2]) == SINGLE[:1]


def test_costs_add_up_to_what_the_loader_took_with_all_cores_busy() -> None:
    found = fitted(SINGLE, whole=1.0, cached=0.3)
    seconds = {"read": 0.7 / 6, "Decode": 0.7 * 5 / 6, "RandomFlip": 0.2, "Rescale": 0.3, "batching": 0.1}
    assert {cost.name: cost.seconds_per_image for cost in found} == pytest.approx(seconds)
    assert (total(found, "fixed", "fresh"), total(found, "fresh")) == pytest.approx((1.0, 0.3))  # whole, and cached
    more = {"wait_seconds_per_image": 9.0, "lock_seconds_per_image": 0.05}
    read = fitted((SINGLE[0].model_copy(update=more), *SINGLE[1:]), whole=1.6, cached=None)[0]
    waits, holds = read.wait_seconds_per_image, read.lock_seconds_per_image
    assert (waits, holds) == pytest.approx((9.0, 0.5 * read.seconds_per_image))


def test_odd_figures_still_add_up_and_none_is_negative() -> None:
    for whole, cached in ((0.6, None), (1.2, None), (0.6, 0.1), (0.15, 0.1), (0.5, 0.7)):
        found = fitted(SINGLE, whole=whole, cached=cached)
        assert total(found, "fixed", "fresh") == pytest.approx(whole)
        assert min(cost.seconds_per_image for cost in found) >= 0


# ---------------------------------------------------------------- reads


@pytest.fixture(autouse=True)
def short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_op_costs, "_RUNG_SECONDS", 0.02)
    monkeypatch.setattr(measure_op_costs, "_ALONE_SECONDS", 0.1)
    monkeypatch.setattr(measure_op_costs, "_LADDER", (4, 16))  # more threads only take turns here


class Noting:
    def __init__(self, bad: set[int] | None = None) -> None:
        self.bad, self.waits, self.seen, self.threads = bad or set(), 0.0, list[int](), set[int]()

    def __len__(self) -> int:
        return 10

    def read(self, index: int) -> np.ndarray:
        self.seen.append(index)
        threading.Event().wait(self.waits)
        self.threads.add(threading.get_ident())
        if index in self.bad:
            raise ap.BadSampleError("sample 0 is bad") if index == 0 else OSError(f"sample {index} has gone")
        return np.zeros(4, np.uint8)


def costs_of_reads(source: Noting, wall: float, busy: float, *, taken: float = 0.0, **more: Any) -> ReadCosts:
    ticks = ((number * wall, number * busy) for number in itertools.count())
    found = read_costs(source, range(10), 4.0, clock=lambda: next(ticks), taken=lambda: taken, **more)
    assert found is not None
    return found


def test_reads_that_do_not_wait_are_not_tried_side_by_side() -> None:
    source = Noting()
    found = costs_of_reads(source, 0.2, 0.2)
    assert (found.latency_seconds, found.cpu_seconds) == pytest.approx((0.2, 0.2))
    assert ([rung.at_once for rung in found.rungs], found.waits, len(source.threads)) == ([1], False, 1)
    busy = costs_of_reads(Noting(), 0.004, 0.001, taken=2.0)  # put aside on a busy machine
    assert busy.latency_seconds == pytest.approx(0.001)


def test_reads_that_wait_are_tried_side_by_side_with_files_in_their_state_before_each_rung() -> None:
    """What was dropped from memory once has come back with the rung before."""
    source, before = Noting(), list[int]()
    source.waits = 0.005
    found = costs_of_reads(source, 0.02, 0.001, prepare=lambda: before.append(len(source.seen)))
    assert (found.waits, found.wait_seconds) == pytest.approx((True, 0.019))
    assert [rung.at_once for rung in found.rungs][:2] == [1, 4]
    assert found.rungs[0].images_per_second == pytest.approx(50)
    assert (before[0], len(before), sorted(set(before))) == (0, len(found.rungs), before)
    assert known(found.tail).samples >= 200  # so many that one in fifty which takes long is seen


def test_bad_reads_are_passed_over_and_what_is_not_the_fault_of_a_sample_is_raised() -> None:
    assert costs_of_reads(Noting(bad={0, 1}), 0.2, 0.2).latency_seconds == pytest.approx(0.2)
    assert read_costs(Noting(bad={0}), [0], 4.0, taken=lambda: 0.0) is None

    def denied(index: int) -> Any:
        raise ap.DataError("access is denied")

    with pytest.raises(ap.DataError, match="denied"):
        read_costs(Made(10, denied), range(3), 4.0)
