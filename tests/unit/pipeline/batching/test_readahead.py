from __future__ import annotations

import contextlib
import gc
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import BadSampleError, LoaderError
from autopipe.pipeline.batching.readahead import ReadAhead

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
def opened() -> Iterator[Callable[..., ReadAhead]]:
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
def test_each_sample_is_read_once_for_each_time_it_is_begun_or_asked_for(
    source: Gated, opened: Any, begun: list[list[int]], asked_for: list[int]
) -> None:
    let_all_through(source)
    ahead = opened(source, 2, there=lambda index: index == 1 and begun == [[0, 1, 2]])
    for batch in begun:
        ahead.begin(batch)
    found = [value for batch in begun for value in read(ahead, batch, None if len(begun) > 1 else asked_for)]
    assert found == [10 * index for index in asked_for]
    assert asked(source, len(asked_for)) == sorted(asked_for)


def test_what_a_batch_has_not_read_is_not_kept_for_another(source: Gated, opened: Any) -> None:
    ahead = opened(source, 1)
    ahead.begin([0, 1])
    ahead.begin([1, 2])
    assert asked(source, 1) == [0]
    with ahead.reading([0, 1]):
        pass  # both were cached meanwhile, say
    let_all_through(source)
    assert read(ahead, [1, 2]) == [10, 20]
    assert asked(source, 2) == [1, 2]


@pytest.mark.parametrize("error", [BadSampleError("torn"), OSError("gone"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_comes_with_its_sample_and_stops_no_other(source: Gated, opened: Any, error: BaseException) -> None:
    ahead = opened(source, 1)
    source.errors[0] = [error]
    let_all_through(source)
    ahead.begin([0])
    with pytest.raises(type(error)):
        read(ahead, [0])
    ahead.begin([1])
    assert read(ahead, [1]) == [10]


def test_what_is_forgotten_before_it_was_begun_is_not_read(source: Gated, opened: Any) -> None:
    ahead = opened(source, 1)
    for index in range(3):
        ahead.begin([index])
    assert asked(source, 1) == [0]
    ahead.forget([1])
    let_all_through(source)
    assert read(ahead, [2]) == [20]
    assert asked(source, 1) == [2]


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
    started, start = list[threading.Thread](), threading.Thread.start

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


def threads_of_readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("autopipe-reader")]


QUICK = range(200, 240)  # as many as it takes to know how long reads take


def begun(opened: Callable[..., ReadAhead], source: Gated, readers: int, *late: int) -> ReadAhead:
    ahead = opened(source, readers)
    ahead.begin(QUICK)
    assert read(ahead, QUICK) == [index * 10 for index in QUICK]
    assert asked(source, len(QUICK)) == list(QUICK)
    ahead.begin(late)
    return ahead


def test_a_late_read_is_made_again_and_leaves_no_thread_behind(opened: Any) -> None:
    source, before = Gated([3]), threads_of_readers()
    ahead = begun(opened, source, 1, 3)
    assert read(ahead, [3]) == [30]
    assert asked(source, 2) == [3, 3]
    left = [thread for thread in threads_of_readers() if thread not in before]
    ahead.close()
    source.let_through.release()
    for thread in left:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert source.asked.empty()


def test_one_read_in_twenty_is_made_again_at_most(opened: Any) -> None:
    source = Gated(range(10))
    ahead = begun(opened, source, 10, *range(10))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read, ahead, range(10))
        assert asked(source, 12) == sorted([*range(10), 0, 1])
        let_all_through(source)
        assert found.result(WAIT) == [index * 10 for index in range(10)]
    assert source.asked.empty()


def test_a_source_that_is_not_idempotent_is_not_read_again(opened: Any) -> None:
    class Once(Gated):
        idempotent = False

        def read(self, index: int) -> Any:
            if index == 3:
                self.let_through.acquire(timeout=0.2)  # four times what is late here
            return super().read(index)

    ahead = begun(opened, source := Once([]), 2, 3)
    assert read(ahead, [3]) == [30]
    assert asked(source, 1) == [3]


@pytest.mark.parametrize("second", [None, OSError("the second")])
def test_an_error_counts_only_if_every_attempt_fails(second: Exception | None, opened: Any) -> None:
    source = Gated([3])
    source.errors[3] = [*([second] * 3 if second is not None else []), OSError("the first")]
    ahead = begun(opened, source, 1, 3)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(read, ahead, [3])
        assert asked(source, 2) == [3, 3]
        let_all_through(source)
        with nullcontext() if second is None else pytest.raises(OSError, match=r"the (first|second)"):
            assert answer.result(WAIT) == [30]


def test_batches_are_the_same_whichever_attempt_answers() -> None:
    source = Gated([300, 500, 501])
    workload = ap.Workload(data=source, ops=[], batch_size=20, shuffle=False)
    with ap.build_loader(workload, ap.PipelineConfig(loader=ap.Threads(workers=2, read_ahead=8))) as loader:
        found = np.concatenate([x for x, _ in loader.epoch(0)])
    let_all_through(source)
    assert found.tolist() == [index * 10 for index in range(1000)]
