"""Processes that train together change their loaders together: process 0 gives orders, and the others follow.

Batches do not depend on the loader, so a process that follows late trains the same. But a step waits for all of them,
so a rate tells of a configuration only while all have it: process 0 measures when all have answered. Orders and answers
are texts on a board, where each process looks between two batches. No process waits there in the thread that trains.
Which loaders are tried is decided in `autopipe.search.live`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Protocol

from autopipe.errors import LoaderError
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loader import Loader, end
from autopipe.pipeline.switching import SwitchingLoader, beside, close_when_open
from autopipe.values import JsonObject, Value
from autopipe.workload.sample import Batch

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2  # between two looks at the board, which take some tenths of a millisecond each

_DONE = "done"  # an answer; another one says why a process could not follow

_names = itertools.count()  # of leading loaders and followers: each process makes the same, in the same order


class Board(Protocol):
    """Keeps texts for the processes that train together."""

    rank: tuple[int, int]

    def post(self, key: str, text: str) -> None:
        """Leave a text for all."""

    def read(self, folder: str) -> Sequence[str]:
        """Return the texts whose keys are in a folder; none if there are none yet."""


class _Order(Value):
    """The loaders that each process has, by number with their configurations, and the one that serves."""

    serving: int
    loaders: tuple[tuple[int, JsonObject], ...]


class LeadingLoader(SwitchingLoader):
    """The loader of process 0: what takes over here takes over in all processes, or in none."""

    def __init__(
        self, loader: Loader, config: PipelineConfig, board: Board, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(loader, clock=clock)
        self._board, self._name = board, next(_names)
        self._opened, self._orders = itertools.count(1), itertools.count()
        self._everywhere = {loader: (0, config.model_dump(mode="json"))}  # what all processes have
        self._awaited: int | None = None  # an order
        self._looked_at = -math.inf
        self._order(loader)

    @property
    def is_switching(self) -> bool:
        return super().is_switching or self._awaited is not None

    def open_beside(self, opened: Callable[[PipelineConfig], Loader], config: PipelineConfig) -> Loader:
        known = next(self._opened), config.model_dump(mode="json")
        order = self._order(self.loader, known)
        with contextlib.ExitStack() as undo:
            undo.callback(self._order, self.loader)
            loader = undo.enter_context(opened(config))
            while (failures := self._failures(order)) is None:
                if self._is_closed:
                    raise LoaderError("The training has ended.")
                time.sleep(_LOOK_SECONDS)
            if failures:
                raise LoaderError(failures[0])
            undo.pop_all()
        self._everywhere[loader] = known
        return loader

    def switch(self, loader: Loader) -> None:
        super().switch(loader)
        self._awaited = self._order(loader)

    def keep(self) -> None:
        super().keep()
        self._everywhere = {each: known for each, known in self._everywhere.items() if each is self.loader}
        self._order(self.loader)

    def _next(self, source: Iterator[Batch] | None) -> tuple[Iterator[Batch], Batch]:
        if (failure := self._heard()) is not None and self.spare is not None:
            if source is not None:
                end(source)
            source = self._gone_back(self.spare, failure)
        return super()._next(source)

    def _heard(self) -> LoaderError | None:
        """Note once all have followed the last order, and return why one could not."""
        now = self._clock()
        if self._awaited is None or super().is_switching or now < self._looked_at + _LOOK_SECONDS:
            return None
        self._looked_at = now
        if (failures := self._failures(self._awaited)) is not None:
            self._awaited = None
        return LoaderError(failures[0]) if failures else None

    def _refuse(self, loader: Loader, error: Exception) -> None:
        super()._refuse(loader, error)
        self._everywhere.pop(loader, None)
        self._awaited = self._order(self.loader)

    def _order(self, serving: Loader, *opened: tuple[int, JsonObject]) -> int:
        """Give an order, and return its number."""
        number = next(self._orders)
        if serving in self._everywhere:  # not so if this process had to open its first configuration again
            order = _Order(serving=self._everywhere[serving][0], loaders=(*self._everywhere.values(), *opened))
            self._board.post(f"{self._name}/orders/{number}/0", order.model_dump_json())
        return number

    def _failures(self, order: int) -> list[str] | None:
        """Return why processes could not follow an order; None if not all have answered."""
        answers = self._board.read(f"{self._name}/answers/{order}")
        return [each for each in answers if each != _DONE] if len(answers) == self._board.rank[1] - 1 else None


class Follower:
    """Does with the loader of a process what process 0 orders. A `Watch`.

    Attributes:
        config: the configuration of the running loader.
    """

    def __init__(
        self,
        loader: SwitchingLoader,
        config: PipelineConfig,
        opened: Callable[[PipelineConfig], Loader],
        board: Board,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = self._first = config
        self._loader, self._opened, self._board, self._clock = loader, opened, board, clock
        self._name = next(_names)
        self._loaders: dict[int, tuple[Loader, PipelineConfig] | None] = {}  # by process 0's number; None: it failed
        self._error: Exception = LoaderError("It has no such loader.")
        self._opening: Future[Loader] | None = None
        self._work = self._following()

    def took(self, waited: float, stepped: float) -> None:
        try:
            next(self._work, None)
        except Exception:  # noqa: BLE001  # whatever it was, the training goes on
            _log.exception("This process no longer follows process 0, and keeps its loader.")

    def epoch_ended(self, epoch: int) -> None:
        """Note nothing: process 0 measures."""

    def failed(self, loader: Loader, error: Exception) -> None:
        self._error = error
        for number, known in self._loaders.items():
            if known is not None and known[0] is loader:
                self._loaders[number] = None

    def instead(self, error: Exception) -> Loader | None:
        """Return None: what all have kept is needed here, too."""
        return None

    def closed(self) -> None:
        if self._opening is not None:
            close_when_open(self._opening)
        for known in self._loaders.values():
            if known is not None:
                known[0].close()

    def _following(self) -> Iterator[None]:
        rank = self._board.rank[0]
        for number in itertools.count():
            while not (texts := self._board.read(f"{self._name}/orders/{number}")):
                until = self._clock() + _LOOK_SECONDS
                yield
                while self._clock() < until:
                    yield
            answer = _DONE
            try:
                yield from self._followed(_Order.model_validate_json(texts[0]))
            except Exception as error:  # noqa: BLE001  # process 0 is told, and has all go on as before
                answer = f"Process {rank}: {error}"
            self._board.post(f"{self._name}/answers/{number}/{rank}", answer)

    def _followed(self, order: _Order) -> Iterator[None]:
        """Follow an order between the next batches; raise why this process cannot."""
        yield from self._opened_all(order)
        loader, config = self._loaders.get(order.serving) or (None, self.config)
        if loader is not None:
            self._loader.switch(loader)
            while self._loader.is_switching:
                yield
        if loader is None or self._loader.loader is not loader:
            raise self._error
        self.config = config
        unlisted = [self._loaders.pop(number) for number in self._loaders.keys() - dict(order.loaders).keys()]
        for known in unlisted:
            if known is not None and known[0] is not self._loader.spare:
                self._loader.discard(known[0])
        if self._loader.spare not in [known[0] for known in self._loaders.values() if known is not None]:
            self._loader.keep()

    def _opened_all(self, order: _Order) -> Iterator[None]:
        for number, knobs in order.loaders:
            if number not in self._loaders:
                told = PipelineConfig.model_validate(knobs)  # what else it says is compiled in
                config = self._first.model_copy(update={"loader": told.loader, "keep": told.keep})
                if config == self.config and not self._loaders:
                    self._loaders[number] = self._loader.loader, config
                    continue
                self._opening = beside(functools.partial(self._opened, config))
                while not self._opening.done():
                    yield
                opening, self._opening = self._opening, None
                self._loaders[number] = opening.result(), config
