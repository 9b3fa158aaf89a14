"""The base of storage forms: a name, the samples that a form can hold, and how it writes and reads a shard.

A form is one module of this package with an object of a `Storage` subclass, registered in
`autopipe.pipeline.config.STORAGES`. Sharding, checksums, locks and resuming are the same for all of them and live in
`convert`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np

from autopipe.errors import ConfigError, WorkloadError
from autopipe.pipeline.storage.shard import Place, RemotePath, ShardFiles, place
from autopipe.workload import digests
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Plan, Step
from autopipe.workload.ops import planner
from autopipe.workload.sample import FieldKind, Sample, SampleSpec, Source, cuts
from autopipe.workload.workload import Workload

S = TypeVar("S")


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
        name: in a configuration.
        mapped: whether files are mapped into memory, and so have to lie on a disk.
        holds_arrays: whether it can hold the result of any op, so that all of the prefix can be done before.
    """

    name: ClassVar[str]
    converts: ClassVar[bool] = True
    mapped: ClassVar[bool] = False
    holds_arrays: ClassVar[bool] = False

    def at(self, where: Path | str | RemotePath) -> Place:
        """Return the folder of a path or URL, to keep a set of this form in. Raise ConfigError for a URL if the form's
        files must lie on a disk, and DataError for an invalid URL.
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
        """Return the numbers of prefix ops after which samples can be kept, ascending; the last is the default."""
        return tuple(depth for depth in range(len(plan.prefix) + 1) if self.can_hold(plan.cut(depth)))

    @abc.abstractmethod
    def can_hold(self, spec: SampleSpec) -> bool:
        """Return True if samples of this kind can be kept."""

    @abc.abstractmethod
    def sample_bytes(self, spec: SampleSpec, probes: Sequence[Sample]) -> float:
        """Return the bytes of a sample, exactly if `spec` fixes them, else estimated from `probes`."""

    @abc.abstractmethod
    def write_shard(self, samples: Iterable[Sample | None], spec: SampleSpec, files: ShardFiles) -> None:
        """Write the samples of one shard; None stands for one that could not be read, and keeps its place.

        The result must be a function of the samples alone: a shard that is written again is the same.
        """

    @abc.abstractmethod
    def open(self, folder: Place, spec: SampleSpec, shards: Sequence[int]) -> Reader:
        """Return a reader of the set in `folder`; `shards` are the numbers of samples of each."""


class ShardReader(abc.ABC, Generic[S]):
    """A `Reader` that opens each shard when it is first read; all shards but the last hold as many samples."""

    def __init__(self, folder: Place, spec: SampleSpec, counts: Sequence[int]) -> None:
        self._folder, self._spec, self._counts = folder, spec, tuple(counts)
        self._per_shard = max(counts)
        self._shards: list[S | None] = [None] * len(counts)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._folder, self._spec, self._counts)

    def _shard(self, number: int) -> S:
        shard = self._shards[number]
        if shard is None:
            shard = self._shards[number] = self._opened(number)
        return shard

    @abc.abstractmethod
    def _opened(self, number: int) -> S: ...


# -------------------- conversion

_NO_NUMBERS = np.empty(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Samples of a source after the first ops. It pickles if the source does."""

    source: Source  # of samples
    steps: tuple[Step, ...]  # the ops that are done before a sample is kept
    spec: SampleSpec  # the sample after them
    # whether an unreadable sample is noted, and raised again when the kept set is read, instead of ending the
    # conversion
    skip_bad: bool = False
    source_digest: str  # tells whether the source is still the same
    ops_digest: str  # tells whether the ops are still the same
    # the same for objects that their functions look up elsewhere, by name
    looked_up: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, plan: Plan, cut: int) -> Conversion:
        """Return the conversion of a workload after the first `cut` ops of its deterministic prefix. Raise ConfigError
        if the prefix is shorter than that.
        """
        if not 0 <= cut <= len(plan.prefix):
            raise ConfigError(
                f"`cut` must be between 0 and {len(plan.prefix)}, the number of ops that are the same in every epoch, "
                f"but got {cut=}."
            )
        steps = plan.prefix[:cut]
        return cls(
            source=workload.data,
            steps=steps,
            spec=plan.cut(cut),
            skip_bad=workload.on_bad_sample == "skip",
            source_digest=data_source.digest(workload.data),
            ops_digest=digests.ops_digest(tuple(step.op for step in steps)),
            looked_up=digests.looked_up(step.op for step in steps),
        )

    def __len__(self) -> int:
        return len(self.source)

    @property
    def cut(self) -> int:
        """The number of ops before a sample is kept."""
        return len(self.steps)

    def sample(self, index: int) -> Sample:
        """Return a sample to keep; raise BadSampleError if it cannot be read or decoded, OpError if an op fails."""
        try:
            sample = planner.normalise(self.source.read(index), self.spec.structure)
        except BaseException as error:  # a user's source may raise anything; it is named and shown
            raise planner.read_failure(error, self.source, index) from error
        for step in self.steps:
            try:
                sample = step.op.apply(sample, step.before, _NO_NUMBERS)
            except BaseException as error:  # a user's function may raise anything; it is named and shown
                raise planner.op_failure(error, step.op, self.source, index) from error
        self._require_dtypes(sample, index)
        return sample

    def _require_dtypes(self, sample: Sample, index: int) -> None:
        for part, field in zip(sample, self.spec.columns, strict=True):
            if field is None or field.dtype is None or field.kind is FieldKind.ENCODED:
                continue
            differs = np.asarray(part).dtype != field.dtype
            if differs and (field.kind is not FieldKind.LABEL or cuts(field.dtype, part)):
                place = planner.sample_place(self.source, index)
                raise WorkloadError(
                    f"Samples must be of one dtype to be kept, but {place} is {np.asarray(part).dtype} "
                    f"where others are {field.dtype}.",
                    hint="Put ap.Cast in `ops`, or convert the data.",
                )
