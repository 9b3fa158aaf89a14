"""The ops of a workload in their places: which are deterministic, which run for each epoch, which may run on a batch.

`autopipe.workload.ops.planner.make_plan` finds it out; this module holds the result.
"""

from __future__ import annotations

import dataclasses

from autopipe.workload.op import Op
from autopipe.workload.sample import SampleSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One op in its place."""

    op: Op
    stream: int  # its position in the user's list, which names its random numbers
    before: SampleSpec  # the sample before it
    after: SampleSpec  # the sample after it


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The ops of a workload in three parts, which together do what the list says."""

    source: SampleSpec  # the sample as it is read
    prefix: tuple[Step, ...]  # deterministic; the same in every epoch
    body: tuple[Step, ...]  # what follows, from the first random op on
    suffix: tuple[Step, ...]  # acts on each value alone; may run on a batch, also on the device

    @property
    def steps(self) -> tuple[Step, ...]:
        """All of them, in order."""
        return self.prefix + self.body + self.suffix

    def cut(self, depth: int) -> SampleSpec:
        """Return the sample after the first `depth` ops of the prefix."""
        return self.source if depth == 0 else self.prefix[depth - 1].after

    def sent(self, finish: str) -> SampleSpec:
        """Return the sample as a device gets it, where the suffix is done on the "host" or the "device"."""
        return self.finished if finish == "host" else self.compact

    @property
    def compact(self) -> SampleSpec:
        """The sample before the suffix: what is sent to a device that finishes."""
        steps = self.prefix + self.body
        return steps[-1].after if steps else self.source

    @property
    def finished(self) -> SampleSpec:
        """The sample that the model gets."""
        return self.suffix[-1].after if self.suffix else self.compact
