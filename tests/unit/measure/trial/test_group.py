from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from autopipe.measure.trial.child import uninterrupted


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Python's own handler of Ctrl-C for both, as the command line has it."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_comes_through_once_when_the_block_has_run(number: signal.Signals) -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  the order of both is what is tested
        with uninterrupted():
            signal.raise_signal(number)
            signal.raise_signal(number)
            done.append("block")
        done.append("behind it")
    assert done == ["block"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_a_signal_is_not_lost_where_the_block_fails() -> None:
    def fail() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            raise ValueError

    with pytest.raises(KeyboardInterrupt):
        fail()


def test_what_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)


def test_in_another_thread_nothing_is_to_be_held_back() -> None:
    ran = []

    def work() -> None:
        with uninterrupted():
            ran.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [signal.default_int_handler]
