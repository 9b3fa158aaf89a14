"""`Op`, a pure function of a sample and the sample's own random numbers; the array functions of batchable ones; `Plan`.

Concrete ops, and the function that makes a plan, live in `autopipe.workload.ops`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import PlainCodeError
from autopipe.workload.plain_code import Library, Lines, Variable
from autopipe.workload.sample import Batch, Field, FieldKind, Sample, SampleSpec

# -------------------- array namespace


class ArrayNamespace(NamedTuple):
    """The few functions that a batchable op may call besides operators, so that one text runs in NumPy and Keras."""

    cast: Callable[[Any, str], Any]
    constant: Callable[[Any, str], Any]
    one_hot: Callable[[Any, int, str], Any]  # returns a new last axis of so many classes: 1 at the id and 0 elsewhere
    transpose: Callable[[Any, Sequence[int]], Any]


def _cast(array: Any, dtype: str) -> Any:
    return np.asarray(array).astype(dtype, copy=False)


def _one_hot(ids: Any, classes: int, dtype: str) -> Any:
    ids = np.asarray(ids)
    out = np.zeros((ids.size, classes), dtype)
    flat = ids.reshape(-1)
    inside = np.flatnonzero((flat >= 0) & (flat < classes))  # ids outside get all zeros, as in TensorFlow and Keras
    out[inside, flat[inside]] = 1
    return out.reshape(*ids.shape, classes)


NUMPY = ArrayNamespace(_cast, np.asarray, _one_hot, np.transpose)

# -------------------- op

Target: TypeAlias = Literal["image", "mask", "both"]
Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Numbers of rows, shape (samples, height), and of columns, shape (samples, width)."""
_MASKS = frozenset({FieldKind.MASK, FieldKind.ENCODED})


@dataclasses.dataclass(frozen=True)
class Op(abc.ABC):
    """One step from a sample as it is read to a sample as it is trained on.

    `apply` is the reference. If an op is also `instructions` of the native library, a batch is made by one call of it,
    with the bits of `apply`, which `tests/contract/test_ops.py` checks.

    Class attributes:
        mixes: True if it combines samples of one batch. It then comes after all ops on single samples, and runs by
            `mix`; `apply` leaves a sample alone.
    """

    draws: ClassVar[int] = 0  # uniform random numbers in [0, 1) for each sample; 0 makes the op deterministic
    batchable: ClassVar[bool] = False  # it acts on each value alone: it can run on a whole batch, also on the device
    mixes: ClassVar[bool] = False
    any_y: ClassVar[bool] = False  # an op on both acts on any y; otherwise only on a mask
    revision: ClassVar[int] = 1  # raised when the op gives other values for the same settings: digests then differ

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def is_random(self) -> bool:
        return self.draws > 0

    @property
    def target(self) -> Target:
        """The part of a sample on which the op acts; `on`, a setting or an attribute of the class, says it."""
        return getattr(self, "on", "image")

    def followed_by(self, rest: Sequence[Op]) -> Op:
        """Return the op as it is in a workload with `rest` after it; raise ConfigError if it needs others behind it."""
        return self

    def without_chance(self) -> Op | None:
        """Return its substitute in validation and prediction, of the same size; None for no op."""
        return None if self.is_random else self

    def touches(self, spec: SampleSpec) -> tuple[bool, ...]:
        target, y = self.target, spec.y  # of each sample once: short
        follows = target == "both" and y is not None and (self.any_y or y.kind in _MASKS)
        return target != "mask", follows or (target == "mask" and y is not None)

    def kinds(self, spec: SampleSpec) -> tuple[FieldKind | None, ...]:
        return spec.x.kind, None if spec.y is None else spec.y.kind

    def check(self, sample: Sample, spec: SampleSpec) -> None:  # noqa: B027  # most ops keep the rule by themselves
        """Raise OpError if the op is no pure function of a sample and the sample's own random numbers. It is tried on
        one sample when a loader or a search opens; no measurement runs meanwhile.
        """

    def look(self, samples: Sequence[Sample], spec: SampleSpec) -> None:  # noqa: B027  # most ops have no doubts
        """Warn of probable mistakes, from the first few samples when a loader or search opens."""

    def lost(self, sample: Sample, spec: SampleSpec) -> tuple[str, ...]:
        """Say what of a sample gets lost in this op, as a predicate of images: "have more than 8 bits"."""
        return ()

    @abc.abstractmethod
    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64]) -> Sample:
        """Return the sample after the op; `spec` is before it, and `random` has shape (draws,). Write to nothing."""

    def mix(self, batch: Batch, random: NDArray[np.float64]) -> Batch:
        """Return a batch (x, y) with its samples combined; it may be overwritten. `random`: (samples, draws)."""
        raise NotImplementedError

    def finish(self, batch: Batch, spec: SampleSpec, xp: ArrayNamespace) -> Batch:
        """Return a batch after the op, in the array library `xp`. Only for `batchable` ops."""
        raise NotImplementedError

    @property
    def acting(self) -> Op:
        """The op that changes samples: this one, or the one that it wraps."""
        return self

    def instructions(self, field: Field) -> tuple[native.Instruction, ...] | None:
        """Return instructions of the native library with the bits of `apply`, for a part that is `field` before the op;
        None if Python does it. Those that are not `is_wide` serve encoded and 8-bit parts only. Of an encoded part, the
        field has no dtype, and the kind that it has behind the op.
        """
        return None

    def places(self, size: tuple[int, int], random: NDArray[np.float64]) -> Places | None:
        """Return the rows and the columns of the images before the op that make up the images after it; None if it does
        anything else than move whole rows and columns. A device does such an op by its gather alone, to the bit as
        `apply` does it. The images are of one `size` (height, width); `random` has shape (samples, draws).
        """
        return None

    def plain(self, step: Step, library: Library) -> Iterable[str]:
        """Return the op as lines of NumPy and OpenCV, or of TensorFlow, by TensorFlow's own op if it has one.

        They use the variables of the parts on which it acts, `autopipe.workload.plain_code.parts(step)`: "x" and "y",
        or of several parts all at once, with the same random numbers, "x_left", "x_right", "y_mask". A random op draws
        from `rng` in NumPy, and TensorFlow's own numbers there. Those of an op that mixes samples are on whole batches.
        Raise PlainCodeError if it has no such form.
        """
        raise PlainCodeError(f"`{type(self).__name__}` has no plain code (`plain`)")

    def takes_floats(self, part: Variable) -> bool | None:
        """Return True if the op's plain code of TensorFlow computes with the whole numbers of a part as floating point,
        so that the op before need not round them; None if it does no more than put them elsewhere.
        """
        return False

    def plain_constants(self, step: Step) -> Lines:
        """Return the lines that both forms need at the top of a file: a table, say."""
        return []

    def plain_functions(self, step: Step) -> Mapping[str, Callable[..., Any]]:
        """Return the user's own functions that both forms call, by their names in the code."""
        return {}


# -------------------- plan: made by `autopipe.workload.ops.planner.make_plan`


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One op in its place."""

    op: Op
    stream: int  # its position in the user's list, which names its random numbers
    before: SampleSpec  # the sample before it
    after: SampleSpec  # the sample after it

    @property
    def touched(self) -> dict[int, Field]:
        columns = zip(self.before.columns, self.op.touches(self.before), strict=True)
        return {number: field for number, (field, is_on) in enumerate(columns) if is_on and field is not None}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The ops of a workload in three parts, which together do the whole list."""

    source: SampleSpec  # the sample as it is read
    prefix: tuple[Step, ...]  # deterministic; the same in every epoch
    body: tuple[Step, ...]  # the ops from the first random one on
    suffix: tuple[Step, ...]  # acts on each value alone; may run on a batch, also on the device

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.prefix + self.body + self.suffix

    def cut(self, depth: int) -> SampleSpec:
        return self.source if depth == 0 else self.prefix[depth - 1].after

    def sent(self, finish: str) -> SampleSpec:
        return self.finished if finish == "host" else self.compact

    @property
    def compact(self) -> SampleSpec:
        steps = self.prefix + self.body
        return steps[-1].after if steps else self.source

    @property
    def finished(self) -> SampleSpec:
        return self.suffix[-1].after if self.suffix else self.compact
