"""`files`: samples stay in the source. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from autopipe.errors import StorageError
from autopipe.pipeline.config import STORAGES
from autopipe.pipeline.storage.form import Reader, Storage
from autopipe.pipeline.storage.shard import Place, ShardFiles
from autopipe.workload.op import Plan
from autopipe.workload.sample import Sample, SampleSpec


class Files(Storage):
    """The source as it is."""

    name: ClassVar[str] = "files"
    converts: ClassVar[bool] = False

    def cuts(self, plan: Plan) -> tuple[int, ...]:
        return (0,)

    def can_hold(self, spec: SampleSpec) -> bool:
        return True

    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        return 0.0

    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        raise _nothing_to_do()

    def open(self, folder: Place, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        raise _nothing_to_do()


def _nothing_to_do() -> StorageError:
    return StorageError(
        'storage="files" reads the source as it is; there is nothing to convert or open.',
        hint="Choose another storage, such as tfrecord or array.",
    )


STORAGES.register(Files.name, Files())
