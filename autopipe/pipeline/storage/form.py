"""What a storage form is: a name, what it can hold, and how it writes and reads a shard.

A form is one module of this package with an object of a `Storage` subclass, registered in
`autopipe.pipeline.config.STORAGES`. Which shards there are, checksums, locks and resuming are the same for all of them
and live in `convert`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from autopipe.errors import ConfigError
from autopipe.pipeline.storage.place import Place, RemotePath, place
from autopipe.pipeline.storage.shard import ShardFiles
from autopipe.workload.plan import Plan
from autopipe.workload.sample import Sample, SampleSpec


class Reader(Protocol):
    """Reads the samples of a kept set, from many threads at once. It pickles, without open files.

    One that can fill whole batches has `read_many(indices, out)`, too, as a `Source` has.
    """

    def read(self, index: int) -> Sample:
        """Return a sample; arrays may be read-only views of mapped memory."""
        ...


class Storage(abc.ABC):
    """One form in which samples can be kept.

    Class attributes:
        name: what it is called in a configuration.
        mapped: whether files are mapped into memory, and so have to lie on a disk.
        converts: whether anything is written at all; False for the source as it is.
        holds_arrays: whether it can hold what any op gives, so that all of the prefix can be done before.
    """

    name: ClassVar[str]
    converts: ClassVar[bool] = True
    mapped: ClassVar[bool] = False
    holds_arrays: ClassVar[bool] = False

    def at(self, where: Path | str | RemotePath) -> Place:
        """Return the folder that a path or URL stands for, to keep a set of this form in.

        Raises:
            ConfigError: it is a URL, and the form's files must lie on a disk.
            DataError: it is a URL that cannot be used.
        """
        found = place(where)
        if self.mapped and isinstance(found, RemotePath):
            raise ConfigError(
                f'storage="{self.name}" maps its files into memory, so a set of it must lie on a disk, '
                f"but got `{found}`.",
                hint='Keep it in a folder on a disk, or use storage="tfrecord", which is read from URLs.',
            )
        return found

    def cuts(self, plan: Plan) -> tuple[int, ...]:
        """Return after how many ops of the prefix samples can be kept, ascending; the last is the default."""
        return tuple(depth for depth in range(len(plan.prefix) + 1) if self.can_hold(plan.cut(depth)))

    @abc.abstractmethod
    def can_hold(self, spec: SampleSpec) -> bool:
        """Whether samples like these can be kept."""

    @abc.abstractmethod
    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        """Return the bytes that a sample takes, exactly where `spec` fixes them, else judged by `probes`."""

    @abc.abstractmethod
    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        """Write the samples of one shard; None stands for one that could not be read, and keeps its place.

        The result must be a function of the samples alone: a shard that is written again is the same.
        """

    @abc.abstractmethod
    def open(self, folder: Place, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        """Return a reader of the set in `folder`, whose shards hold that many samples each."""
