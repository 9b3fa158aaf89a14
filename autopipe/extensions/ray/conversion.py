"""A conversion whose shards are made by the nodes of a Ray cluster, as a conversion on this machine would make them.

Each task writes one part of the shards, so no two write to one file; a part that a lost node began is run again
elsewhere, and keeps what is finished and sound. Every node must see the data and the folder.
"""

from __future__ import annotations

import time
from typing import Any

from autopipe import _version
from autopipe.errors import BadSampleError, StorageError
from autopipe.extensions.ray.cluster import Cluster, join, node_failure
from autopipe.extensions.ray.node import SHARED_DATA, lacking, require_present, require_same_version, told
from autopipe.pipeline.batching.pickling import RemoteFailure, answered, pickled, unpickled
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage import convert as conversions
from autopipe.pipeline.storage import layout
from autopipe.pipeline.storage.convert import Converted, Progress
from autopipe.pipeline.storage.form import Conversion, Folder, Storage

_PARTS_A_CORE = 4  # so that all cores end at about the same time
_RETRIES = 3  # of a part whose node was lost


def convert(
    conversion: Conversion,
    storage: Storage,
    folder: Folder,
    *,
    address: str,
    parts: int | None = None,
    on_progress: Progress | None = None,
) -> Converted:
    """Write a set to a folder that all nodes share, by so many tasks; None: a few for each core."""
    start = time.monotonic()
    record = layout.open_folder(folder, conversion, storage, lambda: conversions.estimate_bytes(conversion, storage))
    cluster = join(address)
    try:
        wanted = parts or _PARTS_A_CORE * max(1, int(sum(cluster.nodes().values())))
        packed = cluster.ray.put(pickled(conversion, "autopipe convert"))
        what = (packed, lacking(conversion.source), storage.name, folder.absolute())
        done = _run(cluster, what, min(wanted, record.shard_count), len(conversion), on_progress)
    finally:
        cluster.leave()
    try:
        record = conversions.finish(folder)
    except StorageError as error:
        raise StorageError(
            f"The nodes of the Ray cluster wrote all parts, but here `{folder}` is not complete: {error}",
            hint="All nodes and this machine must share the folder; or use a URL (s3://, gs://, ...).",
        ) from error
    for position in record.bad:  # a set must not depend on nodes
        try:
            conversion.sample(position)
        except BadSampleError:
            continue
        raise StorageError(
            f"Sample {position} was bad on a node of the Ray cluster and is good on this machine.",
            hint=f"{SHARED_DATA} Then convert again into another folder.",
        )
    return Converted(
        folder=folder,
        record=record,
        samples=sum(each.samples for each in done),
        kept=sum(each.kept for each in done),
        seconds=time.monotonic() - start,
        workers=len(done),
        shard_samples=tuple(count for each in done for count in each.shard_samples),
        shard_seconds=tuple(seconds for each in done for seconds in each.shard_seconds),
    )


def _run(
    cluster: Cluster, what: tuple[Any, list[str], str, Folder], parts: int, samples: int, on_progress: Progress | None
) -> list[Converted]:
    ray = cluster.ray
    task = ray.remote(_part).options(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")
    waiting = [task.remote(*what, (number, parts), _version.__version__) for number in range(parts)]
    done: list[Converted] = []
    try:
        while waiting:
            (ready, *_), waiting = ray.wait(waiting, num_returns=1)
            try:
                done.append(answered(ray.get(ready)))
            except ray.exceptions.RayError as error:
                raise node_failure(error, "A part of the conversion failed") from error
            if on_progress is not None:
                on_progress(sum(each.samples + each.kept for each in done), samples)
    except BaseException:
        for each in waiting:
            ray.cancel(each, force=True)
        raise
    return done


def _part(
    packed: bytes, absent: list[str], form: str, folder: Folder, part: tuple[int, int], version: str
) -> Converted | RemoteFailure:
    try:
        require_same_version(version)
        conversion = unpickled(packed, elsewhere=True)
        require_present(conversion.source, absent)
        return conversions.convert(conversion, STORAGES[form], folder, workers=1, part=part)
    except BaseException as error:  # noqa: BLE001  # the owner raises it
        return RemoteFailure.of(told(error))
