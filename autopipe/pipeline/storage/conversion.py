"""What is to be kept: the samples of a source after the first, deterministic ops. How is not said here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from autopipe.errors import ConfigError, WorkloadError
from autopipe.workload import digests, lookups
from autopipe.workload.data import source as data_source
from autopipe.workload.ops import planner
from autopipe.workload.plan import Plan, Step
from autopipe.workload.sample import FieldKind, Sample, SampleSpec, Source, cuts
from autopipe.workload.workload import Workload

_NO_NUMBERS = np.empty(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Samples of a source after the first ops. It pickles if the source does."""

    source: Source  # where samples are read
    steps: tuple[Step, ...]  # the ops that are done before a sample is kept
    spec: SampleSpec  # the sample after them
    # whether a sample that cannot be read or decoded is noted, and met again when the kept set is read, instead of
    # ending the conversion
    skip_bad: bool = False
    source_digest: str  # tells whether the source is still the same
    ops_digest: str  # tells whether the ops are still the same
    # tells the same of what their functions look up elsewhere, by name
    looked_up: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, plan: Plan, cut: int) -> Conversion:
        """Return what there is to keep of a workload after the first `cut` ops of its deterministic prefix.

        Raises:
            ConfigError: the prefix is shorter than that.
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
            looked_up=lookups.looked_up(step.op for step in steps),
        )

    def __len__(self) -> int:
        return len(self.source)

    @property
    def cut(self) -> int:
        """How many ops are done before a sample is kept."""
        return len(self.steps)

    def sample(self, index: int) -> Sample:
        """Return a sample as it is to be kept.

        Raises:
            BadSampleError: it cannot be read or decoded.
            OpError: an op fails on it.
        """
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
