from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, LoaderError
from autopipe.pipeline.batching import readahead
from autopipe.pipeline.batching.readahead import ReadAhead

WAIT = 30.0  # seconds; nothing here takes a hundredth of it


class Gated:
    """A source whose reads wait until they are let through."""

    classes = ("cat", "dog")

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.let_through = threading.Semaphore(0)
        self.error: BaseException | None = None

    def __len__(self) -> int:
        return 100

    def read(self, index: int) -> Any:
        self.asked.put(index)
        assert self.let_through.acquire(timeout=WAIT)
        if self.error is not None:
            raise self.error
        return index * 10


def asked(source: Any, count: int) -> list[int]:
    return sorted(source.asked.get(timeout=WAIT) for _ in range(count))


@pytest.fixture
def source() -> Gated:
    return Gated()


def let_all_through(source: Gated) -> None:
    source.let_through.release(1000)


def read(ahead: ReadAhead, indices: Sequence[int], some: Sequence[int] | None = None) -> list[Any]:
    with ahead.reading(indices):
        return [ahead.read(index) for index in (indices if some is None else some)]


def test_as_many_samples_are_read_at_a_time_as_there_are_readers(source: Gated) -> None:
    ahead = ReadAhead(source, 3)
    assert (len(ahead), ahead.classes) == (100, ("cat", "dog"))  # it looks like its source
    ahead.begin(range(5))
    assert asked(source, 3) == [0, 1, 2]
    assert source.asked.empty()
    let_all_through(source)
    assert read(ahead, range(5)) == [0, 10, 20, 30, 40]
    ahead.close()
    ahead.begin([6])
    assert asked(source, 2) == [3, 4]  # nothing is begun any more
    assert source.asked.empty()


@pytest.mark.parametrize(
    ("begun", "asked_for"),
    [([[]], [7]), ([[4, 4]], [4, 4]), ([[0, 1, 2]], [0, 2]), ([[1, 7], [7, 2]], [1, 7, 7, 2])],
    ids=["not begun", "twice", "cached", "in two batches"],
)
def test_each_sample_is_read_once_for_each_time_it_is_begun_or_asked_for(
    source: Gated, begun: list[list[int]], asked_for: list[int]
) -> None:
    let_all_through(source)
    ahead = ReadAhead(source, 2, there=lambda index: index == 1 and begun == [[0, 1, 2]])
    for batch in begun:
        ahead.begin(batch)
    found = [value for batch in begun for value in read(ahead, batch, None if len(begun) > 1 else asked_for)]
    assert found == [10 * index for index in asked_for]
    assert asked(source, len(asked_for)) == sorted(asked_for)
    assert source.asked.empty()
    ahead.close()


def test_what_a_batch_has_not_read_is_not_kept_for_another(source: Gated) -> None:
    ahead = ReadAhead(source, 1)
    ahead.begin([0, 1])
    ahead.begin([1, 2])
    assert asked(source, 1) == [0]
    with ahead.reading([0, 1]):
        pass  # both were cached meanwhile, say
    let_all_through(source)
    assert read(ahead, [1, 2]) == [10, 20]
    assert asked(source, 2) == [1, 2]
    assert source.asked.empty()
    ahead.close()


@pytest.mark.parametrize("error", [BadSampleError("torn"), OSError("gone"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_comes_with_its_sample_and_stops_no_other(source: Gated, error: BaseException) -> None:
    ahead = ReadAhead(source, 1)
    source.error = error
    ahead.begin([0])
    asked(source, 1)
    source.let_through.release()
    with pytest.raises(type(error)):
        read(ahead, [0])
    source.error = None
    let_all_through(source)
    ahead.begin([1])
    assert read(ahead, [1]) == [10]
    ahead.close()


def test_what_is_forgotten_before_it_was_begun_is_not_read(source: Gated) -> None:
    ahead = ReadAhead(source, 1)
    for index in range(3):
        ahead.begin([index])
    assert asked(source, 1) == [0]
    ahead.forget([1])
    let_all_through(source)
    assert read(ahead, [2]) == [20]
    assert asked(source, 1) == [2]
    ahead.close()


def test_closing_ends_the_waiting_for_a_read_that_hangs(source: Gated) -> None:
    ahead = ReadAhead(source, 1)
    ahead.begin([0])
    asked(source, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(read, ahead, [0])
        ahead.close()
        with pytest.raises(LoaderError, match="closed while a sample was being read"):
            waiting.result(WAIT)
        let_all_through(source)


def test_a_reader_that_is_closed_as_it_takes_a_sample_ends(source: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(Future[Any]):
        def set_running_or_notify_cancel(self) -> bool:
            held = ahead._lock.locked()
            closer = threading.Thread(target=ahead.close)
            closer.start()
            if not held:  # else it goes on once the reader lets it
                closer.join(WAIT)
            return super().set_running_or_notify_cancel()

    raised: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(readahead, "Future", Closing)
    let_all_through(source)
    others = set(threading.enumerate())
    ahead = ReadAhead(source, 1)
    (reader,) = set(threading.enumerate()) - others
    ahead.begin([1])
    reader.join(WAIT)
    assert not reader.is_alive()
    assert raised == []


@pytest.mark.parametrize(
    ("kind", "raised", "said"),
    [
        (RuntimeError, LoaderError, r"3 threads .* can't start new thread\. .*read_ahead"),
        (KeyboardInterrupt, KeyboardInterrupt, "can't start"),  # Ctrl-C, after which nobody has it to close it
    ],
)
def test_if_not_all_readers_can_be_started_all_are_ended(
    source: Gated, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], raised: type[BaseException], said: str
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def at_most_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise kind("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", at_most_two)
    with pytest.raises(raised, match=said):
        ReadAhead(source, 3)
    gc.collect()
    for thread in started:
        thread.join(WAIT)
        assert not thread.is_alive()


class Late:
    """A source of which the first read of some samples does not end before it is let through."""

    def __init__(self, late: Sequence[int]) -> None:
        self.late = set(late)
        self.asked: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.let_through = threading.Event()
        self.errors: dict[int, list[Exception]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return 1000

    def read(self, index: int) -> Any:
        with self._lock:
            is_late = index in self.late
            self.late.discard(index)
            error = self.errors[index].pop() if self.errors.get(index) else None
        self.asked.put(index)
        if is_late:
            assert self.let_through.wait(WAIT)
        if error is not None:
            raise error
        return index * 10


QUICK = range(200, 240)  # as many as it takes to know how long reads take


def reading_ahead(source: Late, readers: int) -> ReadAhead:
    ahead = ReadAhead(source, readers)
    ahead.begin(QUICK)
    assert read(ahead, QUICK) == [index * 10 for index in QUICK]
    assert asked(source, len(QUICK)) == list(QUICK)
    return ahead


def threads_of_readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("autopipe-reader")]


def test_a_late_read_is_made_again_and_leaves_no_thread_behind() -> None:
    source = Late([3])
    before = threads_of_readers()
    ahead = reading_ahead(source, 1)
    ahead.begin([3])
    assert read(ahead, [3]) == [30]
    assert asked(source, 2) == [3, 3]
    left = [thread for thread in threads_of_readers() if thread not in before]
    ahead.close()
    source.let_through.set()
    for thread in left:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert source.asked.empty()


def test_one_read_in_twenty_is_made_again_at_most() -> None:
    source = Late(range(10))
    ahead = reading_ahead(source, 10)
    ahead.begin(range(10))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read, ahead, range(10))
        assert asked(source, 12) == sorted([*range(10), 0, 1])
        source.let_through.set()
        assert found.result(WAIT) == [index * 10 for index in range(10)]
    assert source.asked.empty()
    ahead.close()


def test_a_source_that_is_not_idempotent_is_not_read_again() -> None:
    class Once(Late):
        idempotent = False

        def read(self, index: int) -> Any:
            if index == 3:
                self.let_through.wait(0.2)  # four times what is late here
            return super().read(index)

    source = Once([])
    ahead = reading_ahead(source, 2)
    ahead.begin([3])
    assert read(ahead, [3]) == [30]
    assert (source.asked.get(timeout=WAIT), source.asked.qsize()) == (3, 0)
    ahead.close()


@pytest.mark.parametrize("second", [None, OSError("the second")])
def test_an_error_counts_only_if_every_attempt_fails(second: Exception | None) -> None:
    source = Late([3])
    ahead = reading_ahead(source, 1)
    source.errors[3] = [*([second] * 3 if second is not None else []), OSError("the first")]
    ahead.begin([3])
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(read, ahead, [3])
        assert asked(source, 2) == [3, 3]
        source.let_through.set()
        with nullcontext() if second is None else pytest.raises(OSError, match=r"the (first|second)"):
            assert answer.result(WAIT) == [30]
    ahead.close()


def test_batches_are_the_same_whichever_attempt_answers() -> None:
    source = Late([300, 500, 501])
    workload = ap.Workload(data=source, ops=[], batch_size=20, shuffle=False)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2, read_ahead=8))) as loader:
        found = np.concatenate([x for x, _ in loader.epoch(0)])
    source.let_through.set()
    assert found.tolist() == [index * 10 for index in range(1000)]
