"""Processes that train together, played in one: process 0 gives orders, and the other follows or cannot."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import autopipe as ap
from autopipe.errors import LoaderError
from autopipe.pipeline import ranks
from autopipe.pipeline.ranks import Follower, LeadingLoader
from autopipe.pipeline.switching import SwitchingLoader, beside
from autopipe.workload.sample import Batch
from tests.fakes.loader import ArrayLoader, blobs

X, Y = blobs(40)
FIRST, OTHER = (ap.PipelineConfig(loader=ap.Threads(workers=count)) for count in (1, 2))
ELSEWHERE = ap.PipelineConfig(loader=ap.Threads(workers=3))


class FakeBoard:
    def __init__(self, rank: int, texts: dict[str, str]) -> None:
        self.rank = rank, 2
        self._texts = texts

    def post(self, key: str, text: str) -> None:
        assert key not in self._texts
        self._texts[key] = text

    def read(self, folder: str) -> list[str]:
        return [text for key, text in self._texts.items() if key.startswith(f"{folder}/")]


class Fails(ArrayLoader):
    """Fails at each batch from now on, once it is told to."""

    is_broken = False

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        for batch in super().batches(epoch, start, last=last):
            if self.is_broken:
                raise LoaderError("a worker died")
            yield batch


class Noted:
    """A `Watch` of process 0 that notes failures."""

    def __init__(self) -> None:
        self.failures = list[str]()

    def took(self, waited: float, stepped: float) -> None: ...

    def epoch_ended(self, epoch: int) -> None: ...

    def failed(self, loader: ap.Loader, error: Exception) -> None:
        self.failures.append(str(error))

    def instead(self, error: Exception) -> ap.Loader | None:
        return None

    def closed(self) -> None: ...


class Both:
    """Two processes that train in step. The second begins with `begins`, and opens what `refuses` does not."""

    def __init__(
        self, begins: ap.PipelineConfig = FIRST, refuses: Callable[[ap.PipelineConfig], bool] = lambda config: False
    ) -> None:
        self._seconds, texts = itertools.count(), dict[str, str]()
        ranks._names = itertools.count()
        self.opened: list[dict[ap.PipelineConfig, list[Fails]]] = [{}, {}]
        self.leading = LeadingLoader(self._open(0, FIRST), FIRST, FakeBoard(0, texts), clock=self._clock)
        self.leading.watch = self.noted = Noted()
        self.following = SwitchingLoader(self._open(1, begins), clock=self._clock)
        ranks._names = itertools.count()

        def opened(config: ap.PipelineConfig) -> ap.Loader:
            if refuses(config):
                raise LoaderError("there is no room")
            return self._open(1, config)

        self.follower = Follower(self.following, begins, opened, FakeBoard(1, texts), clock=self._clock)
        self.following.watch = self.follower
        self._steps = self._trained()

    def _clock(self) -> float:
        return float(next(self._seconds))

    def _open(self, rank: int, config: ap.PipelineConfig) -> Fails:
        loader = Fails(X, Y, 4)
        self.opened[rank].setdefault(config, []).append(loader)
        return loader

    def loader(self, rank: int, config: ap.PipelineConfig) -> Fails:
        return self.opened[rank][config][-1]

    def _trained(self) -> Iterator[None]:
        for epoch in itertools.count():
            order = self.leading.loader.order.epoch(epoch)  # type: ignore[attr-defined]  # an ArrayLoader's
            batches = zip(self.leading.batches(epoch), self.following.batches(epoch), strict=True)
            for number, both in enumerate(batches):
                for x, _ in both:
                    np.testing.assert_array_equal(x, X[order[number * 4 :][:4]])
                yield
                for loader in (self.leading, self.following):
                    if loader._upcoming is not None:
                        loader._upcoming.is_there(60)  # so that no loader is late, however slow the machine is

    def train(self, until: Callable[[], bool] = lambda: False, most: int = 10_000_000) -> None:
        """Train until something is so, or for some steps."""
        for _ in itertools.islice(self._steps, most):
            if until():
                return
        assert most < 1000

    def open_other(self) -> ap.Loader:
        opening = beside(lambda: self.leading.open_beside(lambda config: self._open(0, config), OTHER))
        self.train(opening.done)
        return opening.result()

    def serve(self, loader: ap.Loader) -> None:
        self.leading.switch(loader)
        self.train(lambda: not self.leading.is_switching)

    def close(self) -> None:
        self.leading.close()
        self.following.close()

    def still_open(self, rank: int) -> list[ap.PipelineConfig]:
        return [config for config, loaders in self.opened[rank].items() for each in loaders if not each.closed]


def test_all_processes_change_their_loaders_together() -> None:
    both = Both()
    other = both.open_other()
    assert both.following.loader is both.loader(1, FIRST)
    both.serve(other)
    assert both.following.loader is both.loader(1, OTHER)
    assert both.follower.config == OTHER
    both.leading.keep()
    both.train(lambda: both.following.spare is None)
    both.close()
    assert (both.still_open(0), both.still_open(1)) == ([], [])


def test_what_is_taken_back_is_closed_in_all_processes() -> None:
    both = Both()
    mine, other = both.leading.loader, both.open_other()
    for each in (other, mine, other, mine):
        both.serve(each)
    both.leading.keep()
    both.train(lambda: both.loader(1, OTHER).closed)
    assert both.following.loader is both.loader(1, FIRST)
    both.close()
    assert (both.still_open(0), both.still_open(1)) == ([], [])


def test_if_one_process_cannot_open_it_none_changes() -> None:
    both = Both(refuses=lambda config: config == OTHER)
    with pytest.raises(LoaderError, match="Process 1: there is no room"):
        both.open_other()
    assert both.still_open(0) == both.still_open(1) == [FIRST]
    both.close()


def test_if_process_0_cannot_open_it_the_others_close_it() -> None:
    both = Both()

    def fails(config: ap.PipelineConfig) -> ap.Loader:
        both.train(lambda: OTHER in both.opened[1])
        raise LoaderError("there is no room")

    with pytest.raises(LoaderError, match="there is no room"):
        both.leading.open_beside(fails, OTHER)
    both.train(lambda: both.loader(1, OTHER).closed)
    assert both.still_open(1) == [FIRST]
    both.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_if_it_fails_in_one_process_all_go_back(rank: int) -> None:
    both = Both()
    other = both.open_other()
    both.serve(other)
    both.loader(rank, OTHER).is_broken = True
    both.train(most=30)
    both.leading.switch(both.leading.loader)  # process 0 asks whether all have it before it keeps it
    both.train(lambda: not both.leading.is_switching)
    assert [each.loader for each in (both.leading, both.following)] == [both.loader(each, FIRST) for each in (0, 1)]
    (failure,) = both.noted.failures
    assert failure == ("a worker died" if rank == 0 else "Process 1: a worker died")
    both.leading.keep()
    both.close()
    assert (both.still_open(0), both.still_open(1)) == ([], [])


def test_a_process_that_began_with_another_configuration_takes_that_of_process_0() -> None:
    both = Both(begins=ELSEWHERE)
    both.train(lambda: both.follower.config == FIRST)
    assert both.following.loader is both.loader(1, FIRST)
    both.train(lambda: both.loader(1, ELSEWHERE).closed)
    both.close()


def test_a_loader_that_opens_while_the_training_ends_is_closed() -> None:
    both = Both()
    opening = beside(lambda: both.leading.open_beside(lambda config: both._open(0, config), OTHER))
    both.close()
    with pytest.raises(LoaderError, match="has ended"):
        opening.result(60)
    assert both.still_open(0) == []
