"""Finishes batches for whoever trains without a model of Keras. It imports no framework until it is asked to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from autopipe.batching.owner import Owner
from autopipe.core.finish import Finish
from autopipe.core.loader import Loader
from autopipe.core.sample import Batch


class LateFinish:
    """See `autopipe.core.finish.Finishing`."""

    def __init__(self, finish: Finish, on_host: Callable[[], Loader]) -> None:
        self._finish = finish
        self._owner = Owner()
        self._open_on_host = on_host

    def place(self) -> Callable[[Any], Any] | None:
        from autopipe.devices import host_arrays

        return host_arrays.place()

    def on_device(self, batch: Batch) -> Batch:
        return self._compiled(batch)

    def on_host(self) -> Loader:
        self._owner.require()
        return self._open_on_host()

    @functools.cached_property
    def _compiled(self) -> Callable[[Batch], Batch]:
        from autopipe.devices import host_arrays

        return host_arrays.compiled(self._finish)
