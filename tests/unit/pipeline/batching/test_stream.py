"""The order of batches, with workers that are played by the test: nothing here waits for a clock."""

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


def of_another_run(stream: BatchStream[str], before: Task) -> Task:
    """Return the next task of another run than a task's; what is left of that is made, too."""
    while (task := given(stream)).run == before.run:
        stream.deliver(task, "old")
    return task


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


def test_batches_come_in_order_whatever_order_they_are_made_in(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        for epoch in (0, 1, 7):
            taken = pool.submit(list, started(stream, epoch, last=True))
            for group in (3, 2):
                deliver(stream, *reversed([given(stream) for _ in range(group)]))
            assert taken.result() == [f"{epoch}.{batch}" for batch in range(5)]


def test_no_more_is_given_out_than_there_is_room_for(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(next, started(stream, 0))
        tasks = [given(stream) for _ in range(3)]
        fourth = pool.submit(given, stream)
        assert not fourth.done()
        deliver(stream, tasks[0])
        assert first.result() == "0.0"
        task = fourth.result()
        assert (task.epoch, task.batch, task.indices.tolist()) == (0, 3, [6, 7])


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


def test_what_was_begun_for_an_epoch_left_behind_is_dropped(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(next, started(stream, 0))
        old = given(stream)
        other = stream.take_epoch(4, 2, last=False)
        again = threading.Event()

        def take() -> str:
            again.set()
            return next(other)

        stream.deliver(old, "old")
        wanted = pool.submit(take)
        again.wait()
        task = of_another_run(stream, old)
        assert (task.epoch, task.batch) == (4, 2)
        deliver(stream, task)
        assert wanted.result() == "4.2"


def test_a_result_of_before_two_jumps_is_not_that_of_the_same_batch_after_them(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        pool.submit(next, started(stream, 0))
        old = given(stream)
        pool.submit(next, stream.take_epoch(0, 3, last=True))
        other = of_another_run(stream, old)
        again = pool.submit(next, started(stream, 0, last=True))
        task = of_another_run(stream, other)
        stream.deliver(old, "old")
        assert stream.waiting() == 0
        deliver(stream, task)
        assert again.result() == "0.0"


def test_several_batches_can_be_made_in_one_go(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        for epoch in (0, 1):
            taken = pool.submit(list, started(stream, epoch, last=True))
            for most, first, expected in ((3, 0, [0, 1, 2, 3, 4, 5]), (1, 3, [6, 7]), (3, 4, [8, 9])):  # an epoch ends
                task = given(stream, most=most)
                assert (task.epoch, task.batch, task.count) == (epoch, first, len(expected) // 2)
                assert task.indices.tolist() == expected
                stream.deliver(task, f"{first} and so on")
            assert taken.result() == ["0 and so on", "3 and so on", "4 and so on"]
            assert stream.waiting() == 0


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


def test_an_error_comes_in_its_batchs_place_and_the_next_epoch_starts_afresh(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(list, started(stream, 0))
        first, second = given(stream), given(stream)
        stream.deliver(second, ValueError("broken"))
        deliver(stream, first)
        with pytest.raises(ValueError, match="broken"):
            taken.result()
        again = pool.submit(next, started(stream, 0))
        task = of_another_run(stream, first)
        assert (task.epoch, task.batch) == (0, 0)
        stream.deliver(task, "again")
        assert again.result() == "again"


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


def test_a_worker_that_ends_by_itself_ends_the_stream_with_its_error(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(next, started(stream, 0))
        assert stream.next_task() is not None
        stream.close(LoaderError("A worker failed"))
        with pytest.raises(LoaderError, match="A worker failed"):
            waits.result(timeout=60)
    with pytest.raises(LoaderError, match="A worker failed"):
        next(started(stream, 0))


# ---------------------------------------------------------------- given out ahead


@pytest.fixture
def ahead() -> Iterator[BatchStream[str]]:
    made: BatchStream[str] = BatchStream(ORDER, queue_size=0, ahead=2)
    yield made
    made.close()


def test_batches_are_given_out_ahead_but_made_only_when_there_is_room(ahead: BatchStream[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(list, started(ahead, 0, last=True))
        tasks = [given(ahead) for _ in range(3)]
        assert [task.batch for task in tasks] == [0, 1, 2]
        assert ahead.next_task(wait=False) is None  # one may be made, and two are ahead of it
        for task in tasks:
            assert ahead.room_for(task)  # once the consumer has taken the one before
            deliver(ahead, task)
        for _ in range(2):
            deliver(ahead, given(ahead))
        assert taken.result() == WHOLE


def test_nobody_wants_a_batch_that_was_given_out_before_a_jump(ahead: BatchStream[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, started(ahead, 0, last=True))
        tasks = [given(ahead) for _ in range(2)]
        deliver(ahead, tasks[0])
        assert first.result() == "0.0"
        second = pool.submit(next, ahead.take_epoch(4, 1, last=True))
        task = of_another_run(ahead, tasks[0])
        assert (ahead.room_for(tasks[1]), ahead.room_for(task)) == (False, True)
        deliver(ahead, task)
        assert second.result() == "4.1"


def test_closing_ends_the_waiting_for_room(ahead: BatchStream[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(next, started(ahead, 0, last=True))
        tasks = [given(ahead) for _ in range(3)]
        waiting = pool.submit(ahead.room_for, tasks[2])
        ahead.close()
        assert waiting.result() is False
        with pytest.raises(LoaderError, match="closed"):
            taken.result()


def test_a_stream_that_stops_ahead_ends_what_it_has_begun_and_goes_on_if_told(stream: BatchStream[str]) -> None:
    with ThreadPoolExecutor(2) as pool:
        taken = pool.submit(list, started(stream, 0, last=True))
        tasks = [given(stream), given(stream)]
        assert stream.stop_ahead() == (0, 2)
        assert stream.next_task(wait=False) is None
        stream.go_on()
        deliver(stream, *tasks, given(stream))
        for _ in range(2):
            deliver(stream, given(stream))
        assert taken.result() == WHOLE


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
