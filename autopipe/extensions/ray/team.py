"""The workers of one loader on a Ray cluster: started on its nodes, replaced and ended from here.

Their work is `node`'s; the choice of batches is the loader's business.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from autopipe import _version
from autopipe.errors import LoaderError, WorkerDiedError
from autopipe.extensions.ray.cluster import Cluster, node_failure, placed, require_data
from autopipe.extensions.ray.node import Hello, Maker, Owner
from autopipe.hardware import machine
from autopipe.pipeline.batching.cache import RowLayout, SharedBlock
from autopipe.pipeline.batching.pickling import answered

_log = logging.getLogger(__name__)
_START_SECONDS = 90.0
_LOSSES_ALLOWED = 3  # while workers start; then it is more than bad luck


class Worker(NamedTuple):
    """An actor and its node."""

    actor: Any
    node: str


class Team:
    """The workers of one loader."""

    def __init__(self, cluster: Cluster, packed: bytes, layout: RowLayout, keep: int) -> None:
        """Have workers make slots of this layout; each keeps so many of them mapped, if it can map them."""
        self.cluster = cluster
        self.hand_over_seconds: float | None = None
        self._class = cluster.ray.remote(Maker)
        secret = os.urandom(32)
        self._shared = SharedBlock(len(secret))
        self._shared.array((len(secret),), np.dtype(np.uint8))[:] = np.frombuffer(secret, np.uint8)
        owner = Owner(os.getpid(), self._shared.descriptor, secret)
        self._arguments = (cluster.ray.put(packed), layout.rows, owner, keep)
        self._lock = threading.Lock()
        self._living: list[Worker] = []
        self._ended = False

    def start(self, count: int, cache_bytes: int) -> list[Worker]:
        """Start so many workers and wait until all are ready. One that dies meanwhile is replaced on another node.

        Raises:
            WorkerDiedError: that happened three times.
            LoaderError: some did not start, or a node has too little memory for their caches.
            DataError: a node lacks files.
        """
        until = time.monotonic() + _START_SECONDS
        workers = [self._put(node) for node in placed(self.cluster.nodes(), count)]
        times = 0
        while lost := self._lost(workers, cache_bytes, until):
            times += 1
            why = node_failure(next(iter(lost.values())), "A worker ended while it was starting")
            if times == _LOSSES_ALLOWED:
                raise WorkerDiedError(
                    f"Workers died {times} times while {count} of them were to start: {why.message}",
                    hint="`ray status` tells which nodes there are; look on them for too little memory.",
                ) from next(iter(lost.values()))
            _log.warning("%s %d of %d are started anew.", why.message, len(lost), count)
            workers = [self.another(worker) if number in lost else worker for number, worker in enumerate(workers)]
        return workers

    def _lost(self, workers: Sequence[Worker], cache_bytes: int, until: float) -> dict[int, BaseException]:
        """Wait until workers are ready, and return the causes of early deaths, by worker number."""
        ray, lost, found, hand_overs = self.cluster.ray, dict[int, BaseException](), dict[int, Hello](), list[float]()
        hellos = [worker.actor.hello.remote(_version.__version__) for worker in workers]
        ready, late = ray.wait(hellos, num_returns=len(hellos), timeout=max(0.0, until - time.monotonic()))
        if late:
            raise LoaderError(
                f"All {len(workers)} workers must start within {_START_SECONDS:.0f} s, but on the Ray cluster "
                f"`{self.cluster.address}` {len(ready)} did."
            )
        for number, hello in enumerate(hellos):
            with self._noted(number, lost):
                found[number] = answered(ray.get(hello))
        require_data([(hello.node, file) for hello in found.values() for file in hello.lacking])
        _require_memory([(workers[number].node, hello) for number, hello in found.items()], cache_bytes)
        for number in {workers[number].node: number for number in found}.values():
            with self._noted(number, lost):
                hand_overs.append(self._hand_over(workers[number]))
        self.hand_over_seconds = max(hand_overs, default=None)
        return lost

    @contextlib.contextmanager
    def _noted(self, number: int, lost: dict[int, BaseException]) -> Iterator[None]:
        """Note a worker that has died, with the reason. Raise LoaderError if it could not be made at all, as it could
        not be anywhere else.
        """
        failures = self.cluster.ray.exceptions
        try:
            yield
        except failures.RayError as error:
            if not isinstance(error, failures.RayActorError) or error.actor_init_failed:
                raise node_failure(error, "A worker could not start") from error
            lost[number] = error

    def another(self, instead: Worker | None = None) -> Worker:
        """Start one more worker; `instead` of one, on another node if possible. Raise LoaderError after `end`."""
        nodes = self.cluster.nodes()
        with self._lock:
            if self._ended:
                raise LoaderError("The loader was closed while a batch was being made.")
            if instead is not None:
                self._end(instead)
            taken = [worker.node for worker in self._living]
        (node,) = placed(nodes, 1, taken, "" if instead is None else instead.node)
        return self._put(node)

    def dismiss(self, worker: Worker) -> None:
        with self._lock:
            self._end(worker)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for worker in list(self._living):
                self._end(worker)

    @property
    def ended(self) -> bool:
        return self._ended

    def _put(self, node: str) -> Worker:
        actor = self._class.options(**self.cluster.on(node)).remote(*self._arguments)
        worker = Worker(actor, node)
        with self._lock:
            self._living.append(worker)
            if self._ended:
                self._end(worker)
        return worker

    def _end(self, worker: Worker) -> None:
        self._living = [each for each in self._living if each is not worker]
        if self.cluster.ray.is_initialized():  # else the user has left the cluster, and `kill` would start another
            self.cluster.ray.kill(worker.actor)

    def _hand_over(self, worker: Worker) -> float:
        """Return the seconds that a batch takes from a worker to this process and into memory."""
        tries = []
        for _ in range(3):
            start = time.perf_counter()
            np.array(self.cluster.ray.get(worker.actor.echo.remote()))  # a copy, as into a slot
            tries.append(time.perf_counter() - start)
        return min(tries)


def _require_memory(found: Sequence[tuple[str, Hello]], cache_bytes: int) -> None:
    """Refuse caches that do not fit: each worker has one of its own.

    Raises:
        LoaderError: with the node and the bytes needed and free.
    """
    for place, hello in found:
        count = sum(other == place for other, _ in found)
        if count * cache_bytes > hello.free_bytes:
            raise LoaderError(
                f"{count} workers with a cache of {machine.size_text(cache_bytes)} each need more memory than the "
                f"{machine.size_text(hello.free_bytes)} that are free on {hello.node} of the Ray cluster.",
                hint="Use cache='none', a smaller cache_fraction, fewer workers or more nodes.",
            )
