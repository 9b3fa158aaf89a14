"""MixUp and CutMix: put two samples of a batch into one, and their targets with them.

They act on finished samples, so they come after all ops on single ones. Who is mixed with whom is a permutation of the
batch that its samples' own random numbers make; the last, short batch is mixed among itself.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autopipe.core.op import Op, Target
from autopipe.core.plain_code import Lines
from autopipe.core.plan import Step
from autopipe.core.sample import Batch, FieldKind, Part, Sample, SampleSpec
from autopipe.errors import OpError, PlainCodeError
from autopipe.ops import chance
from autopipe.ops.levels import to_levels


@dataclasses.dataclass(frozen=True)
class _Mixing(Op):
    """An op that puts two samples of a batch into one.

    Attributes:
        alpha: of the beta distribution that the first sample's share is drawn from, for each sample anew. Small values
            leave most samples nearly as they are.
        probability: of mixing a sample at all, 0 to 1.
    """

    alpha: float
    probability: float = 1.0
    mixes: ClassVar[bool] = True
    draws: ClassVar[int] = 6  # order, chance, two for the share, two for a place

    def __post_init__(self) -> None:
        chance.check_number(self, "alpha", most=float("inf"), above=True)
        chance.check_number(self, "probability", above=True)

    @property
    def target(self) -> Target:
        return "both"

    def touches(self, spec: SampleSpec) -> tuple[bool, bool]:
        return True, spec.y is not None

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        name, x, y = type(self).__name__, spec.x, spec.y
        if x.dtype is None or x.dtype.kind not in "uf":
            raise OpError(f"`{name}` needs decoded images, but got {x.dtype or 'encoded bytes'}.")
        if y is not None and y.kind is not FieldKind.MASK and (y.dtype is None or y.dtype.kind != "f"):
            raise OpError(
                f"`{name}` needs targets that can be mixed, but got {y.dtype or 'encoded'} labels.",
                hint=f"Put ap.OneHot(classes) before ap.{name}.",
            )

    def apply(self, sample: Sample, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Sample:
        """Return the sample as it is: mixed with itself, as in a batch of one."""
        return sample

    def takes_batches(self, spec: SampleSpec) -> bool:
        return True

    def apply_many(self, batch: Batch, spec: SampleSpec, random: NDArray[np.float64], out: Part = None) -> Batch:
        x, y = batch
        order = np.argsort(random[:, 0], kind="stable")
        others = x[order], None if y is None else y[order]
        for row in np.flatnonzero(random[:, 1] < self.probability).tolist():
            share = _beta(self.alpha, random[row, 2:4])
            self._mix((x, y), others, row, share, random[row, 4:])
        return x, y

    @abc.abstractmethod
    def _mix(self, batch: Batch, others: Batch, row: int, share: float, random: NDArray[np.float64]) -> None:
        """Put the other sample of a row into that row, which keeps about `share` of itself."""

    def plain_numpy(self, step: Step) -> Lines:
        raise PlainCodeError(f"`{type(self).__name__}` mixes the samples of a batch, and plain code makes them singly")

    def plain_tensorflow(self, step: Step) -> Lines:
        return self.plain_numpy(step)


@dataclasses.dataclass(frozen=True)
class MixUp(_Mixing):
    """Add another sample of the batch to each, image and target by the same shares (Zhang et al., 2017).

    Targets must be floating point (behind `OneHot`), masks too.
    """

    alpha: float = 0.2

    def check(self, sample: Sample, spec: SampleSpec) -> None:
        super().check(sample, spec)
        if spec.y is not None and spec.y.dtype is not None and spec.y.dtype.kind != "f":
            raise OpError(
                f"`MixUp` needs masks that can be mixed, but got {spec.y.dtype} class numbers.",
                hint="Put ap.OneHot(classes) before ap.MixUp.",
            )

    def _mix(self, batch: Batch, others: Batch, row: int, share: float, random: NDArray[np.float64]) -> None:
        for mine, other in zip(batch, others, strict=True):
            if mine is not None and other is not None:
                mine[row] = _sum(mine[row], other[row], share)


@dataclasses.dataclass(frozen=True)
class CutMix(_Mixing):
    """Put a rectangle of another sample of the batch into each (Yun et al., 2019).

    The rectangle has the image's own proportions and a place of the sample's own. A mask's rectangle is put in alike;
    other targets are mixed by its share of the image.
    """

    alpha: float = 1.0

    def _mix(self, batch: Batch, others: Batch, row: int, share: float, random: NDArray[np.float64]) -> None:
        x, y = batch
        height, width = x.shape[1:3]
        side = (1 - share) ** 0.5
        tall, wide = int(height * side + 0.5), int(width * side + 0.5)
        top, left = int(random[0] * (height - tall + 1)), int(random[1] * (width - wide + 1))
        inside = (row, slice(top, top + tall), slice(left, left + wide))
        x[inside] = others[0][inside]
        if y is None or others[1] is None:
            return
        if y.shape[1:3] == (height, width):
            y[inside] = others[1][inside]
        else:
            y[row] = _sum(y[row], others[1][row], 1 - tall * wide / (height * width))


def _sum(one: NDArray[Any], other: NDArray[Any], share: float) -> NDArray[Any]:
    kept, rest = np.float32(share), np.float32(1 - share)
    return to_levels(one * kept + other * rest, one.dtype)


def _beta(alpha: float, random: NDArray[np.float64]) -> float:
    """Return a number of the beta distribution, a function of two uniform ones."""
    words = [int(number * 2**53) for number in random]
    return float(np.random.Generator(np.random.Philox(key=words)).beta(alpha, alpha))
