"""The order of batches, with workers that are played by the test: nothing here waits for a clock."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from autopipe.errors import LoaderError
from autopipe.pipeline.batching.stream import BatchStream, Task
from autopipe.workload.order import BatchOrder

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


def test_no_more_is_given_out_than_there_is_room_for(stream: Played) -> None:
    first = stream.first_of(0)
    tasks = [stream.given() for _ in range(3)]
    fourth = stream.pool.submit(stream.given)
    assert not fourth.done()
    stream.make(tasks[0])
    assert first.result() == "0.0"
    task = fourth.result()
    assert (task.epoch, task.batch, task.indices.tolist()) == (0, 3, [6, 7])


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
    for epoch in (0, 1):
        taken = stream.all_of(epoch)
        for most, first, expected in ((3, 0, [0, 1, 2, 3, 4, 5]), (1, 3, [6, 7]), (3, 4, [8, 9])):  # an epoch ends
            task = stream.given(most=most)
            assert (task.epoch, task.batch, task.count) == (epoch, first, len(expected) // 2)
            assert task.indices.tolist() == expected
            stream.deliver(task, f"{first} and so on")
        assert taken.result() == ["0 and so on", "3 and so on", "4 and so on"]
        assert stream.waiting() == 0


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


def test_an_error_comes_in_its_batchs_place_and_the_next_epoch_starts_afresh(stream: Played) -> None:
    taken = stream.pool.submit(list, stream.take_epoch(0, 0, last=False))
    first, second = stream.given(), stream.given()
    stream.deliver(second, ValueError("broken"))
    stream.make(first)
    with pytest.raises(ValueError, match="broken"):
        taken.result()
    again = stream.first_of(0)
    task = of_another_run(stream, first)
    assert (task.epoch, task.batch) == (0, 0)
    stream.deliver(task, "again")
    assert again.result() == "again"


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
    with pytest.raises(LoaderError, match="one epoch at a time"):
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
    stream.close(LoaderError("A worker failed"))
    for reader in (waits, stream.pool.submit(next, stream.take_epoch(0, 0, last=False))):
        with pytest.raises(LoaderError, match="A worker failed"):
            reader.result(timeout=60)


# ---------------------------------------------------------------- given out ahead


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


def test_closing_ends_the_waiting_for_room(ahead: Played) -> None:
    taken = ahead.first_of(0, last=True)
    tasks = [ahead.given() for _ in range(3)]
    waiting = ahead.pool.submit(ahead.room_for, tasks[2])
    ahead.close()
    assert waiting.result() is False
    with pytest.raises(LoaderError, match="closed"):
        taken.result()


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
