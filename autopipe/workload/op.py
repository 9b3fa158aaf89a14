"""What an op is: a pure function of a sample and the sample's own random numbers, with what it may be used for.

Concrete ops live in `autopipe.workload.ops`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe.errors import PlainCodeError
from autopipe.workload.plain_code import Lines
from autopipe.workload.sample import Batch, FieldKind, Part, Sample, SampleSpec

# -------------------- array namespace
# The few array operations that batchable ops are written in, so that one text runs in NumPy, TensorFlow and Keras.
#
# Arithmetic operators are used as they are; only what is spelled differently is named here.


class ArrayNamespace(Protocol):
    """What a batchable op may call besides operators."""

    def cast(self, array: Any, dtype: str) -> Any:
        """Return the array in another dtype."""
        ...

    def constant(self, values: Any, dtype: str) -> Any:
        """Return an array of given values."""
        ...

    def one_hot(self, ids: Any, classes: int, dtype: str) -> Any:
        """Return a new last axis of length `classes` that is 1 at the id and 0 elsewhere."""
        ...

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        """Return the array with its axes in another order."""
        ...


class _NumPy:
    def cast(self, array: Any, dtype: str) -> Any:
        return np.asarray(array).astype(dtype, copy=False)

    def constant(self, values: Any, dtype: str) -> Any:
        return np.asarray(values, dtype)

    def one_hot(self, ids: Any, classes: int, dtype: str) -> Any:
        ids = np.asarray(ids)
        out = np.zeros((ids.size, classes), dtype)
        flat = ids.reshape(-1)
        inside = np.flatnonzero((flat >= 0) & (flat < classes))  # ids outside get all zeros, as in TensorFlow and Keras
        out[inside, flat[inside]] = 1
        return out.reshape(*ids.shape, classes)

    def transpose(self, array: Any, axes: Sequence[int]) -> Any:
        return np.transpose(array, axes)


NUMPY: ArrayNamespace = _NumPy()


# -------------------- op


Target: TypeAlias = Literal["image", "mask", "both"]
_MASKS = frozenset({FieldKind.MASK, FieldKind.ENCODED})


@dataclasses.dataclass(frozen=True)
class Op(abc.ABC):
    """One step from a sample as it is read to a sample as it is trained on.

    Besides `apply`, for one sample, an op may have a batch half, `takes_batches` and `apply_many`: then a batch of
    small samples of one shape is made by a few calls of NumPy, without a visit to Python for each. It gives what
    `apply` gives, to the bit, which `tests/contract/test_ops.py` checks. A `batchable` op has one by `apply_batch`.

    Class attributes:
        draws: how many uniform random numbers in [0, 1) the op takes for each sample; 0 makes it deterministic.
        batchable: whether it acts on each value or pixel alone, so that it can run on a whole batch, also on the
            device.
        mixes: whether it puts samples of one batch into one another. It then comes after all ops on single samples, and
            `apply_many` is what it does; `apply` leaves a sample alone.
        revision: raised when the op comes to give other values for the same settings, so that digests of ops differ.
        alone_differs: whether it may take another time in a process of its own (`autopipe.hardware.processes`).
    """

    draws: ClassVar[int] = 0
    batchable: ClassVar[bool] = False
    mixes: ClassVar[bool] = False
    revision: ClassVar[int] = 1
    alone_differs: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What the op is called in messages and measurements."""
        return type(self).__name__

    @property
    def is_random(self) -> bool:
        """Whether the result differs from epoch to epoch."""
        return self.draws > 0

    @property
    def target(self) -> Target:
        """Which part of a sample the op acts on: the image x, the mask or label y, or both."""
        return "image"

    @property
    def resizes_to(self) -> tuple[int, int] | None:
        """The (height, width) to which the op scales every image, whatever size it has; None if it does not."""
        return None

    def followed_by(self, rest: Sequence[Op]) -> Op:
        """Return the op as it is in a workload in which `rest` follow it.

        Raises:
            ConfigError: it needs others behind it.
        """
        return self

    def without_chance(self) -> Op | None:
        """Return what stands for the op in validation and prediction: itself, unless it is random; None for nothing.

        A random op that sets the size of samples names another one here that sets the same size.
        """
        return None if self.is_random else self

    def touches(self, spec: SampleSpec) -> tuple[bool, ...]:
        """Return whether the op acts on x, and whether it acts on y, of samples that look like `spec`.

        An op on both follows the image into y only where y is a mask; a label or another array is left alone.
        """
        target, y = self.target, spec.y  # of each sample once: short
        return target != "mask", y is not None and (target == "mask" or (target == "both" and y.kind in _MASKS))

    def kinds(self, spec: SampleSpec) -> tuple[FieldKind | None, ...]:
        """Return what x and y hold after the op."""
        return spec.x.kind, spec.y.kind if spec.y is not None else None

    def check(self, sample: Sample, spec: SampleSpec) -> None:  # noqa: B027  # most ops keep the rule by themselves
        """Try the op on one sample when a loader or a search opens; nothing is measured meanwhile.

        Raises:
            OpError: it is no pure function of the sample and the sample's own random numbers.
        """

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:  # noqa: B027  # most ops have no doubts
        """Warn of what is probably not meant, from the few samples that are looked at when a loader or search opens."""

    @abc.abstractmethod
    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        """Return the sample after the op.

        Args:
            sample: `(x, y)`; must not be written to.
            spec: the kinds of its fields before the op.
            random: the sample's own numbers, shape (draws,).
            out: where x may be written to, already of the right shape and dtype; the op is free to ignore it. It may be
                the very memory of the sample's x, so a y that is made of x must have memory of its own.
        """

    def takes_batches(self, spec: SampleSpec) -> bool:
        """Whether `apply_many` can be called on batches of samples that look like `spec`, all of one shape."""
        return self.batchable

    def apply_many(self, batch: Batch, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Batch:
        """Return a whole batch after the op, to the bit what `apply` gives sample by sample.

        Whatever it raises, the batch is made again sample by sample, so that the error names its sample.

        Args:
            batch: `(x, y)`, whose first axis counts the samples; the op's own, to be overwritten and returned.
            spec: one sample before the op.
            random: the samples' own numbers, shape (samples, draws).
            out: where x may be written to, as for `apply`; the op is free to ignore it.
        """
        return self.finish(batch, spec, NUMPY)

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        """Return a batch after the op, in the array library `xp`. Only for `batchable` ops."""
        x, y = batch
        return self.apply_batch(x, y, spec, xp)

    def apply_batch(self, x: Any, y: Any, spec: SampleSpec, xp: ArrayNamespace) -> tuple[Any, Any]:
        """Return a batch after the op, in the array library `xp`. Only for `batchable` ops."""
        raise NotImplementedError

    def plain_numpy(self, step: Step) -> Lines:
        """Return what the op does as lines of NumPy and OpenCV; a random one draws from `rng`.

        They are on the variables of the parts that it acts on, which `autopipe.workload.plain_code.parts(step)` names:
        "x" and "y", or of several parts all at once, with the same random numbers, "x_left", "x_right", "y_mask".

        Raises:
            PlainCodeError: it cannot be written so.
        """
        raise PlainCodeError(f"`{type(self).__name__}` says nothing of itself as NumPy code (`plain_numpy`)")

    def plain_tensorflow(self, step: Step) -> Lines:
        """Return what the op does as lines of TensorFlow, by TensorFlow's own op where it has one.

        Their variables are those of `plain_numpy`; a random one draws TensorFlow's own numbers.

        Raises:
            PlainCodeError: it cannot be written so.
        """
        raise PlainCodeError(f"`{type(self).__name__}` says nothing of itself as TensorFlow code (`plain_tensorflow`)")

    def plain_batch(self, step: Step, library: Literal["np", "tf"]) -> Lines:
        """Return lines on the `x` and `y` of a whole batch, for an op that mixes samples; NumPy's draw from `rng`.

        Raises:
            PlainCodeError: it has no plain form.
        """
        raise PlainCodeError(f"`{type(self).__name__}` says nothing of itself as code on batches (`plain_batch`)")

    def plain_constants(self, step: Step) -> Lines:
        """Return the lines that both need at the top of a file: a table, say."""
        return []

    def plain_functions(self, step: Step) -> Mapping[str, Callable[..., Any]]:
        """Return the user's own functions that both call, by their names there."""
        return {}


# -------------------- plan
# The ops of a workload in their places: which are deterministic, which run for each epoch, which may run on a batch.
#
# `autopipe.workload.ops.planner.make_plan` finds it out; this module holds the result.


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
