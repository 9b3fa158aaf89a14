"""What every loader shares, and loaders that take each other's place. Real loaders: tests/contract."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import ConfigError, LoaderError
from autopipe.measure import costs
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.switching import SwitchingLoader, check_tune
from autopipe.workload.sample import Batch
from tests.fakes.facts import DESCRIBED
from tests.fakes.loader import ArrayLoader, Clock, blobs


def three() -> ArrayLoader:
    """Return a loader of three batches, which are their numbers."""
    return ArrayLoader(np.arange(3), None, 1, shuffle=False)


def numbers(batches: Iterator[tuple[Any, Any]]) -> list[int]:
    return [int(x[0]) for x, _ in batches]


def place(loader: ap.Loader) -> tuple[int, int]:
    return loader.state_dict()["epoch"], loader.state_dict()["batch"]


def test_a_state_names_the_next_batch() -> None:
    loader = three()
    epoch = loader.epoch(np.int64(4))  # type: ignore[arg-type]  # as of np.arange
    places = [place(loader)] + [(numbers(itertools.islice(epoch, count)), place(loader)) for count in (2, 1)]
    assert places == [(0, 0), ([0, 1], (4, 2)), ([2], (5, 0))]


def test_a_loader_that_is_looped_over_without_an_epoch_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"loader\.epoch\(number\)"):
        iter(three())


STATE = {"schema_version": 1, "epoch": 2, "batch": 1, "identity": "arrays"}


def test_a_loaded_state_holds_for_its_own_epoch_once() -> None:
    loader = three()
    loader.load_state_dict(STATE)
    assert loader.state_dict()["batch"] == 1
    assert [numbers(loader.epoch(2)) for _ in range(2)] == [[1, 2], [0, 1, 2]]
    assert [asked[:2] for asked in loader.asked] == [(2, 1), (2, 0)]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({**STATE, "identity": "four"}, "another workload"),
        ({**STATE, "batch": 3}, "has 3 batches"),
        ({**STATE, "batch": -1}, r"must be what `state_dict\(\)` returned, but got .*'batch': -1"),
        ({**STATE, "extra": 1}, r"must be what `state_dict\(\)` returned, but got"),
        *((state, rf"returned, but got {re.escape(repr(state))}\.") for state in (3, None, "model.keras", {})),
    ],
)
def test_a_state_that_does_not_fit_is_refused(state: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        three().load_state_dict(state)


SMALL, LARGE = (4, 4, 3), (1024, 512, 3)
BATCH = 4


@pytest.mark.usefixtures("forked_nurseries")
@pytest.mark.parametrize(
    ("loader", "shape", "steps", "held"),
    [
        (ap.Threads(workers=3, queue_size=8), SMALL, 1, (8 + 3 * 8, 8)),
        (ap.Threads(workers=3, queue_size=8), SMALL, 3, (6 + 3 * 3, 3)),
        (ap.Threads(workers=1, queue_size=2), SMALL, 1, (2 + 2, 2)),
        (ap.Threads(workers=1, queue_size=2), SMALL, 16, (32 + 16, 16)),
        (ap.Threads(workers=3, queue_size=8), LARGE, 3, (8 + 3, 1)),
        (ap.Threads(workers=3, queue_size=8, read_ahead=4), SMALL, 3, (8 + 3, 1)),
        (ap.Processes(workers=1, queue_size=8), SMALL, 3, (6 + 3, 3)),
    ],
    ids=str,
)
def test_batches_that_are_made_several_at_a_time_are_counted_so(
    loader: LoaderConfig, shape: tuple[int, ...], steps: int, held: tuple[int, int]
) -> None:
    data = ap.Arrays(np.zeros((8, *shape), np.uint8))
    config = ap.PipelineConfig(loader=loader, steps_per_execution=steps)
    with ap.build_loader(ap.Workload(data=data, ops=[], batch_size=BATCH), config) as opened:
        assert opened.buffered_batches == held[0]
    known = {"batch_size": BATCH, "compact_bytes": int(np.prod(shape)), "mean_bytes": 0.0}
    assert costs.memory_bytes(config, DESCRIBED.model_copy(update=known)) == sum(held) * BATCH * int(np.prod(shape))


@pytest.mark.parametrize(
    ("loader", "held"),
    [
        (ap.TfData(num_parallel_calls=9, prefetch=5), 6 + 9),
        (ap.TfData(), 16 + 2),  # "auto": as many as the loader makes sure that there is room for
        (ap.TfData(num_parallel_calls=3, prefetch=5, read_ahead=2), 6 + 3),
    ],
    ids=str,
)
def test_batches_that_tf_data_makes_at_once_count(this_machine: Any, loader: ap.TfData, held: int) -> None:
    this_machine(cores=2)
    known = DESCRIBED.model_copy(update={"batch_size": BATCH, "compact_bytes": 1000, "mean_bytes": 0.0})
    assert costs.memory_bytes(ap.PipelineConfig(loader=loader), known) == (held + 1) * BATCH * 1000


X, Y = blobs(24)
EXPECTED = [y.tolist() for _, y in ArrayLoader(X, Y, 4).batches(0)]


def arrays(fails_at: int | None = None) -> ArrayLoader:
    made = ArrayLoader(X, Y, 4)
    made.fails_at, made.error = None if fails_at is None else (0, fails_at), LoaderError("it cannot")
    return made


class Waiting(ArrayLoader):
    def __init__(self) -> None:
        super().__init__(X, Y, 4)
        self.told = threading.Event()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        self.told.wait()
        yield from super().batches(epoch, start, last=last)

    def close(self) -> None:
        super().close()
        self.told.set()


class Watched:
    replacements: list[ArrayLoader]

    def __init__(self) -> None:
        self.took_batches, self.ended, self.failures, self.is_closed = 0, list[int](), list[tuple[Any, str]](), False

    def took(self, waited: float, stepped: float) -> None:
        assert min(waited, stepped) >= 0
        self.took_batches += 1

    def epoch_ended(self, epoch: int) -> None:
        self.ended.append(epoch)

    def failed(self, loader: Any, error: Exception) -> None:
        self.failures.append((loader, str(error)))

    def instead(self, error: Exception) -> ArrayLoader | None:
        return self.replacements.pop() if self.replacements else None

    def closed(self) -> None:
        self.is_closed = True


def switching(loader: ArrayLoader, *replacements: ArrayLoader, **settings: Any) -> tuple[SwitchingLoader, Watched]:
    made, watch = SwitchingLoader(loader, **settings), Watched()
    watch.replacements = [*replacements]
    made.watch = watch
    return made, watch


def labels(loader: SwitchingLoader, switch_at: dict[int, ArrayLoader]) -> list[list[int]]:
    """Return the labels of an epoch's batches; loaders are switched to before batches of these numbers."""
    found, batches = list[list[int]](), loader.batches(0)
    for number in range(len(loader)):
        if number in switch_at:
            loader.switch(switch_at[number])
        found.append(next(batches)[1].tolist())
    batches.close()  # type: ignore[attr-defined]  # a generator
    return found


def test_the_loader_before_stays_open_until_it_is_no_longer_needed() -> None:
    one, other = arrays(), arrays()
    loader, watch = switching(one)
    assert labels(loader, {2: other}) == EXPECTED
    assert (loader.loader, loader.spare, one.closed) == (other, one, False)
    loader.keep()
    loader.close()
    assert (one.closed, other.closed, loader.changes) == (True, True, 1)
    assert (watch.took_batches, watch.ended, watch.is_closed) == (5, [0], True)


@pytest.mark.parametrize("fails_at", [3, 4, 5])
def test_a_loader_that_fails_is_replaced_by_the_one_before(fails_at: int) -> None:
    one, other = arrays(), arrays(fails_at)
    loader, watch = switching(one)
    assert labels(loader, {1: other}) == EXPECTED
    assert (loader.loader, loader.spare, watch.failures) == (one, None, [(other, "it cannot")])
    loader.close()
    assert other.closed


@pytest.mark.parametrize("closed", [False, True])
def test_an_error_of_the_only_loader_is_raised_and_nothing_is_opened_again_once_it_is_closed(*, closed: bool) -> None:
    loader, watch = switching(arrays(3), *[arrays()] * closed)
    if closed:
        loader.close()
    with pytest.raises(LoaderError, match="it cannot"):
        list(loader.batches(0))
    assert watch.failures == []


def test_a_loader_without_a_spare_is_replaced_by_one_that_is_opened_then() -> None:
    one, other = arrays(3), arrays()
    loader, watch = switching(one, other)
    assert labels(loader, {}) == EXPECTED
    assert (loader.loader, watch.failures) == (other, [(one, "it cannot")])


def test_an_error_that_both_loaders_have_is_raised_once() -> None:
    other = arrays(4)
    loader, watch = switching(arrays(4))
    with pytest.raises(LoaderError, match="it cannot"):
        labels(loader, {1: other})
    assert watch.failures == [(other, "it cannot")]


def test_a_loader_that_is_late_takes_over_once_its_batch_is_there() -> None:
    one, other = arrays(), Waiting()
    loader, watch = switching(one, clock=Clock())
    batches, found = loader.batches(0), list[list[int]]()
    for number in range(6):
        if number == 1:
            loader.switch(other)
        if number == 4:
            assert (loader.loader, loader.is_switching) == (one, True)
            other.told.set()
            while not loader._upcoming.is_there(0.1):  # type: ignore[union-attr]  # it waits for that thread
                pass
        found.append(next(batches)[1].tolist())
    assert found == EXPECTED
    assert (loader.loader, loader.is_switching, watch.failures) == (other, False, [])


def test_a_loader_whose_batch_never_comes_is_given_up() -> None:
    one, other, clock = arrays(), Waiting(), Clock()
    loader, watch = switching(one, clock=clock, patience=30.0)
    batches = loader.batches(0)
    found = [next(batches)[1].tolist()]
    loader.switch(other)
    for _ in range(5):
        found.append(next(batches)[1].tolist())
        clock.now += 20.0
        other.told.clear()
    assert found == EXPECTED
    assert [(each, "was not there" in said) for each, said in watch.failures] == [(other, True)]
    loader.close()
    assert other.closed


def test_a_switch_that_is_taken_back_leaves_the_running_loader() -> None:
    one, other = arrays(), arrays()
    loader, _ = switching(one)
    batches = loader.batches(0)
    found = [next(batches)[1].tolist()]
    loader.switch(other)
    loader.stay()
    found += [y.tolist() for _, y in batches]
    loader.close()
    assert (found, loader.loader, other.closed) == (EXPECTED, one, True)


@pytest.mark.parametrize(("epoch", "start"), [(3, 2), (0, 0), (1, 0)])
def test_the_reader_may_jump_while_a_loader_is_about_to_take_over(epoch: int, start: int) -> None:
    one, other = arrays(), arrays()
    loader, _ = switching(one)
    batches = loader.batches(1, 2)
    next(batches)
    loader.switch(other)
    del batches
    found = [y.tolist() for _, y in loader.batches(epoch, start)]
    assert found == [y.tolist() for _, y in arrays().batches(epoch, start)]
    assert loader.loader is other


def test_an_older_reader_gets_nothing_any_more() -> None:
    loader, _ = switching(arrays())
    older = loader.batches(0)
    next(older)
    newer = loader.batches(1)
    next(newer)
    with pytest.raises(LoaderError, match="one epoch at a time"):
        next(older)


@pytest.mark.parametrize("tune", ["Live", "", "auto", True])
def test_another_way_to_tune_is_refused(tune: Any) -> None:
    with pytest.raises(ConfigError, match="`tune` must be"):
        check_tune(tune)


def test_processes_that_train_together_do_not_tune_themselves() -> None:
    check_tune(None, (1, 2))
    with pytest.raises(ConfigError, match=r"`tune` must be None .* one of 2"):
        check_tune("live", (1, 2))
