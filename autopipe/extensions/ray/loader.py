"""Ray: workers are actors of a Ray cluster, on this machine or on others, which make whole batches.

A batch is a function of workload, seed, epoch and number, so it is the same from any node. The recipe goes to the nodes
once, and for each batch its sample numbers; the batch comes back through Ray's object store, or, on this very machine,
in the slot itself. A worker whose process or node ends is replaced on another node, and its batches are made anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import threading
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from autopipe import again
from autopipe.errors import AutopipeError, LoaderError, WorkerDiedError
from autopipe.extensions.ray.cluster import LOCAL, address_of, ends_with_process, join
from autopipe.extensions.ray.node import SHARED_DATA, SlotPlace
from autopipe.extensions.ray.team import Team, Worker
from autopipe.hardware import machine
from autopipe.pipeline.batching.cache import MemoryCache, RowLayout, Slot
from autopipe.pipeline.batching.kernel import BadSample, Kernel
from autopipe.pipeline.batching.pickling import answered, pickled
from autopipe.pipeline.batching.stream import Owner
from autopipe.pipeline.batching.streaming import StreamingLoader, require_memory
from autopipe.pipeline.config import LoaderConfig
from autopipe.pipeline.loader import Loader, LoadJob, Recipe

_log = logging.getLogger(__name__)
_AT_A_TIME = 2  # batches asked of a worker: it makes one while the one before travels
_DEATHS_ALLOWED = 3  # on one batch; then the batch is to blame


class Ray(LoaderConfig):
    """Workers are actors of a Ray cluster; each fills a whole batch at a time. Needs the extra `ray`.

    Attributes:
        workers: actors that fill batches, spread over the nodes by their cores.
        queue_size: finished batches that may wait for the model; at least two calls' worth of `steps_per_execution`.
        address: of the cluster: "auto", "host:port" on one of its nodes, "ray://host:port" from outside; None for
            RAY_ADDRESS, or else a cluster on this machine that is started with the loader and ends with it ("local").
    """

    kind: Literal["ray"] = "ray"
    works_elsewhere: ClassVar[bool] = True
    workers: int = pydantic.Field(ge=1, le=1024)
    queue_size: int = pydantic.Field(default=8, ge=1, le=1024)
    address: str | None = None

    @classmethod
    def missing(cls) -> str | None:
        here = importlib.util.find_spec("ray") is not None
        return None if here else f"it is not installed: {again.installing_extra('ray')}"

    def worker_count(self) -> int:
        return self.workers

    def cores_elsewhere(self) -> float | None:
        if address_of(self.address) == LOCAL:
            return machine.core_time()
        try:
            cluster = join(self.address)
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

    def shares_lock(self) -> bool:
        return self.workers == 1

    def works_alone(self) -> bool:
        return True

    def open(self, job: LoadJob) -> Loader:
        recipe = dataclasses.replace(job.recipe, trace=None)  # a folder of this machine
        queue_size = job.setup.queue_size(self.queue_size)
        here = dataclasses.replace(job, recipe=dataclasses.replace(recipe, cached=0.0))
        require_memory(here, queue_size + _AT_A_TIME * self.workers + 2)
        cache_bytes = MemoryCache.bytes_needed(recipe)
        packed, layout = pickled(recipe, "Ray"), RowLayout(recipe.spec, job.order.batch_size)
        store_bytes = 2 * _AT_A_TIME * self.workers * layout.size + 2 * len(packed)
        cluster = join(self.address, store_bytes=store_bytes)
        with contextlib.ExitStack() as undo:
            undo.callback(cluster.leave)
            team = Team(cluster, packed, layout, keep=queue_size + _AT_A_TIME * self.workers + 2)
            undo.callback(team.end)
            fillers = [_Filler(team, worker, recipe) for worker in team.start(self.workers, cache_bytes)]
            loader = _RayLoader(job, team, fillers, queue_size)
            undo.pop_all()
            return loader


class _RayLoader(StreamingLoader):
    def __init__(self, job: LoadJob, team: Team, fillers: Sequence[_Filler], queue_size: int) -> None:
        self._leave = weakref.finalize(self, _leave, Owner(), team)  # made first, so it runs last
        super().__init__(job, [filler for filler in fillers for _ in range(_AT_A_TIME)], queue_size)
        self.hand_over_seconds = team.hand_over_seconds
        ends_with_process(self)

    def close(self) -> None:
        super().close()
        self._leave()


def _leave(owner: Owner, team: Team) -> None:
    if owner.is_here:
        team.end()
        team.cluster.leave()


class _Filler:
    """Fills slots by one worker, and by another in its place when it dies. Several threads share it."""

    def __init__(self, team: Team, worker: Worker, recipe: Recipe) -> None:
        self._team = team
        self.lost = 0
        self._worker = worker
        self._recipe = recipe
        self._lock = threading.Lock()

    def begin(self, indices: NDArray[np.int64]) -> None:
        """Nothing is read ahead on the nodes."""

    def forget(self, indices: NDArray[np.int64]) -> None:
        """Nothing was begun."""

    def fill(self, slot: Slot, epoch: int, indices: NDArray[np.int64]) -> list[BadSample]:
        """Have a batch filled. A worker that dies is replaced and the batch made anew.

        Raises:
            WorkerDiedError: it died three times on this batch, the last time with no other batch beside.
            AutopipeError: the error of the worker, with its traceback as the cause.
        """
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

    def stop(self) -> None:
        """End the workers of all fillers, which have no other use."""
        self._team.end()

    def _replace(self, worker: Worker) -> None:
        with self._lock:
            if self._worker is worker:
                self._worker = self._team.another(worker)
                self.lost += 1

    def _taken(self, answer: Any, slot: Slot, epoch: int) -> list[BadSample]:
        made, bad = answered(answer)
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
