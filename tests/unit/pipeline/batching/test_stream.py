"""Who waits for whom in a stream of batches, with workers that the test plays; the batches are `tests/contract`'s."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autopipe.errors import LoaderError
from autopipe.pipeline.batching.stream import BatchStream, Task
from autopipe.workload.order import BatchOrder

WAIT_SECONDS = 20
ORDER = BatchOrder(count=10, batch_size=2, seed=0, shuffle=False, drop_remainder=False)


@pytest.fixture
def stream() -> Iterator[BatchStream[str]]:
    made: BatchStream[str] = BatchStream(ORDER, queue_size=2)
    yield made
    made.close()


def given(stream: BatchStream[str], **options: Any) -> Task:
    task = stream.next_task(**options)
    assert task is not None
    return task


def started(stream: BatchStream[str], epoch: int, *, last: bool = False) -> Iterator[str]:
    """Begin an epoch: what a generator does once its first batch is asked for."""
    return stream.take_epoch(epoch, 0, last=last)


def deliver(stream: BatchStream[str], *tasks: Task) -> None:
    for task in tasks:
        stream.deliver(task, f"{task.epoch}.{task.batch}")


WHOLE = [f"0.{batch}" for batch in range(5)]


def made_all(stream: BatchStream[str]) -> None:
    while (task := stream.next_task()) is not None:
        deliver(stream, task)


TAKING = BatchStream._take.__code__


@pytest.mark.parametrize("line", sorted({line - TAKING.co_firstlineno for *_, line in TAKING.co_lines() if line}))
def test_an_epoch_can_be_begun_anew_after_ctrl_c_at_any_line_of_taking_a_batch(
    stream: BatchStream[str], line: int
) -> None:
    def interrupts(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code is TAKING and event == "line" and frame.f_lineno == TAKING.co_firstlineno + line:
            raise KeyboardInterrupt
        return interrupts

    with ThreadPoolExecutor(2) as pool:
        pool.submit(made_all, stream)
        before = sys.gettrace()
        sys.settrace(interrupts)
        with contextlib.suppress(KeyboardInterrupt):  # some lines are not reached
            next(started(stream, 0))
        sys.settrace(before)
        try:
            assert pool.submit(list, started(stream, 0, last=True)).result(WAIT_SECONDS) == WHOLE
        finally:
            stream.close()


def test_an_epoch_that_is_the_last_is_not_read_beyond(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(list, started(stream, 0, last=True))
        for _ in range(5):
            deliver(stream, given(stream))
        assert taken.result() == WHOLE
        beyond = pool.submit(stream.next_task)
        assert not beyond.done()
        stream.close()
        assert beyond.result() is None


def test_what_several_batches_take_of_the_room_they_take_as_often(stream: BatchStream[str]) -> None:
    stream._seek(0, 0, last=False)
    first = given(stream, most=2)
    assert stream.next_task(wait=False, most=2) is not None  # two may wait, and the worker has two at a time
    assert stream.next_task(wait=False) is None
    stream.deliver(first, "two")
    assert stream.waiting() == 2
    assert next(stream.take_epoch(0, 0, last=False)) == "two"
    assert stream.next_task(wait=False) is not None
    assert stream.next_task(wait=False, most=2) is None  # two are out, so another two are one too many


@pytest.mark.parametrize("second", [(0, 1), (4, 2)], ids=["the same place", "elsewhere"])
def test_a_second_reader_ends_the_first_and_loses_nothing(stream: BatchStream[str], second: tuple[int, int]) -> None:
    epoch, start = second
    with ThreadPoolExecutor(2) as pool:
        older = started(stream, 0)
        first = pool.submit(next, older)
        tasks = [given(stream) for _ in range(3)]
        deliver(stream, tasks[0])
        assert first.result() == "0.0"
        waits = pool.submit(next, older)
        newer = pool.submit(list, stream.take_epoch(epoch, start, last=True))
        with pytest.raises(LoaderError, match="one epoch at a time"):
            waits.result(timeout=60)
        deliver(stream, *tasks[1:])
        while (tasks[-1].epoch, tasks[-1].batch) != (epoch, 4):
            tasks.append(given(stream))
            deliver(stream, tasks[-1])
        assert newer.result(timeout=60) == [f"{epoch}.{batch}" for batch in range(start, 5)]
        if epoch == 0:
            assert [task.batch for task in tasks] == [0, 1, 2, 3, 4]


def test_the_consumer_is_woken_for_the_batch_that_it_waits_for_only(
    stream: BatchStream[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait = queue.SimpleQueue[str](), threading.Condition.wait

    def counted(condition: threading.Condition, timeout: float | None = None) -> bool:
        if condition is stream._ready:
            waits.put("waits")
        return wait(condition, timeout)

    batches = started(stream, 0)
    consumer = threading.Thread(target=lambda: next(batches))
    monkeypatch.setattr(threading.Condition, "wait", counted)
    consumer.start()
    waits.get(timeout=WAIT_SECONDS)
    tasks = [given(stream) for _ in range(3)]
    for task in tasks[1:]:
        stream.deliver(task, "later")
        with pytest.raises(queue.Empty):  # it still sleeps
            waits.get(timeout=0.1)
    stream.deliver(tasks[0], "first")
    consumer.join(WAIT_SECONDS)
    assert not consumer.is_alive()


class Slow(BatchOrder):
    """An order of which all but the first epoch takes until the test lets it go on."""

    begun, may_go_on = threading.Event(), threading.Event()

    def epoch(self, number: int) -> NDArray[np.int64]:
        if number:
            Slow.begun.set()
            assert Slow.may_go_on.wait(WAIT_SECONDS)
        return super().epoch(number)


@pytest.fixture
def slow() -> Iterator[BatchStream[str]]:
    Slow.begun, Slow.may_go_on = threading.Event(), threading.Event()
    order = Slow(count=10, batch_size=2, seed=0, shuffle=True, drop_remainder=False)
    made: BatchStream[str] = BatchStream(order, queue_size=9)
    yield made
    Slow.may_go_on.set()
    made.close()


def test_batches_go_on_while_the_order_of_an_epoch_is_drawn(slow: BatchStream[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(lambda: list(started(slow, 0)))
        tasks = [given(slow) for _ in range(5)]
        sixth = pool.submit(given, slow)
        assert Slow.begun.wait(WAIT_SECONDS)
        for task in tasks:
            slow.deliver(task, "made")
        assert taken.result(WAIT_SECONDS) == ["made"] * 5
        Slow.may_go_on.set()
        assert (sixth.result(WAIT_SECONDS).epoch, sixth.result().batch) == (1, 0)


def test_the_order_of_the_next_epoch_is_drawn_ahead_of_its_first_task(slow: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, started(slow, 0))
        tasks = [given(slow) for _ in range(3)]
        assert Slow.begun.wait(WAIT_SECONDS)
        Slow.may_go_on.set()
        slow.deliver(tasks[0], "first")
        assert first.result(WAIT_SECONDS) == "first"
