"""The finish: what is left to do to a batch after its samples are made, on the host or on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

from autopipe.workload.array_namespace import NUMPY, ArrayNamespace
from autopipe.workload.op import Op
from autopipe.workload.sample import Batch, SampleSpec
from autopipe.workload.structure import Structure, triple

if TYPE_CHECKING:
    from autopipe.pipeline.config import ModelSetup
    from autopipe.workload.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The cheap last ops of a workload, as one pure function of a batch; `specs[i]` is the sample before `ops[i]`.

    `structure` tells how the parts of a batch make up what a model takes, if they are more than x and y.
    """

    ops: tuple[Op, ...] = ()
    specs: tuple[SampleSpec, ...] = ()
    channels_first: bool = False
    structure: Structure | None = None

    @classmethod
    def left(cls, plan: Plan, setup: ModelSetup) -> Self:
        """Return what a model in this setup is left to do."""
        steps = () if setup.finish == "host" else plan.suffix
        ops, specs = tuple(step.op for step in steps), tuple(step.before for step in steps)
        return cls(ops, specs, channels_first=setup.channels == "first", structure=plan.source.structure)

    @property
    def is_identity(self) -> bool:
        """Whether nothing is left to do."""
        return not self.ops and not self.channels_first

    def batch(self, batch: Batch, xp: ArrayNamespace = NUMPY) -> Batch:
        """Return the finished batch (x, y, *others), in the array library `xp`."""
        for op, spec in zip(self.ops, self.specs, strict=True):
            batch = op.finish(batch, spec, xp)
        return tuple(_channels_first(array, xp) for array in batch) if self.channels_first else batch

    def step_data(self, x: Any, y: Any, sample_weight: Any, xp: ArrayNamespace) -> tuple[Any, Any, Any]:
        """Return what a step of Keras's is given, finished; x, y and the weights may have several parts each."""
        if self.structure is None:
            return (*self.batch((x, y), xp), sample_weight)
        parts = (self.structure.part((x, y, sample_weight), number) for number in range(len(self.structure.paths)))
        x, y, weight = triple(self.structure.packed(self.batch(tuple(parts), xp)))
        return x, y, sample_weight if weight is None else weight


class Finishing(Protocol):
    """How batches are finished where no model of Keras does it in its compiled step."""

    def place(self) -> Callable[[Any], Any] | None:
        """Return what makes an array of the Keras backend of one in host memory, where its device is the host.

        None where it is another.
        """
        ...

    def on_device(self, batch: Batch) -> Batch:
        """Return a batch finished on a device that is not the host."""
        ...

    def on_host(self) -> Any:
        """Open a loader of the same batches whose workers finish them."""
        ...


def _channels_first(array: Any, xp: ArrayNamespace) -> Any:
    return array if array is None or len(array.shape) != 4 else xp.transpose(array, (0, 3, 1, 2))
