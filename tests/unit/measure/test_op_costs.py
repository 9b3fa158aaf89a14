from __future__ import annotations

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
from autopipe.errors import BadSampleError, DataError
from autopipe.hardware import machine as hardware
from autopipe.measure import op_costs as measure_op_costs
from autopipe.measure.facts import OpCost, ReadCosts, SampleTail
from autopipe.measure.op_costs import Turn, as_made, fitted, held_share, op_costs, read_costs, share, with_lock
from autopipe.workload.ops.planner import make_plan, sample_name
from tests.fakes.reference import by_python
from tests.fakes.sources import Made

FREE = Turn(wall=1.0, cpu=1.0)


@pytest.mark.parametrize(
    ("alone", "together", "free", "threads", "held"),
    [
        (Turn(5.0, 5.0), Turn(5.1, 5.0), FREE, 2, 0.0),  # it scales
        (Turn(5.0, 5.0), Turn(10.0, 5.0), FREE, 2, 1.0),  # not at all
        (Turn(5.0, 5.0), Turn(10.0, 5.0), FREE, 4, 0.5),  # of four threads it lets two through at a time
        (Turn(5.0, 5.0), Turn(9.0, 9.0), FREE, 2, 0.0),  # a slow memory
        (Turn(20.1, 0.1), Turn(20.1, 0.1), FREE, 2, 0.0),  # it waits by itself
        (Turn(5.0, 5.0), Turn(10.0, 5.0), Turn(2.0, 1.0), 2, 0.0),  # other programs take as much
        (Turn(1.0, 1.0), Turn(9.0, 1.0), FREE, 2, 1.0),  # no share exceeds the whole
        (Turn(0.0, 0.0), Turn(0.0, 0.0), FREE, 2, 0.0),  # no time at all
    ],
)
def test_the_lock_is_what_does_not_scale_and_neither_memory_nor_other_programs(
    alone: Turn, together: Turn, free: Turn, threads: int, held: float
) -> None:
    assert share(alone, together, free, threads) == pytest.approx(held)


def test_an_error_of_the_function_is_raised() -> None:
    def broken() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        held_share(broken, 0.001)


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


@pytest.mark.parametrize(
    ("cores", "held", "seen", "crews"),
    [
        (1, 1.0, 0.0, []),
        (2, 1.0, 1.0, [1, 2]),
        (2, 0.15, 0.0, [1, 2]),
        (4, 0.15, 0.0, [1, 4]),
        (12, 0.15, 0.15, [1, 12]),
        (64, 0.15, 0.15, [1, 16]),
        (128, 0.01, 0.0, [1, 16]),
    ],
)
def test_the_more_cores_the_shorter_a_lock_is_seen(
    cores: int, held: float, seen: float, crews: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, cores, held)
    assert held_share(_call, 0.001) == pytest.approx(seen)
    assert machine.crews == crews


def test_what_takes_long_or_waits_by_itself_is_not_asked_for_by_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a storage that gives so much and no more, they would wait for each other as for a lock."""
    machine = Machine(monkeypatch, cores=64, held=0.15, waits=0.002)
    assert held_share(_call, 0.003) == 0.0
    machine = Machine(monkeypatch, cores=64, held=1.0)
    assert held_share(_call, 0.5) == 1.0
    assert machine.crews == [1, 4]


SINGLE = (
    OpCost(name="read", part="fixed", seconds_per_image=0.1),
    OpCost(name="Decode", part="fixed", seconds_per_image=0.5),
    OpCost(name="RandomFlip", part="fresh", seconds_per_image=0.2),
    OpCost(name="Rescale", part="finish", seconds_per_image=0.3),
)


def costs(found: tuple[OpCost, ...]) -> dict[str, Any]:
    return {cost.name: pytest.approx(cost.seconds_per_image) for cost in found}


def total(found: tuple[OpCost, ...]) -> float:
    return sum(cost.seconds_per_image for cost in found if cost.part != "finish")


def clock_of(steps: Iterable[tuple[float, float]]) -> Callable[[], tuple[float, float]]:
    """Return a clock that goes on by these seconds, wall and processor, each time it is looked at."""
    left, now = iter(steps), [0.0, 0.0]

    def clock() -> tuple[float, float]:
        wall, busy = next(left)
        now[0] += wall
        now[1] += busy
        return now[0], now[1]

    return clock


def looks(rows: Iterable[Sequence[tuple[float, float]]]) -> Iterator[tuple[float, float]]:
    """Yield what goes by between the looks of `op_costs`: once at the beginning, then a row for each sample."""
    yield 0.0, 0.0
    for number, row in enumerate(rows):
        yield 0.0, 0.0
        yield from row
        if number >= 7:  # from the eighth sample on it asks whether time is up
            yield 0.0, 0.0


def _plain(count: int) -> ap.Workload:
    return ap.Workload(
        data=ap.Arrays(np.zeros((count, 8, 8, 3), np.uint8), np.arange(count)), ops=[ap.RandomFlip()], batch_size=2
    )


def timed(
    rows: Sequence[Sequence[tuple[float, float]]], *, seconds: float = 9.0, taken: float = 0.0
) -> tuple[tuple[OpCost, ...], SampleTail]:
    """Return the costs of samples whose reads and flips take so long, wall and processor."""
    workload, clock = _plain(len(rows)), clock_of(looks(rows))
    indices = range(len(rows))
    return op_costs(workload, make_plan(workload), indices, seconds=seconds, taken=lambda: taken, clock=clock)


def test_each_op_is_timed_and_told_by_where_it_may_run() -> None:
    data = ap.Arrays(np.zeros((10, 40, 40, 3), np.uint8), np.arange(10))
    workload = ap.Workload(data=data, ops=[ap.Resize(8, 8), ap.RandomFlip(), ap.Rescale(1 / 255)], batch_size=2)
    clock = clock_of(itertools.repeat((1.0, 1.0)))
    found = op_costs(workload, make_plan(workload), range(10), taken=lambda: 0.0, clock=clock)[0]
    parts = [("read", "fixed"), ("Resize", "fixed"), ("RandomFlip", "fresh"), ("Rescale", "finish")]
    assert [(cost.name, cost.part) for cost in found] == parts
    assert {(cost.seconds_per_image, cost.wait_seconds_per_image) for cost in found} == {(1.0, 0.0)}


def test_what_waits_in_most_samples_is_told_from_what_was_put_aside_in_some() -> None:
    read, flip = timed([[(0.021, 0.001), (0.011 if number == 3 else 0.001, 0.001)] for number in range(10)])[0]
    assert (read.wait_seconds_per_image, read.seconds_per_image) == pytest.approx((0.020, 0.001))
    assert read.wall_seconds_per_image == pytest.approx(0.021)
    assert flip.wait_seconds_per_image == 0.0


def test_what_waits_no_longer_than_any_thread_on_a_busy_machine_does_not_wait_by_itself() -> None:
    read, flip = timed([[(0.050, 0.001), (0.004, 0.001)]] * 10, taken=2.0)[0]
    assert (read.wait_seconds_per_image, flip.wait_seconds_per_image) == pytest.approx((0.049, 0.0))


def test_a_heavy_tail_is_told_by_the_name_of_its_slowest() -> None:
    tail = timed([[(0.3 if number == 70 else 0.001, 0.001), (0.0, 0.0)] for number in range(200)])[1]
    assert (tail.samples, tail.slowest) == (200, sample_name(_plain(200).data, 70))
    assert tail.p50_seconds == pytest.approx(0.001)
    assert tail.slowest_share == pytest.approx(0.301 / 0.499, rel=0.01)
    assert tail.heavy
    equal = timed([[(0.001, 0.001), (0.0, 0.0)]] * 200)[1]
    assert not equal.heavy
    assert equal.slowest_share == pytest.approx(0.01)


def test_when_time_is_up_a_few_samples_are_enough() -> None:
    assert timed([[(1.0, 1.0), (1.0, 1.0)]] * 50, seconds=0.5)[1].samples == 8


def brighter(image: Any) -> Any:
    return np.minimum(image, 250) + 5


def _mixed(*ops: ap.Op) -> ap.Workload:
    images = np.zeros((4, 9, 9, 3), np.uint8)
    return ap.Workload(data=ap.Arrays(images, np.arange(4)), ops=[ap.Resize(8, 8), *ops], batch_size=2)


NATIVE = pytest.mark.skipif(native.why_not() is not None, reason="there is no native library")


@NATIVE
@pytest.mark.parametrize(
    ("ops", "python"),
    [
        ([ap.RandomFlip()], []),
        ([ap.Map(brighter), ap.RandomFlip()], ["Map(brighter)"]),
        ([ap.RandomFlip(), ap.Map(lambda image: image)], ["Map"]),
    ],
)
def test_what_python_does_to_each_sample_is_told_by_name(ops: list[ap.Op], python: list[str]) -> None:
    workload = _mixed(*ops)
    found = op_costs(workload, make_plan(workload), range(4))[0]
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
    clock = itertools.accumulate(itertools.cycle([0.0, 4.0, 12.0, 36.0]))  # of four samples
    monkeypatch.setattr(time, "thread_time", clock.__next__)
    after = as_made(before, workload, plan, range(4))
    costs = [cost.seconds_per_image for cost in after]
    assert [costs[0] + costs[1], *costs[2:4]] == pytest.approx([1.0, 2.0, 6.0])
    assert costs[0] / costs[1] == pytest.approx(before[0].seconds_per_image / before[1].seconds_per_image)
    assert after[4] == before[4]
    python = sum(cost.seconds_per_image for cost in before[:4])
    assert costs[5] / before[5].seconds_per_image == pytest.approx(9.0 / python)  # behind what Python does


@NATIVE
def test_what_mixes_samples_costs_what_the_library_takes_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = _mixed(ap.Rescale(1 / 255), ap.OneHot(4), ap.MixUp(0.2))
    plan = make_plan(workload)
    before = op_costs(workload, plan, range(4))[0]
    clock = itertools.accumulate(itertools.cycle([0.0, 4.0, 8.0, 8.0, 20.0]))
    monkeypatch.setattr(time, "thread_time", clock.__next__)
    costs = {cost.name: cost for cost in as_made(before, workload, plan, range(4))}
    assert costs["MixUp"].native
    assert [costs[name].seconds_per_image for name in ("Rescale", "OneHot", "MixUp")] == pytest.approx([1.0, 0.0, 3.0])


@NATIVE
def test_ops_on_images_of_all_sizes_share_what_the_library_takes_until_they_are_of_one_size(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(2):
        cv2.imwrite(str(tmp_path / "a" / f"{number}.jpg"), np.zeros((9 + number, 9, 3), np.uint8))
    data = ap.ImageFolder(tmp_path)
    workload = ap.Workload(data=data, ops=[ap.Decode(), ap.Resize(8, 8), ap.RandomFlip()], batch_size=2)
    plan = make_plan(workload)
    before = op_costs(workload, plan, range(2))[0]
    costs = [
        np.array([cost.seconds_per_image for cost in each])
        for each in (before, as_made(before, workload, plan, [0, 1]))
    ]
    shares = [each[:3] / each[:3].sum() for each in costs]
    assert shares[1] == pytest.approx(shares[0])


@NATIVE
def test_samples_that_the_library_cannot_make_leave_the_costs_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(2):
        cv2.imwrite(str(tmp_path / "a" / f"{number}.jpg"), np.zeros((9, 9, 3), np.uint8))
    workload = ap.Workload(data=ap.ImageFolder(tmp_path), ops=[ap.Decode(), ap.Resize(8, 8)], batch_size=2)
    plan = make_plan(workload)
    for number in range(2):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(b"no image")
    found = [OpCost(name=name, part="fixed", seconds_per_image=1.0, native=True) for name in ("read", "a", "b")]
    assert as_made(found, workload, plan, [0, 1]) == tuple(found)


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
    signs: list[str] = []
    found = with_lock(single, workload, plan, range(4), lambda: signs.append("alive"))
    assert len(signs) == len(plan.steps)
    assert asked == [single[-1].wall_seconds_per_image]
    assert [cost.lock_seconds_per_image for cost in found] == [0, 0, 0, 0.5 * single[-1].seconds_per_image]


def test_all_samples_being_bad_the_lock_stays_unknown() -> None:
    workload = ap.Workload(data=Made(3, broken), ops=[], batch_size=1, on_bad_sample="skip")
    read = (OpCost(name="read", part="fixed", seconds_per_image=1.0),)
    assert with_lock(read, workload, make_plan(workload), [1, 2]) == read


def broken(index: int) -> Any:
    if index == 1:
        raise BadSampleError("sample 1 is bad")
    if index == 2:
        raise OSError("sample 2 has gone")
    return np.zeros((4, 4, 3), np.uint8)


def test_bad_samples_are_passed_over() -> None:
    workload = ap.Workload(data=Made(3, broken), ops=[], batch_size=1, on_bad_sample="skip")
    assert op_costs(workload, make_plan(workload), [1, 0, 2])[0][0].name == "read"
    with pytest.raises(BadSampleError, match="none of 2 samples"):
        op_costs(workload, make_plan(workload), [1, 2])


def test_costs_add_up_to_what_the_loader_took_with_all_cores_busy() -> None:
    found = fitted(SINGLE, whole=1.0, cached=0.3)
    assert total(found) == pytest.approx(1.0)
    assert costs(found) == {"read": 0.7 / 6, "Decode": 0.7 * 5 / 6, "RandomFlip": 0.2, "Rescale": 0.3, "batching": 0.1}
    assert sum(cost.seconds_per_image for cost in found if cost.part == "fresh") == pytest.approx(0.3)  # as cached


@pytest.mark.parametrize(("whole", "cached"), [(0.6, None), (1.2, None), (0.6, 0.1), (0.15, 0.1), (0.5, 0.7)])
def test_odd_figures_still_add_up_and_none_is_negative(whole: float, cached: float | None) -> None:
    found = fitted(SINGLE, whole=whole, cached=cached)
    assert total(found) == pytest.approx(whole)
    assert min(cost.seconds_per_image for cost in found) >= 0


def test_busy_cores_change_the_time_under_the_lock_and_no_waiting() -> None:
    more = {"wait_seconds_per_image": 9.0, "lock_seconds_per_image": 0.05}
    found = fitted((SINGLE[0].model_copy(update=more), *SINGLE[1:]), whole=1.6, cached=None)[0]
    assert found.wait_seconds_per_image == 9.0
    assert found.lock_seconds_per_image == pytest.approx(0.5 * found.seconds_per_image)


# ---------------------------------------------------------------- reads


@pytest.fixture(autouse=True)
def short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_op_costs, "_RUNG_SECONDS", 0.02)
    monkeypatch.setattr(measure_op_costs, "_ALONE_SECONDS", 0.1)
    monkeypatch.setattr(measure_op_costs, "_LADDER", (4, 16))  # more threads only take turns here


class Noting:
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


def costs_of_reads(source: Noting, wall: float, busy: float, *, taken: float = 0.0, **more: Any) -> ReadCosts:
    ticks = ((number * wall, number * busy) for number in itertools.count())
    found = read_costs(source, range(10), 4.0, clock=lambda: next(ticks), taken=lambda: taken, **more)
    assert found is not None
    return found


def test_reads_that_do_not_wait_are_not_tried_side_by_side() -> None:
    source = Noting()
    found = costs_of_reads(source, 0.2, 0.2)
    assert (found.latency_seconds, found.cpu_seconds) == pytest.approx((0.2, 0.2))
    assert [rung.at_once for rung in found.rungs] == [1]
    assert not found.waits
    assert len(source.threads) == 1
    busy = costs_of_reads(Noting(), 0.004, 0.001, taken=2.0)  # put aside on a busy machine
    assert busy.latency_seconds == pytest.approx(0.001)


@pytest.mark.parametrize("wall", [0.02, pytest.param(2.5, marks=pytest.mark.slow)])
def test_reads_that_wait_are_tried_side_by_side_with_files_in_their_state_before_each_rung(wall: float) -> None:
    """What was dropped from memory once has come back with the rung before. Reads of seconds are tried, too."""
    source, before = Noting(), list[int]()
    found = costs_of_reads(source, wall, 0.001, prepare=lambda: before.append(len(source.seen)))
    assert found.waits
    assert found.wait_seconds == pytest.approx(wall - 0.001)
    assert [rung.at_once for rung in found.rungs][:2] == [1, 4]
    assert found.rungs[0].images_per_second == pytest.approx(1 / wall)
    assert (before[0], len(before)) == (0, len(found.rungs))
    assert before == sorted(set(before))


def test_bad_reads_are_passed_over() -> None:
    assert costs_of_reads(Noting(bad={0, 1}), 0.2, 0.2).latency_seconds == pytest.approx(0.2)
    assert read_costs(Noting(bad={0}), [0], 4.0, taken=lambda: 0.0) is None


def test_an_error_that_is_not_the_fault_of_a_sample_is_raised() -> None:
    class Gone(Noting):
        def read(self, index: int) -> np.ndarray:
            raise DataError("access is denied")

    with pytest.raises(DataError, match="denied"):
        read_costs(Gone(), range(3), 4.0)


class SeldomSlow(Noting):
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
