"""The finish: what is left to do to a batch after its samples are made, on the host or on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from autopipe.core.array_namespace import NUMPY, ArrayNamespace
from autopipe.core.op import Op
from autopipe.core.sample import SampleSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The cheap last ops of a workload, as one pure function of a batch; `specs[i]` is the sample before `ops[i]`."""

    ops: tuple[Op, ...] = ()
    specs: tuple[SampleSpec, ...] = ()
    channels_first: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether nothing is left to do."""
        return not self.ops and not self.channels_first

    def __call__(self, x: Any, y: Any, xp: ArrayNamespace = NUMPY) -> tuple[Any, Any]:
        """Return the finished batch, in the array library `xp`."""
        for op, spec in zip(self.ops, self.specs, strict=True):
            x, y = op.apply_batch(x, y, spec, xp)
        if self.channels_first:
            x, y = _channels_first(x, xp), _channels_first(y, xp)
        return x, y


class Finishing(Protocol):
    """How batches are finished where no model of Keras does it in its compiled step."""

    def place(self) -> Callable[[Any], Any] | None:
        """Return what makes an array of the Keras backend of one in host memory, where its device is the host.

        None where it is another.
        """
        ...

    def on_device(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return a batch finished on a device that is not the host."""
        ...

    def on_host(self) -> Any:
        """Open a loader of the same batches whose workers finish them."""
        ...


def _channels_first(array: Any, xp: ArrayNamespace) -> Any:
    return array if array is None or len(array.shape) != 4 else xp.transpose(array, (0, 3, 1, 2))
