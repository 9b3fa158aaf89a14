"""A loader in whose place another one may go on, between any two batches: batches do not depend on the configuration.

The other loader begins with the first batch that the running one has not begun, beside it, so that nothing is made
twice and nothing is waited for. The loader before stays open until `keep`, and goes on if the new one fails. A `Watch`,
such as `autopipe.search.live`, decides which loader takes over, and when; nothing is measured or judged here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from typing import Any, Protocol, TypeAlias

from autopipe.errors import ConfigError, LoaderError, shortened
from autopipe.pipeline.batching.stream import overtaken
from autopipe.pipeline.loader import Loader, Made, end
from autopipe.workload.sample import Batch

Place: TypeAlias = tuple[int, int]
"""An epoch, and the number of a batch in it."""

_PATIENCE_SECONDS = 60.0  # with the first batch of a new loader, whose workers may have much to import
_BRIEF_SECONDS = (0.1, 0.5)  # at least and at most, of waiting for that batch when the new loader is to take over


def check_tune(tune: str | None, rank: tuple[int, int] = (0, 1)) -> None:
    """Raise ConfigError unless a training can be tuned so; `rank` is (i, n) of n processes that train together."""
    if tune not in ("live", None):
        raise ConfigError(f'`tune` must be "live" or None, but got {shortened(tune)}.')
    if tune is not None and rank[1] > 1:
        raise ConfigError(
            f"`tune` must be None in processes that train together, but got tune={tune!r} in one of {rank[1]}.",
            hint="Tune the pipeline beforehand, by `autopipe tune`, and train with the configuration that it finds.",
        )


def beside(function: Callable[[], Made]) -> Future[Made]:
    """Run a function in a thread beside the training."""
    found: Future[Made] = Future()

    def run() -> None:
        try:
            found.set_result(function())
        except BaseException as error:  # noqa: BLE001  # raised where the result is taken
            found.set_exception(error)

    threading.Thread(target=run, name="autopipe-beside", daemon=True).start()
    return found


def close_when_open(opening: Future[Loader]) -> None:
    """Close a loader that is being opened, as soon as it is there."""

    def close(opened: Future[Loader]) -> None:
        if opened.exception() is None:
            opened.result().close()

    opening.add_done_callback(close)


class Watch(Protocol):
    """Follows the batches that a loader hands over. All calls come from the thread that takes them."""

    def took(self, waited: float, stepped: float) -> None:
        """Note a batch: the seconds that its taker waited for it, and those until it asked for the next one."""

    def epoch_ended(self, epoch: int) -> None:
        """Note that the last batch of an epoch was taken."""

    def failed(self, loader: Loader, error: Exception) -> None:
        """Note that a loader could not make a batch. It is closed, and the one before it goes on."""

    def instead(self, error: Exception) -> Loader | None:
        """Open a loader in the place of one that failed and has no spare; None raises the error."""

    def closed(self) -> None:
        """Note that no batch follows, and end what runs beside the training."""


class SwitchingLoader(Loader):
    """Hands on the batches of loaders that follow each other. The thread that takes them calls all but `close`."""

    def __init__(
        self, loader: Loader, *, clock: Callable[[], float] = time.monotonic, patience: float = _PATIENCE_SECONDS
    ) -> None:
        """Own `loader` and those that follow. A new one may take `patience` seconds for its first batch."""
        self.loader = loader  # that hands over batches now
        self.spare: Loader | None = None  # the one that did before, still open
        self.watch: Watch | None = None  # follows the batches
        self.changes, self._settled = 0, loader  # how often another loader has taken over for good
        self.spec, self.finish, self.batch_size = loader.spec, loader.finish, loader.batch_size
        self.last_batch_samples, self.buffered_batches = loader.last_batch_samples, loader.buffered_batches
        self._resume, self._position = loader.loaded_state(), loader._position
        self._clock, self._patience = clock, patience
        self._upcoming: _Upcoming | None = None
        self._at: Place = (0, 0)  # the next batch
        self.is_last = False  # whether no epoch follows the one that is read
        self._is_closed = False
        self._reader = 0  # the last one that began to take batches
        self._closing: list[threading.Thread] = []
        self._lost = 0  # workers of loaders that are closed

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def identity(self) -> str:
        return self.loader.identity

    def batches(self, epoch: int, start: int = 0, *, last: bool = False) -> Iterator[Batch]:
        source: Iterator[Batch] | None = None
        if self._upcoming is not None and (epoch, start) < self._at:  # the reader may never come to its place again
            self._upcoming.place, self._upcoming.is_late = (-1, 0), False
        self._at, self.is_last, number = (epoch, start), last, start
        self._reader += 1
        reader = self._reader
        try:
            while number < len(self):
                if reader != self._reader:
                    raise overtaken(epoch)
                began = self._clock()
                source, batch = self._next(source)
                got = self._clock()
                number += 1
                self._at = (epoch, number) if number < len(self) else (epoch + 1, 0)
                yield batch
                del batch  # its memory goes back to the loader before the next one is asked for
                if self.watch is not None:
                    self.watch.took(got - began, self._clock() - got)
        finally:
            if source is not None:
                end(source)
            if number >= len(self) and self.watch is not None:
                self.watch.epoch_ended(epoch)

    def _next(self, source: Iterator[Batch] | None) -> tuple[Iterator[Batch], Batch]:
        """Return the next batch, and what gives those after it."""
        while True:
            if self._is_due():
                source = self._taken_over(source)
            elif source is None:
                source = self.loader.batches(*self._at, last=self.is_last)
            try:
                return source, next(source)
            except StopIteration:
                raise LoaderError("A loader ended in the middle of an epoch.") from None
            except Exception as error:
                spare = None if self._is_closed else self.spare
                if spare is None and not self._is_closed and self.watch is not None:
                    spare = self.watch.instead(error)
                if spare is None:
                    raise
                source, failed = None, self.loader
                self.stay()
                self.loader, self.spare = spare, None
                spare.go_on()
                self._settle()
                self._refuse(failed, error)

    def switch(self, loader: Loader) -> None:
        """Let a loader of the same batches, owned from here on, begin now, and take over with its first batch."""
        self.stay()
        if loader is self.loader:
            return
        if self.spare is not None and loader is not self.spare:
            self.keep()
        self._begin(loader, self._clock())

    def stay(self) -> None:
        """Take back a switch that was not made yet, and close the other loader unless it is the spare one."""
        upcoming, self._upcoming = self._upcoming, None
        if upcoming is not None:
            self.loader.go_on()
            if upcoming.loader is self.spare:
                upcoming.loader.stop_ahead()
            else:
                self._discard(upcoming.loader)

    @property
    def is_switching(self) -> bool:
        """True if another loader is about to take over."""
        return self._upcoming is not None

    def keep(self) -> None:
        """Close the spare loader: the other one stays."""
        spare, self.spare = self.spare, None
        if spare is not None:
            self._discard(spare)
        self._settle()

    def occupancy(self) -> tuple[int, int] | None:
        return self.loader.occupancy()

    def lost_workers(self) -> int:
        spare = 0 if self.spare is None else self.spare.lost_workers()
        return self._lost + spare + self.loader.lost_workers()

    def close(self) -> None:
        self._is_closed = True
        with contextlib.ExitStack() as stack:
            for thread in self._closing:
                stack.callback(thread.join)
            upcoming = None if self._upcoming is None else self._upcoming.loader
            for loader in (self.loader, self.spare, upcoming):
                if loader is not None:
                    stack.callback(loader.close)
            self.spare = self._upcoming = None
            if self.watch is not None:
                self.watch.closed()

    def _begin(self, loader: Loader, asked_at: float, *, second: bool = False) -> Place:
        """Have another loader begin, and return its first batch."""
        if (begun := self.loader.stop_ahead()) is None:  # it does not tell: what it has probably not begun
            epoch, number = self._at
            number += self.loader.batches_at_once or 1
            begun = (epoch, number) if number < len(self) else (epoch + 1, 0)
        place = max(begun, self._at)
        loader.go_on()
        self._upcoming = _Upcoming(loader, place, asked_at, is_second=second)
        if place[0] == self._at[0] or not self.is_last:
            self._upcoming.begin(last=self.is_last and place[0] == self._at[0])
        return place

    def _is_due(self) -> bool:
        """Return True if another loader takes over now. A late one may, once, as soon as its first batch is there."""
        upcoming = self._upcoming
        if upcoming is None or (not upcoming.is_late and upcoming.place > self._at):
            return False
        age, (least, most) = self._clock() - upcoming.asked_at, _BRIEF_SECONDS
        if not upcoming.is_late:
            brief = most if upcoming.is_second else min(max(age, least), most)
            if upcoming.place != self._at or upcoming.is_there(brief):
                return True
            self.loader.go_on()
            if upcoming.is_second:
                self._give_up(upcoming, age)
            upcoming.is_late = True
        elif upcoming.is_there():
            place = self._begin(upcoming.loader, self._clock(), second=True)
            return place == self._at  # the loader before has begun no batch, as where an epoch begins
        elif age > self._patience:
            self._give_up(upcoming, age)
        return False

    def _give_up(self, upcoming: _Upcoming, seconds: float) -> None:
        self._upcoming = None
        self._refuse(upcoming.loader, LoaderError(f"Its first batch was not there after {seconds:.1f} s."))

    def _taken_over(self, source: Iterator[Batch] | None) -> Iterator[Batch]:
        """Return the batches from here on, of the upcoming loader."""
        upcoming, before = self._upcoming, self.loader
        assert upcoming is not None
        if source is not None:
            end(source)
        self._upcoming = None
        try:
            found = upcoming.source(self._at, last=self.is_last)
        except Exception as error:  # noqa: BLE001  # whatever it was, the loader before goes on
            before.go_on()
            self._refuse(upcoming.loader, error)
            return before.batches(*self._at, last=self.is_last)
        self.loader, self.spare = upcoming.loader, before
        self.buffered_batches = self.loader.buffered_batches
        return found

    def _settle(self) -> None:
        self.changes += self.loader is not self._settled
        self._settled = self.loader

    def _refuse(self, loader: Loader, error: Exception) -> None:
        if self.spare is loader:
            self.spare = None
        self._discard(loader)
        if self.watch is not None:
            self.watch.failed(loader, error)

    def _discard(self, loader: Loader) -> None:
        """Close a loader that does not serve, beside the training: that may take a while."""
        self._lost += loader.lost_workers()
        thread = threading.Thread(target=loader.close, name="autopipe-closing")
        self._closing = [each for each in self._closing if each.is_alive()] + [thread]
        thread.start()


@dataclasses.dataclass
class _Upcoming:
    """A loader that takes over at a batch."""

    loader: Loader
    place: Place
    asked_at: float  # when the switch was asked for, in seconds of a clock
    is_second: bool  # whether it was late at an earlier place
    is_late: bool = False  # whether its first batch was not there in time
    _source: Any = None
    _first: Future[Batch] | None = None

    def begin(self, *, last: bool) -> None:
        """Make the first batch in a thread, and so have the workers begin with those after it."""
        self._source = self.loader.batches(*self.place, last=last)
        self._first = beside(functools.partial(next, self._source))

    def is_there(self, seconds: float = 0.0) -> bool:
        """Wait for the first batch, for so many seconds at most; return True if it is there, or failed."""
        return self._first is None or bool(wait([self._first], seconds).done)

    def source(self, place: Place, *, last: bool) -> Iterator[Batch]:
        """Return the batches from `place` on, which may be another one after a jump."""
        first, self._first = self._first, None
        if first is None or place != self.place:
            return self.loader.batches(*place, last=last)
        held = [first.result()]
        del first
        return _followed(held, self._source)


def _followed(held: list[Batch], source: Iterator[Batch]) -> Generator[Batch, None, None]:
    try:
        yield held.pop()  # holds no reference to it
        yield from source
    finally:
        end(source)
