"""Ray: workers are actors of a Ray cluster, on this machine or on others, which make whole batches.

A batch is a function of workload, seed, epoch and number, so it is the same from any node. The recipe goes to the nodes
once, and for each batch its sample numbers; the batch comes back through Ray's object store, or, on this very machine,
in the slot itself. A worker whose process or node ends is replaced on another node, and its batches are made anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
import time
import timeit
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe import _version
from autopipe.errors import AutopipeError, LoaderError, WorkerDiedError
from autopipe.extensions.ray import cluster as clusters
from autopipe.extensions.ray.node import SHARED_DATA, Hello, Maker, SlotPlace, Training
from autopipe.hardware import machine
from autopipe.pipeline.batching import pickling, streaming
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, SharedBlock, Slot
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.config import LoaderConfig, ModelSetup
from autopipe.pipeline.loader import Loader, LoadJob, Owner, Recipe

_log = logging.getLogger(__name__)
_AT_A_TIME = 2  # batches asked of a worker: it makes one while the one before travels
_DEATHS_ALLOWED = 3  # on one batch; then the batch is to blame
_START_SECONDS = 90.0
_LOSSES_ALLOWED = 3  # while workers start; then it is more than bad luck


class Ray(LoaderConfig):
    """Workers are actors of a Ray cluster; each fills a whole batch at a time. Needs the extra `ray`.

    Attributes:
        workers: actors that fill batches, spread over the nodes by their cores.
        queue_size: finished batches that may wait for the model; at least two calls' worth of `steps_per_execution`.
        address: of the cluster: "auto", "host:port" on one of its nodes, "ray://host:port" from outside; None for
            RAY_ADDRESS, or else a cluster on this machine that is started with the loader and ends with it ("local").
    """

    kind: Literal["ray"] = "ray"
    needs: ClassVar[tuple[str, str] | None] = ("ray", "ray")
    works_elsewhere: ClassVar[bool] = True
    workers: int = pydantic.Field(ge=1, le=1024)
    queue_size: int = pydantic.Field(default=8, ge=1, le=1024)
    address: str | None = None

    def worker_count(self) -> int:
        return self.workers

    def cores_elsewhere(self) -> float | None:
        if clusters.address_of(self.address) == clusters.LOCAL:
            return machine.core_time()
        try:
            cluster = clusters.join(self.address)
        except AutopipeError:  # its trials say why
            return None
        try:
            return sum(cluster.nodes().values()) or None
        finally:
            cluster.leave()

    def threads(self, cores: int) -> int:
        return 0

    def buffered_batches(self) -> int:
        return self.queue_size + _AT_A_TIME * self.workers

    def held_batches(self, batch_bytes: int, setup: ModelSetup) -> int:
        return setup.queue_size(self.queue_size) + _AT_A_TIME * self.workers + 1

    def shares_lock(self) -> bool:
        return self.workers == 1

    def open(self, job: LoadJob) -> Loader:
        recipe = dataclasses.replace(job.recipe, trace=None)  # a file of this machine
        queue_size = job.setup.queue_size(self.queue_size)
        here = dataclasses.replace(job, recipe=dataclasses.replace(recipe, cached=0.0))
        held = self.held_batches(recipe.spec.bytes * job.order.batch_size, job.setup) + 1
        streaming.require_memory(here, held)
        cache_bytes = MemoryCache.bytes_needed(recipe)
        packed, layout = pickling.pickled(recipe, "Ray"), RowLayout(recipe.spec, job.order.batch_size)
        store_bytes = 2 * _AT_A_TIME * self.workers * layout.size + 2 * len(packed)
        cluster = clusters.join(self.address, store_bytes=store_bytes)
        with contextlib.ExitStack() as undo:
            undo.callback(cluster.leave)
            team = Team(cluster, packed, layout, keep=held)
            undo.callback(team.end)
            fillers = [_Filler(team, worker, recipe) for worker in team.start(self.workers, cache_bytes)]
            loader = _RayLoader(job, team, fillers, queue_size)
            undo.pop_all()
            return loader


class _RayLoader(streaming.StreamingLoader):
    def __init__(self, job: LoadJob, team: Team, fillers: Sequence[_Filler], queue_size: int) -> None:
        self._leave = weakref.finalize(self, team.leave, Owner())  # made first, so it runs last
        super().__init__(job, [filler for filler in fillers for _ in range(_AT_A_TIME)], queue_size)
        self.hand_over_seconds = team.hand_over_seconds
        clusters.ends_with_process(self)

    def close(self) -> None:
        super().close()
        self._leave()


class _Filler:
    """Fills slots by one worker, and by another in its place when it dies; several threads share it."""

    def __init__(self, team: Team, worker: Worker, recipe: Recipe) -> None:
        self._team, self._worker, self._recipe = team, worker, recipe
        self.lost, self._lock = 0, threading.Lock()

    def begin(self, indices: NDArray[np.int64]) -> None:
        """Nothing is read ahead on the nodes."""

    def forget(self, indices: NDArray[np.int64]) -> None:
        """Nothing was begun."""

    def fill_slot(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        """Have a batch filled; if the worker dies, another one makes it, the last time with no other batch beside."""
        place = SlotPlace(slot.number, slot.block.descriptor, slot.block.size)
        died = self._team.cluster.ray.exceptions.RayError
        for death in range(_DEATHS_ALLOWED):
            alone = death == _DEATHS_ALLOWED - 1
            worker = self._team.another() if alone else self._worker
            try:
                answer = self._team.cluster.ray.get(worker.actor.fill.remote(epoch, indices, place))
                return self._taken(answer, slot, epoch)
            except died as error:
                if self._team.ended:
                    raise LoaderError("The loader was closed while a batch was being made.") from error
                _log.warning("A worker of the Ray cluster was lost; its batch is made anew: %s", error)
                if not alone:
                    self._replace(worker)
            finally:
                if alone:
                    self._team.dismiss(worker)
        raise WorkerDiedError(
            f"A worker of the Ray cluster died {_DEATHS_ALLOWED} times on one batch, "
            f"with the samples {', '.join(map(str, indices[:16].tolist()))}{', …' if len(indices) > 16 else ''} "
            f"of epoch {epoch}.",
            hint="Look for too little memory on the nodes, or for a sample that crashes its decoder; `threads` shows "
            "where, with `python -X faulthandler`.",
        )

    def close(self) -> None:
        """End the workers of all fillers, which have no other use."""
        self._team.end()

    def _replace(self, worker: Worker) -> None:
        with self._lock:
            if self._worker is worker:
                self._worker = self._team.another(worker)
                self.lost += 1

    def _taken(self, answer: Any, slot: Slot, epoch: int) -> list[BadSample]:
        made, bad = pickling.answered(answer)
        if made is not None:
            slot.block.array(made.shape, made.dtype)[:] = made
        for sample in bad:
            self._require_bad_here(sample, epoch)
        return list(bad)

    def _require_bad_here(self, bad: BadSample, epoch: int) -> None:
        """Refuse to skip a sample that is bad only on a node: batches must not depend on nodes."""
        kernel = Kernel(dataclasses.replace(self._recipe, cached=0.0))
        try:
            if kernel.fill(epoch, np.array([bad.index]), kernel.spec.empty(1)):
                return
        except AutopipeError:  # there is no other in its place either
            return
        raise LoaderError(
            f"Sample {bad.index} is bad on a node of the Ray cluster and good on this machine: {bad.message}",
            hint=SHARED_DATA,
        )


# -------------------- the workers of one loader: started on nodes, replaced and ended from here


class Worker(NamedTuple):
    """An actor and its node."""

    actor: Any
    node: str


class Team:
    """The workers of one loader."""

    def __init__(self, cluster: clusters.Cluster, packed: bytes, layout: RowLayout, keep: int) -> None:
        """Have workers make slots of this layout; each keeps so many of them mapped, if it can map them."""
        self.cluster = cluster
        self.hand_over_seconds: float | None = None
        self._class = cluster.ray.remote(Maker)
        secret = os.urandom(32)
        self._shared = SharedBlock(len(secret))
        self._shared.array((len(secret),), np.dtype(np.uint8))[:] = np.frombuffer(secret, np.uint8)
        owner = Training(os.getpid(), self._shared.descriptor, secret)
        self._arguments = (cluster.ray.put(packed), layout.rows, owner, keep)
        self._lock = threading.Lock()
        self._living: list[Worker] = []
        self.ended = False

    def start(self, count: int, cache_bytes: int) -> list[Worker]:
        """Start so many workers and wait until all are ready. One that dies meanwhile is replaced on another node."""
        until = time.monotonic() + _START_SECONDS
        workers = [self._put(node) for node in clusters.placed(self.cluster.nodes(), count)]
        times = 0
        while lost := self._lost(workers, cache_bytes, until):
            times += 1
            why = clusters.node_failure(next(iter(lost.values())), "A worker ended while it was starting")
            if times == _LOSSES_ALLOWED:
                raise WorkerDiedError(
                    f"Workers died {times} times while {count} of them were starting: {why.message}",
                    hint="`ray status` lists the nodes; check whether they have too little memory.",
                ) from next(iter(lost.values()))
            _log.warning("%s %d of %d are started anew.", why.message, len(lost), count)
            workers = [self.another(worker) if number in lost else worker for number, worker in enumerate(workers)]
        return workers

    def _lost(self, workers: Sequence[Worker], cache_bytes: int, until: float) -> dict[int, BaseException]:
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
                found[number] = pickling.answered(ray.get(hello))
        clusters.require_data([(hello.node, file) for hello in found.values() for file in hello.lacking])
        _require_memory([(workers[number].node, hello) for number, hello in found.items()], cache_bytes)

        def echoed(worker: Worker) -> None:
            np.array(ray.get(worker.actor.echo.remote()))  # a copy, as into a slot

        for number in {workers[number].node: number for number in found}.values():
            with self._noted(number, lost):
                hand_overs.append(min(timeit.repeat(partial(echoed, workers[number]), number=1, repeat=3)))
        self.hand_over_seconds = max(hand_overs, default=None)
        return lost

    @contextlib.contextmanager
    def _noted(self, number: int, lost: dict[int, BaseException]) -> Iterator[None]:
        """Note a worker that has died, with the reason; one that could not be made at all cannot be made elsewhere."""
        failures = self.cluster.ray.exceptions
        try:
            yield
        except failures.RayError as error:
            if not isinstance(error, failures.RayActorError) or error.actor_init_failed:
                raise clusters.node_failure(error, "A worker could not start") from error
            lost[number] = error

    def another(self, instead: Worker | None = None) -> Worker:
        """Start one more worker; `instead` of one, on another node if possible. Raise LoaderError after `end`."""
        nodes = self.cluster.nodes()
        with self._lock:
            if self.ended:
                raise LoaderError("The loader was closed while a batch was being made.")
            if instead is not None:
                self._end(instead)
            taken = [worker.node for worker in self._living]
        (node,) = clusters.placed(nodes, 1, taken, "" if instead is None else instead.node)
        return self._put(node)

    def dismiss(self, worker: Worker) -> None:
        with self._lock:
            self._end(worker)

    def end(self) -> None:
        with self._lock:
            self.ended = True
            for worker in list(self._living):
                self._end(worker)

    def leave(self, owner: Owner) -> None:
        if owner.is_here:
            self.end()
            self.cluster.leave()

    def _put(self, node: str) -> Worker:
        actor = self._class.options(**self.cluster.on(node)).remote(*self._arguments)
        worker = Worker(actor, node)
        with self._lock:
            self._living.append(worker)
            if self.ended:
                self._end(worker)
        return worker

    def _end(self, worker: Worker) -> None:
        self._living = [each for each in self._living if each is not worker]
        if self.cluster.ray.is_initialized():  # else the user has left the cluster, and `kill` would start another
            self.cluster.ray.kill(worker.actor)


def _require_memory(found: Sequence[tuple[str, Hello]], cache_bytes: int) -> None:
    for place, hello in found:
        count = sum(other == place for other, _ in found)
        if count * cache_bytes > hello.free_bytes:
            raise LoaderError(
                f"{count} workers with a cache of {machine.size_text(cache_bytes)} each need more memory than the "
                f"{machine.size_text(hello.free_bytes)} that are free on {hello.node} of the Ray cluster.",
                hint="Use keep='none', a part such as keep='memory:50%', fewer workers or more nodes.",
            )
