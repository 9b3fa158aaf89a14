"""The order of batches, workers that fill whole ones or several, and samples that are read ahead of them."""

import contextlib
import errno
import gc
import itertools
import os
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import autopipe as ap
from autopipe import native
from autopipe.pipeline.batching.cache import RowLayout, Slot, SlotPool
from autopipe.pipeline.batching.kernel import BadSample
from autopipe.pipeline.batching.readahead import ReadAhead
from autopipe.pipeline.batching.stream import BatchStream, Task
from autopipe.pipeline.batching.streaming import Filled, Worker
from autopipe.workload.order import BatchOrder
from autopipe.workload.sample import Field, FieldKind, SampleSpec
from tests.fakes.sources import Made

WAIT_SECONDS = 20
ORDER = BatchOrder(count=10, batch_size=2, seed=0, shuffle=False, drop_remainder=False)


class Played(BatchStream[str]):
    """A stream whose workers the test plays, and a pool for those who wait."""

    def __init__(self, order: BatchOrder = ORDER, **settings: int) -> None:
        super().__init__(order, **settings)
        self.pool = ThreadPoolExecutor(3)

    def given(self, **options: Any) -> Task:
        task = self.next_task(**options)
        assert task is not None
        return task

    def make(self, *tasks: Task) -> None:
        for task in tasks:
            self.deliver(task, f"{task.epoch}.{task.batch}")

    def all_of(self, epoch: int, start: int = 0) -> Future[list[str]]:
        return self.pool.submit(list, self.take_epoch(epoch, start, last=True))

    def first_of(self, epoch: int, start: int = 0, *, last: bool = False) -> Future[str]:
        return self.pool.submit(next, self.take_epoch(epoch, start, last=last))


@pytest.fixture
def stream() -> Iterator[Played]:
    with contextlib.closing(Played(queue_size=2)) as made:
        yield made


def of_another_run(stream: Played, before: Task) -> Task:
    """Return the next task of another run than a task's; what is left of that is made, too."""
    while (task := stream.given()).run == before.run:
        stream.deliver(task, "old")
    return task


WHOLE = [f"0.{batch}" for batch in range(5)]


def made_all(stream: Played) -> None:
    while (task := stream.next_task()) is not None:
        stream.make(task)


TAKING = BatchStream._take.__code__


@pytest.mark.parametrize("line", sorted({line - TAKING.co_firstlineno for *_, line in TAKING.co_lines() if line}))
def test_an_epoch_can_be_begun_anew_after_ctrl_c_at_any_line_of_taking_a_batch(stream: Played, line: int) -> None:
    def interrupts(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code is TAKING and event == "line" and frame.f_lineno == TAKING.co_firstlineno + line:
            raise KeyboardInterrupt
        return interrupts

    stream.pool.submit(made_all, stream)
    before = sys.gettrace()
    sys.settrace(interrupts)
    with contextlib.suppress(KeyboardInterrupt):  # some lines are not reached
        next(stream.take_epoch(0, 0, last=False))
    sys.settrace(before)
    try:
        assert stream.all_of(0).result(WAIT_SECONDS) == WHOLE
    finally:
        stream.close()


def test_batches_come_in_order_whatever_order_they_are_made_in(stream: Played) -> None:
    for epoch in (0, 1, 7):
        taken = stream.all_of(epoch)
        for group in (3, 2):
            stream.make(*reversed([stream.given() for _ in range(group)]))
        assert taken.result() == [f"{epoch}.{batch}" for batch in range(5)]
        assert stream.next_task(wait=False) is None  # the epoch was the last


def test_a_result_of_before_two_jumps_is_not_that_of_the_same_batch_after_them(stream: Played) -> None:
    stream.first_of(0)
    old = stream.given()
    stream.first_of(0, 3, last=True)
    other = of_another_run(stream, old)
    again = stream.first_of(0, last=True)
    task = of_another_run(stream, other)
    stream.deliver(old, "old")
    assert stream.waiting() == 0
    stream.make(task)
    assert again.result() == "0.0"


def test_several_batches_can_be_made_in_one_go(stream: Played) -> None:
    taken = stream.all_of(0)
    for first, expected in ((0, [0, 1, 2, 3, 4, 5]), (3, [6, 7, 8, 9])):  # an epoch ends
        task = stream.given(most=3)
        assert (task.batch, task.count, task.indices.tolist()) == (first, len(expected) // 2, expected)
        stream.deliver(task, f"{first} and so on")
    assert taken.result() == ["0 and so on", "3 and so on"]


def test_what_several_batches_take_of_the_room_they_take_as_often(stream: Played) -> None:
    stream._seek(0, 0, last=False)
    first = stream.given(most=2)
    assert stream.next_task(wait=False, most=2) is not None  # two may wait, and the worker has two at a time
    assert stream.next_task(wait=False) is None
    stream.deliver(first, "two")
    assert stream.waiting() == 2
    assert next(stream.take_epoch(0, 0, last=False)) == "two"
    assert stream.next_task(wait=False) is not None
    assert stream.next_task(wait=False, most=2) is None  # two are out, so another two are one too many


@pytest.mark.parametrize("second", [(0, 1), (4, 2)], ids=["the same place", "elsewhere"])
def test_a_second_reader_ends_the_first_and_loses_nothing(stream: Played, second: tuple[int, int]) -> None:
    epoch, start = second
    older = stream.take_epoch(0, 0, last=False)
    first = stream.pool.submit(next, older)
    tasks = [stream.given() for _ in range(3)]
    stream.make(tasks[0])
    assert first.result() == "0.0"
    waits = stream.pool.submit(next, older)
    newer = stream.all_of(epoch, start)
    with pytest.raises(ap.LoaderError, match="one epoch at a time"):
        waits.result(timeout=60)
    stream.make(*tasks[1:])
    while (tasks[-1].epoch, tasks[-1].batch) != (epoch, 4):
        tasks.append(stream.given())
        stream.make(tasks[-1])
    assert newer.result(timeout=60) == [f"{epoch}.{batch}" for batch in range(start, 5)]
    if epoch == 0:
        assert [task.batch for task in tasks] == [0, 1, 2, 3, 4]


def test_a_worker_that_ends_by_itself_ends_the_stream_with_its_error(stream: Played) -> None:
    waits = stream.first_of(0)
    assert stream.next_task() is not None
    stream.close(ap.LoaderError("A worker failed"))
    for reader in (waits, stream.pool.submit(next, stream.take_epoch(0, 0, last=False))):
        with pytest.raises(ap.LoaderError, match="A worker failed"):
            reader.result(timeout=60)


@pytest.fixture
def ahead() -> Iterator[Played]:
    with contextlib.closing(Played(ORDER, queue_size=0, ahead=2)) as made:
        yield made


def test_batches_are_given_out_ahead_but_made_only_when_there_is_room(ahead: Played) -> None:
    taken = ahead.all_of(0)
    tasks = [ahead.given() for _ in range(3)]
    assert [task.batch for task in tasks] == [0, 1, 2]
    assert ahead.next_task(wait=False) is None  # one may be made, and two are ahead of it
    for task in tasks:
        assert ahead.room_for(task)  # once the consumer has taken the one before
        ahead.make(task)
    for _ in range(2):
        ahead.make(ahead.given())
    assert taken.result() == WHOLE


def test_nobody_wants_a_batch_that_was_given_out_before_a_jump(ahead: Played) -> None:
    first = ahead.first_of(0, last=True)
    tasks = [ahead.given() for _ in range(2)]
    ahead.make(tasks[0])
    assert first.result() == "0.0"
    second = ahead.first_of(4, 1, last=True)
    task = of_another_run(ahead, tasks[0])
    assert (ahead.room_for(tasks[1]), ahead.room_for(task)) == (False, True)
    ahead.make(task)
    assert second.result() == "4.1"


def test_a_stream_that_stops_ahead_ends_what_it_has_begun_and_goes_on_if_told(stream: Played) -> None:
    taken = stream.all_of(0)
    tasks = [stream.given(), stream.given()]
    assert stream.stop_ahead() == (0, 2)
    assert stream.next_task(wait=False) is None
    stream.go_on()
    stream.make(*tasks, stream.given())
    for _ in range(2):
        stream.make(stream.given())
    assert taken.result() == WHOLE


SPEC = SampleSpec(Field(FieldKind.IMAGE, (2, 2, 3), np.dtype("uint8")), None)


class Leaves:
    """Fills nothing in, and counts the batches that were begun and not filled or forgotten."""

    begun = 0

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        self.begun -= 1
        return []

    def begin(self, indices: NDArray[np.int64]) -> None:
        self.begun += 1

    def forget(self, indices: NDArray[np.int64]) -> None:
        self.begun -= 1

    lost = 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError()])
@pytest.mark.parametrize("ahead", [0, 2])
def test_a_slot_that_cannot_be_made_is_the_batchs_error_and_the_worker_lives_on(error: Exception, ahead: int) -> None:
    class Full(SlotPool):
        errors: ClassVar = [error]

        def acquire(self) -> Slot:
            if self.errors:
                raise self.errors.pop()
            return super().acquire()

    stream: BatchStream[Filled] = BatchStream(ORDER, queue_size=1, ahead=ahead)

    def consume() -> int:
        with contextlib.closing(stream):
            with pytest.raises(ap.LoaderError, match="no room for another batch") as caught:
                next(stream.take_epoch(0, 0, last=True))
            assert "ulimit -n" in str(caught.value.hint)
            return len(list(stream.take_epoch(0, 0, last=True)))

    filler = Leaves()
    with ThreadPoolExecutor(1) as consumer, contextlib.closing(stream):
        taken = consumer.submit(consume)
        Worker(stream, Full(RowLayout(SPEC, 2), keep=4), filler, ahead).work()
    assert taken.result() == 5
    assert ahead == 0 or filler.begun == 0


COUNT, SIZE, TOGETHER, BAD = 54, 4, 3, 43
at_once = pytest.mark.skipif(native.why_not() is not None, reason=str(native.why_not()))
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 4, 4, 3), np.uint8)


def opened(data: Any, together: int = 1, *, queue_size: int = 8, workers: int = 1, **settings: Any) -> ap.Loader:
    workload = {name: settings.pop(name) for name in ("shuffle", "drop_remainder") if name in settings}
    loader = ap.Threads(workers=workers, queue_size=queue_size)
    return ap.make_loader(
        ap.Workload(data=data, ops=[ap.RandomFlip()], batch_size=SIZE, **workload),
        ap.PipelineConfig(loader=loader, steps_per_execution=together, **settings),
    )


def taken(loader: ap.Loader, epoch: int, start: int = 0, *, last: bool = True) -> list[tuple[Any, Any]]:
    return [(np.array(x), np.array(y)) for x, y in loader.batches(epoch, start, last=last)]


def same(found: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]) -> None:
    for part, wanted in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        np.testing.assert_array_equal(part, wanted)


def test_large_batches_and_samples_made_one_by_one_come_singly() -> None:
    with opened(Made(COUNT, lambda index: (PIXELS[index], index)), TOGETHER) as loader:
        assert loader.buffered_batches == 8 + 1
    with opened(ap.Arrays(PIXELS, np.arange(COUNT)), queue_size=1) as loader:
        assert loader.buffered_batches == 1 + 1
    with opened(ap.Arrays(np.zeros((8, 1024, 512, 3), np.uint8)), TOGETHER) as loader:
        assert loader.buffered_batches == 8 + 1
    with opened(type("Slow", (ap.Arrays,), {"spans": None})(PIXELS), 4, keep="memory:50%") as loader:
        assert loader.buffered_batches == 2 * 4 + 1


class Broken(ap.Arrays):
    """Fails at one sample, in one way or the other."""

    def __init__(self) -> None:
        super().__init__(PIXELS, np.arange(COUNT))

    def _spans(self, indices: NDArray[np.int64]) -> Any:
        if BAD in indices:
            raise RuntimeError("no such row")
        return super()._spans(indices)

    @property
    def spans(self) -> Any:  # beside its own `read`
        return super().spans

    def read(self, index: int) -> object:
        if index == BAD:
            raise RuntimeError("no such row")
        return super().read(index)


@pytest.mark.parametrize("together", [1, TOGETHER])
def test_a_sample_that_fails_comes_as_an_error_between_the_batches_before_it_and_those_behind(together: int) -> None:
    before, behind = list(range(BAD // SIZE * SIZE)), BAD // SIZE + 1
    assert behind % TOGETHER != 0  # it is in the group of the one that fails
    with opened(Broken(), together, shuffle=False) as loader:
        for _ in range(2):
            found: list[Any] = []
            with pytest.raises(ap.BadSampleError, match=f"sample {BAD} .*no such row"):
                found.extend(np.array(y) for _, y in loader.batches(0, last=True))
            assert np.concatenate(found).tolist() == before
        whole = [y.tolist() for _, y in taken(loader, 0, behind, last=False)]
        for start in (behind + 1, behind, len(loader) - 1, len(loader)):  # a group is made anew for who goes back in it
            first = itertools.islice(loader.batches(0, start), 1)
            assert [np.array(y).tolist() for _, y in first] == whole[start - behind :][:1]
        rest = taken(loader, 0, behind, last=False)
        assert np.concatenate([y for _, y in rest]).tolist() == list(range(behind * SIZE, COUNT))
        loader.load_state_dict({**loader.state_dict(), "epoch": 1, "batch": behind})
        again = [np.array(y) for _, y in loader.epoch(1)]
        assert np.concatenate(again).tolist() == list(range(behind * SIZE, COUNT))


WAIT = 30.0  # seconds; nothing here takes a hundredth of it


class Gated:
    """A source whose reads, or the first ones of those that are late, wait until they are let through."""

    classes = ("cat", "dog")

    def __init__(self, late: Sequence[int] | None = None) -> None:
        self.late = None if late is None else set(late)
        self.asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.let_through = threading.Semaphore(0)
        self.errors: dict[int, list[BaseException]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return 1000

    def read(self, index: int) -> Any:
        with self._lock:
            waits = self.late is None or index in self.late
            if self.late is not None:
                self.late.discard(index)
            error = self.errors[index].pop() if self.errors.get(index) else None
        self.asked.put(index)
        if waits:
            assert self.let_through.acquire(timeout=WAIT)
        if error is not None:
            raise error
        return index * 10


def asked(source: Gated, count: int) -> list[int]:
    """Return what is asked for, and nothing else is."""
    found = sorted(source.asked.get(timeout=WAIT) for _ in range(count))
    assert source.asked.empty()
    return found


@pytest.fixture
def source() -> Gated:
    return Gated()


@pytest.fixture
def readers() -> Iterator[Callable[..., ReadAhead]]:
    """Return what opens readers, which end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(contextlib.closing(ReadAhead(*arguments, **named)))


def let_all_through(source: Gated) -> None:
    source.let_through.release(1000)


def read(ahead: ReadAhead, indices: Sequence[int], some: Sequence[int] | None = None) -> list[Any]:
    with ahead.reading(indices):
        return [ahead.read(index) for index in (indices if some is None else some)]


def test_as_many_samples_are_read_at_a_time_as_there_are_readers(source: Gated) -> None:
    ahead = ReadAhead(source, 3)
    assert (len(ahead), ahead.classes) == (1000, ("cat", "dog"))  # it looks like its source
    ahead.begin(range(5))
    assert asked(source, 3) == [0, 1, 2]
    let_all_through(source)
    assert read(ahead, range(5)) == [0, 10, 20, 30, 40]
    ahead.close()
    ahead.begin([6])
    assert asked(source, 2) == [3, 4]  # nothing is begun any more


@pytest.mark.parametrize(
    ("begun", "asked_for"),
    [([[]], [7]), ([[4, 4]], [4, 4]), ([[0, 1, 2]], [0, 2]), ([[1, 7], [7, 2]], [1, 7, 7, 2])],
    ids=["not begun", "twice", "cached", "in two batches"],
)
def test_each_sample_is_read_once_for_each_of_its_uses(source: Gated, readers: Any, begun: Any, asked_for: Any) -> None:
    let_all_through(source)
    ahead = readers(source, 2, there=lambda index: index == 1 and begun == [[0, 1, 2]])
    for batch in begun:
        ahead.begin(batch)
    found = [value for batch in begun for value in read(ahead, batch, None if len(begun) > 1 else asked_for)]
    assert found == [10 * index for index in asked_for]
    assert asked(source, len(asked_for)) == sorted(asked_for)


def test_what_a_batch_has_not_read_is_not_kept_for_another(source: Gated, readers: Any) -> None:
    ahead = readers(source, 1)
    ahead.begin([0, 1])
    ahead.begin([1, 2])
    assert asked(source, 1) == [0]
    with ahead.reading([0, 1]):
        pass  # both were cached meanwhile, say
    let_all_through(source)
    assert read(ahead, [1, 2]) == [10, 20]
    assert asked(source, 2) == [1, 2]


@pytest.mark.parametrize("error", [ap.BadSampleError("torn"), OSError("gone"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_comes_with_its_sample_and_stops_no_other(source: Gated, readers: Any, error: BaseException) -> None:
    ahead = readers(source, 1)
    source.errors[0] = [error]
    let_all_through(source)
    ahead.begin([0])
    with pytest.raises(type(error)):
        read(ahead, [0])
    ahead.begin([1])
    assert read(ahead, [1]) == [10]


def test_closing_ends_the_waiting_for_a_read_that_hangs(source: Gated) -> None:
    ahead = ReadAhead(source, 1)
    ahead.begin([0])
    asked(source, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, ahead, [0])
        ahead.close()
        with pytest.raises(ap.LoaderError, match="closed while a sample was being read"):
            waiting.result(WAIT)
        let_all_through(source)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])  # after Ctrl-C, nobody has it to close it
def test_if_not_all_readers_can_be_started_all_are_ended(source: Gated, monkeypatch: Any, kind: Any) -> None:
    started, start = list[threading.Thread](), threading.Thread.start

    def at_most_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise kind("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", at_most_two)
    said = r"3 threads .* can't start new thread\. .*read_ahead" if kind is RuntimeError else "can't start"
    with pytest.raises(ap.LoaderError if kind is RuntimeError else kind, match=said):
        ReadAhead(source, 3)
    gc.collect()
    for thread in started:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in started)


def threads_of_readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("autopipe-reader")]


QUICK = range(200, 240)  # as many as it takes to know how long reads take


def begun(readers: Callable[..., ReadAhead], source: Gated, count: int, *late: int) -> ReadAhead:
    ahead = readers(source, count)
    ahead.begin(QUICK)
    assert read(ahead, QUICK) == [index * 10 for index in QUICK]
    assert asked(source, len(QUICK)) == list(QUICK)
    ahead.begin(late)
    return ahead


def test_a_late_read_is_made_again_and_leaves_no_thread_behind(readers: Any) -> None:
    source, before = Gated([3]), threads_of_readers()
    ahead = begun(readers, source, 1, 3)
    assert read(ahead, [3]) == [30]
    assert asked(source, 2) == [3, 3]
    left = [thread for thread in threads_of_readers() if thread not in before]
    ahead.close()
    source.let_through.release()
    for thread in left:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert source.asked.empty()


def test_one_read_in_twenty_is_made_again_at_most(readers: Any) -> None:
    source = Gated(range(10))
    ahead = begun(readers, source, 10, *range(10))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read, ahead, range(10))
        assert asked(source, 12) == sorted([*range(10), 0, 1])
        let_all_through(source)
        assert found.result(WAIT) == [index * 10 for index in range(10)]
    assert source.asked.empty()


def test_a_source_that_is_not_idempotent_is_not_read_again(readers: Any) -> None:
    class Once(Gated):
        idempotent = False

        def read(self, index: int) -> Any:
            if index == 3:
                self.let_through.acquire(timeout=0.2)  # four times what is late here
            return super().read(index)

    ahead = begun(readers, source := Once([]), 2, 3)
    assert read(ahead, [3]) == [30]
    assert asked(source, 1) == [3]


@pytest.mark.parametrize("second", [None, OSError("the second")])
def test_an_error_counts_only_if_every_attempt_fails(second: Exception | None, readers: Any) -> None:
    source = Gated([3])
    source.errors[3] = [*([second] * 3 if second is not None else []), OSError("the first")]
    ahead = begun(readers, source, 1, 3)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(read, ahead, [3])
        assert asked(source, 2) == [3, 3]
        let_all_through(source)
        with nullcontext() if second is None else pytest.raises(OSError, match=r"the (first|second)"):
            assert answer.result(WAIT) == [30]
