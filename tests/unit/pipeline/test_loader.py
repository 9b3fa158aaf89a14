"""What every loader shares, and what a configuration is expected to hold. Real loaders: tests/contract."""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import ConfigError
from autopipe.measure import costs
from autopipe.pipeline.config import LoaderConfig
from autopipe.workload.sample import Batch
from tests.fakes.facts import DESCRIBED
from tests.fakes.loader import ArrayLoader


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


class Watchful(ArrayLoader):
    """Notes which of its batches are still held when it is asked for the next."""

    held: ClassVar = list[bool]()

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for number in range(3):
            made = weakref.ref(array := np.array([number]))
            yield array, None
            del array
            self.held.append(made() is not None)


def test_a_batch_that_the_consumer_has_done_with_is_not_held_while_the_next_is_made() -> None:
    loader = Watchful(np.arange(3), None, 1)
    epoch = loader.epoch(0)
    while next(epoch, None) is not None:
        pass
    assert loader.held == [False] * 3


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
def test_batches_that_tf_data_makes_at_once_count(
    this_machine: Callable[..., None], loader: ap.TfData, held: int
) -> None:
    this_machine(cores=2)
    known = DESCRIBED.model_copy(update={"batch_size": BATCH, "compact_bytes": 1000, "mean_bytes": 0.0})
    assert costs.memory_bytes(ap.PipelineConfig(loader=loader), known) == (held + 1) * BATCH * 1000
